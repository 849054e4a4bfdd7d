/*
 * Claiming: one job by one find-and-modify along the claims' index,
 *
 *     {undone.state: "ready", undone.queue, _intent: absent}, by undone.rank, undone.at
 *     -> running, undone: {state, rank: 0, at: the lease's end}, lease, epoch + 1, attempt + 1, _rev: fresh
 *
 * several, and for threads that come at once, as queue_many.c and queue_claim_batch.c say.
 *
 * A claim without an answer is looked for by its token, among the running jobs, which are few. If it is not
 * there it may land later: then its lease ends like that of a worker that died (models/queue.cpp, late claims).
 * It is never sent again under the same token.
 *
 * A job that waits for its time or for its worker's return is no concern of the index's order: delayed and running
 * ones stand apart, by undone.state. So a claim takes the first entry of a range, however many jobs there are.
 */
#include <string.h>

#include "base/assert.h"
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

#define NS_IN_MS    INT64_C(1000000)
#define PROMOTE_MS  50   /* how often at most delayed jobs are looked for, while there are others */
#define RESCUE_MS   1000 /* workers that are gone; more often if leases are short */
#define FIRE_MS     500  /* cron lines */
#define SETTINGS_MS 500  /* whether the queue is paused */
#define WAIT_MS     1000 /* ended leases wake nobody, ... */
#define WAIT_MS_MIN 20
#define GATED_MS    250 /* ... nor does the time of a rate */
#define BULK_TRIES  4
#define CLAIM_MS    5000 /* in which a claim passes over jobs that their lanes put off */

/* ---- on the way --------------------------------------------------------------------------------- */

/* At most one thread in so many ms. */
static bool is_time(atomic_int_fast64_t *last_ns, int64_t every_ms)
{
    int64_t now_ns = truce__clock_monotonic_ns(), last = atomic_load(last_ns);

    return (!last || now_ns - last >= every_ms * NS_IN_MS) &&
           atomic_compare_exchange_strong(last_ns, &last, now_ns);
}

static truce_status ask_settings(truce_queue *queue, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(queue->name)), found;
    truce_status status = truce_find_one(queue->store, QUEUE_SETTINGS, filter, NULL, &found, error);
    bson_iter_t iter;

    if (!status || status == TRUCE_NOT_FOUND) {
        atomic_store(&queue->paused, !status && bson_iter_init_find(&iter, &found, "paused") &&
                                         bson_iter_as_bool(&iter));
        atomic_store(&queue->gated, !status && bson_has_field(&found, "gate"));
        status = TRUCE_OK;
    }
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* A store of this process: a look costs less than a write that finds nothing, or an end of sleep. */
static bool looks_cost_little(const truce_queue *queue)
{
    return (queue->store->capabilities & TRUCE_CAN_REWRITE) != 0;
}

/* When there will be something to do although nobody wakes us. */
static truce_status ask_due(truce_queue *queue, bson_error_t *error)
{
    int64_t job_ms, cron_ms;
    truce_status status = truce__queue_next_due(queue->store, queue->name, &job_ms, error);

    if (!status)
        status = truce__cron_next_due(queue, &cron_ms, error);
    if (!status)
        atomic_store(&queue->due_ms, job_ms < cron_ms ? job_ms : cron_ms);
    return status;
}

/* As many as a claim of so many may take. */
static truce_status promote(truce_queue *queue, size_t most, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool more = true;

    for (size_t promoted = 0; !status && more && promoted < most;
         promoted += TRUCE__QUEUE_PROMOTED_MOST)
        status = truce__queue_promote(queue->store, queue->name, &more, error);
    atomic_store(&queue->due_more, more);
    return status;
}

static truce_status on_the_way(truce_queue *queue, size_t most, bool nothing_else,
                               bson_error_t *error)
{
    int64_t rescue_ms = queue->lease_ms / 4 < RESCUE_MS ? queue->lease_ms / 4 : RESCUE_MS;
    truce_status status = TRUCE_OK;

    if (is_time(&queue->asked_ns, SETTINGS_MS))
        status = ask_settings(queue, error);
    if (!status &&
        (is_time(&queue->promoted_ns, PROMOTE_MS) || nothing_else || atomic_load(&queue->due_more)))
        status = promote(queue, most, error);
    if (!status &&
        is_time(&queue->fired_ns, nothing_else && looks_cost_little(queue) ? WAIT_MS_MIN : FIRE_MS))
        status = truce__cron_fire(queue, error);
    if (!status && is_time(&queue->rescued_ns, rescue_ms))
        status = truce__queue_rescue_some(queue, error);
    if (!status && nothing_else && looks_cost_little(queue))
        status = ask_due(queue, error);
    if (!status && nothing_else && is_time(&queue->went_on_ns, RESCUE_MS))
        status = truce__after_go_on_some(queue, error);
    return status;
}

