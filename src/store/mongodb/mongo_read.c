/*
 * Reads: each verb is one command of the server.
 *
 * Reads use read concern majority, on the primary. A read of one document by _id that asks for it
 * (truce_find_options.latest) is linearizable if the server can do that. A protocol decides on such
 * a read ("the commit does not exist, so its intent may be removed"), and a primary that was
 * deposed without knowing it would return stale data. The server replies to such a read after a
 * majority write of its own, which takes some 50 ms if nothing else writes. A protocol therefore
 * requests it only if the write that follows does not compare what was read.
 *
 * Counts use an aggregation: the command count uses a number that becomes wrong after a crash, and
 * while chunks of a sharded collection move.
 */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "bson/value.h"
#include "query/aggregate/aggregate.h"
#include "query/distinct.h"
#include "store/mongodb/mongo.h"
#include "store/reserved_names.h"

/* ---- cursors --------------------------------------------------------------------------------- */

/*
 * Cursors. A batch is the server's reply, which is kept until the next reply. Documents are
 * returned as views of it.
 *
 *     first reply, cursor id 0        everything arrived: the connection is returned at once
 *     cursor id not 0                 the cursor keeps connection and session: a getMore must come
 *                                     from the session that opened the cursor, and from the same
 *                                     server, which alone knows it
 *
 * Documents from outside are checked before they are returned.
 */

struct mongo_cursor {
    /* Must be the first field. */
    truce_cursor base;
    struct mongo_store *store;
    /* The connection, or NULL after the last batch. */
    mongoc_client_t *client;
    /* The session. NULL without a session, or if it is that of the store's transaction. */
    mongoc_client_session_t *session;
    uint32_t server_id;
    /* As in struct mongo_command. */
    bool outside;
    int64_t id;
    char *collection;
    char what[200];
    /* The reply with the current batch. */
    bson_t reply;
    /* The position in the batch. */
    bson_iter_t iter;
    /* The document that was returned last, a view of the batch. */
    bson_t document;
};

/* Returns the connection to the pool. */
static void cursor_return_client(struct mongo_cursor *cursor)
{
    if (cursor->session)
        mongoc_client_session_destroy(cursor->session);
    truce__mongo_return(cursor->store, cursor->client);
    cursor->session = NULL;
    cursor->client = NULL;
}

static truce_status mongo_fail_no_batch(const struct mongo_cursor *cursor, bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "%s: the server's reply has no batch of documents",
                       cursor->what);
}

/* Finds the batch in the reply, and finds out whether another batch follows. */
static truce_status open_batch(struct mongo_cursor *cursor, const char *field, bson_error_t *error)
{
    bson_iter_t iter, found;

    if (!bson_iter_init(&iter, &cursor->reply) ||
        !bson_iter_find_descendant(&iter, field, &found) || !BSON_ITER_HOLDS_ARRAY(&found) ||
        !bson_iter_recurse(&found, &cursor->iter))
        return mongo_fail_no_batch(cursor, error);
    cursor->id = truce__mongo_number(&cursor->reply, "cursor.id", 0);
    if (!cursor->id)
        cursor_return_client(cursor);
    return TRUCE_OK;
}

/* Returns the milliseconds that the reply may take, or 0 for no limit of its own. */
static uint32_t cursor_wait_ms(const struct mongo_cursor *cursor, uint32_t wait_ms)
{
    return wait_ms ? wait_ms + cursor->store->deadline_ms : 0;
}

/* Sends a getMore and opens its batch. Closes the cursor if this fails. */
static truce_status cursor_next_batch(struct mongo_cursor *cursor, int64_t batch, uint32_t wait_ms,
                                      bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    struct mongo_command command = {.what = cursor->what,
                                    .body = &body,
                                    .session = cursor->session,
                                    .server_id = cursor->server_id,
                                    .outside = cursor->outside,
                                    .wait_ms = cursor_wait_ms(cursor, wait_ms)};
    truce_status status;

    BSON_APPEND_INT64(&body, "getMore", cursor->id);
    BSON_APPEND_UTF8(&body, "collection", cursor->collection);
    BSON_APPEND_INT32(&body, "batchSize",
                      batch >= 0 && batch < MONGO_BATCH ? (int32_t)batch : MONGO_BATCH);
    if (wait_ms)
        BSON_APPEND_INT64(&body, "maxTimeMS", wait_ms);
    bson_destroy(&cursor->reply);
    status = truce__mongo_run(cursor->store, cursor->client, &command, &cursor->reply, error);
    bson_destroy(&body);
    if (!status)
        status = open_batch(cursor, "cursor.nextBatch", error);
    if (status)
        cursor_return_client(cursor);
    return status;
}

