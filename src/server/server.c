/*
 * The server with its threads: it listens, starts a thread for each connection, and stops.
 *
 *     accepter       accept --> connection_join --> thread: connection_serve --> connection_leave
 *                    every ACCEPT_MS: joins ended threads; closes idle cursors; ends expired
 *                    sessions and snapshots
 *     pruner         removes old entries of the change feed of a file, if it is switched on
 *     sweeper        runs the sweep (admin/sweeper.h)
 *     HTTP, metrics  have threads of libmicrohttpd; only the connections of HTTP join and leave
 *
 * connection_join counts a connection and refuses it if there are too many. connection_leave
 * removes it from the list and wakes server_stop; the accepter joins its thread afterwards.
 *
 * server_stop ends the server in this order:
 *
 *     1. No call begins any more: `stopping` is set, the accepter ends, and the metrics port and
 *        HTTP accept no connections. The sweeper and the pruner begin no further pass.
 *     2. The sockets are closed for reading. Idle connections end; a running call can still reply.
 *     3. After drain_ms, or at once if only a sweep is left, the calls of the store are
 *        interrupted. They have INTERRUPTED_MS to reply.
 *     4. After that, the sockets are closed for writing, too. Their connections end.
 *     5. When no connection and no sweep is left, the threads are joined and the state is freed.
 *
 * The store is not closed: it belongs to the caller.
 */
#include "server/server.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "engine/documents/open_documents.h"
#include "server/admin/top.h"
#include "server/call/shared_state.h"
#include "server/commands.h"
#include "server/dispatch.h"
#include "server/http/http.h"
#include "server/net/connections.h"
#include "server/net/listen.h"
#include "server/server_state.h"
#include "server/session/change_stream.h"
#include "store/decorators/database_view.h"
#include "store/file/file.h"
#include "store/reserved_names.h"
#include "truce/sys/store.h"

#define SOCKET_MODE 0600
/* The interval between two attempts to prune the change feed, in units of ACCEPT_MS. */
#define FEED_EACH 150
/* The interval at which the accepter checks for a stop and for expired cursors. */
#define ACCEPT_MS 200
/* The time for interrupted calls to reply before their connections are closed. */
#define INTERRUPTED_MS 2000

/* ---- listening ------------------------------------------------------------------------------- */

static const char *server_address(const struct server_options *options)
{
    return options->address ? options->address : "127.0.0.1";
}

/* Opens the TCP port and the Unix socket of the options. After a failure, the caller closes those
 * that are open. */
static truce_status server_listen(struct server *server, const struct server_options *options,
                                  bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    server->port = options->port;
    if (options->port == SERVER_NO_PORT && !options->socket)
        return truce__fail(
            TRUCE_INVALID, error,
            "the server has no address to listen on: give a port, a socket, or both");
    if (options->port == SERVER_NO_PORT)
        server->port = 0;
    else
        status = listen_at_address(server_address(options), &server->port, !server->auth,
                                   &server->listener, error);
    if (!status && options->socket)
        status = listen_at_path(options->socket,
                                options->socket_mode ? options->socket_mode : SOCKET_MODE,
                                &server->local, error);
    return status;
}

/* ---- connections ----------------------------------------------------------------------------- */

/* Serves one connection: the function of its thread. */
static void *server_run_connection(void *arg)
{
    struct connection *connection = arg;

    connection_serve(connection);
    connection_leave(connection);
    return NULL;
}

/* Starts the thread of an accepted connection, or closes it if it cannot join. `from` is NULL for a
 * client of the Unix socket. */
static void server_start_connection(struct server *server, int socket, const struct sockaddr *from)
{
    struct connection *connection = bson_malloc0(sizeof *connection);

    connection->socket = socket;
    connection->local = !from;
    if (!connection_join(server, connection, from)) {
        close(socket);
        bson_free(connection);
        return;
    }
    connection->started =
        !pthread_create(&connection->thread, NULL, server_run_connection, connection);
    if (!connection->started)
        /* No thread could be created: the connection is closed as if it were one too many. */
        connection_leave(connection);
}

static void server_accept(struct server *server, int listener)
{
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof from;
    int socket = accept4(listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC);

    if (socket >= 0)
        server_start_connection(server, socket,
                                listener == server->listener ? (struct sockaddr *)&from : NULL);
    else if (errno == EMFILE || errno == ENFILE)
        /* The process has no free descriptor, so the accepter waits for one. */
        truce__clock_sleep_ms(ACCEPT_MS);
}

/* Accepts connections until the server stops, and releases what is no longer used: the function of
 * the accepter. */
