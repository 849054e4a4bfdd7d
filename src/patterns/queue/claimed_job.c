/*
 * A claimed job: every change compares the claim, inside the commit that makes the change (QJ2 and
 * QJ3 of queue.c).
 *
 * If a commit gets no reply, the job itself shows the result: only this commit can have set it to
 * done under the token of this claim. A worker that gives up after UNKNOWN and reports a failure
 * finds its job done, or lost.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/time_check.h"
#include "base/wait_limit.h"
#include "bson/field_name_escape.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"
#include "patterns/queue/queue_times.h"
#include "store/maintenance.h"
#include "store/store.h"

/* ---- done jobs ------------------------------------------------------------------------------- */

/*
 * The end of jobs that are done, alone and without other effects. If the store can do it, the end
 * runs inside the store's write (truce/sys/store.h, rewrite):
 *
 *     running, this claim's token (QJ2), held by no commit -> done
 *
 * This has the effect of a commit of this one document, in one write of the store. The end of some
 * jobs changes other documents: jobs that came through a limiter, jobs in a lane, and jobs that
 * others wait for. These end by a commit. So do all jobs if the journal is forced. If the store
 * cannot rewrite, one update that compares the same makes the end (models/queue.cpp, late ends).
 */

enum job_ending { ENDING_OPEN, ENDING_DONE };

/* A rewrite that ends several jobs as done. */
struct finishing {
    truce_rewrite base;
    truce_job *const *jobs;
    /* The results of the jobs, or NULL if no job has one. */
    const bson_t *const *results;
    int64_t now_ms;
    /* endings[i]: whether job i was ended, or must be ended by a commit. */
    enum job_ending *endings;
};

static truce_status job_done_in(truce_job *job, truce_commit *commit, const bson_t *result,
                                bson_error_t *error);

static void done_begin(truce_rewrite *rewrite)
{
    struct finishing *finishing = (struct finishing *)rewrite;

    memset(finishing->endings, 0, rewrite->count * sizeof *finishing->endings);
}

/* Returns true if the end of the job changes this document alone. */
static bool done_alone(const bson_t *job)
{
    bson_t lease;

    return truce__intent_absent(job) && !bson_has_field(job, "lane") &&
           !bson_has_field(job, "then") && truce__value_subdocument(job, "lease", &lease) &&
           !bson_has_field(&lease, "limiter");
}

static const bson_t *done_result_of(const struct finishing *finishing, size_t number)
{
    return finishing->results ? finishing->results[number] : NULL;
}

/* Writes what truce__job_update_end writes. */
static void done_append(const struct finishing *finishing, size_t number, const bson_t *before,
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
        BSON_APPEND_DATE_TIME(after, "expires", truce__date_after(finishing->now_ms, keep_ms));
    if (result)
        truce__names_append(after, "result", result);
}

static bool done_make(truce_rewrite *rewrite, size_t number, const bson_t *before, bson_t *after)
{
    struct finishing *finishing = (struct finishing *)rewrite;

    if (!before || !truce__job_is_of(finishing->jobs[number], before) || !done_alone(before))
        return false; /* A commit has to end the job, or report the reason. */
    done_append(finishing, number, before, after);
    if (done_result_of(finishing, number) && truce__document_check(after, "job", NULL))
        return false; /* The result made the document too deep, which the commit reports. */
    finishing->endings[number] = ENDING_DONE;
    return true;
}

static void done_refuse(truce_rewrite *rewrite, size_t number, truce_status status,
                        const bson_error_t *error)
{
    (void)status, (void)error;
    ((struct finishing *)rewrite)->endings[number] = ENDING_OPEN;
}

static bool done_inside_possible(const truce_queue *queue)
{
    return (queue->store->capabilities & TRUCE_CAN_REWRITE) &&
           queue->mechanism != TRUCE_MECHANISM_JOURNAL && !queue->refused;
}

/* Returns whether one update can end the job as done, on a store that cannot rewrite. */
static bool done_update_possible(const truce_job *job)
{
    const truce_queue *queue = job->queue;

    return !(queue->store->capabilities & TRUCE_CAN_REWRITE) &&
           queue->mechanism != TRUCE_MECHANISM_JOURNAL && !queue->refused &&
           done_alone(&job->document);
}

