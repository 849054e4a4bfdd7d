#ifndef TRUCE_PATTERNS_QUEUE_QUEUE_H
#define TRUCE_PATTERNS_QUEUE_QUEUE_H

/* Declarations that the files of the job queue share. The contract is in truce/queue.h, the essay
 * in queue.c. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/limits.h"
#include "base/status.h"
#include "commit/journal.h"
#include "patterns/queue/queue_times.h"
#include "store/reserved_names.h"
#include "truce/id.h"
#include "truce/queue.h"
#include "truce/sys/store.h"

/* The threads of one handle that claim at the same time (queue_claim.c). */
struct queue_claims {
    /* Protects the fields below, except `process`, which does not change. */
    pthread_mutex_t mutex;
    /* The wait queue of claiming threads. Each element is on the stack of its thread. */
    struct claimer *first, *last;
    /* A thread leads: it claims for the wait queue. */
    bool led;
    /* The process that created the queue. A forked child claims alone. */
    pid_t process;
};

/* A handle for a queue. Threads may share it. */
struct truce_queue {
    truce_store *store;
    struct queue_claims claims;
    char *name, *worker;
    uint32_t lease_ms, attempts_max, backoff_ms, backoff_max_ms, deadline_ms;
    truce_backoff backoff;
    truce_backoff_function *backoff_function;
    void *backoff_arg;
    /* How long done, cancelled, discarded, and dead jobs are kept, as in truce_queue_options. */
    int64_t keep_ms, keep_cancelled_ms, keep_discarded_ms, keep_dead_ms;
    truce_mechanism mechanism;
    /* The structure number of the store, plus one, at which the indexes were created, or 0 before
     * that. If the store has another one, the following flags and times are reset. */
    atomic_uint_fast64_t structure;
    /* `paused`, `limited`: the settings as they were last read. `laned`, `linked`: the indexes for
     * lanes, and for workflows, exist. */
    atomic_bool paused, limited, laned, linked;
    /* The last pass promoted as many delayed jobs as it may, so more of them may be due. */
    atomic_bool due_more;
    /* The last claim found no job. `due_ms` is the time at which the next delayed job or cron line
     * was due then, or 0 if it is unknown. */
    atomic_bool quiet;
    atomic_int_fast64_t due_ms;
    /* When a claim last promoted jobs, looked for expired leases, read the settings, fired cron
     * lines, and continued workflows (monotonic, ns). */
    atomic_int_fast64_t promoted_ns, rescued_ns, settings_ns, fired_ns, continued_ns;
    /* The ends of leases from which the next passes continue: for leases that have ended, and for
     * leases that end too late (job_lease.c). */
    atomic_int_fast64_t ended_at_ms, far_at_ms;
    bson_error_t refusal;
    /* The options were invalid; every call fails with `refusal`. */
    bool refused;
};

/* The ways in which a worker can end its claim. JOB_HELD: it has not ended the claim. */
enum job_end { JOB_HELD = 0, JOB_DONE, JOB_FAILED, JOB_SNOOZED, JOB_DISCARDED };

/* A claimed job. */
struct truce_job {
    truce_queue *queue;
    /* The document as it was claimed. Owned; `payload` borrows from it. `steps` has the results of
     * steps that this worker knows, as {name: result}. `called` has the steps and sleeps that calls
     * with this handle have completed or found complete, as {name: "step" or "sleep"}; `awaited`
     * has the waits. */
    bson_t document;
    bson_t payload;
    bson_t steps, called, awaited;
    /* The result for truce_job_commit, or NULL. Owned. */
    bson_t *result;
    /* The _id of the job, and the token of this claim. */
    bson_oid_t id, token;
    /* `since_ms` is the time of the claim by the wall clock of this process. `timeout_ms` is 0 for
     * a job without a timeout. */
    int64_t epoch, since_ms, timeout_ms;
    /* The number of this attempt, from 1. */
    uint32_t attempt;
    /* The end that a call has stored and that the store has acknowledged. */
    enum job_end ended;
    /* The end that the caller has added to a commit of its own. The commit may still fail. */
    enum job_end staged;
    /* The job was cancelled or lost, or the pool gave it up. */
    atomic_bool cancelled;
    /* When the store was last checked for a cancellation of the job, by the monotonic clock. */
    atomic_int_fast64_t checked_ns;
};

