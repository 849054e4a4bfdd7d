/*
 * What stands between a job and its claim: its time, and a worker that is gone. Claimers do both on their way
 * (queue_claim.c), the sweep does it for queues that nobody claims from.
 *
 *     delayed, due        {_id, undone.state: "delayed", undone.at and priority as read, _intent: absent}
 *                         -> ready; undone.rank is -priority in both states
 *     lease over (L4)     a commit that read: running, token and undone.at as watched -> as after a failure
 *
 * Which leases are looked at: those that ended by this clock, and those that end later than a new one would. The latter are of
 * workers whose clocks are ahead. All others will be among the former in time. A pass looks at up to 1,000 of them, and the next
 * one continues there: leases of workers whose clocks are behind hide no others.
 *
 * Both may be done by any process, any number of times, at any time.
 *
 * Delayed jobs are promoted in the order of their priorities, a batch at a time, and a claim promotes as many as it takes
 * before it takes them. So if thousands become due at once, a claim takes the same jobs as if all were ready.
 */
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/id.h"
#include "base/limits.h"
#include "commit/lease_watch.h"
#include "commit/metadata_cache.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"

#define BATCH              TRUCE__QUEUE_PROMOTED_MOST
#define RANK_BEFORE        (-JOB_PRIORITY_MAX - 1)
#define LEASES_SEEN        1000 /* in one pass */
#define PASS_MS            250  /* of a pass, at most: its caller wants a job */
#define DAY_MS             INT64_C(86400000)
#define NS_IN_MS           INT64_C(1000000)
#define RESCUE_DEADLINE_MS 50 /* a job that a commit holds is for the next time */

/* Appends what a query finds to the list, until it has a batch; the caller destroys each. */
static truce_status promote_gather(truce_store *store, const bson_t *filter, const bson_t *sort,
                                   bson_t **found, size_t *count, bson_error_t *error)
{
    truce_find_options options = {.limit = (int64_t)(BATCH - *count), .sort = sort};
    truce_cursor *cursor = NULL;
    const bson_t *job = NULL;
    truce_status status = truce_find(store, QUEUE, filter, &options, &cursor, error);

    while (!status && *count < BATCH) {
        status = truce_cursor_next(cursor, &job, error);
        if (status || !job)
            break;
        found[(*count)++] = bson_copy(job);
    }
    truce_cursor_close(cursor);
    return status;
}

/* ---- delayed jobs by their ranks ------------------------------------------------------------------ */

/* *rank: the next rank above it that a delayed job of the queue has, and the first time of such a job. NOT_FOUND: none. */
static truce_status next_rank(truce_store *store, const char *queue, int64_t *rank, int64_t *at_ms,
                              bson_error_t *error)
{
    bson_t *filter = BCON_NEW("undone.state", BCON_UTF8("delayed"), "undone.queue",
                              BCON_UTF8(queue), "undone.rank", "{", "$gt", BCON_INT64(*rank), "}"),
           *sort = truce__job_order(), job, undone;
    const truce_find_options options = {.sort = sort, .early = true};
    truce_status status = truce_find_one(store, QUEUE, filter, &options, &job, error);

    if (!status && truce__value_subdocument(&job, "undone", &undone) &&
        truce__field_number(&undone, "rank") > *rank)
        *rank = truce__field_number(&undone, "rank");
    else if (!status)
        status = TRUCE_NOT_FOUND; /* it has changed since */
    if (!status && !truce__job_date(&job, "undone.at", at_ms))
        *at_ms = INT64_MAX;
    bson_destroy(&job);
    bson_destroy(sort);
    bson_destroy(filter);
    return status;
}

static bson_t *delayed_filter(const char *queue, int64_t rank, const char *compared, int64_t at_ms)
{
    return BCON_NEW("undone.state", BCON_UTF8("delayed"), "undone.queue", BCON_UTF8(queue),
                    "undone.rank", BCON_INT64(rank), "undone.at", "{", compared,
                    BCON_DATE_TIME(at_ms), "}");
}

