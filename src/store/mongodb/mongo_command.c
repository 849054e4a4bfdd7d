/*
 * Commands: round trips, the concerns of every read and write, and repetitions. A command uses a
 * connection of the pool (mongo_pool.c), within the limits of the call (mongo_time_limit.c).
 */
#include <stdatomic.h>
#include <stdio.h>

#include "store/mongodb/mongo.h"

/* ---- round trips ----------------------------------------------------------------------------- */

/*
 * libmongoc reports every command that got a reply or was lost, including its own repetitions and
 * the commands of cursors. Only the ends are reported here: for the beginning of a command it would
 * copy the message.
 *
 * Round trips are counted, because they are the cost of a call on a network.
 *
 * The thread remembers which messages of a call got no reply. libmongoc sends a write a second
 * time by itself and returns only the second reply. If the second message was refused or matched
 * nothing, the server may have executed the first one, or may still execute it, for example after
 * a stall. libmongoc reports this in the thread of the call.
 */

/* Whether a message of the current call got no reply, or one that leaves its outcome open. */
static _Thread_local bool lost;

void truce__mongo_call(void)
{
    lost = false;
}

bool truce__mongo_lost(void)
{
    return lost;
}

static void count_add_one(struct mongo_store *store)
{
    atomic_fetch_add_explicit(&store->round_trips, 1, memory_order_relaxed);
}

static void count_answered(const mongoc_apm_command_succeeded_t *event)
{
    struct mongo_store *store = mongoc_apm_command_succeeded_get_context(event);

    count_add_one(store);
    truce__mongo_limit_answered(true);
    atomic_store_explicit(&store->silent, false, memory_order_relaxed);
    if (bson_has_field(mongoc_apm_command_succeeded_get_reply(event), "writeConcernError"))
        /* The write was executed, but it may be rolled back. */
        lost = true;
}

static void count_failed(const mongoc_apm_command_failed_t *event)
{
    struct mongo_store *store = mongoc_apm_command_failed_get_context(event);
    bson_error_t caught;

    count_add_one(store);
    mongoc_apm_command_failed_get_error(event, &caught);
    if (caught.domain != MONGOC_ERROR_SERVER && truce__mongo_limit_is_over())
        atomic_store_explicit(&store->silent, true, memory_order_relaxed);
    if (truce__mongo_is_open(&caught))
        lost = true;
}

void truce__mongo_watch(struct mongo_store *store)
{
    mongoc_apm_callbacks_t *callbacks = mongoc_apm_callbacks_new();

    mongoc_apm_set_command_succeeded_cb(callbacks, count_answered);
    mongoc_apm_set_command_failed_cb(callbacks, count_failed);
    mongoc_client_pool_set_apm_callbacks(store->pool, callbacks, store);
    /* The pool has copied the callbacks. */
    mongoc_apm_callbacks_destroy(callbacks);
}

void truce__mongo_counters(truce_store *base, truce_store_counters *counters)
{
    struct mongo_store *store = (struct mongo_store *)base;

    counters->round_trips = atomic_load(&store->round_trips);
}

/* ---- statements of a transaction ------------------------------------------------------------- */

void truce__mongo_statement_failed(struct mongo_store *store, truce_status status,
                                   const bson_error_t *error)
{
    if (!store->transaction->failed) {
        store->transaction->failed = status;
        store->transaction->failure = *error;
    }
}

/* ---- one command ---------------------------------------------------------------------------- */

mongoc_write_concern_t *truce__mongo_write_concern(const struct mongo_store *store, bool relaxed)
{
    mongoc_write_concern_t *concern = mongoc_write_concern_new();

    /* A relaxed write also waits for the majority, because a majority read must see it. */
    mongoc_write_concern_set_w(concern, MONGOC_WRITE_CONCERN_W_MAJORITY);
    mongoc_write_concern_set_journal(concern, !relaxed);
    mongoc_write_concern_set_wtimeout_int64(concern, truce__mongo_wait_ms(store));
    return concern;
}

/* Appends the read concern: snapshot for a view or on request, otherwise linearizable or
 * majority. */
