/*
 * Claiming: one find-and-modify along the index of claims takes one job.
 *
 *     {undone.state: "ready", undone.queue, _intent: absent}, by undone.rank, undone.at
 *     -> running, undone: {state, rank: 0, at: the lease's end}, lease, epoch + 1, attempt + 1,
 *        _rev: fresh
 *
 * The sections below claim through a limiter, claim several jobs at once, combine the claims of
 * threads, and promote delayed jobs and jobs of dead workers.
 *
 * If a claim gets no reply, the claimer looks for its token among the few running jobs.
 * If the token is not there, the claim may take effect later. The lease of such a job ends like the
 * lease of a dead worker (models/queue.cpp, late claims). A claim is never sent again under the
 * same token.
 *
 * Delayed and running jobs have other values of undone.state, so they do not lie among the ready
 * jobs in the index. A claim therefore takes the first entry of a range, however many jobs the
 * queue has.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/wait_limit.h"
#include "bson/field_name_escape.h"
#include "bson/value.h"
#include "commit/metadata_cache.h"
#include "patterns/queue/queue.h"
#include "patterns/queue/queue_times.h"
#include "store/maintenance.h"
#include "store/store.h"

/* ---- claims through a limiter ---------------------------------------------------------------- */

/*
 * Claiming through a limiter (rate_limit.c). A read finds the first ready jobs. Then, for one of
 * them:
 *
 *     a commit that read: the limiter, which has room; the job, which is ready
 *     -> the limiter counts the job; the job is running, and its lease names the limiter
 *
 * If the limiter has no room, the claim begins nothing: a full queue costs its workers two reads.
 */

/* The maximum number of ready jobs that one read of a claim through a limiter returns. */
#define GATED_BATCH 16
/* The maximum time for which a claim tries again because other claimers were faster. */
#define GATED_CLAIM_NS INT64_C(5000000000)

struct limited_claim {
    truce_queue *queue;
    const bson_value_t *limiter;
    bson_value_t id;
    bson_oid_t token;
    /* The document of the job after the claim. Owned. */
    bson_t job;
    /* The job was no longer ready. */
    bool missed;
    /* The rate of the job's lane delayed the job. */
    bool delayed;
};

static void job_ready(const truce_queue *queue, bson_t *filter);
static bson_t *job_order(void);
/* Makes a job that this process has just claimed. */
static truce_job *claimed_new(truce_queue *queue, const bson_t *document, const bson_oid_t *token)
{
    truce_job *job = truce__job_new(queue, document, token);

    truce__queue_waited(job);
    return job;
}

static void job_append_lease(const truce_queue *queue, const bson_oid_t *token,
                             const bson_value_t *limiter, int64_t now_ms, bson_t *set);
static void job_claims(const truce_queue *queue, const bson_oid_t *token,
                       const bson_value_t *limiter, bson_t *update);
static truce_status job_check_found(const bson_t *document, bson_error_t *error);
static truce_status queue_claim_one(truce_queue *queue, truce_job **job, bson_error_t *error);

static bool claim_is_ready(const truce_queue *queue, const bson_t *job)
{
    return !strcmp(truce__job_state(job), "ready") &&
           !strcmp(truce__field_text(job, "queue"), queue->name);
}

/* Delays the job in the commit of the claim, because the rate of its lane does not permit it
 * yet. */