/* The jobs of a queue that are due, in the order in which they would be claimed. */
static truce_status gather_due(truce_store *store, const char *queue, bson_t **found, size_t *count,
                               bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms(), rank = RANK_BEFORE, at_ms;
    bson_t *sort = truce__job_order();
    truce_status status = TRUCE_OK;

    while (!status && *count < BATCH) {
        status = next_rank(store, queue, &rank, &at_ms, error);
        if (!status && at_ms <= now_ms) {
            bson_t *filter = delayed_filter(queue, rank, "$lte", now_ms);

            status = promote_gather(store, filter, sort, found, count, error);
            bson_destroy(filter);
        }
    }
    bson_destroy(sort);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Those of all queues, in any order. */
static truce_status gather_all_due(truce_store *store, bson_t **found, size_t *count,
                                   bson_error_t *error)
{
    bson_t *filter = BCON_NEW("undone.state", BCON_UTF8("delayed"), "undone.at", "{", "$lte",
                              BCON_DATE_TIME(truce__clock_wall_ms()), "}");
    truce_status status = promote_gather(store, filter, NULL, found, count, error);

    bson_destroy(filter);
    return status;
}

static void promote_release(bson_t **found, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bson_destroy(found[i]);
}

/* ---- time --------------------------------------------------------------------------------------- */

static void promotion(const bson_t *job, bson_t *filter, bson_t *update)
{
    bson_value_t id = truce__document_id(job);
    int32_t priority = (int32_t)truce__field_number(job, "priority");
    int64_t at_ms;
    bson_oid_t rev;

    (void)truce__job_date(job, "undone.at", &at_ms);
    truce__id_new(&rev);
    BSON_APPEND_VALUE(filter, "_id", &id);
    BCON_APPEND(filter, "undone.state", BCON_UTF8("delayed"), "undone.at", BCON_DATE_TIME(at_ms),
                "priority", BCON_INT32(priority), "_intent", "{", "$exists", BCON_BOOL(false), "}");
    BCON_APPEND(update, "$set", "{", "state", BCON_UTF8("ready"), "undone.state",
                BCON_UTF8("ready"), "undone.rank", BCON_INT32(-priority), "_rev", BCON_OID(&rev),
                "}");
}

static truce_status promote_all(truce_store *store, bson_t **found, size_t count,
                                bson_error_t *error)
{
    truce_bulk_options options = {.unordered = true};
    truce_write writes[BATCH] = {0};
    truce_write_outcome outcomes[BATCH];
    bson_t filters[BATCH], updates[BATCH];
    truce_status status;

    for (size_t i = 0; i < count; i++) {
        bson_init(&filters[i]);
        bson_init(&updates[i]);
        promotion(found[i], &filters[i], &updates[i]);
        writes[i] = (truce_write){TRUCE_WRITE_UPDATE, QUEUE, &filters[i], &updates[i]};
    }
    status = truce_bulk(store, writes, count, &options, outcomes, error);
    for (size_t i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&filters[i]);
        bson_destroy(&updates[i]);
    }
    return status;
}

truce_status truce__queue_promote(truce_store *store, const char *queue, bool *more,
                                  bson_error_t *error)
{
    bson_t *found[BATCH];
    size_t count = 0;
    truce_status status = queue ? gather_due(store, queue, found, &count, error)
                                : gather_all_due(store, found, &count, error);

    if (!status && count)
        status = promote_all(store, found, count, error);
    *more = count == BATCH;
    promote_release(found, count);
    return status;
}

