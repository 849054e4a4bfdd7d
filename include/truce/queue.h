#ifndef TRUCE_QUEUE_H
#define TRUCE_QUEUE_H

/*
 * A job queue whose effects are fenced: what a job changes and that it is done are one commit, which
 * holds the job under its claim. The effects of a worker that lost its lease are refused, not only its
 * acknowledgement.
 *
 *     {_id, queue: "people", state: "ready", priority: 0, created, attempt: 0, attempts_max: 10, epoch: 0,
 *      payload: {command: "ADD_FRIEND", users: [1, 2]},
 *      undone: {state: "ready", queue: "people", rank: 0, at: <date>}}
 *
 * in the collection `truce_queue`. Live jobs alone have `undone`, and the index by which jobs are claimed
 * is a sparse one on it: jobs that are done cost a claim nothing. The states:
 *
 *     ready     may be claimed           delayed    becomes ready at undone.at
 *     running   claimed: lease {worker, token, since, ms}, which ends at undone.at
 *     waiting   for its turn in its lane   blocked    by jobs that it waits for
 *     done      with `result`; lease.committed: by truce_job_commit
 *     dead      failed for good: the dead letters
 *     cancelled, discarded               these four have `ended`, and may have `expires`
 *
 * Besides, where there is such: name, metadata, tags, key, lane {name, width, rate?, per_ms?}, timeout_ms, keep_ms, steps: {name: result}, progress,
 * dead: {queue, at} of a dead letter, by which it is found, after: {left, failure, failed: [because of whom it is cancelled]} of one that waits for others,
 * then and told: the ids of those that wait, or waited, for this one, events: {name: event}, awaits: the one that it
 * was laid aside for, waits: {name: {until}},
 * errors: [{at, attempt, epoch, worker, text}], the last ten, keep: {cancelled, discarded, dead}, where that is not keep_ms.
 *
 * Jobs run at least once. What they do through truce_job_commit and truce_job_step happens exactly once.
 * For effects elsewhere the epoch, which rises with each claim, is a fencing token to hand on (M. Kleppmann,
 * "How to do distributed locking", 2016).
 *
 * After the job queue in "How to Implement Robust and Scalable Transactions Across Documents with MongoDB"
 * (A. Girbal).
 *
 * Threads: a queue may be used from any number of threads at once, a job by one at a time, but for
 * truce_job_extend and truce_job_cancelled, which a second thread may call. Jobs must be freed before their
 * queue, the queue before its store is closed.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_queue truce_queue;
typedef struct truce_job truce_job;

/* How long a job waits after its n-th failure (from 1), in ms. */
typedef int64_t truce_backoff_function(uint32_t attempt, void *arg);

typedef enum truce_backoff {
    TRUCE_BACKOFF_EXPONENTIAL = 0, /* twice as long each time */
    TRUCE_BACKOFF_FIXED,
} truce_backoff;

/* Zero means default; the queue has to be said (INVALID: it is missing). Texts are copied. */
typedef struct truce_queue_options {
    const char *queue;     /* for example "mail"; 1 to 200 bytes */
    const char *worker;    /* who claims, for people; NULL: "HOST:PROCESS" */
    uint32_t lease_ms;     /* how long a claim lasts without truce_job_extend; 0: 30,000 */
    uint32_t attempts_max; /* of jobs that do not say it; 0: 10 */
    truce_backoff backoff;
    uint32_t
        backoff_ms; /* after the first failure; 0: 1,000. A wait is between half of it and all of it */
    uint32_t backoff_max_ms;                  /* 0: 3,600,000 */
    truce_backoff_function *backoff_function; /* instead, taken as it is; NULL: none */
    void *backoff_arg;
    /* Of jobs that do not say it: how long one that has ended is kept, until truce_sweep removes it; -1: for ever. */
    int64_t keep_ms;           /* one that is done; 0: 7 days */
    int64_t keep_cancelled_ms; /* 0: as keep_ms */
    int64_t keep_discarded_ms; /* 0: as keep_ms */
    int64_t
        keep_dead_ms; /* a dead letter; 0: for ever. One that others wait for is discarded then */
    truce_mechanism mechanism; /* of its commits */
    uint32_t deadline_ms;      /* 0: 30,000 */
    uint64_t reserved[4];      /* zeros */
} truce_queue_options;