bool truce__job_may_end_with_others(const truce_job *job)
{
    return done_inside_possible(job->queue) && done_alone(&job->document);
}

/* Ends jobs inside the store's write. If endings[i] is not ENDING_DONE, a commit has to end the
 * job, or report the reason. */
static void done_inside(truce_job *const *jobs, const bson_t *const *results, size_t count,
                        enum job_ending *endings)
{
    bson_t *ids = bson_malloc(count * sizeof *ids);
    const bson_t **keys = bson_malloc(count * sizeof *keys);
    struct finishing finishing = {.base = {.collection = QUEUE,
                                           .keys = keys,
                                           .count = count,
                                           .begin = done_begin,
                                           .make = done_make,
                                           .refuse = done_refuse},
                                  .jobs = jobs,
                                  .results = results,
                                  .now_ms = truce__clock_wall_ms(),
                                  .endings = endings};
    truce_status status;

    for (size_t i = 0; i < count; i++) {
        bson_init(&ids[i]);
        BSON_APPEND_OID(&ids[i], "_id", &jobs[i]->id);
        keys[i] = &ids[i];
    }
    status = truce__store_rewrite(jobs[0]->queue->store, &finishing.base, NULL);
    for (size_t i = 0; i < count; i++) {
        if (status)
            endings[i] = ENDING_OPEN;
        else if (endings[i] == ENDING_DONE)
            truce__job_ended(jobs[i], JOB_DONE);
        bson_destroy(&ids[i]);
    }
    bson_free(keys);
    bson_free(ids);
}

truce_status truce_job_done(truce_job *job, truce_commit *commit, const bson_t *result,
                            bson_error_t *error)
{
    DEADLINE_SCOPE(truce__queue_deadline_ms(job->queue));
    WAIT_LIMIT_SCOPE();
    truce_status status = result ? truce__document_check(result, "result", error) : TRUCE_OK;
    enum job_ending job_ending = ENDING_OPEN;

    if (status)
        return status;
    if (!commit && done_inside_possible(job->queue))
        done_inside(&job, &result, 1, &job_ending);
    return job_ending == ENDING_DONE ? TRUCE_OK : job_done_in(job, commit, result, error);
}

/* ---- many jobs ------------------------------------------------------------------------------- */

/* Checks the jobs and results of a call that ends several jobs. */
static truce_status done_check_many(truce_queue *queue, truce_job *const *jobs, size_t count,
                                    const bson_t *const *results, bson_error_t *error)
{
    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    truce_status status = truce__queue_ready(queue, error);

    if (!status && count > JOB_CLAIMS_MAX)
        status =
            truce__fail(TRUCE_INVALID, error, "cannot end %zu jobs at once: expected at most %d",
                        count, JOB_CLAIMS_MAX);
    for (size_t i = 0; i < count && !status; i++) {
        if (jobs[i]->queue != queue)
            status =
                truce__fail(TRUCE_INVALID, error, "job %zu was claimed by another queue handle", i);
        else if (results && results[i])
            status = truce__document_check(results[i], "result", error);
    }
    return status;
}

/* The deadline in ms of each further job after the whole deadline of one passed without a reply. */
#define LATE_MS 20

/* Ends one of several jobs. Sets `*late` if the store did not answer by the deadline. The next jobs
 * then do not wait for it again. */
static truce_status done_one_of_many(truce_job *job, const bson_t *result, bool *late,
                                     bson_error_t *error)
{
    DEADLINE_SCOPE(*late ? LATE_MS : truce__queue_deadline_ms(job->queue));
    truce_status status = job_done_in(job, NULL, result, error);

    *late = status && truce__clock_monotonic_ns() >= truce__deadline();
    return status;
}

