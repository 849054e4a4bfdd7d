/*
 * Limits of a queue, or of a pool of queues. What is under way stands in a gate, in `truce_queue_gates`:
 *
 *     {_id: {queue: "mail"}, running: 2, running_max: 5, rate: 100, per_ms: 60000, tokens: 31.5, at: <date>}
 *     {_id: {pool: "smtp"}, ...}
 *
 * Invariants:
 *
 *   G1. `running` is the number of jobs that are running with this gate in their lease. A job is claimed through the gate in the
 *       commit that counts it, and leaves "running" in the commit that no more counts it, whatever its end is.
 *   G2. A claim counts through the gate that its lease names, so a gate that comes, goes or changes while jobs run
 *       miscounts none.
 *   G3. A claim takes a token out of the bucket, which holds `rate` of them and fills up in `per_ms`. It is not given
 *       back when the job fails: what was begun was begun.
 *
 * The gate is one document that every claim and every end writes; that is what a limit over all processes costs. Rates go
 * by the clocks of whoever claims: one that is wrong makes a rate wrong by one bucket, and never stops it for longer
 * than `per_ms`.
 */
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/room.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"
#include "store/care.h"

/* ---- the limits --------------------------------------------------------------------------------- */

static truce_status check_limits(const truce_queue_limits *limits, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(limits, "truce_queue_limits", error);
    size_t pool = limits->pool ? strlen(limits->pool) : 1;

    if (status)
        return status;
    if (!pool || pool > QUEUE_NAME_BYTES_MAX ||
        (limits->pool && !bson_utf8_validate(limits->pool, pool, false)))
        return truce__fail(TRUCE_INVALID, error, "a pool's name has 1 to %d bytes of UTF-8",
                           QUEUE_NAME_BYTES_MAX);
    if (!limits->rate != !limits->per_ms)
        return truce__fail(TRUCE_INVALID, error,
                           "a rate is so many jobs per so many ms: both are said, or none");
    if (limits->running > INT32_MAX || limits->rate > INT32_MAX)
        return truce__fail(TRUCE_INVALID, error, "a limit is at most %d", INT32_MAX);
    return TRUCE_OK;
}

static bson_t *gate_id(const truce_queue *queue, const truce_queue_limits *limits)
{
    return limits->pool ? BCON_NEW("pool", BCON_UTF8(limits->pool))
                        : BCON_NEW("queue", BCON_UTF8(queue->name));
}

struct limiting {
    const truce_queue_limits *limits;
    bson_value_t id;
};

/* What runs is counted on; the bucket begins full. */
static void make_gate(const struct limiting *limiting, int64_t running, bson_t *gate)
{
    const truce_queue_limits *limits = limiting->limits;

    BSON_APPEND_VALUE(gate, "_id", &limiting->id);
    BSON_APPEND_INT64(gate, "running", running);
    if (limits->running)
        BSON_APPEND_INT64(gate, "running_max", limits->running);
    if (!limits->rate)
        return;
    BSON_APPEND_INT64(gate, "rate", limits->rate);
    BSON_APPEND_INT64(gate, "per_ms", limits->per_ms);
    BSON_APPEND_DOUBLE(gate, "tokens", limits->rate);
    BSON_APPEND_DATE_TIME(gate, "at", truce__clock_wall_ms());
}

static truce_status limit_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct limiting *limiting = arg;
    bson_t old, gate = BSON_INITIALIZER;
    truce_status status = truce_commit_read(commit, QUEUE_GATES, &limiting->id, &old, error);

    if (!status) {
        make_gate(limiting, truce__field_number(&old, "running"), &gate);
        status = truce_commit_replace(commit, QUEUE_GATES, &limiting->id, NULL, &gate, error);
    } else if (status == TRUCE_NOT_FOUND) {
        make_gate(limiting, 0, &gate);
        status = truce_commit_insert(commit, QUEUE_GATES, &gate, error);
    }
    bson_destroy(&gate);
    bson_destroy(&old);
    return status;
}

