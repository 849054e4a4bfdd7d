/*
 * Jobs that wait for other jobs, alone, as a batch, or as a workflow that is added in one commit. A job that waits is "blocked", and has
 *
 *     after: {left: 2, failure: "cancel", open: true}      open: the closing job of a batch, to which more may be added
 *
 * and each of those that it waits for names it:
 *
 *     then: [X, Y]       who waits for this one
 *     told: [Z]          who did, and knows what became of it
 *
 * Invariants (models/after.cpp is their model):
 *
 *   W1. X.after.left is the number of jobs with X in `then`, and one more while X is open. Both sides change in one commit.
 *   W2. A job that ends tells, in its own commit, those in its `then`: it moves them to `told`, and takes one from what is
 *       left to each. Whoever has nothing left then goes, or is cancelled there, and tells in turn. So no crash loses
 *       a wake-up.
 *   W3. One commit tells a hundred. A job that has ended with more in `then` is `stalled`: the sweep and whoever claims go
 *       on with it. (A dead letter keeps those that wait for its second life.)
 *   W4. A new job waits for jobs that are there, or that came before it in its workflow; one of a batch waits
 *       for none. So there is no circle.
 *
 *   W5. Who is cancelled by one that it waits for says by whom; when that one is retried it waits for it again, in the
 *       same commit.
 *
 * Who waits is not asked for by an index: it stands in the job that ends, which its commit has read. What is left goes
 * down also for a job that was cancelled meanwhile, so one that is retried is blocked for as long as it has to be.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/patience.h"
#include "base/reserved_fields.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"
#include "store/restored.h"

#define TOLD_MAX 100  /* in one commit */
#define GO_ON_MS 1000 /* what others hold for longer is for the next time */
#define SOME     10   /* stalled ones that a claimer goes on with */

static const char *const failures[] = {[TRUCE_FAILURE_CANCEL] = "cancel",
                                       [TRUCE_FAILURE_GO_ON] = "go on",
                                       [TRUCE_FAILURE_WAIT] = "wait"};

/* ---- what stands in a job ------------------------------------------------------------------------ */

static bool is_state(const bson_t *job, const char *state)
{
    return !strcmp(truce__job_state(job), state);
}

int64_t truce__after_left(const bson_t *job)
{
    bson_t after;
    int64_t left =
        truce__value_subdocument(job, "after", &after) ? truce__field_number(&after, "left") : 0;

    return left >= 0 && left <= INT32_MAX ? left : 0; /* a check counts anew */
}

bool truce__after_is_open(const bson_t *job)
{
    bson_t after;

    return truce__value_subdocument(job, "after", &after) && bson_has_field(&after, "open");
}

static truce_job_failure failure_of(const bson_t *job)
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

/* What the end of a job means to one that waits for it. */
enum outcome { GOES_ON, WAITS, IS_CANCELLED };

static enum outcome after_outcome_of(const char *end, truce_job_failure failure)
{
    if (!strcmp(end, "done") || failure == TRUCE_FAILURE_GO_ON)
        return GOES_ON;
    return !strcmp(end, "dead") && failure == TRUCE_FAILURE_WAIT ? WAITS : IS_CANCELLED;
}

/* ---- waiting ------------------------------------------------------------------------------------- */

static bool array_of(const bson_t *job, const char *field, bson_iter_t *iter)
{
    return bson_iter_init_find(iter, job, field) && BSON_ITER_HOLDS_ARRAY(iter) &&
           bson_iter_recurse(iter, iter);
}

static bool stands_in(const bson_t *job, const char *field, const bson_oid_t *id, uint32_t *count)
{
    bson_iter_t iter;
    bool found = false;

    *count = 0;
    for (bool some = array_of(job, field, &iter); some && bson_iter_next(&iter); ++*count)
        found |= BSON_ITER_HOLDS_OID(&iter) && bson_oid_equal(bson_iter_oid(&iter), id);
    return found;
}

static truce_status after_push(truce_commit *commit, const bson_value_t *id, const char *field,
                               const bson_oid_t *who, bson_error_t *error)
{
    bson_t *update = BCON_NEW("$push", "{", field, BCON_OID(who), "}");
    truce_status status = truce_commit_update(commit, QUEUE, id, NULL, update, error);

    bson_destroy(update);
    return status;
}

