#ifndef TRUCE_QUEUE_H
#define TRUCE_QUEUE_H

/*
 * A job queue with fenced effects.
 *
 * The changes of a job and its end are one commit, which holds the job under its claim. If a worker
 * has lost its lease, its changes are refused, not only its acknowledgement.
 *
 *     {_id, queue: "people", state: "ready", priority: 0, created, attempt: 0, attempts_max: 10,
 *      epoch: 0, payload: {command: "ADD_FRIEND", users: [1, 2]},
 *      undone: {state: "ready", queue: "people", rank: 0, at: <date>}}
 *
 * The collection is `truce_queue`. Only live jobs have `undone`. The index for claims is a sparse
 * one on `undone`, so jobs that are done do not slow down claims. The states:
 *
 *     ready       may be claimed
 *     delayed     becomes ready at undone.at
 *     running     claimed: lease {worker, token, since, ms}, which ends at undone.at
 *     waiting     waits for earlier jobs of its lane
 *     blocked     waits for other jobs
 *     done        has a `result`; lease.committed: by truce_job_commit
 *     dead        failed permanently: a dead letter
 *     cancelled, discarded
 *
 * Jobs in the last four states have `ended`, and may have `expires`. The optional fields of a job:
 *
 *     name, metadata, tags, key, timeout_ms, progress
 *     lane: {name, width, rate?, per_ms?}
 *     steps: {name: result}
 *     keep_ms, keep: {cancelled, discarded, dead}     keep: the retentions that differ from keep_ms
 *     dead: {queue, at}                               of a dead letter, for its index
 *     after: {left, failure, failed: [ids]}           waits for others; failed: the causes of its
 *                                                     cancellation
 *     then, notified                                  ids: jobs that wait for it, jobs that were
 *                                                     notified of its end
 *     events: {name: event}, awaits                   awaits: the event it is suspended for
 *     waits: {name: {until}}
 *     errors: [{at, attempt, epoch, worker, text}]    the last ten
 *
 * A job runs at least once. Its changes through truce_job_commit and truce_job_step take effect
 * exactly once. For effects outside the store, pass on the epoch, which increases with each claim,
 * as a fencing token (M. Kleppmann, "How to do distributed locking", 2016).
 *
 * The idea is the job queue in "How to Implement Robust and Scalable Transactions Across Documents
 * with MongoDB" (A. Girbal).
 *
 * Threads: any number of threads may share a queue. One thread at a time may use a job; a second
 * thread may call truce_job_extend and truce_job_cancelled. Free jobs before their queue, and the
 * queue before you close its store.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_queue truce_queue;
typedef struct truce_job truce_job;

/* Returns the delay in ms after the n-th failure of a job (from 1). */
typedef int64_t truce_backoff_function(uint32_t attempt, void *arg);

/* The growth of the delay between attempts. */
typedef enum truce_backoff {
    /* Each delay is twice the previous one. */
    TRUCE_BACKOFF_EXPONENTIAL = 0,
    TRUCE_BACKOFF_FIXED,
} truce_backoff;

/* Options of a queue handle. Zero means the default. `queue` is required (TRUCE_INVALID if it is
 * missing). Strings are copied. */