/* ---- what a claim looks for, and what it does ------------------------------------------------------ */

void truce__job_ready(const truce_queue *queue, bson_t *filter)
{
    BCON_APPEND(filter, "undone.state", BCON_UTF8("ready"), "undone.queue", BCON_UTF8(queue->name),
                "_intent", "{", "$exists", BCON_BOOL(false), "}");
}

static void running_filter(const truce_queue *queue, const bson_oid_t *token, bson_t *filter)
{
    BCON_APPEND(filter, "undone.state", BCON_UTF8("running"), "undone.queue",
                BCON_UTF8(queue->name), "lease.token", BCON_OID(token));
}

bson_t *truce__job_order(void)
{
    return BCON_NEW("undone.rank", BCON_INT32(1), "undone.at", BCON_INT32(1));
}

void truce__job_append_lease(const truce_queue *queue, const bson_oid_t *token,
                             const bson_value_t *gate, int64_t now_ms, bson_t *set)
{
    bson_t lease;

    BSON_APPEND_DOCUMENT_BEGIN(set, "lease", &lease);
    BCON_APPEND(&lease, "worker", BCON_UTF8(queue->worker), "token", BCON_OID(token), "since",
                BCON_DATE_TIME(now_ms), "ms", BCON_INT64(queue->lease_ms));
    if (gate)
        BSON_APPEND_VALUE(&lease, "gate", gate);
    bson_append_document_end(set, &lease);
}

/* The end of a lease of at most the job's timeout is the extension's affair; the first one is short enough. */
void truce__job_claims(const truce_queue *queue, const bson_oid_t *token, const bson_value_t *gate,
                       bson_t *update)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t set;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    BCON_APPEND(&set, "state", BCON_UTF8("running"), "undone.state", BCON_UTF8("running"),
                "undone.rank", BCON_INT32(0), "undone.at",
                BCON_DATE_TIME(now_ms + queue->lease_ms));
    truce__job_append_lease(queue, token, gate, now_ms, &set);
    if (!gate) /* a single write makes it, no commit */
        BSON_APPEND_OID(&set, "_rev", token);
    bson_append_document_end(update, &set);
    BCON_APPEND(update, "$inc", "{", "epoch", BCON_INT64(1), "attempt", BCON_INT32(1), "}");
}

truce_job *truce__job_new(truce_queue *queue, const bson_t *document, const bson_oid_t *token)
{
    truce_job *job = bson_malloc0(sizeof *job);
    bson_value_t id = truce__document_id(document);
    bson_t steps;

    truce_assert(id.value_type == BSON_TYPE_OID);
    job->queue = queue;
    truce__names_restore(document, &job->document);
    if (!truce__value_subdocument(&job->document, "payload", &job->payload))
        bson_init(&job->payload);
    bson_oid_copy(&id.value.v_oid, &job->id);
    bson_oid_copy(token, &job->token);
    job->epoch = truce__field_number(document, "epoch");
    job->attempt = (uint32_t)truce__field_number(document, "attempt");
    job->timeout_ms = truce__field_count(document, "timeout_ms");
    (void)truce__job_date(document, "lease.since", &job->since_ms);
    bson_init(&job->steps);
    if (truce__value_subdocument(&job->document, "steps", &steps))
        bson_concat(&job->steps, &steps);
    atomic_store(&job->looked_ns, truce__clock_monotonic_ns());
    return job;
}

/* ---- one ---------------------------------------------------------------------------------------- */

truce_status truce__job_check_found(const bson_t *document, bson_error_t *error)
{
    if (truce__document_id(document).value_type == BSON_TYPE_OID)
        return TRUCE_OK;
    return truce__fail(TRUCE_CORRUPT, error,
                       "a job of " QUEUE " has an _id that truce did not make");
}

