#ifndef TRUCE_PATTERNS_QUEUE_QUEUE_H
#define TRUCE_PATTERNS_QUEUE_QUEUE_H

/* What the files of the job queue share. The contract is in truce/queue.h; the essay in queue.c. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/limits.h"
#include "base/status.h"
#include "commit/journal.h"
#include "store/reserved.h"
#include "truce/id.h"
#include "truce/queue.h"
#include "truce/sys/store.h"

/* Threads that claim at once. */
struct queue_crowd {
    pthread_mutex_t mutex;
    struct claimer *first, *last;
    bool led;
    pid_t process;
};

struct truce_queue {
    truce_store *store;
    struct queue_crowd crowd;
    char *name, *worker;
    uint32_t lease_ms, attempts_max, backoff_ms, backoff_max_ms, deadline_ms;
    truce_backoff backoff;
    truce_backoff_function *backoff_function;
    void *backoff_arg;
    int64_t keep_ms, keep_cancelled_ms, keep_discarded_ms, keep_dead_ms;
    truce_mechanism mechanism;
    /* Of the store, when the indexes were made sure of and what follows began to be remembered; 0: not yet. */
    atomic_uint_fast64_t structure;
    atomic_bool paused, gated, laned, linked;
    atomic_bool due_more;       /* more delayed jobs are due than were promoted */
    atomic_bool quiet;          /* the last claim found nothing ... */
    atomic_int_fast64_t due_ms; /* ... and then the first delayed job was due; 0: it is not known */
    atomic_int_fast64_t promoted_ns, rescued_ns, asked_ns, fired_ns,
        went_on_ns;                             /* when it was last done (monotonic) */
    atomic_int_fast64_t ended_at_ms, far_at_ms; /* where the next passes over the leases begin */
    bson_error_t refusal;
    bool refused; /* the options were wrong, `refusal` says why */
};

/* How a job left its worker's hands. */
enum job_end { JOB_HELD = 0, JOB_DONE, JOB_FAILED, JOB_SNOOZED, JOB_DISCARDED };

struct truce_job {
    truce_queue *queue;
    bson_t document; /* as it was claimed */
    bson_t payload;  /* a part of it, borrowed */
    bson_t steps;    /* {name: result} as far as this worker knows */
    bson_t *result;  /* of truce_job_commit; NULL: none */
    bson_oid_t id, token;
    int64_t epoch, since_ms, timeout_ms; /* since: by the clock of this process */
    uint32_t attempt;
    enum job_end ended; /* by a call that was answered */
    enum job_end said;  /* in a commit of the caller's, which may take effect or not */
    atomic_bool cancelled;
    atomic_int_fast64_t looked_ns;
};

/* The refusal, and the indexes. Every call begins with it. */
truce_status truce__queue_ready(truce_queue *queue, bson_error_t *error);
truce_status truce__queue_indexes(truce_store *store, bson_error_t *error);
/* On these fields; NULL after the last. */
truce_status truce__queue_index(truce_store *store, const char *collection, const char *name,
                                bool sparse, const char *const *fields, bson_error_t *error);

/* Of the commits of its jobs: not longer than that of the jobs themselves. */
static inline uint32_t truce__queue_commit_lease(const truce_queue *queue)
{
    return queue->lease_ms < COMMIT_LEASE_MS ? queue->lease_ms : COMMIT_LEASE_MS;
}

/* Runs a function in the given commit, or as one of its own. */
truce_status truce__queue_run(truce_queue *queue, truce_commit *commit,
                              truce_commit_function *function, void *arg, bson_error_t *error);

/* A field of the queue's settings; NULL: without it. */
truce_status truce__queue_set(truce_queue *queue, const char *field, const bson_value_t *value,
                              bson_error_t *error);

/* ---- documents ---- */

/* An _id that is a document; borrowed from it. */
static inline bson_value_t truce__queue_document_id(const bson_t *document)
{
    bson_value_t value = {.value_type = BSON_TYPE_DOCUMENT};

    value.value.v_doc.data = (uint8_t *)bson_get_data(document);
    value.value.v_doc.data_len = document->len;
    return value;
}

/* So long after now, and not later than anybody can read. */
static inline int64_t truce__job_date_after(int64_t now_ms, int64_t ms)
{
    return ms > DATE_LAST_MS - now_ms ? DATE_LAST_MS : now_ms + ms;
}

/* "ready" ... of a document; "" */
const char *truce__job_state(const bson_t *document);
/* false: no field of that type at the path */
bool truce__job_date(const bson_t *document, const char *path, int64_t *ms);
bool truce__job_token(const bson_t *document, bson_oid_t *token);
bool truce__job_live(const bson_t *document);
/* By a lane or by other jobs: no clock makes it ready, and it is not out in its lane. */
bool truce__job_is_held(const bson_t *document);

