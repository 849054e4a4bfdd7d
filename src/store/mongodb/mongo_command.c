/*
 * Commands: a connection of the pool for the length of one call, and the concerns that every read
 * and write carries.
 *
 * A connection belongs to one thread at a time. It is given back before a caller's next call, but
 * for a cursor with more than one batch, which keeps its connection to its end (mongo_cursor.c).
 */
#include "store/mongodb/mongo.h"

#include <stdio.h>

#include "base/assert.h"

#define CODE_SNAPSHOT_TOO_OLD 239
#define CODE_SNAPSHOT_UNAVAILABLE                                                                  \
    246 /* a collection was made or changed since: never again at that time */

/* ---- connections ---------------------------------------------------------------------------- */

truce_status truce__mongo_borrow(struct mongo_store *store, mongoc_client_t **client,
                                 bson_error_t *error)
{
    *client = mongoc_client_pool_pop(store->pool);
    if (*client && !store->at.seconds)
        truce__mongo_limit_client(store, *client);
    if (*client)
        return TRUCE_OK;
    return truce__fail(
        TRUCE_TIMEOUT, error,
        "all %d connections to the server are in use, and none came free in time; "
        "cursors of many documents keep one until they are closed (the URI's options "
        "maxPoolSize and waitQueueTimeoutMS)",
        store->connections_max);
}

void truce__mongo_return(struct mongo_store *store, mongoc_client_t *client)
{
    if (client)
        mongoc_client_pool_push(store->pool, client);
}

/* ---- one command ---------------------------------------------------------------------------- */

mongoc_write_concern_t *truce__mongo_write_concern(const struct mongo_store *store, bool relaxed)
{
    mongoc_write_concern_t *concern = mongoc_write_concern_new();

    /* also relaxed, the majority has it: a read of what the majority has must see it */
    mongoc_write_concern_set_w(concern, MONGOC_WRITE_CONCERN_W_MAJORITY);
    mongoc_write_concern_set_journal(concern, !relaxed);
    mongoc_write_concern_set_wtimeout_int64(concern, truce__mongo_wait_ms(store));
    return concern;
}

static void append_read_concern(const struct mongo_store *store,
                                const struct mongo_command *command, bson_t *options)
{
    bool linearizable = command->linearizable && store->linearizable;
    bool snapshot = command->snapshot || store->at.seconds;
    bson_t concern;

    /* of a transaction, its first statement says it; a server alone has nothing to agree on */
    if (!command->read_concern || store->server.deployment == MONGO_STANDALONE)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(options, "readConcern", &concern);
    BSON_APPEND_UTF8(&concern, "level",
                     snapshot       ? MONGOC_READ_CONCERN_LEVEL_SNAPSHOT
                     : linearizable ? MONGOC_READ_CONCERN_LEVEL_LINEARIZABLE
                                    : MONGOC_READ_CONCERN_LEVEL_MAJORITY);
    if (store->at.seconds)
        BSON_APPEND_TIMESTAMP(&concern, "atClusterTime", store->at.seconds, store->at.ordinal);
    bson_append_document_end(options, &concern);
}

/* The history that a view reads is gone. */
static bool is_too_old(const struct mongo_store *store, const bson_error_t *caught)
{
    return store->at.seconds && caught->domain == MONGOC_ERROR_SERVER &&
           (caught->code == CODE_SNAPSHOT_TOO_OLD || caught->code == CODE_SNAPSHOT_UNAVAILABLE);
}

/* Of a transaction, its commit says it. */
static bool in_transaction(const struct mongo_command *command)
{
    return command->session && mongoc_client_session_in_transaction(command->session);
}

static bool command_make_options(const struct mongo_store *store,
                                 const struct mongo_command *command, bson_t *options,
                                 bson_error_t *caught)
{
    bool made = true;

    bson_init(options);
    append_read_concern(store, command, options);
    if (command->write_concern && !in_transaction(command)) {
        mongoc_write_concern_t *concern = truce__mongo_write_concern(store, command->relaxed);

        mongoc_write_concern_append(concern, options);
        mongoc_write_concern_destroy(concern);
    }
    if (command->session)
        made = mongoc_client_session_append(command->session, options, caught);
    if (command->server_id)
        BSON_APPEND_INT32(options, "serverId", (int32_t)command->server_id);
    return made;
}

