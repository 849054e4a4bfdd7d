/*
 * A claimed job: every change compares the claim (QJ2), inside the commit that makes the change.
 *
 * If a commit has no answer, the job itself shows the result: it is done by the token of this claim
 * only if this commit did it. A worker that gives up after UNKNOWN and reports a failure finds its
 * job done, or lost.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/patience.h"
#include "bson/field_names.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"
#include "patterns/queue/queue_times.h"
#include "store/maintenance.h"
#include "store/store.h"

static void job_mark_ended(truce_job *job, enum job_end end)
{
    job->ended = end;
    truce__queue_ran(job);
}

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

enum fate { FATE_OPEN, FATE_DONE };

struct finishing {
    truce_rewrite base;
    truce_job *const *jobs;
    /* NULL: no results. */
    const bson_t *const *results;
    int64_t now_ms;
    enum fate *fates;
};

static truce_status job_done_in(truce_job *job, truce_commit *commit, const bson_t *result,
                                bson_error_t *error);
static truce_status job_check_step(const char *name, bson_error_t *error);

static void done_begin(truce_rewrite *rewrite)
{
    struct finishing *finishing = (struct finishing *)rewrite;

    memset(finishing->fates, 0, rewrite->count * sizeof *finishing->fates);
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
        return false; /* the commit gives the reason, or does it */
    done_append(finishing, number, before, after);
    if (done_result_of(finishing, number) && truce__document_check(after, "job", NULL))
        return false; /* the result made the document too deep: the commit reports it */
    finishing->fates[number] = FATE_DONE;
    return true;
}

static void done_refuse(truce_rewrite *rewrite, size_t number, truce_status status,
                        const bson_error_t *error)
{
    (void)status, (void)error;
    ((struct finishing *)rewrite)->fates[number] = FATE_OPEN;
}

static bool done_inside_possible(const truce_queue *queue)
{
    return (queue->store->capabilities & TRUCE_CAN_REWRITE) &&
           queue->mechanism != TRUCE_MECHANISM_JOURNAL && !queue->refused;
}

/* Other stores end such a job by one update. */
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

/* Ends jobs inside the store's write. If fates[i] is not FATE_DONE, a commit has to end the job, or
 * report the reason. */
static void done_inside(truce_job *const *jobs, const bson_t *const *results, size_t count,
                        enum fate *fates)
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
            job_mark_ended(jobs[i], JOB_DONE);
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
    if (!commit && done_inside_possible(job->queue))
        done_inside(&job, &result, 1, &fate);
    return fate == FATE_DONE ? TRUCE_OK : job_done_in(job, commit, result, error);
}

/* ---- many jobs ------------------------------------------------------------------------------- */

static truce_status done_check_many(truce_queue *queue, truce_job *const *jobs, size_t count,
                                    const bson_t *const *results, bson_error_t *error)
{
    truce_status status = truce__queue_ready(queue, error);

    if (!status && count > JOB_CLAIMS_MAX)
        status =
            truce__fail(TRUCE_INVALID, error, "cannot end %zu jobs at once: expected at most %d",
                        count, JOB_CLAIMS_MAX);
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
    if (count)
        RETURN_IF_NULL(jobs, error);

    DEADLINE_SCOPE(queue->deadline_ms);
    PATIENCE_SCOPE();
    truce_status first = done_check_many(queue, jobs, count, results, error);
    enum fate *fates;

    if (first || !count)
        return first;
    fates = bson_malloc0(count * sizeof *fates);
    if (done_inside_possible(queue))
        done_inside(jobs, results, count, fates);
    for (size_t i = 0; i < count; i++) {
        truce_status status = TRUCE_OK;

        if (fates[i] == FATE_OPEN)
            status = job_done_in(jobs[i], NULL, results ? results[i] : NULL, first ? NULL : error);
        if (statuses)
            statuses[i] = status;
        first = first ? first : status;
    }
    bson_free(fates);
    return first;
}

/* ---- sleeps and waits ------------------------------------------------------------------------ */

