/*
 * The job queue: the handle, the states of a job document, and the rules for changing it.
 *
 *     add ----> delayed --due--> ready --claim--> running --done--> done
 *       \----------------------^  ^                 |  |  \--discard--> discarded
 *                                 |                 |  \--fail, the last attempt--> dead
 *                                 \-- fail, snooze, |     (fail, snooze: also to delayed)
 *                                     lease over ---/
 *     any live job --cancel--> cancelled;  delayed, dead, cancelled, discarded --retry--> ready
 *     in a full lane: add --> waiting, instead of ready or delayed, until its turn comes
 *     after other jobs: add --> blocked, instead of these, until the other jobs have ended
 *
 *     add                 queue_add.c        claim, due                 queue_claim.c
 *     the other changes   job.c              lease over                 job_lease.c
 *     by an operator      queue_control.c    leases of dead jobs, check queue_maintenance.c
 *     limits              rate_limit.c       lanes                      lane.c
 *     after other jobs    workflow.c         by the clock               cron.c
 *     threads that run jobs    queue_pool.c
 *
 * Every claim has an identifier of its own, lease.token, which the claimer creates. No two claims
 * have the same token. The epoch of the job rises with each claim. A claim is one find-and-modify.
 * A commit makes every other change of an existing job, alone or together with other documents. The
 * commit therefore handles calls without an answer and calls that land late.
 *
 * Invariants (models/queue.cpp is the model; its mutants leave out one of these rules each):
 *
 *   L1. Only live jobs have `undone`. It repeats the state and the queue. The index of claims
 *       contains nothing else.
 *   L2. Each change that a worker makes to its job compares the state "running" and the token,
 *       inside the commit that makes the change. The epoch alone is not a fence: after a failover
 *       has lost a claim, the next claim has the same epoch.
 *   L3. truce_job_commit writes the job in the commit of the effects, so the commit holds the job
 *       until its decision. Between the read and the decision, no other process claims, releases,
 *       or cancels the job.
 *   L4. No clock is compared with the clock of another process. A lease is over when one process
 *       has seen the same token and the same end for as long as the lease lasts. A process measures
 *       this time by its monotonic clock. The sweep can continue the observation of an earlier
 *       sweep on the same computer (job_lease.c). The release compares the token and the end that
 *       were observed. Wall clocks only choose which leases are read.
 *   L5. A claim takes no job that a commit holds. A caller that waits for such a job resolves the
 *       commit; the sweep of commits resolves the rest.
 *   L6. Each release of a job counts its attempts. A job that kills its workers is dead after its
 *       last attempt.
 *   L7. A key counts while its job is live. The job document decides; the document of the key only
 *       names the job.
 *
 * A crash before a claim lands leaves nothing. A crash after it leaves a lease that ends. A crash
 * inside a commit leaves a state that the next process to read the job completes or rolls back. If
 * the store keeps the order of writes (TRUCE_CAN_KEEP_ORDER), a power cut can lose a claim. The cut
 * then also stops the worker and loses all writes that followed the claim.
 *
 * Deliberately not done: the priority of a job does not rise with its age. If jobs of high priority
 * never end, jobs of low priority never start.
 */
#include "patterns/queue/queue.h"

#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/random.h"
#include "base/reserved_fields.h"
#include "bson/field_names.h"
#include "bson/value.h"
#include "store/maintenance.h"
#include "store/store.h"

/* ---- the handle ------------------------------------------------------------------------------ */

static char *worker_name(void)
{
    char host[65] = {0};

    if (gethostname(host, sizeof host - 1) || !bson_utf8_validate(host, strlen(host), false))
        bson_snprintf(host, sizeof host, "worker");
    return bson_strdup_printf("%s:%ld", host, (long)getpid());
}

static void queue_refuse(truce_queue *queue, const char *why)
{
    if (!queue->refused)
        (void)truce__fail(TRUCE_INVALID, &queue->refusal, "%s", why);
    queue->refused = true;
}

static bool queue_name_is_good(const char *name)
{
    size_t length = strlen(name);

    return length && length <= QUEUE_NAME_BYTES_MAX && bson_utf8_validate(name, length, false);
}