/* The job that was read is told of `who`. *waits: it has not ended. */
static truce_status after_join(truce_commit *commit, const bson_t *job, const bson_oid_t *who,
                               truce_job_failure failure, bool *waits, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    const char *state = truce__job_state(job);
    enum outcome outcome = truce__job_live(job) ? WAITS : after_outcome_of(state, failure);
    char text[25];
    uint32_t then, told;
    bool in_then = stands_in(job, "then", who, &then), in_told = stands_in(job, "told", who, &told),
         known = in_then || in_told;

    bson_oid_to_string(&id.value.v_oid, text);
    *waits = outcome == WAITS && !known;
    if (outcome == IS_CANCELLED)
        return truce__fail(TRUCE_INVALID, error,
                           "job %s is %s: one that waits for it would be cancelled", text, state);
    if (then + told >= JOB_THEN_MAX)
        return truce__fail(TRUCE_LIMIT, error, "%d jobs wait for job %s, and more may not",
                           JOB_THEN_MAX, text);
    return known ? TRUCE_OK
                 : after_push(commit, &id, outcome == WAITS ? "then" : "told", who, error);
}

static truce_status after_wait_for(truce_commit *commit, const bson_oid_t *other,
                                   const bson_oid_t *who, truce_job_failure failure, int64_t *left,
                                   bson_error_t *error)
{
    bson_value_t id = truce_id_oid(other);
    char text[25];
    bson_t job;
    bool waits = false;
    truce_status status = truce_commit_read(commit, QUEUE, &id, &job, error);

    bson_oid_to_string(other, text);
    if (status == TRUCE_NOT_FOUND)
        status = truce__fail(TRUCE_INVALID, error, "there is no job %s to wait for", text);
    else if (!status)
        status = after_join(commit, &job, who, failure, &waits, error);
    *left += waits;
    bson_destroy(&job);
    return status;
}

static truce_status set_left(truce_commit *commit, const bson_value_t *id, int64_t left,
                             bson_error_t *error)
{
    bson_t *update = BCON_NEW("$set", "{", "after.left", BCON_INT64(left), "}");
    truce_status status = truce_commit_update(commit, QUEUE, id, NULL, update, error);

    bson_destroy(update);
    return status;
}

/* The closing job of a batch waits for one more. */
static truce_status enter_batch(truce_commit *commit, const bson_oid_t *batch, bson_t *job,
                                bson_error_t *error)
{
    bson_value_t id = truce_id_oid(batch);
    char text[25];
    bson_t closing, then;
    truce_status status = truce_commit_read(commit, QUEUE, &id, &closing, error);

    bson_oid_to_string(batch, text);
    if (status == TRUCE_NOT_FOUND || (!status && !is_state(&closing, "blocked")))
        status =
            truce__fail(TRUCE_INVALID, error, "job %s closes no batch that is open still", text);
    if (!status)
        status = set_left(commit, &id, truce__after_left(&closing) + 1, error);
    BSON_APPEND_ARRAY_BEGIN(job, "then", &then);
    BSON_APPEND_OID(&then, "0", batch);
    bson_append_array_end(job, &then);
    bson_destroy(&closing);
    return status;
}

truce_status truce__after_enter(truce_commit *commit, bson_t *job, const truce_job_options *options,
                                int64_t *left, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_oid_t who = id.value.v_oid;
    truce_status status = TRUCE_OK;
    bson_t after;

    *left = options->open;
    for (size_t i = 0; i < options->after_count && !status; i++)
        status = after_wait_for(commit, &options->after[i], &who, options->failure, left, error);
    if (options->after_count || options->open) {
        BSON_APPEND_DOCUMENT_BEGIN(job, "after", &after);
        BSON_APPEND_INT64(&after, "left", *left);
        BSON_APPEND_UTF8(&after, "failure", failures[options->failure]);
        if (options->open)
            BSON_APPEND_BOOL(&after, "open", true);
        bson_append_document_end(job, &after);
    }
    return status || !options->batch ? status : enter_batch(commit, options->batch, job, error);
}

/* ---- telling ------------------------------------------------------------------------------------- */

/* The jobs that ended in one commit: the first, and those that were cancelled with it. */
struct telling {
    truce_commit *commit;
    bson_t *ended[TOLD_MAX + 1];
    size_t count;
    int told;
};