/*
 * Sleeps and waits between the steps of a job, without a worker: the job is set aside like a
 * snoozed job.
 *
 *     steps: {pause: {until: <date>}}               a sleep; it is over at `until`
 *     waits: {paid: {until: <date>, over: true}}    a wait; over: the event did not come by then
 *     awaits: "paid"                                the job is set aside for that event
 *     events: {paid: {...}}                         what truce_queue_signal sent
 *
 * The waiting worker and the signalling caller both read the job in their commits. An event that
 * comes between the read and the write is therefore not missed: one of the two runs again. A wait
 * that is over stays over, and an event that has come counts. The first of the two in the job
 * decides; no later read changes the result.
 */

struct waiting {
    truce_job *job;
    const char *name;
    /* -1: forever. */
    int64_t ms;
    bson_t event;
    bool came, set_aside;
};

/* ---- setting aside --------------------------------------------------------------------------- */

static bool wait_until(const bson_t *document, const char *field, const char *name,
                       int64_t *until_ms)
{
    bson_t all, one;

    return truce__value_subdocument(document, field, &all) &&
           truce__value_subdocument(&all, name, &one) && truce__job_date(&one, "until", until_ms);
}

/* Writes {$set: {FIELD.NAME.until, awaits?}}. */
static truce_status wait_write_until(const struct waiting *waiting, truce_commit *commit,
                                     const char *field, int64_t until_ms, bson_error_t *error)
{
    bson_value_t id = truce_id_oid(&waiting->job->id);
    char *path = bson_strdup_printf("%s.%s.until", field, waiting->name);
    bson_t update = BSON_INITIALIZER, set;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_DATE_TIME(&set, path, until_ms);
    if (!strcmp(field, "waits"))
        BSON_APPEND_UTF8(&set, "awaits", waiting->name);
    bson_append_document_end(&update, &set);
    status = truce_commit_update(commit, QUEUE, &id, NULL, &update, error);
    bson_destroy(&update);
    bson_free(path);
    return status;
}

static truce_status wait_set_aside(struct waiting *waiting, truce_commit *commit,
                                   const bson_t *document, const char *field, int64_t until_ms,
                                   bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER;
    truce_status status;

    truce__job_update_snooze(&update, document, until_ms, truce__clock_wall_ms());
    status = truce__job_move(commit, document, &update, error);
    if (!status)
        status = wait_write_until(waiting, commit, field, until_ms, error);
    waiting->set_aside = true;
    bson_destroy(&update);
    return status;
}

static int64_t wait_end_of(const struct waiting *waiting)
{
    return waiting->ms < 0 ? DATE_LAST_MS : truce__date_after(truce__clock_wall_ms(), waiting->ms);
}

static truce_status wait_begin(struct waiting *waiting, bson_error_t *error)
{
    truce_status status = job_check_step(waiting->name, error);

    if (!status && (waiting->ms < -1 || waiting->ms > DATE_LAST_MS))
        status = truce__fail(
            TRUCE_INVALID, error,
            "invalid time of %lld ms: expected -1 or a time that ends before the year 10000",
            (long long)waiting->ms);
    return status;
}

static truce_status wait_finish(const struct waiting *waiting, truce_status status,
                                bson_error_t *error)
{
    if (status || !waiting->set_aside)
        return status;
    job_mark_ended(waiting->job, JOB_SNOOZED);
    return truce__fail(TRUCE_NOT_FOUND, error,
                       "the job waits at \"%s\", so its function cannot continue now",
                       waiting->name);
}

/* ---- sleeps ---------------------------------------------------------------------------------- */

static truce_status sleep_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct waiting *waiting = arg;
    bson_t document;
    int64_t until_ms;
    truce_status status = truce__job_read_mine(waiting->job, commit, &document, error);

    waiting->set_aside = false;
    if (!status && !wait_until(&document, "steps", waiting->name, &until_ms))
        until_ms = wait_end_of(waiting);
    if (!status && truce__clock_wall_ms() < until_ms)
        status = wait_set_aside(waiting, commit, &document, "steps", until_ms, error);
    bson_destroy(&document);
    return status;
}