truce_queue *truce_queue_new(truce_store *store, const truce_queue_options *options)
{
    static const truce_queue_options defaults;
    truce_queue *queue = bson_malloc0(sizeof *queue);

    truce_assert(store);
    if (!options)
        options = &defaults;
    queue->store = store;
    truce__claims_init(&queue->claims);
    queue->refused = ROOM_CHECK(options, "truce_queue_options", &queue->refusal) != TRUCE_OK;
    queue->name = bson_strdup(options->queue ? options->queue : "?");
    queue->worker = options->worker ? bson_strdup(options->worker) : worker_name();
    queue->lease_ms = options->lease_ms ? options->lease_ms : JOB_LEASE_MS;
    queue->attempts_max = options->attempts_max ? options->attempts_max : JOB_ATTEMPTS;
    queue->backoff = options->backoff;
    queue->backoff_ms = options->backoff_ms ? options->backoff_ms : 1000;
    queue->backoff_max_ms = options->backoff_max_ms ? options->backoff_max_ms : 3600000;
    queue->backoff_function = options->backoff_function;
    queue->backoff_arg = options->backoff_arg;
    queue->keep_ms = options->keep_ms ? options->keep_ms : JOB_KEEP_MS;
    queue->keep_cancelled_ms = options->keep_cancelled_ms;
    queue->keep_discarded_ms = options->keep_discarded_ms;
    queue->keep_dead_ms = options->keep_dead_ms;
    queue->mechanism = options->mechanism;
    queue->deadline_ms = options->deadline_ms;
    if (!options->queue)
        queue_refuse(queue, "the option \"queue\" of the job queue is missing: name the queue");
    else if (!queue_name_is_good(queue->name))
        queue_refuse(queue, "invalid name of a queue: expected 1 to 200 bytes of UTF-8");
    if (!queue_name_is_good(queue->worker))
        queue_refuse(queue, "invalid name of a worker: expected 1 to 200 bytes of UTF-8");
    if (queue->attempts_max > INT32_MAX)
        queue_refuse(queue, "attempts_max is too large: the maximum is 2147483647");
    return queue;
}

void truce_queue_free(truce_queue *queue)
{
    if (!queue)
        return;
    truce__claims_destroy(&queue->claims);
    bson_free(queue->name);
    bson_free(queue->worker);
    bson_free(queue);
}

truce_status truce__queue_index(truce_store *store, const char *collection, const char *name,
                                bool sparse, const char *const *fields, bson_error_t *error)
{
    bson_t index = BSON_INITIALIZER, key;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&index, "key", &key);
    for (size_t i = 0; fields[i]; i++)
        BSON_APPEND_INT32(&key, fields[i], 1);
    bson_append_document_end(&index, &key);
    BSON_APPEND_UTF8(&index, "name", name);
    if (sparse)
        BSON_APPEND_BOOL(&index, "sparse", true);
    status = truce__index_ensure(store, collection, &index, error);
    bson_destroy(&index);
    return status;
}

truce_status truce__queue_indexes(truce_store *store, bson_error_t *error)
{
    static const struct {
        const char *name, *fields[5];
    } indexes[] = {{"undone", {"undone.state", "undone.queue", "undone.rank", "undone.at"}},
                   {"dead", {"dead.queue", "dead.at"}},
                   {"expires", {"expires"}},
                   {"stalled", {"stalled"}}};
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < sizeof indexes / sizeof *indexes && !status; i++)
        status = truce__queue_index(store, QUEUE, indexes[i].name, true, indexes[i].fields, error);
    return status;
}

/* Forgets everything that was read from collections that may have been replaced since. */
static void queue_forget(truce_queue *queue)
{
    atomic_bool *const flags[] = {&queue->paused, &queue->gated, &queue->laned,
                                  &queue->linked, &queue->quiet, &queue->due_more};
    atomic_int_fast64_t *const times[] = {&queue->due_ms,     &queue->promoted_ns,
                                          &queue->rescued_ns, &queue->asked_ns,
                                          &queue->fired_ns,   &queue->went_on_ns};

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        atomic_store(flags[i], false);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        atomic_store(times[i], 0);
}

truce_status truce__queue_ready(truce_queue *queue, bson_error_t *error)
{
    uint64_t structure = truce__store_structure(queue->store) + 1;
    truce_status status = TRUCE_OK;

    if (queue->refused) {
        if (error)
            *error = queue->refusal;
        return TRUCE_INVALID;
    }
    if (atomic_load(&queue->structure) == structure)
        return TRUCE_OK;
    queue_forget(queue);
    status = truce__queue_indexes(queue->store, error);
    if (!status)
        atomic_store(&queue->structure, structure);
    return status;
}

truce_status truce__queue_run(truce_queue *queue, truce_commit *commit,
                              truce_commit_function *function, void *arg, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = queue->mechanism,
                                    .lease_ms = truce__queue_commit_lease(queue),
                                    .deadline_ms = queue->deadline_ms};

    return commit ? function(commit, arg, error)
                  : truce_transact(queue->store, function, arg, &options, error);
}

/* ---- fields of a job ------------------------------------------------------------------------- */

const char *truce__job_state(const bson_t *document)
{
    return truce__field_text(document, "state");
}

bool truce__job_live(const bson_t *document)
{
    const char *state = truce__job_state(document);

    return !strcmp(state, "ready") || !strcmp(state, "delayed") || !strcmp(state, "running") ||
           truce__job_is_held(document);
}

