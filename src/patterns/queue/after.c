/*
 * Jobs that wait for others. A job that waits is "blocked", and has
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
 *   W4. A new job waits for jobs that are there, or that came before it in its workflow (flow.c); one of a batch waits
 *       for none. So there is no circle.
 *
 *   W5. Who is cancelled by one that it waits for says by whom; when that one is retried it waits for it again, in the
 *       same commit (after_again.c).
 *
 * Who waits is not asked for by an index: it stands in the job that ends, which its commit has read. What is left goes
 * down also for a job that was cancelled meanwhile, so one that is retried is blocked for as long as it has to be.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/patience.h"
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
    DEADLINE_SCOPE(queue->deadline_ms);
    PATIENCE_SCOPE();
    struct closing closing = {queue, id, truce_id_oid(id)};
    truce_status status = truce__queue_ready(queue, error);

    return status ? status : truce__queue_run(queue, commit, close_in, &closing, error);
}

truce_status truce_queue_results(truce_store *store, const bson_oid_t *id, truce_cursor **cursor,
                                 bson_error_t *error)
{
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