static truce_status gated_delay(truce_commit *commit, const struct limited_claim *claim,
                                const bson_t *job, int64_t wait_ms, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t update = BSON_INITIALIZER, set;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    truce__job_append_queued(&set, claim->queue->name,
                             (int32_t)truce__field_number(job, "priority"),
                             truce__date_after(now_ms, wait_ms), now_ms);
    bson_append_document_end(&update, &set);
    status = truce_commit_update(commit, QUEUE, &claim->id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

/* Claims one job in a commit: checks that it is ready, asks the rate of its lane and the limiter,
 * and writes the claim. Sets claim->missed or claim->delayed if it cannot begin. */
static truce_status gated_enter_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct limited_claim *claim = arg;
    int64_t wait_ms;
    bson_t job, update = BSON_INITIALIZER;
    truce_status status = truce_commit_read(commit, QUEUE, &claim->id, &job, error);

    claim->missed = status == TRUCE_NOT_FOUND || (!status && !claim_is_ready(claim->queue, &job));
    if (claim->missed)
        status = truce__fail(TRUCE_NOT_FOUND, error, "the job is no longer ready");
    if (!status)
        status = truce__lane_begin(commit, &job, &wait_ms, error);
    claim->delayed = !status && wait_ms;
    if (claim->delayed) {
        status = gated_delay(commit, claim, &job, wait_ms, error);
        goto out;
    }
    if (!status)
        status = truce__limiter_enter(commit, claim->limiter, error);
    if (!status) {
        job_claims(claim->queue, &claim->token, claim->limiter, &update);
        status = truce_commit_update(commit, QUEUE, &claim->id, NULL, &update, error);
    }
    if (!status) {
        bson_destroy(&claim->job);
        status = truce_commit_read(commit, QUEUE, &claim->id, &claim->job, error);
    }
out:
    bson_destroy(&update);
    bson_destroy(&job);
    return status;
}

/* Claims a job and counts it in its limiter, in one commit. Returns NOT_FOUND if the limiter has no
 * room, or with *missed true if the job was no longer ready, or the rate of its lane delayed it. */
static truce_status limited_enter(truce_queue *queue, const bson_value_t *limiter,
                                  const bson_value_t *id, truce_job **job, bool *missed,
                                  bson_error_t *error)
{
    struct limited_claim claim = {
        .queue = queue, .limiter = limiter, .id = *id, .job = BSON_INITIALIZER};
    truce_status status;

    truce__id_new(&claim.token);
    status = truce__queue_run(queue, NULL, gated_enter_in, &claim, error);
    *missed = claim.missed || claim.delayed;
    if (!status && claim.delayed)
        status = TRUCE_NOT_FOUND;
    if (!status)
        *job = claimed_new(queue, &claim.job, &claim.token);
    bson_destroy(&claim.job);
    return status;
}

/* Reads the _ids of the first ready jobs, as documents that the caller destroys. */
static truce_status gated_read(truce_queue *queue, bson_t **found, size_t *count,
                               bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, *sort = job_order(),
           *projection = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {
        .sort = sort, .projection = projection, .limit = GATED_BATCH, .early = true};
    truce_cursor *cursor = NULL;
    const bson_t *one = NULL;
    truce_status status;

    *count = 0;
    job_ready(queue, &filter);
    status = truce_find(queue->store, QUEUE, &filter, &options, &cursor, error);
    while (!status && *count < GATED_BATCH) {
        status = truce_cursor_next(cursor, &one, error);
        if (status || !one)
            break;
        found[(*count)++] = bson_copy(one);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(projection);
    bson_destroy(sort);
    return status;
}

/* Reads up to GATED_BATCH ready jobs and claims them until *count is `most` or the limiter is full.
 * Sets *again if none of the jobs that were read could begin, because other claimers were faster or
 * lanes delayed them, and more jobs may exist. */
static truce_status limited_claim_some(truce_queue *queue, const bson_value_t *limiter, size_t most,
                                       truce_job **jobs, size_t *count, bool *again,
                                       bson_error_t *error)
{
    bson_t *found[GATED_BATCH];
    size_t found_count;
    truce_status status = gated_read(queue, found, &found_count, error);
    bool full = false;

    *again = found_count == GATED_BATCH;

    for (size_t i = 0; i < found_count; i++) {
        bson_value_t id = truce__document_id(found[i]);
        bool missed = false;

        if (!status && !full && *count < most) {
            status = limited_enter(queue, limiter, &id, &jobs[*count], &missed, error);
            *count += !status;
            full = status == TRUCE_NOT_FOUND && !missed;
            *again = *again && missed;
            if (status == TRUCE_NOT_FOUND)
                status = TRUCE_OK;
        }
        bson_destroy(found[i]);
    }
    return status;
}

/* Claims as try_claim does, through the queue's limiter. *limited is false if the queue has no
 * limit. */
static truce_status queue_claim_limited(truce_queue *queue, size_t most, truce_job **jobs,
                                        size_t *count, bool *limited, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(queue->name)), settings, limiter = BSON_INITIALIZER;
    truce_status status =
        truce_find_one(queue->store, QUEUE_SETTINGS, filter, NULL, &settings, error);
    int64_t until_ns = truce__clock_monotonic_ns() + GATED_CLAIM_NS;
    bson_iter_t iter;
    bool again;

    *limited = !status && bson_iter_init_find(&iter, &settings, "limiter");
    if (*limited) {
        bson_reinit(filter);
        BSON_APPEND_VALUE(filter, "_id", bson_iter_value(&iter));
        bson_destroy(&limiter);
        status = truce_find_one(queue->store, QUEUE_LIMITERS, filter, NULL, &limiter, error);
        *limited = status != TRUCE_NOT_FOUND;
    }
    again = !status && *limited && truce__limiter_has_capacity(queue->store, &limiter);
    while (!status && again && truce__clock_monotonic_ns() < until_ns)
        status =
            limited_claim_some(queue, bson_iter_value(&iter), most, jobs, count, &again, error);
    bson_destroy(&limiter);
    bson_destroy(&settings);
    bson_destroy(filter);
    if (status == TRUCE_NOT_FOUND) /* The limiter does not exist, so the queue has no limit. */
        status = TRUCE_OK;
    return status || *count || !*limited ? status : TRUCE_NOT_FOUND;
}

/* ---- several at once ------------------------------------------------------------------------- */

/*
 * Claiming several jobs at once: a read finds the first ready jobs. Then, if the store can do it,
 * the claim runs inside the store's write: each job that is still ready becomes running
 * (truce/sys/store.h, rewrite). Otherwise, one bulk of guarded updates is sent, and the token then
 * finds the updates that succeeded.
 *
 * Both ways write what a single claim writes. Jobs that another process has claimed, or that a
 * commit holds, are skipped. If there is no reply, the token finds the claimed jobs, as after the
 * bulk.
 */

/* A claim of several jobs. */
struct several {
    truce_queue *queue;
    /* The jobs that were read, as an array of {_id}. `read` is their number. */
    bson_t *ids;
    size_t read;
    bson_oid_t token;
    /* The claimed jobs, and their number. The array is the caller's. */
    truce_job **jobs;
    size_t count;
};

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads the _ids of up to `most` ready jobs, in the order of claims. */
static truce_status many_read(struct several *several, size_t most, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, *sort = job_order(),
           *projection = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {
        .sort = sort, .projection = projection, .limit = (int64_t)most, .early = true};
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    truce_status status;

    job_ready(several->queue, &filter);
    status = truce_find(several->queue->store, QUEUE, &filter, &options, &cursor, error);
    while (!status && several->read < most) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        status = job_check_found(found, error);
        if (!status)
            bson_copy_to(found, &several->ids[several->read++]);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(projection);
    bson_destroy(sort);
    return status;
}

/* ---- inside the store's write ---------------------------------------------------------------- */

struct claiming {
    truce_rewrite base;
    const struct several *several;
    int64_t now_ms;
    /* made[i]: the document of job i after the claim. */
    bson_t *made;
    /* took[i]: job i was claimed, and made[i] is valid. */
    bool *took;
};

static void many_drop(struct claiming *claiming, size_t number)
{
    if (claiming->took[number])
        bson_destroy(&claiming->made[number]);
    claiming->took[number] = false;
}

static void many_begin(truce_rewrite *rewrite)
{
    for (size_t i = 0; i < rewrite->count; i++)
        many_drop((struct claiming *)rewrite, i);
}

static bool is_whole_number(const bson_t *job, const char *field)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, job, field) &&
           (BSON_ITER_HOLDS_INT32(&iter) || BSON_ITER_HOLDS_INT64(&iter));
}

