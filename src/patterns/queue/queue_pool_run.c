/* The threads of a pool: the claimer, the workers, and the keeper of leases. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/field.h"
#include "patterns/queue/queue_pool.h"

#define NS_IN_MS      INT64_C(1000000)
#define SLICE_MS      100 /* how long a stop waits for the claimer, at most, while nothing is ready */
#define PAUSE_MS      5   /* where the store wakes nobody: the first pause ... */
#define PAUSE_MS_MAX  500 /* ... and the last */
#define TROUBLE_MS    100
#define LOOKS_A_LEASE 12

void truce__pool_pause(struct truce_pool *pool, pthread_cond_t *condition, int64_t most_ms)
{
    struct timespec until;
    int64_t ns;

    clock_gettime(CLOCK_MONOTONIC, &until);
    ns = until.tv_nsec + most_ms % 1000 * NS_IN_MS;
    until.tv_sec += most_ms / 1000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(condition, &pool->mutex, &until);
}

/* ---- claiming ------------------------------------------------------------------------------------- */

/* How many more it may have. Under the mutex. */
static uint32_t room_of(const struct truce_pool *pool)
{
    return truce__pool_places(pool) - pool->busy - pool->ready;
}

static struct pool_place *free_place(struct truce_pool *pool)
{
    struct pool_place *place = pool->places;

    while (place->taken)
        place++;
    place->taken = true;
    return place;
}

static void queue_pool_run_enter(struct truce_pool *pool, truce_job *job)
{
    struct pool_place *place;

    pthread_mutex_lock(&pool->mutex);
    place = free_place(pool);
    pool->line[(pool->first + pool->ready++) % truce__pool_places(pool)] =
        (uint32_t)(place - pool->places);
    pthread_mutex_lock(&place->mutex);
    place->job = job;
    place->abandoned = false;
    place->extended_ns = truce__clock_monotonic_ns();
    pthread_mutex_unlock(&place->mutex);
    pthread_cond_signal(&pool->more);
    pthread_mutex_unlock(&pool->mutex);
}

struct claiming {
    uint64_t token;
    int64_t pause_ms;
};

static bool queue_pool_run_is_stopping(struct truce_pool *pool)
{
    bool stopping;

    pthread_mutex_lock(&pool->mutex);
    stopping = pool->stopping;
    pthread_mutex_unlock(&pool->mutex);
    return stopping;
}

/* Nothing was ready: until something may be. */
static void wait_for_jobs(struct truce_pool *pool, struct claiming *claiming)
{
    bson_error_t error;

    truce_status status = TRUCE_INVALID; /* nobody wakes */

    if (pool->queue->store->capabilities & TRUCE_CAN_WAIT) {
        int64_t left_ms = truce__queue_pause_ms(pool->queue);

        do {
            status = truce_wait(pool->queue->store, QUEUE, &claiming->token,
                                (uint32_t)(left_ms < SLICE_MS ? left_ms : SLICE_MS), &error);
            left_ms -= SLICE_MS;
        } while (status == TRUCE_TIMEOUT && left_ms > 0 && !queue_pool_run_is_stopping(pool));
    }
    if (!status || status == TRUCE_TIMEOUT)
        return;
    pthread_mutex_lock(&pool->mutex);
    if (!pool->stopping)
        truce__pool_pause(pool, &pool->moved, claiming->pause_ms);
    pthread_mutex_unlock(&pool->mutex);
    if (claiming->pause_ms < PAUSE_MS_MAX)
        claiming->pause_ms *= 2;
}

static void say_trouble(struct truce_pool *pool, const char *text)
{
    pthread_mutex_lock(&pool->mutex);
    bson_strncpy(pool->trouble, text, sizeof pool->trouble);
    if (*text && !pool->stopping)
        truce__pool_pause(pool, &pool->moved, TROUBLE_MS);
    pthread_mutex_unlock(&pool->mutex);
}

