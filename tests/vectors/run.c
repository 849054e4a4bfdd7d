/*
 * Runs one case: empty collections, the inputs, the one operation, the answer as a document of the
 * same shape as the recorded one, field by field compared.
 *
 * A C interface cannot be given some inputs (a filter that is a number). They are answered here as
 * the command's parser would answer them: TypeMismatch.
 */
#include "tests/vectors/vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLLECTION "c"
#define OTHERS     "others"

/* ---- documents in and out ------------------------------------------------------------------- */

static void fail(struct vector_answer *answer, truce_status status, const bson_error_t *error)
{
    bson_t failure;

    snprintf(answer->note, sizeof(answer->note), "%s: %s", truce_status_name(status),
             error->message);
    BSON_APPEND_DOCUMENT_BEGIN(&answer->document, "error", &failure);
    BSON_APPEND_INT32(&failure, "code",
                      error->domain == TRUCE_ERROR_SERVER ? (int32_t)error->code : 0);
    bson_append_document_end(&answer->document, &failure);
}

static void fail_code(struct vector_answer *answer, int32_t code)
{
    bson_t failure;

    BSON_APPEND_DOCUMENT_BEGIN(&answer->document, "error", &failure);
    BSON_APPEND_INT32(&failure, "code", code);
    bson_append_document_end(&answer->document, &failure);
}

static truce_status insert_all(truce_store *store, const char *collection, const bson_t *documents,
                               bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t iter;

    for (bson_iter_init(&iter, documents); !status && bson_iter_next(&iter);) {
        const uint8_t *bytes;
        uint32_t size;
        bson_t document;

        bson_iter_document(&iter, &size, &bytes);
        bson_init_static(&document, bytes, size);
        status = truce_insert(store, collection, &document, NULL, error);
    }
    return status;
}

static void append_key(bson_t *array, uint32_t number, const bson_value_t *value)
{
    char buffer[16];
    const char *key;

    bson_uint32_to_string(number, &key, buffer, sizeof(buffer));
    bson_append_value(array, key, -1, value);
}

static void append_document(bson_t *array, uint32_t number, const bson_t *document)
{
    char buffer[16];
    const char *key;

    bson_uint32_to_string(number, &key, buffer, sizeof(buffer));
    BSON_APPEND_DOCUMENT(array, key, document);
}

/* Reads all documents of a cursor, as an array in `list` (initialised by the caller). */
static truce_status drain(truce_cursor *cursor, bson_t *list, bson_error_t *error)
{
    const bson_t *document = NULL;
    truce_status status = TRUCE_OK;
    uint32_t number = 0;

    for (;;) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        append_document(list, number++, document);
    }
    truce_cursor_close(cursor);
    return status;
}

static truce_status find_list(truce_store *store, const bson_t *filter,
                              const truce_find_options *options, bson_t *list, bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    truce_status status = truce_find(store, COLLECTION, filter, options, &cursor, error);

    return status ? status : drain(cursor, list, error);
}

/* Reads all documents, oldest first or by _id, as the field `after`. */
static void append_after(truce_store *store, struct vector_answer *answer, const char *sort_field)
{
    bson_t sort = BSON_INITIALIZER, list = BSON_INITIALIZER;
    truce_find_options options = {.sort = &sort};
    bson_error_t error = {0};

    BSON_APPEND_INT32(&sort, sort_field, 1);
    if (find_list(store, NULL, &options, &list, &error) == TRUCE_OK)
        BSON_APPEND_ARRAY(&answer->document, "after", &list);
    else
        snprintf(answer->note, sizeof(answer->note), "reading back: %s", error.message);
    bson_destroy(&sort);
    bson_destroy(&list);
}

static bool is_array(const struct vector_case *vector, const char *name)
{
    bson_iter_t field;

    return vector_field(vector, name, &field) && BSON_ITER_HOLDS_ARRAY(&field);
}

/* A field that must be a document; if it is there and is not, the answer is TypeMismatch. */
static bool take_document(const struct vector_case *vector, const char *name, bson_t *document,
                          struct vector_answer *answer)
{
    bson_iter_t field;

    bson_init(document);
    if (!vector_field(vector, name, &field) || BSON_ITER_HOLDS_NULL(&field))
        return true;
    if (BSON_ITER_HOLDS_DOCUMENT(&field))
        return vector_document(vector, name, document);
    fail_code(answer, 14);
    return false;
}