truce_status truce_queue_done_many(truce_queue *queue, truce_job *const *jobs, size_t count,
                                   const bson_t *const *results, truce_status *statuses,
                                   bson_error_t *error)
{
    if (count)
        RETURN_IF_NULL(jobs, error);

    DEADLINE_SCOPE(queue->deadline_ms);
    WAIT_LIMIT_SCOPE();
    truce_status first = done_check_many(queue, jobs, count, results, error);
    enum job_ending *endings;
    bool late = false;

    if (first || !count)
        return first;
    endings = bson_malloc0(count * sizeof *endings);
    if (done_inside_possible(queue))
        done_inside(jobs, results, count, endings);
    for (size_t i = 0; i < count; i++) {
        truce_status status = TRUCE_OK;

        if (endings[i] == ENDING_OPEN)
            status =
                done_one_of_many(jobs[i], results ? results[i] : NULL, &late, first ? NULL : error);
        if (statuses)
            statuses[i] = status;
        first = first ? first : status;
    }
    bson_free(endings);
    return first;
}

/* ---- the claimed job ------------------------------------------------------------------------- */

/* The minimum time between two reads of whether the job was cancelled. */
#define CANCELLED_MS 500
#define NS_IN_MS     INT64_C(1000000)

const bson_oid_t *truce_job_id(const truce_job *job)
{
    return &job->id;
}

const bson_t *truce_job_document(const truce_job *job)
{
    return &job->document;
}

const bson_t *truce_job_payload(const truce_job *job)
{
    return &job->payload;
}

uint32_t truce_job_attempt(const truce_job *job)
{
    return job->attempt;
}

int64_t truce_job_epoch(const truce_job *job)
{
    return job->epoch;
}

/* ---- ends ------------------------------------------------------------------------------------ */

enum end_kind { END_DONE, END_FAIL, END_SNOOZE, END_DISCARD };

/* The argument of the commit that ends a job. */
struct ending {
    truce_job *job;
    enum end_kind kind;
    const bson_t *result;
    const char *text;
    int64_t delay_ms;
};

/* Makes the update that ends or delays the job. */
static void end_make_update(const struct ending *ending, const bson_t *document, bson_t *update)
{
    int64_t now_ms = truce__clock_wall_ms();

    switch (ending->kind) {
    case END_DONE:
        truce__job_update_end(update, document, "done", ending->result, now_ms);
        break;
    case END_FAIL:
        truce__job_update_fail(update, ending->job->queue, document, ending->text, ending->delay_ms,
                               now_ms);
        break;
    case END_SNOOZE:
        truce__job_update_snooze(update, document, truce__date_after(now_ms, ending->delay_ms),
                                 now_ms);
        break;
    case END_DISCARD:
        truce__job_update_end(update, document, "discarded", NULL, now_ms);
        truce__job_update_error(update, document, ending->text, now_ms);
        break;
    }
}

static truce_status end_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct ending *ending = arg;
    bson_t document, update = BSON_INITIALIZER;
    truce_status status = truce__job_read_mine(ending->job, commit, &document, error);

    if (!status) {
        end_make_update(ending, &document, &update);
        status = truce__job_transition(commit, &document, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&document);
    return status;
}

/* Returns true if this claim has ended the job as done, for a call that got no reply. If
 * `committed`, only if truce_job_commit did so, with its effects. */
static bool job_is_done(const truce_job *job, bool committed)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(&job->id), "state", BCON_UTF8("done"), "lease.token",
                              BCON_OID(&job->token));
    bson_t found;
    truce_status status;

    if (committed)
        BSON_APPEND_BOOL(filter, "lease.committed", true);
    status = truce_find_one(job->queue->store, QUEUE, filter, NULL, &found, NULL);

    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_OK;
}

/* Corrects the status of a call that may have taken effect: an attempt of this claim that
 * got no reply may have set the job to done. */
static truce_status job_settle(const truce_job *job, bool committed, truce_status status)
{
    if (!truce__unanswered(status) && status != TRUCE_EXPIRED)
        return status;
    return job_is_done(job, committed) ? TRUCE_OK : status;
}

static truce_status run_end(struct ending *ending, truce_commit *commit, bson_error_t *error)
{
    static const enum job_end ends[] = {JOB_DONE, JOB_FAILED, JOB_SNOOZED, JOB_DISCARDED};
    truce_status status = truce__queue_run(ending->job->queue, commit, end_in, ending, error);

    if (!commit && ending->kind == END_DONE)
        status = job_settle(ending->job, false, status);
    if (!status && commit)
        ending->job->staged = ends[ending->kind];
    else if (!status)
        truce__job_ended(ending->job, ends[ending->kind]);
    return status;
}

