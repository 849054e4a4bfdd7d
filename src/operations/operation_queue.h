#ifndef TRUCE_OPERATIONS_OPERATION_QUEUE_H
#define TRUCE_OPERATIONS_OPERATION_QUEUE_H

/* Declarations that the files of the operations of queues share. */
#include "operations/operation.h"
#include "truce/queue.h"

/* Returns the queue that the operation names. If `worker` is NULL, the worker has the name of the
 * server. If `lease_ms` is 0, the lease is the default. */
truce_status truce__operation_queue(struct operation_call *call, const char *worker,
                                    int64_t lease_ms, struct handle **handle, bson_error_t *error);
/* Does the same. If the operation names no queue, returns the queue of the job with this id, or
 * fails with NOT_FOUND if no such job exists. */
truce_status truce__operation_queue_of(struct operation_call *call, const bson_oid_t *id,
                                       struct handle **handle, bson_error_t *error);
/* Returns the queue of that name. */
struct handle *truce__operation_queue_named(struct operation_call *call, const char *name,
                                            const char *worker, int64_t lease_ms);
/* Returns whether the queue has a job or settings; true if this cannot be found out soon. If it has
 * none, appends a `note` with the names of the queues that have live or dead jobs, if any exist. A
 * queue needs no declaration, so a misspelled name is the name of another queue. */
bool truce__operation_queue_is_known(const struct operation_call *call, const char *name,
                                     bson_t *reply);
/* Appends a job without the fields that belong to truce. `token` is that of a claim, or NULL. */
void truce__operation_append_job(const bson_t *job, const bson_oid_t *token, const char *key,
                                 bson_t *reply);

/* ---- options of jobs ------------------------------------------------------------------------- */

/* The options of every job. */
struct job_common {
    int64_t priority, attempts, timeoutMS, keepMS, keepCancelledMS, keepDiscardedMS, keepDeadMS;
    const bson_t *metadata, *tags;
};

/* The options of a job of truceEnqueue and truceFlow. */
struct job_timed {
    struct job_common common; /* Must be the first field: the table has offsets into it. */
    int64_t delayMS, runAtMS, laneWidth, laneRate, lanePerMS;
    const char *lane, *failure;
};

/* The words, in the order of truce_job_failure. */
extern const char *const truce__job_failures[];

/* Fill the options. Other options are 0. */
void truce__job_options_of_common(const struct job_common *given, truce_job_options *options);
/* Does the same, and refuses a part of the rate of a lane. */
truce_status truce__job_timed(const struct job_timed *given, truce_job_options *options,
                              bson_error_t *error);

#define JOB_COMMON_FIELDS                                                                          \
    {GIVEN(job_common, priority, FIELD_NUMBER),                                                    \
     "the priority; the highest runs first, then the oldest job", -1000, 1000},                    \
        {GIVEN(job_common, attempts, FIELD_NUMBER), "the maximum number of attempts; absent: 10",  \
         1, INT32_MAX},                                                                            \
        {GIVEN(job_common, timeoutMS, FIELD_DURATION),                                             \
         "the maximum time of an attempt in milliseconds; absent: no maximum", 1, INT32_MAX},      \
        {GIVEN(job_common, keepMS, FIELD_DURATION),                                                \
         "the time in milliseconds for which the job is kept when it is done; -1: forever; "       \
         "absent: 7 days",                                                                         \
         -1, DURATION_MAX_MS},                                                                     \
        {GIVEN(job_common, keepCancelledMS, FIELD_DURATION),                                       \
         "the same if it is cancelled; absent: as `keepMS`", -1, DURATION_MAX_MS},                 \
        {GIVEN(job_common, keepDiscardedMS, FIELD_DURATION),                                       \
         "the same if it is discarded; absent: as `keepMS`", -1, DURATION_MAX_MS},                 \
        {GIVEN(job_common, keepDeadMS, FIELD_DURATION), "the same if it is dead; absent: forever", \
         -1, DURATION_MAX_MS},                                                                     \
        {GIVEN(job_common, metadata, FIELD_DOCUMENT), "data for people and for searches"},         \
    {                                                                                              \
        GIVEN(job_common, tags, FIELD_ARRAY), "strings for people and for searches"                \
    }

#define JOB_TIMED_FIELDS                                                                           \
    JOB_COMMON_FIELDS,                                                                             \
        {GIVEN(job_timed, delayMS, FIELD_DURATION),                                                \
         "the job is ready after this time in milliseconds", 0, DURATION_MAX_MS},                  \
        {GIVEN(job_timed, runAtMS, FIELD_TIME),                                                    \
         "instead: the job is ready at this time, ms since 1970", TIME_LEAST_MS, DATE_LAST_MS},    \
        {GIVEN(job_timed, lane, FIELD_TEXT), "jobs of one lane run one after the other"},          \
        {GIVEN(job_timed, laneWidth, FIELD_NUMBER),                                                \
         "the number of jobs of the lane that run at once; absent: 1", 1, INT32_MAX},              \
        {GIVEN(job_timed, laneRate, FIELD_NUMBER),                                                 \
         "the number of jobs of the lane that begin in `lanePerMS`", 1, INT32_MAX},                \
        {GIVEN(job_timed, lanePerMS, FIELD_DURATION), "the period of `laneRate` in milliseconds",  \
         1, INT32_MAX},                                                                            \
    {                                                                                              \
        GIVEN(job_timed, failure, FIELD_TEXT),                                                     \
            "the effect if a job that it waits for does not end as done: the job is cancelled, "   \
            "runs anyway, or waits; absent: \"cancel\"",                                           \
            .words = truce__job_failures                                                           \
    }

#endif
