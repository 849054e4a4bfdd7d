/*
 * truce_command: the commands of a server in this process, without clients and sockets.
 *
 * A store gets the state that commands need (cursors, sessions, handles of patterns) with the first
 * call. The state is shared by all calls and threads, and ends when the store is closed. A call
 * runs as a call of a client that may do everything.
 *
 * Cursors, sessions, and snapshots that nothing uses any longer are released by later calls: the
 * library has no thread of its own.
 */
#include "truce/command.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/forks.h"
#include "base/limits.h"
#include "base/null.h"
#include "server/command/data_commands.h"
#include "server/server_state.h"
#include "store/decorators/database_view.h"
#include "store/store.h"
#include "truce/sys/store.h"

#define EXPIRE_MS 1000 /* The interval between two searches for state that is no longer used. */

/* ---- the table ------------------------------------------------------------------------------- */

static const struct command embedded_commands[] = {DATA_COMMANDS, {0}};

static const struct command *embedded_find(const char *name)
{
    return command_named(embedded_commands, name);
}

static const struct command_table embedded_table = {embedded_commands, row_command, embedded_find};

/* ---- the state of a store -------------------------------------------------------------------- */

struct embedded {
    /* Must be the first field: the store has a pointer to it. */
    struct truce_store_cache base;
    struct server server;
    /* When idle cursors, sessions, and snapshots were last closed (monotonic). */
    atomic_llong expired_ns;
};

static void embedded_free(struct truce_store_cache *base)
{
    struct embedded *embedded = (struct embedded *)base;

    server_state_end(&embedded->server);
    bson_free(embedded);
}

/* Returns the database of a server that the store is, or NULL. */
static const char *embedded_remote(truce_store *store)
{
    return store->ops->database ? store->ops->database(store) : NULL;
}

/* Creates the state of a store. The caller frees it with embedded_free. */
static truce_status embedded_make(truce_store *store, struct embedded **made, bson_error_t *error)
{
    char own[DATABASE_NAME_MAX + 1];
    truce_status status = truce__own_database(store, own, error);
    struct embedded *embedded;

    if (status)
        return status;
    embedded = bson_malloc0(sizeof *embedded);
    embedded->base.free = embedded_free;
    server_state_begin(&embedded->server, store, own,
                       &(struct server_state_options){.commands = &embedded_table});
    embedded->server.listener = -1;
    atomic_init(&embedded->expired_ns, truce__clock_monotonic_ns());
    *made = embedded;
    return TRUCE_OK;
}

/* Only one thread makes the state of a store. The state registers its views with the engine, and
 * freeing a second state would remove them. */
static pthread_mutex_t embedded_mutex = PTHREAD_MUTEX_INITIALIZER;

static void embedded_forked(void)
{
    pthread_mutex_init(&embedded_mutex, NULL);
}

/* A child opens stores of its own, so its mutex can begin unlocked. */
__attribute__((constructor)) static void embedded_watch_forks(void)
{
    truce__forks_watch(NULL, NULL, embedded_forked);
}

/* Returns the state of the store, and creates it on the first call. Fails if the store was opened
 * before a fork. */
