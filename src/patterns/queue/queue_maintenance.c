/*
 * The sweep: cron lines are fired, delayed jobs of queues that nobody claims from become ready, jobs whose worker is gone
 * are given back, lanes and workflows that stalled go on, and jobs that were kept for long enough go, with their keys. A round is bounded,
 * and safe beside any other.
 *
 * A job goes by a removal that compares `expires`; before it goes its key, if the key still names it. A crash between
 * the two leaves a job without its key's document: it expired, so it stands in nobody's way. One that others wait for is
 * discarded first, which tells them.
 */
#include "patterns/queue/queue_maintenance.h"

#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "patterns/queue/queue.h"

/* ---- the sweep ---------------------------------------------------------------------------------- */

static truce_status remove_key(truce_store *store, const bson_t *job, const bson_value_t *id,
                               bson_error_t *error)
{
    const char *key = truce__field_text(job, "key");
    bson_t *filter;
    truce_status status;

    if (!key[0])
        return TRUCE_OK;
    filter = BCON_NEW("_id", "{", "queue", BCON_UTF8(truce__field_text(job, "queue")), "key",
                      BCON_UTF8(key), "}");
    BSON_APPEND_VALUE(filter, "job", id);
    truce__intent_append_absent(filter);
    status = truce_remove(store, QUEUE_KEYS, filter, NULL, NULL, error);
    bson_destroy(filter);
    return status;
}

/* No commit holds it, and nobody has to be told that it ended. */
static void append_settled(bson_t *filter)
{
    BCON_APPEND(filter, "stalled", "{", "$exists", BCON_BOOL(false), "}");
    truce__intent_append_absent(filter);
}

/* A dead letter whose second life others wait for: they are told that there is none. */
static truce_status care_give_up(struct sweep *sweep, const bson_t *job, bson_error_t *error)
{
    truce_queue_options options = {.queue = truce__field_text(job, "queue")};
    truce_queue *queue = truce_queue_new(sweep->store, &options);
    bson_value_t id = truce__document_id(job);
    truce_status status = id.value_type == BSON_TYPE_OID
                              ? truce_queue_discard(queue, NULL, &id.value.v_oid, error)
                              : TRUCE_OK;

    truce_queue_free(queue);
    return status;
}

static truce_status care_prune(struct sweep *sweep, const char *collection, const bson_t *job,
                               void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    truce_write_result result = {0};
    bson_t filter = BSON_INITIALIZER;
    int64_t expires_ms;
    truce_status status;

    if (bson_has_field(job, "then"))
        return care_give_up(sweep, job, error);
    status = remove_key(sweep->store, job, &id, error);

    (void)arg;
    (void)truce__job_date(job, "expires", &expires_ms);
    BSON_APPEND_VALUE(&filter, "_id", &id);
    BSON_APPEND_DATE_TIME(&filter, "expires", expires_ms);
    BCON_APPEND(&filter, "then", "{", "$exists", BCON_BOOL(false), "}");
    append_settled(&filter);
    if (!status)
        status = truce_remove(sweep->store, collection, &filter, NULL, &result, error);
    sweep->report->expired += result.removed;
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}

static truce_status prune_all(struct sweep *sweep, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("expires", "{", "$lte", BCON_DATE_TIME(truce__clock_wall_ms()), "}");
    truce_status status;

    append_settled(filter);
    status = truce__sweep_each(sweep, QUEUE, filter, care_prune, NULL, error);
    bson_destroy(filter);
    return status;
}

static truce_status care_rescue(struct sweep *sweep, const char *collection, const bson_t *job,
                                void *arg, bson_error_t *error)
{
    bool rescued;
    truce_status status;

    (void)sweep, (void)collection;
    status = truce__queue_rescue(arg, job, &rescued, error);
    return status || rescued ? status : TRUCE_LOCKED; /* its lease is not over */
}

static truce_status rescue_all(struct sweep *sweep, bson_error_t *error)
{
    truce_queue_options options = {.queue = "sweep"}; /* its backoff; the jobs say their queues */
    truce_queue *queue = truce_queue_new(sweep->store, &options);
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    truce__queue_append_suspects(queue->lease_ms, &filter);
    status = truce__sweep_each(sweep, QUEUE, &filter, care_rescue, queue, error);
    bson_destroy(&filter);
    truce_queue_free(queue);
    return status;
}

/* A line may stand there before its queue has a job. */
static truce_status fire(struct sweep *sweep, const char *collection, const bson_t *cron, void *arg,
                         bson_error_t *error)
{
    (void)collection, (void)arg;
    return truce__cron_fire_one(sweep->store, cron, NULL, error);
}

static truce_status fire_all(struct sweep *sweep, bson_error_t *error)
{
    bson_t *filter = truce__cron_due();
    truce_status status = truce__sweep_each(sweep, QUEUE_CRONS, filter, fire, NULL, error);

    bson_destroy(filter);
    return status;
}

static truce_status go_on_all(struct sweep *sweep, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("stalled", BCON_BOOL(true)),
           *idle = BCON_NEW("idle", "{", "$lte", BCON_DATE_TIME(truce__clock_wall_ms()), "}");
    truce_status status;

    truce__intent_append_absent(filter);
    truce__intent_append_absent(idle);
    status = truce__sweep_each(sweep, QUEUE_LANES, filter, truce__lane_go_on, NULL, error);
    if (!status)
        status = truce__sweep_each(sweep, QUEUE_LANES, idle, truce__lane_go_on, NULL, error);
    if (!status)
        status = truce__sweep_each(sweep, QUEUE, filter, truce__after_go_on, NULL, error);
    bson_destroy(idle);
    bson_destroy(filter);
    return status;
}

/* Nobody has added a job: then there is nothing to do, and no index to make. */
static truce_status care_is_used(truce_store *store, bool *used, bson_error_t *error)
{
    bson_t found;
    truce_status status = truce_find_one(store, QUEUE, NULL, NULL, &found, error);

    *used = status == TRUCE_OK;
    bson_destroy(&found);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__queue_sweep(struct sweep *sweep, bson_error_t *error)
{
    bool used = false, more = false;
    truce_status status = fire_all(sweep, error);

    if (!status)
        status = care_is_used(sweep->store, &used, error);
    if (status || !used)
        return status;
    status = truce__queue_indexes(sweep->store, error);
    if (!status)
        status = truce__queue_promote(sweep->store, NULL, &more, error);
    sweep->report->more = sweep->report->more || more;
    if (!status)
        status = rescue_all(sweep, error);
    if (!status)
        status = go_on_all(sweep, error);
    return status ? status : prune_all(sweep, error);
}