/* Returns the deadline of a call on one job, or of a claim, also if the options have none. Such a
 * call takes several calls of the store, and each of them would wait for a silent server. */
uint32_t truce__queue_deadline_ms(const truce_queue *queue);
/* Returns that of a call that has a store, but no queue. */
uint32_t truce__queue_store_deadline_ms(const truce_store *store);
/* Returns the refusal of the options, or ensures the indexes. Every call begins with it. */
truce_status truce__queue_ready(truce_queue *queue, bson_error_t *error);
/* Creates the indexes that every queue needs. */
truce_status truce__queue_indexes(truce_store *store, bson_error_t *error);
/* Ensures an index on these fields; NULL ends the list. */
truce_status truce__queue_index(truce_store *store, const char *collection, const char *name,
                                bool sparse, const char *const *fields, bson_error_t *error);

/* Returns the lease of the commits of the queue's jobs. It is not longer than the lease of the
 * jobs. */
static inline uint32_t truce__queue_commit_lease(const truce_queue *queue)
{
    return queue->lease_ms < COMMIT_LEASE_MS ? queue->lease_ms : COMMIT_LEASE_MS;
}

/* Runs a function in the given commit, or in a commit of its own if `commit` is NULL. */
truce_status truce__queue_run(truce_queue *queue, truce_commit *commit,
                              truce_commit_function *function, void *arg, bson_error_t *error);

/* Sets a field of the queue's settings; a NULL value removes the field. */
truce_status truce__queue_set(truce_queue *queue, const char *field, const bson_value_t *value,
                              bson_error_t *error);

/* ---- documents ------------------------------------------------------------------------------- */

/* Returns a copy of a reason, of at most JOB_ERROR_BYTES_MAX bytes, that ends with a whole
 * character. If it is not valid UTF-8, each byte above 127 becomes "?". Free it with bson_free. */
char *truce__job_error_text(const char *text);
/* Returns the delay in ms after a failed attempt: wait_ms, or with TRUCE_BACKOFF_EXPONENTIAL twice
 * as long after each further attempt, but at most most_ms. The delay is reduced by a random part of
 * up to one half. */
int64_t truce__job_backoff(truce_backoff backoff, int64_t wait_ms, int64_t most_ms,
                           uint32_t attempt);

/* Returns a document as a value of an _id; borrowed from the document. */
static inline bson_value_t truce__queue_document_id(const bson_t *document)
{
    bson_value_t value = {.value_type = BSON_TYPE_DOCUMENT};

    value.value.v_doc.data = (uint8_t *)bson_get_data(document);
    value.value.v_doc.data_len = document->len;
    return value;
}

/* Returns the state of a document: "ready", ..., or "". */
const char *truce__job_state(const bson_t *document);
/* Reads a date at a path. Returns false if the path has no field of that type. */
bool truce__job_date(const bson_t *document, const char *path, int64_t *ms);
/* Reads the token of the claim. Returns false if the job has no lease. */
bool truce__job_token(const bson_t *document, bson_oid_t *token);
/* Returns whether the job is live: ready, delayed, running, waiting, or blocked. */
bool truce__job_live(const bson_t *document);
/* Returns true if a lane or other jobs hold the job back. No clock makes such a job ready, and its
 * lane does not count it in `out`. */
bool truce__job_is_held(const bson_t *document);

/* Appends `state` and `undone` of a job in the queue: ready if at_ms is not in the future, else
 * delayed. */
void truce__job_append_queued(bson_t *set, const char *queue, int32_t priority, int64_t at_ms,
                              int64_t now_ms);
/* Appends `state` and `undone` of a held job: "waiting" (in a lane) or "blocked" (by other
 * jobs). */
void truce__job_append_held(bson_t *set, const char *state, const char *queue, int64_t at_ms,
                            int64_t now_ms);
/* Returns from when a held job may begin. Without a delay, the clock of the process that added it
 * does not count. */
int64_t truce__job_held_start(const bson_t *job, int64_t now_ms);
/* Appends `state` and `undone` of a new job, or of a job that stops being held. The job enters its
 * lane if it has one. Runs in a commit. */
