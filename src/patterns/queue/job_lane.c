/*
 * Lanes: the jobs of one lane run one after the other, or up to `width` at a time, in the order in
 * which they were added, whatever fails in between. `truce_queue_lanes` has documents of a lane
 * while the lane has jobs:
 *
 *     {_id: {queue: "mail", lane: "ada"}, out: 1, width: 1, head: 7, tail: 9}
 *     {_id: {queue: "mail", lane: "ada", n: 8}, job: ObjectId}
 *                                   one for each waiting job: head < n <= tail
 *
 * A lane with a rate also has the fields of rate_limit.h and {full: 1.7e12}: the time in ms since
 * 1970 at which its bucket of positions is full again.
 *
 * Invariants:
 *
 *  QL1. `out` is the number of the lane's jobs that are ready, delayed, or running. No job is
 *       released while `out` is the width or more, which happens if the lane became narrower. The
 *       other jobs wait: they have the state "waiting", which no claim finds.
 *  QL2. Jobs are released in the order of their numbers. Each commit that assigns or uses a number
 *       reads the lane. If two jobs enter or end at the same time, the second commit therefore sees
 *       the change of the first.
 *  QL3. Whenever a job ends, the same commit decreases `out` and releases the next jobs. A lane
 *       with room has no waiting job unless it is `stalled`. A lane is stalled if it became wider,
 *       or if its head has more cancelled jobs than one commit passes over. The sweep, or the next
 *       end, continues.
 *  QL4. An empty lane has no document once its window and its bucket are empty. Until then, `idle`
 *       gives this time to the sweep. The numbers then begin again.
 *  QL5. At most `rate` jobs of the lane begin in any `per_ms`, as rate_limit.h describes. Each
 *       claim counts its begin in a commit that writes the lane, also a claim of a later attempt.
 *       If the rate does not allow the begin, the job is delayed, and its attempt does not count.
 *  QL6. Positions spread the delayed jobs. A job that goes out takes the next position of the
 *       bucket. The job is delayed until the time of its position. Positions are only a forecast,
 *       so a job may be delayed again.
 *
 * A failed job keeps its position while it waits for its next attempt; otherwise the order would
 * break. A dead job makes room; if it is retried, it goes to the end.
 */
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/value.h"
#include "commit/commit.h"
#include "patterns/queue/queue.h"
#include "patterns/queue/rate_limit.h"
#include "store/maintenance.h"

/* The maximum number of waiting jobs that one commit releases or passes over. */
#define PASSED_MAX 100

/* The state of a lane, as read in a commit. */
struct lane {
    truce_commit *commit;
    const char *queue, *name;
    bson_t id_document;
    bson_value_t id;
    /* The lane already has a document in the store. */
    bool stored;
    /* The number of released jobs that have not ended, and its maximum. The waiting jobs have the
     * positions `head` + 1 to `tail`. */
    int64_t out, width, head, tail;
    struct queue_rate rate;
    /* The time at which the bucket of the rate is full again, in ms by the clock of
     * `rate.now_ms`. */
    double full_ms;
};

/* ---- the lane -------------------------------------------------------------------------------- */

static bool lane_read_count(const bson_t *document, const char *name, int64_t *count)
{
    return truce__field_whole(document, name, count) && *count >= 0 && *count <= FIELD_MAX;
}

/* Reads the document of a lane in a commit. A lane that does not exist is empty and has the width
 * 1. */
