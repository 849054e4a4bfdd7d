#ifndef TRUCE_CLI_QUEUE_WORK_H
#define TRUCE_CLI_QUEUE_WORK_H

/* The worker of `truce work`, and the job that it works on. The essay is in work.c. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/limits.h"
#include "cli/core/cli.h"

#define WORK_QUEUES_MAX QUEUE_SOURCES_MAX
#define WORK_REASON_MAX 1900
/* The maximum time that a worker waits before it checks for other events. */
#define WORK_SLICE_MS 250

struct work_source {
    char *name;
    uint32_t weight;
    /* A claim has found no job, and checked whether the queue is known. */
    atomic_bool checked;
};

struct work {
    struct cli *cli;
    struct work_source sources[WORK_QUEUES_MAX];
    int count;
    /* The options of the same names. A `limit` of 0 means no limit. An `output_max` of 0 means that
     * the output of a program is not stored as the result. */
    int64_t lease_ms, grace_ms, later_ms, backoff_ms, backoff_max_ms, limit, output_max, workers,
        at_once;
    truce_backoff backoff;
    /* The options --commit, --keep-open, and --drain. */
    bool commits, keeps_open, drains;
    /* The number of jobs that were begun, and of attempts that failed. */
    atomic_llong begun, failed;
    /* If it is not CLI_DONE, the worker ends with this exit code. */
    atomic_int code;
    /* Guards the output. */
    pthread_mutex_t answers;
    /* Set by SIGTERM and Ctrl-C. No further job is started. */
    const atomic_int *stop;
};

/* A job, from its claim to its end. */
struct work_job {
    /* The document of the job as it was claimed, or NULL. */
    bson_t *job;
    bson_oid_t id, token;
    /* A `timeout_ms` of 0 means no timeout. */
    int64_t epoch, attempt, timeout_ms;
    const struct work_source *source;
    /* When the job was claimed, when its lease was last extended, and when the worker last asked
     * whether it was cancelled (monotonic). */
    int64_t begun_ns, extended_ns, checked_ns;
    /* `lost`: the job was cancelled, or belongs to another worker. `timed_out`: its timeout has
     * passed. */
    bool lost, timed_out;
};

/* ---- queue.c ---- */

/* Prints a note if the queue has no jobs. A queue needs no declaration, so any name is valid, but
 * the name may be misspelled. The note names the queues that have jobs. If no queue has jobs, it is
 * printed only if `always` is true. */
void queue_note_unknown(struct cli *cli, const char *queue, bool always);

/* ---- work.c ---- */

/* Claims the next job of the queues, by their weights. If `waits`, a claim of a single queue waits
 * for a short time, unless the worker ends when no job is ready. Fails with NOT_FOUND if no job is
 * ready, or enough jobs were started. */
truce_status work_claim(struct work *work, struct work_job *at, bool waits, bson_error_t *error);
bool work_begun_all(struct work *work);
/* Waits while there is no job, for a short time, unless the claim has waited. */
truce_status work_rest(struct work *work, uint64_t *token, bson_error_t *error);
/* Borrows the payload of the job. */
void work_payload(const struct work_job *at, bson_t *payload);
/* Ends the attempt by truceSnooze: the job is released until later. */
truce_status work_snooze(struct work *work, const struct work_job *at, int64_t delay_ms,
                         bson_error_t *error);
/* Extends the lease, and detects that the job is lost or timed out. */
void work_keep_job(const struct work *work, struct work_job *at);

static inline bool work_is_over(int64_t since_ns, int64_t ms)
{
    return truce__clock_monotonic_ns() - since_ns >= ms * INT64_C(1000000);
}

/* ---- each of them ends the job, says so, and frees it ---- */

/* Ends the job as done, with its result (or NULL). `changes`, in the form of `truce commit apply`
 * (or NULL), are one commit with the end. If the commit fails, the job has failed. */
void work_done(struct work *work, struct work_job *at, const bson_t *result, const bson_t *changes);
/* Ends the attempt as failed. If `delay_ms` is negative, the delay is that of the worker's options
 * (--backoff, --backoff-max, --fixed). */
void work_failed(struct work *work, struct work_job *at, const char *reason, int64_t delay_ms);
/* Releases the job until later; the attempt does not count. `word` is printed. */
void work_later(struct work *work, struct work_job *at, int64_t delay_ms, const char *word);
/* Reports that the job was cancelled or belongs to another worker. */
void work_lost(struct work *work, struct work_job *at);
/* Ends the worker, because the store failed or the call was wrong. */
void work_stop(struct work *work, int code);

/* ---- work_program.c, work.c: jobs until the end; any number of threads at once ---- */

/* Returns 0 if the program exists and may be run, and otherwise an errno. A name without a slash is
 * searched for in PATH. */
int work_program_check(const char *program);

/* Runs one program for each job. */
void work_by_programs(struct work *work);

#endif
