/*
 * Limits of a queue, or of a pool of queues. What is under way stands in a gate, in `truce_queue_gates`:
 *
 *     {_id: {queue: "mail"}, running: 2, running_max: 5, rate: 100, per_ms: 60000, at: <date>, begun: [...]}
 *     {_id: {pool: "smtp"}, ...}
 *
 * Invariants:
 *
 *   G1. `running` is the number of jobs that are running with this gate in their lease. A job is claimed through the gate in the
 *       commit that counts it, and leaves "running" in the commit that no more counts it, whatever its end is.
 *   G2. A claim counts through the gate that its lease names, so a gate that comes, goes or changes while jobs run
 *       miscounts none.
 *   G3. At most `rate` claims through the gate are made in any `per_ms` (queue_rate.h). A claim stays
 *       counted when its job fails: what was begun was begun. So does every claim when the limits are set again.
 *
 * Every claim and every end writes the gate's document; that is the cost of a limit over all processes.
 */
#include <string.h>

#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/patience.h"
#include "base/reserved_fields.h"
#include "bson/value.h"
#include "commit/commit.h"
#include "patterns/queue/queue.h"
#include "patterns/queue/queue_rate.h"
#include "store/maintenance.h"

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

static void append_gate_id(const truce_queue *queue, const truce_queue_limits *limits, bson_t *id)
{
    bson_init(id);
    BSON_APPEND_UTF8(id, limits->pool ? "pool" : "queue",
                     limits->pool ? limits->pool : queue->name);
}

struct limiting {
    const truce_queue_limits *limits;
    bson_t id_document;
    bson_value_t id;
};

/* Makes the gate with these limits; what runs, and what has begun, stays counted. */
static void make_gate(const struct limiting *limiting, truce_store *store, const bson_t *old,
                      bson_t *gate)
{
    const truce_queue_limits *limits = limiting->limits;
    struct queue_rate rate;

    truce__rate_read(&rate, store, old, &limiting->id_document);
    truce__rate_correct(&rate);
    rate.rate = limits->rate;
    rate.per_ms = limits->per_ms;
    BSON_APPEND_VALUE(gate, "_id", &limiting->id);
    BSON_APPEND_INT64(gate, "running", truce__field_number(old, "running"));
    if (limits->running)
        BSON_APPEND_INT64(gate, "running_max", limits->running);
    truce__rate_append(&rate, gate);
}

static truce_status limit_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct limiting *limiting = arg;
    bson_t old, gate = BSON_INITIALIZER;
    truce_status status = truce_commit_read(commit, QUEUE_GATES, &limiting->id, &old, error);

    if (!status || status == TRUCE_NOT_FOUND)
        make_gate(limiting, commit->store, &old, &gate);
    if (!status)
        status = truce_commit_replace(commit, QUEUE_GATES, &limiting->id, NULL, &gate, error);
    else if (status == TRUCE_NOT_FOUND)
        status = truce_commit_insert(commit, QUEUE_GATES, &gate, error);
    bson_destroy(&gate);
    bson_destroy(&old);
    return status;
}

truce_status truce_queue_limit(truce_queue *queue, const truce_queue_limits *limits,
                               bson_error_t *error)
{
    DEADLINE_SCOPE(queue->deadline_ms);
    PATIENCE_SCOPE();
    static const truce_queue_limits none;
    struct limiting limiting = {limits ? limits : &none};
    bool limited = limiting.limits->running || limiting.limits->rate;
    truce_status status = check_limits(limiting.limits, error);

    if (!status)
        status = truce__queue_ready(queue, error);
    if (status)
        return status;
    append_gate_id(queue, limiting.limits, &limiting.id_document);
    limiting.id = truce__queue_document_id(&limiting.id_document);
    if (limited)
        status = truce__queue_run(queue, NULL, limit_in, &limiting, error);
    if (!status)
        status = truce__queue_set(queue, "gate", limited ? &limiting.id : NULL, error);
    bson_destroy(&limiting.id_document);
    return status;
}

/* ---- going in ----------------------------------------------------------------------------------- */

static bool gate_rate_of(truce_store *store, const bson_t *gate, struct queue_rate *rate)
{
    bson_t id;

    if (!truce__value_subdocument(gate, "_id", &id))
        return false;
    truce__rate_read(rate, store, gate, &id);
    return rate->rate > 0;
}

bool truce__gate_has_room(truce_store *store, const bson_t *gate)
{
    int64_t most = truce__field_number(gate, "running_max");
    struct queue_rate rate;

    if (most && truce__field_number(gate, "running") >= most)
        return false;
    return !gate_rate_of(store, gate, &rate) || !truce__rate_wait_ms(&rate);
}

static truce_status count_gate(truce_commit *commit, const bson_value_t *id, const bson_t *gate,
                               int64_t by, bson_error_t *error)
{
    struct queue_rate rate;
    bson_t update = BSON_INITIALIZER, set;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_INT64(&set, "running", truce__field_number(gate, "running") + by);
    if (by > 0 && gate_rate_of(commit->store, gate, &rate)) { /* G3 */
        truce__rate_begin(&rate);
        truce__rate_append(&rate, &set);
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

    if (!status && !truce__gate_has_room(commit->store, &gate))
        status = truce__fail(TRUCE_NOT_FOUND, error, "the queue is at its limit");
    if (!status)
        status = count_gate(commit, id, &gate, 1, error);
    bson_destroy(&gate);
    return status;
}

/* ---- going out ---------------------------------------------------------------------------------- */

static truce_status gate_leave(truce_commit *commit, const bson_value_t *id, bson_error_t *error)
{
    bson_t gate;
    truce_status status = truce_commit_read(commit, QUEUE_GATES, id, &gate, error);

    if (!status)
        status = count_gate(commit, id, &gate, -1, error);
    bson_destroy(&gate);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status; /* somebody removed it */
}

/* The state that an update makes it, if that is an end; else "". Borrowed from the update. */
static const char *gate_end_of(const bson_t *update)
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
    const char *end = gate_end_of(update);
    struct job_lane lane;
    truce_status status = truce_commit_update(commit, QUEUE, &id, NULL, update, error);

    if (!status && bson_iter_init(&iter, job) &&
        bson_iter_find_descendant(&iter, "lease.gate",
                                  &gate)) /* G1; what does not run has no lease */
        status = gate_leave(commit, bson_iter_value(&gate), error);
    if (!status && *end && truce__job_live(job) && !truce__job_is_held(job) &&
        truce__job_lane(job, &lane))
        status = truce__lane_leave(commit, truce__field_text(job, "queue"), lane.name, error);
    if (!status && *end)
        status = truce__after_tell(commit, job, end, error);
    return status;
}