static void *server_accept_all(void *arg)
{
    struct server *server = arg;
    /* poll() ignores an fd of -1. */
    struct pollfd polled[] = {{.fd = server->listener, .events = POLLIN},
                              {.fd = local_socket_file(server->local), .events = POLLIN}};

    while (!server_is_stopping(server)) {
        if (poll(polled, 2, ACCEPT_MS) > 0)
            for (int i = 0; i < 2; i++)
                if (polled[i].revents)
                    server_accept(server, polled[i].fd);
        connections_join_ended(server);
        cursors_expire(server->cursors, TRUCE_SERVER_CURSOR_IDLE_MS);
        sessions_expire(server->sessions);
        snapshot_registry_expire(server->snapshots);
    }
    return NULL;
}

/* ---- the feed of changes --------------------------------------------------------------------- */

/* Prunes the feed by age. Writers prune it, too, but without writes entries only grow older. */
static void prune_feed(struct server *server)
{
    struct engine *engine = truce__file_engine_or_null(server->store);
    struct feed_state state;
    bson_error_t ignored; /* After a failure, the next pass tries again. */
    bool more = true;

    if (truce__engine_feed_state(engine, &state, &ignored) || !state.spec.table || !state.bytes)
        return;
    while (more && !server_is_stopping(server))
        if (truce__engine_feed_prune(engine, NULL, &more, &ignored))
            return;
}

static void *keep_feed(void *arg)
{
    struct server *server = arg;

    for (int i = 1; !server_is_stopping(server); i++) {
        truce__clock_sleep_ms(ACCEPT_MS);
        if (i % FEED_EACH == 0)
            prune_feed(server);
    }
    return NULL;
}

/* Sets the change feed of a store in a file as `feed` says (NULL changes nothing), and starts the
 * thread that prunes it. Fails with INVALID for any other store. */
static truce_status start_feed(struct server *server, const struct server_feed *feed,
                               bson_error_t *error)
{
    struct engine *engine = truce__file_engine_or_null(server->store);
    struct feed_state state;
    truce_status status = TRUCE_OK;

    if (!engine && feed && feed->keep_ms)
        return truce__fail(TRUCE_INVALID, error,
                           "a change feed is supported only by a store in a file");
    if (engine && feed)
        status = truce__engine_feed_keep(engine, feed->keep_ms, feed->keep_bytes, error);
    if (!status && engine)
        status = truce__engine_identify(engine, error);
    if (!status && engine)
        status = truce__engine_feed_state(engine, &state, error);
    /* Later entries get positions after last + 1, where a stream may start. */
    if (!status && engine && state.spec.table)
        (void)truce__feed_pass(&engine->writer, state.last + 1);
    if (!status && engine) /* Without the thread, only writers prune the feed. */
        server->prunes = !pthread_create(&server->pruner, NULL, keep_feed, server);
    return status;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void server_free(struct server *server)
{
    scram_wipe(server->secret, sizeof server->secret);
    tls_free(server->tls);
    if (server->listener >= 0)
        close(server->listener);
    local_socket_close(server->local);
    server_state_end(server);
    bson_free(server);
}

/* Frees a server that could not start. */
static void server_give_up(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    atomic_store(&server->stopping, true);
    pthread_mutex_unlock(&server->mutex);
    if (server->prunes)
        pthread_join(server->pruner, NULL);
    sweeper_stop(server->sweeper);
    sweeper_join(server->sweeper);
    metrics_close(server->metrics_port);
    http_close(server->http);
    connections_join_ended(server);
    server_free(server);
}

/* Checks the name of the replica set, and the address that its clients connect to. */
static truce_status check_set(const struct server_options *options, bson_error_t *error)
{
    const char *set = options->replica_set;

    if (!set)
        return options->advertise
                   ? truce__fail(TRUCE_INVALID, error, "an advertised address needs a replica set")
                   : TRUCE_OK;
    if (!set[0] || strlen(set) >= sizeof((struct server *)NULL)->set ||
        strspn(set, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") !=
            strlen(set))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid name of a replica set \"%.80s\": expected letters, digits, - _ "
                           "and ., at most %zu",
                           set, sizeof((struct server *)NULL)->set - 1);
    if (options->advertise && (!strchr(options->advertise, ':') ||
                               strlen(options->advertise) >= sizeof((struct server *)NULL)->me))
        return truce__fail(TRUCE_INVALID, error, "invalid address \"%.80s\": expected HOST:PORT",
                           options->advertise);
    if (!options->advertise && options->port == SERVER_NO_PORT)
        return truce__fail(TRUCE_INVALID, error,
                           "a replica set without a port needs the address that its clients "
                           "connect to: --advertise HOST:PORT");
    return TRUCE_OK;
}

/* Sets the name of the replica set, and the address that its clients connect to. */
static truce_status name_set(struct server *server, const struct server_options *options,
                             bson_error_t *error)
{
    bool is_six = strchr(server_address(options), ':') != NULL;

    if (!options->replica_set)
        return TRUCE_OK;
    if (!(server->store->capabilities & TRUCE_CAN_RECEIPT))
        return truce__fail(TRUCE_INVALID, error,
                           "--replica-set is not supported by this store, because it cannot record "
                           "retryable writes");
    snprintf(server->set, sizeof server->set, "%s", options->replica_set);
    if (options->advertise)
        snprintf(server->me, sizeof server->me, "%s", options->advertise);
    else
        snprintf(server->me, sizeof server->me, "%s%s%s:%d", is_six ? "[" : "",
                 server_address(options), is_six ? "]" : "", server->port);
    return TRUCE_OK;
}

/* Refuses --auth without a user: no client could use the server. */
static truce_status refuse_no_user(bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error,
                       "--auth needs at least one user: create one with truce user add NAME "
                       "--role root");
}