truce_status truce_job_sleep(truce_job *job, const char *name, int64_t ms, bson_error_t *error)
{
    RETURN_IF_NULL(name, error);

    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    struct waiting waiting = {.job = job, .name = name, .ms = ms};
    int64_t until_ms;
    truce_status status = wait_begin(&waiting, error);

    if (!status && ms < 0)
        status = truce__fail(TRUCE_INVALID, error, "the time of a sleep must be 0 ms or more");
    if (status || (wait_until(&job->document, "steps", name, &until_ms) &&
                   truce__clock_wall_ms() >= until_ms))
        return status;
    return wait_finish(&waiting, truce__queue_run(job->queue, NULL, sleep_in, &waiting, error),
                       error);
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* Copies the event if it has come. */
static bool wait_find_event(struct waiting *waiting, const bson_t *document)
{
    bson_t events, one;

    waiting->came = truce__value_subdocument(document, "events", &events) &&
                    truce__value_subdocument(&events, waiting->name, &one);
    bson_reinit(&waiting->event);
    if (waiting->came) {
        bson_destroy(&waiting->event);
        truce__names_restore(&one, &waiting->event);
    }
    return waiting->came;
}

static bool wait_is_over(const bson_t *document, const char *name)
{
    bson_t waits, one;

    return truce__value_subdocument(document, "waits", &waits) &&
           truce__value_subdocument(&waits, name, &one) && bson_has_field(&one, "over");
}

static truce_status wait_write_over(const struct waiting *waiting, truce_commit *commit,
                                    bson_error_t *error)
{
    bson_value_t id = truce_id_oid(&waiting->job->id);
    char *path = bson_strdup_printf("waits.%s.over", waiting->name);
    bson_t *update = BCON_NEW("$set", "{", path, BCON_BOOL(true), "}", "$unset", "{", "awaits",
                              BCON_UTF8(""), "}");
    truce_status status = truce_commit_update(commit, QUEUE, &id, NULL, update, error);

    bson_destroy(update);
    bson_free(path);
    return status;
}

static truce_status wait_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct waiting *waiting = arg;
    bson_t document;
    int64_t until_ms;
    truce_status status = truce__job_read_mine(waiting->job, commit, &document, error);

    waiting->set_aside = waiting->came = false;
    if (status || wait_is_over(&document, waiting->name) || wait_find_event(waiting, &document))
        goto out;
    if (!wait_until(&document, "waits", waiting->name, &until_ms))
        until_ms = wait_end_of(waiting);
    if (truce__clock_wall_ms() < until_ms)
        status = wait_set_aside(waiting, commit, &document, "waits", until_ms, error);
    else
        status = wait_write_over(waiting, commit, error);
out:
    bson_destroy(&document);
    return status;
}

truce_status truce_job_wait(truce_job *job, const char *name, int64_t timeout_ms, bson_t *event,
                            bool *came, bson_error_t *error)
{
    RETURN_IF_NULL(event, error);
    RETURN_EMPTY_IF_NULL(name, event, error);
    RETURN_EMPTY_IF_NULL(came, event, error);

    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    struct waiting waiting = {
        .job = job, .name = name, .ms = timeout_ms, .event = BSON_INITIALIZER};
    truce_status status = wait_begin(&waiting, error);

    if (!status && !wait_is_over(&job->document, name) &&
        !wait_find_event(&waiting, &job->document))
        status = wait_finish(&waiting, truce__queue_run(job->queue, NULL, wait_in, &waiting, error),
                             error);
    *came = !status && waiting.came;
    bson_init(event);
    if (*came)
        bson_concat(event, &waiting.event);
    bson_destroy(&waiting.event);
    return status;
}

/* ---- signals --------------------------------------------------------------------------------- */

struct signalling {
    truce_queue *queue;
    const bson_oid_t *id;
    const char *name;
    const bson_t *event;
};

