/*
 * Leases: their extension by the worker (heartbeat), their end, and the release of the job.
 *
 * A worker extends the lease of its job until it ends the job. A lease has expired (QJ4 in queue.c)
 * if its token and its end, undone.at, have not changed for the length of the lease. Then a commit
 * releases the job:
 *
 *     it read: running, token and undone.at as observed -> as after a failed attempt
 *
 * A process measures the time by its monotonic clock, from the first time it saw the lease in its
 * current state. The sweep also stores this time in the lease (commit/lease_watch.h); a new claim
 * replaces the whole lease. The sweep stores nothing in a lease that ends within its own length
 * from now; its worker is probably alive.
 *
 * A pass reads the leases that ended by the wall clock of this process. It also reads the leases
 * that end later than a new lease would: the clocks of their workers are ahead. All other leases
 * belong to the first kind in time. A pass reads about 1,000 leases, and the next pass continues
 * there. Leases of workers whose clocks are behind therefore hide no others.
 *
 * Any process may release jobs, any number of times, at any time.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/object_id.h"
#include "base/wait_limit.h"
#include "bson/value.h"
#include "commit/lease_watch.h"
#include "commit/metadata_cache.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"
#include "store/store.h"

/* A pass reads this number of leases, and those that end in the same millisecond as the last
 * one. */
#define LEASES_SEEN 1000
/* The maximum length of a pass in ms, because its caller waits for a job. */
#define PASS_MS  250
#define DAY_MS   INT64_C(86400000)
#define NS_IN_MS INT64_C(1000000)
/* The deadline for the release of one job. If a commit holds the job, the next pass releases it. */
#define RESCUE_DEADLINE_MS 50

/* ---- extensions (heartbeats) ----------------------------------------------------------------- */

/* Returns the end of the extended lease. It is later than the current end even if the clock does
 * not move, because the other processes see an extension only by its end. The timeout
 * limits it. */
static int64_t lease_extended_end(const truce_job *job, const bson_t *document)
{
    int64_t until_ms = truce__clock_wall_ms() + job->queue->lease_ms, current_ms;

    if (truce__job_date(document, "undone.at", &current_ms) && until_ms <= current_ms)
        until_ms = current_ms + 1;
    if (job->timeout_ms && until_ms > job->since_ms + job->timeout_ms)
        until_ms = job->since_ms + job->timeout_ms;
    return until_ms;
}

/* Appends the end of the extended lease. */
static void lease_append_end(bson_t *set, const truce_job *job, const bson_t *document,
                             const void *arg)
{
    (void)arg;
    BSON_APPEND_DATE_TIME(set, "undone.at", lease_extended_end(job, document));
}

truce_status truce_job_extend(truce_job *job, bson_error_t *error)
{
    DEADLINE_SCOPE(truce__queue_deadline_ms(job->queue));
    WAIT_LIMIT_SCOPE();

    return truce__job_set_mine(job, lease_append_end, NULL, error);
}

/* ---- expired leases -------------------------------------------------------------------------- */

struct lease {
    const truce_queue *queue;
    bson_oid_t token;
    bson_value_t id;
    int64_t at_ms;
    bool released;
};

static char *lease_reason(const bson_t *job, int64_t now_ms)
{
    int64_t timeout_ms = truce__field_count(job, "timeout_ms"), since_ms;

    if (timeout_ms && truce__job_date(job, "lease.since", &since_ms) &&
        now_ms >= since_ms + timeout_ms)
        return bson_strdup_printf("timed out after %lld ms", (long long)timeout_ms);
    return bson_strdup("the worker did not extend its lease");
}

/* Releases a job in a commit, if it still has the token and the end of lease that were observed
 * (QJ4). */
static truce_status lease_release_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct lease *lease = arg;
    int64_t now_ms = truce__clock_wall_ms(), at_ms;
    bson_t job, update = BSON_INITIALIZER;
    bson_oid_t token;
    truce_status status = truce_commit_read(commit, QUEUE, &lease->id, &job, error);

    lease->released = !status && !strcmp(truce__job_state(&job), "running") &&
                      truce__job_token(&job, &token) && bson_oid_equal(&token, &lease->token) &&
                      truce__job_date(&job, "undone.at", &at_ms) && at_ms == lease->at_ms;
    if (lease->released) {
        char *why = lease_reason(&job, now_ms);

        truce__job_update_fail(&update, lease->queue, &job, why, -1, now_ms);
        status = truce__job_transition(commit, &job, &update, error);
        bson_free(why);
    }
    bson_destroy(&job);
    bson_destroy(&update);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Returns a hash of the state that each extension by the worker changes. */