truce_status truce__job_append_started(truce_commit *commit, const bson_t *job, int64_t at_ms,
                                       int64_t now_ms, bson_t *set, bson_error_t *error);

/* The lane that a job names, with its settings. */
struct job_lane {
    const char *name;
    /* If no rate applies, `rate` is 0. */
    int64_t width, rate, per_ms;
};

/* Reads the lane of a job; borrowed from the document. Returns false if it has none. */
bool truce__job_lane(const bson_t *document, struct job_lane *lane);
/* Appends the update of a job that ends in that state; its $set also has `result` (NULL for
 * none). */
void truce__job_update_end(bson_t *update, const bson_t *document, const char *state,
                           const bson_t *result, int64_t now_ms);
/* Appends the update of a job that is done in the commit of its effects: its lease has
 * `committed`. */
void truce__job_update_commit(bson_t *update, const bson_t *document, const bson_t *result,
                              int64_t now_ms);
/* Appends the update of a running job that runs again later; this attempt does not count. */
void truce__job_update_snooze(bson_t *update, const bson_t *document, int64_t at_ms,
                              int64_t now_ms);
/* Appends the update of a job that failed: it waits for its next attempt, or is dead. If delay_ms
 * is -1, the queue's backoff gives the delay. */
void truce__job_update_fail(bson_t *update, const truce_queue *queue, const bson_t *document,
                            const char *text, int64_t delay_ms, int64_t now_ms);
/* Appends the message of a failed attempt to `errors`, as a $push of an update. */
void truce__job_update_error(bson_t *update, const bson_t *document, const char *text,
                             int64_t now_ms);

/* ---- queue_add.c ----------------------------------------------------------------------------- */

/* Appends the fields that all jobs of one kind have, checked: queue, priority, payload, metadata,
 * tags, attempts_max, timeout_ms, keep_ms. `options` may be NULL. */
truce_status truce__job_template(truce_queue *queue, const bson_t *payload,
                                 const truce_job_options *options, bson_t *job,
                                 bson_error_t *error);
/* Inserts a new ready job in a commit, with the fields of `more` added. */
truce_status truce__job_from_template(truce_commit *commit, const bson_t *template,
                                      const bson_t *more, bson_error_t *error);

/* ---- cron.c ---------------------------------------------------------------------------------- */

/* Fires the due cron lines of a queue, up to 100. */
truce_status truce__cron_fire(const truce_queue *queue, bson_error_t *error);
/* Finds when the next cron line of the queue is due. Sets INT64_MAX if there is no line. */
truce_status truce__cron_next_due(const truce_queue *queue, int64_t *due_ms, bson_error_t *error);
/* Fires a cron line that was found, if it has not changed since. */
truce_status truce__cron_fire_one(truce_store *store, const bson_t *cron,
                                  const truce_commit_options *options, bson_error_t *error);
/* Returns the filter of all due cron lines. */
bson_t *truce__cron_due(void);
/* Returns what is wrong with a stored cron line, or NULL if it is valid. */
const char *truce__cron_fault(const bson_t *cron);

/* Inserts one new job under that id in a commit. Its options were checked. */
truce_status truce__job_add(truce_queue *queue, truce_commit *commit, const bson_t *payload,
                            const truce_job_options *options, const bson_oid_t *id,
                            bson_error_t *error);
/* Checks a job before it is added. */
truce_status truce__job_check(truce_queue *queue, const bson_t *payload,
                              const truce_job_options *options, bson_error_t *error);

/* ---- queue_weights.c ------------------------------------------------------------------------- */

/* Draws a source by the weights, from those that are not marked in `tried`. At least one is not. */
size_t truce__queue_draw(const truce_queue_source *sources, size_t count, const bool *tried);

/* ---- queue_claim.c --------------------------------------------------------------------------- */

/* Creates the handle of a job that was claimed under the token; copies the document. */
truce_job *truce__job_new(truce_queue *queue, const bson_t *document, const bson_oid_t *token);

/* Returns the longest sleep after a claim that found nothing (queue_claim_wait.c). */
int64_t truce__queue_pause_ms(const truce_queue *queue);

void truce__claims_init(struct queue_claims *claims);
void truce__claims_destroy(struct queue_claims *claims);

struct sweep;

/* ---- claimed_job.c --------------------------------------------------------------------------- */