static truce_status lane_read(struct lane *lane, truce_commit *commit, const char *queue,
                              const char *name, bson_error_t *error)
{
    bson_t document;
    bson_iter_t iter;
    truce_status status;

    *lane = (struct lane){.commit = commit, .queue = queue, .name = name, .width = 1};
    bson_init(&lane->id_document);
    BSON_APPEND_UTF8(&lane->id_document, "queue", queue);
    BSON_APPEND_UTF8(&lane->id_document, "lane", name);
    lane->id = truce__queue_document_id(&lane->id_document);
    status = truce_commit_read(commit, QUEUE_LANES, &lane->id, &document, error);
    lane->stored = !status;
    if (lane->stored) {
        if (!lane_read_count(&document, "out", &lane->out) ||
            !lane_read_count(&document, "width", &lane->width) ||
            !lane_read_count(&document, "head", &lane->head) ||
            !lane_read_count(&document, "tail", &lane->tail))
            status = truce__fail(
                TRUCE_CORRUPT, error,
                "the lane \"%.100s\" of the queue \"%.100s\" has invalid counts: repair "
                "its document in " QUEUE_LANES,
                name, queue);
        if (bson_iter_init_find(&iter, &document, "full"))
            lane->full_ms = bson_iter_as_double(&iter);
        if (!(lane->full_ms >= 0 && lane->full_ms <= FIELD_MAX))
            lane->full_ms = 0;
    }
    truce__rate_read(&lane->rate, commit->store, &document, &lane->id_document);
    bson_destroy(&document);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static bool lane_waits(const struct lane *lane)
{
    return lane->head < lane->tail;
}

/* Returns the time in ms until all begins have left the window and the bucket is full again. */
static int64_t lane_idle_ms(const struct lane *lane)
{
    int64_t left_ms = truce__rate_left_ms(&lane->rate),
            full_ms = (int64_t)lane->full_ms + 1 - lane->rate.now_ms;

    return !lane->rate.rate ? 0 : full_ms > left_ms ? full_ms : left_ms;
}

static void lane_append_rate(const struct lane *lane, bool empty, bson_t *document)
{
    truce__rate_append(&lane->rate, document);
    BSON_APPEND_DOUBLE(document, "full", lane->full_ms);
    if (empty)
        BSON_APPEND_DATE_TIME(document, "idle", truce__clock_wall_ms() + lane_idle_ms(lane));
}

/* Writes the document of a lane, or removes it if the lane is empty and its rate no longer needs it
 * (QL4). */
static truce_status lane_write(const struct lane *lane, bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;
    bool empty = !lane->out && !lane_waits(lane);
    truce_status status;

    BSON_APPEND_VALUE(&document, "_id", &lane->id);
    BSON_APPEND_INT64(&document, "out", lane->out);
    BSON_APPEND_INT64(&document, "width", lane->width);
    BSON_APPEND_INT64(&document, "head", lane->head);
    BSON_APPEND_INT64(&document, "tail", lane->tail);
    if (lane_waits(lane) && lane->out < lane->width)
        BSON_APPEND_BOOL(&document, "stalled", true);
    if (lane->rate.rate)
        lane_append_rate(lane, empty, &document);
    /* The lane is empty and its rate needs no record any more (QL4). */
    if (empty && lane_idle_ms(lane) <= 0)
        status = lane->stored
                     ? truce_commit_remove(lane->commit, QUEUE_LANES, &lane->id, NULL, error)
                     : TRUCE_OK;
    else if (lane->stored)
        status = truce_commit_replace(lane->commit, QUEUE_LANES, &lane->id, NULL, &document, error);
    else
        status = truce_commit_insert(lane->commit, QUEUE_LANES, &document, error);
    bson_destroy(&document);
    return status;
}

static void lane_position_id(const struct lane *lane, int64_t n, bson_t *document)
{
    bson_copy_to(&lane->id_document, document);
    BSON_APPEND_INT64(document, "n", n);
}

/* Takes the next position that is at least `least_ms` away, and returns the time until then in ms.
 * Jobs that were released before may have taken positions in advance. */
static int64_t lane_take_position(struct lane *lane, int64_t least_ms)
{
    double now_ms = (double)lane->rate.now_ms, per_ms = (double)lane->rate.per_ms, apart_ms,
           first_ms, most_ms, begin_ms;

    if (!lane->rate.rate)
        return 0;
    apart_ms = per_ms / (double)lane->rate.rate;
    first_ms = now_ms + (least_ms ? (double)least_ms + per_ms - apart_ms : 0);
    most_ms = first_ms + per_ms + apart_ms * (double)lane->out;
    if (lane->full_ms < first_ms)
        lane->full_ms = first_ms;
    if (lane->full_ms > most_ms)
        lane->full_ms = most_ms;
    begin_ms = lane->full_ms + apart_ms - per_ms;
    lane->full_ms += apart_ms;
    return begin_ms > now_ms ? (int64_t)(begin_ms - now_ms) + 1 : 0;
}

/* Releases one more job. Returns the time, by this process's clock, from which the job may begin; 0
 * means at once. */
static int64_t lane_add_out(struct lane *lane)
{
    int64_t wait_ms = lane_take_position(lane, 0);

    lane->out++;
    return wait_ms ? truce__date_after(truce__clock_wall_ms(), wait_ms) : 0;
}

/* ---- entering -------------------------------------------------------------------------------- */

static truce_status lane_add_waiting(struct lane *lane, const bson_oid_t *job, bson_error_t *error)
{
    bson_t id, position = BSON_INITIALIZER;
    truce_status status;

    lane_position_id(lane, ++lane->tail, &id);
    BSON_APPEND_DOCUMENT(&position, "_id", &id);
    BSON_APPEND_OID(&position, "job", job);
    status = truce_commit_insert(lane->commit, QUEUE_LANES, &position, error);
    bson_destroy(&position);
    bson_destroy(&id);
    return status;
}

truce_status truce__lane_enter(truce_commit *commit, const char *queue,
                               const struct job_lane *given, const bson_oid_t *job, bool *waits,
                               int64_t *begin_ms, bson_error_t *error)
{
    struct lane lane;
    truce_status status = lane_read(&lane, commit, queue, given->name, error);

    lane.width = given->width;
    lane.rate.rate = given->rate;
    lane.rate.per_ms = given->per_ms;
    *begin_ms = 0;
    *waits = lane_waits(&lane) || lane.out >= lane.width;
    if (!status && *waits)
        status = lane_add_waiting(&lane, job, error);
    else
        *begin_ms = lane_add_out(&lane);
    if (!status)
        status = lane_write(&lane, error);
    bson_destroy(&lane.id_document);
    return status;
}

truce_status truce__lane_adjust(truce_commit *commit, const char *queue,
                                const struct job_lane *given, bson_error_t *error)
{
    struct lane lane;
    truce_status status = lane_read(&lane, commit, queue, given->name, error);
    bool other = lane.width != given->width || lane.rate.rate != given->rate ||
                 lane.rate.per_ms != given->per_ms;

    lane.width = given->width;
    lane.rate.rate = given->rate;
    lane.rate.per_ms = given->per_ms;
    if (!status && lane.stored && other)
        status = lane_write(&lane, error);
    bson_destroy(&lane.id_document);
    return status;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Releases a job from the lane if it still waits. */
static truce_status lane_let_out(struct lane *lane, const bson_value_t *id, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms(), at_ms, begin_ms;
    bson_t job, update = BSON_INITIALIZER, set;
    truce_status status = truce_commit_read(lane->commit, QUEUE, id, &job, error);

    if (!status && !strcmp(truce__job_state(&job), "waiting")) {
        at_ms = truce__job_held_start(&job, now_ms);
        begin_ms = lane_add_out(lane);
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
        truce__job_append_queued(&set, lane->queue, (int32_t)truce__field_number(&job, "priority"),
                                 at_ms > begin_ms ? at_ms : begin_ms, now_ms);
        bson_append_document_end(&update, &set);
        status = truce_commit_update(lane->commit, QUEUE, id, NULL, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&job);
    /* A job that is missing was cancelled and then removed. */
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Releases the first waiting job of the lane and removes its position. */
static truce_status lane_let_next_out(struct lane *lane, bson_error_t *error)
{
    bson_t id, position;
    bson_value_t value;
    bson_iter_t iter;
    truce_status status;

    lane_position_id(lane, lane->head + 1, &id);
    value = truce__queue_document_id(&id);
    status = truce_commit_read(lane->commit, QUEUE_LANES, &value, &position, error);
    if (!status && bson_iter_init_find(&iter, &position, "job"))
        status = lane_let_out(lane, bson_iter_value(&iter), error);
    if (!status)
        status = truce_commit_remove(lane->commit, QUEUE_LANES, &value, NULL, error);
    /* A missing position must not block the positions after it. */
    if (!status || status == TRUCE_NOT_FOUND) {
        status = TRUCE_OK;
        lane->head++;
    }
    bson_destroy(&position);
    bson_destroy(&id);
    return status;
}

static truce_status lane_let_out_all(struct lane *lane, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int i = 0; i < PASSED_MAX && !status && lane_waits(lane) && lane->out < lane->width; i++)
        status = lane_let_next_out(lane, error);
    return status ? status : lane_write(lane, error);
}

truce_status truce__lane_leave(truce_commit *commit, const char *queue, const char *name,
                               bson_error_t *error)
{
    struct lane lane;
    truce_status status = lane_read(&lane, commit, queue, name, error);

    lane.out -= lane.out > 0;
    if (!status && lane.stored)
        status = lane_let_out_all(&lane, error);
    bson_destroy(&lane.id_document);
    return status;
}

/* ---- begins ---------------------------------------------------------------------------------- */

truce_status truce__lane_begin(truce_commit *commit, const bson_t *job, int64_t *wait_ms,
                               bson_error_t *error)
{
    struct job_lane given;
    struct lane lane;
    truce_status status;

    *wait_ms = 0;
    if (!truce__job_lane(job, &given) || !given.rate)
        return TRUCE_OK;
    status = lane_read(&lane, commit, truce__field_text(job, "queue"), given.name, error);
    if (!status && lane.stored && lane.rate.rate) {
        *wait_ms = truce__rate_wait_ms(&lane.rate);
        if (*wait_ms)
            *wait_ms = lane_take_position(&lane, *wait_ms);
        else
            truce__rate_begin(&lane.rate);
        status = lane_write(&lane, error);
    }
    bson_destroy(&lane.id_document);
    return status;
}

struct beginning {
    truce_job *job;
    bool delayed;
};

/* Counts the begin of a claimed job in the rate of its lane, or delays the job. */
static truce_status lane_begin_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct beginning *beginning = arg;
    int64_t now_ms = truce__clock_wall_ms(), wait_ms;
    bson_t job, update = BSON_INITIALIZER;
    truce_status status = truce__job_read_mine(beginning->job, commit, &job, error);

    if (!status)
        status = truce__lane_begin(commit, &job, &wait_ms, error);
    beginning->delayed = !status && wait_ms;
    if (beginning->delayed) {
        truce__job_update_snooze(&update, &job, truce__date_after(now_ms, wait_ms), now_ms);
        status = truce__job_transition(commit, &job, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&job);
    return status;
}

truce_status truce__lane_begin_claimed(truce_job *job, bson_error_t *error)
{
    struct beginning beginning = {job};
    struct job_lane lane;
    truce_status status;

    if (!truce__job_lane(&job->document, &lane) || !lane.rate)
        return TRUCE_OK;
    status = truce__queue_run(job->queue, NULL, lane_begin_in, &beginning, error);
    return status == TRUCE_EXPIRED || (!status && beginning.delayed) ? TRUCE_NOT_FOUND : status;
}

/* ---- stalled lanes --------------------------------------------------------------------------- */

static truce_status lane_resume_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const bson_t *id = arg;
    struct lane lane;
    truce_status status = lane_read(&lane, commit, truce__field_text(id, "queue"),
                                    truce__field_text(id, "lane"), error);

    if (!status && lane.stored)
        status = lane_let_out_all(&lane, error);
    bson_destroy(&lane.id_document);
    return status;
}

truce_status truce__lane_resume(struct sweep *sweep, const char *collection, const bson_t *lane,
                                void *arg, bson_error_t *error)
{
    bson_t id;

    (void)collection, (void)arg;
    if (!truce__value_subdocument(lane, "_id", &id))
        return TRUCE_OK;
    return truce_transact(sweep->store, lane_resume_in, &id, NULL, error);
}

truce_status truce__lane_repair(truce_commit *commit, const bson_t *document, int64_t out,
                                bson_error_t *error)
{
    struct lane lane;
    bson_t id;
    truce_status status;

    if (!truce__value_subdocument(document, "_id", &id))
        return TRUCE_OK;
    status = lane_read(&lane, commit, truce__field_text(&id, "queue"),
                       truce__field_text(&id, "lane"), error);
    lane.out = out;
    if (!status && lane.stored)
        status = lane_let_out_all(&lane, error);
    bson_destroy(&lane.id_document);
    return status;
}

/* ---- indexes --------------------------------------------------------------------------------- */

truce_status truce__lane_indexes(truce_queue *queue, bson_error_t *error)
{
    static const char *const stalled[] = {"stalled", NULL}, *const idle[] = {"idle", NULL},
                             *const names[] = {"lane.name", NULL};
    truce_status status = TRUCE_OK;

    if (atomic_load(&queue->laned))
        return TRUCE_OK;
    status = truce__queue_index(queue->store, QUEUE_LANES, stalled[0], true, stalled, error);
    if (!status)
        status = truce__queue_index(queue->store, QUEUE_LANES, idle[0], true, idle, error);
    if (!status)
        status = truce__queue_index(queue->store, QUEUE, names[0], true, names, error);
    if (!status)
        atomic_store(&queue->laned, true);
    return status;
}

truce_status truce__job_append_started(truce_commit *commit, const bson_t *job, int64_t at_ms,
                                       int64_t now_ms, bson_t *set, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    /* A copy, because `set` may be the job itself. */
    char *queue = bson_strdup(truce__field_text(job, "queue"));
    int32_t priority = (int32_t)truce__field_number(job, "priority");
    struct job_lane lane;
    int64_t begin_ms = 0;
    bool waits = false;
    truce_status status = TRUCE_OK;

    if (truce__job_lane(job, &lane))
        status = truce__lane_enter(commit, queue, &lane, &id.value.v_oid, &waits, &begin_ms, error);
    if (waits)
        truce__job_append_held(set, "waiting", queue, at_ms, now_ms);
    else
        truce__job_append_queued(set, queue, priority, at_ms > begin_ms ? at_ms : begin_ms, now_ms);
    bson_free(queue);
    return status;
}
