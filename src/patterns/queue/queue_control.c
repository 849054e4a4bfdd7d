/* Control of a queue by an operator: jobs by their id, dead jobs, pauses. */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/wait_limit.h"
#include "bson/field_name_escape.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"

/* The maximum number of jobs that one call of truce_queue_redrive retries. */
#define REDRIVE_MAX 1000

enum control { CANCEL, RETRY, DISCARD };

struct control_call {
    truce_queue *queue;
    const bson_oid_t *id;
    enum control control;
};

/* ---- one job --------------------------------------------------------------------------------- */

/* Returns true if the list contains the word. */
static bool control_is(const char *state, const char *list)
{
    size_t length = strlen(state);

    for (const char *at = list; length && (at = strstr(at, state)); at += length) {
        if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            return true;
    }
    return false;
}

/* For each call: the states that allow it, the name of its effect, and the state that it leaves. */
static const struct {
    const char *from, *name, *already;
} rules[] = {
    [CANCEL] = {"ready delayed running waiting blocked", "cancelled", "cancelled"},
    [RETRY] = {"delayed dead cancelled discarded", "retried", "ready"},
    [DISCARD] = {"ready delayed waiting blocked dead cancelled", "discarded", "discarded"},
};

/* Makes the update of a retry. A delayed job keeps its position in its lane. A job that had ended
 * goes to the end of its lane, or waits for other jobs again. */
static truce_status control_make_retry(truce_commit *commit, const bson_t *job, int64_t now_ms,
                                       bson_t *update, bson_error_t *error)
{
    const char *queue = truce__field_text(job, "queue");
    truce_status status = TRUCE_OK;
    bson_t set, unset;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    if (!truce__job_live(job))
        status = truce__workflow_rearm(commit, job, &set, error);
    if (truce__workflow_pending(job) > 0)
        truce__job_append_held(&set, "blocked", queue, now_ms, now_ms);
    else if (truce__job_live(job))
        truce__job_append_queued(&set, queue, (int32_t)truce__field_number(job, "priority"), now_ms,
                                 now_ms);
    else if (!status)
        status = truce__job_append_started(commit, job, now_ms, now_ms, &set, error);
    BSON_APPEND_INT32(&set, "attempt", 0);
    bson_append_document_end(update, &set);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
    BSON_APPEND_UTF8(&unset, "ended", "");
    BSON_APPEND_UTF8(&unset, "expires", "");
    BSON_APPEND_UTF8(&unset, "dead", "");
    BSON_APPEND_UTF8(&unset, "stalled", "");
    BSON_APPEND_UTF8(&unset, "after.failed", "");
    bson_append_document_end(update, &unset);
    return status;
}

/* Fails with INVALID because the state of the job does not allow the change. */
static truce_status control_refuse(const char *state, enum control control, bson_error_t *error)
{
    bool may_have_no_worker = control == RETRY && !strcmp(state, "running");

    return truce__fail(
        TRUCE_INVALID, error, "the state of the job is %s, so it cannot be %s%s",
        state[0] ? state : "missing", rules[control].name,
        may_have_no_worker
            ? "; if its worker was killed, the job is released by a worker that keeps "
              "waiting for jobs, or by two sweeps (truce sweep) a lease apart"
            : "");
}

/* Changes the state of a job in a commit. Does nothing if the job has the wanted state already, and
 * fails with INVALID if its state does not allow the change. */
static truce_status control_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct control_call *call = arg;
    int64_t now_ms = truce__clock_wall_ms();
    bson_t job, update = BSON_INITIALIZER;
    truce_status status = truce__queue_read_job(call->queue, commit, call->id, &job, error);
    const char *state = truce__job_state(&job);

    if (status || !strcmp(state, rules[call->control].already))
        goto out;
    if (!control_is(state, rules[call->control].from)) {
        status = control_refuse(state, call->control, error);
        goto out;
    }
    if (call->control == RETRY) {
        status = truce__job_live(&job) ? TRUCE_OK : truce__queue_key_reclaim(commit, &job, error);
        if (!status)
            status = control_make_retry(commit, &job, now_ms, &update, error);
    } else {
        truce__job_update_end(&update, &job, rules[call->control].name, NULL, now_ms);
    }
    if (!status)
        status = truce__job_transition(commit, &job, &update, error);