/* What it waited for has ended: it goes. */
static truce_status go(truce_commit *commit, const bson_t *job, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER, set;
    int64_t at_ms;
    truce_status status;

    (void)truce__job_date(job, "undone.at", &at_ms);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    status = truce__job_sets_out(commit, job, at_ms, truce__clock_wall_ms(), &set, error);
    bson_append_document_end(&update, &set);
    if (!status)
        status = truce_commit_update(commit, QUEUE, &id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

/* In a commit that read the job: it waits for so many. */
static truce_status count_down_to(truce_commit *commit, const bson_t *job, int64_t left,
                                  bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    truce_status status = set_left(commit, &id, left, error);

    return status || left || !is_state(job, "blocked") ? status : go(commit, job, error);
}

truce_status truce__after_mend(truce_commit *commit, const bson_t *job, int64_t count,
                               bson_error_t *error)
{
    return count_down_to(commit, job, count + truce__after_is_open(job), error);
}

/* It is cancelled because of another one already, and nobody has done anything about it. */
static bool after_has_failed(const bson_t *job)
{
    bson_t after;

    return is_state(job, "cancelled") && truce__value_subdocument(job, "after", &after) &&
           bson_has_field(&after, "failed");
}

static truce_status after_cancel(struct telling *telling, const bson_t *job,
                                 const bson_oid_t *because, const char *end, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER;
    char text[25], why[100];
    truce_status status = set_left(telling->commit, &id, truce__after_left(job) - 1, error);

    if (!status && (is_state(job, "blocked") || after_has_failed(job)))
        status = after_push(telling->commit, &id, "after.failed", because, error);
    if (status || !is_state(job, "blocked"))
        return status;
    bson_oid_to_string(because, text);
    bson_snprintf(why, sizeof why, "job %s, for which it waited, is %s", text, end);
    truce__job_ends(&update, job, "cancelled", NULL, now_ms);
    truce__job_blames(&update, job, why, now_ms);
    status = truce_commit_update(telling->commit, QUEUE, &id, NULL, &update, error);
    telling->ended[telling->count++] = bson_copy(job);
    bson_destroy(&update);
    return status;
}

static truce_status tell_one(struct telling *telling, const bson_value_t *id,
                             const bson_oid_t *because, const char *end, enum outcome *outcome,
                             bson_error_t *error)
{
    bson_t job;
    truce_status status = truce_commit_read(telling->commit, QUEUE, id, &job, error);

    *outcome = status ? GOES_ON : after_outcome_of(end, failure_of(&job));
    if (!status && *outcome == GOES_ON)
        status = count_down_to(telling->commit, &job, truce__after_left(&job) - 1, error);
    else if (!status && *outcome == IS_CANCELLED)
        status = after_cancel(telling, &job, because, end, error);
    telling->told++;
    bson_destroy(&job);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status; /* cancelled, and pruned since */
}

static void after_append_id(bson_t *array, const bson_iter_t *iter)
{
    char key[16];

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(array));
    BSON_APPEND_VALUE(array, key, bson_iter_value((bson_iter_t *)iter));
}

static truce_status write_told(truce_commit *commit, const bson_t *job, const bson_t *then,
                               const bson_t *told, bool stalled, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER, set, unset = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_ARRAY(&set, "told", told);
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

/* As many as one commit may. */
static truce_status tell_all(struct telling *telling, const bson_t *job, const char *end,
                             bson_error_t *error)
{
    bson_t then = BSON_INITIALIZER, told = BSON_INITIALIZER;
    bson_value_t id = truce__document_id(job);
    bson_iter_t iter;
    bool stalled = false;
    truce_status status = TRUCE_OK;

    for (bool some = array_of(job, "told", &iter); some && bson_iter_next(&iter);)
        after_append_id(&told, &iter);
    for (bool some = array_of(job, "then", &iter); some && !status && bson_iter_next(&iter);) {
        enum outcome outcome = WAITS;

        if (telling->told < TOLD_MAX)
            status =
                tell_one(telling, bson_iter_value(&iter), &id.value.v_oid, end, &outcome, error);
        else
            stalled = true; /* W3 */
        after_append_id(outcome == WAITS ? &then : &told, &iter);
    }
    if (!status)
        status = write_told(telling->commit, job, &then, &told, stalled, error);
    bson_destroy(&then);
    bson_destroy(&told);
    return status;
}

truce_status truce__after_tell(truce_commit *commit, const bson_t *job, const char *end,
                               bson_error_t *error)
{
    struct telling telling = {.commit = commit};
    truce_status status = TRUCE_OK;

    if (!bson_has_field(job, "then"))
        return TRUCE_OK;
    telling.ended[telling.count++] = bson_copy(job);
    for (size_t i = 0; i < telling.count && !status; i++)
        if (bson_has_field(telling.ended[i], "then"))
            status = tell_all(&telling, telling.ended[i], i ? "cancelled" : end, error);
    for (size_t i = 0; i < telling.count; i++)
        bson_destroy(telling.ended[i]);
    return status;
}

/* ---- going on --------------------------------------------------------------------------------------- */

static truce_status after_go_on_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const bson_value_t *id = arg;
    bson_t job;
    truce_status status = truce_commit_read(commit, QUEUE, id, &job, error);

    if (!status && bson_has_field(&job, "stalled") && !truce__job_live(&job))
        status = truce__after_tell(commit, &job, truce__job_state(&job), error);
    bson_destroy(&job);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__after_go_on(struct sweep *sweep, const char *collection, const bson_t *job,
                                void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);

    (void)collection, (void)arg;
    return truce_transact(sweep->store, after_go_on_in, &id, NULL, error);
}

truce_status truce__after_go_on_some(const truce_queue *queue, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("stalled", BCON_BOOL(true)),
           *projection = BCON_NEW("_id", BCON_INT32(1)), *found[SOME];
    truce_find_options options = {.projection = projection, .limit = SOME};
    truce_commit_options commit = {.mechanism = queue->mechanism, .deadline_ms = GO_ON_MS};
    truce_cursor *cursor = NULL;
    const bson_t *one = NULL;
    size_t count = 0;
    truce_status status;

    truce__intent_append_absent(filter);
    status = truce_find(queue->store, QUEUE, filter, &options, &cursor, error);
    while (!status && count < SOME && !(status = truce_cursor_next(cursor, &one, error)) && one)
        found[count++] = bson_copy(one);
    truce_cursor_close(cursor);
    for (size_t i = 0; i < count; i++) {
        bson_value_t id = truce__document_id(found[i]);
        bson_error_t
            ignored; /* others are at it, or one cannot be mended: it must not stop the rest */

        if (!status && truce_transact(queue->store, after_go_on_in, &id, &commit, &ignored))
            status = TRUCE_OK;
        bson_destroy(found[i]);
    }
    bson_destroy(projection);
    bson_destroy(filter);
    return status;
}

truce_status truce__after_indexes(truce_queue *queue, bson_error_t *error)
{
    static const char *const then[] = {"then", NULL}, *const told[] = {"told", NULL};
    truce_status status = TRUCE_OK;

    if (atomic_load(&queue->linked))
        return TRUCE_OK;
    status = truce__queue_index(queue->store, QUEUE, then[0], true, then, error);
    if (!status)
        status = truce__queue_index(queue->store, QUEUE, told[0], true, told, error);
    if (!status)
        atomic_store(&queue->linked, true);
    return status;
}

/* ---- batches, and results --------------------------------------------------------------------------- */

struct closing {
    truce_queue *queue;
    const bson_oid_t *oid;
    bson_value_t id;
};

static truce_status close_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct closing *closing = arg;
    bson_t *update = BCON_NEW("$unset", "{", "after.open", BCON_UTF8(""), "}"), job;
    char text[25];
    truce_status status = truce__queue_read_job(closing->queue, commit, closing->oid, &job, error);

    bson_oid_to_string(closing->oid, text);
    if (!status && truce__after_is_open(&job)) {
        status = truce_commit_update(commit, QUEUE, &closing->id, NULL, update, error);
        if (!status)
            status = count_down_to(commit, &job, truce__after_left(&job) - 1, error);
    } else if (!status && !bson_has_field(&job, "after")) {
        status = truce__fail(TRUCE_INVALID, error, "job %s closes no batch", text);
    }
    bson_destroy(update);
    bson_destroy(&job);
    return status;
}

