/*
 * Cursors. A batch is the server's answer, kept until the next one; its documents are handed out
 * where they lie.
 *
 *     first answer, cursor id 0       everything is there: the connection goes back at once
 *     cursor id not 0                 the cursor keeps connection and session: a getMore must come
 *                                     from the session that opened the cursor, and from the same
 *                                     server, which alone knows it
 *
 * Documents from outside are checked before they are handed out.
 */
#include "store/mongodb/mongo.h"

#include <string.h>

#include "bson/value.h"

struct mongo_cursor {
    truce_cursor base; /* first */
    struct mongo_store *store;
    mongoc_client_t *client; /* NULL: there are no more batches */
    mongoc_client_session_t *session;
    uint32_t server_id;
    int64_t id;
    char *collection;
    char what[200];
    bson_t reply;     /* the batch */
    bson_iter_t iter; /* in it */
    bson_t document;  /* what was handed out, a view of the batch */
};

/* Gives the connection back. */
static void cursor_let_go(struct mongo_cursor *cursor)
{
    if (cursor->session)
        mongoc_client_session_destroy(cursor->session);
    truce__mongo_return(cursor->store, cursor->client);
    cursor->session = NULL;
    cursor->client = NULL;
}

static truce_status nonsense(const struct mongo_cursor *cursor, bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "%s: the server's answer has no batch of documents",
                       cursor->what);
}

/* Finds the batch in the reply, and whether there is another. */
static truce_status open_batch(struct mongo_cursor *cursor, const char *field, bson_error_t *error)
{
    bson_iter_t iter, found;

    if (!bson_iter_init(&iter, &cursor->reply) ||
        !bson_iter_find_descendant(&iter, field, &found) || !BSON_ITER_HOLDS_ARRAY(&found) ||
        !bson_iter_recurse(&found, &cursor->iter))
        return nonsense(cursor, error);
    cursor->id = truce__mongo_number(&cursor->reply, "cursor.id", 0);
    if (!cursor->id)
        cursor_let_go(cursor);
    return TRUCE_OK;
}

static truce_status cursor_next_batch(struct mongo_cursor *cursor, bson_error_t *error)
{
    bson_t body = BSON_INITIALIZER;
    struct mongo_command command = {.what = cursor->what,
                                    .body = &body,
                                    .session = cursor->session,
                                    .server_id = cursor->server_id};
    truce_status status;

    BSON_APPEND_INT64(&body, "getMore", cursor->id);
    BSON_APPEND_UTF8(&body, "collection", cursor->collection);
    BSON_APPEND_INT32(&body, "batchSize", MONGO_BATCH);
    bson_destroy(&cursor->reply);
    status = truce__mongo_run(cursor->store, cursor->client, &command, &cursor->reply, error);
    bson_destroy(&body);
    if (!status)
        status = open_batch(cursor, "cursor.nextBatch", error);
    if (status)
        cursor_let_go(cursor);
    return status;
}

/* A view of the document that the iterator stands on. */
static truce_status cursor_show(struct mongo_cursor *cursor, const bson_t **document,
                                bson_error_t *error)
{
    const uint8_t *bytes;
    uint32_t size;

    if (!BSON_ITER_HOLDS_DOCUMENT(&cursor->iter))
        return nonsense(cursor, error);
    bson_iter_document(&cursor->iter, &size, &bytes);
    if (!bson_init_static(&cursor->document, bytes, size))
        return nonsense(cursor, error);
    if (truce__document_check(&cursor->document, "document", NULL))
        return truce__mongo_unsound(cursor->what, &cursor->document, error);
    *document = &cursor->document;
    return TRUCE_OK;
}

static truce_status mongo_cursor_next(truce_cursor *base, const bson_t **document,
                                      bson_error_t *error)
{
    struct mongo_cursor *cursor = (struct mongo_cursor *)base;
    truce_status status = TRUCE_OK;
    bool at_document = bson_iter_next(&cursor->iter);

    /* an empty batch is not the end */
    while (!status && !at_document && cursor->client) {
        status = cursor_next_batch(cursor, error);
        at_document = !status && bson_iter_next(&cursor->iter);
    }
    if (status || !at_document)
        return status;
    return cursor_show(cursor, document, error);
}

/* The server need not wait for its own time-out; whether it hears this does not matter. */
static void kill_cursor(struct mongo_cursor *cursor)
{
    bson_t body = BSON_INITIALIZER, ids, reply;
    struct mongo_command command = {.what = cursor->what,
                                    .body = &body,
                                    .session = cursor->session,
                                    .server_id = cursor->server_id};
    truce_status ignored;

    BSON_APPEND_UTF8(&body, "killCursors", cursor->collection);
    BSON_APPEND_ARRAY_BEGIN(&body, "cursors", &ids);
    BSON_APPEND_INT64(&ids, "0", cursor->id);
    bson_append_array_end(&body, &ids);
    ignored = truce__mongo_run(cursor->store, cursor->client, &command, &reply, NULL);
    (void)ignored;
    bson_destroy(&reply);
    bson_destroy(&body);
}

static void cursor_close_cursor(truce_cursor *base)
{
    struct mongo_cursor *cursor = (struct mongo_cursor *)base;

    if (cursor->client)
        kill_cursor(cursor);
    cursor_let_go(cursor);
    bson_destroy(&cursor->reply);
    bson_free(cursor->collection);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {mongo_cursor_next, cursor_close_cursor};

/* A server without sessions has cursors without them; the server is the one that writes. */
static truce_status cursor_prepare(struct mongo_cursor *cursor, uint32_t wait_ms,
                                   bson_error_t *error)
{
    bson_error_t caught = {0};
    mongoc_server_description_t *server =
        mongoc_client_select_server(cursor->client, true, NULL, &caught);
    bson_t none = BSON_INITIALIZER;

    truce__mongo_limit(wait_ms);
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

/* The collection that getMore names: the namespace of the answer without its database. */
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
        cursor_let_go(made);
        cursor_close_cursor(&made->base);
        return status;
    }
    *cursor = &made->base;
    return TRUCE_OK;
}
