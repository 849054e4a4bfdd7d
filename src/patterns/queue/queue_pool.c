/*
 * A pool of threads: its start, its stop, and its figures. The threads are in queue_pool_run.c.
 *
 *     the claimer   claims as many jobs as there is room for, and puts them in line
 *     workers       take the first of the line, one each; run the function; end the job. Of those that come to an end meanwhile
 *                   one worker ends all in one write, where such a write can be; the others take their next job
 *     the keeper    extends the leases of all of them, those in line, too
 *
 * Invariants:
 *   P1. A claimed job has a place until it is freed. The keeper touches it under the place's mutex only, and it is freed
 *       under that.
 *   P2. Nobody asks the store under the pool's mutex.
 *   P3. After a stop no function begins: the line is emptied by giving back, after the claimer has ended.
 *   P4. The claimer never has more jobs than there are places: it alone fills them.
 *   P5. A job that is to be ended is busy until it has ended: its place and its lease are kept, and a stop waits for it. Whoever
 *       puts one in line when nobody ends some does it, until the line is empty.
 */
#include "patterns/queue/queue_pool.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/reserved_fields.h"
#include "base/thread.h"

#define THREADS  4
#define NS_IN_MS INT64_C(1000000)

struct pool_place *truce__pool_next(struct truce_pool *pool)
{
    struct pool_place *place;

    if (!pool->ready)
        return NULL;
    place = &pool->places[pool->line[pool->first]];
    pool->first = (pool->first + 1) % truce__pool_places(pool);
    pool->ready--;
    return place;
}

void truce__pool_leave(struct truce_pool *pool, struct pool_place *place, enum pool_end end)
{
    pthread_mutex_lock(&place->mutex);
    truce_job_free(place->job);
    place->job = NULL;
    pthread_mutex_unlock(&place->mutex);
    pthread_mutex_lock(&pool->mutex);
    place->taken = false;
    pool->ends[end]++;
    pthread_mutex_unlock(&pool->mutex);
}

/* ---- start ---------------------------------------------------------------------------------------- */

static truce_status pool_check(const truce_queue *queue, const truce_pool_options *options,
                               bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_pool_options", error);

    if (!status && queue->refused) {
        *error = queue->refusal;
        return TRUCE_INVALID;
    }
    if (!status && !options->function)
        return truce__fail(TRUCE_INVALID, error, "the option \"function\" of the pool is missing");
    if (!status && (options->threads > POOL_THREADS_MAX || options->ahead > JOB_CLAIMS_MAX))
        return truce__fail(TRUCE_INVALID, error, "a pool has up to %d threads, and %d jobs ahead",
                           POOL_THREADS_MAX, JOB_CLAIMS_MAX);
    return status;
}

static void pool_make(struct truce_pool *pool)
{
    pthread_condattr_t attributes;

    pthread_mutex_init(&pool->mutex, NULL);
    pthread_mutex_init(&pool->stop, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->more, &attributes);
    pthread_cond_init(&pool->moved, &attributes);
    pthread_cond_init(&pool->over, &attributes);
    pthread_condattr_destroy(&attributes);
    pool->ending_last = &pool->ending;
    pool->workers = bson_malloc0(pool->threads * sizeof *pool->workers);
    pool->line = bson_malloc0(truce__pool_places(pool) * sizeof *pool->line);
    pool->places = bson_malloc0(truce__pool_places(pool) * sizeof *pool->places);
    for (uint32_t i = 0; i < truce__pool_places(pool); i++)
        pthread_mutex_init(&pool->places[i].mutex, NULL);
}

static bool start_threads(struct truce_pool *pool)
{
    pool->keeps = truce__thread_start(&pool->keeper, truce__pool_keep, pool);
    while (pool->keeps && pool->working < pool->threads &&
           truce__thread_start(&pool->workers[pool->working], truce__pool_work, pool))
        pool->working++;
    pool->claims = pool->working == pool->threads &&
                   truce__thread_start(&pool->claimer, truce__pool_claim, pool);
    return pool->claims;
}

