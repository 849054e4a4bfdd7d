/*
 * Jobs that wait for other jobs: single jobs, a batch, or a workflow that is added in one commit. A
 * job that waits is "blocked", and has
 *
 *     after: {left: 2, failure: "cancel", open: true}      open: the closing job of a batch that
 *                                                          accepts more jobs
 *
 * Each job that it waits for names it:
 *
 *     then: [X, Y]       jobs that wait for this job
 *     notified: [Z]      jobs that waited for it and were notified of its end, or that were added
 *                        to wait for it after its end
 *
 * Invariants (models/after.cpp is their model):
 *
 *  QW1. X.after.left is the number of jobs with X in `then`, plus one while X is open. Both sides
 *       change in one commit.
 *  QW2. A job that ends notifies the jobs in its `then` within its own commit: it moves them to
 *       `notified` and decreases their `left`. A job with nothing left then starts, or is cancelled
 *       in the same commit and notifies its own waiting jobs. No crash therefore loses a wake-up.
 *  QW3. One commit notifies up to a hundred jobs. A job that has ended with more jobs in `then` is
 *       `stalled`. The sweep and later claims continue with it. A dead job keeps the jobs that wait
 *       for its retry.
 *  QW4. A new job waits only for jobs that exist or that precede it in its workflow. A job of a
 *       batch waits for none. Circles are therefore impossible.
 *  QW5. A job that is cancelled because of another job names that job. If the other job is retried,
 *       the cancelled job waits for it again, in the same commit.
 *
 * No index finds the waiting jobs: the job that ends names them, and its commit has read that job.
 * `left` also decreases for a job that was cancelled in the meantime. If such a job is retried, it
 * is blocked for as long as necessary.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/reserved_fields.h"
#include "base/wait_limit.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"
#include "store/decoded_cursor.h"
#include "store/maintenance.h"

/* The maximum number of waiting jobs that one commit notifies. */
#define NOTIFIED_MAX 100
/* The deadline for the jobs that other commits hold. The next pass continues with them. */
#define RESUME_MS 1000
/* The maximum number of stalled jobs with which one claim continues. */
#define RESUMED_MAX 10

static const char *const failures[] = {[TRUCE_FAILURE_CANCEL] = "cancel",
                                       [TRUCE_FAILURE_GO_ON] = "go on",
                                       [TRUCE_FAILURE_WAIT] = "wait"};

/* ---- fields of a job ------------------------------------------------------------------------- */

static bool workflow_job_is(const bson_t *job, const char *state)
{
    return !strcmp(truce__job_state(job), state);
}

int64_t truce__workflow_pending(const bson_t *job)
{
    bson_t after;
    int64_t left =
        truce__value_subdocument(job, "after", &after) ? truce__field_number(&after, "left") : 0;

    /* An invalid number counts as 0; the check counts the jobs again. */
    return left >= 0 && left <= INT32_MAX ? left : 0;
}

bool truce__workflow_is_open(const bson_t *job)
{
    bson_t after;

    return truce__value_subdocument(job, "after", &after) && bson_has_field(&after, "open");
}

static truce_job_failure workflow_failure(const bson_t *job)
{
    const char *text = "";
    bson_t after;
    truce_job_failure failure = TRUCE_FAILURE_CANCEL;

    if (truce__value_subdocument(job, "after", &after))
        text = truce__field_text(&after, "failure");
    while (failure < TRUCE_FAILURE_WAIT && strcmp(text, failures[failure]))
        failure++;
    return strcmp(text, failures[failure]) ? TRUCE_FAILURE_CANCEL : failure;
}

/* The effect of a job's end on a job that waits for it. */
enum outcome { STARTS, WAITS, IS_CANCELLED };

static enum outcome workflow_outcome(const char *end, truce_job_failure failure)
{
    if (!strcmp(end, "done") || failure == TRUCE_FAILURE_GO_ON)
        return STARTS;
    return !strcmp(end, "dead") && failure == TRUCE_FAILURE_WAIT ? WAITS : IS_CANCELLED;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Finds an array at a path; its elements follow in `iter`. */
static bool workflow_array(const bson_t *document, const char *path, bson_iter_t *iter)
{
    bson_iter_t found;

    return bson_iter_init(iter, document) && bson_iter_find_descendant(iter, path, &found) &&
           BSON_ITER_HOLDS_ARRAY(&found) && bson_iter_recurse(&found, iter);
}

static void workflow_append_id(bson_t *array, const bson_value_t *id)
{
    char key[16];

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(array));
    BSON_APPEND_VALUE(array, key, id);
}

static bool workflow_contains(const bson_t *job, const char *field, const bson_oid_t *id,
                              uint32_t *count)
{
    bson_iter_t iter;
    bool found = false;

    *count = 0;
    for (bool some = workflow_array(job, field, &iter); some && bson_iter_next(&iter); ++*count)
        found |= BSON_ITER_HOLDS_OID(&iter) && bson_oid_equal(bson_iter_oid(&iter), id);
    return found;
}

static truce_status workflow_push(truce_commit *commit, const bson_value_t *id, const char *field,
                                  const bson_oid_t *waiter, bson_error_t *error)
{
    bson_t *update = BCON_NEW("$push", "{", field, BCON_OID(waiter), "}");
    truce_status status = truce_commit_update(commit, QUEUE, id, NULL, update, error);

    bson_destroy(update);
    return status;
}

