/*
 * Removes expired documents, by the indexes with expireAfterSeconds of every collection.
 *
 * The _ids of expired documents are read in batches. A bulk removes each batch; its filters test
 * the date again, so a document that got a new date in the meantime remains.
 */
#include "base/clock.h"
#include "bson/value.h"
#include "query/input_check.h"
#include "store/maintenance.h"
#include "store/store.h"

/* The maximum number of documents that one bulk removes. */
#define BATCH 500

struct expiring {
    truce_store *store;
    /* A condition that expired documents must also match, or NULL. */
    const bson_t *guard;
    /* The wall clock time, and the numbers of documents that may still be removed and that were
     * removed. */
    int64_t now_ms, left, removed;
};

/* Builds {$and: [{path: {$lt: date}}, partial filter?, guard?]}, with a field `_id` if `id` is not
 * NULL. */
static void expire_make_filter(const struct expiring *expiring, const char *path, int64_t before_ms,
                               struct value partial, const bson_value_t *id, bson_t *filter)
{
    bson_t all, one, condition, equal;

    if (id) {
        BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &equal);
        BSON_APPEND_VALUE(&equal, "$eq", id);
        bson_append_document_end(filter, &equal);
    }
    BSON_APPEND_ARRAY_BEGIN(filter, "$and", &all);
    BSON_APPEND_DOCUMENT_BEGIN(&all, "0", &one);
    BSON_APPEND_DOCUMENT_BEGIN(&one, path, &condition);
    BSON_APPEND_DATE_TIME(&condition, "$lt", before_ms);
    bson_append_document_end(&one, &condition);
    bson_append_document_end(&all, &one);
    truce__value_append(&all, "1", 1, partial);
    if (expiring->guard)
        BSON_APPEND_DOCUMENT(&all, partial.type ? "2" : "1", expiring->guard);
    bson_append_array_end(filter, &all);
}

/* Copies the _ids of at most BATCH expired documents. */
static truce_status read_batch(struct expiring *expiring, const char *collection,
                               const bson_t *filter, bson_value_t *ids, size_t *count,
                               bson_error_t *error)
{
    bson_t projection = BSON_INITIALIZER;
    truce_find_options options = {.projection = &projection, .limit = BATCH};
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status;
    bson_iter_t iter;

    *count = 0;
    if (expiring->left < BATCH)
        options.limit = expiring->left;
    BSON_APPEND_INT32(&projection, "_id", 1);
    status = truce_find(expiring->store, collection, filter, &options, &cursor, error);
    while (!status && *count < BATCH) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (bson_iter_init_find(&iter, document, "_id"))
            bson_value_copy(bson_iter_value(&iter), &ids[(*count)++]);
    }
    truce_cursor_close(cursor);
    bson_destroy(&projection);
    return status;
}

/* Removes the documents that the filters match, and counts them. */
static truce_status remove_batch(struct expiring *expiring, const char *collection,
                                 const bson_t *filters, size_t count, bson_error_t *error)
{
    truce_write writes[BATCH];
    truce_write_outcome *outcomes = bson_malloc0((count + 1) * sizeof(*outcomes));
    truce_status status;

    for (size_t i = 0; i < count; i++)
        writes[i] = (truce_write){
            .kind = TRUCE_WRITE_REMOVE, .collection = collection, .filter = &filters[i]};
    status = truce_bulk(expiring->store, writes, count, &(truce_bulk_options){.unordered = true},
                        outcomes, error);
    for (size_t i = 0; i < count; i++) {
        expiring->removed += outcomes[i].result.removed;
        expiring->left -= outcomes[i].result.removed;
        truce_write_result_release(&outcomes[i].result);
    }
    bson_free(outcomes);
    return status;
}

/* Removes one batch. Sets `*more` if the batch was full. */
static truce_status expire_batch(struct expiring *expiring, const char *collection,
                                 const char *path, int64_t before_ms, struct value partial,
                                 bool *more, bson_error_t *error)
{
    bson_value_t *ids = bson_malloc0(BATCH * sizeof(*ids));
    bson_t *filters = bson_malloc0(BATCH * sizeof(*filters));
    bson_t filter = BSON_INITIALIZER;
    size_t count = 0;
    truce_status status;

    expire_make_filter(expiring, path, before_ms, partial, NULL, &filter);
    status = read_batch(expiring, collection, &filter, ids, &count, error);
    for (size_t i = 0; i < count; i++) {
        bson_init(&filters[i]);
        expire_make_filter(expiring, path, before_ms, partial, &ids[i], &filters[i]);
    }
    if (!status && count > 0)
        status = remove_batch(expiring, collection, filters, count, error);
    *more = count == BATCH && expiring->left > 0;
    for (size_t i = 0; i < count; i++) {
        bson_destroy(&filters[i]);
        bson_value_destroy(&ids[i]);
    }
    bson_destroy(&filter);
    bson_free(filters);
    bson_free(ids);
    return status;
}

/* Removes the documents that an index with expireAfterSeconds has expired, batch by batch. Does
 * nothing for another index. */
static truce_status expire_index(struct expiring *expiring, const char *collection,
                                 struct value definition, bson_error_t *error)
{
    struct value after = truce__value_field(definition, "expireAfterSeconds", 18);
    struct value partial = truce__value_field(definition, "partialFilterExpression", 23);
    struct fields key = truce__fields(truce__value_field(definition, "key", 3));
    truce_status status = TRUCE_OK;
    bool more = true;
    int64_t before_ms;

    if (after.type != BSON_TYPE_INT64 || !truce__fields_next(&key))
        return TRUCE_OK;
    before_ms = truce__value_int64(after) > expiring->now_ms / 1000
                    ? 0
                    : expiring->now_ms - truce__value_int64(after) * 1000;
    while (!status && more && expiring->left > 0)
        status = expire_batch(expiring, collection, key.key, before_ms, partial, &more, error);
    return status;
}

/* Removes the expired documents of a collection, index by index. */
static truce_status expire_collection(void *arg, const char *collection, bson_error_t *error)
{
    struct expiring *expiring = arg;
    struct fields fields;
    bson_t indexes;
    truce_status status = truce_index_list(expiring->store, collection, &indexes, error);

    /* The collection was dropped in the meantime. */
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    for (fields = truce__fields(truce__value_document(&indexes));
         !status && truce__fields_next(&fields);)
        status = expire_index(expiring, collection, fields.value, error);
    bson_destroy(&indexes);
    return status;
}

truce_status truce_store_expire(truce_store *store, const bson_t *guard, int64_t limit,
                                int64_t *removed, bson_error_t *error)
{
    struct expiring expiring = {.store = store,
                                .guard = guard,
                                .now_ms = truce__clock_wall_ms(),
                                .left = limit > 0 ? limit : INT64_MAX};
    truce_status status = truce__check_optional(guard, "guard", error);

    if (!status)
        status = truce__each_collection(store, expire_collection, &expiring, error);
    if (removed)
        *removed = expiring.removed;
    return status;
}