/* Never fails and asks the store nothing; wrong options are refused by the first call. */
TRUCE_EXPORT truce_queue *truce_queue_new(truce_store *store, const truce_queue_options *options);
/* NULL is allowed. */
TRUCE_EXPORT void truce_queue_free(truce_queue *queue);

/* ---- adding jobs ------------------------------------------------------------------------------ */

/* What a unique job meets. */
typedef enum truce_unique_scope {
    TRUCE_UNIQUE_LIVE =
        0,             /* a job of its key that has not ended; with a period one that has, too */
    TRUCE_UNIQUE_KEPT, /* one that is still there, ended or not: an idempotency key */
    TRUCE_UNIQUE_UNCLAIMED, /* one that no worker has. One that runs gives its key up to the new job: what was said
                               while it ran is not lost */
} truce_unique_scope;

typedef enum truce_conflict_policy {
    TRUCE_ON_CONFLICT_IGNORE = 0, /* the old job stays as it is */
    TRUCE_ON_CONFLICT_REPLACE,    /* it gets the new payload, priority, metadata, tags and time */
    TRUCE_ON_CONFLICT_RESCHEDULE, /* it gets the new time */
    TRUCE_ON_CONFLICT_REFUSE,     /* DUPLICATE */
} truce_conflict_policy; /* a job that is running or has ended is never changed: it is ignored, or refused */

/* What becomes of a job when one that it waits for ends otherwise than done. */
typedef enum truce_job_failure {
    TRUCE_FAILURE_CANCEL =
        0, /* it is cancelled, with all that wait for it, and lives again if the other is retried */
    TRUCE_FAILURE_GO_ON, /* it runs all the same */
    TRUCE_FAILURE_WAIT, /* it waits on while the other is dead, and may be retried; else it is cancelled */
} truce_job_failure;

typedef struct truce_job_options {
    int64_t delay_ms;      /* from now ... */
    int64_t run_at_ms;     /* ... or a time, ms since 1970; not both */
    int32_t priority;      /* -1,000 to 1,000: the highest first, then the oldest */
    uint32_t attempts_max; /* 0: the queue's */
    uint32_t
        timeout_ms;  /* the lease is not extended beyond that time after the claim; 0: no limit */
    int64_t keep_ms; /* 0: the queue's; -1: for ever; so the others */
    int64_t keep_cancelled_ms, keep_discarded_ms, keep_dead_ms;
    const bson_t *metadata; /* NULL: none */
    const bson_t *tags;     /* an array of texts; NULL: none */
    const char *unique; /* the key of a unique job in its queue; NULL: it is not unique, unless: */
    bool
        unique_payload; /* the payload is the key (or a part of it), in whatever order its fields stand, and
                            whatever the types of its numbers are */
    int64_t
        unique_period_ms; /* the number of the period that the time is in is a part of the key: at
                                 most one job in each period, as it is kept for as long; 0: no period */
    truce_unique_scope unique_scope;
    truce_conflict_policy on_conflict;
    /* Jobs of one lane run one after the other, in the order in which they were added, whatever their priorities. One
     * that fails keeps its turn until its next attempt. NULL: no lane. */
    const char *lane;
    uint32_t lane_width; /* so many of the lane at a time; 0: 1. What was said last counts */
    /* At most so many jobs of the lane begin in any lane_per_ms, over all processes, as truce_queue_limits says; 0: no
     * limit. Each attempt counts. A job that the rate does not allow yet is delayed. */
    uint32_t lane_rate;
    uint32_t lane_per_ms;
    /* It is ready only when these jobs, of any queues of the store, have ended: up to 500. INVALID: one is not there, or has
     * ended so that this one would be cancelled. Up to 1,000 wait for one. */
    const bson_oid_t *after;
    size_t after_count;
    truce_job_failure failure;
    bool
        open; /* the job closes a batch: it waits for truce_queue_close besides, and until then for ... */
    const bson_oid_t
        *batch;       /* ... each job that names it here; any number. INVALID: it waits no more */
    const char *name; /* for people, 1 to 200 bytes; NULL: none */
    const bson_oid_t *id; /* NULL: a new one */
    uint64_t reserved[4]; /* zeros */
} truce_job_options;

typedef enum truce_added {
    TRUCE_ADDED_NEW = 1,
    TRUCE_ADDED_EXISTING, /* nothing was added: a job of its key is there */
    TRUCE_ADDED_REPLACED,
    TRUCE_ADDED_RESCHEDULED,
} truce_added;