/* Enters `waiter` into the job that was read. Sets *waits if that job has not ended. */
static truce_status workflow_join(truce_commit *commit, const bson_t *job, const bson_oid_t *waiter,
                                  truce_job_failure failure, bool *waits, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    const char *state = truce__job_state(job);
    enum outcome outcome = truce__job_live(job) ? WAITS : workflow_outcome(state, failure);
    char text[25];
    uint32_t then, notified;
    bool in_then = workflow_contains(job, "then", waiter, &then),
         in_notified = workflow_contains(job, "notified", waiter, &notified),
         known = in_then || in_notified;

    bson_oid_to_string(&id.value.v_oid, text);
    *waits = outcome == WAITS && !known;
    if (outcome == IS_CANCELLED)
        return truce__fail(TRUCE_INVALID, error,
                           "cannot wait for job %s, which is %s: the new job would be cancelled",
                           text, state);
    if (then + notified >= JOB_THEN_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "%d jobs already wait for job %s, which is the maximum", JOB_THEN_MAX,
                           text);
    return known
               ? TRUCE_OK
               : workflow_push(commit, &id, outcome == WAITS ? "then" : "notified", waiter, error);
}

/* Makes the waiter wait for another job, and counts it in *left if that has not ended. */
static truce_status workflow_wait_for(truce_commit *commit, const bson_oid_t *other,
                                      const bson_oid_t *waiter, truce_job_failure failure,
                                      int64_t *left, bson_error_t *error)
{
    bson_value_t id = truce_id_oid(other);
    char text[25];
    bson_t job;
    bool waits = false;
    truce_status status = truce_commit_read(commit, QUEUE, &id, &job, error);

    bson_oid_to_string(other, text);
    if (status == TRUCE_NOT_FOUND)
        status = truce__fail(TRUCE_INVALID, error, "cannot wait for job %s: the job does not exist",
                             text);
    else if (!status)
        status = workflow_join(commit, &job, waiter, failure, &waits, error);
    *left += waits;
    bson_destroy(&job);
    return status;
}

static truce_status workflow_write_left(truce_commit *commit, const bson_value_t *id, int64_t left,
                                        bson_error_t *error)
{
    bson_t *update = BCON_NEW("$set", "{", "after.left", BCON_INT64(left), "}");
    truce_status status = truce_commit_update(commit, QUEUE, id, NULL, update, error);

    bson_destroy(update);
    return status;
}

/* Makes the closing job of a batch wait for one more job. */
static truce_status workflow_enter_batch(truce_commit *commit, const bson_oid_t *batch, bson_t *job,
                                         bson_error_t *error)
{
    bson_value_t id = truce_id_oid(batch);
    char text[25];
    bson_t closing, then;
    truce_status status = truce_commit_read(commit, QUEUE, &id, &closing, error);

    bson_oid_to_string(batch, text);
    if (status == TRUCE_NOT_FOUND || (!status && !workflow_job_is(&closing, "blocked")))
        status = truce__fail(
            TRUCE_INVALID, error,
            "job %s does not close an open batch: expected a job that was added with `open` and "
            "is not closed yet",
            text);
    if (!status)
        status = workflow_write_left(commit, &id, truce__workflow_pending(&closing) + 1, error);
    BSON_APPEND_ARRAY_BEGIN(job, "then", &then);
    BSON_APPEND_OID(&then, "0", batch);
    bson_append_array_end(job, &then);
    bson_destroy(&closing);
    return status;
}

truce_status truce__workflow_enter(truce_commit *commit, bson_t *job,
                                   const truce_job_options *options, int64_t *left,
                                   bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_oid_t waiter = id.value.v_oid;
    truce_status status = TRUCE_OK;
    bson_t after;

    *left = options->open;
    for (size_t i = 0; i < options->after_count && !status; i++)
        status =
            workflow_wait_for(commit, &options->after[i], &waiter, options->failure, left, error);
    if (options->after_count || options->open) {
        BSON_APPEND_DOCUMENT_BEGIN(job, "after", &after);
        BSON_APPEND_INT64(&after, "left", *left);
        BSON_APPEND_UTF8(&after, "failure", failures[options->failure]);
        if (options->open)
            BSON_APPEND_BOOL(&after, "open", true);
        bson_append_document_end(job, &after);
    }
    return status || !options->batch ? status
                                     : workflow_enter_batch(commit, options->batch, job, error);
}

/* ---- notifying ------------------------------------------------------------------------------- */

/* The jobs that ended in one commit: the first job, and the jobs that were cancelled with it. */
struct notification {
    truce_commit *commit;
    bson_t *ended[NOTIFIED_MAX + 1];
    size_t count;
    int notified;
};