/* Records how the job ended. */
static inline void truce__job_ended(truce_job *job, enum job_end end)
{
    job->ended = end;
    truce__queue_ran(job);
}

/* Checks the name of a step, a sleep, or an event (job_steps.c). */
truce_status truce__job_step_check(const char *name, bson_error_t *error);
/* Refuses the name of a step, a sleep, or a wait (`kind`) that is in `called`, a field of the handle.
 * The second call of a name would be skipped as if it were the first. A call that failed may be
 * repeated. */
truce_status truce__job_call_check(const bson_t *called, const char *name, const char *kind,
                                   bson_error_t *error);
/* Returns true if truce_queue_done_many can end the job in one write with others. Else each job has
 * a commit of its own. */
bool truce__job_may_end_with_others(const truce_job *job);

/* ---- fencing (job_fencing.c) ----------------------------------------------------------------- */

/* Returns true if the document still has this claim (QJ2). */
bool truce__job_is_of(const truce_job *job, const bson_t *document);
/* Reads the job in a commit, and fails unless the job still belongs to this claim (QJ2). `document`
 * is always initialized. */
truce_status truce__job_read_mine(truce_job *job, truce_commit *commit, bson_t *document,
                                  bson_error_t *error);
/* Appends the new values of fields of `document`, which is the stored job. */
typedef void job_append_function(bson_t *set, const truce_job *job, const bson_t *document,
                                 const void *arg);
/* Changes fields of this worker's job in a commit of their own (QJ2). The function may run several
 * times. */
truce_status truce__job_set_mine(truce_job *job, job_append_function *append, const void *arg,
                                 bson_error_t *error);

/* ---- queue_control.c ------------------------------------------------------------------------- */

/* Reads a job of the queue in a commit. */
truce_status truce__queue_read_job(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                                   bson_t *job, bson_error_t *error);

/* ---- rate_limit.c ---------------------------------------------------------------------------- */

/* Returns whether the limits allow one more running job now. */
bool truce__limiter_has_capacity(truce_store *store, const bson_t *limiter);
/* Counts a job that leaves the limiter. If the limiter was removed, the call returns TRUCE_OK. */
truce_status truce__limiter_leave(truce_commit *commit, const bson_value_t *id,
                                  bson_error_t *error);
/* Counts one more running job in a commit. Returns NOT_FOUND if the limit is reached, or there is
 * no limiter. */
truce_status truce__limiter_enter(truce_commit *commit, const bson_value_t *id,
                                  bson_error_t *error);
/* Applies an update that changes the state of a job, in a commit that read the job. A job that ran
 * leaves its limiter. A job that ends leaves its lane, whose next jobs go out, and notifies the
 * jobs that wait for it. */
truce_status truce__job_transition(truce_commit *commit, const bson_t *job, const bson_t *update,
                                   bson_error_t *error);

/* ---- job_lane.c ------------------------------------------------------------------------------ */

/* Enters a job into its lane, in the commit that adds the job. Sets *waits if the job must wait for
 * earlier ones; otherwise it may begin at *begin_ms. */
truce_status truce__lane_enter(truce_commit *commit, const char *queue,
                               const struct job_lane *given, const bson_oid_t *job, bool *waits,
                               int64_t *begin_ms, bson_error_t *error);
/* Sets the width and the rate of the lane of a job that is replaced, in the commit that replaces
 * it. */
truce_status truce__lane_adjust(truce_commit *commit, const char *queue,
                                const struct job_lane *given, bson_error_t *error);
/* Removes an ending job from its lane, in the commit of the end. */
truce_status truce__lane_leave(truce_commit *commit, const char *queue, const char *name,
                               bson_error_t *error);
/* Counts the begin of a job of the lane, in the commit that claims it. If *wait_ms is not 0, the
 * rate does not allow the job yet, and it has a position after this time. */
truce_status truce__lane_begin(truce_commit *commit, const bson_t *job, int64_t *wait_ms,
                               bson_error_t *error);
/* Counts the begin of a job that was claimed without a limiter. Returns NOT_FOUND if the rate of
 * its lane delayed it, or it was lost; the claim no longer has the job. */