/* "new", "existing", "replaced", "rescheduled" */
TRUCE_EXPORT const char *truce_added_name(truce_added added);

typedef struct truce_job_added {
    bson_oid_t id; /* of the new job, or of the one that was met */
    truce_added added;
    uint64_t reserved[2]; /* zeros */
} truce_job_added;

/* With a commit it is a part of it. `options` and `added` may be NULL. INVALID, LIMIT: nothing was added.
 * UNKNOWN: the store did not answer; a job with a key of TRUCE_UNIQUE_KEPT may be added again. DUPLICATE:
 * the id is taken, or TRUCE_ON_CONFLICT_REFUSE. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_add(truce_queue *queue, truce_commit *commit,
                                                         const bson_t *payload,
                                                         const truce_job_options *options,
                                                         truce_job_added *added,
                                                         bson_error_t *error);

/* Many jobs with one set of options, in one call to the store; not unique ones, and without a lane, an id, or others to wait for. `ids` (may be NULL) has room for
 * `count`, at most 10,000. All or none where the store can write so; else those before the one that
 * failed are added, and on UNKNOWN any of them may be. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_add_many(truce_queue *queue,
                                                              const bson_t *const *payloads,
                                                              size_t count,
                                                              const truce_job_options *options,
                                                              bson_oid_t *ids, bson_error_t *error);

/* ---- jobs that wait for others ------------------------------------------------------------------ */

/* Every end of a job lets those go that waited for it alone, in one commit with the end. */

/* A job of a workflow. */
typedef struct truce_flow_job {
    const char *name;   /* one in the workflow; kept in the job */
    truce_queue *queue; /* of the same store all of them */
    const bson_t *payload;
    const truce_job_options
        *options; /* NULL: none. Neither unique nor of a batch; its name and id are set here */
    const char *const
        *after; /* the names of those that it waits for, NULL after the last; NULL: none */
    uint64_t reserved[2]; /* zeros */
} truce_flow_job;

/* All of them in one commit, up to 500, which wait for each other up to 5,000 times. `ids` has room for `count`.
 * INVALID, nothing was added: a name is missing, or there twice; a job waits for one that is not there; they wait for
 * each other in a circle, which the sentence names. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_add_flow(const truce_flow_job *jobs,
                                                              size_t count, truce_commit *commit,
                                                              bson_oid_t *ids, bson_error_t *error);

/* No more jobs are added to the batch: its closing job goes when the last of them has ended. Once or more often.
 * INVALID: the job closes none. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_close(truce_queue *queue, truce_commit *commit,
                                                           const bson_oid_t *id,
                                                           bson_error_t *error);

/* Of the jobs that a job waited for, as far as they have ended: {_id, name?, queue, state, result?}. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_results(truce_store *store,
                                                             const bson_oid_t *id,
                                                             truce_cursor **cursor,
                                                             bson_error_t *error);

/* The jobs that hang together with a job, up to 1,000: an array of {_id, name?, queue, state, level, after: [_id ...]},
 * those that wait behind those that they wait for; level: 0 for those that wait for none. NOT_FOUND: there is no such
 * job. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_graph(truce_store *store, const bson_oid_t *id,
                                                           bson_t *graph, bson_error_t *error);

/* ---- claiming --------------------------------------------------------------------------------- */

/* Claims the next job that is ready: the highest priority, then the oldest. NOT_FOUND: there is none, or the queue
 * is paused. On the way delayed jobs that are due become ready, and jobs whose worker is gone are given back: this
 * process has then watched the job's lease for as long as it lasts, by its monotonic clock, without a sign of life. So
 * a wrong clock neither takes a job from a living worker nor keeps one of a dead worker. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_claim(truce_queue *queue, truce_job **job,
                                                           bson_error_t *error);
/* Up to `most` (1,000) at once. NOT_FOUND: none; *count is 0 then. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_claim_many(truce_queue *queue, size_t most,
                                                                truce_job **jobs, size_t *count,
                                                                bson_error_t *error);
/* As truce_queue_claim; where there is no job it waits for one, for so long. Added jobs wake it, in any process, where the store
 * can (truce_wait). NOT_FOUND: none came. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_claim_wait(truce_queue *queue,
                                                                uint32_t timeout_ms,
                                                                truce_job **job,
                                                                bson_error_t *error);

typedef struct truce_queue_source {
    truce_queue *queue;
    uint32_t weight;      /* 0: 1; up to 1,000 */
    uint64_t reserved[2]; /* zeros */
} truce_queue_source;