truce_status truce_queue_close(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                               bson_error_t *error)
{
    RETURN_IF_NULL(id, error);

    DEADLINE_SCOPE(queue->deadline_ms);
    PATIENCE_SCOPE();
    struct closing closing = {queue, id, truce_id_oid(id)};
    truce_status status = truce__queue_ready(queue, error);

    return status ? status : truce__queue_run(queue, commit, close_in, &closing, error);
}

truce_status truce_queue_results(truce_store *store, const bson_oid_t *id, truce_cursor **cursor,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(cursor, error);
    *cursor = NULL;
    RETURN_IF_NULL(id, error);

    bson_t *filter = BCON_NEW("told", BCON_OID(id)), *sort = BCON_NEW("_id", BCON_INT32(1)),
           *projection = BCON_NEW("name", BCON_INT32(1), "queue", BCON_INT32(1), "state",
                                  BCON_INT32(1), "result", BCON_INT32(1));
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
 * Second lives of jobs that others waited for. A job that is cancelled because one that it waits for ended otherwise than
 * done says because of whom:
 *
 *     after: {left: 0, failure: "cancel", failed: [X]}
 *
 * and when X is retried it waits for X again, in the commit of the retry: it goes from X's `told` back into its `then`. Once
 * `failed` is empty it is blocked as before, and so are those, in turn, that were cancelled because of it. (W5)
 *
 * Who was cancelled by hand, or discarded, is not there, and stays as it is. So does one whose key has another live job by
 * now.
 */

struct reviving {
    truce_commit *commit;
    bson_t *jobs[REVIVED_MAX + 1]; /* that live again: the first is the one that is retried */
    size_t count, looked;
};

static void again_append_id(bson_t *array, const bson_value_t *id)
{
    char key[16];

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(array));
    BSON_APPEND_VALUE(array, key, id);
}