truce_status truce__lane_begin_claimed(truce_job *job, bson_error_t *error);
/* Releases the next jobs of a stalled lane (a sweep_function). */
truce_status truce__lane_resume(struct sweep *sweep, const char *collection, const bson_t *lane,
                                void *arg, bson_error_t *error);
/* Stores the number of jobs that a lane has released and that have not ended, in a commit that read
 * the lane. */
truce_status truce__lane_repair(truce_commit *commit, const bson_t *lane, int64_t out,
                                bson_error_t *error);
/* Ensures the indexes of queues with lanes. */
truce_status truce__lane_indexes(truce_queue *queue, bson_error_t *error);

/* ---- workflow.c ------------------------------------------------------------------------------ */

/* Makes a new job wait for the jobs that its options name, in a commit. Appends `after` and `then`
 * to it. Sets *left to the number of them that have not ended. */
truce_status truce__workflow_enter(truce_commit *commit, bson_t *job,
                                   const truce_job_options *options, int64_t *left,
                                   bson_error_t *error);
/* Notifies the jobs that wait for a job, in the commit in which the job comes to that state. */
truce_status truce__workflow_notify(truce_commit *commit, const bson_t *job, const char *state,
                                    bson_error_t *error);
/* Returns the number of jobs that the job still waits for. */
int64_t truce__workflow_pending(const bson_t *job);
/* Returns whether the job is the closing job of a batch that accepts more jobs. */
bool truce__workflow_is_open(const bson_t *job);
/* Stores how many jobs the job waits for, in a commit that read it: `count` jobs have it in their
 * `then`. */
truce_status truce__workflow_repair(truce_commit *commit, const bson_t *job, int64_t count,
                                    bson_error_t *error);
/* Makes the jobs that were cancelled because of a job wait for it again, in the commit that retries
 * it. Appends to the $set of its update. Returns LIMIT if there are too many. */
truce_status truce__workflow_rearm(truce_commit *commit, const bson_t *job, bson_t *set,
                                   bson_error_t *error);
/* Notifies the waiting jobs that one commit could not notify (a sweep_function). */
truce_status truce__workflow_resume(struct sweep *sweep, const char *collection, const bson_t *job,
                                    void *arg, bson_error_t *error);
/* Does what truce__workflow_resume does, for a few jobs, so that a claim can call it. */
truce_status truce__workflow_resume_some(const truce_queue *queue, bson_error_t *error);
/* Creates the indexes that waiting jobs need. */
truce_status truce__workflow_indexes(truce_queue *queue, bson_error_t *error);

/* Makes due delayed jobs ready, up to TRUCE__QUEUE_PROMOTED_MOST, the highest priority first. If
 * `queue` is NULL, it promotes jobs of all queues in any order. Sets *more if it promoted that
 * many. */
#define TRUCE__QUEUE_PROMOTED_MOST 100
truce_status truce__queue_promote(truce_store *store, const char *queue, bool *more,
                                  bson_error_t *error);
/* ---- job_lease.c ---- */

/* Releases a running job, as it was read, if its lease has expired (QJ4). */
truce_status truce__queue_rescue(const truce_queue *queue, const bson_t *job, bool *rescued,
                                 bson_error_t *error);
/* Releases jobs of the queue whose leases have expired. One call makes a pass over some of the
 * leases. */
truce_status truce__queue_rescue_some(truce_queue *queue, bson_error_t *error);
/* Stores when this process saw the lease of a job that was read, unless an entry of this clock is
 * valid. Later processes of this computer continue the observation. */
truce_status truce__queue_lease_observe(truce_store *store, const bson_t *job, bson_error_t *error);
/* Appends the filter of the running jobs, of all queues, whose leases are watched. `lease_ms` is
 * the length of a lease. */
void truce__queue_append_suspects(int64_t lease_ms, bson_t *filter);
/* Counts the running jobs of a queue whose leases have expired by the wall clock. */
truce_status truce__queue_count_overdue(truce_store *store, const char *queue, int64_t *count,
                                        bson_error_t *error);

/* ---- queue_add.c ----------------------------------------------------------------------------- */

/* Acquires the key of a job again, in the commit that makes the ended job live again and has read
 * it. Returns INVALID if another live job has the key. */
truce_status truce__queue_key_reclaim(truce_commit *commit, const bson_t *job, bson_error_t *error);

#endif
