/*
 * The job queue: the handle, the states of a job document, and the rules for changing it.
 *
 *     add ----> delayed --due--> ready --claim--> running --done--> done
 *       \----------------------^  ^                 |  |  \--discard--> discarded
 *                                 |                 |  \--fail, the last attempt--> dead
 *                                 \-- fail, snooze, |     (fail, snooze: also to delayed)
 *                                     lease expired /
 *     any live job --cancel--> cancelled;  delayed, dead, cancelled, discarded --retry--> ready
 *     in a full lane: add --> waiting, instead of ready or delayed, until the lane releases it
 *     after other jobs: add --> blocked, instead of these, until the other jobs have ended
 *
 *     add                 queue_add.c        claim, due                 queue_claim.c
 *     the other changes   claimed_job.c      lease expired              job_lease.c
 *     a failure           job_retry.c        sleeps, signals            job_wait.c
 *     by an operator      queue_control.c    sweep, check               queue_maintenance.c
 *     limits              rate_limit.c       lanes                      job_lane.c
 *     after other jobs    workflow.c         by the clock               cron.c
 *     running jobs        queue_pool.c
 *
 * Every claim has an identifier of its own, lease.token, which the claimer creates. No two claims
 * have the same token. The epoch of the job rises with each claim. A claim is one find-and-modify.
 * A commit makes every other change of an existing job, alone or together with other documents. The
 * commit therefore handles calls without a reply and calls that take effect late.
 *
 * Invariants (models/queue.cpp is the model; its mutants leave out one of these rules each):
 *
 *  QJ1. Only live jobs have `undone`. It repeats the state and the queue. The index of claims
 *       contains nothing else.
 *  QJ2. Each change that a worker makes to its job compares the state "running" and the token,
 *       inside the commit that makes the change. The epoch alone is not a fence: after a failover
 *       has lost a claim, the next claim has the same epoch.
 *  QJ3. truce_job_commit writes the job in the commit of the effects, so the commit holds the job
 *       until its decision. Between the read and the decision, no other process claims, releases,
 *       or cancels the job.
 *  QJ4. No clock is compared with the clock of another process. A lease has expired when one
 *       process has seen the same token and the same end for the length of the lease. A process
 *       measures this time by its monotonic clock. The sweep can continue the observation of an
 *       earlier sweep on the same computer (job_lease.c). The release compares the token and the
 *       end that were observed. Wall clocks only choose which leases are read.
 *  QJ5. A claim takes no job that a commit holds. A caller that waits for such a job resolves the
 *       commit; the sweep of commits resolves the rest.
 *  QJ6. Each release of a job counts its attempts. A job that kills its workers is dead after its
 *       last attempt.
 *  QJ7. A key counts while its job is live. The job document decides; the document of the key only
 *       names the job.
 *
 * A crash before a claim takes effect leaves nothing. A crash after it leaves a lease that ends. A
 * crash inside a commit leaves a state that the next process to read the job completes or rolls
 * back. If the store keeps the order of writes (TRUCE_CAN_KEEP_ORDER), a power cut can lose a
 * claim. The cut then also stops the worker and loses all writes that followed the claim.
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
#include "base/process_name.h"
#include "base/random.h"
#include "base/reserved_fields.h"
#include "bson/field_name_escape.h"
#include "bson/value.h"
#include "commit/metadata_cache.h"
#include "store/maintenance.h"
#include "store/store.h"

/* ---- the handle ------------------------------------------------------------------------------ */

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
    queue->worker = options->worker ? bson_strdup(options->worker) : truce__process_name();
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
        queue_refuse(
            queue,
            "invalid option \"queue\", the name of the queue: expected 1 to 200 bytes of UTF-8");
    if (!queue_name_is_good(queue->worker))
        queue_refuse(
            queue,
            "invalid option \"worker\", the name of the worker: expected 1 to 200 bytes of UTF-8");
    if (queue->attempts_max > INT32_MAX)
        queue_refuse(queue, "invalid attempts_max: expected at most 2147483647");
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
    atomic_bool *const flags[] = {&queue->paused, &queue->limited, &queue->laned,
                                  &queue->linked, &queue->quiet,   &queue->due_more};
    atomic_int_fast64_t *const times[] = {&queue->due_ms,     &queue->promoted_ns,
                                          &queue->rescued_ns, &queue->settings_ns,
                                          &queue->fired_ns,   &queue->continued_ns};

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        atomic_store(flags[i], false);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        atomic_store(times[i], 0);
}

uint32_t truce__queue_store_deadline_ms(const truce_store *store)
{
    return store->deadline_ms ? store->deadline_ms : COMMIT_DEADLINE_MS;
}

uint32_t truce__queue_deadline_ms(const truce_queue *queue)
{
    return queue->deadline_ms ? queue->deadline_ms : truce__queue_store_deadline_ms(queue->store);
}

truce_status truce__queue_ready(truce_queue *queue, bson_error_t *error)
{
    truce_status status =
        truce__handle_usable(queue->store, queue->refused, &queue->refusal, error);
    uint64_t structure = status ? 0 : truce__metadata_structure(queue->store) + 1;

    if (status || atomic_load(&queue->structure) == structure)
        return status;
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

/* ---- claims and settings --------------------------------------------------------------------- */

void truce__claims_init(struct queue_claims *claims)
{
    *claims = (struct queue_claims){.process = getpid()};
    pthread_mutex_init(&claims->mutex, NULL);
}

void truce__claims_destroy(struct queue_claims *claims)
{
    pthread_mutex_destroy(&claims->mutex);
}

truce_status truce__queue_set(truce_queue *queue, const char *field, const bson_value_t *value,
                              bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(queue->name)), update = BSON_INITIALIZER, inner;
    truce_write_options options = {.upsert = true};
    truce_status status = truce__queue_ready(queue, error);

    BSON_APPEND_DOCUMENT_BEGIN(&update, value ? "$set" : "$unset", &inner);
    if (value)
        BSON_APPEND_VALUE(&inner, field, value);
    else
        BSON_APPEND_UTF8(&inner, field, "");
    bson_append_document_end(&update, &inner);
    for (int i = 0; i < 5 && !status;
         /* A server may refuse one of two first upserts; a repeated one does no harm. */
         i++) {
        status = truce_update(queue->store, QUEUE_SETTINGS, filter, &update, &options, NULL, error);
        if (status != TRUCE_DUPLICATE && !truce__repeatable(status))
            break;
        status = i < 4 ? TRUCE_OK : status;
    }
    atomic_store(&queue->settings_ns, 0);
    bson_destroy(filter);
    bson_destroy(&update);
    return status;
}

truce_status truce__queue_read_job(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                                   bson_t *job, bson_error_t *error)
{
    bson_value_t value = truce_id_oid(id);
    truce_status status = truce_commit_read(commit, QUEUE, &value, job, error);
    char text[25];

    if (status && status != TRUCE_NOT_FOUND)
        return status;
    if (!status && !strcmp(truce__field_text(job, "queue"), queue->name))
        return TRUCE_OK;
    bson_reinit(job);
    bson_oid_to_string(id, text);
    return truce__fail(TRUCE_NOT_FOUND, error, "queue \"%s\" has no job %s", queue->name, text);
}
