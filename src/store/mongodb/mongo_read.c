/*
 * Reading: each verb is one command of the server's.
 *
 * Reads see what the majority has, on the primary. A read of one document by its _id that asks for it
 * (truce_find_options.latest) is linearizable where the server can do that: a protocol decides on it ("the commit
 * is not there, so its intent may be removed"), and a primary that was deposed without knowing it would answer
 * wrongly. The server answers such a read after a write of its own that the majority has, which takes some 50 ms if
 * nothing else writes. So a protocol asks for it only where the write that follows does not compare what was read.
 *
 * Counting goes through an aggregation: the command count looks at a number that a crash, and a chunk
 * of a sharded collection on its way, leave wrong.
 */
#include "store/mongodb/mongo.h"

#include <string.h>

#include "bson/value.h"
#include "query/distinct.h"

static struct mongo_store *mongo_read_of(truce_store *base)
{
    return (struct mongo_store *)base;
}

bool truce__mongo_names_id(const bson_t *filter, bson_value_t *id)
{
    bson_iter_t iter, first;

    if (!bson_iter_init_find(&iter, filter, "_id") || BSON_ITER_HOLDS_REGEX(&iter))
        return false;
    if (BSON_ITER_HOLDS_DOCUMENT(&iter) && bson_iter_recurse(&iter, &first) &&
        bson_iter_next(&first) && bson_iter_key(&first)[0] == '$') {
        if (strcmp(bson_iter_key(&first), "$eq") != 0)
            return false;
        iter = first;
    }
    if (id)
        *id = *bson_iter_value(&iter);
    return true;
}

static void mongo_read_append_time(bson_t *body, uint32_t deadline_ms)
{
    if (deadline_ms)
        BSON_APPEND_INT64(body, "maxTimeMS", deadline_ms);
}

/* ---- find ----------------------------------------------------------------------------------- */

static void mongo_read_append_find(const struct mongo_store *store, const char *collection,
                                   const bson_t *filter, const truce_find_options *options,
                                   bson_t *body)
{
    BSON_APPEND_UTF8(body, "find", collection);
    BSON_APPEND_DOCUMENT(body, "filter", filter);
    if (options->sort && !bson_empty(options->sort))
        BSON_APPEND_DOCUMENT(body, "sort", options->sort);
    if (options->projection && !bson_empty(options->projection))
        BSON_APPEND_DOCUMENT(body, "projection", options->projection);
    truce__mongo_append_hint(body, options->hint);
    if (options->min && !bson_empty(options->min))
        BSON_APPEND_DOCUMENT(body, "min", options->min);
    if (options->max && !bson_empty(options->max))
        BSON_APPEND_DOCUMENT(body, "max", options->max);
    if (options->return_key)
        BSON_APPEND_BOOL(body, "returnKey", true);
    if (options->show_record_id)
        BSON_APPEND_BOOL(body, "showRecordId", true);
    if (options->skip)
        BSON_APPEND_INT64(body, "skip", options->skip);
    if (options->limit)
        BSON_APPEND_INT64(body, "limit", options->limit);
    if (options->allow_disk_use && store->server.wire >= 9)
        BSON_APPEND_BOOL(body, "allowDiskUse", true);
}

truce_status truce__mongo_find(truce_store *base, const char *collection, const bson_t *filter,
                               const truce_find_options *options, truce_cursor **cursor,
                               bson_error_t *error)
{
    struct mongo_store *store = mongo_read_of(base);
    bson_t body = BSON_INITIALIZER;
    char text[200];
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, "find in", collection),
        .body = &body,
        .read_concern = true,
        .linearizable = options->latest && truce__mongo_names_id(filter, NULL),
        .wait_ms = options->deadline_ms,
    };
    truce_status status;

    mongo_read_append_find(store, collection, filter, options, &body);
    BSON_APPEND_INT32(&body, "batchSize",
                      options->limit > 0 && options->limit < MONGO_BATCH ? (int32_t)options->limit
                                                                         : MONGO_BATCH);
    /* a linearizable read waits for the majority, which may be away */
    mongo_read_append_time(&body, options->deadline_ms || !command.linearizable
                                      ? options->deadline_ms
                                      : store->deadline_ms);
    status = truce__mongo_cursor(store, &command, cursor, error);
    bson_destroy(&body);
    return status;
}