/* Appends `state` and `undone` (as one field, or its parts for a $set by `path`) of a job that waits: ready if
 * at_ms is not in the future. */
void truce__job_waits(bson_t *set, const char *queue, int32_t priority, int64_t at_ms,
                      int64_t now_ms);
/* The same of a job that no clock makes ready: `state` is "waiting" (for its turn in a lane) or "blocked" (by other
 * jobs). */
void truce__job_stands(bson_t *set, const char *state, const char *queue, int64_t at_ms);
/* The same of one that goes out of such a state, or comes new: into its lane, if it has one. In a commit. */
truce_status truce__job_sets_out(truce_commit *commit, const bson_t *job, int64_t at_ms,
                                 int64_t now_ms, bson_t *set, bson_error_t *error);
struct job_lane {
    const char *name;
    int64_t width, rate, per_ms; /* rate 0: none */
};

/* Its lane; false: it has none. Borrowed from the document. */
bool truce__job_lane(const bson_t *document, struct job_lane *lane);
/* The update of a job that comes to an end in that state: its $set has `result` (NULL: none) besides. */
void truce__job_ends(bson_t *update, const bson_t *document, const char *state,
                     const bson_t *result, int64_t now_ms);
/* The same of one that is done in the commit of its effects: its lease says `committed`. */
void truce__job_commits(bson_t *update, const bson_t *document, const bson_t *result,
                        int64_t now_ms);
/* The same after a failure: waits for its next attempt, or is dead. `delay_ms` -1: as the queue's backoff
 * says. */
void truce__job_fails(bson_t *update, const truce_queue *queue, const bson_t *document,
                      const char *text, int64_t delay_ms, int64_t now_ms);
/* Appends {errors: {$each, $slice}} as $push to an update. */
void truce__job_blames(bson_t *update, const bson_t *document, const char *text, int64_t now_ms);

/* ---- queue_add.c ---- */

/* Appends what all jobs of one kind have: queue, priority, payload, metadata, tags, attempts_max, timeout_ms,
 * keep_ms; checked. `options` may be NULL. */
truce_status truce__job_template(truce_queue *queue, const bson_t *payload,
                                 const truce_job_options *options, bson_t *job,
                                 bson_error_t *error);
/* In a commit: a new job that is ready, with the fields of `more` besides. */
truce_status truce__job_from_template(truce_commit *commit, const bson_t *template,
                                      const bson_t *more, bson_error_t *error);

/* ---- cron.c ---- */

/* Fires the lines of a queue that are due, up to 100. */
truce_status truce__cron_fire(const truce_queue *queue, bson_error_t *error);
/* When the next cron line of the queue will be due; INT64_MAX: there is none. */
truce_status truce__cron_next_due(const truce_queue *queue, int64_t *due_ms, bson_error_t *error);
/* One that was found, if it is still as it was found. */
truce_status truce__cron_fire_one(truce_store *store, const bson_t *cron,
                                  const truce_commit_options *options, bson_error_t *error);
/* The filter of all that are due. */
bson_t *truce__cron_due(void);
/* NULL: the line is as it should be. */
const char *truce__cron_fault(const bson_t *cron);

/* In a commit: one new job, under that id; its options were checked. */
truce_status truce__job_add(truce_queue *queue, truce_commit *commit, const bson_t *payload,
                            const truce_job_options *options, const bson_oid_t *id,
                            bson_error_t *error);
/* What may be added. */
truce_status truce__job_check(truce_queue *queue, const bson_t *payload,
                              const truce_job_options *options, bson_error_t *error);

/* ---- queue_claim.c ---- */

/* Of a document that was claimed under the token; copied. */
truce_job *truce__job_new(truce_queue *queue, const bson_t *document, const bson_oid_t *token);

/* After a claim that found nothing: for how long at most to sleep before the next one. */
int64_t truce__queue_pause_ms(const truce_queue *queue);

/* ---- queue_claim.c ---- */

void truce__crowd_begin(struct queue_crowd *crowd);
void truce__crowd_end(struct queue_crowd *crowd);

struct sweep;

/* ---- job.c ---- */

/* In a commit: the job as it stands, if it is this worker's (L2). `document` is always initialised. */
truce_status truce__job_read_mine(truce_job *job, truce_commit *commit, bson_t *document,
                                  bson_error_t *error);
/* By truce_queue_done_many in one write with others; else each has a commit of its own there. */
bool truce__job_may_end_with_others(const truce_job *job);
/* The update of a running job that goes on later; this attempt does not count. */
void truce__job_snoozes(bson_t *update, const bson_t *document, int64_t at_ms, int64_t now_ms);

/* ---- queue_control.c ---- */

