/*
 * A pool of threads that run jobs: its start, its threads, its stop, and its figures.
 *
 *     claimer   claims as many jobs as there is room for, and appends them to the ready queue
 *     workers   take one job each from the ready queue, run the function, and end the job.
 *               If several jobs end at the same time, one worker ends them in one write where
 *               the store can, and the other workers take their next job
 *     keeper    extends the leases of all jobs of the pool, also of those in the ready queue
 *
 * Invariants:
 *
 *  QP1. A claimed job has a slot until it is freed. The keeper uses the job only under the slot's
 *       mutex, and the job is freed under this mutex.
 *  QP2. No thread calls the store while it holds the pool's mutex.
 *  QP3. After a stop no function begins. The stop releases the jobs of the ready queue after the
 *       claimer has ended.
 *  QP4. The claimer never has more jobs than there are slots; no other thread fills slots.
 *  QP5. A job that waits for its end is busy until it has ended: it keeps its slot and its lease,
 *       and a stop waits for it. If no worker is ending jobs, the worker that adds one ends them,
 *       until the list is empty.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/histogram.h"
#include "base/null.h"
#include "base/plural.h"
#include "base/reserved_fields.h"
#include "base/thread.h"
#include "patterns/queue/queue.h"
#include "store/store.h"
#include "truce/pool.h"

enum pool_end {
    POOL_DONE,
    POOL_FAILED,
    POOL_SNOOZED,
    POOL_DISCARDED,
    POOL_LOST,
    POOL_RETURNED,
    POOL_ENDS
};

/* The state of one claimed job. */
struct pool_slot {
    /* Protects `job`, `extended_ns`, and `abandoned`: the keeper uses the job and a worker frees it
     * under this mutex. */
    pthread_mutex_t mutex;
    /* The claimed job, or NULL if the slot is free. Owned. */
    truce_job *job;
    /* When the lease was last extended, by the monotonic clock. */
    int64_t extended_ns;
    /* The grace period has ended, so the lease is not extended any more. */
    bool abandoned;
    /* The following fields are protected by the pool's mutex. */
    bool taken;
    /* When the job's function began, by the monotonic clock. */
    int64_t begun_ns;
    /* The next slot in the list of jobs that wait for their end. */
    struct pool_slot *next;
};

/* A pool of workers. */
struct truce_pool {
    truce_queue *queue;
    truce_pool_function *function;
    void *arg;
    /* The number of workers, and how many jobs more than workers may be claimed. */
    uint32_t threads, ahead;
    pthread_t claimer, keeper, *workers;
    /* `claims`, `keeps`: the claimer, or the keeper, was started and must be joined. */
    bool claims, keeps;
    /* The number of workers that were started and must be joined. */
    uint32_t working;

    /* Protects the fields below except `stop`. No thread calls the store while it holds this
     * mutex. */
    pthread_mutex_t mutex;
    /* Signalled when a job is ready, or the workers must end. */
    pthread_cond_t more;
    /* Signalled when a slot becomes free. The claimer and the stopping thread wait for it. */
    pthread_cond_t moved;
    /* Signalled when the keeper must end. */
    pthread_cond_t over;
    /* `stopping`: no function begins any more. `ended`: no job is running, and the threads
     * return. */
    bool stopping, ended;
    /* The number of jobs that are running, or that wait for their end. */
    uint32_t busy;
    /* An array of `threads` + `ahead` slots. Owned. */
    struct pool_slot *slots;
    /* The ready queue: a ring of indexes into `slots`. `first` is its start and `ready` its
     * length. */
    uint32_t *ready_ring;
    uint32_t first, ready;
    /* The list of jobs that wait for their end, in the order of their ends. */
    struct pool_slot *ending, **ending_last;
    /* A worker is ending the jobs of the list. */
    bool ending_now;
    /* Since the start of the pool: the number of jobs that began, and of jobs with each end. */
    int64_t begun, ends[POOL_ENDS];
    /* In ns: the time from the creation of a job to its first run, and the time for which functions
     * ran. */
    struct histogram waited, ran;
    /* The message of the claimer's last error, or "" if its last claim had no error. */
    char trouble[200];

    /* Held during a stop, so that one thread at a time stops the pool. */
    pthread_mutex_t stop;
};

static uint32_t pool_slot_count(const struct truce_pool *pool)
{
    return pool->threads + pool->ahead;
}

/* ---- threads --------------------------------------------------------------------------------- */