static truce_status embedded_of(truce_store *store, struct embedded **embedded, bson_error_t *error)
{
    struct truce_store_cache *found = __atomic_load_n(&store->commands, __ATOMIC_ACQUIRE);
    truce_status status = truce__store_not_inherited(store, error);

    *embedded = (struct embedded *)found;
    if (status || found)
        return status;
    pthread_mutex_lock(&embedded_mutex);
    *embedded = (struct embedded *)__atomic_load_n(&store->commands, __ATOMIC_ACQUIRE);
    if (!*embedded) {
        status = embedded_make(store, embedded, error);
        if (!status)
            __atomic_store_n(&store->commands, &(*embedded)->base, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&embedded_mutex);
    return status;
}

static void embedded_expire(struct embedded *embedded)
{
    struct server *server = &embedded->server;
    long long now_ns = truce__clock_monotonic_ns(), last_ns = atomic_load(&embedded->expired_ns);

    if (now_ns - last_ns < EXPIRE_MS * 1000000LL ||
        !atomic_compare_exchange_strong(&embedded->expired_ns, &last_ns, now_ns))
        return;
    cursors_expire(server->cursors, TRUCE_SERVER_CURSOR_IDLE_MS);
    sessions_expire(server->sessions);
    snapshot_registry_expire(server->snapshots);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Returns the class of a reply, and the error that it reports. */
static truce_status embedded_status(const bson_t *reply, truce_status status, bson_error_t *error)
{
    bson_iter_t at;

    if (!status || !error)
        return status;
    error->domain = TRUCE_ERROR_SERVER;
    error->code = bson_iter_init_find(&at, reply, "code") ? (uint32_t)bson_iter_as_int64(&at) : 0;
    if (bson_iter_init_find(&at, reply, "errmsg") && BSON_ITER_HOLDS_UTF8(&at))
        snprintf(error->message, sizeof error->message, "%s", bson_iter_utf8(&at, NULL));
    return status;
}

/* Returns the row of an operation that the server of the store runs itself, or NULL. An operation
 * in a transaction runs here, where its transaction is. */
static const struct operation_row *embedded_row_of_server(const truce_store *store,
                                                          const bson_t *request)
{
    bson_iter_t name;

    return store->capabilities & TRUCE_CAN_COMMAND && store->ops->command &&
                   bson_iter_init(&name, request) && bson_iter_next(&name) &&
                   !bson_has_field(request, "lsid") && !bson_has_field(request, "txnNumber")
               ? truce__operation_named(bson_iter_key(&name))
               : NULL;
}

/* Sends the operation. The reply has the fields of its row and of errors, and no cluster time. */
static truce_status embedded_send(truce_store *store, const struct operation_row *row,
                                  const bson_t *request, bson_t *reply, bson_error_t *error)
{
    bool writes = row->role == ROLE_WRITE || row->role == ROLE_MAINTAIN;
    bson_error_t caught = {0};
    truce_status status;
    bson_t answer;

    status = store->ops->command(store, request, writes, &answer, &caught);
    bson_copy_to_excluding_noinit(&answer, reply, "operationTime", "$clusterTime", NULL);
    if (status && !bson_has_field(reply, "ok")) {
        uint32_t code = call_code(status, &caught);

        BCON_APPEND(reply, "ok", BCON_DOUBLE(0), "errmsg", BCON_UTF8(caught.message), "code",
                    BCON_INT32((int32_t)code), "codeName", BCON_UTF8(truce_error_name(code)));
        truce__operation_append_error(row, status, code, false, reply);
    }
    if (status && error)
        *error = caught;
    bson_destroy(&answer);
    return status;
}

truce_status truce_command(truce_store *store, const char *database, const bson_t *request,
                           bson_t *reply, bson_error_t *error)
{
    char namespace[DATABASE_NAME_MAX + 8];
    struct connection connection = {.socket = -1};
    /* In the form of an OP_QUERY, the database is not part of the request. */
    struct wire_request wire = {.old = true, .namespace = namespace};
    const struct operation_row *row;
    struct embedded *embedded;
    truce_status status;

    RETURN_IF_NULL(reply, error);
    bson_init(reply);
    RETURN_IF_NULL(request, error);
    if (!database)
        database = truce__database_name(store);
    status = embedded_of(truce__database_holder(store), &embedded, error);
    if (!status && database)
        status = truce__database_name_check(database, error);
    if (!status && database && embedded_remote(truce__database_holder(store)) &&
        strcmp(database, embedded->server.database) != 0)
        status =
            truce__fail(TRUCE_INVALID, error,
                        "this store is the database \"%s\" of a server: open another store for "
                        "the database \"%s\"",
                        embedded->server.database, database);
    if (!status && !bson_init_static(&wire.body, bson_get_data(request), request->len))
        status = truce__fail(TRUCE_INVALID, error, "the request is not a valid document");
    if (status)
        return status;
    row = embedded_row_of_server(truce__database_holder(store), &wire.body);
    if (row)
        return embedded_send(truce__database_holder(store), row, &wire.body, reply, error);
    embedded_expire(embedded);
    snprintf(namespace, sizeof namespace, "%s.$cmd",
             database ? database : embedded->server.database);
    connection.server = &embedded->server;
    connection.begun_ns = truce__clock_monotonic_ns();
    pthread_mutex_init(&connection.operation.mutex, NULL);
    bson_destroy(reply);
    status = embedded->server.dispatch(&connection, &wire, reply);
    pthread_mutex_destroy(&connection.operation.mutex);
    return embedded_status(reply, status, error);
}