static truce_status wait_check_room(const bson_t *job, const char *name, bool *known,
                                    bson_error_t *error)
{
    bson_t events;

    *known = false;
    if (!truce__job_live(job))
        return truce__fail(TRUCE_INVALID, error, "the job is %s and cannot receive an event",
                           truce__job_state(job));
    if (!truce__value_subdocument(job, "events", &events))
        return TRUCE_OK;
    *known = bson_has_field(&events, name);
    if (!*known && bson_count_keys(&events) >= JOB_EVENTS_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the job already has %d events, which is the maximum", JOB_EVENTS_MAX);
    return TRUCE_OK;
}

static void signal_make(const struct signalling *signalling, const bson_t *job, bson_t *update)
{
    char *path = bson_strdup_printf("events.%s", signalling->name);
    int64_t now_ms = truce__clock_wall_ms();
    bool wakes = !strcmp(truce__job_state(job), "delayed") &&
                 !strcmp(truce__field_text(job, "awaits"), signalling->name);
    bson_t set, unset;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    truce__names_append(&set, path, signalling->event);
    if (wakes)
        truce__job_append_queued(&set, signalling->queue->name,
                                 (int32_t)truce__field_number(job, "priority"), now_ms, now_ms);
    bson_append_document_end(update, &set);
    if (wakes) {
        BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
        BSON_APPEND_UTF8(&unset, "awaits", "");
        bson_append_document_end(update, &unset);
    }
    bson_free(path);
}

static truce_status signal_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct signalling *signalling = arg;
    bson_value_t id = truce_id_oid(signalling->id);
    bson_t job, update = BSON_INITIALIZER;
    bool known = false;
    truce_status status =
        truce__queue_read_job(signalling->queue, commit, signalling->id, &job, error);

    if (!status)
        status = wait_check_room(&job, signalling->name, &known, error);
    if (!status && !known) {
        signal_make(signalling, &job, &update);
        status = truce_commit_update(commit, QUEUE, &id, NULL, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&job);
    return status;
}

truce_status truce_queue_signal(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                                const char *name, const bson_t *event, bson_error_t *error)
{
    RETURN_IF_NULL(id, error);
    RETURN_IF_NULL(name, error);

    DEADLINE_SCOPE(queue->deadline_ms);
    PATIENCE_SCOPE();
    bson_t empty = BSON_INITIALIZER;
    struct signalling signalling = {queue, id, name, event ? event : &empty};
    truce_status status = job_check_step(name, error);

    if (!status)
        status = truce__document_check(signalling.event, "event", error);
    if (!status && signalling.event->len > JOB_METADATA_BYTES_MAX)
        status =
            truce__fail(TRUCE_LIMIT, error, "the event has %u bytes, more than the maximum of %d",
                        signalling.event->len, JOB_METADATA_BYTES_MAX);
    if (!status)
        status = truce__queue_ready(queue, error);
    if (!status)
        status = truce__queue_run(queue, commit, signal_in, &signalling, error);
    bson_destroy(&empty);
    return status;
}

/* ---- the claimed job ------------------------------------------------------------------------- */

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

/* ---- ownership ------------------------------------------------------------------------------- */

static truce_status update_mine(truce_job *job, truce_commit *commit, const bson_t *update,
                                bson_error_t *error)
{
    bson_value_t id = truce_id_oid(&job->id);

    return truce_commit_update(commit, QUEUE, &id, NULL, update, error);
}

/* ---- ends ------------------------------------------------------------------------------------ */

enum end_kind { END_DONE, END_FAIL, END_SNOOZE, END_DISCARD };

struct ending {
    truce_job *job;
    enum end_kind kind;
    const bson_t *result;
    const char *text;
    int64_t delay_ms;
};

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
        status = truce__job_move(commit, &document, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&document);
    return status;
}

/* Returns true if this claim has done the job, after a lost answer. `committed`: truce_job_commit
 * did it, with its effects. */
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

