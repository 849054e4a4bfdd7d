/*
 * Claiming several at once: a look for the first jobs that are ready, then
 *
 *     inside the store's write, where it can    each job that is ready still -> running (truce/sys/store.h, rewrite)
 *     elsewhere                                 one bulk of guarded updates, of which those that took are found by the token
 *
 * Both make of a job what queue_claim.c says. A job that somebody else was faster with is passed over, and so is one
 * that a commit holds. Without an answer what took is looked for, as after the bulk.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/id.h"
#include "base/limits.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"
#include "store/store.h"

struct several {
    truce_queue *queue;
    bson_t *ids; /* {_id} of those that were seen */
    size_t seen;
    bson_oid_t token;
    truce_job **jobs;
    size_t count;
};

/* ---- looking ------------------------------------------------------------------------------------ */

static truce_status many_look(struct several *several, size_t most, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, *sort = truce__job_order(),
           *projection = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {
        .sort = sort, .projection = projection, .limit = (int64_t)most, .early = true};
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    truce_status status;

    truce__job_ready(several->queue, &filter);
    status = truce_find(several->queue->store, QUEUE, &filter, &options, &cursor, error);
    while (!status && several->seen < most) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        status = truce__job_check_found(found, error);
        if (!status)
            bson_copy_to(found, &several->ids[several->seen++]);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(projection);
    bson_destroy(sort);
    return status;
}

/* ---- inside the store's write --------------------------------------------------------------------- */

struct claiming {
    truce_rewrite base; /* first */
    const struct several *several;
    int64_t now_ms;
    bson_t *made;
    bool *took; /* made[i] is there */
};

static void many_drop(struct claiming *claiming, size_t number)
{
    if (claiming->took[number])
        bson_destroy(&claiming->made[number]);
    claiming->took[number] = false;
}

static void begin_claiming(truce_rewrite *rewrite)
{
    for (size_t i = 0; i < rewrite->count; i++)
        many_drop((struct claiming *)rewrite, i);
}

static bool is_whole_number(const bson_t *job, const char *field)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, job, field) &&
           (BSON_ITER_HOLDS_INT32(&iter) || BSON_ITER_HOLDS_INT64(&iter));
}

/* One that truce did not make is left to a claim of it alone. */
static bool can_be_claimed(const truce_queue *queue, const bson_t *job)
{
    bson_t undone;

    return truce__intent_absent(job) && !strcmp(truce__job_state(job), "ready") &&
           truce__value_subdocument(job, "undone", &undone) &&
           !strcmp(truce__field_text(&undone, "state"), "ready") &&
           !strcmp(truce__field_text(&undone, "queue"), queue->name) &&
           is_whole_number(job, "epoch") && is_whole_number(job, "attempt");
}

static void append_counted(bson_t *after, const bson_iter_t *field)
{
    if (BSON_ITER_HOLDS_INT32(field))
        BSON_APPEND_INT32(after, bson_iter_key(field), bson_iter_int32(field) + 1);
    else
        BSON_APPEND_INT64(after, bson_iter_key(field), bson_iter_as_int64(field) + 1);
}

/* As truce__job_claims without a gate. */
static void many_append_claimed(const struct claiming *claiming, const bson_t *before,
                                bson_t *after)
{
    const truce_queue *queue = claiming->several->queue;
    bson_iter_t field;

    for (bool some = bson_iter_init(&field, before); some && bson_iter_next(&field);) {
        const char *key = bson_iter_key(&field);

        if (!strcmp(key, "state"))
            BSON_APPEND_UTF8(after, key, "running");
        else if (!strcmp(key, "undone"))
            BCON_APPEND(after, key, "{", "state", BCON_UTF8("running"), "queue",
                        BCON_UTF8(queue->name), "rank", BCON_INT32(0), "at",
                        BCON_DATE_TIME(claiming->now_ms + queue->lease_ms), "}");
        else if (!strcmp(key, "epoch") || !strcmp(key, "attempt"))
            append_counted(after, &field);
        else if (strcmp(key, "lease") != 0 && strcmp(key, "_rev") != 0)
            bson_append_iter(after, NULL, 0, &field);
    }
    BSON_APPEND_OID(after, "_rev", &claiming->several->token);
    truce__job_append_lease(queue, &claiming->several->token, NULL, claiming->now_ms, after);
}

static bool make_claimed(truce_rewrite *rewrite, size_t number, const bson_t *before, bson_t *after)
{
    struct claiming *claiming = (struct claiming *)rewrite;

    if (!before || !can_be_claimed(claiming->several->queue, before))
        return false;
    many_append_claimed(claiming, before, after);
    bson_copy_to(after, &claiming->made[number]);
    claiming->took[number] = true;
    return true;
}

static void refuse_claimed(truce_rewrite *rewrite, size_t number, truce_status status,
                           const bson_error_t *error)
{
    (void)status, (void)error; /* a claim of this job alone says why */
    many_drop((struct claiming *)rewrite, number);
}