static void append_read_concern(const struct mongo_store *store,
                                const struct mongo_command *command, bson_t *options)
{
    bool linearizable = command->linearizable && store->linearizable;
    bool snapshot = command->snapshot || store->at.seconds;
    bson_t concern;

    /* In a transaction, the first statement carries the read concern. A standalone server needs
     * none. */
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

/* Returns whether the server no longer has the history that a view reads. After
 * SNAPSHOT_UNAVAILABLE, which means that a collection was created or changed since the time of the
 * view, the view will never work. */
static bool is_too_old(const struct mongo_store *store, const bson_error_t *caught)
{
    return store->at.seconds && caught->domain == MONGOC_ERROR_SERVER &&
           (caught->code == CODE_SNAPSHOT_TOO_OLD || caught->code == CODE_SNAPSHOT_UNAVAILABLE);
}

/* Returns whether the command is part of a transaction, whose commit carries the write concern. */
static bool in_transaction(const struct mongo_command *command)
{
    return command->session && mongoc_client_session_in_transaction(command->session);
}

/* Builds the options of a command: its concerns, its session, and its server. Returns false if the
 * session cannot be used. The caller destroys `options`. */
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
    if (command->once)
        return mongoc_client_command_with_opts(client, database, command->body, NULL, options,
                                               reply, caught);
    if (command->write_concern)
        return mongoc_client_write_command_with_opts(client, database, command->body, options,
                                                     reply, caught);
    return mongoc_client_read_command_with_opts(client, database, command->body, NULL, options,
                                                reply, caught);
}

/* Returns whether to send the command again when a server is known: no server was found, so nothing
 * was sent, or a read was lost. */
static bool may_run_again(const struct mongo_command *command, const bson_error_t *caught)
{
    if (command->session || command->server_id || caught->domain == MONGOC_ERROR_SERVER)
        return false;
    if (caught->domain == MONGOC_ERROR_SERVER_SELECTION)
        return !truce__mongo_lost();
    return command->kind == MONGO_READ && !command->write_concern && !command->once &&
           caught->domain == MONGOC_ERROR_STREAM;
}

/* The maximum number of attempts for a read whose connection breaks. */
#define RUNS 3

/* Makes the command a statement of the store's transaction, which determines the concerns and the
 * server. */
static struct mongo_command command_as_statement(const struct mongo_store *store,
                                                 const struct mongo_command *command)
{
    struct mongo_command statement = *command;

    statement.session = store->transaction->session;
    statement.kind = MONGO_STATEMENT;
    statement.read_concern = statement.once = false;
    statement.server_id = 0;
    return statement;
}

truce_status truce__mongo_run(struct mongo_store *store, mongoc_client_t *client,
                              const struct mongo_command *command, bson_t *reply,
                              bson_error_t *error)
{
    const char *database = command->database ? command->database : store->database;
    struct mongo_command statement;
    bson_error_t caught = {0}, why;
    truce_status status = TRUCE_OK;
    bson_t options;
    bool done;

    if (store->transaction && !command->outside) {
        if (store->transaction->failed) {
            bson_init(reply);
            if (error)
                *error = store->transaction->failure;
            return store->transaction->failed;
        }
        statement = command_as_statement(store, command);
        command = &statement;
    }

    truce__mongo_limit(command->wait_ms);
    truce__mongo_call();
    done =
        command_make_options(store, command, &options, &caught) &&
        (command->session || command->server_id || truce__mongo_has_server(store, client, &caught));
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
        status = truce__fail(TRUCE_EXPIRED, &why,
                             "%s: the snapshot is older than the history that the server keeps",
                             command->what);
    else if (!done)
        status = truce__mongo_failed(command->kind, command->what, reply, &caught, &why);
    if (status && store->transaction && !command->outside)
        truce__mongo_statement_failed(store, status, &why);
    if (status && error)
        *error = why;
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

/* ---- helpers --------------------------------------------------------------------------------- */

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
        return truce__fail(TRUCE_INVALID, error, "the store was opened read-only");
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
