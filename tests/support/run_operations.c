/* Runs the operations of random_operations.h. */
#include "tests/support/random_operations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "bson/key_encoding.h"
#include "bson/value.h"

/* ---- arguments ------------------------------------------------------------------------------ */

static bool sub(const bson_t *operation, const char *name, bson_t *document)
{
    bson_iter_t iter;
    const uint8_t *bytes = NULL;
    uint32_t size = 0;

    if (!bson_iter_init_find(&iter, operation, name))
        return false;
    if (BSON_ITER_HOLDS_DOCUMENT(&iter))
        bson_iter_document(&iter, &size, &bytes);
    else if (BSON_ITER_HOLDS_ARRAY(&iter))
        bson_iter_array(&iter, &size, &bytes);
    return bytes && bson_init_static(document, bytes, size);
}

static const char *text(const bson_t *operation, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, operation, name) ? bson_iter_utf8(&iter, NULL) : "";
}

static int64_t number(const bson_t *operation, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, operation, name) ? bson_iter_as_int64(&iter) : 0;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* Several reasons to refuse a document can hold at once, and their order is not specified. */
static int32_t reason(const bson_error_t *error)
{
    switch (error->code) {
    case CODE_DUPLICATE_KEY:
    case CODE_CANNOT_INDEX_PARALLEL_ARRAYS:
    case 16746: /* The error of an ambiguous field. */
        return 1;
    default:
        return (int32_t)error->code;
    }
}

static void add_status(bson_t *answer, truce_status status, const bson_error_t *error)
{
    if (status == TRUCE_OK)
        return;
    if (error->domain == TRUCE_ERROR_SERVER)
        BSON_APPEND_INT32(answer, "code", reason(error));
    else
        BSON_APPEND_UTF8(answer, "status", truce_status_name(status));
}

static void add_result(bson_t *answer, const truce_write_result *result)
{
    BSON_APPEND_INT64(answer, "matched", result->matched);
    BSON_APPEND_INT64(answer, "modified", result->modified);
    BSON_APPEND_INT64(answer, "inserted", result->inserted);
    BSON_APPEND_INT64(answer, "removed", result->removed);
    if (result->upserted)
        BSON_APPEND_VALUE(answer, "upserted", &result->upserted_id);
}

struct list {
    bson_t **items;
    size_t count, room;
};

static void list_add(struct list *list, const bson_t *document)
{
    if (list->count == list->room) {
        list->room = list->room ? list->room * 2 : 32;
        list->items = bson_realloc(list->items, list->room * sizeof(bson_t *));
    }
    list->items[list->count++] = bson_copy(document);
}