/* Sets cursor->document to a view of the document at the iterator. */
static truce_status cursor_view(struct mongo_cursor *cursor, const bson_t **document,
                                bson_error_t *error)
{
    const uint8_t *bytes;
    uint32_t size;

    if (!BSON_ITER_HOLDS_DOCUMENT(&cursor->iter))
        return mongo_fail_no_batch(cursor, error);
    bson_iter_document(&cursor->iter, &size, &bytes);
    if (!bson_init_static(&cursor->document, bytes, size))
        return mongo_fail_no_batch(cursor, error);
    *document = &cursor->document;
    return TRUCE_OK;
}

/* Returns the next document, a view of the batch. Requests further batches, and refuses a document
 * that is not well-formed. */
static truce_status mongo_cursor_next(truce_cursor *base, const bson_t **document,
                                      bson_error_t *error)
{
    struct mongo_cursor *cursor = (struct mongo_cursor *)base;
    truce_status status = TRUCE_OK;
    bool at_document = bson_iter_next(&cursor->iter);

    /* A batch may be empty although another one follows. */
    while (!status && !at_document && cursor->client) {
        status = cursor_next_batch(cursor, -1, 0, error);
        at_document = !status && bson_iter_next(&cursor->iter);
    }
    if (!status && at_document)
        status = cursor_view(cursor, document, error);
    if (!status && at_document && truce__document_check(&cursor->document, "document", NULL)) {
        status = truce__mongo_malformed(cursor->what, &cursor->document, error);
        *document = NULL;
    }
    return status;
}

truce_status truce__mongo_cursor_more(truce_cursor *base, int64_t batch, uint32_t wait_ms,
                                      bson_error_t *error)
{
    return cursor_next_batch((struct mongo_cursor *)base, batch, wait_ms, error);
}

truce_status truce__mongo_cursor_taken(truce_cursor *base, const bson_t **document,
                                       bson_error_t *error)
{
    struct mongo_cursor *cursor = (struct mongo_cursor *)base;

    *document = NULL;
    return bson_iter_next(&cursor->iter) ? cursor_view(cursor, document, error) : TRUCE_OK;
}

const bson_t *truce__mongo_cursor_reply(const truce_cursor *base)
{
    return &((const struct mongo_cursor *)base)->reply;
}

bool truce__mongo_cursor_is_open(const truce_cursor *base)
{
    return ((const struct mongo_cursor *)base)->client != NULL;
}

/* Tells the server to close the cursor before its own time-out. It does not matter whether the
 * message arrives. */
static void kill_cursor(struct mongo_cursor *cursor)
{
    bson_t body = BSON_INITIALIZER, ids, reply;
    struct mongo_command command = {.what = cursor->what,
                                    .body = &body,
                                    .session = cursor->session,
                                    .server_id = cursor->server_id,
                                    .outside = cursor->outside,
                                    .wait_ms = truce__mongo_farewell_ms(cursor->store)};
    int64_t now_ns = truce__clock_monotonic_ns();
    truce_status ignored;

    if (!command.wait_ms)
        return;
    BSON_APPEND_UTF8(&body, "killCursors", cursor->collection);
    BSON_APPEND_ARRAY_BEGIN(&body, "cursors", &ids);
    BSON_APPEND_INT64(&ids, "0", cursor->id);
    bson_append_array_end(&body, &ids);
    ignored = truce__mongo_run(cursor->store, cursor->client, &command, &reply, NULL);
    (void)ignored;
    truce__mongo_farewell_end(cursor->store, now_ns);
    bson_destroy(&reply);
    bson_destroy(&body);
}

