/*
 * Claiming through a gate (rate_limit.c): a look for the first jobs that are ready, then for one of them
 *
 *     a commit that read: the gate, which has room; the job, which is ready
 *     -> the gate counts it; the job is running, its lease names the gate
 *
 * Where the gate has no room nothing is begun: a full queue costs its workers two reads.
 */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/id.h"
#include "base/limits.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"

#define LOOKED_AT 16
#define CLAIM_NS  INT64_C(5000000000) /* in which jobs that were missed are passed over */

struct entering {
    truce_queue *queue;
    const bson_value_t *gate;
    bson_value_t id;
    bson_oid_t token;
    bson_t job;   /* as it is then */
    bool missed;  /* it was not ready any more, or: */
    bool put_off; /* by the rate of its lane */
};

static bool is_ready(const truce_queue *queue, const bson_t *job)
{
    return !strcmp(truce__job_state(job), "ready") &&
           !strcmp(truce__field_text(job, "queue"), queue->name);
}

static truce_status gated_put_off(truce_commit *commit, const struct entering *entering,
                                  const bson_t *job, int64_t wait_ms, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t update = BSON_INITIALIZER, set;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    truce__job_waits(&set, entering->queue->name, (int32_t)truce__field_number(job, "priority"),
                     truce__job_date_after(now_ms, wait_ms), now_ms);
    bson_append_document_end(&update, &set);
    status = truce_commit_update(commit, QUEUE, &entering->id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

static truce_status enter_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct entering *entering = arg;
    int64_t wait_ms;
    bson_t job, update = BSON_INITIALIZER;
    truce_status status = truce_commit_read(commit, QUEUE, &entering->id, &job, error);

    entering->missed = status == TRUCE_NOT_FOUND || (!status && !is_ready(entering->queue, &job));
    if (entering->missed)
        status = truce__fail(TRUCE_NOT_FOUND, error, "the job is not ready any more");
    if (!status)
        status = truce__lane_begin(commit, &job, &wait_ms, error);
    entering->put_off = !status && wait_ms;
    if (entering->put_off) {
        status = gated_put_off(commit, entering, &job, wait_ms, error);
        goto out;
    }
    if (!status)
        status = truce__gate_enter(commit, entering->gate, error);
    if (!status) {
        truce__job_claims(entering->queue, &entering->token, entering->gate, &update);
        status = truce_commit_update(commit, QUEUE, &entering->id, NULL, &update, error);
    }
    if (!status) {
        bson_destroy(&entering->job);
        status = truce_commit_read(commit, QUEUE, &entering->id, &entering->job, error);
    }
out:
    bson_destroy(&update);
    bson_destroy(&job);
    return status;
}

/* NOT_FOUND: there is no room, or (*missed) the job was not ready any more. */
static truce_status gated_enter(truce_queue *queue, const bson_value_t *gate,
                                const bson_value_t *id, truce_job **job, bool *missed,
                                bson_error_t *error)
{
    struct entering entering = {.queue = queue, .gate = gate, .id = *id, .job = BSON_INITIALIZER};
    truce_status status;

    truce__id_new(&entering.token);
    status = truce__queue_run(queue, NULL, enter_in, &entering, error);
    *missed = entering.missed || entering.put_off;
    if (!status && entering.put_off)
        status = TRUCE_NOT_FOUND;
    if (!status)
        *job = truce__job_new(queue, &entering.job, &entering.token);
    bson_destroy(&entering.job);
    return status;
}

/* The ids of the first jobs that are ready, as documents that the caller destroys. */
static truce_status gated_look(truce_queue *queue, bson_t **found, size_t *count,
                               bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, *sort = truce__job_order(),
           *projection = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {
        .sort = sort, .projection = projection, .limit = LOOKED_AT, .early = true};
    truce_cursor *cursor = NULL;
    const bson_t *one = NULL;
    truce_status status;

    *count = 0;
    truce__job_ready(queue, &filter);
    status = truce_find(queue->store, QUEUE, &filter, &options, &cursor, error);
    while (!status && *count < LOOKED_AT) {
        status = truce_cursor_next(cursor, &one, error);
        if (status || !one)
            break;
        found[(*count)++] = bson_copy(one);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(projection);
    bson_destroy(sort);
    return status;
}

/* *again: all that were seen were missed, and there may be others. */
static truce_status gated_claim_some(truce_queue *queue, const bson_value_t *gate, size_t most,
                                     truce_job **jobs, size_t *count, bool *again,
                                     bson_error_t *error)
{
    bson_t *found[LOOKED_AT];
    size_t looked_at;
    truce_status status = gated_look(queue, found, &looked_at, error);
    bool full = false;

    *again = looked_at == LOOKED_AT;

    for (size_t i = 0; i < looked_at; i++) {
        bson_value_t id = truce__document_id(found[i]);
        bool missed = false;

        if (!status && !full && *count < most) {
            status = gated_enter(queue, gate, &id, &jobs[*count], &missed, error);
            *count += !status;
            full = status == TRUCE_NOT_FOUND && !missed;
            *again = *again && missed;
            if (status == TRUCE_NOT_FOUND)
                status = TRUCE_OK;
        }
        bson_destroy(found[i]);
    }
    return status;
}

truce_status truce__queue_claim_gated(truce_queue *queue, size_t most, truce_job **jobs,
                                      size_t *count, bool *gated, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(queue->name)), settings, gate = BSON_INITIALIZER;
    truce_status status =
        truce_find_one(queue->store, QUEUE_SETTINGS, filter, NULL, &settings, error);
    int64_t until_ns = truce__clock_monotonic_ns() + CLAIM_NS;
    bson_iter_t iter;
    bool again;

    *gated = !status && bson_iter_init_find(&iter, &settings, "gate");
    if (*gated) {
        bson_reinit(filter);
        BSON_APPEND_VALUE(filter, "_id", bson_iter_value(&iter));
        bson_destroy(&gate);
        status = truce_find_one(queue->store, QUEUE_GATES, filter, NULL, &gate, error);
        *gated = status != TRUCE_NOT_FOUND;
    }
    again = !status && *gated && truce__gate_has_room(queue->store, &gate);
    while (!status && again && truce__clock_monotonic_ns() < until_ns)
        status = gated_claim_some(queue, bson_iter_value(&iter), most, jobs, count, &again, error);
    bson_destroy(&gate);
    bson_destroy(&settings);
    bson_destroy(filter);
    if (status == TRUCE_NOT_FOUND) /* there is no limit */
        status = TRUCE_OK;
    return status || *count || !*gated ? status : TRUCE_NOT_FOUND;
}
