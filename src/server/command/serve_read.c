/* find, getMore, killCursors, aggregate, count, distinct. */
#include "bson/refuse_value.h"
#include "server/command/cursor_reply.h"
#include "server/command/handlers.h"
#include "server/command/read_request.h"

#include <string.h>

#include "base/field.h"
#include "query/distinct.h"

/* ---- find ------------------------------------------------------------------------------------ */

/* Reads the collection or view that the command names. */
static truce_status serve_read_name(struct call *call, char stored_name[STORED_NAME_MAX],
                                    struct view_source *source, bson_error_t *error)
{
    truce_status status = call_stored_name(call, stored_name, error);

    return status ? status
                  : view_source(call, call->database, bson_iter_utf8(&call->value, NULL), source,
                                error);
}

static truce_status open_view(struct call *call, const struct aggregate_request *aggregate,
                              truce_cursor **cursor, bson_error_t *error)
{
    return truce_aggregate(call->store, aggregate->stored_name, aggregate->pipeline,
                           &aggregate->options, cursor, error);
}

truce_status serve_find(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct aggregate_request aggregate;
    struct find_request find;
    struct view_source source;
    char stored_name[STORED_NAME_MAX];
    truce_cursor *cursor;
    truce_status status = serve_read_name(call, stored_name, &source, error);

    if (!status)
        status = request_read_find(call, &find, error);
    if (!status && source.is_view)
        status = request_find_of_view(call, &find, &source, &aggregate, error);
    if (!status && source.is_view)
        status = open_view(call, &aggregate, &cursor, error);
    else if (!status)
        status = truce_find(call->store, stored_name, find.filter, &find.options, &cursor, error);
    if (status)
        return status;
    return cursor_reply_first(call, cursor,
                              call_namespace(call, bson_iter_utf8(&call->value, NULL)), find.batch,
                              find.one_batch, reply, error);
}

/* ---- more of a cursor ------------------------------------------------------------------------ */

struct get_more {
    const char *collection;
    int64_t batch;
};

static const struct field get_more_fields[] = {
    {"collection", FIELD_TEXT, offsetof(struct get_more, collection)},
    {"batchSize", FIELD_NUMBER, offsetof(struct get_more, batch)},
    {NULL, FIELD_IGNORED, 0}};

static truce_status check_user(const struct call *call, int64_t id, bson_error_t *error)
{
    return cursors_is_of(call->server->cursors, id, call->connection->login.tag)
               ? TRUCE_OK
               : truce__refuse(CODE_UNAUTHORIZED, error,
                               "cursor id %lld was not created by the authenticated user",
                               (long long)id);
}

/* Fails if the cursor belongs to another namespace, or does not exist. The user is its owner. */
static truce_status get_more_refuse(const struct call *call, int64_t id, const char *ns,
                                    bson_error_t *error)
{
    char *own = cursors_namespace(call->server->cursors, id);
    truce_status status =
        own && strcmp(own, ns) != 0
            ? truce__refuse(CODE_UNAUTHORIZED, error,
                            "Requested getMore on namespace '%s', but cursor belongs to a "
                            "different namespace %s",
                            ns, own)
            : truce__refuse(CODE_CURSOR_NOT_FOUND, error,
                            "cursor id %lld not found: it was read to its end, closed, or "
                            "idle for %d minutes",
                            (long long)id, TRUCE_SERVER_CURSOR_IDLE_MS / 60000);

    bson_free(own);
    return status;
}

truce_status serve_get_more(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct get_more more = {.batch = -1};
    struct cursor_entry *entry;
    int64_t id = 0;
    truce_status status = call_own_fields(call, get_more_fields, &more, error);

    if (status)
        return status;
    if (!truce__field_to_number(&call->value, &id))
        return truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(&call->value), error,
                                   "getMore must be the number of a cursor");
    if (!more.collection)
        return truce__refuse(40414, error,
                             "getMore needs 'collection', the name of its collection");
    if (more.batch < -1)
        return truce__refuse(CODE_BAD_VALUE, error, "batchSize must be 0 or more, not %lld",
                             (long long)more.batch);
    status = check_user(call, id, error);
    /* The namespace "$cmd.*" belongs to cursors without a collection. */
    if (!status && strncmp(more.collection, "$cmd.", 5) != 0)
        status = access_need_collection(call, call->database, more.collection, ACTION_FIND, error);
    if (status)
        return status;
    entry = cursors_take(call->server->cursors, id, call_namespace(call, more.collection),
                         call->owner, call->connection->login.tag);
    if (!entry)
        return get_more_refuse(call, id, call_namespace(call, more.collection), error);
    status = fail_point_more(call, error);
    if (status) {
        call->follows = entry->stream != NULL;
        cursor_entry_close(entry);
        return status;
    }
    if (entry->stream)
        return serve_change_stream_more(call, entry, more.batch > 0 ? more.batch : -1, reply,
                                        error);
    return cursor_reply(call, entry, "nextBatch", more.batch > 0 ? more.batch : -1, false, reply,
                        error);
}