static bool array_in(const bson_t *document, const char *path, bson_iter_t *iter)
{
    bson_iter_t found;

    return bson_iter_init(iter, document) && bson_iter_find_descendant(iter, path, &found) &&
           BSON_ITER_HOLDS_ARRAY(&found) && bson_iter_recurse(&found, iter);
}

/* Without `because`; false: it was not there. */
static bool failed_without(const bson_t *job, const bson_oid_t *because, bson_t *failed)
{
    bson_iter_t iter;
    bool was_there = false;

    for (bool some = array_in(job, "after.failed", &iter); some && bson_iter_next(&iter);) {
        if (BSON_ITER_HOLDS_OID(&iter) && bson_oid_equal(bson_iter_oid(&iter), because))
            was_there = true;
        else
            again_append_id(failed, bson_iter_value(&iter));
    }
    return was_there;
}

/* It waits for one more again, and is blocked if nobody else is in the way. */
static void make_update(const bson_t *job, const bson_t *failed, bson_t *update)
{
    bson_t set, unset;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    BSON_APPEND_INT64(&set, "after.left", truce__after_left(job) + 1);
    if (!bson_empty(failed)) {
        BSON_APPEND_ARRAY(&set, "after.failed", failed);
        bson_append_document_end(update, &set);
        return;
    }
    BSON_APPEND_INT32(&set, "attempt", 0);
    truce__job_stands(&set, "blocked", truce__field_text(job, "queue"), truce__clock_wall_ms());
    bson_append_document_end(update, &set);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
    BSON_APPEND_UTF8(&unset, "after.failed", "");
    BSON_APPEND_UTF8(&unset, "ended", "");
    BSON_APPEND_UTF8(&unset, "expires", "");
    BSON_APPEND_UTF8(&unset, "stalled", "");
    bson_append_document_end(update, &unset);
}

static truce_status revive(struct reviving *reviving, const bson_t *job, const bson_t *failed,
                           bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER;
    truce_status status;

    make_update(job, failed, &update);
    status = truce_commit_update(reviving->commit, QUEUE, &id, NULL, &update, error);
    if (bson_empty(failed))
        reviving->jobs[reviving->count++] = bson_copy(job);
    bson_destroy(&update);
    return status;
}