/* ---- match, sort, project, count, distinct, aggregate --------------------------------------- */

/* Appends the position of each document of `list` among `documents`, by _id. */
static void append_positions(const bson_t *documents, const bson_t *list, const char *name,
                             bool ascending, bson_t *answer)
{
    const struct vector_rules exact = {0};
    uint32_t number = 0, count = 0;
    int32_t positions[4096];
    bson_iter_t d, l, id, other;
    bson_t array, one, two;

    for (bson_iter_init(&l, list); bson_iter_next(&l) && count < 4096; count++) {
        positions[count] = -1;
        number = 0;
        for (bson_iter_init(&d, documents); bson_iter_next(&d); number++) {
            bson_init_static(&one, bson_iter_value(&l)->value.v_doc.data,
                             bson_iter_value(&l)->value.v_doc.data_len);
            bson_init_static(&two, bson_iter_value(&d)->value.v_doc.data,
                             bson_iter_value(&d)->value.v_doc.data_len);
            if (bson_iter_init_find(&id, &one, "_id") && bson_iter_init_find(&other, &two, "_id") &&
                vector_same_value(bson_iter_value(&id), bson_iter_value(&other), &exact))
                positions[count] = (int32_t)number;
        }
    }
    for (uint32_t i = 1; ascending && i < count; i++)
        for (uint32_t j = i; j > 0 && positions[j] < positions[j - 1]; j--) {
            int32_t swap = positions[j];

            positions[j] = positions[j - 1];
            positions[j - 1] = swap;
        }
    BSON_APPEND_ARRAY_BEGIN(answer, name, &array);
    for (uint32_t i = 0; i < count; i++) {
        char buffer[16];
        const char *key;

        bson_uint32_to_string(i, &key, buffer, sizeof(buffer));
        BSON_APPEND_INT32(&array, key, positions[i]);
    }
    bson_append_array_end(answer, &array);
}

static void run_find(struct vector_run *run, const char *filter_name, const char *sort_name,
                     const bson_t *hint, struct vector_answer *answer)
{
    bson_t filter, sort, documents, list = BSON_INITIALIZER;
    truce_find_options options = {.hint = hint};
    bson_error_t error = {0};
    truce_status status;

    if (!take_document(run->vector, filter_name, &filter, answer) ||
        !take_document(run->vector, sort_name, &sort, answer) ||
        !vector_document(run->vector, "docs", &documents))
        return;
    options.sort = &sort;
    status = find_list(run->store, &filter, &options, &list, &error);
    if (status)
        fail(answer, status, &error);
    else
        append_positions(&documents, &list, *sort_name ? "order" : "match", !*sort_name,
                         &answer->document);
    bson_destroy(&list);
}

static void run_match(struct vector_run *run, struct vector_answer *answer)
{
    run_find(run, "filter", "", NULL, answer);
}

static void run_sort(struct vector_run *run, struct vector_answer *answer)
{
    run_find(run, "", "sort", NULL, answer);
}

static void run_project(struct vector_run *run, struct vector_answer *answer)
{
    bson_t filter, projection, document;
    truce_find_options options = {.projection = &projection};
    bson_error_t error = {0};
    truce_status status;

    if (!take_document(run->vector, "filter", &filter, answer) ||
        !take_document(run->vector, "projection", &projection, answer))
        return;
    status = truce_find_one(run->store, COLLECTION, &filter, &options, &document, &error);
    if (status == TRUCE_NOT_FOUND)
        BSON_APPEND_NULL(&answer->document, "result");
    else if (status)
        fail(answer, status, &error);
    else
        BSON_APPEND_DOCUMENT(&answer->document, "result", &document);
    bson_destroy(&document);
}

static void run_count(struct vector_run *run, struct vector_answer *answer)
{
    truce_count_options options = {.skip = vector_number(run->vector, "skip", 0),
                                   .limit = vector_number(run->vector, "limit", 0)};
    bson_error_t error = {0};
    truce_status status;
    int64_t count = 0;
    bson_t filter;

    if (!take_document(run->vector, "query", &filter, answer))
        return;
    status = truce_count(run->store, COLLECTION, &filter, &options, &count, &error);
    if (status)
        fail(answer, status, &error);
    else
        BSON_APPEND_INT32(&answer->document, "count", (int32_t)count);
}