/* ---- count, distinct ------------------------------------------------------------------------ */

static void mongo_read_append_stage(bson_t *stages, uint32_t *count, const char *name,
                                    const bson_t *document)
{
    char buffer[16];
    const char *key;
    bson_t stage;

    bson_uint32_to_string((*count)++, &key, buffer, sizeof buffer);
    bson_append_document_begin(stages, key, -1, &stage);
    BSON_APPEND_DOCUMENT(&stage, name, document);
    bson_append_document_end(stages, &stage);
}

static void append_number_stage(bson_t *stages, uint32_t *count, const char *name, int64_t number)
{
    char buffer[16];
    const char *key;
    bson_t stage;

    if (!number)
        return;
    bson_uint32_to_string((*count)++, &key, buffer, sizeof buffer);
    bson_append_document_begin(stages, key, -1, &stage);
    BSON_APPEND_INT64(&stage, name, number);
    bson_append_document_end(stages, &stage);
}

static void mongo_read_append_count(const char *collection, const bson_t *filter,
                                    const truce_count_options *options, bson_t *body)
{
    bson_t stages, group = BSON_INITIALIZER, none;
    uint32_t count = 0;

    BCON_APPEND(&group, "_id", BCON_INT32(1), "n", "{", "$sum", BCON_INT32(1), "}");
    BSON_APPEND_UTF8(body, "aggregate", collection);
    BSON_APPEND_ARRAY_BEGIN(body, "pipeline", &stages);
    mongo_read_append_stage(&stages, &count, "$match", filter);
    append_number_stage(&stages, &count, "$skip", options->skip);
    append_number_stage(&stages, &count, "$limit", options->limit);
    mongo_read_append_stage(&stages, &count, "$group", &group);
    bson_append_array_end(body, &stages);
    BSON_APPEND_DOCUMENT_BEGIN(body, "cursor", &none);
    bson_append_document_end(body, &none);
    truce__mongo_append_hint(body, options->hint);
    mongo_read_append_time(body, options->deadline_ms);
    bson_destroy(&group);
}

truce_status truce__mongo_count(truce_store *base, const char *collection, const bson_t *filter,
                                const truce_count_options *options, int64_t *count,
                                bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, reply;
    char text[200];
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, "count in", collection),
        .body = &body,
        .read_concern = true,
    };
    truce_status status;

    mongo_read_append_count(collection, filter, options, &body);
    status = truce__mongo_run_alone(mongo_read_of(base), &command, &reply, error);
    if (!status)
        *count = truce__mongo_number(&reply, "cursor.firstBatch.0.n", 0);
    if (*count < 0)
        *count = 0;
    bson_destroy(&reply);
    bson_destroy(&body);
    return status;
}

/* The field of the reply, a document or array, as a document of its own. */
static truce_status mongo_read_take(const bson_t *reply, const char *field, const char *what,
                                    bson_t *taken, bson_error_t *error)
{
    const uint8_t *bytes = NULL;
    uint32_t size = 0;
    bson_iter_t iter;
    bson_t view;

    if (bson_iter_init_find(&iter, reply, field) && BSON_ITER_HOLDS_ARRAY(&iter))
        bson_iter_array(&iter, &size, &bytes);
    if (!bytes || !bson_init_static(&view, bytes, size) ||
        truce__document_check(&view, "answer", NULL))
        return truce__fail(TRUCE_IO, error, "%s: the server's answer has no \"%s\"", what, field);
    bson_destroy(taken);
    bson_copy_to(&view, taken);
    return TRUCE_OK;
}

truce_status truce__mongo_distinct(truce_store *base, const char *collection, const char *path,
                                   const bson_t *filter, bson_t *values, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, reply;
    char text[200];
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, "distinct in", collection),
        .body = &body,
        .read_concern = true,
    };
    truce_status status;

    bson_init(values);
    BSON_APPEND_UTF8(&body, "distinct", collection);
    BSON_APPEND_UTF8(&body, "key", path);
    BSON_APPEND_DOCUMENT(&body, "query", filter);
    status = truce__mongo_run_alone(mongo_read_of(base), &command, &reply, error);
    if (!status)
        status = mongo_read_take(&reply, "values", command.what, values, error);
    if (!status)
        status = truce__distinct_sort(values, error);
    bson_destroy(&reply);
    bson_destroy(&body);
    return status;
}