static truce_status claim_unanswered(truce_queue *queue, const bson_oid_t *token, bson_t *document)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    running_filter(queue, token, &filter);
    bson_destroy(document);
    status = truce_find_one(queue->store, QUEUE, &filter, NULL, document, NULL);
    bson_destroy(&filter);
    return status;
}

truce_status truce__queue_claim_one(truce_queue *queue, truce_job **job, bson_error_t *error)
{
    bool keeps_order = (queue->store->capabilities & TRUCE_CAN_KEEP_ORDER) != 0;
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, *sort = truce__job_order(),
           document;
    truce_modify_options options = {.sort = sort,
                                    .return_new = true,
                                    .relaxed = keeps_order,
                                    .deadline_ms = queue->deadline_ms};
    bson_oid_t token;
    truce_status status;

    truce__id_new(&token);
    truce__job_ready(queue, &filter);
    truce__job_claims(queue, &token, NULL, &update);
    status = truce_find_and_modify(queue->store, QUEUE, &filter, &update, &options, &document, NULL,
                                   error);
    if (truce__unanswered(status) && !claim_unanswered(queue, &token, &document))
        status = TRUCE_OK;
    if (!status)
        status = truce__job_check_found(&document, error);
    if (!status)
        *job = truce__job_new(queue, &document, &token);
    bson_destroy(&document);
    bson_destroy(&filter);
    bson_destroy(&update);
    bson_destroy(sort);
    return status;
}

/* ---- the calls ----------------------------------------------------------------------------------- */

/* Of those that were claimed the rate of a lane puts some off: the others stay. */
static truce_status begin_all(truce_job **jobs, size_t *count, bson_error_t *error)
{
    truce_status first = TRUCE_OK;
    size_t begun = 0;

    for (size_t i = 0; i < *count; i++) {
        truce_status status = truce__lane_begin_claimed(jobs[i], error);

        if (!status)
            jobs[begun++] = jobs[i];
        else
            truce_job_free(jobs[i]);
        if (status && status != TRUCE_NOT_FOUND)
            first = first ? first : status; /* its lease ends */
    }
    *count = begun;
    return begun ? TRUCE_OK : first;
}

static truce_status claim_ungated(truce_queue *queue, size_t most, truce_job **jobs, size_t *count,
                                  bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int i = 0; most > 1 && i < BULK_TRIES && !status && !*count; i++)
        status = truce__queue_claim_several(queue, most, jobs, count, error);
    if (status || *count)
        return status;
    status = most == 1 && truce__crowd_may_form(queue) ? truce__crowd_claim(queue, jobs, error)
                                                       : truce__queue_claim_one(queue, jobs, error);
    *count = status ? 0 : 1;
    return status;
}

static truce_status try_claim(truce_queue *queue, size_t most, truce_job **jobs, size_t *count,
                              bson_error_t *error)
{
    int64_t until_ns = truce__clock_monotonic_ns() + CLAIM_MS * NS_IN_MS;
    truce_status status = TRUCE_OK;
    bool gated = atomic_load(&queue->gated);

    if (gated)
        status = truce__queue_claim_gated(queue, most, jobs, count, &gated, error);
    if (status || gated)
        return status;
    do {
        status = claim_ungated(queue, most, jobs, count, error);
        if (!status)
            status = begin_all(jobs, count, error);
    } while (!status && !*count && truce__clock_monotonic_ns() < until_ns);
    return status || *count ? status : TRUCE_NOT_FOUND;
}

/* Who waits idly takes no lock of the writers. */
static truce_status claim_if_any(truce_queue *queue, size_t most, truce_job **jobs, size_t *count,
                                 bson_error_t *error)
{
    const truce_find_options options = {.early = true};
    bson_t filter = BSON_INITIALIZER, found;
    truce_status status = TRUCE_OK;

    if (looks_cost_little(queue)) {
        truce__job_ready(queue, &filter);
        status = truce_find_one(queue->store, QUEUE, &filter, &options, &found, error);
        bson_destroy(&found);
    }
    bson_destroy(&filter);
    return status ? status : try_claim(queue, most, jobs, count, error);
}