static void queue_pool_run_claim_some(struct truce_pool *pool, struct claiming *claiming,
                                      uint32_t room)
{
    truce_job *jobs[JOB_CLAIMS_MAX];
    size_t count = 0;
    bson_error_t error;
    truce_status status = truce_queue_claim_many(
        pool->queue, room < JOB_CLAIMS_MAX ? room : JOB_CLAIMS_MAX, jobs, &count, &error);

    for (size_t i = 0; i < count; i++)
        queue_pool_run_enter(pool, jobs[i]);
    if (status && status != TRUCE_NOT_FOUND) {
        say_trouble(pool, error.message);
        return;
    }
    if (pool->trouble[0]) /* nobody else writes it */
        say_trouble(pool, "");
    if (status)
        wait_for_jobs(pool, claiming);
    else
        claiming->pause_ms = PAUSE_MS;
}

void *truce__pool_claim(void *arg)
{
    struct truce_pool *pool = arg;
    struct claiming claiming = {.pause_ms = PAUSE_MS};
    bson_error_t error;

    /* fills the token: what is added from here on wakes */
    if (pool->queue->store->capabilities & TRUCE_CAN_WAIT &&
        truce_wait(pool->queue->store, QUEUE, &claiming.token, 0, &error))
        claiming.token = 0; /* the next one fills it */
    pthread_mutex_lock(&pool->mutex);
    while (!pool->stopping) {
        uint32_t room = room_of(pool);

        if (!room) {
            pthread_cond_wait(&pool->moved, &pool->mutex);
            continue;
        }
        pthread_mutex_unlock(&pool->mutex);
        queue_pool_run_claim_some(pool, &claiming, room);
        pthread_mutex_lock(&pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* ---- at work -------------------------------------------------------------------------------------- */

static enum pool_end queue_pool_run_end_of(enum job_end end)
{
    static const enum pool_end ends[] = {[JOB_DONE] = POOL_DONE,
                                         [JOB_FAILED] = POOL_FAILED,
                                         [JOB_SNOOZED] = POOL_SNOOZED,
                                         [JOB_DISCARDED] = POOL_DISCARDED};

    return ends[end];
}

/* As its function returned. A store that does not answer: its lease will end. */
static enum pool_end queue_pool_run_conclude(truce_job *job, truce_status status,
                                             bson_error_t *error)
{
    if (job->ended)
        return queue_pool_run_end_of(job->ended);
    if (!status && job->said)
        return queue_pool_run_end_of(job->said);
    if (!status) {
        status = truce_job_done(job, NULL, job->result, error);
        if (!status)
            return POOL_DONE;
    }
    if (status != TRUCE_EXPIRED && !truce_job_fail(job, NULL, error->message, -1, error))
        return POOL_FAILED;
    return POOL_LOST;
}

/* From its adding; by the clocks of two machines, so it may be nothing. */
static int64_t waited_ns(const truce_job *job)
{
    int64_t created_ms = 0, ms;

    (void)truce__job_date(&job->document, "created", &created_ms);
    ms = truce__clock_wall_ms() - created_ms;
    return ms > 0 ? ms * NS_IN_MS : 0;
}

/* ---- the end of many -------------------------------------------------------------------------------- */

/* Those that were not done, or whose error was another's, are ended alone. */
static void queue_pool_run_end_all(struct truce_pool *pool, struct pool_place *const *places,
                                   size_t count)
{
    truce_job *jobs[JOB_CLAIMS_MAX];
    const bson_t *results[JOB_CLAIMS_MAX];
    truce_status statuses[JOB_CLAIMS_MAX], status;
    bson_error_t error = {0};

    for (size_t i = 0; i < count; i++) {
        jobs[i] = places[i]->job;
        results[i] = jobs[i]->result;
        statuses[i] = TRUCE_INVALID; /* if one is refused, no other is looked at */
    }
    status = truce_queue_done_many(pool->queue, jobs, count, results, statuses, &error);
    for (size_t i = 0; i < count; i++) {
        enum pool_end end = !status || !statuses[i]
                                ? POOL_DONE
                                : queue_pool_run_conclude(jobs[i], TRUCE_OK, &error);

        truce__pool_leave(pool, places[i], end);
    }
}

static size_t take_ending(struct truce_pool *pool, struct pool_place **places)
{
    size_t count = 0;

    while (pool->ending && count < JOB_CLAIMS_MAX) {
        places[count++] = pool->ending;
        pool->ending = pool->ending->next;
    }
    if (!pool->ending)
        pool->ending_last = &pool->ending;
    return count;
}

/* Under the mutex, which is let go while they end (P5). */
static void end_with_others(struct truce_pool *pool, struct pool_place *place)
{
    struct pool_place *places[JOB_CLAIMS_MAX];
    size_t count;

    place->next = NULL;
    *pool->ending_last = place;
    pool->ending_last = &place->next;
    if (pool->ends_some)
        return;
    pool->ends_some = true;
    while ((count = take_ending(pool, places)) > 0) {
        pthread_mutex_unlock(&pool->mutex);
        queue_pool_run_end_all(pool, places, count);
        pthread_mutex_lock(&pool->mutex);
        pool->busy -= (uint32_t)count;
        pthread_cond_broadcast(&pool->moved);
    }
    pool->ends_some = false;
}

/* ---- a worker --------------------------------------------------------------------------------------- */

static void end_alone(struct truce_pool *pool, struct pool_place *place, truce_status status,
                      bson_error_t *error)
{
    enum pool_end end = queue_pool_run_conclude(place->job, status, error);

    truce__pool_leave(pool, place, end);
    pthread_mutex_lock(&pool->mutex);
    pool->busy--;
    pthread_cond_broadcast(&pool->moved);
}

/* Under the mutex, which is let go while the function runs. */
static void queue_pool_run_do_job(struct truce_pool *pool, struct pool_place *place)
{
    truce_job *job = place->job;
    bson_error_t error = {0};
    truce_status status;
    int64_t ran_ns;

    place->begun_ns = truce__clock_monotonic_ns();
    pool->busy++;
    pool->begun++;
    if (job->epoch == 1)
        truce__histogram_add(&pool->waited, (uint64_t)waited_ns(job));
    pthread_mutex_unlock(&pool->mutex);
    status = pool->function(job, pool->arg, &error);
    ran_ns = truce__clock_monotonic_ns() - place->begun_ns;
    pthread_mutex_lock(&pool->mutex);
    truce__histogram_add(&pool->ran, (uint64_t)ran_ns);
    if (!status && !job->ended && !job->said && truce__job_may_end_with_others(job)) {
        end_with_others(pool, place);
        return;
    }
    pthread_mutex_unlock(&pool->mutex);
    end_alone(pool, place, status, &error);
}

void *truce__pool_work(void *arg)
{
    struct truce_pool *pool = arg;

    pthread_mutex_lock(&pool->mutex);
    while (!pool->stopping) {
        struct pool_place *place = truce__pool_next(pool);

        if (place)
            queue_pool_run_do_job(pool, place);
        else
            pthread_cond_wait(&pool->more, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* ---- leases --------------------------------------------------------------------------------------- */

static void queue_pool_run_keep(const struct truce_pool *pool, struct pool_place *place)
{
    int64_t now_ns = truce__clock_monotonic_ns();
    bson_error_t error;

    pthread_mutex_lock(&place->mutex);
    if (place->job && !place->abandoned &&
        now_ns - place->extended_ns >= pool->queue->lease_ms * NS_IN_MS / 3) {
        place->extended_ns = now_ns;
        if (truce_job_extend(place->job, &error) == TRUCE_EXPIRED)
            atomic_store(&place->job->cancelled, true); /* what else fails is tried again */
    }
    pthread_mutex_unlock(&place->mutex);
}

void *truce__pool_keep(void *arg)
{
    struct truce_pool *pool = arg;
    int64_t every_ms = pool->queue->lease_ms / LOOKS_A_LEASE + 1;

    pthread_mutex_lock(&pool->mutex);
    while (!pool->ended) {
        pthread_mutex_unlock(&pool->mutex);
        for (uint32_t i = 0; i < truce__pool_places(pool); i++)
            queue_pool_run_keep(pool, &pool->places[i]);
        pthread_mutex_lock(&pool->mutex);
        if (!pool->ended)
            truce__pool_pause(pool, &pool->over, every_ms);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}