static void run_distinct(struct vector_run *run, struct vector_answer *answer)
{
    bson_error_t error = {0};
    bson_t filter, values;
    bson_iter_t key;
    truce_status status;

    if (!vector_field(run->vector, "key", &key) || !BSON_ITER_HOLDS_UTF8(&key)) {
        fail_code(answer, 14);
        return;
    }
    if (!take_document(run->vector, "query", &filter, answer))
        return;
    status = truce_distinct(run->store, COLLECTION, bson_iter_utf8(&key, NULL), &filter, &values,
                            &error);
    if (status)
        fail(answer, status, &error);
    else
        BSON_APPEND_ARRAY(&answer->document, "values", &values);
    bson_destroy(&values);
}

static void run_aggregate(struct vector_run *run, struct vector_answer *answer)
{
    bson_t pipeline, others, list = BSON_INITIALIZER;
    bson_error_t error = {0};
    truce_cursor *cursor = NULL;
    truce_status status = TRUCE_OK;

    if (!is_array(run->vector, "pipeline")) {
        fail_code(answer, 14);
        return;
    }
    vector_document(run->vector, "pipeline", &pipeline);
    if (vector_document(run->vector, "others", &others))
        status = insert_all(run->store, OTHERS, &others, &error);
    if (!status)
        status = truce_aggregate(run->store, COLLECTION, &pipeline, NULL, &cursor, &error);
    if (!status)
        status = drain(cursor, &list, &error);
    if (status)
        fail(answer, status, &error);
    else
        BSON_APPEND_ARRAY(&answer->document, "result", &list);
    bson_destroy(&list);
}

/* ---- update --------------------------------------------------------------------------------- */

/* Returns the one document of a case without `docs`: the upserted one, or the only one. */
static void append_single(struct vector_run *run, const truce_write_result *result,
                          struct vector_answer *answer)
{
    bson_t filter = BSON_INITIALIZER, wrapped, document;
    bson_error_t error = {0};
    truce_status status;

    if (result->upserted) {
        BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &wrapped);
        BSON_APPEND_VALUE(&wrapped, "$eq", &result->upserted_id);
        bson_append_document_end(&filter, &wrapped);
    }
    status = truce_find_one(run->store, COLLECTION, &filter, NULL, &document, &error);
    if (!status)
        BSON_APPEND_DOCUMENT(&answer->document, "after", &document);
    else if (status == TRUCE_NOT_FOUND)
        BSON_APPEND_NULL(&answer->document, "after");
    else
        snprintf(answer->note, sizeof(answer->note), "reading back: %s", error.message);
    bson_destroy(&filter);
    bson_destroy(&document);
}

/* `before` (empty: nothing) must still be there, as it was, after a failure and after an upsert
 * that inserted another document. */
static void check_unchanged(struct vector_run *run, const bson_t *before,
                            struct vector_answer *answer)
{
    const struct vector_rules exact = {0};
    bson_error_t error = {0};
    int64_t count = 0;
    bson_t found;

    if (!bson_empty(before)) {
        if (truce_find_one(run->store, COLLECTION, NULL, NULL, &found, &error) ||
            !vector_same(before, &found, &exact))
            BSON_APPEND_UTF8(&answer->document, "changed", "the document that was there");
        bson_destroy(&found);
    } else if (truce_count(run->store, COLLECTION, NULL, NULL, &count, &error) ||
               (count > 0 && bson_has_field(&answer->document, "error"))) {
        BSON_APPEND_UTF8(&answer->document, "changed", "a document was left");
    }
}

static void append_result(const truce_write_result *result, bson_t *answer)
{
    BSON_APPEND_INT32(answer, "n", (int32_t)(result->matched + result->upserted));
    BSON_APPEND_INT32(answer, "nModified", (int32_t)result->modified);
    if (result->upserted)
        BSON_APPEND_VALUE(answer, "upserted", &result->upserted_id);
}

/* Reads the update of a command: false if its type is wrong, which is answered. */
static bool take_update(const struct vector_case *vector, const char *name, bson_t *update,
                        bool *pipeline, struct vector_answer *answer)
{
    *pipeline = is_array(vector, name);
    if (vector_document(vector, name, update))
        return true;
    fail_code(answer, 9);
    return false;
}

/* The command's parser refuses array filters that are not an array, with codes of its own. */
static bool take_filters(const struct vector_case *vector, bson_t *filters, const bson_t **taken,
                         struct vector_answer *answer)
{
    bson_iter_t iter;