/* Up to `most` (1,000) jobs of several queues, up to 100, which are asked in an order that is drawn by their weights:
 * one of the weight 3 comes first three times as often as one of the weight 1. Each takes the turn of those that have
 * nothing. NOT_FOUND: none has a job. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_claim_from(const truce_queue_source *sources,
                                                                size_t count, size_t most,
                                                                truce_job **jobs, size_t *found,
                                                                bson_error_t *error);

/* Forgets the claim here; the job stays running until its lease ends. NULL is allowed. */
TRUCE_EXPORT void truce_job_free(truce_job *job);

/* Borrowed from the job. */
TRUCE_EXPORT const bson_oid_t *truce_job_id(const truce_job *job);
TRUCE_EXPORT const bson_t *truce_job_document(const truce_job *job); /* as it was claimed */
TRUCE_EXPORT const bson_t *truce_job_payload(const truce_job *job);
TRUCE_EXPORT truce_queue *truce_job_queue(const truce_job *job); /* that claimed it */
TRUCE_EXPORT uint32_t truce_job_attempt(const truce_job *job);   /* 1: the first */
/* Rises with each claim of the job: the fencing token for effects outside the store. */
TRUCE_EXPORT int64_t truce_job_epoch(const truce_job *job);

/* ---- at work ---------------------------------------------------------------------------------- */

/*
 * All that follow answer EXPIRED if the job is not this worker's any more: its lease ended and it was given
 * back, or it was cancelled. Nothing was changed then.
 */

/* The lease begins anew. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_extend(truce_job *job, bson_error_t *error);

/* Somebody cancelled the job, on whatever machine. Looks at the store twice a second at most. */
TRUCE_EXPORT bool truce_job_cancelled(truce_job *job);

/* Kept in the job, for whoever polls. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_progress(truce_job *job, const bson_t *progress,
                                                            bson_error_t *error);

/* What the job will be done with, for truce_job_commit; copied. May be called in its function. */
TRUCE_EXPORT void truce_job_result(truce_job *job, const bson_t *result);

/* Runs `function` as truce_transact does, and the job is done in the same commit: both or neither. The
 * function runs again on a conflict. OK also if this very commit turns out to have taken effect. `options`
 * may be NULL; its mechanism, lease and deadline are the queue's if they are 0. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_commit(truce_job *job,
                                                          truce_commit_function *function,
                                                          void *arg,
                                                          const truce_commit_options *options,
                                                          bson_error_t *error);

/* A step of a job: fills `result` (an empty document), which is kept in the job in the same commit as what
 * it changes. */
typedef truce_status truce_step_function(truce_commit *commit, void *arg, bson_t *result,
                                         bson_error_t *error);

/* Runs a step unless it was done, by this attempt or an earlier one: a job that is tried again goes on
 * after its last step. `name`: without dots and "$". `result` (NULL: not wanted) is initialised here; the
 * caller destroys it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_step(truce_job *job, const char *name,
                                                        truce_step_function *function, void *arg,
                                                        bson_t *result, bson_error_t *error);

/*
 * Between its steps a job may sleep, or wait for an event, and holds no worker meanwhile. NOT_FOUND: it was laid aside, and is
 * not this worker's any more: free it, and take another. When it is time it is claimed again, begins at its
 * beginning, and finds the steps that it did; no attempt is counted. OK: it is over, and the job goes on. `name`: as
 * that of a step, and of no other step of the job.
 */