truce_status truce_pool_start(truce_queue *queue, const truce_pool_options *options,
                              truce_pool **pool, bson_error_t *error)
{
    truce_status status = pool_check(queue, options, error);
    struct truce_pool *made;

    *pool = NULL;
    if (status)
        return status;
    made = bson_malloc0(sizeof *made);
    made->queue = queue;
    made->function = options->function;
    made->arg = options->arg;
    made->threads = options->threads ? options->threads : THREADS;
    made->ahead = options->ahead;
    pool_make(made);
    if (!start_threads(made)) {
        truce_pool_free(made);
        return truce__fail(TRUCE_LIMIT, error, "the system starts no more threads");
    }
    *pool = made;
    return TRUCE_OK;
}

/* ---- stop ----------------------------------------------------------------------------------------- */

static void pool_append_left(bson_t *left, const truce_job *job, bool begun, int64_t begun_ns)
{
    char key[16];
    const char *name;
    bson_t one;

    bson_uint32_to_string(bson_count_keys(left), &name, key, sizeof key);
    BSON_APPEND_DOCUMENT_BEGIN(left, name, &one);
    BSON_APPEND_OID(&one, "_id", &job->id);
    BSON_APPEND_UTF8(&one, "queue", job->queue->name);
    BSON_APPEND_INT64(&one, "attempt", job->attempt);
    BSON_APPEND_INT64(&one, "epoch", job->epoch);
    BSON_APPEND_BOOL(&one, "begun", begun);
    BSON_APPEND_INT64(&one, "ran_ms",
                      begun ? (truce__clock_monotonic_ns() - begun_ns) / NS_IN_MS : 0);
    bson_append_document_end(left, &one);
}

static void begin_stop(struct truce_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->more);
    pthread_cond_broadcast(&pool->moved);
    pthread_mutex_unlock(&pool->mutex);
    if (pool->claims)
        pthread_join(pool->claimer, NULL); /* P3 */
    pool->claims = false;
}

/* Those in line. The first that cannot be given back says why. */
static truce_status pool_give_back(struct truce_pool *pool, bson_t *left, bson_error_t *error)
{
    truce_status status = TRUCE_OK, one;
    struct pool_place *place;
    bson_error_t ignored;

    for (;;) {
        pthread_mutex_lock(&pool->mutex);
        place = truce__pool_next(pool);
        pthread_mutex_unlock(&pool->mutex);
        if (!place)
            return status;
        one = truce_job_snooze(place->job, NULL, 0, status ? &ignored : error);
        if (one && one != TRUCE_EXPIRED) {
            pool_append_left(left, place->job, false, 0);
            status = status ? status : one;
        }
        truce__pool_leave(pool, place, one ? POOL_LOST : POOL_RETURNED);
    }
}

/* Under the mutex: false, some are at work still. */
static bool wait_for_busy(struct truce_pool *pool, int64_t grace_ms)
{
    int64_t begun_ns = truce__clock_monotonic_ns();

    while (pool->busy) {
        int64_t left_ms = grace_ms - (truce__clock_monotonic_ns() - begun_ns) / NS_IN_MS;

        if (left_ms <= 0)
            return false;
        truce__pool_pause(pool, &pool->moved, left_ms < 1000 ? left_ms : 1000);
    }
    return true;
}

static uint32_t pool_abandon(struct truce_pool *pool, bson_t *left)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < truce__pool_places(pool); i++) {
        struct pool_place *place = &pool->places[i];

        pthread_mutex_lock(&place->mutex);
        if (place->job) {
            place->abandoned = true;
            atomic_store(&place->job->cancelled, true);
            pool_append_left(left, place->job, true, place->begun_ns);
            count++;
        }
        pthread_mutex_unlock(&place->mutex);
    }
    return count;
}