    if (!vector_field(vector, "arrayFilters", &iter))
        return true;
    if (!BSON_ITER_HOLDS_ARRAY(&iter)) {
        fail_code(answer, BSON_ITER_HOLDS_DOCUMENT(&iter) ? 40422 : 10065);
        return false;
    }
    vector_document(vector, "arrayFilters", filters);
    *taken = filters;
    return true;
}

static void run_update(struct vector_run *run, struct vector_answer *answer)
{
    bool many = vector_has(run->vector, "docs");
    truce_write_options options = {.upsert = vector_truth(run->vector, "upsert"),
                                   .multi = vector_truth(run->vector, "multi")};
    truce_write_result result = {0};
    bson_t filter, update, array_filters, before;
    bson_error_t error = {0};
    truce_status status;

    if (!take_document(run->vector, "query", &filter, answer) ||
        !take_update(run->vector, "update", &update, &options.pipeline, answer) ||
        !take_filters(run->vector, &array_filters, &options.array_filters, answer))
        return;
    status = truce_find_one(run->store, COLLECTION, NULL, NULL, &before, &error);
    if (!status || status == TRUCE_NOT_FOUND)
        status = truce_update(run->store, COLLECTION, &filter, &update, &options, &result, &error);
    if (many)
        append_after(run->store, answer, "$natural");
    if (status) {
        fail(answer, status, &error);
    } else {
        append_result(&result, &answer->document);
        if (!many)
            append_single(run, &result, answer);
    }
    if (!many && (status || result.upserted))
        check_unchanged(run, &before, answer);
    bson_destroy(&before);
    truce_write_result_release(&result);
}

/* ---- find-and-modify ------------------------------------------------------------------------ */

static void append_last_error(const truce_write_result *result, bool found, bool remove,
                              bson_t *answer)
{
    bson_t last;

    BSON_APPEND_DOCUMENT_BEGIN(answer, "lastErrorObject", &last);
    BSON_APPEND_INT32(&last, "n", found ? 1 : 0);
    if (!remove)
        BSON_APPEND_BOOL(&last, "updatedExisting", result->matched > 0);
    if (result->upserted)
        BSON_APPEND_VALUE(&last, "upserted", &result->upserted_id);
    bson_append_document_end(answer, &last);
}

static void run_command(struct vector_run *run, const bson_t *command, struct vector_answer *answer)
{
    truce_modify_options options = {.remove = vector_sub_truth(command, "remove"),
                                    .return_new = vector_sub_truth(command, "new"),
                                    .upsert = vector_sub_truth(command, "upsert")};
    bson_t query, update, sort, fields, array_filters, document;
    truce_write_result result = {0};
    bson_error_t error = {0};
    bson_iter_t iter;
    truce_status status;
    bool has_update = vector_sub(command, "update", &update);

    vector_sub(command, "query", &query);
    if (vector_sub(command, "sort", &sort))
        options.sort = &sort;
    if (vector_sub(command, "fields", &fields))
        options.projection = &fields;
    if (vector_sub(command, "arrayFilters", &array_filters))
        options.array_filters = &array_filters;
    options.pipeline =
        bson_iter_init_find(&iter, command, "update") && BSON_ITER_HOLDS_ARRAY(&iter);
    status = truce_find_and_modify(run->store, COLLECTION, &query, has_update ? &update : NULL,
                                   &options, &document, &result, &error);
    if (status && status != TRUCE_NOT_FOUND) {
        fail(answer, status, &error);
    } else {
        if (status || (result.upserted && !options.return_new))
            BSON_APPEND_NULL(&answer->document, "value");
        else
            BSON_APPEND_DOCUMENT(&answer->document, "value", &document);
        append_last_error(&result, !status, options.remove, &answer->document);
    }
    bson_destroy(&document);
    truce_write_result_release(&result);
}

static void run_fam(struct vector_run *run, struct vector_answer *answer)
{
    bson_t command;

    if (vector_document(run->vector, "command", &command))
        run_command(run, &command, answer);
    append_after(run->store, answer, "_id");
}

/* ---- index: a sequence of operations -------------------------------------------------------- */