/* Returns true if the job can be claimed here. A job that truce did not make is left to a single
 * claim. */
static bool can_be_claimed(const truce_queue *queue, const bson_t *job)
{
    bson_t undone;

    return truce__intent_absent(job) && !strcmp(truce__job_state(job), "ready") &&
           truce__value_subdocument(job, "undone", &undone) &&
           !strcmp(truce__field_text(&undone, "state"), "ready") &&
           !strcmp(truce__field_text(&undone, "queue"), queue->name) &&
           is_whole_number(job, "epoch") && is_whole_number(job, "attempt");
}

static void append_counted(bson_t *after, const bson_iter_t *field)
{
    if (BSON_ITER_HOLDS_INT32(field))
        BSON_APPEND_INT32(after, bson_iter_key(field), bson_iter_int32(field) + 1);
    else
        BSON_APPEND_INT64(after, bson_iter_key(field), bson_iter_as_int64(field) + 1);
}

/* Writes what job_claims writes without a limiter. */
static void many_append_claimed(const struct claiming *claiming, const bson_t *before,
                                bson_t *after)
{
    const truce_queue *queue = claiming->several->queue;
    bson_iter_t field;

    for (bool some = bson_iter_init(&field, before); some && bson_iter_next(&field);) {
        const char *key = bson_iter_key(&field);

        if (!strcmp(key, "state"))
            BSON_APPEND_UTF8(after, key, "running");
        else if (!strcmp(key, "undone"))
            BCON_APPEND(after, key, "{", "state", BCON_UTF8("running"), "queue",
                        BCON_UTF8(queue->name), "rank", BCON_INT32(0), "at",
                        BCON_DATE_TIME(claiming->now_ms + queue->lease_ms), "}");
        else if (!strcmp(key, "epoch") || !strcmp(key, "attempt"))
            append_counted(after, &field);
        else if (strcmp(key, "lease") != 0 && strcmp(key, "_rev") != 0)
            bson_append_iter(after, NULL, 0, &field);
    }
    BSON_APPEND_OID(after, "_rev", &claiming->several->token);
    job_append_lease(queue, &claiming->several->token, NULL, claiming->now_ms, after);
}

static bool many_make(truce_rewrite *rewrite, size_t number, const bson_t *before, bson_t *after)
{
    struct claiming *claiming = (struct claiming *)rewrite;

    if (!before || !can_be_claimed(claiming->several->queue, before))
        return false;
    many_append_claimed(claiming, before, after);
    bson_copy_to(after, &claiming->made[number]);
    claiming->took[number] = true;
    return true;
}

static void many_refuse(truce_rewrite *rewrite, size_t number, truce_status status,
                        const bson_error_t *error)
{
    (void)status, (void)error; /* A single claim of this job will report the reason. */
    many_drop((struct claiming *)rewrite, number);
}

/* Claims jobs inside the store's write. Returns NOT_FOUND if the store cannot rewrite. */
static truce_status many_rewrite(struct several *several, bson_error_t *error)
{
    truce_store *store = several->queue->store;
    const bson_t **keys = bson_malloc(several->read * sizeof *keys);
    struct claiming claiming = {
        .base = {.collection = QUEUE,
                 .keys = keys,
                 .count = several->read,
                 .begin = many_begin,
                 .make = many_make,
                 .refuse = many_refuse,
                 .relaxed = (store->capabilities & TRUCE_CAN_KEEP_ORDER) != 0},
        .several = several,
        .now_ms = truce__clock_wall_ms()};
    truce_status status;

    claiming.made = bson_malloc(several->read * sizeof *claiming.made);
    claiming.took = bson_malloc0(several->read * sizeof *claiming.took);
    for (size_t i = 0; i < several->read; i++)
        keys[i] = &several->ids[i];
    status = truce__store_rewrite(store, &claiming.base, error);
    for (size_t i = 0; i < several->read; i++) {
        if (!status && claiming.took[i])
            several->jobs[several->count++] =
                claimed_new(several->queue, &claiming.made[i], &several->token);
        many_drop(&claiming, i);
    }
    bson_free(claiming.took);
    bson_free(claiming.made);
    bson_free(keys);
    return status;
}

