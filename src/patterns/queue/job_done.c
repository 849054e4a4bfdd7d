/*
 * The end of jobs that are done, alone and without more effects: inside the store's write, where it can
 * (truce/sys/store.h, rewrite),
 *
 *     running, this claim's token (L2), held by no commit -> done
 *
 * which is what the commit of this one document would do (job.c), and one write of the store. A job whose end changes other
 * documents goes by a commit: one that came through a gate, that stands in a lane, or that others wait for. So does
 * any where the store cannot, or the journal is forced.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/patience.h"
#include "bson/field_names.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"
#include "store/store.h"

enum fate { FATE_OPEN, FATE_DONE };

struct finishing {
    truce_rewrite base; /* first */
    truce_job *const *jobs;
    const bson_t *const *results; /* NULL: none */
    int64_t now_ms;
    enum fate *fates;
};

static void begin_finishing(truce_rewrite *rewrite)
{
    struct finishing *finishing = (struct finishing *)rewrite;

    memset(finishing->fates, 0, rewrite->count * sizeof *finishing->fates);
}

/* Its end is a change of this document alone. */
static bool ends_alone(const bson_t *job)
{
    bson_t lease;

    return truce__intent_absent(job) && !bson_has_field(job, "lane") &&
           !bson_has_field(job, "then") && truce__value_subdocument(job, "lease", &lease) &&
           !bson_has_field(&lease, "gate");
}

static const bson_t *done_result_of(const struct finishing *finishing, size_t number)
{
    return finishing->results ? finishing->results[number] : NULL;
}

/* As truce__job_ends. */
static void append_done(const struct finishing *finishing, size_t number, const bson_t *before,
                        bson_t *after)
{
    int64_t keep_ms = truce__field_number(before, "keep_ms");
    const bson_t *result = done_result_of(finishing, number);
    bson_iter_t field;
    bson_oid_t rev;

    for (bool some = bson_iter_init(&field, before); some && bson_iter_next(&field);) {
        const char *key = bson_iter_key(&field);

        if (!strcmp(key, "state"))
            BSON_APPEND_UTF8(after, key, "done");
        else if (strcmp(key, "undone") != 0 && strcmp(key, "dead") != 0 &&
                 strcmp(key, "ended") != 0 && strcmp(key, "expires") != 0 &&
                 strcmp(key, "_rev") != 0 && (strcmp(key, "result") != 0 || !result))
            bson_append_iter(after, NULL, 0, &field);
    }
    truce__id_new(&rev);
    BSON_APPEND_OID(after, "_rev", &rev);
    BSON_APPEND_DATE_TIME(after, "ended", finishing->now_ms);
    if (keep_ms >= 0)
        BSON_APPEND_DATE_TIME(after, "expires", truce__job_date_after(finishing->now_ms, keep_ms));
    if (result)
        truce__names_append(after, "result", result);
}

static bool done_make_done(truce_rewrite *rewrite, size_t number, const bson_t *before,
                           bson_t *after)
{
    struct finishing *finishing = (struct finishing *)rewrite;

    if (!before || !truce__job_is_of(finishing->jobs[number], before) || !ends_alone(before))
        return false; /* the commit says why, or does it */
    append_done(finishing, number, before, after);
    if (done_result_of(finishing, number) && truce__document_check(after, "job", NULL))
        return false; /* too deep now: the commit says so */
    finishing->fates[number] = FATE_DONE;
    return true;
}

static void refuse_done(truce_rewrite *rewrite, size_t number, truce_status status,
                        const bson_error_t *error)
{
    (void)status, (void)error;
    ((struct finishing *)rewrite)->fates[number] = FATE_OPEN;
}

static bool can_finish_inside(const truce_queue *queue)
{
    return (queue->store->capabilities & TRUCE_CAN_REWRITE) &&
           queue->mechanism != TRUCE_MECHANISM_JOURNAL && !queue->refused;
}

bool truce__job_may_end_with_others(const truce_job *job)
{
    return can_finish_inside(job->queue) && ends_alone(&job->document);
}

/* What fates[i] is not done has to be done by a commit, or is told by it. */
static void finish_inside(truce_job *const *jobs, const bson_t *const *results, size_t count,
                          enum fate *fates)
{
    bson_t *ids = bson_malloc(count * sizeof *ids);
    const bson_t **keys = bson_malloc(count * sizeof *keys);
    struct finishing finishing = {.base = {.collection = QUEUE,
                                           .keys = keys,
                                           .count = count,
                                           .begin = begin_finishing,
                                           .make = done_make_done,
                                           .refuse = refuse_done},
                                  .jobs = jobs,
                                  .results = results,
                                  .now_ms = truce__clock_wall_ms(),
                                  .fates = fates};
    truce_status status;

    for (size_t i = 0; i < count; i++) {
        bson_init(&ids[i]);
        BSON_APPEND_OID(&ids[i], "_id", &jobs[i]->id);
        keys[i] = &ids[i];
    }
    status = truce__store_rewrite(jobs[0]->queue->store, &finishing.base, NULL);
    for (size_t i = 0; i < count; i++) {
        if (status)
            fates[i] = FATE_OPEN;
        else if (fates[i] == FATE_DONE)
            jobs[i]->ended = JOB_DONE;
        bson_destroy(&ids[i]);
    }
    bson_free(keys);
    bson_free(ids);
}

truce_status truce_job_done(truce_job *job, truce_commit *commit, const bson_t *result,
                            bson_error_t *error)
{
    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    truce_status status = result ? truce__document_check(result, "result", error) : TRUCE_OK;
    enum fate fate = FATE_OPEN;

    if (status)
        return status;
    if (!commit && can_finish_inside(job->queue))
        finish_inside(&job, &result, 1, &fate);
    return fate == FATE_DONE ? TRUCE_OK : truce__job_done_in(job, commit, result, error);
}

/* ---- many --------------------------------------------------------------------------------------- */

static truce_status done_check_many(truce_queue *queue, truce_job *const *jobs, size_t count,
                                    const bson_t *const *results, bson_error_t *error)
{
    truce_status status = truce__queue_ready(queue, error);

    if (!status && count > JOB_CLAIMS_MAX)
        status = truce__fail(TRUCE_INVALID, error, "%zu jobs at once, and may be up to %d", count,
                             JOB_CLAIMS_MAX);
    for (size_t i = 0; i < count && !status; i++) {
        if (jobs[i]->queue != queue)
            status = truce__fail(TRUCE_INVALID, error, "job %zu was not claimed by this queue", i);
        else if (results && results[i])
            status = truce__document_check(results[i], "result", error);
    }
    return status;
}

truce_status truce_queue_done_many(truce_queue *queue, truce_job *const *jobs, size_t count,
                                   const bson_t *const *results, truce_status *statuses,
                                   bson_error_t *error)
{
    DEADLINE_SCOPE(queue->deadline_ms);
    PATIENCE_SCOPE();
    truce_status first = done_check_many(queue, jobs, count, results, error);
    enum fate *fates;

    if (first || !count)
        return first;
    fates = bson_malloc0(count * sizeof *fates);
    if (can_finish_inside(queue))
        finish_inside(jobs, results, count, fates);
    for (size_t i = 0; i < count; i++) {
        truce_status status = TRUCE_OK;

        if (fates[i] == FATE_OPEN)
            status = truce__job_done_in(jobs[i], NULL, results ? results[i] : NULL,
                                        first ? NULL : error);
        if (statuses)
            statuses[i] = status;
        first = first ? first : status;
    }
    bson_free(fates);
    return first;
}