static truce_status check_users(const struct server *server, bson_error_t *error)
{
    int64_t users = 0;
    truce_status status = server->auth ? users_count(server->store, &users, error) : TRUCE_OK;

    return !status && server->auth && !users ? refuse_no_user(error) : status;
}

static truce_status check_tls(const struct tls_files *files, bson_error_t *error)
{
    return !files->certificate && (files->key || files->client_ca)
               ? truce__fail(TRUCE_INVALID, error,
                             "--tls-key and --tls-client-ca need --tls-certificate, the "
                             "certificate of the server")
               : TRUCE_OK;
}

static truce_status check_options(const struct server_options *options, bson_error_t *error)
{
    truce_status status =
        truce__database_name_check(options->database ? options->database : OWN_DATABASE, error);

    if (!status)
        status = check_set(options, error);
    return status ? status : check_tls(&options->tls, error);
}

/* Copies the options to the server, with the defaults for those that are 0. */
static void set_access(struct server *server, const struct server_options *options)
{
    server->auth = options->auth;
    server->log = options->log;
    server->sync_target = options->sync_target;
    server->shutdown = options->shutdown;
    server->shutdown_arg = options->shutdown_arg;
    atomic_init(&server->slow_ms, options->slow_ms ? options->slow_ms : TRUCE_SERVER_SLOW_MS);
    server->login_delay_ms =
        options->login_delay_ms ? options->login_delay_ms : TRUCE_LOGIN_DELAY_MS;
    if (options->test_commands)
        server->fail_point = fail_point_new();
    server->handshake_ms = options->handshake_ms ? options->handshake_ms : TRUCE_HANDSHAKE_MS;
    server->message_ms = options->message_ms ? options->message_ms : TRUCE_MESSAGE_MS;
    server->send_ms = options->send_ms ? options->send_ms : TRUCE_SEND_MS;
    server->unauthenticated_ms =
        options->unauthenticated_ms ? options->unauthenticated_ms : TRUCE_UNAUTHENTICATED_MS;
    atomic_init(&server->changes, 1);
    scram_random(server->secret, sizeof server->secret);
}

static void server_log_start(const struct server *server, const char *address)
{
    bson_t *fields = BCON_NEW("version", BCON_UTF8(TRUCE_VERSION), "pid", BCON_INT64(getpid()),
                              "address", BCON_UTF8(address), "port", BCON_INT32(server->port),
                              "database", BCON_UTF8(server->database), "auth",
                              BCON_BOOL(server->auth), "tls", BCON_BOOL(server->tls != NULL));

    if (server->set[0])
        BSON_APPEND_UTF8(fields, "replicaSet", server->set);
    log_write(server->log, TRUCE_LOG_INFO, LOG_SERVER, 0, "started", fields);
    bson_destroy(fields);
}

truce_status server_check_new(const struct server_options *options, bson_error_t *error)
{
    struct server *probe;
    truce_status status = check_options(options, error);

    if (!status && options->auth)
        status = refuse_no_user(error);
    if (status)
        return status;
    probe = bson_malloc0(sizeof *probe);
    probe->listener = -1;
    if (options->tls.certificate)
        status = tls_new(&options->tls, &probe->tls, error);
    if (!status)
        status = server_listen(probe, options, error);
    if (!status && options->metrics)
        status = listen_check_where(options->metrics, error);
    if (!status && options->http)
        status = listen_check_where(options->http, error);
    tls_free(probe->tls);
    if (probe->listener >= 0)
        close(probe->listener);
    local_socket_close(probe->local);
    bson_free(probe);
    return status;
}

truce_status server_start(truce_store *store, const struct server_options *options,
                          struct server **server, bson_error_t *error)
{
    static const struct server_options defaults;
    struct server *made;
    truce_status status;