static uint64_t lease_state(const struct lease *lease)
{
    return truce__watch_hash((uint64_t)lease->at_ms, &lease->token, sizeof lease->token);
}

/* Reads when a process with this clock first saw the lease in its current state. */
static bool lease_seen(const bson_t *job, const struct lease *lease, int64_t *seen_ns)
{
    bson_t fields;

    return truce__value_subdocument(job, "lease", &fields) &&
           truce__lease_seen(&fields, lease->at_ms, seen_ns);
}

static int64_t lease_length_ms(const bson_t *job, int64_t otherwise_ms)
{
    bson_t fields;
    int64_t lease_ms = otherwise_ms;

    if (truce__value_subdocument(job, "lease", &fields) && bson_has_field(&fields, "ms"))
        lease_ms = truce__field_number(&fields, "ms");
    return lease_ms < 0 || lease_ms > DAY_MS ? DAY_MS : lease_ms;
}

/* Returns true if the lease has not changed for as long as it lasts (QJ4). */
static bool lease_is_over(const truce_queue *queue, const bson_t *job, const struct lease *lease)
{
    const bson_oid_t *id = &lease->id.value.v_oid;
    struct watched_lease watched = {.kind = "job",
                                    .id = id,
                                    .size = sizeof *id,
                                    .state = lease_state(lease),
                                    .end = lease->at_ms,
                                    .length_ms = lease_length_ms(job, queue->lease_ms)};
    bson_t fields;

    if (truce__value_subdocument(job, "lease", &fields))
        watched.fields = &fields;
    return truce__metadata_lease_over(queue->store, &watched);
}

static bool lease_read(struct lease *lease, const bson_t *job)
{
    lease->id = truce__document_id(job);
    return lease->id.value_type == BSON_TYPE_OID && truce__job_token(job, &lease->token) &&
           truce__job_date(job, "undone.at", &lease->at_ms);
}

truce_status truce__queue_lease_observe(truce_store *store, const bson_t *job, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms(), seen_ns;
    bson_t *filter, update = BSON_INITIALIZER, set;
    truce_status status;
    struct lease lease;
    bson_oid_t rev;

    if (!truce__clock_name() || !lease_read(&lease, job) || lease_seen(job, &lease, &seen_ns) ||
        (lease.at_ms > now_ms && lease.at_ms <= now_ms + lease_length_ms(job, DAY_MS)))
        return TRUCE_OK;
    truce__id_new(&rev);
    filter =
        BCON_NEW("_id", BCON_OID(&lease.id.value.v_oid), "state", BCON_UTF8("running"),
                 "lease.token", BCON_OID(&lease.token), "undone.at", BCON_DATE_TIME(lease.at_ms));
    truce__intent_append_absent(filter);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_OID(&set, "_rev", &rev);
    truce__lease_append_seen(lease.at_ms, &set);
    bson_append_document_end(&update, &set);
    status = truce_update(store, QUEUE, filter, &update, NULL, NULL, error);
    bson_destroy(&update);
    bson_destroy(filter);
    return status;
}

truce_status truce__queue_rescue(const truce_queue *queue, const bson_t *job, bool *rescued,
                                 bson_error_t *error)
{
    struct lease lease = {.queue = queue};
    truce_commit_options options = {.mechanism = queue->mechanism,
                                    .lease_ms = truce__queue_commit_lease(queue),
                                    .deadline_ms = RESCUE_DEADLINE_MS};
    truce_status status;

    *rescued = false;
    if (!lease_read(&lease, job) || !lease_is_over(queue, job, &lease))
        return TRUCE_OK;
    status = truce_transact(queue->store, lease_release_in, &lease, &options, error);
    *rescued = !status && lease.released;
    return status;
}

/* ---- a pass over the leases of a queue ------------------------------------------------------- */

void truce__queue_append_suspects(int64_t lease_ms, bson_t *filter)
{
    int64_t now_ms = truce__clock_wall_ms();

    BCON_APPEND(filter, "undone.state", BCON_UTF8("running"), "$or", "[", "{", "undone.at", "{",
                "$lte", BCON_DATE_TIME(now_ms), "}", "}", "{", "undone.at", "{", "$gt",
                BCON_DATE_TIME(now_ms + lease_ms), "}", "}", "]");
}