#define NS_IN_MS INT64_C(1000000)
/* The longest time in ms for which a stop waits for an idle claimer. */
#define SLICE_MS 100
/* The first pause in ms after a claim without a job, if the store cannot wake the claimer. */
#define PAUSE_MS 5
/* The longest such pause in ms. */
#define PAUSE_MS_MAX 500
/* The pause in ms of the claimer after a claim that failed. */
#define TROUBLE_MS 100
/* The number of passes of the keeper within the length of a lease. */
#define KEEPS_PER_LEASE 12

static struct pool_slot *pool_next(struct truce_pool *pool);
static void pool_leave(struct truce_pool *pool, struct pool_slot *slot, enum pool_end end);

/* Waits for the condition, for at most `most_ms`. The caller holds the mutex. */
static void pool_pause(struct truce_pool *pool, pthread_cond_t *condition, int64_t most_ms)
{
    struct timespec until;
    int64_t ns;

    clock_gettime(CLOCK_MONOTONIC, &until);
    ns = until.tv_nsec + most_ms % 1000 * NS_IN_MS;
    until.tv_sec += most_ms / 1000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(condition, &pool->mutex, &until);
}

/* ---- claiming -------------------------------------------------------------------------------- */

/* Returns for how many more jobs the pool has room. The caller holds the mutex. */
static uint32_t pool_room(const struct truce_pool *pool)
{
    return pool_slot_count(pool) - pool->busy - pool->ready;
}

static struct pool_slot *pool_take_slot(struct truce_pool *pool)
{
    struct pool_slot *slot = pool->slots;

    while (slot->taken)
        slot++;
    slot->taken = true;
    return slot;
}

/* Puts a claimed job into a free slot, and wakes a thread. */
static void pool_enter(struct truce_pool *pool, truce_job *job)
{
    struct pool_slot *slot;

    pthread_mutex_lock(&pool->mutex);
    slot = pool_take_slot(pool);
    pool->ready_ring[(pool->first + pool->ready++) % pool_slot_count(pool)] =
        (uint32_t)(slot - pool->slots);
    pthread_mutex_lock(&slot->mutex);
    slot->job = job;
    slot->abandoned = false;
    slot->extended_ns = truce__clock_monotonic_ns();
    pthread_mutex_unlock(&slot->mutex);
    pthread_cond_signal(&pool->more);
    pthread_mutex_unlock(&pool->mutex);
}

struct claiming {
    uint64_t token;
    int64_t pause_ms;
};

static bool pool_is_stopping(struct truce_pool *pool)
{
    bool stopping;

    pthread_mutex_lock(&pool->mutex);
    stopping = pool->stopping;
    pthread_mutex_unlock(&pool->mutex);
    return stopping;
}

/* Waits until a job may be ready, after a claim that found none. */
static void pool_wait_for_jobs(struct truce_pool *pool, struct claiming *claiming)
{
    bson_error_t error;

    truce_status status = TRUCE_INVALID; /* Stays INVALID if the store cannot wake this thread. */

    if (pool->queue->store->capabilities & TRUCE_CAN_WAIT) {
        int64_t left_ms = truce__queue_pause_ms(pool->queue);

        do {
            status = truce_wait(pool->queue->store, QUEUE, &claiming->token,
                                (uint32_t)(left_ms < SLICE_MS ? left_ms : SLICE_MS), &error);
            left_ms -= SLICE_MS;
        } while (status == TRUCE_TIMEOUT && left_ms > 0 && !pool_is_stopping(pool));
    }
    if (!status || status == TRUCE_TIMEOUT)
        return;
    pthread_mutex_lock(&pool->mutex);
    if (!pool->stopping)
        pool_pause(pool, &pool->moved, claiming->pause_ms);
    pthread_mutex_unlock(&pool->mutex);
    if (claiming->pause_ms < PAUSE_MS_MAX)
        claiming->pause_ms *= 2;
}

static void pool_set_trouble(struct truce_pool *pool, const char *text)
{
    pthread_mutex_lock(&pool->mutex);
    bson_strncpy(pool->trouble, text, sizeof pool->trouble);
    if (*text && !pool->stopping)
        pool_pause(pool, &pool->moved, TROUBLE_MS);
    pthread_mutex_unlock(&pool->mutex);
}

