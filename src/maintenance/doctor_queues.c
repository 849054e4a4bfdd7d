/*
 * Job queues: jobs, leases, and cron lines that no process works on. Claims and sweeps do all of this on their way, so a job that
 * is late by a minute shows that no process claims from its queue, and none sweeps.
 *
 *     ready jobs without a worker, pauses, dead letters     the figures of all queues
 *     leases that ended, jobs that are due or blocked       counted by the index of live jobs
 *     lanes and workflows that stopped half way             their flag
 *     cron lines that are late or paused                    the lines themselves
 *     a rate whose time is far ahead                        the gates
 *     the index of live jobs                                that of the collection
 *
 * A queue is at work if a running job of it has a lease that has not ended long ago, or if one of its jobs ended
 * within the last minutes.
 */
#include <string.h>

#include "base/clock.h"
#include "maintenance/doctor.h"
#include "store/reserved.h"
#include "truce/queue.h"

#define LATE_MS    INT64_C(60000)
#define RECENT_MS  INT64_C(300000)
#define HOUR_MS    INT64_C(3600000)
#define DAY_MS     INT64_C(86400000)
#define SCAN_MS    5000
#define CRONS_TOLD 100

/* ---- figures ------------------------------------------------------------------------------------ */

static bool queues_is_there(truce_store *store, bson_t *filter)
{
    const truce_find_options options = {.deadline_ms = SCAN_MS};
    bson_t found;
    truce_status status = truce_find_one(store, QUEUE, filter, &options, &found, NULL);

    bson_destroy(&found);
    bson_destroy(filter);
    return !status;
}

static bool is_at_work(truce_store *store, const char *queue)
{
    int64_t now_ms = truce__clock_wall_ms();

    return queues_is_there(store, BCON_NEW("undone.state", BCON_UTF8("running"), "undone.queue",
                                           BCON_UTF8(queue), "undone.at", "{", "$gt",
                                           BCON_DATE_TIME(now_ms - LATE_MS), "}")) ||
           queues_is_there(store, BCON_NEW("queue", BCON_UTF8(queue), "ended", "{", "$gt",
                                           BCON_DATE_TIME(now_ms - RECENT_MS), "}"));
}

static void queues_judge_queue(struct doctor *doctor, truce_store *store, const bson_t *figures)
{
    const char *queue = truce__doctor_text(figures, "queue", "");
    int64_t dead = truce__doctor_number(figures, "dead", 0),
            ready = truce__doctor_number(figures, "ready", 0),
            others = truce__doctor_number(figures, "delayed", 0) +
                     truce__doctor_number(figures, "waiting", 0) +
                     truce__doctor_number(figures, "blocked", 0),
            waited_ms = truce__doctor_number(figures, "oldest_ms", 0);

    if (dead)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "dead-letters", queue,
                           "look why (truce queue list QUEUE --state dead), then truce queue "
                           "redrive or discard",
                           "%lld jobs have failed for good", (long long)dead);
    if (truce__doctor_flag(figures, "paused", false) && ready + others)
        truce__doctor_tell(doctor, DOCTOR_NOTE, "paused-queue", queue, "truce queue resume QUEUE",
                           "the queue is paused, and %lld jobs are ready, %lld delayed, waiting or "
                           "blocked",
                           (long long)ready, (long long)others);
    else if (ready && waited_ms > LATE_MS && !is_at_work(store, queue))
        truce__doctor_tell(doctor, DOCTOR_WARNING, "idle-queue", queue,
                           "start a worker (truce work --queue QUEUE)",
                           "%lld jobs are ready, the oldest for %lld minutes; none is running, and "
                           "none has ended in the last %lld minutes",
                           (long long)ready, (long long)(waited_ms / 60000),
                           (long long)(RECENT_MS / 60000));
}

static truce_status look_at_queues(struct doctor *doctor, truce_store *store, bson_error_t *error)
{
    bson_iter_t iter;
    bson_t stats;
    truce_status status = truce_queue_stats(store, &stats, error);

    if (!status && bson_iter_init(&iter, &stats)) {
        while (bson_iter_next(&iter)) {
            const uint8_t *data;
            uint32_t size;
            bson_t figures;

            bson_iter_document(&iter, &size, &data);
            if (bson_init_static(&figures, data, size))
                queues_judge_queue(doctor, store, &figures);
        }
    }
    bson_destroy(&stats);
    return status;
}

/* ---- what is late ------------------------------------------------------------------------------- */

/* Live jobs of a state whose time is so compared with that one. */
static bson_t *jobs_by_time(const char *state, const char *compared, int64_t at_ms)
{
    return BCON_NEW("undone.state", BCON_UTF8(state), "undone.at", "{", compared,
                    BCON_DATE_TIME(at_ms), "}");
}

struct late {
    const char *rule, *collection;
    enum doctor_level level;
    bson_t *filter; /* what is counted */
    const char *change, *text;
};

/* One finding if there are any; the filter is destroyed. */
static truce_status look_for_late(struct doctor *doctor, truce_store *store,
                                  const struct late *late, bson_error_t *error)
{
    int64_t count = 0;
    truce_status status = truce_count(store, late->collection, late->filter, NULL, &count, error);

    if (!status && count)
        truce__doctor_tell(doctor, late->level, late->rule, late->collection, late->change,
                           "%lld %s", (long long)count, late->text);
    bson_destroy(late->filter);
    return status;
}

#define SWEEPS "start a worker of their queue, or run truce sweep regularly (truce sweep --loop)"