bool truce__job_is_held(const bson_t *document)
{
    const char *state = truce__job_state(document);

    return !strcmp(state, "waiting") || !strcmp(state, "blocked");
}

bool truce__job_lane(const bson_t *document, struct job_lane *lane)
{
    bson_t field;

    if (!truce__value_subdocument(document, "lane", &field))
        return false;
    *lane = (struct job_lane){
        truce__field_text(&field, "name"), truce__field_number(&field, "width"),
        truce__field_number(&field, "rate"), truce__field_number(&field, "per_ms")};
    if (lane->rate < 1 || lane->per_ms < 1)
        lane->rate = 0;
    return *lane->name && lane->width > 0;
}

static bool queue_find_path(const bson_t *document, const char *path, bson_iter_t *found)
{
    bson_iter_t iter;

    return bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, path, found);
}

bool truce__job_date(const bson_t *document, const char *path, int64_t *ms)
{
    bson_iter_t iter;

    *ms = 0;
    if (!queue_find_path(document, path, &iter) || !BSON_ITER_HOLDS_DATE_TIME(&iter))
        return false;
    *ms = truce__iter_date(&iter);
    return true;
}

bool truce__job_token(const bson_t *document, bson_oid_t *token)
{
    bson_iter_t iter;

    if (!queue_find_path(document, "lease.token", &iter) || !BSON_ITER_HOLDS_OID(&iter))
        return false;
    bson_oid_copy(bson_iter_oid(&iter), token);
    return true;
}

/* ---- changes of a job ------------------------------------------------------------------------ */

static void queue_append_state(bson_t *set, const char *state, const char *queue, int32_t rank,
                               int64_t at_ms)
{
    bson_t undone;

    BSON_APPEND_UTF8(set, "state", state);
    BSON_APPEND_DOCUMENT_BEGIN(set, "undone", &undone);
    BSON_APPEND_UTF8(&undone, "state", state);
    BSON_APPEND_UTF8(&undone, "queue", queue);
    BSON_APPEND_INT32(&undone, "rank", rank);
    BSON_APPEND_DATE_TIME(&undone, "at", at_ms);
    bson_append_document_end(set, &undone);
}

void truce__job_append_queued(bson_t *set, const char *queue, int32_t priority, int64_t at_ms,
                              int64_t now_ms)
{
    bool ready = at_ms <= now_ms;

    queue_append_state(set, ready ? "ready" : "delayed", queue, -priority, at_ms);
}

void truce__job_append_held(bson_t *set, const char *state, const char *queue, int64_t at_ms)
{
    queue_append_state(set, state, queue, 0, at_ms);
}

truce_status truce__job_append_started(truce_commit *commit, const bson_t *job, int64_t at_ms,
                                       int64_t now_ms, bson_t *set, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    char *queue = bson_strdup(truce__field_text(job, "queue")); /* `set` may be the job itself */
    int32_t priority = (int32_t)truce__field_number(job, "priority");
    struct job_lane lane;
    int64_t begin_ms = 0;
    bool waits = false;
    truce_status status = TRUCE_OK;

    if (truce__job_lane(job, &lane))
        status = truce__lane_enter(commit, queue, &lane, &id.value.v_oid, &waits, &begin_ms, error);
    if (waits)
        truce__job_append_held(set, "waiting", queue, at_ms);
    else
        truce__job_append_queued(set, queue, priority, at_ms > begin_ms ? at_ms : begin_ms, now_ms);
    bson_free(queue);
    return status;
}

/* Returns how long the job is kept in that state; -1: for ever. */
static int64_t queue_keep_ms(const bson_t *document, const char *state)
{
    bson_t keep;

    if (truce__value_subdocument(document, "keep", &keep) && bson_has_field(&keep, state))
        return truce__field_number(&keep, state);
    return strcmp(state, "dead") ? truce__field_number(document, "keep_ms") : -1;
}

static void queue_append_end(bson_t *update, const bson_t *document, const char *state,
                             const bson_t *result, bool committed, int64_t now_ms)
{
    int64_t keep_ms = queue_keep_ms(document, state);
    bool dead = !strcmp(state, "dead");
    bson_t set, unset, letter;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    BSON_APPEND_UTF8(&set, "state", state);
    BSON_APPEND_DATE_TIME(&set, "ended", now_ms);
    if (dead) {
        BSON_APPEND_DOCUMENT_BEGIN(&set, "dead", &letter);
        BSON_APPEND_UTF8(&letter, "queue", truce__field_text(document, "queue"));
        BSON_APPEND_DATE_TIME(&letter, "at", now_ms);
        bson_append_document_end(&set, &letter);
    }
    if (keep_ms >= 0)
        BSON_APPEND_DATE_TIME(&set, "expires", truce__job_date_after(now_ms, keep_ms));
    if (result)
        truce__names_append(&set, "result", result);
    if (committed)
        BSON_APPEND_BOOL(&set, "lease.committed", true);
    bson_append_document_end(update, &set);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
    BSON_APPEND_UTF8(&unset, "undone", "");
    if (!dead)
        BSON_APPEND_UTF8(&unset, "dead", "");
    if (strcmp(state, "done"))
        BSON_APPEND_UTF8(&unset, "lease", ""); /* of a done job, it names the worker */
    bson_append_document_end(update, &unset);
}