/* Once for each name, whatever happens between. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_sleep(truce_job *job, const char *name,
                                                         int64_t ms, bson_error_t *error);
/* `timeout_ms` from the first call of this name; -1: for ever. *came: it came (by truce_queue_signal, before or
 * now), and `event` is it; false: it did not, and later calls say so again, even if it comes. `event` is always initialised;
 * the caller destroys it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_wait(truce_job *job, const char *name,
                                                        int64_t timeout_ms, bson_t *event,
                                                        bool *came, bson_error_t *error);
/* Tells a live job of the queue, whether it waits already or not. The first event of a name counts; others
 * change nothing. `event`: up to 64 KiB; NULL: empty. NOT_FOUND: there is no such job; INVALID: it has ended; LIMIT: 100 were
 * told. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_signal(truce_queue *queue,
                                                            truce_commit *commit,
                                                            const bson_oid_t *id, const char *name,
                                                            const bson_t *event,
                                                            bson_error_t *error);

/* The ends. With a commit (NULL: alone, now) they are a part of it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_done(truce_job *job, truce_commit *commit,
                                                        const bson_t *result, bson_error_t *error);
/* As truce_job_done, each alone and now, for up to 1,000 jobs that this queue claimed: in one write where the store
 * can. `results` (NULL: none) and what is in it may be NULL. statuses[i] (NULL: not wanted) says of each what
 * truce_job_done would have; what is returned is the first that is not OK. INVALID: nothing was done. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_done_many(truce_queue *queue,
                                                               truce_job *const *jobs, size_t count,
                                                               const bson_t *const *results,
                                                               truce_status *statuses,
                                                               bson_error_t *error);
/* It is tried again after `delay_ms` (-1: the queue's backoff), or is dead after its last attempt. The
 * first 2,000 bytes of the text are kept. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_fail(truce_job *job, truce_commit *commit,
                                                        const char *text, int64_t delay_ms,
                                                        bson_error_t *error);
/* Later (0: at once, by whoever comes), and this attempt does not count. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_snooze(truce_job *job, truce_commit *commit,
                                                          int64_t delay_ms, bson_error_t *error);
/* Not tried again, and no dead letter. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_job_discard(truce_job *job, truce_commit *commit,
                                                           const char *text, bson_error_t *error);

/* ---- for those who look after a queue ----------------------------------------------------------- */

/* NOT_FOUND: there is no such job in the queue. All with a commit, or NULL. INVALID: its state does not
 * allow it; the sentence says which it is. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_get(truce_queue *queue, truce_commit *commit,
                                                         const bson_oid_t *id, bson_t *document,
                                                         bson_error_t *error);
/* A live job ends as cancelled, also while it runs. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_cancel(truce_queue *queue,
                                                            truce_commit *commit,
                                                            const bson_oid_t *id,
                                                            bson_error_t *error);
/* Ready now, with all of its attempts: a delayed, dead, cancelled or discarded one. Those that were
 * cancelled because of it wait for it again, and so on. INVALID also: another live job has its key; LIMIT: more than 400
 * were cancelled with it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_retry(truce_queue *queue, truce_commit *commit,
                                                           const bson_oid_t *id,
                                                           bson_error_t *error);
/* One that is not running, and not done. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_discard(truce_queue *queue,
                                                             truce_commit *commit,
                                                             const bson_oid_t *id,
                                                             bson_error_t *error);
/* Up to `limit` (0: 1,000) dead letters of the queue are retried, the oldest first. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_redrive(truce_queue *queue, uint32_t limit,
                                                             uint32_t *count, bson_error_t *error);

/* A paused queue takes jobs and gives none; every process knows it within a second. In the collection
 * `truce_queues`: {_id: "mail", paused: true}. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_pause(truce_queue *queue, bson_error_t *error);
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_resume(truce_queue *queue,
                                                            bson_error_t *error);

/* How much of a queue may be under way, over all processes. All zeros: no limits. */
typedef struct truce_queue_limits {
    uint32_t running; /* jobs that run at once; 0: any number */
    /* At most so many claims in any per_ms; 0: no limit. If the clocks of the claimers differ, at most so many for each clock
     * that differs. */
    uint32_t rate;
    uint32_t per_ms;
    const char *
        pool; /* the limits are those of a pool, which other queues may be in, too; NULL: the queue's own */
    uint64_t reserved[4]; /* zeros */
} truce_queue_limits;

/* Sets the limits of a queue. `limits` NULL: none. Every process applies them within a second; a job that was claimed without
 * them does not count. A pool has the limits that were set last. Setting the same limits again begins no new window. A
 * claim then is a commit, and every claim and every end write one document of the queue (or the pool): some
 * thousands a second. The document is in the collection `truce_queue_gates`. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_limit(truce_queue *queue,
                                                           const truce_queue_limits *limits,
                                                           bson_error_t *error);

/* Of every queue of the store, in the order of their names: an array of {queue, paused, ready, delayed, waiting,
 * blocked, running, dead, oldest_ms: how long the oldest ready job has been ready}; what has ended well is not counted. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_queue_stats(truce_store *store, bson_t *stats,
                                                           bson_error_t *error);

TRUCE_END_DECLS

#endif