/* Starts a job whose awaited jobs have ended. */
static truce_status workflow_start(truce_commit *commit, const bson_t *job, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER, set;
    int64_t now_ms = truce__clock_wall_ms();
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    status = truce__job_append_started(commit, job, truce__job_held_start(job, now_ms), now_ms,
                                       &set, error);
    bson_append_document_end(&update, &set);
    if (!status)
        status = truce_commit_update(commit, QUEUE, &id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

/* Stores how many jobs a job waits for, in a commit that read it, and starts the job at zero. */
static truce_status workflow_set_pending(truce_commit *commit, const bson_t *job, int64_t left,
                                         bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    truce_status status = workflow_write_left(commit, &id, left, error);

    return status || left || !workflow_job_is(job, "blocked") ? status
                                                              : workflow_start(commit, job, error);
}

truce_status truce__workflow_repair(truce_commit *commit, const bson_t *job, int64_t count,
                                    bson_error_t *error)
{
    return workflow_set_pending(commit, job, count + truce__workflow_is_open(job), error);
}

/* Returns true if another job's end has already cancelled the job, and no retry has followed. */
static bool workflow_has_failed(const bson_t *job)
{
    bson_t after;

    return workflow_job_is(job, "cancelled") && truce__value_subdocument(job, "after", &after) &&
           bson_has_field(&after, "failed");
}

/* Cancels a blocked job because a job that it awaited failed. */
static truce_status workflow_cancel(struct notification *notification, const bson_t *job,
                                    const bson_oid_t *because, const char *end, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER;
    char text[25], why[100];
    truce_status status =
        workflow_write_left(notification->commit, &id, truce__workflow_pending(job) - 1, error);

    if (!status && (workflow_job_is(job, "blocked") || workflow_has_failed(job)))
        status = workflow_push(notification->commit, &id, "after.failed", because, error);
    if (status || !workflow_job_is(job, "blocked"))
        return status;
    bson_oid_to_string(because, text);
    bson_snprintf(why, sizeof why, "the awaited job %s is %s", text, end);
    truce__job_update_end(&update, job, "cancelled", NULL, now_ms);
    truce__job_update_error(&update, job, why, now_ms);
    status = truce_commit_update(notification->commit, QUEUE, &id, NULL, &update, error);
    notification->ended[notification->count++] = bson_copy(job);
    bson_destroy(&update);
    return status;
}

/* Notifies one waiting job of the end of another: it has one job less to wait for, or is
 * cancelled. */
static truce_status workflow_notify_one(struct notification *notification, const bson_value_t *id,
                                        const bson_oid_t *because, const char *end,
                                        enum outcome *outcome, bson_error_t *error)
{
    bson_t job;
    truce_status status = truce_commit_read(notification->commit, QUEUE, id, &job, error);

    *outcome = status ? STARTS : workflow_outcome(end, workflow_failure(&job));
    if (!status && *outcome == STARTS)
        status = workflow_set_pending(notification->commit, &job, truce__workflow_pending(&job) - 1,
                                      error);
    else if (!status && *outcome == IS_CANCELLED)
        status = workflow_cancel(notification, &job, because, end, error);
    notification->notified++;
    bson_destroy(&job);
    /* A job that is missing was cancelled and then removed. */
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Writes the waiting jobs that were notified of the end of `job`, and those that were not yet
 * (`then`). */
static truce_status workflow_write_notified(truce_commit *commit, const bson_t *job,
                                            const bson_t *then, const bson_t *notified,
                                            bool stalled, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER, set, unset = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_ARRAY(&set, "notified", notified);
    if (bson_empty(then))
        BSON_APPEND_UTF8(&unset, "then", "");
    else
        BSON_APPEND_ARRAY(&set, "then", then);
    if (stalled)
        BSON_APPEND_BOOL(&set, "stalled", true);
    else
        BSON_APPEND_UTF8(&unset, "stalled", "");
    bson_append_document_end(&update, &set);
    if (!bson_empty(&unset))
        BSON_APPEND_DOCUMENT(&update, "$unset", &unset);
    status = truce_commit_update(commit, QUEUE, &id, NULL, &update, error);
    bson_destroy(&unset);
    bson_destroy(&update);
    return status;
}

/* Notifies as many waiting jobs as one commit may. */
static truce_status workflow_notify_all(struct notification *notification, const bson_t *job,
                                        const char *end, bson_error_t *error)
{
    bson_t then = BSON_INITIALIZER, notified = BSON_INITIALIZER;
    bson_value_t id = truce__document_id(job);
    bson_iter_t iter;
    bool stalled = false;
    truce_status status = TRUCE_OK;

    for (bool some = workflow_array(job, "notified", &iter); some && bson_iter_next(&iter);)
        workflow_append_id(&notified, bson_iter_value(&iter));
    for (bool some = workflow_array(job, "then", &iter);
         some && !status && bson_iter_next(&iter);) {
        enum outcome outcome = WAITS;

        if (notification->notified < NOTIFIED_MAX)
            status = workflow_notify_one(notification, bson_iter_value(&iter), &id.value.v_oid, end,
                                         &outcome, error);
        else
            stalled = true; /* The other waiting jobs are notified by later commits (QW3). */
        workflow_append_id(outcome == WAITS ? &then : &notified, bson_iter_value(&iter));
    }
    if (!status)
        status =
            workflow_write_notified(notification->commit, job, &then, &notified, stalled, error);
    bson_destroy(&then);
    bson_destroy(&notified);
    return status;
}

truce_status truce__workflow_notify(truce_commit *commit, const bson_t *job, const char *end,
                                    bson_error_t *error)
{
    struct notification notification = {.commit = commit};
    truce_status status = TRUCE_OK;

    if (!bson_has_field(job, "then"))
        return TRUCE_OK;
    notification.ended[notification.count++] = bson_copy(job);
    for (size_t i = 0; i < notification.count && !status; i++)
        if (bson_has_field(notification.ended[i], "then"))
            status = workflow_notify_all(&notification, notification.ended[i],
                                         i ? "cancelled" : end, error);
    for (size_t i = 0; i < notification.count; i++)
        bson_destroy(notification.ended[i]);
    return status;
}

/* ---- continuing ------------------------------------------------------------------------------ */

static truce_status workflow_resume_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const bson_value_t *id = arg;
    bson_t job;
    truce_status status = truce_commit_read(commit, QUEUE, id, &job, error);

    if (!status && bson_has_field(&job, "stalled") && !truce__job_live(&job))
        status = truce__workflow_notify(commit, &job, truce__job_state(&job), error);
    bson_destroy(&job);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__workflow_resume(struct sweep *sweep, const char *collection, const bson_t *job,
                                    void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);

    (void)collection, (void)arg;
    return truce_transact(sweep->store, workflow_resume_in, &id, NULL, error);
}

truce_status truce__workflow_resume_some(const truce_queue *queue, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("stalled", BCON_BOOL(true)),
           *projection = BCON_NEW("_id", BCON_INT32(1)), *found[RESUMED_MAX];
    truce_find_options options = {.projection = projection, .limit = RESUMED_MAX};
    truce_commit_options commit = {.mechanism = queue->mechanism, .deadline_ms = RESUME_MS};
    truce_cursor *cursor = NULL;
    const bson_t *one = NULL;
    size_t count = 0;
    truce_status status;

    truce__intent_append_absent(filter);
    status = truce_find(queue->store, QUEUE, filter, &options, &cursor, error);
    while (!status && count < RESUMED_MAX && !(status = truce_cursor_next(cursor, &one, error)) &&
           one)
        found[count++] = bson_copy(one);
    truce_cursor_close(cursor);
    for (size_t i = 0; i < count; i++) {
        bson_value_t id = truce__document_id(found[i]);
        /* A failure is ignored, so that a job that other commits hold, or that cannot be repaired,
         * does not stop the rest. */
        bson_error_t ignored;

        if (!status && truce_transact(queue->store, workflow_resume_in, &id, &commit, &ignored))
            status = TRUCE_OK;
        bson_destroy(found[i]);
    }
    bson_destroy(projection);
    bson_destroy(filter);
    return status;
}

truce_status truce__workflow_indexes(truce_queue *queue, bson_error_t *error)
{
    static const char *const then[] = {"then", NULL}, *const notified[] = {"notified", NULL};
    truce_status status = TRUCE_OK;

    if (atomic_load(&queue->linked))
        return TRUCE_OK;
    status = truce__queue_index(queue->store, QUEUE, then[0], true, then, error);
    if (!status)
        status = truce__queue_index(queue->store, QUEUE, notified[0], true, notified, error);
    if (!status)
        atomic_store(&queue->linked, true);
    return status;
}

/* ---- batches and results --------------------------------------------------------------------- */

struct closing {
    truce_queue *queue;
    const bson_oid_t *oid;
    bson_value_t id;
};

/* Closes a batch in a commit. A batch that is closed already stays closed. */
static truce_status workflow_close_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct closing *closing = arg;
    bson_t *update = BCON_NEW("$unset", "{", "after.open", BCON_UTF8(""), "}"), job;
    char text[25];
    truce_status status = truce__queue_read_job(closing->queue, commit, closing->oid, &job, error);

    bson_oid_to_string(closing->oid, text);
    if (!status && truce__workflow_is_open(&job)) {
        status = truce_commit_update(commit, QUEUE, &closing->id, NULL, update, error);
        if (!status)
            status = workflow_set_pending(commit, &job, truce__workflow_pending(&job) - 1, error);
    } else if (!status && !bson_has_field(&job, "after")) {
        status = truce__fail(
            TRUCE_INVALID, error,
            "job %s does not close a batch: expected a job that was added with `open`", text);
    }
    bson_destroy(update);
    bson_destroy(&job);
    return status;
}

truce_status truce_queue_close(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                               bson_error_t *error)
{
    RETURN_IF_NULL(id, error);

    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    struct closing closing = {queue, id, truce_id_oid(id)};
    truce_status status = truce__queue_ready(queue, error);

    return status ? status : truce__queue_run(queue, commit, workflow_close_in, &closing, error);
}

truce_status truce_queue_results(truce_store *store, const bson_oid_t *id, truce_cursor **cursor,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(cursor, error);
    *cursor = NULL;
    RETURN_IF_NULL(id, error);

    bson_t *filter = BCON_NEW("notified", BCON_OID(id)), *sort = BCON_NEW("_id", BCON_INT32(1)),
           *projection =
               BCON_NEW("name", BCON_INT32(1), "queue", BCON_INT32(1), "state", BCON_INT32(1),
                        "result", BCON_INT32(1), "errors", "{", "$slice", BCON_INT32(-1), "}");
    truce_find_options options = {.sort = sort, .projection = projection};
    truce_status status = truce_find(store, QUEUE, filter, &options, cursor, error);

    if (!status)
        *cursor = truce__restored_cursor(*cursor);
    bson_destroy(projection);
    bson_destroy(sort);
    bson_destroy(filter);
    return status;
}

/* ---- retries --------------------------------------------------------------------------------- */

/*
 * Retries of jobs that others waited for. If an awaited job ends otherwise than done, the job that
 * is cancelled because of it names it:
 *
 *     after: {left: 0, failure: "cancel", failed: [X]}
 *
 * When X is retried, the job waits for X again, in the commit of the retry: it moves from X's
 * `notified` back to X's `then`. Once `failed` is empty, the job is blocked as before. The jobs
 * that were cancelled because of it follow in the same way (QW5).
 *
 * A job that was cancelled by hand, or discarded, is not in `failed` and stays as it is. A job also
 * stays cancelled if another live job has its key by now.
 */

struct rearming {
    truce_commit *commit;
    /* The jobs that this commit makes live again. The first one is the retried job. */
    bson_t *jobs[REVIVED_MAX + 1];
    size_t count, read_count;
};

/* Copies `failed` without `because`. Returns false if it was not there. */
static bool rearm_without(const bson_t *job, const bson_oid_t *because, bson_t *failed)
{
    bson_iter_t iter;
    bool was_there = false;

    for (bool some = workflow_array(job, "after.failed", &iter); some && bson_iter_next(&iter);) {
        if (BSON_ITER_HOLDS_OID(&iter) && bson_oid_equal(bson_iter_oid(&iter), because))
            was_there = true;
        else
            workflow_append_id(failed, bson_iter_value(&iter));
    }
    return was_there;
}

/* Makes the job wait for one more job, and blocks it if no other failed job remains. */
static void rearm_make_update(const bson_t *job, const bson_t *failed, bson_t *update)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t set, unset;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    BSON_APPEND_INT64(&set, "after.left", truce__workflow_pending(job) + 1);
    if (!bson_empty(failed)) {
        BSON_APPEND_ARRAY(&set, "after.failed", failed);
        bson_append_document_end(update, &set);
        return;
    }
    BSON_APPEND_INT32(&set, "attempt", 0);
    truce__job_append_held(&set, "blocked", truce__field_text(job, "queue"), now_ms, now_ms);
    bson_append_document_end(update, &set);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
    BSON_APPEND_UTF8(&unset, "after.failed", "");
    BSON_APPEND_UTF8(&unset, "ended", "");
    BSON_APPEND_UTF8(&unset, "expires", "");
    BSON_APPEND_UTF8(&unset, "stalled", "");
    bson_append_document_end(update, &unset);
}