/* NOT_FOUND: the store cannot. */
static truce_status rewrite_all(struct several *several, bson_error_t *error)
{
    truce_store *store = several->queue->store;
    const bson_t **keys = bson_malloc(several->seen * sizeof *keys);
    struct claiming claiming = {
        .base = {.collection = QUEUE,
                 .keys = keys,
                 .count = several->seen,
                 .begin = begin_claiming,
                 .make = make_claimed,
                 .refuse = refuse_claimed,
                 .relaxed = (store->capabilities & TRUCE_CAN_KEEP_ORDER) != 0},
        .several = several,
        .now_ms = truce__clock_wall_ms()};
    truce_status status;

    claiming.made = bson_malloc(several->seen * sizeof *claiming.made);
    claiming.took = bson_malloc0(several->seen * sizeof *claiming.took);
    for (size_t i = 0; i < several->seen; i++)
        keys[i] = &several->ids[i];
    status = truce__store_rewrite(store, &claiming.base, error);
    for (size_t i = 0; i < several->seen; i++) {
        if (!status && claiming.took[i])
            several->jobs[several->count++] =
                truce__job_new(several->queue, &claiming.made[i], &several->token);
        many_drop(&claiming, i);
    }
    bson_free(claiming.took);
    bson_free(claiming.made);
    bson_free(keys);
    return status;
}

/* ---- by guarded updates --------------------------------------------------------------------------- */

static truce_status update_all(struct several *several, bson_error_t *error)
{
    truce_queue *queue = several->queue;
    truce_bulk_options options = {.unordered = true,
                                  .relaxed =
                                      (queue->store->capabilities & TRUCE_CAN_KEEP_ORDER) != 0,
                                  .deadline_ms = queue->deadline_ms};
    size_t count = several->seen;
    truce_write *writes = bson_malloc0(count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(count * sizeof *outcomes);
    bson_t *filters = bson_malloc(count * sizeof *filters), update = BSON_INITIALIZER;
    truce_status status;

    truce__job_claims(queue, &several->token, NULL, &update);
    for (size_t i = 0; i < count; i++) {
        bson_copy_to(&several->ids[i], &filters[i]);
        truce__job_ready(queue, &filters[i]);
        writes[i] = (truce_write){TRUCE_WRITE_UPDATE, QUEUE, &filters[i], &update};
    }
    status = truce_bulk(queue->store, writes, count, &options, outcomes, error);
    for (size_t i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&filters[i]);
    }
    bson_free(filters);
    bson_free(outcomes);
    bson_free(writes);
    bson_destroy(&update);
    return status;
}

static int by_place(const void *a, const void *b)
{
    const truce_job *left = *(truce_job *const *)a, *right = *(truce_job *const *)b;
    int64_t x = truce__field_number(&left->document, "priority");
    int64_t y = truce__field_number(&right->document, "priority");

    return x != y ? (x > y ? -1 : 1) : bson_oid_compare(&left->id, &right->id);
}

/* {_id: {$in: those that were seen}, state: "running", lease.token} */
static void claimed_filter(const struct several *several, bson_t *filter)
{
    bson_t id, in;

    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &id);
    BSON_APPEND_ARRAY_BEGIN(&id, "$in", &in);
    for (size_t i = 0; i < several->seen; i++) {
        bson_value_t value = truce__document_id(&several->ids[i]);
        char text[16];
        const char *key;

        bson_uint32_to_string((uint32_t)i, &key, text, sizeof text);
        BSON_APPEND_VALUE(&in, key, &value);
    }
    bson_append_array_end(&id, &in);
    bson_append_document_end(filter, &id);
    BCON_APPEND(filter, "state", BCON_UTF8("running"), "lease.token", BCON_OID(&several->token));
}

static truce_status many_collect(struct several *several, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_find_options options = {.limit = (int64_t)several->seen, .early = true};
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    truce_status status;

    claimed_filter(several, &filter);
    status = truce_find(several->queue->store, QUEUE, &filter, &options, &cursor, error);
    while (!status && several->count < several->seen) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        several->jobs[several->count++] = truce__job_new(several->queue, found, &several->token);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    qsort(several->jobs, several->count, sizeof *several->jobs, by_place);
    return several->count ? TRUCE_OK : status;
}

/* ---- the claim ------------------------------------------------------------------------------------ */

static truce_status claim_all(struct several *several, bson_error_t *error)
{
    truce_status status = TRUCE_NOT_FOUND;
    bool told = false;

    truce__id_new(&several->token);
    if (several->queue->store->capabilities & TRUCE_CAN_REWRITE) {
        status = rewrite_all(several, error);
        told = !status;
    }
    if (status == TRUCE_NOT_FOUND)
        status = update_all(several, error);
    if (truce__unanswered(status)) /* what took is looked for */
        status = TRUCE_OK;
    return status || told ? status : many_collect(several, error);
}

truce_status truce__queue_claim_several(truce_queue *queue, size_t most, truce_job **jobs,
                                        size_t *count, bson_error_t *error)
{
    struct several several = {.queue = queue, .jobs = jobs};
    truce_status status;

    several.ids = bson_malloc(most * sizeof *several.ids);
    status = many_look(&several, most, error);
    if (!status && !several.seen)
        status = TRUCE_NOT_FOUND;
    if (!status)
        status = claim_all(&several, error);
    *count = several.count;
    for (size_t i = 0; i < several.seen; i++)
        bson_destroy(&several.ids[i]);
    bson_free(several.ids);
    return status;
}