out:
    bson_destroy(&update);
    bson_destroy(&job);
    return status;
}

static truce_status control_run(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                                enum control what, bson_error_t *error)
{
    struct control_call call = {queue, id, what};
    truce_status status = truce__queue_ready(queue, error);

    return status ? status : truce__queue_run(queue, commit, control_in, &call, error);
}

truce_status truce_queue_cancel(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                                bson_error_t *error)
{
    RETURN_IF_NULL(id, error);

    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    return control_run(queue, commit, id, CANCEL, error);
}

truce_status truce_queue_retry(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                               bson_error_t *error)
{
    RETURN_IF_NULL(id, error);

    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    return control_run(queue, commit, id, RETRY, error);
}

truce_status truce_queue_discard(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(id, error);

    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    return control_run(queue, commit, id, DISCARD, error);
}

struct getting {
    truce_queue *queue;
    const bson_oid_t *id;
    bson_t *document;
};

static truce_status control_get_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct getting *getting = arg;

    bson_destroy(getting->document);
    return truce__queue_read_job(getting->queue, commit, getting->id, getting->document, error);
}

truce_status truce_queue_get(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                             bson_t *document, bson_error_t *error)
{
    RETURN_IF_NULL(document, error);
    RETURN_EMPTY_IF_NULL(id, document, error);

    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    struct getting getting = {queue, id, document};
    truce_status status;

    bson_init(document);
    status = truce__queue_ready(queue, error);
    if (!status)
        status = truce__queue_run(queue, commit, control_get_in, &getting, error);
    truce__names_restore_own(document);
    return status;
}

/* ---- dead jobs ------------------------------------------------------------------------------- */

/* Reads the ids of up to `limit` dead letters of the queue, the oldest first. */
static truce_status control_gather_dead(truce_queue *queue, uint32_t limit, bson_oid_t *ids,
                                        uint32_t *count, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("dead.queue", BCON_UTF8(queue->name)),
           *sort = BCON_NEW("dead.at", BCON_INT32(1)), *projection = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {.sort = sort, .projection = projection, .limit = limit};
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    truce_status status = truce__queue_ready(queue, error);

    if (!status)
        status = truce_find(queue->store, QUEUE, filter, &options, &cursor, error);

    while (!status && *count < limit) {
        bson_value_t id;

        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        id = truce__document_id(found);
        if (id.value_type == BSON_TYPE_OID)
            bson_oid_copy(&id.value.v_oid, &ids[(*count)++]);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    bson_destroy(sort);
    bson_destroy(projection);
    return status;
}

truce_status truce_queue_redrive(truce_queue *queue, uint32_t limit, uint32_t *count,
                                 bson_error_t *error)
{
    DEADLINE_SCOPE(queue->deadline_ms); /* Without one, each retry has its own. */
    WAIT_LIMIT_SCOPE();
    uint32_t most = limit && limit < REDRIVE_MAX ? limit : REDRIVE_MAX, found = 0;
    bson_oid_t *ids = bson_malloc(most * sizeof *ids);
    truce_status status = control_gather_dead(queue, most, ids, &found, error);

    if (count)
        *count = 0;
    for (uint32_t i = 0; !status && i < found; i++) {
        status = truce_queue_retry(queue, NULL, &ids[i], error);
        if (!status && count)
            ++*count;
        if (status == TRUCE_NOT_FOUND || status == TRUCE_INVALID)
            /* Another process has changed the job in the meantime, which is not a failure. */
            status = TRUCE_OK;
    }
    bson_free(ids);
    return status;
}

/* ---- pauses ---------------------------------------------------------------------------------- */

static truce_status control_set_paused(truce_queue *queue, bool paused, bson_error_t *error)
{
    bson_value_t value = {.value_type = BSON_TYPE_BOOL, .value.v_bool = paused};
    truce_status status = truce__queue_set(queue, "paused", &value, error);

    if (!status)
        atomic_store(&queue->paused, paused);
    return status;
}

truce_status truce_queue_pause(truce_queue *queue, bson_error_t *error)
{
    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    return control_set_paused(queue, true, error);
}

truce_status truce_queue_resume(truce_queue *queue, bson_error_t *error)
{
    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    return control_set_paused(queue, false, error);
}