static void append_ids(const bson_t *list, bson_t *result)
{
    bson_iter_t iter, id;
    uint32_t number = 0;
    bson_t ids;

    BSON_APPEND_ARRAY_BEGIN(result, "ids", &ids);
    for (bson_iter_init(&iter, list); bson_iter_next(&iter);) {
        bson_t document;

        bson_init_static(&document, bson_iter_value(&iter)->value.v_doc.data,
                         bson_iter_value(&iter)->value.v_doc.data_len);
        if (bson_iter_init_find(&id, &document, "_id"))
            append_key(&ids, number++, bson_iter_value(&id));
    }
    bson_append_array_end(result, &ids);
}

static truce_status op_find(struct vector_run *run, const bson_t *op, bson_t *result,
                            bson_error_t *error)
{
    bson_t filter, sort, by_id = BSON_INITIALIZER, list = BSON_INITIALIZER;
    truce_find_options options = {.sort = &by_id};
    truce_status status;

    vector_sub(op, "filter", &filter);
    BSON_APPEND_INT32(&by_id, "_id", 1);
    if (vector_sub(op, "sort", &sort))
        options.sort = &sort;
    status = find_list(run->store, &filter, &options, &list, error);
    if (!status)
        append_ids(&list, result);
    bson_destroy(&list);
    bson_destroy(&by_id);
    return status;
}

static truce_status op_insert(struct vector_run *run, const bson_t *op, bson_t *result,
                              bson_error_t *error)
{
    truce_status status;
    bson_t document;

    vector_sub(op, "doc", &document);
    status = truce_insert(run->store, COLLECTION, &document, NULL, error);
    if (!status)
        BSON_APPEND_INT32(result, "n", 1);
    return status;
}

static truce_status op_update(struct vector_run *run, const bson_t *op, bson_t *result,
                              bson_error_t *error)
{
    truce_write_options options = {.upsert = vector_sub_truth(op, "upsert"),
                                   .multi = vector_sub_truth(op, "multi")};
    truce_write_result done = {0};
    truce_status status;
    bson_t query, update;

    vector_sub(op, "q", &query);
    vector_sub(op, "u", &update);
    status = truce_update(run->store, COLLECTION, &query, &update, &options, &done, error);
    if (!status)
        append_result(&done, result);
    truce_write_result_release(&done);
    return status;
}

static truce_status op_delete(struct vector_run *run, const bson_t *op, bson_t *result,
                              bson_error_t *error)
{
    truce_write_result done = {0};
    truce_status status;
    bson_t query;

    vector_sub(op, "q", &query);
    status = truce_remove(run->store, COLLECTION, &query, NULL, &done, error);
    if (!status)
        BSON_APPEND_INT32(result, "n", (int32_t)done.removed);
    return status;
}

static truce_status op_create_index(struct vector_run *run, const bson_t *op, bson_t *result,
                                    bson_error_t *error)
{
    truce_status status;
    bson_t index;

    vector_sub(op, "index", &index);
    status = truce_index_create(run->store, COLLECTION, &index, error);
    if (!status)
        BSON_APPEND_INT32(result, "ok", 1);
    return status;
}

static const struct op {
    const char *name;
    truce_status (*run)(struct vector_run *run, const bson_t *op, bson_t *result,
                        bson_error_t *error);
} ops[] = {
    {"find", op_find},
    {"insert", op_insert},
    {"update", op_update},
    {"delete", op_delete},
    {"createIndex", op_create_index},
};

static void run_op(struct vector_run *run, const bson_t *op, bson_t *results, uint32_t number)
{
    struct vector_answer answer = {.document = BSON_INITIALIZER};
    bson_error_t error = {0};
    truce_status status = TRUCE_OK;
    bson_iter_t name;

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (bson_iter_init_find(&name, op, "op") &&
            !strcmp(bson_iter_utf8(&name, NULL), ops[i].name))
            status = ops[i].run(run, op, &answer.document, &error);
    if (status)
        fail(&answer, status, &error);
    if (error.message[0])
        BSON_APPEND_UTF8(&answer.document, "text", error.message);
    append_document(results, number, &answer.document);
    bson_destroy(&answer.document);
}

