#ifndef TRUCE_CLI_QUEUE_WORK_H
#define TRUCE_CLI_QUEUE_WORK_H

/* What the files of `truce work` share: the worker, and a job in its hands. The essay is in work.c. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/limits.h"
#include "cli/core/cli.h"

#define WORK_QUEUES_MAX QUEUE_SOURCES_MAX
#define WORK_REASON_MAX 1900
#define WORK_SLICE_MS   250 /* nobody waits longer without a look at what else there is */

struct work_source {
    char *name;
    truce_queue *queue;
    uint32_t weight;
};

struct work {
    struct cli *cli;
    struct work_source sources[WORK_QUEUES_MAX];
    int count;
    int64_t lease_ms, grace_ms, later_ms, limit, output_max, workers, at_once;
    bool commits, keeps_open, drains;
    atomic_llong begun, failed; /* jobs; attempts */
    atomic_int code;            /* not CLI_DONE: why all of it ends */
    pthread_mutex_t answers;    /* of what is printed */
};

/* A job, from its claim to its end. */
struct work_job {
    truce_job *job; /* NULL: none */
    const struct work_source *source;
    int64_t begun_ns, extended_ns;
    bool lost, timed_out;
};

/* SIGTERM or Ctrl-C came: no job is begun any more. */
extern atomic_bool work_ending;

/* ---- work.c ---- */

/* The next job of any queue, by their weights. NOT_FOUND: there is none now, or enough were begun. */
truce_status work_claim(struct work *work, struct work_job *at, bson_error_t *error);
bool work_begun_all(struct work *work);
/* The same while there is no job, for as long as nothing is due. */
truce_status work_rest(struct work *work, uint64_t *token, bson_error_t *error);
/* Keeps the lease, and finds out whether the job is lost or out of time. */
void work_look_after(const struct work *work, struct work_job *at);

static inline bool work_is_over(int64_t since_ns, int64_t ms)
{
    return truce__clock_monotonic_ns() - since_ns >= ms * INT64_C(1000000);
}

/* ---- each of them ends the job, says so, and frees it ---- */

/* It is done with that result (NULL: none), and with changes (an array as `truce commit apply` takes it; NULL:
 * none) in one commit with its end. If that cannot be, it failed. */
void work_done(struct work *work, struct work_job *at, const bson_t *result, const bson_t *changes);
/* `delay_ms` -1: as the queue's backoff says */
void work_failed(struct work *work, struct work_job *at, const char *reason, int64_t delay_ms);
/* Later, which counts as no attempt; `word` is what is said. */
void work_later(struct work *work, struct work_job *at, int64_t delay_ms, const char *word);
/* It was cancelled, or is others' by now. */
void work_lost(struct work *work, struct work_job *at);
/* The store failed, or the call was wrong: the worker ends with that. */
void work_stop(struct work *work, int code);

/* ---- work_program.c, work.c: jobs until the end; any number of threads at once ---- */

/* A program for each job. */
void work_by_programs(struct work *work);

#endif