/* ---- by guarded updates ---------------------------------------------------------------------- */

/* Claims the jobs that were read, by one bulk under one token. The caller reads which of them it
 * got. */
static truce_status many_update(struct several *several, bson_error_t *error)
{
    truce_queue *queue = several->queue;
    truce_bulk_options options = {.unordered = true,
                                  .relaxed =
                                      (queue->store->capabilities & TRUCE_CAN_KEEP_ORDER) != 0,
                                  .deadline_ms = queue->deadline_ms};
    size_t count = several->read;
    truce_write *writes = bson_malloc0(count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(count * sizeof *outcomes);
    bson_t *filters = bson_malloc(count * sizeof *filters), update = BSON_INITIALIZER;
    truce_status status;

    job_claims(queue, &several->token, NULL, &update);
    for (size_t i = 0; i < count; i++) {
        bson_copy_to(&several->ids[i], &filters[i]);
        job_ready(queue, &filters[i]);
        writes[i] = (truce_write){TRUCE_WRITE_UPDATE, QUEUE, &filters[i], &update};
    }
    status = truce_bulk(queue->store, writes, count, &options, outcomes, error);
    for (size_t i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&filters[i]);
    }
    bson_free(filters);
    bson_free(outcomes);
    bson_free(writes);
    bson_destroy(&update);
    return status;
}

static int many_compare(const void *a, const void *b)
{
    const truce_job *left = *(truce_job *const *)a, *right = *(truce_job *const *)b;
    int64_t x = truce__field_number(&left->document, "priority");
    int64_t y = truce__field_number(&right->document, "priority");

    return x != y ? (x > y ? -1 : 1) : bson_oid_compare(&left->id, &right->id);
}

/* Appends {_id: {$in: the jobs that were read}, state: "running", lease.token}. */
static void many_claimed_filter(const struct several *several, bson_t *filter)
{
    bson_t id, in;

    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &id);
    BSON_APPEND_ARRAY_BEGIN(&id, "$in", &in);
    for (size_t i = 0; i < several->read; i++) {
        bson_value_t value = truce__document_id(&several->ids[i]);
        char text[16];
        const char *key;

        bson_uint32_to_string((uint32_t)i, &key, text, sizeof text);
        BSON_APPEND_VALUE(&in, key, &value);
    }
    bson_append_array_end(&id, &in);
    bson_append_document_end(filter, &id);
    BCON_APPEND(filter, "state", BCON_UTF8("running"), "lease.token", BCON_OID(&several->token));
}

/* Reads the jobs that the token has claimed, in the order of claims. */
static truce_status many_collect(struct several *several, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_find_options options = {.limit = (int64_t)several->read, .early = true};
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    truce_status status;

    many_claimed_filter(several, &filter);
    status = truce_find(several->queue->store, QUEUE, &filter, &options, &cursor, error);
    while (!status && several->count < several->read) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        several->jobs[several->count++] = claimed_new(several->queue, found, &several->token);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    qsort(several->jobs, several->count, sizeof *several->jobs, many_compare);
    return several->count ? TRUCE_OK : status;
}

/* ---- several: read, then claim --------------------------------------------------------------- */

/* Claims the jobs that were read, inside the store's write if possible, and by a bulk otherwise. */
static truce_status many_claim(struct several *several, bson_error_t *error)
{
    truce_status status = TRUCE_NOT_FOUND;
    bool answered = false;

    truce__id_new(&several->token);
    if (several->queue->store->capabilities & TRUCE_CAN_REWRITE) {
        status = many_rewrite(several, error);
        answered = !status;
    }
    if (status == TRUCE_NOT_FOUND)
        status = many_update(several, error);
    if (truce__unanswered(status)) /* many_collect finds which updates succeeded. */
        status = TRUCE_OK;
    return status || answered ? status : many_collect(several, error);
}

/* Claims up to `most` jobs without a limiter. Returns NOT_FOUND if no job is ready. Returns OK with
 * a *count of 0 if other claims were faster. */
static truce_status queue_claim_several(truce_queue *queue, size_t most, truce_job **jobs,
                                        size_t *count, bson_error_t *error)
{
    struct several several = {.queue = queue, .jobs = jobs};
    truce_status status;

    several.ids = bson_malloc(most * sizeof *several.ids);
    status = many_read(&several, most, error);
    if (!status && !several.read)
        status = TRUCE_NOT_FOUND;
    if (!status)
        status = many_claim(&several, error);
    *count = several.count;
    for (size_t i = 0; i < several.read; i++)
        bson_destroy(&several.ids[i]);
    bson_free(several.ids);
    return status;
}

