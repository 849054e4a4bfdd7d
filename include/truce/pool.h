#ifndef TRUCE_POOL_H
#define TRUCE_POOL_H

/*
 * A pool of threads that do the jobs of a queue. It claims them, several in one call where several threads are free;
 * it keeps their leases alive; and it ends those that their function does not end.
 * Where the store can end jobs in one write, those that come to their end together do: one thread waits for the disk, and the
 * others take their next job.
 *
 *     claimed --> begun --> ended by its function, or as that returns
 *        \           \----> lost: cancelled, or its lease ended
 *         \                 left: at work when the pool was stopped and its time was over
 *          \-> returned: not begun when the pool was stopped
 *
 * Threads: any call from any thread, but for truce_pool_free. A process that forks has a pool in the parent only.
 */
#include "truce/queue.h"

TRUCE_BEGIN_DECLS

typedef struct truce_pool truce_pool;

/* Does one job. OK: it is done, with what truce_job_result said; or it was ended by truce_job_commit, truce_job_snooze, and
 * their kin, before. Another status: it failed, with the sentence of the error; EXPIRED: it is not ours any more;
 * NOT_FOUND of truce_job_sleep and truce_job_wait: it was laid aside. The job is freed by the pool.
 * truce_job_cancelled says true also when the job is lost, and when the pool was stopped and its time is over. */
typedef truce_status truce_pool_function(truce_job *job, void *arg, bson_error_t *error);

/* Zero means default; the function has to be said. */
typedef struct truce_pool_options {
    truce_pool_function *function; /* is called by many threads at once */
    void *arg;
    uint32_t threads; /* 0: 4; up to 256 */
    uint32_t
        ahead; /* so many jobs are claimed before a thread is free for them, up to 1,000: fewer calls to
                             the store, while others do not have the jobs; 0: none */
    uint64_t reserved[4]; /* zeros */
} truce_pool_options;

/* The queue must outlive the pool. INVALID: its options, or these, are wrong; nothing was started. *pool is NULL then. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_pool_start(truce_queue *queue,
                                                          const truce_pool_options *options,
                                                          truce_pool **pool, bson_error_t *error);

/*
 * No job is begun any more. Those that were claimed and not begun are given back at once; those at work have `grace_ms`
 * to end. TIMEOUT: some have not: they are abandoned, their leases are not kept alive, and others have them when these end.
 * `left` (NULL: not wanted; initialised here, the caller destroys it): an array of {_id, queue, attempt, epoch, begun,
 * ran_ms} of those, and of those that could not be given back. May be called again, and waits again.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_pool_stop(truce_pool *pool, int64_t grace_ms,
                                                         bson_t *left, bson_error_t *error);

/* Stops it, and returns when its last function has. NULL is allowed. Not from a function of the pool. */
TRUCE_EXPORT void truce_pool_free(truce_pool *pool);

/*
 * Since its start: {threads, busy, ready, begun, done, failed, snoozed, discarded, lost, returned, waited: {count, p50_ms,
 * p90_ms, p99_ms, max_ms}, ran: {...}}; ready: claimed, and not begun; busy: begun, and not ended; snoozed: laid aside, too; waited: from the adding of a job to
 * its begin, of first attempts; ran: the function. `trouble`: what the last claim failed with, if it did. `figures`
 * is initialised here, the caller destroys it.
 */
TRUCE_EXPORT void truce_pool_figures(truce_pool *pool, bson_t *figures);

TRUCE_END_DECLS

#endif
