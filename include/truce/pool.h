#ifndef TRUCE_POOL_H
#define TRUCE_POOL_H

/*
 * A pool of threads that run the jobs of a queue.
 *
 * The pool claims jobs, several in one call if several threads are free. It extends their leases,
 * and it ends the jobs that their function does not end. If the store can end several jobs in one
 * write, jobs that end together share it: one thread waits for the disk while the others take their
 * next job.
 *
 *     claimed --> begun --> ended by its function, or when that returns
 *        \           \----> lost: cancelled, or its lease ended
 *         \                 left: running when the pool was stopped and the grace period ended
 *          \-> requeued: not begun when the pool was stopped
 *
 * Threads: any thread may make any call, except truce_pool_free. After a fork, only the parent has
 * the pool.
 */
#include "truce/queue.h"

TRUCE_BEGIN_DECLS

typedef struct truce_pool truce_pool;

/*
 * Runs one job, on a thread of the pool. The pool frees the job afterwards. The result has this
 * meaning:
 *
 *     TRUCE_OK          the job is done, with the result of truce_job_result; or it has already
 *                       ended by truce_job_commit, truce_job_snooze, or a similar call
 *     TRUCE_EXPIRED     this worker no longer holds the job
 *     TRUCE_NOT_FOUND   from truce_job_sleep and truce_job_wait: the job was suspended
 *     any other         the job failed, with the error message
 *
 * truce_job_cancelled is also true when the job is lost, and when the pool was stopped and the
 * grace period ended.
 */
typedef truce_status truce_pool_function(truce_job *job, void *arg, bson_error_t *error);

/* Options of a pool. Zero means the default. `function` is required. */
typedef struct truce_pool_options {
    /* Many threads call it concurrently. */
    truce_pool_function *function;
    void *arg;
    /* The number of threads, at most 256. 0 means 4. */
    uint32_t threads;
    /* The number of jobs that are claimed before a thread is free for them, up to 1,000. It saves
     * calls to the store, but other workers cannot run these jobs in the meantime. 0 means none. */
    uint32_t ahead;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_pool_options;

/* Starts a pool. The queue must outlive it. If the options of the queue or of the pool are wrong,
 * the call fails with TRUCE_INVALID, starts nothing, and sets *pool to NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_pool_start(truce_queue *queue,
                                                          const truce_pool_options *options,
                                                          truce_pool **pool, bson_error_t *error);

/*
 * Stops the pool. No further job begins. Jobs that were claimed but not begun are requeued
 * immediately. Running jobs have `grace_ms` to end. If some do not, the call fails with
 * TRUCE_TIMEOUT and abandons them: their leases are no longer extended, and other workers claim
 * them when the leases end.
 *
 * `left` is an array of {_id, queue, attempt, epoch, begun, ran_ms} of the abandoned jobs, and of
 * those that could not be returned. It may be NULL; it is initialized here and the caller destroys
 * it. The call may be repeated, and waits again.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_pool_stop(truce_pool *pool, int64_t grace_ms,
                                                         bson_t *left, bson_error_t *error);

/* Stops the pool, waits until its last function has returned, and frees it. NULL is allowed. A
 * function of the pool must not call it. */
TRUCE_EXPORT void truce_pool_free(truce_pool *pool);

/*
 * Returns counters since the start of the pool: {threads, busy, ready, begun, done, failed,
 * snoozed, discarded, lost, returned, waited: {count, p50_ms, p90_ms, p99_ms, max_ms}, ran: {...},
 * trouble?}.
 *
 *     ready     jobs claimed and not begun
 *     busy      jobs begun and not ended
 *     snoozed   includes suspended jobs
 *     waited    the time from adding a job to its begin, of first attempts
 *     ran       the running time of the function
 *     trouble   the error message of the last claim, if it failed
 *
 * `figures` is initialized here, and the caller destroys it.
 */
TRUCE_EXPORT void truce_pool_figures(truce_pool *pool, bson_t *figures);

TRUCE_END_DECLS

#endif