/* *waits: it does, again. */
static truce_status again_look_at(struct reviving *reviving, const bson_value_t *id,
                                  const bson_oid_t *because, bool *waits, bson_error_t *error)
{
    bson_t job, failed = BSON_INITIALIZER;
    truce_status status = truce_commit_read(reviving->commit, QUEUE, id, &job, error);

    *waits = !status && !strcmp(truce__job_state(&job), "cancelled") &&
             failed_without(&job, because, &failed);
    if (*waits && reviving->looked++ == REVIVED_MAX)
        status = truce__fail(TRUCE_LIMIT, error,
                             "more than %d jobs were cancelled with it: it cannot be retried",
                             REVIVED_MAX);
    if (*waits && !status && bson_empty(&failed)) {
        status = truce__queue_key_retake(reviving->commit, &job, error);
        *waits = status != TRUCE_INVALID;
        status = *waits ? status : TRUCE_OK;
    }
    if (*waits && !status)
        status = revive(reviving, &job, &failed, error);
    bson_destroy(&failed);
    bson_destroy(&job);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status; /* pruned since */
}

/* Appends `then` and `told` as they are from now on. */
static truce_status again_look_at_all(struct reviving *reviving, const bson_t *job, bson_t *set,
                                      bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t then = BSON_INITIALIZER, told = BSON_INITIALIZER;
    bson_iter_t iter;
    truce_status status = TRUCE_OK;

    for (bool some = array_in(job, "then", &iter); some && bson_iter_next(&iter);)
        again_append_id(&then, bson_iter_value(&iter));
    for (bool some = array_in(job, "told", &iter); some && !status && bson_iter_next(&iter);) {
        bool waits;

        status = again_look_at(reviving, bson_iter_value(&iter), &id.value.v_oid, &waits, error);
        again_append_id(waits ? &then : &told, bson_iter_value(&iter));
    }
    BSON_APPEND_ARRAY(set, "told", &told);
    if (!bson_empty(&then))
        BSON_APPEND_ARRAY(set, "then", &then);
    bson_destroy(&then);
    bson_destroy(&told);
    return status;
}