/* ---- combined claims of threads -------------------------------------------------------------- */

/*
 * Threads of one handle claim together: one of them claims for all.
 *
 *     claim     joins the wait queue; if no thread leads, its first thread becomes the leader
 *     leader    takes the wait queue, and claims that many jobs in one read and one write;
 *               wakes the threads that it claimed for, and the first of the rest, which leads next
 *
 * The threads therefore do not compete for the same first job, and they share the cost of a write.
 * No thread waits for the wait queue to fill: a thread that comes alone claims alone. The threads
 * combine only if jobs are claimed inside the store's write. A server is faster with concurrent
 * claims. Safety does not depend on this section.
 *
 * A child of a fork has a copy of the wait queue but none of its threads, so it claims alone.
 */

/* The maximum number of claimers for which one thread claims. */
#define CLAIMERS_MAX 64
/* The maximum number of claims of several jobs. The claimers that have no job then claim one by
 * one. */
#define CLAIM_TRIES 4

/* A thread that claims, in the wait queue. The mutex of the claims protects it. */
struct claimer {
    struct claimer *next;
    /* Signaled when `done` becomes true, or the thread is the first in the queue and no thread
     * leads. */
    pthread_cond_t wake;
    truce_job *job;
    truce_status status;
    bson_error_t error;
    bool done;
};

static bool claims_may_combine(const truce_queue *queue)
{
    return (queue->store->capabilities & TRUCE_CAN_REWRITE) && queue->claims.process == getpid();
}

/* Claims for each claimer of a list. Claimers without a job get the error. */
static void claims_run(truce_queue *queue, struct claimer *first, size_t count)
{
    truce_job *jobs[CLAIMERS_MAX];
    bson_error_t error = {0};
    truce_status status = TRUCE_OK;

    for (int i = 0; i < CLAIM_TRIES && count > 1 && !status; i++) {
        size_t claimed;

        status = queue_claim_several(queue, count, jobs, &claimed, &error);
        for (size_t k = 0; k < claimed; k++, first = first->next, count--)
            first->job = jobs[k];
    }
    for (; first; first = first->next) {
        if (!status)
            status = queue_claim_one(queue, &first->job, &error);
        first->status = status;
        first->error = error;
    }
}

/* Claims for the wait queue. The caller holds the mutex; it is released during the claim. */
static void claims_lead(truce_queue *queue)
{
    struct queue_claims *claims = &queue->claims;
    struct claimer *first = claims->first, *last = first, *next;
    size_t count = 1;

    for (; last->next && count < CLAIMERS_MAX; count++)
        last = last->next;
    claims->first = last->next;
    if (!claims->first)
        claims->last = NULL;
    last->next = NULL;
    claims->led = true;
    pthread_mutex_unlock(&claims->mutex);
    claims_run(queue, first, count);
    pthread_mutex_lock(&claims->mutex);
    claims->led = false;
    for (; first; first = next) {
        next = first->next;
        first->done = true;
        pthread_cond_signal(&first->wake);
    }
    if (claims->first)
        pthread_cond_signal(&claims->first->wake);
}

/* Claims like queue_claim_one, by the thread that leads. */
static truce_status claims_claim(truce_queue *queue, truce_job **job, bson_error_t *error)
{
    struct queue_claims *claims = &queue->claims;
    struct claimer own = {0};

    pthread_cond_init(&own.wake, NULL);
    pthread_mutex_lock(&claims->mutex);
    if (claims->last)
        claims->last->next = &own;
    else
        claims->first = &own;
    claims->last = &own;
    while (!own.done && (claims->led || claims->first != &own))
        pthread_cond_wait(&own.wake, &claims->mutex);
    if (!own.done)
        claims_lead(queue);
    pthread_mutex_unlock(&claims->mutex);
    pthread_cond_destroy(&own.wake);
    *job = own.job;
    if (own.status && error)
        *error = own.error;
    return own.status;
}

/* ---- due jobs -------------------------------------------------------------------------------- */

/*
 * Delayed jobs become ready when they are due. Each claim promotes some of them; the sweep does it
 * for queues without claims.
 *
 *     {_id, undone.state: "delayed", undone.at and priority as read, _intent: absent}
 *     -> ready; undone.rank is -priority in both states
 *
 * Any process may do this, any number of times, at any time.
 *
 * Delayed jobs are promoted in the order of their priorities, one batch at a time. A claim promotes
 * as many jobs as it takes before it takes them. If thousands of jobs become due at once, a claim
 * therefore takes the same jobs as if all were ready.
 */

#define BATCH TRUCE__QUEUE_PROMOTED_MOST
/* A number below every rank. */
#define RANK_BEFORE (-JOB_PRIORITY_MAX - 1)
#define NS_IN_MS    INT64_C(1000000)

/* Appends the jobs that a query finds to the list, up to one batch; the caller destroys each. */
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

/* ---- delayed jobs by rank -------------------------------------------------------------------- */

/* Finds the next higher rank of a delayed job of the queue, and the first time of such a job.
 * Returns NOT_FOUND if none exists. */
