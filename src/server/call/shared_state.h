#ifndef TRUCE_SERVER_CALL_SHARED_STATE_H
#define TRUCE_SERVER_CALL_SHARED_STATE_H

/* The state of a server and of its connections, which all files of server/ share. */
#include <pthread.h>

#include "operations/shared_handles.h"
#include "server/admin/metrics.h"
#include "server/admin/running_commands.h"
#include "server/admin/sweeper.h"
#include "server/auth/login.h"
#include "server/call/fail_point.h"
#include "server/command/view_cache.h"
#include "server/net/tls_stream.h"
#include "server/server.h"
#include "server/session/cursor_registry.h"
#include "server/session/sessions.h"
#include "server/session/snapshot_registry.h"

struct call;
struct command_table;
struct local_socket;
struct wire_request;

enum server_counted {
    COUNTED_INSERT,
    COUNTED_QUERY,
    COUNTED_UPDATE,
    COUNTED_DELETE,
    COUNTED_GETMORE,
    COUNTED_COMMAND,
    COUNTED_KINDS,
};

struct connection {
    /* The next connection of the list. Guarded by the server's mutex. */
    struct connection *next;
    struct server *server;
    pthread_t thread;
    /* The thread exists. The accepter sets the flag; after the accepter's end, server_stop changes
     * it. */
    bool started;
    int socket;
    /* The socket belongs to the HTTP server, which also runs the connection's thread. */
    bool borrowed;
    /* HTTP: when the head of the next request must have arrived (atomic, or 0 if it has). */
    int64_t head_by_ns;
    /* The client is on this machine, at the Unix socket. */
    bool local;
    /* The stream on the socket. */
    struct stream stream;
    /* The number of the connection since the start of the server, and when it began (monotonic). */
    int32_t number;
    int64_t begun_ns;
    char peer[64];
    struct login login;
    /* The command that is running. */
    struct operation operation;
    /* The name that the client program gave itself. */
    char app[130];
    /* A complete message has been received. */
    bool heard;
    /* The client must log in and has not done so yet. Other threads read the flag. */
    atomic_bool unauthenticated;
    /* The connection was evicted for another one, and is about to end. Guarded by the server's
     * mutex. */
    bool evicted;
    /* The connection ends instead of sending the current reply. */
    bool ends;
    /* The current message contains secrets and is wiped after the call. */
    bool wipes;
};

struct server {
    truce_store *store;
    char database[64];
    const struct command_table *commands;
    /* Runs a request and fills its reply, which is always initialized. Returns the status of the
     * reply. */
    truce_status (*dispatch)(struct connection *connection, const struct wire_request *request,
                             bson_t *reply);
    /* Reads the roles of the call's user again if they may have changed; NULL means that the server
     * has no users. */
    truce_status (*refresh_login)(struct call *call, bson_error_t *error);
    /* The listening TCP socket, or -1, and its port. */
    int listener, port, connections_max;
    /* The Unix socket, or NULL if none exists. */
    struct local_socket *local;
    /* The time when the server started, in ms since 1970 and on the monotonic clock. */
    int64_t started_ms, started_ns;
    /* The threads that accept connections, and that prune the change feed. */
    pthread_t accepter, pruner;
    /* The pruner exists. */
    bool prunes;
    struct cursor_registry *cursors;
    struct sessions *sessions;
    struct handles *handles;
    struct snapshot_registry *snapshots;
    struct views *views;
    /* The name of the replica set that the server presents, and HOST:PORT of the server in it, or
     * "" for a standalone server. */
    char set[64], me[300];
    /* The id of the last reply. */
    atomic_int last_message;
    /* The number of commands that were begun. */
    atomic_llong operations;
    atomic_llong counted[COUNTED_KINDS];
    /* The last cluster time that this server gave out, for a store without a change feed of its own
     * (cluster_time.c). */
    atomic_ullong time;
    /* The end of the range of times that this server has reserved (cluster_time.c). Guarded by the
     * mutex of the snapshot registry. */
    uint64_t ticks_until;
    /* The fail points, or NULL without --test-commands. */
    struct fail_point *fail_point;
    /* The TLS configuration, or NULL if connections are plain. */
    struct tls *tls;
    /* The time limits of struct server_options. */
    int64_t handshake_ms, message_ms, unauthenticated_ms, send_ms;
    bool auth;
    /* The random key from which the challenges for unknown users are derived
     * (scram_unknown_user). */
    uint8_t secret[SCRAM_KEY_MAX];
    /* The delay of the reply to a failed login. */
    int64_t login_delay_ms;
    /* Stops the server at a client's request. NULL means that clients must not stop it. */
    void (*shutdown)(void *arg);
    void *shutdown_arg;
    /* The log of the server, or NULL. */
    struct log *log;
    /* The second copy that replies wait for, or NULL if they wait for the disk only. */
    const struct server_sync_target *sync_target;
    /* Commands that take at least this long are logged. */
    atomic_llong slow_ms;
    /* The time when a failure of the store was last logged (monotonic, 0 means never), and the
     * number of failures that were suppressed since then. */
    atomic_llong trouble_ns, trouble_suppressed;
    /* The number of changes of users by this server, from 1. Connections compare it to detect
     * changes. */
    atomic_llong changes;
    /* The number of logins that succeeded, and of those that failed. */
    atomic_llong logins, logins_failed;
    /* The number of replies to failed logins that are being delayed. */
    atomic_int delayed;
    struct sweeper *sweeper;
    struct metrics *metrics;
    struct top *top;
    /* The port for metrics, or NULL. */
    struct metrics_port *metrics_port;
    /* The HTTP server, or NULL. */
    struct http *http;

    /* Guards the names of collections. Commands that drop or rename collections lock it exclusively
     * (collection_uuid.h). */
    pthread_rwlock_t names;

    /* Protects the fields below. */
    pthread_mutex_t mutex;
    /* Signaled when a connection has left the list. */
    pthread_cond_t gone;
    /* The sweeper's thread exists. */
    bool sweeping;
    struct connection *connections;
    /* Connections whose threads are to be joined. */
    struct connection *ended;
    /* The length of `connections`, and the numbers of connections that were accepted and refused
     * since the start. */
    int connected;
    int64_t created, refused;
    /* Written under the mutex; may be read without it. */
    atomic_bool stopping;
};

static inline bool server_is_stopping(struct server *server)
{
    return atomic_load(&server->stopping);
}

/* ---- net/connection.c ------------------------------------------------------------------------ */

/* Serves a connection until it ends. */
void connection_serve(struct connection *connection);

/* ---- session/cluster_time.c ------------------------------------------------------------------ */

/* Returns the cluster time for a reply. The times of a server never decrease. The times of two
 * servers of one file differ as the clocks of these servers do. */
uint64_t server_time(struct server *server);
/* Sets *time to the time of a new snapshot. No other snapshot of the store ever has the same time,
 * also after a restart. Later changes through this server have later times. One thread at a time
 * may call it. Fails if the store cannot reserve times. */
truce_status server_tick(struct server *server, uint64_t *time, bson_error_t *error);
/* Sets the time of a server that starts. It is not earlier than any time that earlier servers gave
 * to snapshots. */
truce_status server_start_time(struct server *server, bson_error_t *error);

#endif
