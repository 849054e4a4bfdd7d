/*
 * Find-and-modify: one command. A write conflict, and what else says that somebody was faster, changed nothing:
 * it is sent again until the deadline.
 */
#include "store/mongodb/mongo_shards.h"

#include "base/clock.h"
#include "base/random.h"
#include "bson/value.h"

#define CODE_SHARD_KEY_NOT_FOUND 61

static void append_modify(const char *collection, const bson_t *filter, const bson_t *update,
                          const truce_modify_options *options, bson_t *body)
{
    BSON_APPEND_UTF8(body, "findAndModify", collection);
    BSON_APPEND_DOCUMENT(body, "query", filter);
    if (options->sort && !bson_empty(options->sort))
        BSON_APPEND_DOCUMENT(body, "sort", options->sort);
    if (options->remove)
        BSON_APPEND_BOOL(body, "remove", true);
    else if (options->pipeline)
        BSON_APPEND_ARRAY(body, "update", update);
    else
        BSON_APPEND_DOCUMENT(body, "update", update);
    if (options->return_new)
        BSON_APPEND_BOOL(body, "new", true);
    if (options->upsert)
        BSON_APPEND_BOOL(body, "upsert", true);
    if (options->projection && !bson_empty(options->projection))
        BSON_APPEND_DOCUMENT(body, "fields", options->projection);
    if (options->array_filters)
        BSON_APPEND_ARRAY(body, "arrayFilters", options->array_filters);
    truce__mongo_append_hint(body, options->hint);
    if (options->unvalidated)
        BSON_APPEND_BOOL(body, "bypassDocumentValidation", true);
    if (options->deadline_ms)
        BSON_APPEND_INT64(body, "maxTimeMS", options->deadline_ms);
}

/* {value: document or null, lastErrorObject: {n, updatedExisting, upserted}}; not every server tells
 * lastErrorObject. */
static truce_status take_modified(const bson_t *reply, const truce_modify_options *options,
                                  bson_t *document, truce_write_result *result, bson_error_t *error)
{
    bson_iter_t iter, found;
    bool given = false;
    bson_t view;

    if (bson_iter_init_find(&iter, reply, "value") && BSON_ITER_HOLDS_DOCUMENT(&iter)) {
        const uint8_t *bytes;
        uint32_t size;

        bson_iter_document(&iter, &size, &bytes);
        if (!bson_init_static(&view, bytes, size) || truce__document_check(&view, "document", NULL))
            return truce__fail(TRUCE_UNKNOWN, error,
                               "the server's answer to a find-and-modify is not well-formed");
        bson_concat(document, &view);
        given = true;
    }
    if (options->upsert && bson_iter_init(&iter, reply) &&
        bson_iter_find_descendant(&iter, "lastErrorObject.upserted", &found) &&
        !BSON_ITER_HOLDS_NULL(&found)) {
        result->upserted = true;
        bson_value_copy(bson_iter_value(&found), &result->upserted_id);
        return TRUCE_OK;
    }
    if (!given && truce__mongo_number(reply, "lastErrorObject.n", 0) < 1)
        return TRUCE_NOT_FOUND;
    result->matched = 1;
    result->removed = options->remove;
    result->modified = !options->remove; /* the server does not tell more */
    return TRUCE_OK;
}

/* One message, and another one where a collection turns out to be sharded, or otherwise. */
static truce_status modify_once(struct mongo_store *store, const char *collection,
                                const bson_t *filter, const bson_t *update,
                                const truce_modify_options *options, bson_t *document,
                                truce_write_result *result, uint32_t wait_ms, int *refused,
                                bool *again, bson_error_t *error)
{
    char text[200];
    bson_t body = BSON_INITIALIZER, aimed, reply;
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, "find and modify in", collection),
        .body = &body,
        .kind = MONGO_WRITE,
        .write_concern = true,
        .wait_ms = wait_ms,
        .relaxed = options->relaxed || store->relaxed,
    };
    bool changed;
    truce_status status =
        truce__mongo_aim(store, collection, filter, options, &aimed, &changed, error);

    if (!status) {
        append_modify(collection, &aimed, update, options, &body);
        status = truce__mongo_run_alone(store, &command, &reply, error);
        if (!status)
            status = take_modified(&reply, options, document, result, error);
        if (status == TRUCE_NOT_FOUND && truce__mongo_found_none(MONGO_WRITE, command.what, error))
            status = TRUCE_UNKNOWN;
        if (status == TRUCE_TIMEOUT && store->server.deployment == MONGO_SHARDED)
            status = TRUCE_UNKNOWN; /* of mongos; the shard may go on */
        *again = status == TRUCE_CONFLICT || (status == TRUCE_NOT_FOUND && changed);
        if (status == TRUCE_INVALID && error->domain == TRUCE_ERROR_SERVER &&
            error->code == CODE_SHARD_KEY_NOT_FOUND) {
            truce__mongo_shards_forget(store, collection);
            *again = !changed && !(*refused)++;
        }
        bson_destroy(&reply);
    }
    bson_destroy(&aimed);
    bson_destroy(&body);
    return status;
}

truce_status truce__mongo_find_and_modify(truce_store *base, const char *collection,
                                          const bson_t *filter, const bson_t *update,
                                          const truce_modify_options *options, bson_t *document,
                                          truce_write_result *result, bson_error_t *error)
{
    struct mongo_store *store = (struct mongo_store *)base;
    uint32_t wait_ms = options->deadline_ms ? options->deadline_ms : store->deadline_ms;
    int64_t until_ns = truce__clock_monotonic_ns() + (int64_t)wait_ms * 1000000;
    truce_status status = truce__mongo_writable(store, error);
    bool again = true;
    int refused = 0;

    bson_init(document);
    if (!status && update && !options->pipeline)
        status = truce__mongo_depth_check(update, error);
    if (status)
        return status;
    for (;;) {
        bson_error_t caught = {0};

        again = false;
        status = modify_once(store, collection, filter, update, options, document, result, wait_ms,
                             &refused, &again, &caught);
        if (status && error)
            *error = caught;
        if (!again || truce__clock_monotonic_ns() > until_ns)
            break;
        truce__clock_sleep_ms((int64_t)(truce__random_entropy() % 20));
    }
    return status;
}