void truce__job_update_end(bson_t *update, const bson_t *document, const char *state,
                           const bson_t *result, int64_t now_ms)
{
    queue_append_end(update, document, state, result, false, now_ms);
}

void truce__job_update_commit(bson_t *update, const bson_t *document, const bson_t *result,
                              int64_t now_ms)
{
    queue_append_end(update, document, "done", result, true, now_ms);
}

/* Returns a copy of at most JOB_ERROR_BYTES_MAX bytes that ends with a whole character. If it is
 * not valid UTF-8, each byte above 127 becomes "?". Free it with bson_free. */
static char *queue_clip(const char *text)
{
    size_t length = strnlen(text ? text : "", JOB_ERROR_BYTES_MAX);
    char *clipped = bson_strndup(text ? text : "", length);

    while (text && text[length] && length && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--;
    clipped[length] = '\0';
    if (!bson_utf8_validate(clipped, length, false))
        for (char *at = clipped; *at; at++)
            *at = (unsigned char)*at < 0x80 ? *at : '?';
    return clipped;
}

static void queue_append_worker(bson_t *one, const bson_t *document)
{
    bson_iter_t iter;

    if (queue_find_path(document, "lease.worker", &iter) && BSON_ITER_HOLDS_UTF8(&iter))
        BSON_APPEND_UTF8(one, "worker", bson_iter_utf8(&iter, NULL));
}

void truce__job_update_error(bson_t *update, const bson_t *document, const char *text,
                             int64_t now_ms)
{
    char *clipped = queue_clip(text);
    bson_t push, errors, each, one;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$push", &push);
    BSON_APPEND_DOCUMENT_BEGIN(&push, "errors", &errors);
    BSON_APPEND_ARRAY_BEGIN(&errors, "$each", &each);
    BSON_APPEND_DOCUMENT_BEGIN(&each, "0", &one);
    BSON_APPEND_DATE_TIME(&one, "at", now_ms);
    BSON_APPEND_INT32(&one, "attempt", (int32_t)truce__field_number(document, "attempt"));
    BSON_APPEND_INT64(&one, "epoch", truce__field_number(document, "epoch"));
    queue_append_worker(&one, document);
    BSON_APPEND_UTF8(&one, "text", clipped);
    bson_append_document_end(&each, &one);
    bson_append_array_end(&errors, &each);
    BSON_APPEND_INT32(&errors, "$slice", -JOB_ERRORS_MAX);
    bson_append_document_end(&push, &errors);
    bson_append_document_end(update, &push);
    bson_free(clipped);
}

static int64_t queue_backoff(const truce_queue *queue, uint32_t attempt)
{
    int64_t wait = queue->backoff_ms;

    if (queue->backoff_function) {
        wait = queue->backoff_function(attempt, queue->backoff_arg);
        return wait < 0 ? 0 : wait;
    }
    if (queue->backoff == TRUCE_BACKOFF_EXPONENTIAL)
        for (uint32_t i = 1; i < attempt && wait < queue->backoff_max_ms; i++)
            wait *= 2;
    if (wait > queue->backoff_max_ms)
        wait = queue->backoff_max_ms;
    return wait - (int64_t)(truce__random_entropy() % (uint64_t)(wait / 2 + 1));
}

void truce__job_update_fail(bson_t *update, const truce_queue *queue, const bson_t *document,
                            const char *text, int64_t delay_ms, int64_t now_ms)
{
    int64_t attempt = truce__field_number(document, "attempt");
    bson_t set, unset;

    if (attempt >= truce__field_number(document, "attempts_max")) { /* L6 */
        truce__job_update_end(update, document, "dead", NULL, now_ms);
    } else {
        if (delay_ms < 0)
            delay_ms = queue_backoff(queue, (uint32_t)attempt);
        BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
        truce__job_append_queued(&set, truce__field_text(document, "queue"),
                                 (int32_t)truce__field_number(document, "priority"),
                                 truce__job_date_after(now_ms, delay_ms), now_ms);
        bson_append_document_end(update, &set);
        BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
        BSON_APPEND_UTF8(&unset, "lease", "");
        bson_append_document_end(update, &unset);
    }
    truce__job_update_error(update, document, text, now_ms);
}