static int compare_documents(const void *a, const void *b)
{
    const bson_t *x = *(bson_t *const *)a, *y = *(bson_t *const *)b;
    uint32_t common = x->len < y->len ? x->len : y->len;
    int order = memcmp(bson_get_data(x), bson_get_data(y), common);

    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static void list_end(struct list *list, bool ordered, bson_t *answer)
{
    bson_t array;

    if (!ordered && list->count > 0)
        qsort(list->items, list->count, sizeof(bson_t *), compare_documents);
    BSON_APPEND_ARRAY_BEGIN(answer, "documents", &array);
    for (size_t i = 0; i < list->count; i++) {
        char index[24];

        snprintf(index, sizeof(index), "%zu", i);
        BSON_APPEND_DOCUMENT(&array, index, list->items[i]);
        bson_destroy(list->items[i]);
    }
    bson_append_array_end(answer, &array);
    bson_free(list->items);
}

/* Returns the number of documents of the cursor. */
static truce_status drain_count(truce_cursor *cursor, bson_t *answer, bson_error_t *error)
{
    const bson_t *document = NULL;
    truce_status status;
    int64_t count = 0;

    do {
        status = truce_cursor_next(cursor, &document, error);
        count += !status && document;
    } while (!status && document);
    truce_cursor_close(cursor);
    BSON_APPEND_INT64(answer, "count", count);
    return status;
}

/* Returns all documents of the cursor; without an order, sorted by bytes. */
static truce_status drain(truce_cursor *cursor, bool ordered, bson_t *answer, bson_error_t *error)
{
    struct list list = {0};
    const bson_t *document = NULL;
    truce_status status;

    do {
        status = truce_cursor_next(cursor, &document, error);
        if (!status && document)
            list_add(&list, document);
    } while (!status && document);
    truce_cursor_close(cursor);
    list_end(&list, ordered, answer);
    return status;
}

/* ---- operations ----------------------------------------------------------------------------- */

static truce_status run_insert(truce_store *store, const bson_t *operation, bson_t *answer,
                               bson_error_t *error)
{
    bson_t document;

    sub(operation, "document", &document);
    return truce_insert(store, text(operation, "collection"), &document, NULL, error);
}

static truce_status run_update(truce_store *store, const bson_t *operation, bson_t *answer,
                               bson_error_t *error)
{
    truce_write_options options = {.multi = number(operation, "multi") != 0,
                                   .upsert = number(operation, "upsert") != 0};
    truce_write_result result;
    bson_t filter, update;
    truce_status status;

    sub(operation, "filter", &filter);
    sub(operation, "update", &update);
    status = truce_update(store, text(operation, "collection"), &filter, &update, &options, &result,
                          error);
    if (!status)
        add_result(answer, &result);
    truce_write_result_release(&result);
    return status;
}

static truce_status run_remove(truce_store *store, const bson_t *operation, bson_t *answer,
                               bson_error_t *error)
{
    truce_write_options options = {.multi = number(operation, "multi") != 0};
    truce_write_result result;
    truce_status status;
    bson_t filter;

    sub(operation, "filter", &filter);
    status = truce_remove(store, text(operation, "collection"), &filter, &options, &result, error);
    add_result(answer, &result);
    truce_write_result_release(&result);
    return status;
}

/* Runs a find. With a limit and without a sort, only the number of documents is comparable. */
static truce_status run_find(truce_store *store, const bson_t *operation, bson_t *answer,
                             bson_error_t *error)
{
    truce_find_options options = {.skip = number(operation, "skip"),
                                  .limit = number(operation, "limit")};
    bson_t filter, sort, projection, hint;
    truce_cursor *cursor = NULL;
    truce_status status;

    sub(operation, "filter", &filter);
    if (sub(operation, "hint", &hint))
        options.hint = &hint;
    if (sub(operation, "sort", &sort))
        options.sort = &sort;
    if (sub(operation, "projection", &projection))
        options.projection = &projection;
    status = truce_find(store, text(operation, "collection"), &filter, &options, &cursor, error);
    if (status)
        return status;
    if (options.limit && !options.sort)
        return drain_count(cursor, answer, error);
    return drain(cursor, options.sort != NULL, answer, error);
}

static truce_status run_count(truce_store *store, const bson_t *operation, bson_t *answer,
                              bson_error_t *error)
{
    truce_count_options options = {.skip = number(operation, "skip"),
                                   .limit = number(operation, "limit")};
    truce_status status;
    int64_t count = 0;
    bson_t filter, hint;

    sub(operation, "filter", &filter);
    if (sub(operation, "hint", &hint))
        options.hint = &hint;
    status = truce_count(store, text(operation, "collection"), &filter, &options, &count, error);
    BSON_APPEND_INT64(answer, "count", count);
    return status;
}

/* Runs a distinct. Which one of several equal values is returned depends on the order, so the
 * result has their index keys. */
static truce_status run_distinct(truce_store *store, const bson_t *operation, bson_t *answer,
                                 bson_error_t *error)
{
    bson_t filter, values, one;
    struct list list = {0};
    struct fields fields;
    truce_status status;

    sub(operation, "filter", &filter);
    status = truce_distinct(store, text(operation, "collection"), text(operation, "path"), &filter,
                            &values, error);
    for (fields = truce__fields(truce__value_document(&values)); truce__fields_next(&fields);) {
        struct buffer key = {0};

        truce__key_append(&key, fields.value, false);
        bson_init(&one);
        BSON_APPEND_BINARY(&one, "key", BSON_SUBTYPE_BINARY, key.bytes, (uint32_t)key.size);
        list_add(&list, &one);
        bson_destroy(&one);
        truce__buffer_release(&key);
    }
    list_end(&list, false, answer);
    bson_destroy(&values);
    return status;
}

static truce_status run_modify(truce_store *store, const bson_t *operation, bson_t *answer,
                               bson_error_t *error)
{
    truce_modify_options options = {.remove = number(operation, "remove") != 0,
                                    .return_new = number(operation, "new") != 0};
    bson_t filter, update, sort, document;
    truce_write_result result;
    truce_status status;
    bool has_update = sub(operation, "update", &update);

    sub(operation, "filter", &filter);
    if (sub(operation, "sort", &sort))
        options.sort = &sort;
    status =
        truce_find_and_modify(store, text(operation, "collection"), &filter,
                              has_update ? &update : NULL, &options, &document, &result, error);
    add_result(answer, &result);
    BSON_APPEND_DOCUMENT(answer, "document", &document);
    bson_destroy(&document);
    truce_write_result_release(&result);
    return status;
}

static void append_stage(bson_t *pipeline, const char *index, const char *name, const bson_t *value)
{
    bson_t stage;

    BSON_APPEND_DOCUMENT_BEGIN(pipeline, index, &stage);
    BSON_APPEND_DOCUMENT(&stage, name, value);
    bson_append_document_end(pipeline, &stage);
}

static void append_limit(bson_t *pipeline, const char *index, int64_t limit)
{
    bson_t stage;

    BSON_APPEND_DOCUMENT_BEGIN(pipeline, index, &stage);
    BSON_APPEND_INT64(&stage, "$limit", limit);
    bson_append_document_end(pipeline, &stage);
}

/* Runs $match, $sort, and one more stage. The order of the result counts, except after $lookup. */
static truce_status run_aggregate(truce_store *store, const bson_t *operation, bson_t *answer,
                                  bson_error_t *error)
{
    bson_t pipeline = BSON_INITIALIZER, filter, sort, value = BSON_INITIALIZER, sum;
    bson_t by_id = BSON_INITIALIZER;
    char path[32];
    truce_cursor *cursor = NULL;
    truce_status status;

    sub(operation, "filter", &filter);
    sub(operation, "sort", &sort);
    snprintf(path, sizeof(path), "$%s", text(operation, "path"));
    BSON_APPEND_INT32(&by_id, "_id", 1);
    append_stage(&pipeline, "0", "$match", &filter);
    append_stage(&pipeline, "1", "$sort", &sort);
    if (number(operation, "limit"))
        append_limit(&pipeline, "2", number(operation, "limit"));
    switch (number(operation, "stage")) {
    case 0:
        BSON_APPEND_UTF8(&value, "path", path);
        append_stage(&pipeline, "3", "$unwind", &value);
        break;
    case 1:
        BSON_APPEND_UTF8(&value, "_id", path);
        BSON_APPEND_DOCUMENT_BEGIN(&value, "n", &sum);
        BSON_APPEND_INT32(&sum, "$sum", 1);
        bson_append_document_end(&value, &sum);
        append_stage(&pipeline, "3", "$group", &value);
        append_stage(&pipeline, "4", "$sort", &by_id);
        break;
    case 2:
        BSON_APPEND_UTF8(&value, "v", path);
        append_stage(&pipeline, "3", "$project", &value);
        break;
    default:
        BSON_APPEND_UTF8(&value, "from", "y");
        BSON_APPEND_UTF8(&value, "localField", path + 1);
        BSON_APPEND_UTF8(&value, "foreignField", text(operation, "foreign"));
        BSON_APPEND_UTF8(&value, "as", "found");
        append_stage(&pipeline, "3", "$lookup", &value);
    }
    status = truce_aggregate(store, text(operation, "collection"), &pipeline, NULL, &cursor, error);
    if (!status)
        status = drain(cursor, number(operation, "stage") != 3, answer, error);
    bson_destroy(&pipeline);
    bson_destroy(&value);
    bson_destroy(&by_id);
    return status;
}

static truce_status run_index(truce_store *store, const bson_t *operation, bson_t *answer,
                              bson_error_t *error)
{
    bson_t index;

    sub(operation, "index", &index);
    return truce_index_create(store, text(operation, "collection"), &index, error);
}

static truce_status run_unindex(truce_store *store, const bson_t *operation, bson_t *answer,
                                bson_error_t *error)
{
    return truce_index_drop(store, text(operation, "collection"), text(operation, "name"), error);
}

static truce_status run_collection(truce_store *store, const bson_t *operation, bson_t *answer,
                                   bson_error_t *error)
{
    const char *name = text(operation, "collection"), *verb = text(operation, "verb");

    if (!strcmp(verb, "create"))
        return truce_collection_create(store, name, error);
    if (!strcmp(verb, "drop"))
        return truce_collection_drop(store, name, error);
    if (!strcmp(verb, "rename"))
        return truce_collection_rename(store, name, "z", true, error);
    store_snapshot(store, answer);
    return TRUCE_OK;
}

static void read_write(const bson_t *child, bson_t *filter, bson_t *document, truce_write *write)
{
    *write = (truce_write){.kind = (truce_write_kind)number(child, "kind"),
                           .collection = text(child, "collection"),
                           .options.upsert = number(child, "upsert") != 0};
    if (sub(child, "filter", filter))
        write->filter = filter;
    if (sub(child, "document", document) || sub(child, "update", document))
        write->document = document;
}

static void add_outcomes(bson_t *answer, truce_write_outcome *outcomes, size_t count)
{
    bson_t array, child;

    BSON_APPEND_ARRAY_BEGIN(answer, "outcomes", &array);
    for (size_t i = 0; i < count; i++) {
        char index[24];

        snprintf(index, sizeof(index), "%zu", i);
        BSON_APPEND_DOCUMENT_BEGIN(&array, index, &child);
        add_status(&child, outcomes[i].status, &outcomes[i].error);
        add_result(&child, &outcomes[i].result);
        bson_append_document_end(&array, &child);
        truce_write_result_release(&outcomes[i].result);
    }
    bson_append_array_end(answer, &array);
}

static truce_status run_bulk(truce_store *store, const bson_t *operation, bson_t *answer,
                             bson_error_t *error)
{
    truce_bulk_options options = {.unordered = number(operation, "unordered") != 0,
                                  .atomic = number(operation, "atomic") != 0};
    bson_t list, filters[8], documents[8], children[8];
    truce_write writes[8];
    truce_write_outcome outcomes[8];
    bson_iter_t iter;
    truce_status status;
    size_t count = 0;

    sub(operation, "writes", &list);
    for (bson_iter_init(&iter, &list); bson_iter_next(&iter) && count < 8; count++) {
        const uint8_t *bytes;
        uint32_t size;

        bson_iter_document(&iter, &size, &bytes);
        bson_init_static(&children[count], bytes, size);
        read_write(&children[count], &filters[count], &documents[count], &writes[count]);
    }
    status = truce_bulk(store, writes, count, &options, outcomes, error);
    add_outcomes(answer, outcomes, count);
    return status;
}

static const struct runner {
    const char *name;
    truce_status (*run)(truce_store *store, const bson_t *operation, bson_t *answer,
                        bson_error_t *error);
} runners[] = {
    {"insert", run_insert},   {"update", run_update},       {"remove", run_remove},
    {"find", run_find},       {"count", run_count},         {"distinct", run_distinct},
    {"modify", run_modify},   {"aggregate", run_aggregate}, {"index", run_index},
    {"unindex", run_unindex}, {"bulk", run_bulk},           {"collection", run_collection},
};

void operation_run(truce_store *store, const bson_t *operation, bson_t *answer)
{
    bson_error_t error = {0};
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < sizeof(runners) / sizeof(runners[0]); i++)
        if (!strcmp(runners[i].name, text(operation, "op")))
            status = runners[i].run(store, operation, answer, &error);
    add_status(answer, status, &error);
}

