#ifndef TRUCE_CRON_H
#define TRUCE_CRON_H

/*
 * Jobs that are added by the clock. A cron line stands in the collection `truce_queue_crons`:
 *
 *     {_id: "nightly", line: "0 3 * * *", zone: "Europe/Berlin", missed: "once", next: <date>,
 *      job: {queue: "reports", payload: {...}, ...}}
 *
 * Whoever claims from its queue fires it, and so does truce_sweep, of all queues. A firing is one commit: the job
 * and the next time, guarded by this one. So each time gives one job, however many processes there are, and
 * whatever is killed. The job has `cron: {name, at}` besides: the time that it is for.
 *
 * After cron(8) by P. Vixie, its change of clocks included: a line for all hours goes by real time; a line for
 * some hours by what the clocks of its zone show. A time that they skip fires at their change, one that they
 * show twice once.
 */
#include "truce/queue.h"

TRUCE_BEGIN_DECLS

/* Times that went by while nobody was there to fire them. */
typedef enum truce_cron_missed {
    TRUCE_MISSED_ONCE = 0, /* one job, for the last of them */
    TRUCE_MISSED_SKIP,     /* none, but for a last one that is less than a minute late */
    TRUCE_MISSED_ALL,      /* one job for each, the newest `most` */
} truce_cron_missed;

typedef struct truce_cron_options {
    const char *zone; /* "Europe/Berlin", "+02:00"; NULL: UTC */
    truce_cron_missed missed;
    uint32_t most; /* of TRUCE_MISSED_ALL; 0: 100; at most 500 */
    /* of its jobs: priority, attempts_max, timeout_ms, keep_ms, metadata, tags; NULL: none. The others are refused. */
    const truce_job_options *job;
    uint64_t reserved[4]; /* zeros */
} truce_cron_options;

/* Sets what there is under that name: a program may do it at each start. A line and a zone that stay as they are
 * keep their next time, a pause is kept. `name`: 1 to 200 bytes, one in the store. `line`: "minute hour day month
 * weekday", with the second in front if there are six, "@hourly", "@daily", "@weekly", "@monthly", "@yearly",
 * or "@every 90s" (s, m, h, d). INVALID: which field is wrong; a line that never fires; no such zone. Nothing was
 * changed then. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cron_set(truce_queue *queue, const char *name,
                                                        const char *line, const bson_t *payload,
                                                        const truce_cron_options *options,
                                                        bson_error_t *error);

/* NOT_FOUND: there is none of that name. Jobs that were added stay. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cron_remove(truce_store *store, const char *name,
                                                           bson_error_t *error);
/* A line that is paused adds nothing. What went by meanwhile was not missed: it goes on with the next time. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cron_pause(truce_store *store, const char *name,
                                                          bson_error_t *error);
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cron_resume(truce_store *store, const char *name,
                                                           bson_error_t *error);

/* The first time after `after_ms` (ms since 1970) at which a line fires. `zone` may be NULL. Asks no store. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cron_next(const char *line, const char *zone,
                                                         int64_t after_ms, int64_t *next_ms,
                                                         bson_error_t *error);

TRUCE_END_DECLS

#endif