struct kill_cursors {
    const bson_t *cursors;
};

static const struct field kill_fields[] = {
    {"cursors", FIELD_ARRAY, offsetof(struct kill_cursors, cursors)}, {NULL, FIELD_IGNORED, 0}};

static void serve_read_append_ids(const bson_t *ids, const char *name, bson_t *reply)
{
    BSON_APPEND_ARRAY(reply, name, ids);
}

truce_status serve_kill_cursors(struct call *call, bson_t *reply, bson_error_t *error)
{
    bson_t killed = BSON_INITIALIZER, missing = BSON_INITIALIZER, none = BSON_INITIALIZER;
    struct kill_cursors kill = {0};
    truce_status status = call_own_fields(call, kill_fields, &kill, error);
    const char *ns = BSON_ITER_HOLDS_UTF8(&call->value)
                         ? call_namespace(call, bson_iter_utf8(&call->value, NULL))
                         : "";
    bson_iter_t at;

    if (!status && !kill.cursors)
        status = truce__refuse(40414, error, "killCursors needs 'cursors', an array of numbers");
    if (!status && bson_iter_init(&at, kill.cursors))
        while (!status && bson_iter_next(&at)) {
            int64_t id;

            status = truce__field_to_number(&at, &id)
                         ? check_user(call, id, error)
                         : truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(&at), error,
                                               "the cursors of killCursors must be numbers");
        }
    if (!status && bson_iter_init(&at, kill.cursors))
        while (bson_iter_next(&at)) {
            struct cursor_entry *entry;
            char buffer[16];
            const char *key;
            int64_t id = 0;
            bool waits;
            bson_t *to;

            (void)truce__field_to_number(&at, &id); /* The type was checked above. */
            entry = cursors_take(call->server->cursors, id, ns, call->owner,
                                 call->connection->login.tag);
            waits =
                !entry && cursors_kill(call->server->cursors, id, ns, call->connection->login.tag);
            to = entry || waits ? &killed : &missing;
            bson_uint32_to_string(bson_count_keys(to), &key, buffer, sizeof buffer);
            BSON_APPEND_INT64(to, key, id);
            if (entry)
                cursor_entry_close(entry);
        }
    serve_read_append_ids(&killed, "cursorsKilled", reply);
    serve_read_append_ids(&missing, "cursorsNotFound", reply);
    serve_read_append_ids(&none, "cursorsAlive", reply);
    serve_read_append_ids(&none, "cursorsUnknown", reply);
    bson_destroy(&killed);
    bson_destroy(&missing);
    return status;
}

/* ---- aggregate ------------------------------------------------------------------------------- */

truce_status serve_aggregate(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct aggregate_request aggregate;
    const bson_t *pipeline = NULL;
    truce_cursor *cursor = NULL;
    truce_status status = request_read_aggregate(call, &aggregate, error);

    if (!status && aggregate.explain)
        return serve_explain_aggregate(call, &aggregate, reply, error);
    if (!status && !aggregate.cursor)
        status = truce__refuse(CODE_FAILED_TO_PARSE, error,
                               "aggregate needs 'cursor', for example {cursor: {}}");
    if (!status && call->snapshot && serve_is_change_stream(aggregate.pipeline))
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "a change stream cannot read with readConcern level snapshot");
    if (!status &&
        (serve_is_change_stream(aggregate.pipeline) || serve_is_stage(aggregate.pipeline)))
        status = view_refuse(call, call->database, aggregate.name, false, error);
    if (!status && serve_is_change_stream(aggregate.pipeline))
        return serve_change_stream(call, aggregate.pipeline, aggregate.stored_name, aggregate.name,
                                   aggregate.batch, reply, error);
    if (!status && serve_is_stage(aggregate.pipeline))
        return serve_stage(call, aggregate.pipeline, aggregate.batch, reply, error);
    if (!status)
        status = request_pipeline(call, &aggregate, &pipeline, error);
    if (!status)
        status = truce_aggregate(call->store, aggregate.stored_name, pipeline, &aggregate.options,
                                 &cursor, error);
    if (status)
        return status;
    return cursor_reply_first(call, cursor, call_namespace(call, aggregate.name), aggregate.batch,
                              false, reply, error);
}