static void cursor_close_cursor(truce_cursor *base)
{
    struct mongo_cursor *cursor = (struct mongo_cursor *)base;

    if (cursor->client)
        kill_cursor(cursor);
    cursor_return_client(cursor);
    bson_destroy(&cursor->reply);
    bson_free(cursor->collection);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {mongo_cursor_next, cursor_close_cursor};

/* Prepares a cursor. A server without sessions has cursors without them. The server is the one that
 * accepts writes. A transaction has its own server and session. */
static truce_status cursor_prepare(struct mongo_cursor *cursor, uint32_t wait_ms,
                                   bson_error_t *error)
{
    bson_error_t caught = {0};
    mongoc_server_description_t *server;
    bson_t none = BSON_INITIALIZER;

    truce__mongo_limit(wait_ms);
    if (cursor->store->transaction && !cursor->outside)
        return TRUCE_OK;
    server = truce__mongo_has_server(cursor->store, cursor->client, &caught)
                 ? mongoc_client_select_server(cursor->client, true, NULL, &caught)
                 : NULL;
    if (!server && truce__mongo_await_server(cursor->store, cursor->client, NULL))
        server = mongoc_client_select_server(cursor->client, true, NULL, &caught);
    if (!server)
        return truce__mongo_failed(MONGO_READ, cursor->what, &none, &caught, error);
    cursor->server_id = mongoc_server_description_id(server);
    mongoc_server_description_destroy(server);
    if (cursor->store->server.sessions) {
        mongoc_session_opt_t *options = mongoc_session_opts_new();

        mongoc_session_opts_set_causal_consistency(options, false);
        cursor->session = mongoc_client_start_session(cursor->client, options, NULL);
        mongoc_session_opts_destroy(options);
    }
    return TRUCE_OK;
}

/* Reads the collection for getMore from the namespace in the reply. */
static void take_collection(struct mongo_cursor *cursor)
{
    bson_iter_t iter, found;
    const char *name = "", *dot = NULL;

    if (bson_iter_init(&iter, &cursor->reply) &&
        bson_iter_find_descendant(&iter, "cursor.ns", &found) && BSON_ITER_HOLDS_UTF8(&found))
        name = bson_iter_utf8(&found, NULL);
    dot = strchr(name, '.');
    cursor->collection = bson_strdup(dot ? dot + 1 : name);
}

truce_status truce__mongo_cursor(struct mongo_store *store, const struct mongo_command *command,
                                 truce_cursor **cursor, bson_error_t *error)
{
    struct mongo_cursor *made = bson_malloc0(sizeof *made);
    struct mongo_command bound = *command;
    truce_status status;

    *cursor = NULL;
    made->base.ops = &cursor_ops;
    made->store = store;
    made->outside = command->outside;
    bson_init(&made->reply);
    bson_strncpy(made->what, command->what, sizeof made->what);
    status = truce__mongo_borrow(store, &made->client, error);
    if (!status)
        status = cursor_prepare(made, command->wait_ms, error);
    if (!status) {
        bound.session = made->session;
        bound.server_id = made->server_id;
        bson_destroy(&made->reply);
        status = truce__mongo_run(store, made->client, &bound, &made->reply, error);
        take_collection(made);
    }
    if (!status)
        status = open_batch(made, "cursor.firstBatch", error);
    if (status) {
        cursor_return_client(made);
        cursor_close_cursor(&made->base);
        return status;
    }
    *cursor = &made->base;
    return TRUCE_OK;
}

/* ---- reads ----------------------------------------------------------------------------------- */

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

/* Appends the command find with its options. */
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
    /* A linearizable read waits for the majority, which may be unreachable, so it always gets a
     * time limit. */
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

/* Appends an aggregate that counts: {$match}, {$skip}, {$limit}, {$group}. */
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

/* Copies a document or array field of the reply. */
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
        truce__document_check(&view, "reply", NULL))
        return truce__fail(TRUCE_IO, error, "%s: the server's reply has no \"%s\"", what, field);
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

/* Appends the collection of an aggregate. A pipeline that begins with $documents reads no
 * collection, and a server refuses one. */
static void mongo_read_append_input(const char *collection, const bson_t *pipeline, bson_t *body)
{
    bson_iter_t at, stage;

    if (bson_iter_init(&at, pipeline) && bson_iter_next(&at) && BSON_ITER_HOLDS_DOCUMENT(&at) &&
        bson_iter_recurse(&at, &stage) && bson_iter_next(&stage) &&
        !strcmp(bson_iter_key(&stage), "$documents"))
        BSON_APPEND_INT32(body, "aggregate", 1);
    else
        BSON_APPEND_UTF8(body, "aggregate", collection);
}

truce_status truce__mongo_aggregate(truce_store *base, const char *collection,
                                    const bson_t *pipeline, const truce_aggregate_options *options,
                                    truce_cursor **cursor, bson_error_t *error)
{
    struct mongo_store *store = mongo_read_of(base);
    bool writing = truce__pipeline_writes(pipeline);
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
    mongo_read_append_input(collection, pipeline, &body);
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
        status = truce__fail(TRUCE_INVALID, error, "%s: this server returns no plan", command.what);
    if (status)
        bson_reinit(plan);
    bson_destroy(&body);
    return status;
}

/* ---- views ----------------------------------------------------------------------------------- */

/*
 * Views read at one cluster time.
 *
 *     find, with read concern "snapshot"        -> the cluster time that the server chose
 *     every read of the view                       read concern "snapshot" at that time
 *
 * No session is needed for that, so threads and cursors of a view work concurrently. The server
 * keeps the history (minSnapshotHistoryWindowInSeconds) and reports when it is gone; then the
 * view's reads fail with EXPIRED.
 *
 * The server has no history of the lists of collections and indexes and of plans; these are
 * current.
 */

/* The wire version of MongoDB 5.0. */
#define WIRE_SNAPSHOT 13

static struct mongo_store *view_of(truce_store *base)
{
    return (struct mongo_store *)base;
}

