#ifndef TRUCE_CRON_H
#define TRUCE_CRON_H

/*
 * Cron: jobs that are added by the clock.
 *
 * A cron line is a document of the collection `truce_queue_crons`:
 *
 *     {_id: "nightly", line: "0 3 * * *", zone: "Europe/Berlin", missed: "once", next: <date>,
 *      job: {queue: "reports", payload: {...}, ...}}
 *
 * A worker that claims from the queue fires the due lines of that queue; truce_sweep fires those
 * of all queues. Firing is one commit: it adds the job and sets the next time, guarded by the
 * current one. Each time therefore adds one job, however many processes run and whichever of them
 * are killed. The job has an extra field `cron: {name, at}` with the time that it is for.
 *
 * The syntax and the handling of clock changes follow cron(8) by P. Vixie. A line for all hours
 * follows real time; a line for some hours follows the local time of its zone. A local time that
 * the clocks skip fires at the change. A local time that occurs twice fires once.
 */
#include "truce/queue.h"

TRUCE_BEGIN_DECLS

/* The policy for times that passed while no process was running to fire them. */
typedef enum truce_cron_missed {
    /* Add one job, for the last missed time. */
    TRUCE_MISSED_ONCE = 0,
    /* Add no job, unless the last missed time is less than a minute ago. */
    TRUCE_MISSED_SKIP,
    /* Add one job for each missed time, at most the newest `most`. */
    TRUCE_MISSED_ALL,
} truce_cron_missed;

typedef struct truce_cron_options {
    /* "Europe/Berlin", "+02:00". NULL means UTC. */
    const char *zone;
    truce_cron_missed missed;
    /* The maximum for TRUCE_MISSED_ALL. 0 means 100. At most 500. */
    uint32_t most;
    /* Options of the jobs: priority, attempts_max, timeout_ms, keep_ms, metadata, tags. All others
     * are refused. NULL means none. */
    const truce_job_options *job;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_cron_options;

/*
 * Sets the cron line `name` of the store: 1 to 200 bytes, unique in the store. A program may call
 * this at each start. If the schedule and the zone are unchanged, the next time is kept. A paused
 * line stays paused.
 *
 * `line`, the schedule, is one of:
 *
 *     minute hour day month weekday            with the second in front, if it has six fields
 *     @hourly @daily @weekly @monthly @yearly
 *     @every 90s                               s, m, h, d
 *
 * If a field is wrong, the zone is unknown, or the schedule never fires, the call fails with
 * TRUCE_INVALID and changes nothing. The message names the field.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cron_set(truce_queue *queue, const char *name,
                                                        const char *line, const bson_t *payload,
                                                        const truce_cron_options *options,
                                                        bson_error_t *error);

/* Removes a cron line. Jobs that it added stay. If no such line exists, the call fails with
 * TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cron_remove(truce_store *store, const char *name,
                                                           bson_error_t *error);
/* Pauses a cron line: it adds no jobs. Times that pass during the pause do not count as missed.
 * After truce_cron_resume, the line continues with the next time. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cron_pause(truce_store *store, const char *name,
                                                          bson_error_t *error);
/* Resumes a paused cron line. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cron_resume(truce_store *store, const char *name,
                                                           bson_error_t *error);

/* Returns the first time after `after_ms` (ms since 1970) at which a schedule fires. `zone` may be
 * NULL. The call does not access a store. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cron_next(const char *line, const char *zone,
                                                         int64_t after_ms, int64_t *next_ms,
                                                         bson_error_t *error);

TRUCE_END_DECLS

#endif