/* Makes a guarded update that ends the job, if this changes no other document. */
static void done_make_update(const truce_job *job, const bson_t *result, bson_t *filter,
                             bson_t *update)
{
    bson_t end = BSON_INITIALIZER, ended, set;
    bson_iter_t iter;
    bson_oid_t rev;

    BCON_APPEND(filter, "_id", BCON_OID(&job->id), "state", BCON_UTF8("running"), "lease.token",
                BCON_OID(&job->token), "_intent", "{", "$exists", BCON_BOOL(false), "}", "lane",
                "{", "$exists", BCON_BOOL(false), "}", "then", "{", "$exists", BCON_BOOL(false),
                "}", "lease.limiter", "{", "$exists", BCON_BOOL(false), "}");
    truce__id_new(&rev);
    truce__job_update_end(&end, &job->document, "done", result, truce__clock_wall_ms());
    for (bool some = bson_iter_init(&iter, &end); some && bson_iter_next(&iter);) {
        if (strcmp(bson_iter_key(&iter), "$set") != 0) {
            bson_append_iter(update, NULL, 0, &iter);
            continue;
        }
        (void)truce__value_subdocument(&end, "$set", &ended);
        BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
        bson_concat(&set, &ended);
        BSON_APPEND_OID(&set, "_rev", &rev);
        bson_append_document_end(update, &set);
    }
    bson_destroy(&end);
}

/* Ends the job by one write that compares the claim, where a commit takes a read and a write. If
 * *done is not set, a commit has to end the job, or report the reason. */
static truce_status done_update(truce_job *job, const bson_t *result, bool *done,
                                bson_error_t *error)
{
    const truce_write_options options = {.deadline_ms = job->queue->deadline_ms};
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER;
    truce_write_result written = {0};
    truce_status status;

    done_make_update(job, result, &filter, &update);
    status = truce_update(job->queue->store, QUEUE, &filter, &update, &options, &written, error);
    *done = !status && written.matched;
    if (truce__unanswered(status))
        *done = job_is_done(job, false);
    truce_write_result_release(&written);
    bson_destroy(&filter);
    bson_destroy(&update);
    if (*done)
        truce__job_ended(job, JOB_DONE);
    return *done || !truce__unanswered(status) ? TRUCE_OK : status;
}

/* Ends a job as done in a commit (NULL for a commit of its own). The result was checked. */
static truce_status job_done_in(truce_job *job, truce_commit *commit, const bson_t *result,
                                bson_error_t *error)
{
    struct ending ending = {job, END_DONE, .result = result};
    truce_status status = TRUCE_OK;
    bool done = false;

    if (!commit && done_update_possible(job))
        status = done_update(job, result, &done, error);
    return status || done ? status : run_end(&ending, commit, error);
}

truce_status truce_job_fail(truce_job *job, truce_commit *commit, const char *text,
                            int64_t delay_ms, bson_error_t *error)
{
    DEADLINE_SCOPE(truce__queue_deadline_ms(job->queue));
    WAIT_LIMIT_SCOPE();
    struct ending ending = {job, END_FAIL, .text = text, .delay_ms = delay_ms};

    if (truce__duration_check("the delay", delay_ms, error))
        return TRUCE_INVALID;
    return run_end(&ending, commit, error);
}

truce_status truce_job_snooze(truce_job *job, truce_commit *commit, int64_t delay_ms,
                              bson_error_t *error)
{
    DEADLINE_SCOPE(truce__queue_deadline_ms(job->queue));
    WAIT_LIMIT_SCOPE();
    struct ending ending = {job, END_SNOOZE, .delay_ms = delay_ms};

    if (delay_ms < 0)
        return truce__fail(TRUCE_INVALID, error, "invalid delay of %lld ms: expected 0 ms or more",
                           (long long)delay_ms);
    if (truce__duration_check("the delay", delay_ms, error))
        return TRUCE_INVALID;
    return run_end(&ending, commit, error);
}