static truce_status rearm_job(struct rearming *rearming, const bson_t *job, const bson_t *failed,
                              bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER;
    truce_status status;

    rearm_make_update(job, failed, &update);
    status = truce_commit_update(rearming->commit, QUEUE, &id, NULL, &update, error);
    if (bson_empty(failed))
        rearming->jobs[rearming->count++] = bson_copy(job);
    bson_destroy(&update);
    return status;
}

/* Makes a job wait again that was cancelled because `because` failed. Sets *waits if the job waits
 * again. */
static truce_status rearm_one(struct rearming *rearming, const bson_value_t *id,
                              const bson_oid_t *because, bool *waits, bson_error_t *error)
{
    bson_t job, failed = BSON_INITIALIZER;
    truce_status status = truce_commit_read(rearming->commit, QUEUE, id, &job, error);

    *waits = !status && !strcmp(truce__job_state(&job), "cancelled") &&
             rearm_without(&job, because, &failed);
    if (*waits && rearming->read_count++ == REVIVED_MAX)
        status = truce__fail(TRUCE_LIMIT, error,
                             "cannot retry the job: more than %d jobs were cancelled with it",
                             REVIVED_MAX);
    if (*waits && !status && bson_empty(&failed)) {
        status = truce__queue_key_reclaim(rearming->commit, &job, error);
        *waits = status != TRUCE_INVALID;
        status = *waits ? status : TRUCE_OK;
    }
    if (*waits && !status)
        status = rearm_job(rearming, &job, &failed, error);
    bson_destroy(&failed);
    bson_destroy(&job);
    /* A job that is missing was cancelled and then removed. */
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Appends the new `then` and `notified`. */
static truce_status rearm_all(struct rearming *rearming, const bson_t *job, bson_t *set,
                              bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t then = BSON_INITIALIZER, notified = BSON_INITIALIZER;
    bson_iter_t iter;
    truce_status status = TRUCE_OK;

    for (bool some = workflow_array(job, "then", &iter); some && bson_iter_next(&iter);)
        workflow_append_id(&then, bson_iter_value(&iter));
    for (bool some = workflow_array(job, "notified", &iter);
         some && !status && bson_iter_next(&iter);) {
        bool waits;

        status = rearm_one(rearming, bson_iter_value(&iter), &id.value.v_oid, &waits, error);
        workflow_append_id(waits ? &then : &notified, bson_iter_value(&iter));
    }
    BSON_APPEND_ARRAY(set, "notified", &notified);
    if (!bson_empty(&then))
        BSON_APPEND_ARRAY(set, "then", &then);
    bson_destroy(&then);
    bson_destroy(&notified);
    return status;
}

/* Makes the jobs that were notified of the end of `job` wait for it again. */
static truce_status rearm_dependents(struct rearming *rearming, const bson_t *job,
                                     bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER, set;
    truce_status status;

    if (!bson_has_field(job, "notified"))
        return TRUCE_OK;
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    status = rearm_all(rearming, job, &set, error);
    bson_append_document_end(&update, &set);
    if (!status)
        status = truce_commit_update(rearming->commit, QUEUE, &id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

truce_status truce__workflow_rearm(truce_commit *commit, const bson_t *job, bson_t *set,
                                   bson_error_t *error)
{
    struct rearming *rearming;
    truce_status status;

    if (!bson_has_field(job, "notified"))
        return TRUCE_OK;
    rearming = bson_malloc0(sizeof *rearming);
    rearming->commit = commit;
    status = rearm_all(rearming, job, set, error);
    for (size_t i = 0; i < rearming->count && !status; i++)
        status = rearm_dependents(rearming, rearming->jobs[i], error);
    for (size_t i = 0; i < rearming->count; i++)
        bson_destroy(rearming->jobs[i]);
    bson_free(rearming);
    return status;
}

/* ---- connected jobs -------------------------------------------------------------------------- */

/* The jobs that are connected with one job: found along `then` and `notified`, in both
 * directions. */

/* A dependency between two jobs of the graph. */
struct edge {
    /* The job with the index `later` waits for the one with the index `earlier`. */
    int earlier, later;
};

struct graph {
    truce_store *store;
    bson_t *jobs[GRAPH_JOBS_MAX];
    bson_oid_t ids[GRAPH_JOBS_MAX];
    /* levels[i]: one more than the highest level of the jobs for which job i waits, or 0 if it
     * waits for no job. */
    int64_t levels[GRAPH_JOBS_MAX];
    size_t count, edge_count;
    struct edge *edges;
};

static const char *const fields[] = {"then", "notified"};

/* Returns the position of a job in the graph, or -1 if the graph does not have the job. */
static int graph_position_of(const struct graph *graph, const bson_oid_t *id)
{
    for (size_t i = 0; i < graph->count; i++) {
        if (bson_oid_equal(id, &graph->ids[i]))
            return (int)i;
    }
    return -1;
}

/* Adds the jobs that match a filter to the graph, up to GRAPH_JOBS_MAX. */
static truce_status graph_add_found(struct graph *graph, const bson_t *filter, bson_error_t *error)
{
    bson_t *projection =
        BCON_NEW("name", BCON_INT32(1), "queue", BCON_INT32(1), "state", BCON_INT32(1), "then",
                 BCON_INT32(1), "notified", BCON_INT32(1), "after", BCON_INT32(1));
    truce_find_options options = {.projection = projection, .limit = GRAPH_JOBS_MAX};
    truce_cursor *cursor = NULL;
    const bson_t *job = NULL;
    truce_status status = truce_find(graph->store, QUEUE, filter, &options, &cursor, error);

    while (!status && !(status = truce_cursor_next(cursor, &job, error)) && job) {
        bson_value_t id = truce__document_id(job);

        if (graph->count == GRAPH_JOBS_MAX || id.value_type != BSON_TYPE_OID ||
            graph_position_of(graph, &id.value.v_oid) >= 0)
            continue;
        bson_oid_copy(&id.value.v_oid, &graph->ids[graph->count]);
        graph->jobs[graph->count++] = bson_copy(job);
    }
    truce_cursor_close(cursor);
    bson_destroy(projection);
    return status;
}

static truce_status graph_add_earlier(struct graph *graph, const bson_oid_t *id,
                                      bson_error_t *error)
{
    bson_t *filter = BCON_NEW("$or", "[", "{", "then", BCON_OID(id), "}", "{", "notified",
                              BCON_OID(id), "}", "]");
    truce_status status = graph_add_found(graph, filter, error);

    bson_destroy(filter);
    return status;
}

/* Adds the jobs whose ids a field of the job lists. */
static truce_status graph_add_later(struct graph *graph, const bson_t *job, const char *field,
                                    bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, in;
    bson_iter_t iter;
    truce_status status = TRUCE_OK;

    if (bson_iter_init_find(&iter, job, field) && BSON_ITER_HOLDS_ARRAY(&iter)) {
        BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &in);
        BSON_APPEND_VALUE(&in, "$in", bson_iter_value(&iter));
        bson_append_document_end(&filter, &in);
        status = graph_add_found(graph, &filter, error);
    }
    bson_destroy(&filter);
    return status;
}

static truce_status graph_add_neighbours(struct graph *graph, size_t i, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (bson_has_field(graph->jobs[i], "after"))
        status = graph_add_earlier(graph, &graph->ids[i], error);
    for (int k = 0; k < 2 && !status; k++)
        status = graph_add_later(graph, graph->jobs[i], fields[k], error);
    return status;
}

/* Adds the edges from job i to the jobs that wait for it. */
static void graph_add_edges(struct graph *graph, size_t i, const char *field)
{
    bson_iter_t iter, one;

    if (!bson_iter_init_find(&iter, graph->jobs[i], field) || !BSON_ITER_HOLDS_ARRAY(&iter) ||
        !bson_iter_recurse(&iter, &one))
        return;
    while (bson_iter_next(&one)) {
        int later = BSON_ITER_HOLDS_OID(&one) ? graph_position_of(graph, bson_iter_oid(&one)) : -1;

        if (later < 0)
            continue;
        if (!(graph->edge_count & (graph->edge_count - 1)))
            graph->edges =
                bson_realloc(graph->edges, (2 * graph->edge_count + 1) * sizeof *graph->edges);
        graph->edges[graph->edge_count++] = (struct edge){(int)i, later};
    }
}

/* Gives each job a level that is one more than the highest level of the jobs that it waits for. It
 * also ends if documents that another program wrote form a circle. */
static void graph_find_levels(struct graph *graph)
{
    bool changed = true;

    for (size_t round = 0; changed && round < graph->count; round++) {
        changed = false;
        for (size_t i = 0; i < graph->edge_count; i++) {
            int64_t *later = &graph->levels[graph->edges[i].later],
                    earlier = graph->levels[graph->edges[i].earlier];

            changed |= *later <= earlier;
            *later = *later <= earlier ? earlier + 1 : *later;
        }
    }
}

/* Appends a job with its level and the jobs that it waits for. */
static void graph_append_job(const struct graph *graph, size_t i, bson_t *result)
{
    bson_t one, after;
    char key[16];
    uint32_t count = 0;

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(result));
    BSON_APPEND_DOCUMENT_BEGIN(result, key, &one);
    bson_copy_to_excluding_noinit(graph->jobs[i], &one, "then", "notified", "after", NULL);
    BSON_APPEND_INT64(&one, "level", graph->levels[i]);
    BSON_APPEND_ARRAY_BEGIN(&one, "after", &after);
    for (size_t k = 0; k < graph->edge_count; k++) {
        bson_snprintf(key, sizeof key, "%u", count);
        if ((size_t)graph->edges[k].later == i && ++count)
            BSON_APPEND_OID(&after, key, &graph->ids[graph->edges[k].earlier]);
    }
    bson_append_array_end(&one, &after);
    bson_append_document_end(result, &one);
}

/* Appends all jobs of the graph, level by level. */
static void graph_append_all(struct graph *graph, bson_t *result)
{
    size_t left = graph->count;

    for (size_t i = 0; i < graph->count; i++)
        for (int k = 0; k < 2; k++)
            graph_add_edges(graph, i, fields[k]);
    graph_find_levels(graph);
    for (int64_t level = 0; left > 0; level++) {
        for (size_t i = 0; i < graph->count; i++) {
            if (graph->levels[i] == level) {
                graph_append_job(graph, i, result);
                left--;
            }
        }
    }
}

truce_status truce_queue_graph(truce_store *store, const bson_oid_t *id, bson_t *result,
                               bson_error_t *error)
{
    RETURN_IF_NULL(result, error);
    RETURN_EMPTY_IF_NULL(id, result, error);

    DEADLINE_SCOPE(truce__queue_store_deadline_ms(store));
    WAIT_LIMIT_SCOPE();
    struct graph *graph = bson_malloc0(sizeof *graph);
    bson_t *filter = BCON_NEW("_id", BCON_OID(id));
    char text[25];
    truce_status status;

    graph->store = store;
    bson_init(result);
    bson_oid_to_string(id, text);
    status = graph_add_found(graph, filter, error);
    if (!status && !graph->count)
        status = truce__fail(TRUCE_NOT_FOUND, error, "the job %s does not exist", text);
    for (size_t i = 0; i < graph->count && !status; i++)
        status = graph_add_neighbours(graph, i, error);
    if (!status)
        graph_append_all(graph, result);
    for (size_t i = 0; i < graph->count; i++)
        bson_destroy(graph->jobs[i]);
    bson_free(graph->edges);
    bson_free(graph);
    bson_destroy(filter);
    return status;
}

/* ---- workflows ------------------------------------------------------------------------------- */

/*
 * Workflows: jobs that wait for each other by name, added in one commit. They are ordered so that
 * each job follows the jobs that it waits for. If no such order exists, some jobs wait in a circle,
 * and the workflow is refused.
 */

/* A workflow that is being added. */
struct flow {
    const truce_flow_job *jobs;
    size_t count;
    bson_oid_t *ids;
    /* The indexes of the jobs in the order in which they are added. The first `ordered` elements
     * are set. */
    size_t *order;
    size_t ordered;
    /* ordered_already[i]: job i is in `order`. */
    bool *ordered_already;
    bson_error_t *error;
};

/* Returns the job of that name; `count` if no job has it. */
static size_t flow_find(const struct flow *flow, const char *name)
{
    size_t i = 0;

    while (i < flow->count && strcmp(flow->jobs[i].name, name))
        i++;
    return i;
}

/* ---- the checks before adding ---------------------------------------------------------------- */

/* Checks one job of a workflow by itself. */
static truce_status flow_check_one(const struct flow *flow, size_t i)
{
    static const truce_job_options none;
    const truce_flow_job *job = &flow->jobs[i];
    const truce_job_options *options = job->options ? job->options : &none;
    truce_status status = ROOM_CHECK(job, "truce_flow_job", flow->error);

    if (!status && (!job->queue || !job->name))
        status = truce__fail(TRUCE_INVALID, flow->error, "job %zu of the workflow has no %s", i + 1,
                             job->queue ? "name" : "queue");
    if (!status && job->queue->store != flow->jobs[0].queue->store)
        status = truce__fail(TRUCE_INVALID, flow->error,
                             "the jobs of a workflow must be in the same store");
    if (!status && (options->unique || options->unique_payload || options->batch || options->id))
        status = truce__fail(
            TRUCE_INVALID, flow->error,
            "job \"%s\" of the workflow must not have a unique key, a batch, or an id", job->name);
    return status ? status : truce__job_check(job->queue, job->payload, options, flow->error);
}

/* Checks the name of a job and the names of the jobs that it waits for. */
static truce_status flow_check_edges(const struct flow *flow, size_t i, size_t *edges)
{
    const truce_flow_job *job = &flow->jobs[i];
    size_t count = 0;

    if (flow_find(flow, job->name) != i)
        return truce__fail(TRUCE_INVALID, flow->error,
                           "two jobs of the workflow have the name \"%s\"", job->name);
    for (; job->after && job->after[count]; count++) {
        if (++*edges > FLOW_EDGES_MAX)
            return truce__fail(TRUCE_LIMIT, flow->error,
                               "the jobs of the workflow wait for more than %d others in total",
                               FLOW_EDGES_MAX);
        if (flow_find(flow, job->after[count]) == flow->count)
            return truce__fail(TRUCE_INVALID, flow->error,
                               "job \"%s\" waits for \"%s\", which the workflow does not contain",
                               job->name, job->after[count]);
    }
    if (count + (job->options ? job->options->after_count : 0) > JOB_AFTER_MAX)
        return truce__fail(TRUCE_LIMIT, flow->error, "job \"%s\" waits for more than %d others",
                           job->name, JOB_AFTER_MAX);
    return count ? truce__workflow_indexes(job->queue, flow->error) : TRUCE_OK;
}

/* Checks the number of jobs, each job by itself, and the names of the jobs that they wait for. */
static truce_status flow_check(const struct flow *flow)
{
    size_t edges = 0;
    truce_status status = TRUCE_OK;

    if (flow->count > FLOW_JOBS_MAX)
        return truce__fail(TRUCE_LIMIT, flow->error,
                           "a workflow may have at most %d jobs: it has %zu", FLOW_JOBS_MAX,
                           flow->count);
    for (size_t i = 0; i < flow->count && !status; i++)
        status = flow_check_one(flow, i);
    for (size_t i = 0; i < flow->count && !status; i++)
        status = flow_check_edges(flow, i, &edges);
    return status;
}

/* ---- the order ------------------------------------------------------------------------------- */

/* Returns the first job that job i waits for and that has no position yet, or `count` if none
 * exists. */
static size_t flow_awaited(const struct flow *flow, size_t i)
{
    const char *const *after = flow->jobs[i].after;

    for (; after && *after; after++) {
        size_t other = flow_find(flow, *after);

        if (!flow->ordered_already[other])
            return other;
    }
    return flow->count;
}

/* Reports a circle. Each job without a position waits for another one; following them leads back to
 * a job that was passed. */
static truce_status flow_report_circle(const struct flow *flow)
{
    size_t *passed = bson_malloc0(flow->count * sizeof *passed), i = 0, step = 1, first;
    bson_string_t *names;
    truce_status status;

    while (flow->ordered_already[i])
        i++;
    for (; !passed[i]; i = flow_awaited(flow, i))
        passed[i] = step++;
    first = i;
    names = bson_string_new(flow->jobs[first].name);
    do {
        i = flow_awaited(flow, i);
        if (names->len < 300)
            bson_string_append_printf(names, " after %s", flow->jobs[i].name);
    } while (i != first);
    status = truce__fail(TRUCE_INVALID, flow->error, "the jobs wait for each other in a cycle: %s",
                         names->str);
    bson_string_free(names, true);
    bson_free(passed);
    return status;
}

/* Orders the jobs so that each follows those that it waits for. Fails if they form a cycle. */
static truce_status flow_put_in_order(struct flow *flow)
{
    size_t before;

    do {
        before = flow->ordered;
        for (size_t i = 0; i < flow->count; i++) {
            if (!flow->ordered_already[i] && flow_awaited(flow, i) == flow->count) {
                flow->ordered_already[i] = true;
                flow->order[flow->ordered++] = i;
            }
        }
    } while (flow->ordered < flow->count && flow->ordered > before);
    return flow->ordered < flow->count ? flow_report_circle(flow) : TRUCE_OK;
}

/* ---- the commit ------------------------------------------------------------------------------ */

/* Adds one job of the workflow in the commit. */
static truce_status flow_add_one(const struct flow *flow, truce_commit *commit, size_t i,
                                 bson_error_t *error)
{
    const truce_flow_job *job = &flow->jobs[i];
    truce_job_options options = job->options ? *job->options : (truce_job_options){0};
    bson_oid_t *after = bson_malloc((JOB_AFTER_MAX + 1) * sizeof *after);
    truce_status status;

    if (options.after_count)
        memcpy(after, options.after, options.after_count * sizeof *after);
    for (const char *const *name = job->after; name && *name; name++)
        bson_oid_copy(&flow->ids[flow_find(flow, *name)], &after[options.after_count++]);
    options.after = after;
    options.name = job->name;
    status = truce__job_add(job->queue, commit, job->payload, &options, &flow->ids[i], error);
    bson_free(after);
    return status;
}

static truce_status flow_add_all(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct flow *flow = arg;
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < flow->count && !status; i++)
        status = flow_add_one(flow, commit, flow->order[i], error);
    return status;
}

truce_status truce_queue_add_flow(const truce_flow_job *jobs, size_t count, truce_commit *commit,
                                  bson_oid_t *ids, bson_error_t *error)
{
    if (count)
        RETURN_IF_NULL(jobs, error);
    if (count)
        RETURN_IF_NULL(ids, error);

    struct flow flow = {.jobs = jobs, .count = count, .ids = ids, .error = error};
    truce_status status = flow_check(&flow);

    if (status || !count)
        return status;
    flow.order = bson_malloc0(count * sizeof *flow.order);
    flow.ordered_already = bson_malloc0(count * sizeof *flow.ordered_already);
    status = flow_put_in_order(&flow);
    for (size_t i = 0; i < count; i++)
        truce__id_new(&ids[i]);
    if (!status)
        status = truce__queue_run(jobs[0].queue, commit, flow_add_all, &flow, error);
    bson_free(flow.order);
    bson_free(flow.ordered_already);
    return status;
}