/* Corrects the status of a call that may have landed: an unanswered attempt of this claim may have
 * done the job. */
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
        ending->job->said = ends[ending->kind];
    else if (!status)
        job_mark_ended(ending->job, ends[ending->kind]);
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
        job_mark_ended(job, JOB_DONE);
    return *done || !truce__unanswered(status) ? TRUCE_OK : status;
}

/* Ends a job as done in a commit (NULL: a commit of its own). The result was checked. */
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
    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    struct ending ending = {job, END_FAIL, .text = text, .delay_ms = delay_ms};

    return run_end(&ending, commit, error);
}

truce_status truce_job_snooze(truce_job *job, truce_commit *commit, int64_t delay_ms,
                              bson_error_t *error)
{
    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    struct ending ending = {job, END_SNOOZE, .delay_ms = delay_ms};

    if (delay_ms < 0 || delay_ms > INT64_C(1) << 48)
        return truce__fail(TRUCE_INVALID, error,
                           "invalid delay of %lld ms: expected 0 to 281474976710656",
                           (long long)delay_ms);
    return run_end(&ending, commit, error);
}

truce_status truce_job_discard(truce_job *job, truce_commit *commit, const char *text,
                               bson_error_t *error)
{
    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
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
        status = truce__job_move(commit, &document, &update, error); /* QJ3 */
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
    truce_status status;

    if (own.mechanism == TRUCE_MECHANISM_AUTO)
        own.mechanism = job->queue->mechanism;
    if (!own.deadline_ms)
        own.deadline_ms = job->queue->deadline_ms;
    if (!own.lease_ms)
        own.lease_ms = truce__queue_commit_lease(job->queue);
    if (own.key)
        return truce__fail(
            TRUCE_INVALID, error,
            "the commit of a job cannot have a key: the job already makes it happen once");
    status = truce_transact(job->queue->store, commit_work_in, &working, &own, error);
    status = job_settle(job, true, status); /* effects are missing if truce_job_done did it */
    if (!status)
        job_mark_ended(job, JOB_DONE);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

struct stepping {
    truce_job *job;
    const char *name;
    truce_step_function *function;
    void *arg;
    bson_t result;
};

static truce_status job_check_step(const char *name, bson_error_t *error)
{
    size_t length = strlen(name);

    if (length && length <= JOB_KEY_BYTES_MAX && !strpbrk(name, ".$") &&
        bson_utf8_validate(name, length, false))
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "invalid name of a step: expected 1 to %d bytes without \".\" and \"$\"",
                       JOB_KEY_BYTES_MAX);
}

static bool step_is_known(const bson_t *steps, const char *name, bson_t *result)
{
    bson_t kept;

    if (!truce__value_subdocument(steps, name, &kept))
        return false;
    bson_copy_to(&kept, result);
    return true;
}

static truce_status step_now(struct stepping *stepping, truce_commit *commit, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, set;
    char *path = bson_strdup_printf("steps.%s", stepping->name);
    truce_status status = stepping->function(commit, stepping->arg, &stepping->result, error);

    if (!status) {
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
        truce__names_append(&set, path, &stepping->result);
        bson_append_document_end(&update, &set);
        status = update_mine(stepping->job, commit, &update, error);
    }
    bson_free(path);
    bson_destroy(&update);
    return status;
}

/* Runs a step in a commit, or finds the result that an earlier, unanswered commit stored. */
static truce_status step_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct stepping *stepping = arg;
    bson_t document, steps;
    truce_status status = truce__job_read_mine(stepping->job, commit, &document, error);

    bson_destroy(&stepping->result);
    bson_init(&stepping->result);
    truce__names_restore_own(&document);
    if (!status && truce__value_subdocument(&document, "steps", &steps)) {
        bson_t kept;

        if (truce__value_subdocument(&steps, stepping->name, &kept)) {
            bson_concat(&stepping->result, &kept);
            goto out;
        }
    }
    if (!status)
        status = step_now(stepping, commit, error);
out:
    bson_destroy(&document);
    return status;
}