typedef struct truce_queue_options {
    /* For example "mail"; 1 to 200 bytes. */
    const char *queue;
    /* The name of the worker, for people. NULL means "HOST:PROCESS". */
    const char *worker;
    /* The duration of a claim without truce_job_extend. 0 means 30,000. */
    uint32_t lease_ms;
    /* The maximum number of attempts of jobs that are added with this handle and do not set their
     * own. It is stored with the job, so the handle of a worker ignores it. 0 means 10. */
    uint32_t attempts_max;
    truce_backoff backoff;
    /* The delay after the first failure. 0 means 1,000. Jitter: an actual delay is random between
     * 50 % and 100 % of the computed one. */
    uint32_t backoff_ms;
    /* The maximum delay. 0 means 3,600,000. */
    uint32_t backoff_max_ms;
    /* Replaces the computation; its result is used unchanged. NULL means none. */
    truce_backoff_function *backoff_function;
    void *backoff_arg;
    /* The retention of done jobs that do not set their own: truce_sweep removes them later. 0 means
     * 7 days. In this and the next three fields, -1 means forever. */
    int64_t keep_ms;
    /* The same for cancelled jobs. 0 means the time of keep_ms. */
    int64_t keep_cancelled_ms;
    /* The same for discarded jobs. 0 means the time of keep_ms. */
    int64_t keep_discarded_ms;
    /* The same for dead letters. 0 means forever. If other jobs wait for the dead letter, it is
     * discarded then. */
    int64_t keep_dead_ms;
    /* The mechanism of the queue's commits. */
    truce_mechanism mechanism;
    /* The deadline of a call. 0 means the deadline_ms of the store, by default 30,000. */
    uint32_t deadline_ms;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_queue_options;

/* Returns a handle. The call never fails and does not access the store. If the options are wrong,
 * the first call on the handle fails. */
TRUCE_EXPORT truce_queue *truce_queue_new(truce_store *store, const truce_queue_options *options);
/* Frees the handle. NULL is allowed. */
TRUCE_EXPORT void truce_queue_free(truce_queue *queue);

/* ---- adding jobs -------------------------------------------------------------------------- */

/* The jobs with which a unique job conflicts. */
typedef enum truce_unique_scope {
    /* A job with the same key that has not ended; with a period, also an ended one. */
    TRUCE_UNIQUE_LIVE = 0,
    /* A job with the same key that is still stored, ended or not: an idempotency key. */
    TRUCE_UNIQUE_KEPT,
    /* A job with the same key that no worker has claimed. If the job with the key is running, the
     * new job takes the key over, so a request that is made while it runs is not lost. */
    TRUCE_UNIQUE_UNCLAIMED,
} truce_unique_scope;

/* The action if a unique job conflicts with an existing one. A job that is running or has ended is
 * never changed: the new job is ignored or refused. */
typedef enum truce_conflict_policy {
    /* The existing job stays unchanged. */
    TRUCE_ON_CONFLICT_IGNORE = 0,
    /* The existing job gets everything of the new one, except the id and, if the new job has no
     * lane, the lane. A new job of another lane is TRUCE_INVALID, because the existing one has its
     * position in its lane. So is a new job with `after`, `batch`, or `open`. */
    TRUCE_ON_CONFLICT_REPLACE,
    /* The existing job gets the new time, and nothing else. */
    TRUCE_ON_CONFLICT_RESCHEDULE,
    /* The call fails with TRUCE_DUPLICATE. */
    TRUCE_ON_CONFLICT_REFUSE,
} truce_conflict_policy;

/* The effect on a job if another job that it waits for ends in any state except done. */
typedef enum truce_job_failure {
    /* The job is cancelled, with all jobs that wait for it. If the other job is retried, they are
     * live again. */
    TRUCE_FAILURE_CANCEL = 0,
    /* The job runs anyway. */
    TRUCE_FAILURE_GO_ON,
    /* The job waits while the other one is dead and may be retried. In other cases it is
     * cancelled. */
    TRUCE_FAILURE_WAIT,
} truce_job_failure;

typedef struct truce_job_options {
    /* Run after this delay from now, at most 10,000 days. Not together with run_at_ms. */
    int64_t delay_ms;
    /* Run at this time, ms since 1970. A time before 1970-04-26T17:46:40Z (10,000,000,000 ms) is
     * probably in seconds and fails with TRUCE_INVALID. */
    int64_t run_at_ms;
    /* -1,000 to 1,000. The highest priority runs first, then the oldest job. */
    int32_t priority;
    /* The maximum number of attempts. 0 means the value of the queue. */
    uint32_t attempts_max;
    /* The maximum time in ms from a claim of the job to the end of its lease. truce_job_extend does
     * not extend the lease beyond it. 0 means no limit. */
    uint32_t timeout_ms;
    /* The retention of the job when it has ended. In this and the next three fields, 0 means the
     * value of the queue, and -1 means forever. */
    int64_t keep_ms;
    int64_t keep_cancelled_ms, keep_discarded_ms, keep_dead_ms;
    /* A document that is stored with the job. NULL means none. */
    const bson_t *metadata;
    /* An array of strings. NULL means none. */
    const bson_t *tags;
    /* The key of a unique job in its queue. NULL means that the job is not unique, unless
     * `unique_payload` is set. */
    const char *unique;
    /* The payload is the key, or a part of it. The order of its fields and the types of its numbers
     * do not matter. */
    bool unique_payload;
    /* The number of the current period becomes a part of the key: at most one job in each period,
     * while the job is kept. 0 means no period. */
    int64_t unique_period_ms;
    truce_unique_scope unique_scope;
    truce_conflict_policy on_conflict;
    /* Jobs of one lane run one after the other, in the order in which they were added, whatever
     * their priorities. A job that fails keeps its position until its next attempt. NULL means no
     * lane. */
    const char *lane;
    /* The number of jobs of the lane that run at a time. 0 means 1. The last value set applies. */
    uint32_t lane_width;
    /* The rate limit of the lane: at most this number of its jobs begin in any period of
     * lane_per_ms, over all processes (see truce_queue_limits). 0 means no limit. Each attempt
     * counts. A job that exceeds the rate is delayed. */
    uint32_t lane_rate;
    uint32_t lane_per_ms;
    /* The job is ready only after these jobs, of any queues of the store, have ended: up to 500. If
     * one of them does not exist, or has ended so that this job would be cancelled, the call fails
     * with TRUCE_INVALID. Up to 1,000 jobs can wait for one. */
    const bson_oid_t *after;
    size_t after_count;
    truce_job_failure failure;
    /* The job closes a batch. It also waits for truce_queue_close, and until then for every job
     * that names it in `batch`. */
    bool open;
    /* The closing job of a batch that this job joins; any number of jobs may. If the closing job no
     * longer waits, the call fails with TRUCE_INVALID. */
    const bson_oid_t *batch;
    /* For people, 1 to 200 bytes. NULL means none. */
    const char *name;
    /* The id of the job. NULL means a new one. */
    const bson_oid_t *id;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_job_options;

/* The outcome of adding a job. */
typedef enum truce_added {
    TRUCE_ADDED_NEW = 1,
    /* Nothing was added: a job with its key exists. */
    TRUCE_ADDED_EXISTING,
    TRUCE_ADDED_REPLACED,
    TRUCE_ADDED_RESCHEDULED,
} truce_added;

/* Returns "new", "existing", "replaced", or "rescheduled". */
TRUCE_EXPORT const char *truce_added_name(truce_added added);

typedef struct truce_job_added {
    /* The id of the new job, or of the existing one. */
    bson_oid_t id;
    truce_added added;
    /* Must be zero. */
    uint64_t reserved[2];
} truce_job_added;

/*
 * Adds a job. With a commit, the job is a part of it. `options` and `added` may be NULL.
 *
 *     TRUCE_INVALID, TRUCE_LIMIT   nothing was added
 *     TRUCE_DUPLICATE              the id exists; or TRUCE_ON_CONFLICT_REFUSE, and the key exists
 *     TRUCE_UNKNOWN                the store did not reply; a job with a key of TRUCE_UNIQUE_KEPT
 *                                  may be added again
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_add(truce_queue *queue, truce_commit *commit,
                                                         const bson_t *payload,
                                                         const truce_job_options *options,
                                                         truce_job_added *added,
                                                         bson_error_t *error);

/* Adds up to 10,000 jobs with one set of options, in one call to the store. The jobs cannot be
 * unique, have a lane or an id, or wait for others. `ids` (may be NULL) has room for `count`
 * elements. All jobs are added or none, if the store can write so. Otherwise the jobs before the
 * one that failed are added; after TRUCE_UNKNOWN, any of them may be. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_add_many(truce_queue *queue,
                                                              const bson_t *const *payloads,
                                                              size_t count,
                                                              const truce_job_options *options,
                                                              bson_oid_t *ids, bson_error_t *error);

/* ---- dependencies ------------------------------------------------------------------------- */

/* A job that waits for others is blocked until they have ended. The commit that ends the last of
 * them makes it ready. */

/* A job of a workflow. */
typedef struct truce_flow_job {
    /* Unique in the workflow; stored in the job. */
    const char *name;
    /* All queues belong to one store. */
    truce_queue *queue;
    const bson_t *payload;
    /* NULL means none. The job is neither unique nor in a batch; its name and id are set here. */
    const truce_job_options *options;
    /* The names of the jobs that it waits for, followed by NULL. NULL means none. */
    const char *const *after;
    /* Must be zero. */
    uint64_t reserved[2];
} truce_flow_job;

/*
 * Adds a workflow in one commit: up to 500 jobs with up to 5,000 dependencies. `ids` has room for
 * `count` elements. In these cases the call fails with TRUCE_INVALID and adds nothing:
 *   - a name is missing or occurs twice;
 *   - a job waits for a name that does not exist;
 *   - jobs wait for each other in a cycle, which the message names.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_add_flow(const truce_flow_job *jobs,
                                                              size_t count, truce_commit *commit,
                                                              bson_oid_t *ids, bson_error_t *error);

/* Closes a batch: no more jobs can be added, and the closing job runs after the last of them has
 * ended. The call may be repeated. If the job closes no batch, the call fails with
 * TRUCE_INVALID. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_close(truce_queue *queue, truce_commit *commit,
                                                           const bson_oid_t *id,
                                                           bson_error_t *error);

/* Returns the jobs that a job waited for, as far as they have ended: {_id, name?, queue, state,
 * result?, errors?}. Of `errors`, only the last element is returned. The caller closes the cursor. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_results(truce_store *store,
                                                             const bson_oid_t *id,
                                                             truce_cursor **cursor,
                                                             bson_error_t *error);

/* Returns the jobs that are connected with a job, up to 1,000: an array of {_id, name?, queue,
 * state, level, after: [_id ...]}. Each job follows the jobs that it waits for. `level` is 0 for
 * jobs that wait for none. If the job does not exist, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_graph(truce_store *store, const bson_oid_t *id,
                                                           bson_t *graph, bson_error_t *error);

/* ---- claiming ----------------------------------------------------------------------------- */

/*
 * Claims the next ready job: the highest priority, then the oldest. If no job is ready, or the
 * queue is paused, the call fails with TRUCE_NOT_FOUND. The claim also makes delayed jobs ready
 * when they are due, and releases jobs whose worker died.
 *
 * A worker counts as dead if this process has watched the job's lease for its whole duration, by
 * its monotonic clock, without an extension. Therefore a wrong clock neither takes a job from a
 * live worker nor keeps the job of a dead one.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_claim(truce_queue *queue, truce_job **job,
                                                           bson_error_t *error);
/* Claims up to `most` jobs (at most 1,000) in one call. If no job is ready, the call fails with
 * TRUCE_NOT_FOUND and *count is 0. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_claim_many(truce_queue *queue, size_t most,
                                                                truce_job **jobs, size_t *count,
                                                                bson_error_t *error);
/* Claims a job like truce_queue_claim, and waits up to `timeout_ms` for one. If the store supports
 * it (truce_wait), adding a job in any process wakes the call. If no job came, the call fails with
 * TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_claim_wait(truce_queue *queue,
                                                                uint32_t timeout_ms,
                                                                truce_job **job,
                                                                bson_error_t *error);

/* A queue to claim from, with its weight. */
typedef struct truce_queue_source {
    truce_queue *queue;
    /* The weight, at most 1,000. 0 means 1. */
    uint32_t weight;
    /* Must be zero. */
    uint64_t reserved[2];
} truce_queue_source;

/* Claims up to `most` (1,000) jobs of several queues, up to 100. The order of the queues is drawn
 * by their weights: a queue of weight 3 comes first three times as often as one of weight 1. A
 * queue without ready jobs yields to the others. If none has a job, the call fails with
 * TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_claim_from(const truce_queue_source *sources,
                                                                size_t count, size_t most,
                                                                truce_job **jobs, size_t *found,
                                                                bson_error_t *error);

/* Frees the claimed job in this process. If it has not ended, it stays running until its lease
 * ends. NULL is allowed. */
TRUCE_EXPORT void truce_job_free(truce_job *job);

/* Returns the id. The results of the accessors below are borrowed from the job. */
TRUCE_EXPORT const bson_oid_t *truce_job_id(const truce_job *job);
/* Returns the document as it was claimed. */
TRUCE_EXPORT const bson_t *truce_job_document(const truce_job *job);
/* Returns the payload. */
TRUCE_EXPORT const bson_t *truce_job_payload(const truce_job *job);
/* Returns the queue handle that claimed the job. */
TRUCE_EXPORT truce_queue *truce_job_queue(const truce_job *job);
/* Returns the number of this attempt, from 1. */
TRUCE_EXPORT uint32_t truce_job_attempt(const truce_job *job);
/* Returns the epoch, which increases with each claim of the job: the fencing token for effects
 * outside the store. */
TRUCE_EXPORT int64_t truce_job_epoch(const truce_job *job);

/* ---- running jobs ------------------------------------------------------------------------- */

/* If this worker no longer holds the job, the following calls fail with TRUCE_EXPIRED and change
 * nothing: the lease ended and the job was released, or the job was cancelled. */

/* Renews the lease. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_extend(truce_job *job, bson_error_t *error);

/* Returns true if any process has cancelled the job. The call reads the store at most twice a
 * second. */
TRUCE_EXPORT bool truce_job_cancelled(truce_job *job);

/* Records the progress in the job, for other processes to read. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_progress(truce_job *job, const bson_t *progress,
                                                            bson_error_t *error);

/* Sets the result that truce_job_commit stores; copied. The function of the commit may call it. */
TRUCE_EXPORT void truce_job_result(truce_job *job, const bson_t *result);

/* Runs `function` like truce_transact and ends the job as done in the same commit: both or neither.
 * On a conflict, the function runs again. If this commit turns out to have taken effect before, the
 * call returns TRUCE_OK and sets *options->earlier. `options` may be NULL. A mechanism, lease, or deadline of 0 means that of
 * the queue. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_commit(truce_job *job,
                                                          truce_commit_function *function,
                                                          void *arg,
                                                          const truce_commit_options *options,
                                                          bson_error_t *error);

/* Runs a step of a job. It fills `result` (an empty document), which is stored in the job in the
 * same commit as the changes. */
typedef truce_status truce_step_function(truce_commit *commit, void *arg, bson_t *result,
                                         bson_error_t *error);

/* Runs a step unless an earlier attempt has completed it: a retried job thus continues after its
 * last step. `name` is unique among the steps and sleeps of the job, and has no dots and no "$". A
 * second step of the same name in one attempt is TRUCE_INVALID; a step that failed may be repeated.
 * `result` (NULL means not wanted) is initialized here; the caller destroys it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_step(truce_job *job, const char *name,
                                                        truce_step_function *function, void *arg,
                                                        bson_t *result, bson_error_t *error);

/*
 * Between its steps, a job may sleep or wait for an event without occupying a worker.
 *
 * If the call fails with TRUCE_NOT_FOUND, the job was suspended and this worker no longer holds it:
 * free it and claim another. When the time comes, the job is claimed again and runs from its
 * beginning; its completed steps are not repeated, and no attempt is counted. TRUCE_OK means that
 * the sleep or wait has ended, and the job continues. `name` follows the rules of a step's name,
 * and no step of the job has the same name. A second sleep or wait of the same name in one attempt
 * is TRUCE_INVALID; a call that failed may be repeated.
 */

/* Sleeps once for each name, across all attempts. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_sleep(truce_job *job, const char *name,
                                                         int64_t ms, bson_error_t *error);
/* Waits for an event up to `timeout_ms` from the first call with this name; -1 means forever. If
 * truce_queue_signal has sent the event, before or now, *came is true and `event` contains it.
 * Otherwise *came is false, and later calls return the same, even if the event arrives. `event` is
 * always initialized; the caller destroys it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_wait(truce_job *job, const char *name,
                                                        int64_t timeout_ms, bson_t *event,
                                                        bool *came, bson_error_t *error);
/* Sends an event to a live job of the queue, whether the job waits for it already or not. The first
 * event of a name counts; later ones change nothing. `event` has up to 64 KiB; NULL means empty. If
 * the job does not exist, the call fails with TRUCE_NOT_FOUND. If it has ended, the call fails with
 * TRUCE_INVALID. If it already has 100 events, the call fails with TRUCE_LIMIT. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_signal(truce_queue *queue,
                                                            truce_commit *commit,
                                                            const bson_oid_t *id, const char *name,
                                                            const bson_t *event,
                                                            bson_error_t *error);

/* Ends the job as done. This and the following ends are a part of `commit`, or take effect now if
 * it is NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_done(truce_job *job, truce_commit *commit,
                                                        const bson_t *result, bson_error_t *error);
/* Ends up to 1,000 jobs that this queue handle claimed, each like truce_job_done without a commit;
 * in one write if the store supports it. `results` (NULL means none) and its elements may be NULL.
 * statuses[i] (NULL means not wanted) receives the status that truce_job_done would return for each
 * job. Returns the first status that is not TRUCE_OK. If the call fails with TRUCE_INVALID, nothing
 * was done. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_done_many(truce_queue *queue,
                                                               truce_job *const *jobs, size_t count,
                                                               const bson_t *const *results,
                                                               truce_status *statuses,
                                                               bson_error_t *error);
/* Ends the attempt as failed. The job is retried after `delay_ms` (-1 means the queue's backoff),
 * or is dead after its last attempt. The first 2,000 bytes of `text` are recorded. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_fail(truce_job *job, truce_commit *commit,
                                                        const char *text, int64_t delay_ms,
                                                        bson_error_t *error);
/* Postpones the job by `delay_ms` (0 means that any worker may claim it immediately). This attempt
 * does not count. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_snooze(truce_job *job, truce_commit *commit,
                                                          int64_t delay_ms, bson_error_t *error);
/* Ends the job as discarded: it is not retried and is not a dead letter. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_discard(truce_job *job, truce_commit *commit,
                                                           const char *text, bson_error_t *error);

/* ---- administration ----------------------------------------------------------------------- */

/* Returns the document of a job. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_get(truce_queue *queue, truce_commit *commit,
                                                         const bson_oid_t *id, bson_t *document,
                                                         bson_error_t *error);
/* Ends a live job as cancelled, also while it runs. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_cancel(truce_queue *queue,
                                                            truce_commit *commit,
                                                            const bson_oid_t *id,
                                                            bson_error_t *error);
/* Makes a delayed, dead, cancelled, or discarded job ready now, with all of its attempts. Jobs that
 * were cancelled because of it wait for it again, and so on. If another live job has its key, the
 * call fails with TRUCE_INVALID. If more than 400 jobs were cancelled with it, the call fails with
 * TRUCE_LIMIT. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_retry(truce_queue *queue, truce_commit *commit,
                                                           const bson_oid_t *id,
                                                           bson_error_t *error);
/* Ends a job as discarded that is neither running nor done. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_discard(truce_queue *queue,
                                                             truce_commit *commit,
                                                             const bson_oid_t *id,
                                                             bson_error_t *error);
/* Retries up to `limit` (0 means 1,000, which is also the maximum) dead letters of the queue, the
 * oldest first. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_redrive(truce_queue *queue, uint32_t limit,
                                                             uint32_t *count, bson_error_t *error);

/* Pauses a queue: jobs can be added, but not claimed. Every process applies it within a second. The
 * collection `truce_queues` contains {_id: "mail", paused: true}. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_pause(truce_queue *queue, bson_error_t *error);
/* Resumes a paused queue. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_resume(truce_queue *queue,
                                                            bson_error_t *error);

/* Limits of a queue over all processes. If all fields are zero, the queue has no limits. */
typedef struct truce_queue_limits {
    /* The number of jobs that run concurrently. 0 means any number. */
    uint32_t running;
    /* The rate limit: at most this number of claims in any period of per_ms. 0 means no limit. If
     * the clocks of the claiming processes differ, the limit applies to each group of processes
     * with the same clock. */
    uint32_t rate;
    uint32_t per_ms;
    /* The limits belong to this pool, which other queues may share. NULL means the one of the
     * queue. */
    const char *pool;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_queue_limits;

/*
 * Sets the limits of a queue, or removes them if `limits` is NULL. Every process applies them
 * within a second; a job that was claimed without limits does not count. A pool has the limits that
 * were set last. Setting the same limits again does not begin a new window.
 *
 * With limits, a claim is a commit, and every claim and every end update one document of the queue
 * (or the pool), in the collection `truce_queue_limiters`. This limits the queue to a few thousand
 * jobs per second.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_limit(truce_queue *queue,
                                                           const truce_queue_limits *limits,
                                                           bson_error_t *error);

/* Returns the statistics of every queue of the store, ordered by name: an array of {queue,
 * paused, ready, delayed, waiting, blocked, running, dead, oldest_ms}. `oldest_ms` is the time
 * for which the oldest ready job has been ready. Jobs that are done, cancelled, or discarded are
 * not counted. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_stats(truce_store *store, bson_t *stats,
                                                           bson_error_t *error);

TRUCE_END_DECLS

#endif