static void run_index(struct vector_run *run, struct vector_answer *answer)
{
    bson_t list, results = BSON_INITIALIZER;
    bson_error_t error = {0};
    bson_iter_t iter;
    uint32_t number = 0;

    if (vector_document(run->vector, "indexes", &list))
        for (bson_iter_init(&iter, &list); bson_iter_next(&iter);) {
            bson_t index;

            bson_init_static(&index, bson_iter_value(&iter)->value.v_doc.data,
                             bson_iter_value(&iter)->value.v_doc.data_len);
            if (run->variant && run->variant->without && !vector_sub_truth(&index, "unique"))
                continue;
            if (truce_index_create(run->store, COLLECTION, &index, &error))
                snprintf(answer->note, sizeof(answer->note), "index: %s", error.message);
        }
    if (vector_document(run->vector, "ops", &list))
        for (bson_iter_init(&iter, &list); bson_iter_next(&iter); number++) {
            bson_t op;

            bson_init_static(&op, bson_iter_value(&iter)->value.v_doc.data,
                             bson_iter_value(&iter)->value.v_doc.data_len);
            run_op(run, &op, &results, number);
        }
    BSON_APPEND_ARRAY(&answer->document, "results", &results);
    bson_destroy(&results);
    append_after(run->store, answer, "$natural");
}

/* ---- one case -------------------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    void (*run)(struct vector_run *run, struct vector_answer *answer);
    const char *fields[5]; /* of the answer */
} kinds[] = {
    {"match", run_match, {"match"}},
    {"sort", run_sort, {"order"}},
    {"project", run_project, {"result"}},
    {"count", run_count, {"count"}},
    {"distinct", run_distinct, {"values"}},
    {"aggregate", run_aggregate, {"result"}},
    {"update", run_update, {"after", "n", "nModified", "upserted"}},
    {"fam", run_fam, {"value", "lastErrorObject", "after"}},
    {"index", run_index, {"after"}},
};

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (!strcmp(kinds[i].name, name))
            return &kinds[i];
    return NULL;
}

static truce_status clear(truce_store *store, const char *collection, bson_error_t *error)
{
    truce_status status = truce_collection_drop(store, collection, error);

    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status prepare(const struct vector_run *run, bson_error_t *error)
{
    const struct vector_case *vector = run->vector;
    truce_status status = clear(run->store, COLLECTION, error);
    bson_t documents;

    if (!status && vector_has(vector, "others"))
        status = clear(run->store, OTHERS, error);
    if (!status && vector_document(vector, "docs", &documents))
        status = insert_all(run->store, COLLECTION, &documents, error);
    else if (!status && vector_document(vector, "doc", &documents))
        status = truce_insert(run->store, COLLECTION, &documents, NULL, error);
    return status;
}

/* Finds once more with each index as the hint. */
static bool run_hinted(struct vector_run *run, const struct kind *kind,
                       struct vector_answer *answer)
{
    bson_error_t error = {0};
    bson_t indexes, key;
    bson_iter_t iter;
    bool right = true;

    if (truce_index_list(run->store, COLLECTION, &indexes, &error))
        return false;
    for (bson_iter_init(&iter, &indexes); right && bson_iter_next(&iter);) {
        bson_t definition;

        bson_init_static(&definition, bson_iter_value(&iter)->value.v_doc.data,
                         bson_iter_value(&iter)->value.v_doc.data_len);
        if (!vector_sub(&definition, "key", &key))
            continue;
        bson_destroy(&answer->document);
        bson_init(&answer->document);
        run_find(run, "filter", "", &key, answer);
        right = vector_judge(run->vector, kind->fields, run->variant != NULL, &answer->document);
        if (!right)
            BSON_APPEND_DOCUMENT(&answer->document, "hint", &key);
    }
    bson_destroy(&indexes);
    return right;
}

bool vector_run(struct vector_run *run, struct vector_answer *answer)
{
    const struct kind *kind = find_kind(run->vector->kind);
    bson_error_t error = {0};
    bool right;

    if (!kind) {
        snprintf(answer->note, sizeof(answer->note), "no kind of case is named %s",
                 run->vector->kind);
        return false;
    }
    if (prepare(run, &error)) {
        snprintf(answer->note, sizeof(answer->note), "preparing: %s", error.message);
        return false;
    }
    if (run->variant && run->variant->prepare &&
        run->variant->prepare(run->store, COLLECTION, run->vector) == 0)
        return true;
    kind->run(run, answer);
    right = vector_judge(run->vector, kind->fields, run->variant != NULL, &answer->document);
    if (right && run->variant && run->variant->hinted)
        right = run_hinted(run, kind, answer);
    return right;
}