truce_status truce_job_step(truce_job *job, const char *name, truce_step_function *function,
                            void *arg, bson_t *result, bson_error_t *error)
{
    if (result && (!name || !function))
        bson_init(result);
    RETURN_IF_NULL(name, error);
    RETURN_IF_NULL(function, error);
    struct stepping stepping = {job, name, function, arg, BSON_INITIALIZER};
    truce_status status = job_check_step(name, error);

    bson_destroy(&stepping.result);
    if (status || !step_is_known(&job->steps, name, &stepping.result)) {
        bson_init(&stepping.result);
        if (!status)
            status = truce__queue_run(job->queue, NULL, step_in, &stepping, error);
        if (!status)
            BSON_APPEND_DOCUMENT(&job->steps, name, &stepping.result);
    }
    if (result && status)
        bson_init(result);
    else if (result)
        bson_copy_to(&stepping.result, result);
    bson_destroy(&stepping.result);
    return status;
}

/* ---- extensions and progress ----------------------------------------------------------------- */

struct sign {
    truce_job *job;
    /* NULL: extend the lease. */
    const bson_t *progress;
};

/* Returns the end of the extended lease. It is later than the current end even if the clock does not
 * move, because the other processes see an extension only by its end (job_lease.c). The timeout
 * limits it. */
static int64_t sign_until(const truce_job *job, const bson_t *document)
{
    int64_t until_ms = truce__clock_wall_ms() + job->queue->lease_ms, current_ms;

    if (truce__job_date(document, "undone.at", &current_ms) && until_ms <= current_ms)
        until_ms = current_ms + 1;
    if (job->timeout_ms && until_ms > job->since_ms + job->timeout_ms)
        until_ms = job->since_ms + job->timeout_ms;
    return until_ms;
}

static truce_status sign_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct sign *sign = arg;
    truce_job *job = sign->job;
    bson_t document, update = BSON_INITIALIZER, set;
    truce_status status = truce__job_read_mine(job, commit, &document, error);

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    if (sign->progress)
        truce__names_append(&set, "progress", sign->progress);
    else
        BSON_APPEND_DATE_TIME(&set, "undone.at", sign_until(job, &document));
    bson_append_document_end(&update, &set);
    if (!status)
        status = update_mine(job, commit, &update, error);
    bson_destroy(&update);
    bson_destroy(&document);
    return status;
}

truce_status truce_job_extend(truce_job *job, bson_error_t *error)
{
    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    struct sign sign = {job};

    return truce__queue_run(job->queue, NULL, sign_in, &sign, error);
}

truce_status truce_job_progress(truce_job *job, const bson_t *progress, bson_error_t *error)
{
    RETURN_IF_NULL(progress, error);

    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    struct sign sign = {job, progress};
    truce_status status = truce__document_check(progress, "progress", error);

    if (!status && progress->len > JOB_METADATA_BYTES_MAX)
        status = truce__fail(TRUCE_LIMIT, error,
                             "the progress has %u bytes, more than the maximum of %d",
                             progress->len, JOB_METADATA_BYTES_MAX);
    return status ? status : truce__queue_run(job->queue, NULL, sign_in, &sign, error);
}

bool truce_job_cancelled(truce_job *job)
{
    int64_t now_ns = truce__clock_monotonic_ns(), last = atomic_load(&job->looked_ns);
    bson_t *filter, found;

    if (atomic_load(&job->cancelled) || now_ns - last < CANCELLED_MS * NS_IN_MS ||
        !atomic_compare_exchange_strong(&job->looked_ns, &last, now_ns))
        return atomic_load(&job->cancelled);
    filter = BCON_NEW("_id", BCON_OID(&job->id), "state", BCON_UTF8("cancelled"));
    if (truce_find_one(job->queue->store, QUEUE, filter, NULL, &found, NULL) == TRUCE_OK)
        atomic_store(&job->cancelled, true);
    bson_destroy(&found);
    bson_destroy(filter);
    return atomic_load(&job->cancelled);
}