static void join_all(struct truce_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    pool->ended = true;
    pthread_cond_broadcast(&pool->over);
    pthread_mutex_unlock(&pool->mutex);
    while (pool->working)
        pthread_join(pool->workers[--pool->working], NULL);
    if (pool->keeps)
        pthread_join(pool->keeper, NULL);
    pool->keeps = false;
}

static truce_status pool_stop(struct truce_pool *pool, int64_t grace_ms, bson_t *left,
                              bson_error_t *error)
{
    truce_status status;
    uint32_t count;
    bool all;

    begin_stop(pool);
    status = pool_give_back(pool, left, error);
    pthread_mutex_lock(&pool->mutex);
    all = wait_for_busy(pool, grace_ms);
    pthread_mutex_unlock(&pool->mutex);
    if (!all && (count = pool_abandon(pool, left)) > 0)
        return truce__fail(TRUCE_TIMEOUT, error, "%u jobs are at work still", count);
    if (all)
        join_all(pool);
    return status;
}

truce_status truce_pool_stop(truce_pool *pool, int64_t grace_ms, bson_t *left, bson_error_t *error)
{
    bson_t own = BSON_INITIALIZER;
    truce_status status;

    pthread_mutex_lock(&pool->stop);
    status = pool_stop(pool, grace_ms, &own, error);
    pthread_mutex_unlock(&pool->stop);
    if (left)
        bson_copy_to(&own, left);
    bson_destroy(&own);
    return status;
}

void truce_pool_free(truce_pool *pool)
{
    bson_error_t ignored; /* what could not be given back comes back when its lease ends */

    if (!pool)
        return;
    while (truce_pool_stop(pool, INT64_MAX, NULL, &ignored) == TRUCE_TIMEOUT)
        ;
    for (uint32_t i = 0; i < truce__pool_places(pool); i++)
        pthread_mutex_destroy(&pool->places[i].mutex);
    pthread_mutex_destroy(&pool->mutex);
    pthread_mutex_destroy(&pool->stop);
    pthread_cond_destroy(&pool->more);
    pthread_cond_destroy(&pool->moved);
    pthread_cond_destroy(&pool->over);
    bson_free(pool->places);
    bson_free(pool->line);
    bson_free(pool->workers);
    bson_free(pool);
}

/* ---- figures -------------------------------------------------------------------------------------- */

static void append_times(bson_t *figures, const char *name, const struct histogram *times)
{
    bson_t one;

    BSON_APPEND_DOCUMENT_BEGIN(figures, name, &one);
    BSON_APPEND_INT64(&one, "count", times->total);
    BSON_APPEND_DOUBLE(&one, "p50_ms", truce__histogram_us(times, 0.5) / 1000);
    BSON_APPEND_DOUBLE(&one, "p90_ms", truce__histogram_us(times, 0.9) / 1000);
    BSON_APPEND_DOUBLE(&one, "p99_ms", truce__histogram_us(times, 0.99) / 1000);
    BSON_APPEND_DOUBLE(&one, "max_ms", truce__histogram_longest_us(times) / 1000);
    bson_append_document_end(figures, &one);
}

void truce_pool_figures(truce_pool *pool, bson_t *figures)
{
    static const char *const names[] = {"done",      "failed", "snoozed",
                                        "discarded", "lost",   "returned"};

    bson_init(figures);
    pthread_mutex_lock(&pool->mutex);
    BSON_APPEND_INT64(figures, "threads", pool->threads);
    BSON_APPEND_INT64(figures, "busy", pool->busy);
    BSON_APPEND_INT64(figures, "ready", pool->ready);
    BSON_APPEND_INT64(figures, "begun", pool->begun);
    for (int i = 0; i < POOL_ENDS; i++)
        BSON_APPEND_INT64(figures, names[i], pool->ends[i]);
    append_times(figures, "waited", &pool->waited);
    append_times(figures, "ran", &pool->ran);
    if (pool->trouble[0])
        BSON_APPEND_UTF8(figures, "trouble", pool->trouble);
    pthread_mutex_unlock(&pool->mutex);
}