/* Claims jobs for the free slots. Without jobs, waits until some may be ready. */
static void pool_claim_some(struct truce_pool *pool, struct claiming *claiming, uint32_t room)
{
    truce_job *jobs[JOB_CLAIMS_MAX];
    size_t count = 0;
    bson_error_t error;
    truce_status status = truce_queue_claim_many(
        pool->queue, room < JOB_CLAIMS_MAX ? room : JOB_CLAIMS_MAX, jobs, &count, &error);

    for (size_t i = 0; i < count; i++)
        pool_enter(pool, jobs[i]);
    if (status && status != TRUCE_NOT_FOUND) {
        pool_set_trouble(pool, error.message);
        return;
    }
    if (pool->trouble[0]) /* Only this thread writes the field, so the read needs no mutex. */
        pool_set_trouble(pool, "");
    if (status)
        pool_wait_for_jobs(pool, claiming);
    else
        claiming->pause_ms = PAUSE_MS;
}

/* Claims jobs until the pool stops: the function of the claiming thread. The argument is the
 * pool. */
static void *pool_claim(void *arg)
{
    struct truce_pool *pool = arg;
    struct claiming claiming = {.pause_ms = PAUSE_MS};
    bson_error_t error;

    /* Fills the token: a job that is added after this call wakes the claimer. */
    if (pool->queue->store->capabilities & TRUCE_CAN_WAIT &&
        truce_wait(pool->queue->store, QUEUE, &claiming.token, 0, &error))
        claiming.token = 0; /* If the call fails, the next one fills the token. */
    pthread_mutex_lock(&pool->mutex);
    while (!pool->stopping) {
        uint32_t room = pool_room(pool);

        if (!room) {
            pthread_cond_wait(&pool->moved, &pool->mutex);
            continue;
        }
        pthread_mutex_unlock(&pool->mutex);
        pool_claim_some(pool, &claiming, room);
        pthread_mutex_lock(&pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* ---- running jobs ---------------------------------------------------------------------------- */

static enum pool_end pool_end_of(enum job_end end)
{
    static const enum pool_end ends[] = {[JOB_DONE] = POOL_DONE,
                                         [JOB_FAILED] = POOL_FAILED,
                                         [JOB_SNOOZED] = POOL_SNOOZED,
                                         [JOB_DISCARDED] = POOL_DISCARDED};

    return ends[end];
}

/* Ends a job after its function returned. If the store does not reply, the job is released when its
 * lease expires. */
static enum pool_end pool_end_job(truce_job *job, truce_status status, bson_error_t *error)
{
    if (job->ended)
        return pool_end_of(job->ended);
    if (!status && job->staged)
        return pool_end_of(job->staged);
    if (!status) {
        status = truce_job_done(job, NULL, job->result, error);
        if (!status)
            return POOL_DONE;
    }
    if (status != TRUCE_EXPIRED && !truce_job_fail(job, NULL, error->message, -1, error))
        return POOL_FAILED;
    return POOL_LOST;
}

/* Returns the time since the job was added. The clocks of two machines may make it 0. */
static int64_t pool_waited_ns(const truce_job *job)
{
    int64_t created_ms = 0, ms;

    (void)truce__job_date(&job->document, "created", &created_ms);
    ms = truce__clock_wall_ms() - created_ms;
    return ms > 0 ? ms * NS_IN_MS : 0;
}

/* ---- ending several jobs --------------------------------------------------------------------- */

/* Ends the jobs of several slots in one write. Jobs that were not done, or that were not tried
 * because of another one's error, are ended alone. */
static void pool_end_all(struct truce_pool *pool, struct pool_slot *const *slots, size_t count)
{
    truce_job *jobs[JOB_CLAIMS_MAX];
    const bson_t *results[JOB_CLAIMS_MAX];
    truce_status statuses[JOB_CLAIMS_MAX], status;
    bson_error_t error = {0};

    for (size_t i = 0; i < count; i++) {
        jobs[i] = slots[i]->job;
        results[i] = jobs[i]->result;
        /* An error of one job must not affect the others, so these are ended alone. */
        statuses[i] = TRUCE_INVALID;
    }
    status = truce_queue_done_many(pool->queue, jobs, count, results, statuses, &error);
    for (size_t i = 0; i < count; i++) {
        enum pool_end end =
            !status || !statuses[i] ? POOL_DONE : pool_end_job(jobs[i], TRUCE_OK, &error);

        pool_leave(pool, slots[i], end);
    }
}

static size_t pool_take_ending(struct truce_pool *pool, struct pool_slot **slots)
{
    size_t count = 0;

    while (pool->ending && count < JOB_CLAIMS_MAX) {
        slots[count++] = pool->ending;
        pool->ending = pool->ending->next;
    }
    if (!pool->ending)
        pool->ending_last = &pool->ending;
    return count;
}

/* Appends a job to the list of jobs to be ended, and ends the list if no other worker does (QP5).
 * The caller holds the mutex; it is released during the ends. */
static void pool_end_with_others(struct truce_pool *pool, struct pool_slot *slot)
{
    struct pool_slot *slots[JOB_CLAIMS_MAX];
    size_t count;

    slot->next = NULL;
    *pool->ending_last = slot;
    pool->ending_last = &slot->next;
    if (pool->ending_now)
        return;
    pool->ending_now = true;
    while ((count = pool_take_ending(pool, slots)) > 0) {
        pthread_mutex_unlock(&pool->mutex);
        pool_end_all(pool, slots, count);
        pthread_mutex_lock(&pool->mutex);
        pool->busy -= (uint32_t)count;
        pthread_cond_broadcast(&pool->moved);
    }
    pool->ending_now = false;
}

/* ---- a worker -------------------------------------------------------------------------------- */

static void pool_end_alone(struct truce_pool *pool, struct pool_slot *slot, truce_status status,
                           bson_error_t *error)
{
    enum pool_end end = pool_end_job(slot->job, status, error);

    pool_leave(pool, slot, end);
    pthread_mutex_lock(&pool->mutex);
    pool->busy--;
    pthread_cond_broadcast(&pool->moved);
}

/* Runs a job. The caller holds the mutex; it is released while the function runs. */
static void pool_run_job(struct truce_pool *pool, struct pool_slot *slot)
{
    truce_job *job = slot->job;
    bson_error_t error = {0};
    truce_status status;
    int64_t ran_ns;

    slot->begun_ns = truce__clock_monotonic_ns();
    pool->busy++;
    pool->begun++;
    if (job->epoch == 1)
        truce__histogram_add(&pool->waited, (uint64_t)pool_waited_ns(job));
    pthread_mutex_unlock(&pool->mutex);
    status = pool->function(job, pool->arg, &error);
    ran_ns = truce__clock_monotonic_ns() - slot->begun_ns;
    pthread_mutex_lock(&pool->mutex);
    truce__histogram_add(&pool->ran, (uint64_t)ran_ns);
    if (!status && !job->ended && !job->staged && truce__job_may_end_with_others(job)) {
        pool_end_with_others(pool, slot);
        return;
    }
    pthread_mutex_unlock(&pool->mutex);
    pool_end_alone(pool, slot, status, &error);
}

/* Runs jobs until the pool stops. The body of a worker thread. */
static void *pool_work(void *arg)
{
    struct truce_pool *pool = arg;

    pthread_mutex_lock(&pool->mutex);
    while (!pool->stopping) {
        struct pool_slot *slot = pool_next(pool);

        if (slot)
            pool_run_job(pool, slot);
        else
            pthread_cond_wait(&pool->more, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* ---- leases ---------------------------------------------------------------------------------- */

/* Extends the lease of a slot's job after a third of its length. If the job was lost, marks it as
 * cancelled, which its function can read. */
static void pool_extend(const struct truce_pool *pool, struct pool_slot *slot)
{
    int64_t now_ns = truce__clock_monotonic_ns();
    bson_error_t error;

    pthread_mutex_lock(&slot->mutex);
    if (slot->job && !slot->abandoned &&
        now_ns - slot->extended_ns >= pool->queue->lease_ms * NS_IN_MS / 3) {
        slot->extended_ns = now_ns;
        if (truce_job_extend(slot->job, &error) == TRUCE_EXPIRED)
            /* The job was lost. After other failures, the next pass of the keeper extends the lease
             * again. */
            atomic_store(&slot->job->cancelled, true);
    }
    pthread_mutex_unlock(&slot->mutex);
}

/* Extends the leases of all jobs until the pool has ended. The body of the thread for leases. */
static void *pool_extend_leases(void *arg)
{
    struct truce_pool *pool = arg;
    int64_t every_ms = pool->queue->lease_ms / KEEPS_PER_LEASE + 1;

    pthread_mutex_lock(&pool->mutex);
    while (!pool->ended) {
        pthread_mutex_unlock(&pool->mutex);
        for (uint32_t i = 0; i < pool_slot_count(pool); i++)
            pool_extend(pool, &pool->slots[i]);
        pthread_mutex_lock(&pool->mutex);
        if (!pool->ended)
            pool_pause(pool, &pool->over, every_ms);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* ---- start and stop -------------------------------------------------------------------------- */

/* The default number of workers. */
#define POOL_THREADS 4

/* Takes the next ready job, or NULL if none exists. The caller holds the mutex. */
static struct pool_slot *pool_next(struct truce_pool *pool)
{
    struct pool_slot *slot;

    if (!pool->ready)
        return NULL;
    slot = &pool->slots[pool->ready_ring[pool->first]];
    pool->first = (pool->first + 1) % pool_slot_count(pool);
    pool->ready--;
    return slot;
}

/* Frees the slot of a job that has ended. */
static void pool_leave(struct truce_pool *pool, struct pool_slot *slot, enum pool_end end)
{
    pthread_mutex_lock(&slot->mutex);
    truce_job_free(slot->job);
    slot->job = NULL;
    pthread_mutex_unlock(&slot->mutex);
    pthread_mutex_lock(&pool->mutex);
    slot->taken = false;
    pool->ends[end]++;
    pthread_mutex_unlock(&pool->mutex);
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Checks the options of a pool, and that its queue can be used. */
static truce_status pool_check(const truce_queue *queue, const truce_pool_options *options,
                               bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_pool_options", error);

    if (!status)
        status = truce__handle_usable(queue->store, queue->refused, &queue->refusal, error);
    if (!status && !options->function)
        return truce__fail(TRUCE_INVALID, error, "the option \"function\" of the pool is missing");
    if (!status && (options->threads > POOL_THREADS_MAX || options->ahead > JOB_CLAIMS_MAX))
        return truce__fail(
            TRUCE_INVALID, error, "`threads` is %u and `ahead` %u: expected at most %d and %d",
            (unsigned)options->threads, (unsigned)options->ahead, POOL_THREADS_MAX, JOB_CLAIMS_MAX);
    return status;
}

/* Initializes the mutexes, conditions, and arrays of a pool. The conditions use the monotonic
 * clock. */
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
    pool->ready_ring = bson_malloc0(pool_slot_count(pool) * sizeof *pool->ready_ring);
    pool->slots = bson_malloc0(pool_slot_count(pool) * sizeof *pool->slots);
    for (uint32_t i = 0; i < pool_slot_count(pool); i++)
        pthread_mutex_init(&pool->slots[i].mutex, NULL);
}

static bool pool_start_threads(struct truce_pool *pool)
{
    pool->keeps = truce__thread_start(&pool->keeper, pool_extend_leases, pool);
    while (pool->keeps && pool->working < pool->threads &&
           truce__thread_start(&pool->workers[pool->working], pool_work, pool))
        pool->working++;
    pool->claims =
        pool->working == pool->threads && truce__thread_start(&pool->claimer, pool_claim, pool);
    return pool->claims;
}

truce_status truce_pool_start(truce_queue *queue, const truce_pool_options *options,
                              truce_pool **pool, bson_error_t *error)
{
    RETURN_IF_NULL(pool, error);
    *pool = NULL;
    RETURN_IF_NULL(options, error);

    truce_status status = pool_check(queue, options, error);
    struct truce_pool *made;

    *pool = NULL;
    if (status)
        return status;
    made = bson_malloc0(sizeof *made);
    made->queue = queue;
    made->function = options->function;
    made->arg = options->arg;
    made->threads = options->threads ? options->threads : POOL_THREADS;
    made->ahead = options->ahead;
    pool_make(made);
    if (!pool_start_threads(made)) {
        truce_pool_free(made);
        return truce__fail(TRUCE_LIMIT, error,
                           "cannot start the threads of the pool (%u): the system has no memory or "
                           "no threads left; set `threads` lower",
                           (unsigned)(options->threads ? options->threads : POOL_THREADS));
    }
    *pool = made;
    return TRUCE_OK;
}

/* ---- stop ------------------------------------------------------------------------------------ */

/* Appends a job that a stop leaves behind: {_id, queue, attempt, epoch, begun, ran_ms}. */
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

static void pool_begin_stop(struct truce_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->more);
    pthread_cond_broadcast(&pool->moved);
    pthread_mutex_unlock(&pool->mutex);
    if (pool->claims)
        /* The ready queue is returned only after the claimer has ended (QP3). */
        pthread_join(pool->claimer, NULL);
    pool->claims = false;
}

/* Returns the jobs of the ready queue to the store. The error is the first failure's. */
static truce_status pool_return_ready(struct truce_pool *pool, bson_t *left, bson_error_t *error)
{
    truce_status status = TRUCE_OK, one;
    struct pool_slot *slot;
    bson_error_t ignored;

    for (;;) {
        pthread_mutex_lock(&pool->mutex);
        slot = pool_next(pool);
        pthread_mutex_unlock(&pool->mutex);
        if (!slot)
            return status;
        one = truce_job_snooze(slot->job, NULL, 0, status ? &ignored : error);
        if (one && one != TRUCE_EXPIRED) {
            pool_append_left(left, slot->job, false, 0);
            status = status ? status : one;
        }
        pool_leave(pool, slot, one ? POOL_LOST : POOL_RETURNED);
    }
}

/* Waits until no job is running; returns false after the grace time. The caller holds the mutex. */
static bool pool_wait_for_busy(struct truce_pool *pool, int64_t grace_ms)
{
    int64_t begun_ns = truce__clock_monotonic_ns();

    while (pool->busy) {
        int64_t left_ms = grace_ms - (truce__clock_monotonic_ns() - begun_ns) / NS_IN_MS;

        if (left_ms <= 0)
            return false;
        pool_pause(pool, &pool->moved, left_ms < 1000 ? left_ms : 1000);
    }
    return true;
}

/* Cancels the running jobs at the end of the grace period, and lists them. Returns their number. */
static uint32_t pool_abandon(struct truce_pool *pool, bson_t *left)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < pool_slot_count(pool); i++) {
        struct pool_slot *slot = &pool->slots[i];

        pthread_mutex_lock(&slot->mutex);
        if (slot->job) {
            slot->abandoned = true;
            atomic_store(&slot->job->cancelled, true);
            pool_append_left(left, slot->job, true, slot->begun_ns);
            count++;
        }
        pthread_mutex_unlock(&slot->mutex);
    }
    return count;
}

static void pool_join_all(struct truce_pool *pool)
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

/* Stops the pool: requeues jobs that have not begun, waits for the others, and abandons those that
 * still run after grace_ms. */
static truce_status pool_stop(struct truce_pool *pool, int64_t grace_ms, bson_t *left,
                              bson_error_t *error)
{
    truce_status status;
    uint32_t count;
    bool all;

    pool_begin_stop(pool);
    status = pool_return_ready(pool, left, error);
    pthread_mutex_lock(&pool->mutex);
    all = pool_wait_for_busy(pool, grace_ms);
    pthread_mutex_unlock(&pool->mutex);
    if (!all && (count = pool_abandon(pool, left)) > 0)
        return truce__fail(TRUCE_TIMEOUT, error, "%s still running after %" PRId64 " ms",
                           PLURAL(count, "job is", "jobs are"), grace_ms);
    if (all)
        pool_join_all(pool);
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
    /* Failures are ignored: a job that could not be returned is released when its lease expires. */
    bson_error_t ignored;

    if (!pool)
        return;
    while (truce_pool_stop(pool, INT64_MAX, NULL, &ignored) == TRUCE_TIMEOUT)
        ;
    for (uint32_t i = 0; i < pool_slot_count(pool); i++)
        pthread_mutex_destroy(&pool->slots[i].mutex);
    pthread_mutex_destroy(&pool->mutex);
    pthread_mutex_destroy(&pool->stop);
    pthread_cond_destroy(&pool->more);
    pthread_cond_destroy(&pool->moved);
    pthread_cond_destroy(&pool->over);
    bson_free(pool->slots);
    bson_free(pool->ready_ring);
    bson_free(pool->workers);
    bson_free(pool);
}

/* ---- figures --------------------------------------------------------------------------------- */

static void pool_append_times(bson_t *figures, const char *name, const struct histogram *times)
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

    if (!figures)
        return;
    bson_init(figures);
    pthread_mutex_lock(&pool->mutex);
    BSON_APPEND_INT64(figures, "threads", pool->threads);
    BSON_APPEND_INT64(figures, "busy", pool->busy);
    BSON_APPEND_INT64(figures, "ready", pool->ready);
    BSON_APPEND_INT64(figures, "begun", pool->begun);
    for (int i = 0; i < POOL_ENDS; i++)
        BSON_APPEND_INT64(figures, names[i], pool->ends[i]);
    pool_append_times(figures, "waited", &pool->waited);
    pool_append_times(figures, "ran", &pool->ran);
    if (pool->trouble[0])
        BSON_APPEND_UTF8(figures, "trouble", pool->trouble);
    pthread_mutex_unlock(&pool->mutex);
}