static truce_status look_at_jobs(struct doctor *doctor, truce_store *store, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    const struct late all[] = {
        {"ended-leases", QUEUE, DOCTOR_WARNING, jobs_by_time("running", "$lt", now_ms - LATE_MS),
         SWEEPS,
         "jobs are running whose lease ended more than a minute ago: their workers are gone, and no "
         "process gives the jobs back"},
        {"far-leases", QUEUE, DOCTOR_NOTE, jobs_by_time("running", "$gt", now_ms + 2 * DAY_MS),
         "set the clocks of the workers",
         "jobs are running whose lease ends in more than two days: a worker's clock is ahead"},
        {"late-jobs", QUEUE, DOCTOR_WARNING, jobs_by_time("delayed", "$lt", now_ms - LATE_MS),
         SWEEPS,
         "delayed jobs are due for more than a minute: no process works on their queue, and none "
         "sweeps"},
        {"blocked-jobs", QUEUE, DOCTOR_NOTE, jobs_by_time("blocked", "$lt", now_ms - HOUR_MS),
         "see what they wait for (truce queue list --state blocked, truce queue graph ID), and close "
         "batches (truce queue close)",
         "jobs have been blocked for more than an hour by jobs that have not ended, or by a batch "
         "that is open"},
        {"stalled-flows", QUEUE, DOCTOR_WARNING, BCON_NEW("stalled", BCON_BOOL(true)), SWEEPS,
         "jobs have ended, and not all jobs that wait for them know it"},
        {"stalled-lanes", QUEUE_LANES, DOCTOR_WARNING, BCON_NEW("stalled", BCON_BOOL(true)), SWEEPS,
         "lanes have room and jobs that wait for it"},
        {"rate-ahead", QUEUE_GATES, DOCTOR_WARNING,
         BCON_NEW("at", "{", "$gt", BCON_DATE_TIME(now_ms + DAY_MS), "}"),
         "set the clocks of the workers, then set the limits again (truce queue limit)",
         "limits have a time that is more than a day ahead: a worker's clock was wrong, and workers "
         "that look once and end claim nothing"},
        {"paused-cron", QUEUE_CRONS, DOCTOR_NOTE, BCON_NEW("paused", BCON_BOOL(true)),
         "truce cron resume NAME", "cron lines are paused"},
    };
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!status)
            status = look_for_late(doctor, store, &all[i], error);
        else
            bson_destroy(all[i].filter);
    }
    return status;
}

static void judge_cron(struct doctor *doctor, const bson_t *cron)
{
    int64_t late_ms = truce__clock_wall_ms() - truce__doctor_number(cron, "next", 0);

    truce__doctor_tell(
        doctor, DOCTOR_WARNING, "late-cron", truce__doctor_text(cron, "_id", "?"),
        "start a worker of the queue, or run truce sweep regularly (truce sweep "
        "--loop)",
        "the cron line's time went by %lld s ago: no process works on its queue %s, and "
        "none sweeps",
        (long long)(late_ms / 1000), truce__doctor_text(cron, "job.queue", "?"));
}

static truce_status look_at_crons(struct doctor *doctor, truce_store *store, bson_error_t *error)
{
    bson_t *filter =
               BCON_NEW("next", "{", "$lt", BCON_DATE_TIME(truce__clock_wall_ms() - LATE_MS), "}"),
           *sort = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {.sort = sort, .limit = CRONS_TOLD};
    truce_cursor *cursor = NULL;
    const bson_t *cron = NULL;
    truce_status status = truce_find(store, QUEUE_CRONS, filter, &options, &cursor, error);

    while (!status && !(status = truce_cursor_next(cursor, &cron, error)) && cron)
        judge_cron(doctor, cron);
    truce_cursor_close(cursor);
    bson_destroy(sort);
    bson_destroy(filter);
    return status;
}

/* ---- the index ---------------------------------------------------------------------------------- */

static bool is_of_live_jobs(bson_iter_t *index)
{
    static const char *const fields[] = {"undone.state", "undone.queue", "undone.rank",
                                         "undone.at"};
    bson_iter_t field, key;

    if (!bson_iter_recurse(index, &field) || !bson_iter_find(&field, "key") ||
        !bson_iter_recurse(&field, &key))
        return false;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!bson_iter_next(&key) || strcmp(bson_iter_key(&key), fields[i]) != 0)
            return false;
    return true;
}

static truce_status look_at_index(struct doctor *doctor, truce_store *store, bson_error_t *error)
{
    bson_iter_t iter;
    bson_t indexes;
    bool found = false;
    truce_status status = truce_index_list(store, QUEUE, &indexes, error);

    for (bool some = !status && bson_iter_init(&iter, &indexes); some && bson_iter_next(&iter);)
        found |= is_of_live_jobs(&iter);
    if (!status && !found)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "job-index", QUEUE,
                           "start any worker, or run truce sweep: both make it",
                           "the index of live jobs is missing: each claim reads all jobs, those "
                           "that have ended, too");
    bson_destroy(&indexes);
    return status;
}

truce_status truce__doctor_queues(struct doctor *doctor, truce_store *store, bson_error_t *error)
{
    bson_t job;
    truce_status status = truce_find_one(store, QUEUE, NULL, NULL, &job, error);

    bson_destroy(&job);
    if (!status)
        status = look_at_index(doctor, store, error);
    if (!status)
        status = look_at_queues(doctor, store, error);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    status = look_at_jobs(doctor, store, error); /* cron lines may be there before any job */
    return status ? status : look_at_crons(doctor, store, error);
}