static bool command_run(mongoc_client_t *client, const char *database,
                        const struct mongo_command *command, const bson_t *options, bson_t *reply,
                        bson_error_t *caught)
{
    if (command->write_concern)
        return mongoc_client_write_command_with_opts(client, database, command->body, options,
                                                     reply, caught);
    return mongoc_client_read_command_with_opts(client, database, command->body, NULL, options,
                                                reply, caught);
}

/* No server was found, so nothing was sent; or a read was lost. Then it is sent again, once there is a server. */
static bool may_run_again(const struct mongo_command *command, const bson_error_t *caught)
{
    if (command->session || command->server_id || caught->domain == MONGOC_ERROR_SERVER)
        return false;
    if (caught->domain == MONGOC_ERROR_SERVER_SELECTION)
        return !truce__mongo_lost();
    return command->kind == MONGO_READ && !command->write_concern &&
           caught->domain == MONGOC_ERROR_STREAM;
}

#define RUNS 3 /* of a read whose connection breaks */

truce_status truce__mongo_run(struct mongo_store *store, mongoc_client_t *client,
                              const struct mongo_command *command, bson_t *reply,
                              bson_error_t *error)
{
    const char *database = command->database ? command->database : store->database;
    bson_error_t caught = {0};
    truce_status status = TRUCE_OK;
    bson_t options;
    bool done;

    truce__mongo_limit(command->wait_ms);
    truce__mongo_call();
    done = command_make_options(store, command, &options, &caught);
    if (done)
        done = command_run(client, database, command, &options, reply, &caught);
    else
        bson_init(reply);
    for (int i = 1; !done && i < RUNS && may_run_again(command, &caught) &&
                    truce__mongo_await_server(store, client, NULL);
         i++) {
        bson_destroy(reply);
        done = command_run(client, database, command, &options, reply, &caught);
    }
    if (!done && is_too_old(store, &caught))
        status = truce__fail(TRUCE_EXPIRED, error,
                             "%s: the snapshot is older than the history that the server keeps",
                             command->what);
    else if (!done)
        status = truce__mongo_failed(command->kind, command->what, reply, &caught, error);
    bson_destroy(&options);
    return status;
}

truce_status truce__mongo_run_alone(struct mongo_store *store, const struct mongo_command *command,
                                    bson_t *reply, bson_error_t *error)
{
    mongoc_client_t *client;
    truce_status status = truce__mongo_borrow(store, &client, error);

    if (status) {
        bson_init(reply);
        return status;
    }
    status = truce__mongo_run(store, client, command, reply, error);
    truce__mongo_return(store, client);
    return status;
}

/* ---- small things --------------------------------------------------------------------------- */

const char *truce__mongo_what(char *text, size_t size, const char *verb, const char *collection)
{
    snprintf(text, size, "%s %s", verb, collection);
    return text;
}

int64_t truce__mongo_number(const bson_t *reply, const char *path, int64_t otherwise)
{
    bson_iter_t iter, found;

    if (!bson_iter_init(&iter, reply) || !bson_iter_find_descendant(&iter, path, &found))
        return otherwise;
    if (BSON_ITER_HOLDS_DOUBLE(&found)) {
        double number = bson_iter_double(&found);

        return number >= -9e15 && number <= 9e15 ? (int64_t)number : otherwise;
    }
    return BSON_ITER_HOLDS_INT(&found) ? bson_iter_as_int64(&found) : otherwise;
}

truce_status truce__mongo_writable(const struct mongo_store *store, bson_error_t *error)
{
    if (store->read_only)
        return truce__fail(TRUCE_INVALID, error, "the store was opened for reading only");
    return TRUCE_OK;
}

void truce__mongo_append_hint(bson_t *command, const bson_t *hint)
{
    bson_iter_t iter;

    if (!hint)
        return;
    if (bson_iter_init(&iter, hint) && bson_iter_next(&iter) && !*bson_iter_key(&iter) &&
        BSON_ITER_HOLDS_UTF8(&iter))
        BSON_APPEND_UTF8(command, "hint", bson_iter_utf8(&iter, NULL));
    else
        BSON_APPEND_DOCUMENT(command, "hint", hint);
}