/* ---- aggregate, explain --------------------------------------------------------------------- */

static bool mongo_read_writes(const bson_t *pipeline)
{
    bson_iter_t stages, stage;
    const char *last = "";

    if (bson_iter_init(&stages, pipeline))
        while (bson_iter_next(&stages))
            if (BSON_ITER_HOLDS_DOCUMENT(&stages) && bson_iter_recurse(&stages, &stage) &&
                bson_iter_next(&stage))
                last = bson_iter_key(&stage);
    return !strcmp(last, "$out") || !strcmp(last, "$merge");
}

truce_status truce__mongo_aggregate(truce_store *base, const char *collection,
                                    const bson_t *pipeline, const truce_aggregate_options *options,
                                    truce_cursor **cursor, bson_error_t *error)
{
    struct mongo_store *store = mongo_read_of(base);
    bool writing = mongo_read_writes(pipeline);
    bson_t body = BSON_INITIALIZER, batch;
    char text[200];
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, "aggregate", collection),
        .body = &body,
        .kind = writing ? MONGO_WRITE : MONGO_READ,
        .read_concern = !writing,
        .write_concern = writing,
        .relaxed = store->relaxed,
    };
    truce_status status = writing ? truce__mongo_writable(store, error) : TRUCE_OK;

    if (status)
        return status;
    BSON_APPEND_UTF8(&body, "aggregate", collection);
    BSON_APPEND_ARRAY(&body, "pipeline", pipeline);
    BSON_APPEND_DOCUMENT_BEGIN(&body, "cursor", &batch);
    if (!writing)
        BSON_APPEND_INT32(&batch, "batchSize", MONGO_BATCH);
    bson_append_document_end(&body, &batch);
    if (writing && options->unvalidated)
        BSON_APPEND_BOOL(&body, "bypassDocumentValidation", true);
    if (options->allow_disk_use)
        BSON_APPEND_BOOL(&body, "allowDiskUse", true);
    truce__mongo_append_hint(&body, options->hint);
    mongo_read_append_time(&body, options->deadline_ms);
    status = truce__mongo_cursor(store, &command, cursor, error);
    bson_destroy(&body);
    return status;
}

static void append_explained_count(const char *collection, const bson_t *filter,
                                   const truce_find_options *options, bson_t *body)
{
    BSON_APPEND_UTF8(body, "count", collection);
    BSON_APPEND_DOCUMENT(body, "query", filter);
    if (options->skip)
        BSON_APPEND_INT64(body, "skip", options->skip);
    if (options->limit)
        BSON_APPEND_INT64(body, "limit", options->limit);
    truce__mongo_append_hint(body, options->hint);
}

truce_status truce__mongo_explain(truce_store *base, const char *collection, const bson_t *filter,
                                  const truce_find_options *options, bool count, bson_t *plan,
                                  bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER, explained;
    char text[200];
    struct mongo_command command = {
        .what = truce__mongo_what(text, sizeof text, "explain a read of", collection),
        .body = &body,
    };
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&body, "explain", &explained);
    if (count)
        append_explained_count(collection, filter, options, &explained);
    else
        mongo_read_append_find(mongo_read_of(base), collection, filter, options, &explained);
    bson_append_document_end(&body, &explained);
    BSON_APPEND_UTF8(&body, "verbosity", options->plan_only ? "queryPlanner" : "executionStats");
    mongo_read_append_time(&body, options->deadline_ms);
    status = truce__mongo_run_alone(mongo_read_of(base), &command, plan, error);
    if (!status && !bson_has_field(plan, "queryPlanner"))
        status = truce__fail(TRUCE_INVALID, error, "%s: this server tells no plan", command.what);
    if (status)
        bson_reinit(plan);
    bson_destroy(&body);
    return status;
}