static truce_status next_rank(truce_store *store, const char *queue, int64_t *rank, int64_t *at_ms,
                              bson_error_t *error)
{
    bson_t *filter = BCON_NEW("undone.state", BCON_UTF8("delayed"), "undone.queue",
                              BCON_UTF8(queue), "undone.rank", "{", "$gt", BCON_INT64(*rank), "}"),
           *sort = job_order(), job, undone;
    const truce_find_options options = {.sort = sort, .early = true};
    truce_status status = truce_find_one(store, QUEUE, filter, &options, &job, error);

    if (!status && truce__value_subdocument(&job, "undone", &undone) &&
        truce__field_number(&undone, "rank") > *rank)
        *rank = truce__field_number(&undone, "rank");
    else if (!status)
        status = TRUCE_NOT_FOUND; /* The job has changed since the read. */
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

/* Gathers the due jobs of a queue, in the order in which claims would take them. */
static truce_status gather_due(truce_store *store, const char *queue, bson_t **found, size_t *count,
                               bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms(), rank = RANK_BEFORE, at_ms;
    bson_t *sort = job_order();
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

/* Gathers the due jobs of all queues, in any order. */
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

/* ---- promotion ------------------------------------------------------------------------------- */

/* Makes the write that promotes a delayed job, if it has not changed since it was read. */
static void claim_make_promotion(const bson_t *job, bson_t *filter, bson_t *update)
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

/* Promotes the jobs that were read, by one bulk. */
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
        claim_make_promotion(found[i], &filters[i], &updates[i]);
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

/* Finds when the first delayed job of that rank is due. Sets INT64_MAX if none exists. */
static truce_status next_due_of(truce_store *store, const char *queue, int64_t rank,
                                int64_t *due_ms, bson_error_t *error)
{
    bson_t *filter = delayed_filter(queue, rank, "$gt", truce__clock_wall_ms()),
           *sort = job_order(), job;
    const truce_find_options options = {.sort = sort, .early = true};
    truce_status status = truce_find_one(store, QUEUE, filter, &options, &job, error);

    if (status || !truce__job_date(&job, "undone.at", due_ms))
        *due_ms = INT64_MAX;
    bson_destroy(&job);
    bson_destroy(sort);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Finds when the next delayed job of the queue is due, or INT64_MAX if none exists. */
static truce_status queue_next_due(truce_store *store, const char *queue, int64_t *due_ms,
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

/* ---- intervals ------------------------------------------------------------------------------- */

/* While other jobs are ready, delayed jobs are promoted once in this time. */
#define PROMOTE_MS 50
/* Expired leases are searched once in this time, or more often if leases are short. */
#define RESCUE_MS 1000
/* Due cron lines are searched once in this time. */
#define FIRE_MS 500
/* The settings of the queue are read once in this time. */
#define SETTINGS_MS 500
/* On a store in this process, due cron lines are searched once in this time while no job is
 * ready. */
#define FIRE_IDLE_MS 20
#define BULK_TRIES   4
/* The maximum time for which a claim tries again because lanes delayed all jobs that it claimed. */
#define CLAIM_MS 5000

/* ---- work before a claim --------------------------------------------------------------------- */

/* Returns true for at most one thread every `every_ms`. */
static bool claim_is_time(atomic_int_fast64_t *last_ns, int64_t every_ms)
{
    int64_t now_ns = truce__clock_monotonic_ns(), last = atomic_load(last_ns);

    return (!last || now_ns - last >= every_ms * NS_IN_MS) &&
           atomic_compare_exchange_strong(last_ns, &last, now_ns);
}

/* Reads whether the queue is paused or has a limiter. */
static truce_status claim_read_settings(truce_queue *queue, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(queue->name)), found;
    truce_status status = truce_find_one(queue->store, QUEUE_SETTINGS, filter, NULL, &found, error);
    bson_iter_t iter;

    if (!status || status == TRUCE_NOT_FOUND) {
        atomic_store(&queue->paused, !status && bson_iter_init_find(&iter, &found, "paused") &&
                                         bson_iter_as_bool(&iter));
        atomic_store(&queue->limited, !status && bson_has_field(&found, "limiter"));
        status = TRUCE_OK;
    }
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* Returns true for a store in this process: there a read costs less than a write that finds
 * nothing, or than waking up. */
static bool reads_are_cheap(const truce_queue *queue)
{
    return (queue->store->capabilities & TRUCE_CAN_REWRITE) != 0;
}

/* Finds the time at which the queue has work again although no write wakes the claimer. */
static truce_status claim_find_due(truce_queue *queue, bson_error_t *error)
{
    int64_t job_ms, cron_ms;
    truce_status status = queue_next_due(queue->store, queue->name, &job_ms, error);

    if (!status)
        status = truce__cron_next_due(queue, &cron_ms, error);
    if (!status)
        atomic_store(&queue->due_ms, job_ms < cron_ms ? job_ms : cron_ms);
    return status;
}

/* Promotes as many jobs as a claim of that size may take. */
static truce_status claim_promote_due(truce_queue *queue, size_t most, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool more = true;

    for (size_t promoted = 0; !status && more && promoted < most;
         promoted += TRUCE__QUEUE_PROMOTED_MOST)
        status = truce__queue_promote(queue->store, queue->name, &more, error);
    atomic_store(&queue->due_more, more);
    return status;
}

/* Does what a claim does from time to time first: reads the settings, promotes due jobs, fires cron
 * lines, and releases jobs of dead workers. If no job was found (`idle`), also finds the next due
 * time, and continues workflows. */
static truce_status claim_prepare(truce_queue *queue, size_t most, bool idle, bson_error_t *error)
{
    int64_t rescue_ms = queue->lease_ms / 4 < RESCUE_MS ? queue->lease_ms / 4 : RESCUE_MS;
    truce_status status = TRUCE_OK;

    if (claim_is_time(&queue->settings_ns, SETTINGS_MS))
        status = claim_read_settings(queue, error);
    if (!status &&
        (claim_is_time(&queue->promoted_ns, PROMOTE_MS) || idle || atomic_load(&queue->due_more)))
        status = claim_promote_due(queue, most, error);
    if (!status &&
        claim_is_time(&queue->fired_ns, idle && reads_are_cheap(queue) ? FIRE_IDLE_MS : FIRE_MS))
        status = truce__cron_fire(queue, error);
    if (!status && claim_is_time(&queue->rescued_ns, rescue_ms))
        status = truce__queue_rescue_some(queue, error);
    if (!status && idle && reads_are_cheap(queue))
        status = claim_find_due(queue, error);
    if (!status && idle && claim_is_time(&queue->continued_ns, RESCUE_MS))
        status = truce__workflow_resume_some(queue, error);
    return status;
}

/* ---- the claim's filter and update ----------------------------------------------------------- */

static void job_ready(const truce_queue *queue, bson_t *filter)
{
    BCON_APPEND(filter, "undone.state", BCON_UTF8("ready"), "undone.queue", BCON_UTF8(queue->name),
                "_intent", "{", "$exists", BCON_BOOL(false), "}");
}

static void running_filter(const truce_queue *queue, const bson_oid_t *token, bson_t *filter)
{
    BCON_APPEND(filter, "undone.state", BCON_UTF8("running"), "undone.queue",
                BCON_UTF8(queue->name), "lease.token", BCON_OID(token));
}

static bson_t *job_order(void)
{
    return BCON_NEW("undone.rank", BCON_INT32(1), "undone.at", BCON_INT32(1));
}

/* Appends the lease of a claim; `limiter` is the limiter that the lease names, or NULL. */
static void job_append_lease(const truce_queue *queue, const bson_oid_t *token,
                             const bson_value_t *limiter, int64_t now_ms, bson_t *set)
{
    bson_t lease;

    BSON_APPEND_DOCUMENT_BEGIN(set, "lease", &lease);
    BCON_APPEND(&lease, "worker", BCON_UTF8(queue->worker), "token", BCON_OID(token), "since",
                BCON_DATE_TIME(now_ms), "ms", BCON_INT64(queue->lease_ms));
    if (limiter)
        BSON_APPEND_VALUE(&lease, "limiter", limiter);
    bson_append_document_end(set, &lease);
}

/* Makes the update of a claim. The job's timeout limits only extensions of the lease, because the
 * first lease is short. */
static void job_claims(const truce_queue *queue, const bson_oid_t *token,
                       const bson_value_t *limiter, bson_t *update)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t set;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    BCON_APPEND(&set, "state", BCON_UTF8("running"), "undone.state", BCON_UTF8("running"),
                "undone.rank", BCON_INT32(0), "undone.at",
                BCON_DATE_TIME(now_ms + queue->lease_ms));
    job_append_lease(queue, token, limiter, now_ms, &set);
    /* A single write, not a commit, makes a claim without a limiter, so it sets `_rev` itself. */
    if (!limiter)
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
    bson_init(&job->called);
    bson_init(&job->awaited);
    bson_init(&job->steps);
    if (truce__value_subdocument(&job->document, "steps", &steps))
        bson_concat(&job->steps, &steps);
    atomic_store(&job->checked_ns, truce__clock_monotonic_ns());
    return job;
}

/* ---- one job --------------------------------------------------------------------------------- */

static truce_status job_check_found(const bson_t *document, bson_error_t *error)
{
    if (truce__document_id(document).value_type == BSON_TYPE_OID)
        return TRUCE_OK;
    return truce__fail(TRUCE_CORRUPT, error,
                       "a job of " QUEUE " has an _id that is not an ObjectId: remove this job");
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

/* Claims one job by one find-and-modify. Returns NOT_FOUND if no job is ready. */
static truce_status queue_claim_one(truce_queue *queue, truce_job **job, bson_error_t *error)
{
    bool keeps_order = (queue->store->capabilities & TRUCE_CAN_KEEP_ORDER) != 0;
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, *sort = job_order(), document;
    truce_modify_options options = {.sort = sort,
                                    .return_new = true,
                                    .relaxed = keeps_order,
                                    .deadline_ms = queue->deadline_ms};
    bson_oid_t token;
    truce_status status;

    truce__id_new(&token);
    job_ready(queue, &filter);
    job_claims(queue, &token, NULL, &update);
    status = truce_find_and_modify(queue->store, QUEUE, &filter, &update, &options, &document, NULL,
                                   error);
    if (truce__unanswered(status) && !claim_unanswered(queue, &token, &document))
        status = TRUCE_OK;
    if (!status)
        status = job_check_found(&document, error);
    if (!status)
        *job = claimed_new(queue, &document, &token);
    bson_destroy(&document);
    bson_destroy(&filter);
    bson_destroy(&update);
    bson_destroy(sort);
    return status;
}

/* ---- public calls ---------------------------------------------------------------------------- */

/* Counts the begins in the lanes of the claimed jobs. Jobs that the rate of their lane delays leave
 * the list. */
static truce_status claim_begin_all(truce_job **jobs, size_t *count, bson_error_t *error)
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
            first = first ? first : status; /* The job stays claimed until its lease expires. */
    }
    *count = begun;
    return begun ? TRUCE_OK : first;
}

static truce_status claim_within_limits(truce_queue *queue, size_t most, truce_job **jobs,
                                        size_t *count, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int i = 0; most > 1 && i < BULK_TRIES && !status && !*count; i++)
        status = queue_claim_several(queue, most, jobs, count, error);
    if (status || *count)
        return status;
    status = most == 1 && claims_may_combine(queue) ? claims_claim(queue, jobs, error)
                                                    : queue_claim_one(queue, jobs, error);
    *count = status ? 0 : 1;
    return status;
}

/* Claims up to `most` jobs. Tries again for CLAIM_MS while lanes delay all jobs that it claimed. */
static truce_status try_claim(truce_queue *queue, size_t most, truce_job **jobs, size_t *count,
                              bson_error_t *error)
{
    int64_t until_ns = truce__clock_monotonic_ns() + CLAIM_MS * NS_IN_MS;
    truce_status status = TRUCE_OK;
    bool limited = atomic_load(&queue->limited);

    if (limited)
        status = queue_claim_limited(queue, most, jobs, count, &limited, error);
    if (status || limited)
        return status;
    do {
        status = claim_within_limits(queue, most, jobs, count, error);
        if (!status)
            status = claim_begin_all(jobs, count, error);
    } while (!status && !*count && truce__clock_monotonic_ns() < until_ns);
    return status || *count ? status : TRUCE_NOT_FOUND;
}

/* Claims if a read finds a ready job, so that idle workers do not lock the store for writing. If
 * reads are not cheap, claims at once. */
static truce_status claim_if_ready(truce_queue *queue, size_t most, truce_job **jobs, size_t *count,
                                   bson_error_t *error)
{
    const truce_find_options options = {.early = true};
    bson_t filter = BSON_INITIALIZER, found;
    truce_status status = TRUCE_OK;

    if (reads_are_cheap(queue)) {
        job_ready(queue, &filter);
        status = truce_find_one(queue->store, QUEUE, &filter, &options, &found, error);
        bson_destroy(&found);
    }
    bson_destroy(&filter);
    return status ? status : try_claim(queue, most, jobs, count, error);
}

static truce_status claim_none(const truce_queue *queue, bson_error_t *error)
{
    const char *why = atomic_load(&queue->paused) ? "queue \"%s\" is paused"
                      : atomic_load(&queue->limited)
                          ? "queue \"%s\" has no ready job, or is at its limit"
                          : "queue \"%s\" has no ready job";

    return truce__fail(TRUCE_NOT_FOUND, error, why, queue->name);
}

truce_status truce_queue_claim_many(truce_queue *queue, size_t most, truce_job **jobs,
                                    size_t *count, bson_error_t *error)
{
    RETURN_IF_NULL(jobs, error);
    RETURN_IF_NULL(count, error);

    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    truce_status status = truce__queue_ready(queue, error);

    *count = 0;
    if (!status && (most < 1 || most > JOB_CLAIMS_MAX))
        status =
            truce__fail(TRUCE_INVALID, error, "cannot claim %zu jobs at once: expected 1 to %d",
                        most, JOB_CLAIMS_MAX);
    if (!status)
        status = claim_prepare(queue, most, false, error);
    if (!status && !atomic_load(&queue->paused))
        status = atomic_load(&queue->quiet) ? claim_if_ready(queue, most, jobs, count, error)
                                            : try_claim(queue, most, jobs, count, error);
    if (status == TRUCE_NOT_FOUND) {
        status = claim_prepare(queue, most, true, error);
        if (!status && !atomic_load(&queue->paused))
            status = claim_if_ready(queue, most, jobs, count, error);
    }
    if (!status && !*count)
        status = TRUCE_NOT_FOUND;
    atomic_store(&queue->quiet, status == TRUCE_NOT_FOUND);
    return status == TRUCE_NOT_FOUND ? claim_none(queue, error) : status;
}

truce_status truce_queue_claim(truce_queue *queue, truce_job **job, bson_error_t *error)
{
    RETURN_IF_NULL(job, error);

    WAIT_LIMIT_SCOPE();
    size_t count;

    *job = NULL;
    return truce_queue_claim_many(queue, 1, job, &count, error);
}

void truce_job_free(truce_job *job)
{
    if (!job)
        return;
    bson_destroy(&job->document);
    bson_destroy(&job->steps);
    bson_destroy(&job->called);
    bson_destroy(&job->awaited);
    if (job->result)
        bson_destroy(job->result);
    bson_free(job);
}