/* ---- count, distinct ------------------------------------------------------------------------- */

/* Sets `*n` to the count in the only document of the pipeline. Without a document, `*n` stays as it
 * is. */
static truce_status count_view(struct call *call, const struct count_request *count,
                               const struct view_source *source, int64_t *n, bson_error_t *error)
{
    struct aggregate_request aggregate;
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    truce_status status;

    request_count_of_view(call, count, source, &aggregate);
    status = open_view(call, &aggregate, &cursor, error);
    if (!status)
        status = truce_cursor_next(cursor, &document, error);
    if (!status && document)
        *n = truce__field_number(document, "n");
    truce_cursor_close(cursor);
    return status;
}

truce_status serve_count(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct count_request count;
    struct view_source source;
    char stored_name[STORED_NAME_MAX];
    int64_t n = 0;
    truce_status status = serve_read_name(call, stored_name, &source, error);

    if (!status)
        status = request_read_count(call, &count, error);
    if (!status && source.is_view)
        status = count_view(call, &count, &source, &n, error);
    else if (!status)
        status = truce_count(call->store, stored_name, count.query, &count.options, &n, error);
    if (n <= INT32_MAX)
        BSON_APPEND_INT32(reply, "n", (int32_t)n);
    else
        BSON_APPEND_INT64(reply, "n", n);
    return status;
}

/* Collects the distinct values of a path in the documents of a cursor, and closes the cursor. */
static truce_status distinct_of(const char *key, truce_cursor *cursor, bson_t *values,
                                bson_error_t *error)
{
    const bson_t *document = NULL;
    struct distinct *distinct = NULL;
    truce_status status = truce__distinct_new(key, &distinct, error);

    if (!status)
        do {
            status = truce_cursor_next(cursor, &document, error);
            if (!status && document)
                status =
                    truce__distinct_add(distinct, truce__value_document(document), NULL, error);
        } while (!status && document);
    if (!status) {
        bson_destroy(values);
        truce__distinct_values(distinct, values);
    }
    truce_cursor_close(cursor);
    truce__distinct_free(distinct);
    return status;
}

/* Reads the distinct values of a collection or a view. truce_distinct takes no hint, so with a hint
 * the values come from a find. The values of a view come from a pipeline. */
static truce_status serve_read_distinct(struct call *call, const char *stored_name,
                                        const struct distinct_request *request,
                                        const struct view_source *source, bson_t *values,
                                        bson_error_t *error)
{
    const truce_find_options options = {.hint = request->hint, .deadline_ms = call->deadline_ms};
    struct aggregate_request aggregate;
    truce_cursor *cursor = NULL;
    truce_status status;

    if (!source->is_view && !request->hint)
        return truce_distinct(call->store, stored_name, request->key, request->query, values,
                              error);
    bson_init(values);
    if (source->is_view) {
        request_distinct_of_view(call, request, source, &aggregate);
        status = open_view(call, &aggregate, &cursor, error);
    } else {
        status = truce_find(call->store, stored_name, request->query, &options, &cursor, error);
    }
    return status ? status : distinct_of(request->key, cursor, values, error);
}

truce_status serve_distinct(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct distinct_request request;
    struct view_source source;
    char stored_name[STORED_NAME_MAX];
    int64_t before;
    bson_t values;
    truce_status status = serve_read_name(call, stored_name, &source, error);

    if (!status)
        status = request_read_distinct(call, &request, error);
    if (status)
        return status;
    before = truce_deadline_begin(call->deadline_ms);
    status = serve_read_distinct(call, stored_name, &request, &source, &values, error);
    truce_deadline_end(before);
    BSON_APPEND_ARRAY(reply, "values", &values);
    if (call->read_snapshot)
        cursor_reply_append_time(call->read_snapshot, reply);
    bson_destroy(&values);
    return status;
}