static truce_status again_look_behind(struct reviving *reviving, const bson_t *job,
                                      bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER, set;
    truce_status status;

    if (!bson_has_field(job, "told"))
        return TRUCE_OK;
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    status = again_look_at_all(reviving, job, &set, error);
    bson_append_document_end(&update, &set);
    if (!status)
        status = truce_commit_update(reviving->commit, QUEUE, &id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

truce_status truce__after_again(truce_commit *commit, const bson_t *job, bson_t *set,
                                bson_error_t *error)
{
    struct reviving *reviving;
    truce_status status;

    if (!bson_has_field(job, "told"))
        return TRUCE_OK;
    reviving = bson_malloc0(sizeof *reviving);
    reviving->commit = commit;
    status = again_look_at_all(reviving, job, set, error);
    for (size_t i = 0; i < reviving->count && !status; i++)
        status = again_look_behind(reviving, reviving->jobs[i], error);
    for (size_t i = 0; i < reviving->count; i++)
        bson_destroy(reviving->jobs[i]);
    bson_free(reviving);
    return status;
}

/* ---- connected jobs -------------------------------------------------------------------------- */

/* The jobs that hang together: found from one of them along `then` and `told`, in both directions. */

struct edge {
    int earlier, later;
};

struct graph {
    truce_store *store;
    bson_t *jobs[GRAPH_JOBS_MAX];
    bson_oid_t ids[GRAPH_JOBS_MAX];
    int64_t levels[GRAPH_JOBS_MAX];
    size_t count, edge_count;
    struct edge *edges;
};

static const char *const fields[] = {"then", "told"};

/* Where it stands; -1: nowhere. */
static int graph_place_of(const struct graph *graph, const bson_oid_t *id)
{
    for (size_t i = 0; i < graph->count; i++) {
        if (bson_oid_equal(id, &graph->ids[i]))
            return (int)i;
    }
    return -1;
}

static truce_status graph_add_found(struct graph *graph, const bson_t *filter, bson_error_t *error)
{
    bson_t *projection =
        BCON_NEW("name", BCON_INT32(1), "queue", BCON_INT32(1), "state", BCON_INT32(1), "then",
                 BCON_INT32(1), "told", BCON_INT32(1), "after", BCON_INT32(1));
    truce_find_options options = {.projection = projection, .limit = GRAPH_JOBS_MAX};
    truce_cursor *cursor = NULL;
    const bson_t *job = NULL;
    truce_status status = truce_find(graph->store, QUEUE, filter, &options, &cursor, error);

    while (!status && !(status = truce_cursor_next(cursor, &job, error)) && job) {
        bson_value_t id = truce__document_id(job);

        if (graph->count == GRAPH_JOBS_MAX || id.value_type != BSON_TYPE_OID ||
            graph_place_of(graph, &id.value.v_oid) >= 0)
            continue;
        bson_oid_copy(&id.value.v_oid, &graph->ids[graph->count]);
        graph->jobs[graph->count++] = bson_copy(job);
    }
    truce_cursor_close(cursor);
    bson_destroy(projection);
    return status;
}

static truce_status add_earlier(struct graph *graph, const bson_oid_t *id, bson_error_t *error)
{
    bson_t *filter =
        BCON_NEW("$or", "[", "{", "then", BCON_OID(id), "}", "{", "told", BCON_OID(id), "}", "]");
    truce_status status = graph_add_found(graph, filter, error);

    bson_destroy(filter);
    return status;
}

static truce_status add_later(struct graph *graph, const bson_t *job, const char *field,
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

static truce_status add_neighbours(struct graph *graph, size_t i, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (bson_has_field(graph->jobs[i], "after"))
        status = add_earlier(graph, &graph->ids[i], error);
    for (int k = 0; k < 2 && !status; k++)
        status = add_later(graph, graph->jobs[i], fields[k], error);
    return status;
}

static void add_edges(struct graph *graph, size_t i, const char *field)
{
    bson_iter_t iter, one;

    if (!bson_iter_init_find(&iter, graph->jobs[i], field) || !BSON_ITER_HOLDS_ARRAY(&iter) ||
        !bson_iter_recurse(&iter, &one))
        return;
    while (bson_iter_next(&one)) {
        int later = BSON_ITER_HOLDS_OID(&one) ? graph_place_of(graph, bson_iter_oid(&one)) : -1;

        if (later < 0)
            continue;
        if (!(graph->edge_count & (graph->edge_count - 1)))
            graph->edges =
                bson_realloc(graph->edges, (2 * graph->edge_count + 1) * sizeof *graph->edges);
        graph->edges[graph->edge_count++] = (struct edge){(int)i, later};
    }
}

/* A level is one more than the highest of those that it waits for. Documents that somebody wrote in a circle end it, too. */
static void find_levels(struct graph *graph)
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

static void append_job(const struct graph *graph, size_t i, bson_t *result)
{
    bson_t one, after;
    char key[16];
    uint32_t count = 0;

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(result));
    BSON_APPEND_DOCUMENT_BEGIN(result, key, &one);
    bson_copy_to_excluding_noinit(graph->jobs[i], &one, "then", "told", "after", NULL);
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

static void graph_append_all(struct graph *graph, bson_t *result)
{
    size_t left = graph->count;

    for (size_t i = 0; i < graph->count; i++)
        for (int k = 0; k < 2; k++)
            add_edges(graph, i, fields[k]);
    find_levels(graph);
    for (int64_t level = 0; left > 0; level++) {
        for (size_t i = 0; i < graph->count; i++) {
            if (graph->levels[i] == level) {
                append_job(graph, i, result);
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

    struct graph *graph = bson_malloc0(sizeof *graph);
    bson_t *filter = BCON_NEW("_id", BCON_OID(id));
    char text[25];
    truce_status status;

    graph->store = store;
    bson_init(result);
    bson_oid_to_string(id, text);
    status = graph_add_found(graph, filter, error);
    if (!status && !graph->count)
        status = truce__fail(TRUCE_NOT_FOUND, error, "there is no job %s", text);
    for (size_t i = 0; i < graph->count && !status; i++)
        status = add_neighbours(graph, i, error);
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
 * Workflows: jobs that wait for each other by name, added in one commit. They are put in an order in which each comes
 * behind those that it waits for; where there is none they wait in a circle, and are refused.
 */

struct flow {
    const truce_flow_job *jobs;
    size_t count;
    bson_oid_t *ids;
    size_t *order;  /* in which they are added */
    size_t ordered; /* so many have their place */
    bool *placed;
    bson_error_t *error;
};

/* `count` if there is none of that name. */
static size_t flow_find(const struct flow *flow, const char *name)
{
    size_t i = 0;

    while (i < flow->count && strcmp(flow->jobs[i].name, name))
        i++;
    return i;
}

/* ---- what may be added -------------------------------------------------------------------------- */

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
        status = truce__fail(TRUCE_INVALID, flow->error, "the workflow is of two stores");
    if (!status && (options->unique || options->unique_payload || options->batch || options->id))
        status =
            truce__fail(TRUCE_INVALID, flow->error,
                        "job \"%s\" of the workflow has a unique key, a batch or an id", job->name);
    return status ? status : truce__job_check(job->queue, job->payload, options, flow->error);
}

static truce_status check_edges(const struct flow *flow, size_t i, size_t *edges)
{
    const truce_flow_job *job = &flow->jobs[i];
    size_t count = 0;

    if (flow_find(flow, job->name) != i)
        return truce__fail(TRUCE_INVALID, flow->error,
                           "two jobs of the workflow have the name \"%s\"", job->name);
    for (; job->after && job->after[count]; count++) {
        if (++*edges > FLOW_EDGES_MAX)
            return truce__fail(TRUCE_LIMIT, flow->error,
                               "the jobs of the workflow wait for each other more than %d times",
                               FLOW_EDGES_MAX);
        if (flow_find(flow, job->after[count]) == flow->count)
            return truce__fail(TRUCE_INVALID, flow->error,
                               "job \"%s\" waits for \"%s\", which is not there", job->name,
                               job->after[count]);
    }
    if (count + (job->options ? job->options->after_count : 0) > JOB_AFTER_MAX)
        return truce__fail(TRUCE_LIMIT, flow->error, "job \"%s\" waits for more than %d others",
                           job->name, JOB_AFTER_MAX);
    return count ? truce__after_indexes(job->queue, flow->error) : TRUCE_OK;
}

static truce_status flow_check(const struct flow *flow)
{
    size_t edges = 0;
    truce_status status = TRUCE_OK;

    if (flow->count > FLOW_JOBS_MAX)
        return truce__fail(TRUCE_LIMIT, flow->error, "a workflow has up to %d jobs, and not %zu",
                           FLOW_JOBS_MAX, flow->count);
    for (size_t i = 0; i < flow->count && !status; i++)
        status = flow_check_one(flow, i);
    for (size_t i = 0; i < flow->count && !status; i++)
        status = check_edges(flow, i, &edges);
    return status;
}

/* ---- the order ---------------------------------------------------------------------------------- */

/* The first that it waits for and that has no place yet; `count`: none. */
static size_t awaited(const struct flow *flow, size_t i)
{
    const char *const *after = flow->jobs[i].after;

    for (; after && *after; after++) {
        size_t other = flow_find(flow, *after);

        if (!flow->placed[other])
            return other;
    }
    return flow->count;
}

/* Whoever has no place waits for one that has none: going from one to the next comes back to one that was passed. */
static truce_status circle(const struct flow *flow)
{
    size_t *passed = bson_malloc0(flow->count * sizeof *passed), i = 0, step = 1, first;
    bson_string_t *names;
    truce_status status;

    while (flow->placed[i])
        i++;
    for (; !passed[i]; i = awaited(flow, i))
        passed[i] = step++;
    first = i;
    names = bson_string_new(flow->jobs[first].name);
    do {
        i = awaited(flow, i);
        if (names->len < 300)
            bson_string_append_printf(names, " after %s", flow->jobs[i].name);
    } while (i != first);
    status = truce__fail(TRUCE_INVALID, flow->error, "the jobs wait for each other in a circle: %s",
                         names->str);
    bson_string_free(names, true);
    bson_free(passed);
    return status;
}

static truce_status put_in_order(struct flow *flow)
{
    size_t before;

    do {
        before = flow->ordered;
        for (size_t i = 0; i < flow->count; i++) {
            if (!flow->placed[i] && awaited(flow, i) == flow->count) {
                flow->placed[i] = true;
                flow->order[flow->ordered++] = i;
            }
        }
    } while (flow->ordered < flow->count && flow->ordered > before);
    return flow->ordered < flow->count ? circle(flow) : TRUCE_OK;
}

/* ---- the commit ----------------------------------------------------------------------------------- */

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
    flow.placed = bson_malloc0(count * sizeof *flow.placed);
    status = put_in_order(&flow);
    for (size_t i = 0; i < count; i++)
        truce__id_new(&ids[i]);
    if (!status)
        status = truce__queue_run(jobs[0].queue, commit, flow_add_all, &flow, error);
    bson_free(flow.order);
    bson_free(flow.placed);
    return status;
}