    *server = NULL;
    if (!options)
        options = &defaults;
    status = check_options(options, error);
    if (status)
        return status;
    made = bson_malloc0(sizeof *made);
    server_state_begin(
        made, store, options->database ? options->database : OWN_DATABASE,
        &(struct server_state_options){.commands = &server_commands,
                                       .sessions = {.lifetime_ms = options->transaction_ms,
                                                    .snapshot = options->snapshot_isolation},
                                       .snapshot_ms = options->snapshot_ms,
                                       .sweep_every_ms = options->sweep_every_ms});
    made->refresh_login = login_refresh;
    made->listener = -1;
    made->connections_max =
        options->connections_max ? options->connections_max : TRUCE_CONNECTIONS_MAX;
    set_access(made, options);
    status = truce__own_database_keep(store, made->database, error);
    if (!status)
        status = check_users(made, error);
    if (!status && options->tls.certificate)
        status = tls_new(&options->tls, &made->tls, error);
    if (!status)
        status = server_listen(made, options, error);
    if (!status)
        status = name_set(made, options, error);
    if (!status)
        status = start_feed(made, options->feed, error);
    if (!status && made->set[0])
        status = server_start_time(made, error);
    if (!status && options->metrics)
        status = metrics_listen(made, options->metrics, &made->metrics_port, error);
    if (!status && options->http)
        status = http_listen(made,
                             &(struct http_options){.where = options->http,
                                                    .tls = options->tls,
                                                    .hosts = options->http_hosts},
                             &made->http, error);
    if (!status && !sweeper_start(made))
        status = truce__fail(
            TRUCE_IO, error,
            "cannot start the thread of the sweeper: the system has no memory or no threads left");
    if (!status && pthread_create(&made->accepter, NULL, server_accept_all, made))
        status = truce__fail(TRUCE_IO, error,
                             "cannot start the thread that accepts connections: the system has no "
                             "memory or no threads left");
    if (status)
        server_give_up(made);
    else
        server_log_start(made, options->port == SERVER_NO_PORT ? options->socket
                                                               : server_address(options));
    if (!status)
        *server = made;
    return status;
}

int server_port(const struct server *server)
{
    return server->port;
}

const char *server_http(const struct server *server)
{
    return server->http ? http_where(server->http) : NULL;
}

const char *server_metrics(const struct server *server)
{
    return server->metrics_port ? metrics_where(server->metrics_port) : NULL;
}

/* Shuts down the sockets of all connections, which ends idle connections. */
static void hang_up(struct server *server, int how)
{
    for (struct connection *at = server->connections; at; at = at->next)
        shutdown(at->socket, how);
}

static void server_log_stop(const struct server *server, const char *message, const char *name,
                            int64_t number)
{
    bson_t *fields = BCON_NEW(name, BCON_INT64(number));

    log_write(server->log, TRUCE_LOG_INFO, LOG_SERVER, 0, message, fields);
    bson_destroy(fields);
}

void server_stop(struct server *server, int64_t drain_ms)
{
    int64_t begun_ns = truce__clock_monotonic_ns(), until_ns = begun_ns + drain_ms * 1000000;
    bool interrupted = false, cut = false, late;

    server_log_stop(server, "stopping", "waitsMs", drain_ms);
    pthread_mutex_lock(&server->mutex);
    atomic_store(&server->stopping, true);
    pthread_mutex_unlock(&server->mutex);
    sweeper_stop(server->sweeper);
    /* poll() of the accepter returns. */
    (void)shutdown(server->listener, SHUT_RDWR);
    pthread_join(server->accepter, NULL);
    metrics_close(server->metrics_port);
    http_quiesce(server->http);
    if (server->prunes)
        pthread_join(server->pruner, NULL);
    pthread_mutex_lock(&server->mutex);
    hang_up(server, SHUT_RD);
    while (server->connected || server->sweeping) {
        struct timespec wake;

        clock_gettime(CLOCK_REALTIME, &wake);
        wake.tv_nsec += 20000000;
        wake.tv_sec += wake.tv_nsec / 1000000000;
        wake.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&server->gone, &server->mutex, &wake);
        late = truce__clock_monotonic_ns() > until_ns;
        if (!interrupted && (server->connected ? late : server->sweeping)) {
            interrupted = true;
            until_ns += INTERRUPTED_MS * INT64_C(1000000);
            truce_interrupt(server->store);
        } else if (!cut && late) {
            cut = true;
            hang_up(server, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&server->mutex);
    http_close(server->http);
    connections_join_ended(server);
    sweeper_join(server->sweeper);
    if (interrupted)
        truce_resume(server->store);
    server_log_stop(server, "stopped", "ms", (truce__clock_monotonic_ns() - begun_ns) / 1000000);
    server_free(server);
}
