#ifndef TRUCE_SERVER_COMMAND_STATE_H
#define TRUCE_SERVER_COMMAND_STATE_H

/* What the files of server/ share. */
#include <pthread.h>

#include "operations/handles.h"
#include "server/admin/fail_point.h"
#include "server/admin/metrics.h"
#include "server/admin/operations.h"
#include "server/admin/sweeper.h"
#include "server/auth/login.h"
#include "server/command/views.h"
#include "server/net/server.h"
#include "server/net/stream.h"
#include "server/session/cursor_registry.h"
#include "server/session/sessions.h"
#include "server/session/snapshot_registry.h"

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
    struct connection *next;
    struct server *server;
    pthread_t thread;
    bool started; /* there is a thread; of the accepter, and of server_stop after its end */
    int socket;
    struct stream stream; /* on it */
    int32_t number;
    int64_t begun_ns;
    char peer[64];
    struct login login;
    struct operation operation; /* what it does */
    char app[130];              /* that the program calls itself */
    bool heard;                 /* a message has come, whole */
    atomic_bool stranger;       /* it has not logged in, and would have to (for other threads) */
    bool evicted; /* it makes room for another, and is about to end (server's mutex) */
    bool ends;    /* after the answer that is made, which is not sent */
    bool wipes;   /* the message that is answered has secrets in it */
};

struct server {
    truce_store *store;
    char database[64];
    int listener, port, connections_max;
    int64_t started_ms, started_ns;
    pthread_t accepter, keeper;
    bool keeps; /* there is a keeper: of the feed of changes */
    struct held_cursors *cursors;
    struct sessions *sessions;
    struct handles *handles;
    struct pasts *pasts;
    struct views *views;
    char set[64],
        me[300]; /* name of the replica set that it looks like, and its address; empty: none */
    atomic_int last_message; /* ids of replies */
    atomic_llong operations; /* that were begun */
    atomic_llong counted[COUNTED_KINDS];
    atomic_ullong time;   /* the last that an answer had (server_time) */
    uint64_t ticks_until; /* this server's own are up to it (cluster_time.c; server_tick) */
    struct fail_point *fail_point; /* NULL: the server is not for tests */
    struct tls *tls;               /* NULL: none */
    int64_t handshake_ms, message_ms, stranger_ms, send_ms;
    bool auth;
    uint8_t secret[SCRAM_KEY_MAX]; /* for the challenges of those who are no users */
    int64_t login_delay_ms;
    void (*shutdown)(void *arg); /* NULL: clients may not */
    void *shutdown_arg;
    struct log *log;             /* NULL: none */
    atomic_llong slow_ms;        /* commands that take as long are told there */
    atomic_llong trouble_ns;     /* when it last told that the store failed (monotonic); 0: never */
    atomic_llong trouble_untold; /* how often it did not since then */
    atomic_llong changes;        /* of users, by this server; 1 at first */
    atomic_llong logins, logins_failed;
    atomic_int delayed; /* answers to logins that failed */
    struct sweeper *sweeper;
    struct metrics *metrics;
    struct top *top;
    struct metrics_port *metrics_port; /* NULL: they are told nowhere */

    pthread_rwlock_t
        names; /* of collections: whoever drops or renames one has it alone (same_collection.h) */

    pthread_mutex_t mutex; /* over all below */
    pthread_cond_t gone;
    bool sweeping; /* the sweeper's thread is there */
    struct connection *connections;
    struct connection *ended; /* whose threads are to be joined */
    int connected;
    int64_t created, refused;
    bool stopping;
};

/* The life of a connection. */
void *connection_run(void *connection);
bool server_is_stopping(struct server *server);
/* By connection_run, as its last step: the accepter joins the thread and frees the connection. */
void server_forget(struct connection *connection);

/* ---- cluster_time.c ---- */

/* Returns the time that answers have: it never goes back, and two servers of one file differ by their clocks. */
uint64_t server_time(struct server *server);
/* Gives the time of a snapshot, which no other snapshot of the store ever has, also after a restart. What is changed through
 * this server from now on comes behind it. One thread at a time; a status: of the store, where times are reserved. */
truce_status server_tick(struct server *server, uint64_t *time, bson_error_t *error);
/* Lets the time of a server that starts be behind all times that earlier ones gave to snapshots. */
truce_status server_start_time(struct server *server, bson_error_t *error);

#endif