static void view_close_view(truce_store *base)
{
    bson_free(view_of(base)->database);
    bson_free(base);
}

/* Reads the documents one after the other, all at the view's time. */
static truce_status view_read_many(truce_store *base, truce_read_request *requests, size_t count,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < count; i++) {
        bson_init(&requests[i].document);
        requests[i].found = false;
    }
    for (size_t i = 0; i < count && !status; i++) {
        bson_t filter = BSON_INITIALIZER;

        BSON_APPEND_VALUE(&filter, "_id", requests[i].id);
        bson_destroy(&requests[i].document);
        status = truce_find_one(base, requests[i].collection, &filter, NULL, &requests[i].document,
                                error);
        requests[i].found = !status;
        if (status == TRUCE_NOT_FOUND)
            status = TRUCE_OK;
        bson_destroy(&filter);
    }
    for (size_t i = 0; i < count && status; i++) {
        bson_reinit(&requests[i].document);
        requests[i].found = false;
    }
    return status;
}

static truce_status view_of_view(truce_store *base, const truce_snapshot_options *options,
                                 truce_store **view, bson_error_t *error);

static const truce_store_ops view_ops = {
    .scheme = "mongodb",
    .close = view_close_view,
    .find = truce__mongo_find,
    .count = truce__mongo_count,
    .distinct = truce__mongo_distinct,
    .aggregate = truce__mongo_aggregate,
    .explain = truce__mongo_explain,
    .read_many = view_read_many,
    .index_list = truce__mongo_index_list,
    .collection_list = truce__mongo_collection_list,
    .facts = truce__mongo_facts,
    .snapshot = view_of_view,
    .database = truce__mongo_database,
};

/* Makes a view of a cluster time. It shares the pool of the store, which must outlive it, and has
 * neither shard keys nor a listener. */
static truce_store *view_new_view(const struct mongo_store *store, uint32_t seconds,
                                  uint32_t ordinal)
{
    struct mongo_store *made = bson_malloc0(sizeof *made);

    made->base.ops = &view_ops;
    made->base.capabilities = store->base.capabilities | TRUCE_IS_VIEW;
    made->pool = store->pool;
    made->database = bson_strdup(store->database);
    made->server = store->server;
    made->deadline_ms = store->deadline_ms;
    made->select_ms = store->select_ms;
    made->direct = store->direct;
    made->connections_max = store->connections_max;
    made->read_only = true;
    made->at.seconds = seconds;
    made->at.ordinal = ordinal;
    return &made->base;
}

static truce_status view_of_view(truce_store *base, const truce_snapshot_options *options,
                                 truce_store **view, bson_error_t *error)
{
    (void)options;
    (void)error;
    *view = view_new_view(view_of(base), view_of(base)->at.seconds, view_of(base)->at.ordinal);
    return TRUCE_OK;
}

/* Reads the cluster time that the server chooses for a current read. */
static truce_status read_cluster_time(struct mongo_store *store, uint32_t *seconds,
                                      uint32_t *ordinal, bson_error_t *error)
{
    bson_t *body = BCON_NEW("find", PROBE, "limit", BCON_INT32(1), "singleBatch", BCON_BOOL(true));
    struct mongo_command command = {
        .what = "take a snapshot", .body = body, .read_concern = true, .snapshot = true};
    bson_iter_t iter, found;
    bson_t reply;
    truce_status status = truce__mongo_run_alone(store, &command, &reply, error);

    *seconds = *ordinal = 0;
    if (!status && bson_iter_init(&iter, &reply) &&
        bson_iter_find_descendant(&iter, "cursor.atClusterTime", &found) &&
        BSON_ITER_HOLDS_TIMESTAMP(&found))
        bson_iter_timestamp(&found, seconds, ordinal);
    if (!status && !*seconds)
        status = truce__fail(TRUCE_INVALID, error,
                             "this server has no snapshots: it returns no cluster time");
    bson_destroy(&reply);
    bson_destroy(body);
    return status;
}

truce_status truce__mongo_snapshot(truce_store *base, const truce_snapshot_options *options,
                                   truce_store **view, bson_error_t *error)
{
    struct mongo_store *store = view_of(base);
    uint32_t seconds, ordinal;
    truce_status status;

    /* The server has its own maximum age. */
    (void)options;
    if (store->server.deployment == MONGO_STANDALONE || store->server.wire < WIRE_SNAPSHOT)
        return truce__fail(TRUCE_INVALID, error,
                           "this server has no snapshots: read concern \"snapshot\" needs MongoDB "
                           "5.0 and a replica set");
    status = read_cluster_time(store, &seconds, &ordinal, error);
    if (!status)
        *view = view_new_view(store, seconds, ordinal);
    return status;
}
