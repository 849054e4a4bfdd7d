/*
 * Job queues: what stands there and nobody cares for. Whoever claims or sweeps does it on the way, so what is late for
 * minutes says that nobody does.
 *
 *     dead letters, a pause that is forgotten, jobs that nobody takes     the figures of all queues
 *     running, and its lease ended long ago; delayed, and due long ago    counted by the index of live jobs
 *     cron lines whose time went by                                       the lines themselves
 *     the index of live jobs                                              that of the collection
 */
#include <string.h>

#include "base/clock.h"
#include "care/doctor.h"
#include "store/reserved.h"
#include "truce/queue.h"

#define LATE_MS    INT64_C(60000)
#define WAITED_MS  INT64_C(3600000)
#define CRONS_TOLD 100

/* ---- figures ------------------------------------------------------------------------------------ */

static void judge_queue(struct doctor *doctor, const bson_t *figures)
{
    const char *queue = truce__doctor_text(figures, "queue", "");
    int64_t dead = truce__doctor_number(figures, "dead", 0),
            ready = truce__doctor_number(figures, "ready", 0),
            waited_ms = truce__doctor_number(figures, "oldest_ms", 0);

    if (dead)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "dead-letters", queue,
                           "look why (truce queue list QUEUE --state dead), then truce queue "
                           "redrive or discard",
                           "%lld jobs have failed for good", (long long)dead);
    if (truce__doctor_flag(figures, "paused", false) && ready)
        truce__doctor_tell(doctor, DOCTOR_NOTE, "paused-queue", queue, "truce queue resume QUEUE",
                           "the queue is paused, and %lld jobs are ready", (long long)ready);
    else if (ready && waited_ms > WAITED_MS && !truce__doctor_number(figures, "running", 0))
        truce__doctor_tell(doctor, DOCTOR_WARNING, "idle-queue", queue,
                           "start a worker (truce work --queue QUEUE)",
                           "%lld jobs are ready, the oldest for %lld minutes, and none is running",
                           (long long)ready, (long long)(waited_ms / 60000));
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
                judge_queue(doctor, &figures);
        }
    }
    bson_destroy(&stats);
    return status;
}

/* ---- what is late ------------------------------------------------------------------------------- */

static truce_status count_late(truce_store *store, const char *state, int64_t *count,
                               bson_error_t *error)
{
    bson_t *filter = BCON_NEW("undone.state", BCON_UTF8(state), "undone.at", "{", "$lt",
                              BCON_DATE_TIME(truce__clock_wall_ms() - LATE_MS), "}");
    truce_status status = truce_count(store, QUEUE, filter, NULL, count, error);

    bson_destroy(filter);
    return status;
}

static truce_status look_at_jobs(struct doctor *doctor, truce_store *store, bson_error_t *error)
{
    int64_t over = 0, due = 0;
    truce_status status = count_late(store, "running", &over, error);

    if (!status)
        status = count_late(store, "delayed", &due, error);
    if (!status && over)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "ended-leases", QUEUE,
                           "start a worker of their queue, or run truce sweep regularly (truce "
                           "sweep --loop)",
                           "%lld jobs are running whose lease ended more than a minute ago: their "
                           "workers are gone, and nobody gives them back",
                           (long long)over);
    if (!status && due)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "late-jobs", QUEUE,
                           "start a worker of their queue, or run truce sweep regularly (truce "
                           "sweep --loop)",
                           "%lld delayed jobs are due for more than a minute: nobody works on "
                           "their queue, and nobody sweeps",
                           (long long)due);
    return status;
}

static void judge_cron(struct doctor *doctor, const bson_t *cron)
{
    int64_t late_ms = truce__clock_wall_ms() - truce__doctor_number(cron, "next", 0);

    truce__doctor_tell(doctor, DOCTOR_WARNING, "late-cron", truce__doctor_text(cron, "_id", "?"),
                       "start a worker of the queue, or run truce sweep regularly (truce sweep "
                       "--loop)",
                       "the cron line's time went by %lld s ago: nobody works on its queue %s, and "
                       "nobody sweeps",
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
    if (!status)
        status = look_at_jobs(doctor, store, error);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    return look_at_crons(doctor, store, error); /* a line may stand there before any job */
}