truce_status truce_job_discard(truce_job *job, truce_commit *commit, const char *text,
                               bson_error_t *error)
{
    DEADLINE_SCOPE(truce__queue_deadline_ms(job->queue));
    WAIT_LIMIT_SCOPE();
    struct ending ending = {job, END_DISCARD, .text = text};

    return run_end(&ending, commit, error);
}

/* ---- effects and acknowledgement ------------------------------------------------------------- */

void truce_job_result(truce_job *job, const bson_t *result)
{
    if (job->result)
        bson_destroy(job->result);
    job->result = result ? bson_copy(result) : NULL;
}

/* The argument of a commit that runs a function and marks its job done. */
struct working {
    truce_job *job;
    truce_commit_function *function;
    void *arg;
};

/* Reads the job before the effects: a worker that lost the job changes nothing. */
static truce_status commit_work_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct working *working = arg;
    bson_t document, update = BSON_INITIALIZER;
    truce_status status = truce__job_read_mine(working->job, commit, &document, error);

    if (!status)
        status = working->function(commit, working->arg, error);
    if (!status) {
        truce__job_update_commit(&update, &document, working->job->result, truce__clock_wall_ms());
        /* The commit of the effects also writes the job (QJ3). */
        status = truce__job_transition(commit, &document, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&document);
    return status;
}

truce_status truce_job_commit(truce_job *job, truce_commit_function *function, void *arg,
                              const truce_commit_options *options, bson_error_t *error)
{
    RETURN_IF_NULL(function, error);
    struct working working = {job, function, arg};
    truce_commit_options own = options ? *options : (truce_commit_options){0};
    truce_status status, first;

    if (own.mechanism == TRUCE_MECHANISM_AUTO)
        own.mechanism = job->queue->mechanism;
    if (!own.deadline_ms)
        own.deadline_ms = job->queue->deadline_ms;
    if (!own.lease_ms)
        own.lease_ms = truce__queue_commit_lease(job->queue);
    if (own.key)
        return truce__fail(
            TRUCE_INVALID, error,
            "the commit of a job cannot have a key: the job itself ensures that the commit takes "
            "effect once");
    status = first = truce_transact(job->queue->store, commit_work_in, &working, &own, error);
    /* If truce_job_done has ended the job, the effects are missing, so the call must fail. */
    status = job_settle(job, true, status);
    if (own.earlier)
        *own.earlier = first && !status;
    if (!status)
        truce__job_ended(job, JOB_DONE);
    return status;
}

/* ---- progress -------------------------------------------------------------------------------- */

/* Appends the progress of the job. */
static void progress_append(bson_t *set, const truce_job *job, const bson_t *document,
                            const void *progress)
{
    (void)job, (void)document;
    truce__names_append(set, "progress", progress);
}

truce_status truce_job_progress(truce_job *job, const bson_t *progress, bson_error_t *error)
{
    RETURN_IF_NULL(progress, error);

    DEADLINE_SCOPE(truce__queue_deadline_ms(job->queue));
    WAIT_LIMIT_SCOPE();
    truce_status status = truce__document_check(progress, "progress", error);

    if (!status && progress->len > JOB_METADATA_BYTES_MAX)
        status = truce__fail(TRUCE_LIMIT, error,
                             "the progress has %u bytes, more than the maximum of %d",
                             progress->len, JOB_METADATA_BYTES_MAX);
    return status ? status : truce__job_set_mine(job, progress_append, progress, error);
}

bool truce_job_cancelled(truce_job *job)
{
    int64_t now_ns = truce__clock_monotonic_ns(), last = atomic_load(&job->checked_ns);
    bson_t *filter, found;

    if (atomic_load(&job->cancelled) || now_ns - last < CANCELLED_MS * NS_IN_MS ||
        !atomic_compare_exchange_strong(&job->checked_ns, &last, now_ns))
        return atomic_load(&job->cancelled);
    filter = BCON_NEW("_id", BCON_OID(&job->id), "state", BCON_UTF8("cancelled"));
    if (truce_find_one(job->queue->store, QUEUE, filter, NULL, &found, NULL) == TRUCE_OK)
        atomic_store(&job->cancelled, true);
    bson_destroy(&found);
    bson_destroy(filter);
    return atomic_load(&job->cancelled);
}