truce_status truce_queue_limit(truce_queue *queue, const truce_queue_limits *limits,
                               bson_error_t *error)
{
    static const truce_queue_limits none;
    struct limiting limiting = {limits ? limits : &none};
    bool limited = limiting.limits->running || limiting.limits->rate;
    bson_t *id = NULL;
    truce_status status = check_limits(limiting.limits, error);

    if (!status)
        status = truce__queue_ready(queue, error);
    if (status)
        return status;
    id = gate_id(queue, limiting.limits);
    limiting.id = truce__queue_document_id(id);
    if (limited)
        status = truce__queue_run(queue, NULL, limit_in, &limiting, error);
    if (!status)
        status = truce__queue_set(queue, "gate", limited ? &limiting.id : NULL, error);
    bson_destroy(id);
    return status;
}

/* ---- going in ----------------------------------------------------------------------------------- */

static double tokens_of(const bson_t *gate, int64_t now_ms)
{
    int64_t per_ms = truce__field_count(gate, "per_ms"), at_ms;
    double rate = (double)truce__field_number(gate, "rate"), tokens = 0;
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, gate, "tokens"))
        tokens = bson_iter_as_double(&iter);
    if (!truce__job_date(gate, "at", &at_ms) || per_ms < 1 || now_ms - at_ms >= per_ms ||
        at_ms - now_ms > per_ms)
        return rate;
    if (now_ms > at_ms)
        tokens += rate * (double)(now_ms - at_ms) / (double)per_ms;
    return tokens < rate ? tokens : rate;
}

bool truce__gate_has_room(const bson_t *gate, int64_t now_ms)
{
    int64_t most = truce__field_number(gate, "running_max");

    if (most && truce__field_number(gate, "running") >= most)
        return false;
    return !truce__field_number(gate, "rate") || tokens_of(gate, now_ms) >= 1;
}

static truce_status count_gate(truce_commit *commit, const bson_value_t *id, const bson_t *gate,
                               int64_t by, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t update = BSON_INITIALIZER, set;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_INT64(&set, "running", truce__field_number(gate, "running") + by);
    if (by > 0 && truce__field_number(gate, "rate")) { /* G3 */
        BSON_APPEND_DOUBLE(&set, "tokens", tokens_of(gate, now_ms) - 1);
        BSON_APPEND_DATE_TIME(&set, "at", now_ms);
    }
    bson_append_document_end(&update, &set);
    status = truce_commit_update(commit, QUEUE_GATES, id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

truce_status truce__gate_enter(truce_commit *commit, const bson_value_t *id, bson_error_t *error)
{
    bson_t gate;
    truce_status status = truce_commit_read(commit, QUEUE_GATES, id, &gate, error);

    if (!status && !truce__gate_has_room(&gate, truce__clock_wall_ms()))
        status = truce__fail(TRUCE_NOT_FOUND, error, "the queue is at its limit");
    if (!status)
        status = count_gate(commit, id, &gate, 1, error);
    bson_destroy(&gate);
    return status;
}

/* ---- going out ---------------------------------------------------------------------------------- */

static truce_status leave(truce_commit *commit, const bson_value_t *id, bson_error_t *error)
{
    bson_t gate;
    truce_status status = truce_commit_read(commit, QUEUE_GATES, id, &gate, error);

    if (!status)
        status = count_gate(commit, id, &gate, -1, error);
    bson_destroy(&gate);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status; /* somebody removed it */
}

/* The state that an update makes it, if that is an end; else "". Borrowed from the update. */
static const char *end_of(const bson_t *update)
{
    bson_t set;

    return truce__value_subdocument(update, "$set", &set) && bson_has_field(&set, "state") &&
                   !truce__job_live(&set)
               ? truce__job_state(&set)
               : "";
}

truce_status truce__job_move(truce_commit *commit, const bson_t *job, const bson_t *update,
                             bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_iter_t iter, gate;
    const char *end = end_of(update);
    struct job_lane lane;
    truce_status status = truce_commit_update(commit, QUEUE, &id, NULL, update, error);

    if (!status && bson_iter_init(&iter, job) &&
        bson_iter_find_descendant(&iter, "lease.gate",
                                  &gate)) /* G1; what does not run has no lease */
        status = leave(commit, bson_iter_value(&gate), error);
    if (!status && *end && truce__job_live(job) && !truce__job_is_held(job) &&
        truce__job_lane(job, &lane))
        status = truce__lane_leave(commit, truce__field_text(job, "queue"), lane.name, error);
    if (!status && *end)
        status = truce__after_tell(commit, job, end, error);
    return status;
}