/* When the first job of that rank will be due; INT64_MAX: none. */
static truce_status next_due_of(truce_store *store, const char *queue, int64_t rank,
                                int64_t *due_ms, bson_error_t *error)
{
    bson_t *filter = delayed_filter(queue, rank, "$gt", truce__clock_wall_ms()),
           *sort = truce__job_order(), job;
    const truce_find_options options = {.sort = sort, .early = true};
    truce_status status = truce_find_one(store, QUEUE, filter, &options, &job, error);

    if (status || !truce__job_date(&job, "undone.at", due_ms))
        *due_ms = INT64_MAX;
    bson_destroy(&job);
    bson_destroy(sort);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__queue_next_due(truce_store *store, const char *queue, int64_t *due_ms,
                                   bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms(), rank = RANK_BEFORE, at_ms;
    truce_status status = TRUCE_OK;

    *due_ms = INT64_MAX;
    while (!status) {
        status = next_rank(store, queue, &rank, &at_ms, error);
        if (!status && at_ms <= now_ms)
            status = next_due_of(store, queue, rank, &at_ms, error);
        if (!status && at_ms < *due_ms)
            *due_ms = at_ms;
    }
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- workers that are gone ------------------------------------------------------------------------ */

struct rescue {
    const truce_queue *queue;
    bson_oid_t token;
    bson_value_t id;
    int64_t at_ms;
    bool rescued;
};

static char *promote_reason(const bson_t *job, int64_t now_ms)
{
    int64_t timeout_ms = truce__field_count(job, "timeout_ms"), since_ms;

    if (timeout_ms && truce__job_date(job, "lease.since", &since_ms) &&
        now_ms >= since_ms + timeout_ms)
        return bson_strdup_printf("timed out after %lld ms", (long long)timeout_ms);
    return bson_strdup("its worker gave no sign of life until its lease ended");
}

static truce_status rescue_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct rescue *rescue = arg;
    int64_t now_ms = truce__clock_wall_ms(), at_ms;
    bson_t job, update = BSON_INITIALIZER;
    bson_oid_t token;
    truce_status status = truce_commit_read(commit, QUEUE, &rescue->id, &job, error);

    rescue->rescued = !status && !strcmp(truce__job_state(&job), "running") &&
                      truce__job_token(&job, &token) && bson_oid_equal(&token, &rescue->token) &&
                      truce__job_date(&job, "undone.at", &at_ms) && at_ms == rescue->at_ms;
    if (rescue->rescued) {
        char *why = promote_reason(&job, now_ms);

        truce__job_fails(&update, rescue->queue, &job, why, -1, now_ms);
        status = truce__job_move(commit, &job, &update, error);
        bson_free(why);
    }
    bson_destroy(&job);
    bson_destroy(&update);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* The state that each sign of life of the worker changes. */
static uint64_t lease_state(const struct rescue *rescue)
{
    return truce__watch_hash((uint64_t)rescue->at_ms, &rescue->token, sizeof rescue->token);
}

/* L4 */
static bool lease_is_over(const truce_queue *queue, const bson_t *job, const struct rescue *rescue)
{
    const bson_oid_t *id = &rescue->id.value.v_oid;
    bson_iter_t iter, found;
    int64_t lease_ms = queue->lease_ms, since_ns;

    if (bson_iter_init(&iter, job) && bson_iter_find_descendant(&iter, "lease.ms", &found))
        lease_ms = bson_iter_as_int64(&found);
    if (lease_ms < 0 || lease_ms > DAY_MS)
        lease_ms = DAY_MS;
    since_ns = truce__memo_watch(queue->store, "job", id, sizeof *id, lease_state(rescue));
    return truce__clock_monotonic_ns() - since_ns >= lease_ms * NS_IN_MS;
}

truce_status truce__queue_rescue(const truce_queue *queue, const bson_t *job, bool *rescued,
                                 bson_error_t *error)
{
    struct rescue rescue = {.queue = queue, .id = truce__document_id(job)};
    truce_commit_options options = {.mechanism = queue->mechanism,
                                    .lease_ms = truce__queue_commit_lease(queue),
                                    .deadline_ms = RESCUE_DEADLINE_MS};
    truce_status status;

    *rescued = false;
    if (rescue.id.value_type != BSON_TYPE_OID || !truce__job_token(job, &rescue.token) ||
        !truce__job_date(job, "undone.at", &rescue.at_ms) || !lease_is_over(queue, job, &rescue))
        return TRUCE_OK;
    status = truce_transact(queue->store, rescue_in, &rescue, &options, error);
    *rescued = !status && rescue.rescued;
    return status;
}

/* ---- leases that are looked at ---------------------------------------------------------------- */

void truce__queue_append_suspects(int64_t lease_ms, bson_t *filter)
{
    int64_t now_ms = truce__clock_wall_ms();

    BCON_APPEND(filter, "undone.state", BCON_UTF8("running"), "$or", "[", "{", "undone.at", "{",
                "$lte", BCON_DATE_TIME(now_ms), "}", "}", "{", "undone.at", "{", "$gt",
                BCON_DATE_TIME(now_ms + lease_ms), "}", "}", "]");
}

/* The leases of a queue that end after `from_ms` and until `to_ms`, the first of them: {_id, lease, undone}. Those that end in
 * the same millisecond come together. The caller destroys each, and frees the list. */
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

/* A pass over a part of the leases, which begins where the last one ended. */
static truce_status rescue_between(const truce_queue *queue, int64_t from_ms, int64_t to_ms,
                                   atomic_int_fast64_t *place, bson_error_t *error)
{
    int64_t until_ns = truce__clock_monotonic_ns() + PASS_MS * NS_IN_MS,
            begin_ms = atomic_load(place), next_ms = from_ms;
    bson_t **found;
    size_t count, i;
    truce_status status;

    if (begin_ms < from_ms || begin_ms > to_ms)
        begin_ms = from_ms;
    status = leases_between(queue, begin_ms, to_ms, &found, &count, error);
    for (i = 0; !status && i < count && (!i || truce__clock_monotonic_ns() < until_ns); i++) {
        bson_error_t ignored; /* a job that cannot be released does not stop the others */
        bool rescued;

        if (truce__queue_rescue(queue, found[i], &rescued, &ignored))
            continue;
    }
    if (!status && i < count)
        next_ms = lease_end(found[i]) - 1;
    else if (!status && count >= LEASES_SEEN)
        next_ms = lease_end(found[count - 1]);
    atomic_store(place, next_ms);
    for (i = 0; i < count; i++)
        bson_destroy(found[i]);
    bson_free(found);
    return status;
}

truce_status truce__queue_rescue_some(truce_queue *queue, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    truce_status status = rescue_between(queue, INT64_MIN, now_ms, &queue->ended_at_ms, error);

    return status ? status
                  : rescue_between(queue, now_ms + queue->lease_ms, INT64_MAX, &queue->far_at_ms,
                                   error);
}