/* In a commit: a job of the queue. */
truce_status truce__queue_read_job(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                                   bson_t *job, bson_error_t *error);

/* ---- rate_limit.c ---- */

bool truce__gate_has_room(truce_store *store, const bson_t *gate);
/* In a commit: one more is running. NOT_FOUND: there is no room, or no gate. */
truce_status truce__gate_enter(truce_commit *commit, const bson_value_t *id, bson_error_t *error);
/* In a commit that read the job: an update that changes its state. What ran leaves its gate; what ends leaves its
 * lane, and the next ones go out; those that wait for it are told. */
truce_status truce__job_move(truce_commit *commit, const bson_t *job, const bson_t *update,
                             bson_error_t *error);

/* ---- lane.c ---- */

/* In a commit that adds the job: *waits, it is not its turn yet; else it is from *begin_ms on. */
truce_status truce__lane_enter(truce_commit *commit, const char *queue, const struct job_lane *said,
                               const bson_oid_t *job, bool *waits, int64_t *begin_ms,
                               bson_error_t *error);
/* In a commit in which one that was out ends. */
truce_status truce__lane_leave(truce_commit *commit, const char *queue, const char *name,
                               bson_error_t *error);
/* In a commit that claims a job of the lane: counts that it begins. *wait_ms is not 0: its rate does not allow it yet, and the job
 * has a place after so long. */
truce_status truce__lane_begin(truce_commit *commit, const bson_t *job, int64_t *wait_ms,
                               bson_error_t *error);
/* For a job that was claimed without a gate: NOT_FOUND: the rate of its lane put it off, or it was lost; it is not this
 * claim's any more. */
truce_status truce__lane_begin_claimed(truce_job *job, bson_error_t *error);
/* A sweep_function: lets out who may go. */
truce_status truce__lane_go_on(struct sweep *sweep, const char *collection, const bson_t *lane,
                               void *arg, bson_error_t *error);
/* In a commit that read the lane: so many are out. */
truce_status truce__lane_count(truce_commit *commit, const bson_t *lane, int64_t out,
                               bson_error_t *error);
/* The indexes of queues with lanes. */
truce_status truce__lane_indexes(truce_queue *queue, bson_error_t *error);

/* ---- workflow.c ---- */

/* In a commit: the new job waits for those that its options name; `after` and `then` are appended to it. *left: how many
 * of them have not ended. */
truce_status truce__after_enter(truce_commit *commit, bson_t *job, const truce_job_options *options,
                                int64_t *left, bson_error_t *error);
/* In a commit in which a job, as it was read, comes to that state: tells those that wait for it. */
truce_status truce__after_tell(truce_commit *commit, const bson_t *job, const char *state,
                               bson_error_t *error);
/* How many it waits for still. */
int64_t truce__after_left(const bson_t *job);
bool truce__after_is_open(const bson_t *job);
/* In a commit that read the job: so many have it in their `then`. */
truce_status truce__after_mend(truce_commit *commit, const bson_t *job, int64_t count,
                               bson_error_t *error);
/* In a commit that retries a job, as it was read: those that were cancelled because of it wait for it again. Appends to the
 * $set of its update. LIMIT: too many. */
truce_status truce__after_again(truce_commit *commit, const bson_t *job, bson_t *set,
                                bson_error_t *error);
/* A sweep_function: goes on where one commit could not tell all. */
truce_status truce__after_go_on(struct sweep *sweep, const char *collection, const bson_t *job,
                                void *arg, bson_error_t *error);
/* The same for whoever claims: a few of them. */
truce_status truce__after_go_on_some(const truce_queue *queue, bson_error_t *error);
truce_status truce__after_indexes(truce_queue *queue, bson_error_t *error);

/* ---- queue_claim.c: what stands between a job and its claim ---- */

/* Makes delayed jobs ready that are due, up to that many, the highest priority first. `queue` NULL: of all queues, in any order.
 * *more: there were as many. */
#define TRUCE__QUEUE_PROMOTED_MOST 100
truce_status truce__queue_promote(truce_store *store, const char *queue, bool *more,
                                  bson_error_t *error);
/* Gives back a running job, as it was seen, if its lease is over (L4). *rescued. */
truce_status truce__queue_rescue(const truce_queue *queue, const bson_t *job, bool *rescued,
                                 bson_error_t *error);
/* Appends which running jobs are looked at, of all queues: `lease_ms` is the length of a lease. */
void truce__queue_append_suspects(int64_t lease_ms, bson_t *filter);

/* ---- queue_add.c ---- */

/* In a commit that read the job, which had ended and lives again: its key is its own. INVALID: another live job has it. */
truce_status truce__queue_key_retake(truce_commit *commit, const bson_t *job, bson_error_t *error);

#endif