bool operation_is_ambiguous(const bson_t *operation, const bson_t *answer)
{
    bool failed = bson_has_field(answer, "code") || bson_has_field(answer, "status");

    if (failed && bson_has_field(operation, "sort") && number(answer, "code") == CODE_BAD_VALUE)
        return true;
    return failed && number(operation, "multi") != 0 && !strcmp(text(operation, "op"), "update");
}

/* ---- everything ----------------------------------------------------------------------------- */

/* Appends the documents of a collection in natural order, and its indexes. */
static void snapshot_collection(truce_store *store, const char *name, bson_t *snapshot)
{
    bson_t one = BSON_INITIALIZER, natural = BSON_INITIALIZER, indexes;
    truce_find_options options = {.sort = &natural};
    truce_cursor *cursor = NULL;
    bson_error_t error = {0};
    truce_status status;

    BSON_APPEND_INT32(&natural, "$natural", 1);
    status = truce_find(store, name, NULL, &options, &cursor, &error);
    if (!status)
        status = drain(cursor, true, &one, &error);
    add_status(&one, status, &error);
    if (truce_index_list(store, name, &indexes, &error) == TRUCE_OK)
        BSON_APPEND_ARRAY(&one, "indexes", &indexes);
    bson_destroy(&indexes);
    BSON_APPEND_DOCUMENT(snapshot, name, &one);
    bson_destroy(&one);
    bson_destroy(&natural);
}

void store_snapshot(truce_store *store, bson_t *snapshot)
{
    bson_error_t error = {0};
    bson_t collections;
    bson_iter_t iter, name;

    if (truce_collection_list(store, NULL, &collections, &error))
        BSON_APPEND_UTF8(snapshot, "error", error.message);
    for (bson_iter_init(&iter, &collections); bson_iter_next(&iter);)
        if (bson_iter_recurse(&iter, &name) && bson_iter_find(&name, "name"))
            snapshot_collection(store, bson_iter_utf8(&name, NULL), snapshot);
    bson_destroy(&collections);
}