truce_status truce__queue_count_overdue(truce_store *store, const char *queue, int64_t *count,
                                        bson_error_t *error)
{
    bson_t *filter =
        BCON_NEW("undone.state", BCON_UTF8("running"), "undone.queue", BCON_UTF8(queue),
                 "undone.at", "{", "$lte", BCON_DATE_TIME(truce__clock_wall_ms()), "}");
    truce_status status = truce_count(store, QUEUE, filter, NULL, count, error);

    bson_destroy(filter);
    return status;
}

/* Reads the first leases of a queue that end after `from_ms` and until `to_ms`: {_id, lease,
 * undone}. Leases that end in the same millisecond come together. The caller destroys each and
 * frees the list. */
static truce_status leases_between(const truce_queue *queue, int64_t from_ms, int64_t to_ms,
                                   bson_t ***found, size_t *count, bson_error_t *error)
{
    bson_t *filter =
               BCON_NEW("undone.state", BCON_UTF8("running"), "undone.queue",
                        BCON_UTF8(queue->name), "undone.rank", BCON_INT32(0), "undone.at", "{",
                        "$gt", BCON_DATE_TIME(from_ms), "$lte", BCON_DATE_TIME(to_ms), "}"),
           *sort = BCON_NEW("undone.rank", BCON_INT32(1), "undone.at", BCON_INT32(1)),
           *projection = BCON_NEW("lease", BCON_INT32(1), "undone", BCON_INT32(1));
    truce_find_options options = {.sort = sort, .projection = projection};
    truce_cursor *cursor = NULL;
    const bson_t *job = NULL;
    int64_t last_ms = from_ms, at_ms;
    truce_status status = truce_find(queue->store, QUEUE, filter, &options, &cursor, error);

    *count = 0;
    *found = NULL;
    while (!status) {
        status = truce_cursor_next(cursor, &job, error);
        if (status || !job)
            break;
        (void)truce__job_date(job, "undone.at", &at_ms);
        if (*count >= LEASES_SEEN && at_ms != last_ms)
            break;
        last_ms = at_ms;
        if (!(*count & (*count - 1)))
            *found = bson_realloc(*found, (2 * *count + 1) * sizeof **found);
        (*found)[(*count)++] = bson_copy(job);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    bson_destroy(projection);
    bson_destroy(sort);
    return status;
}

static int64_t lease_end(const bson_t *job)
{
    int64_t at_ms;

    (void)truce__job_date(job, "undone.at", &at_ms);
    return at_ms;
}

/* Releases the jobs of a part of the leases. The pass begins where the last one ended. */
static truce_status leases_release(const truce_queue *queue, int64_t from_ms, int64_t to_ms,
                                   atomic_int_fast64_t *position, bson_error_t *error)
{
    int64_t until_ns = truce__clock_monotonic_ns() + PASS_MS * NS_IN_MS,
            begin_ms = atomic_load(position), next_ms = from_ms;
    bson_t **found;
    size_t count, i;
    truce_status status;

    if (begin_ms < from_ms || begin_ms > to_ms)
        begin_ms = from_ms;
    status = leases_between(queue, begin_ms, to_ms, &found, &count, error);
    for (i = 0; !status && i < count && (!i || truce__clock_monotonic_ns() < until_ns); i++) {
        /* A failure is ignored, so that a job that cannot be released does not stop the others. */
        bson_error_t ignored;
        bool rescued;

        if (truce__queue_rescue(queue, found[i], &rescued, &ignored))
            continue;
    }
    if (!status && i < count)
        next_ms = lease_end(found[i]) - 1;
    else if (!status && count >= LEASES_SEEN)
        next_ms = lease_end(found[count - 1]);
    atomic_store(position, next_ms);
    for (i = 0; i < count; i++)
        bson_destroy(found[i]);
    bson_free(found);
    return status;
}

/* The first and the last date that every server can read: some refuse years outside of 1 to
 * 9999. */
#define YEAR_1_MS    INT64_C(-62135596800000)
#define YEAR_9999_MS INT64_C(253402300799999)

truce_status truce__queue_rescue_some(truce_queue *queue, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    truce_status status = leases_release(queue, YEAR_1_MS, now_ms, &queue->ended_at_ms, error);

    return status ? status
                  : leases_release(queue, now_ms + queue->lease_ms, YEAR_9999_MS, &queue->far_at_ms,
                                   error);
}