static truce_status claim_nothing(const truce_queue *queue, bson_error_t *error)
{
    const char *why = atomic_load(&queue->paused) ? "queue %s is paused"
                      : atomic_load(&queue->gated)
                          ? "queue %s has no job that is ready, or is at its limit"
                          : "queue %s has no job that is ready";

    return truce__fail(TRUCE_NOT_FOUND, error, why, queue->name);
}

truce_status truce_queue_claim_many(truce_queue *queue, size_t most, truce_job **jobs,
                                    size_t *count, bson_error_t *error)
{
    DEADLINE_SCOPE(queue->deadline_ms);
    PATIENCE_SCOPE();
    truce_status status = truce__queue_ready(queue, error);

    *count = 0;
    if (!status && (most < 1 || most > JOB_CLAIMS_MAX))
        status = truce__fail(TRUCE_INVALID, error, "%zu jobs at once, and may be 1 to %d", most,
                             JOB_CLAIMS_MAX);
    if (!status)
        status = on_the_way(queue, most, false, error);
    if (!status && !atomic_load(&queue->paused))
        status = atomic_load(&queue->quiet) ? claim_if_any(queue, most, jobs, count, error)
                                            : try_claim(queue, most, jobs, count, error);
    if (status == TRUCE_NOT_FOUND) {
        status = on_the_way(queue, most, true, error);
        if (!status && !atomic_load(&queue->paused))
            status = claim_if_any(queue, most, jobs, count, error);
    }
    if (!status && !*count)
        status = TRUCE_NOT_FOUND;
    atomic_store(&queue->quiet, status == TRUCE_NOT_FOUND);
    return status == TRUCE_NOT_FOUND ? claim_nothing(queue, error) : status;
}

truce_status truce_queue_claim(truce_queue *queue, truce_job **job, bson_error_t *error)
{
    DEADLINE_SCOPE(queue->deadline_ms);
    PATIENCE_SCOPE();
    size_t count;

    *job = NULL;
    return truce_queue_claim_many(queue, 1, job, &count, error);
}

int64_t truce__queue_pause_ms(const truce_queue *queue)
{
    int64_t due_ms = atomic_load(&queue->due_ms), left_ms;

    if (atomic_load(&queue->gated))
        return GATED_MS;
    left_ms = due_ms - truce__clock_wall_ms();
    if (!due_ms || left_ms > WAIT_MS)
        return WAIT_MS;
    return left_ms < WAIT_MS_MIN ? WAIT_MS_MIN : left_ms;
}

truce_status truce_queue_claim_wait(truce_queue *queue, uint32_t timeout_ms, truce_job **job,
                                    bson_error_t *error)
{
    int64_t deadline_ns = truce__clock_monotonic_ns() + timeout_ms * NS_IN_MS;
    bool waits = (queue->store->capabilities & TRUCE_CAN_WAIT) != 0;
    uint64_t token = 0;
    truce_status status = TRUCE_OK;
    int64_t pause_ms = 5;

    *job = NULL;
    if (waits) /* fills the token: what is added from here on wakes */
        status = truce_wait(queue->store, QUEUE, &token, 0, error);
    while (!status) {
        int64_t left_ms;

        status = truce_queue_claim(queue, job, error);
        left_ms = (deadline_ns - truce__clock_monotonic_ns()) / NS_IN_MS;
        if (status != TRUCE_NOT_FOUND || left_ms <= 0)
            return status;
        if (waits) {
            int64_t most_ms = truce__queue_pause_ms(queue);

            status = truce_wait(queue->store, QUEUE, &token,
                                (uint32_t)(left_ms < most_ms ? left_ms : most_ms), error);
        } else {
            truce__clock_sleep_ms(left_ms < pause_ms ? left_ms : pause_ms);
            pause_ms = pause_ms < WAIT_MS / 2 ? pause_ms * 2 : WAIT_MS;
            status = TRUCE_OK;
        }
        if (status == TRUCE_TIMEOUT &&
            !__atomic_load_n(&queue->store->interrupted, __ATOMIC_RELAXED))
            status = TRUCE_OK;
    }
    return status;
}

void truce_job_free(truce_job *job)
{
    if (!job)
        return;
    bson_destroy(&job->document);
    bson_destroy(&job->steps);
    if (job->result)
        bson_destroy(job->result);
    bson_free(job);
}
