#ifndef TRUCE_SERVER_SERVER_H
#define TRUCE_SERVER_SERVER_H

/*
 * A store behind MongoDB's wire protocol: a thread that accepts, a thread for each connection.
 *
 *     wire.c         bytes to requests, replies to bytes
 *     server.c       who listens, who is connected, how it ends
 *     stream.c       bytes of a connection, plain or by TLS
 *     connection.c   reads a request, has it answered, writes the reply
 *     call.c         one command: finds it in the table, and runs it; call_fields.c reads its fields, call_error.c says what failed
 *     commands.c     the table
 *     serve_*.c      the commands, a file for each group of them
 *     patterns.c     the patterns as commands: their table, its checks; pattern_*.c: a file for each pattern
 *     handles.c      sets and queues that commands share
 *     compress.c     messages that are compressed
 *     duplicate.c    what clients look for where a key is taken
 *     watch.c        change streams, their tokens and events
 *     cursor_registry.c         cursors that clients come back to
 *     sessions.c     sessions and their transactions
 *     snapshot_registry.c        moments that are read again by their time
 *     retryable_writes.c         what writes did that may be sent again
 *     access.c       who may do what; roles.c: what the roles allow
 *     login.c        who a connection is; scram.c, saslprep.c: how it proves that
 *     users.c        users, as documents
 *     operations.c   what runs just now, and ends it
 *     fail_point.c   failures by order, for tests
 *     log.c          what happens, a line each; log_file.c: the file that it is in
 *     top.c          what commands did with each collection
 *     metrics.c      what is counted, as Prometheus reads it; metrics_port.c: where
 *     sweeper.c      the sweep, every so many seconds
 *     notify.c       tells a service manager that it is ready
 *     namespace_map.c       databases and collections of the wire as collections of the store
 *
 * Invariants:
 *  1. A write is answered with ok: 1 only when the store has acknowledged it.
 *  2. Whatever a client sends, its connection ends or is answered; the others go on.
 *  3. Nothing that a client sends decides how much memory is taken beyond TRUCE_MESSAGE_BYTES_MAX for a
 *     message, and again when it is opened, TRUCE_SERVER_CURSORS_MAX cursors, and what the store allows a query.
 *  4. A cursor is used by one connection at a time, and so is a session with its transaction.
 */
#include <stdatomic.h>

#include "server/admin/log.h"
#include "server/net/stream.h"
#include "truce/truce.h"

struct server;

/* The feed of changes that change streams need (lease_watch.h). It is the file's, and stays when the server has ended. */
struct server_feed {
    int64_t keep_ms;    /* 0: off, and what it had is gone */
    int64_t keep_bytes; /* 0: any number */
};

struct server_options {
    const char *
        address; /* that it listens on; without `auth` of this machine's loopback only. NULL: 127.0.0.1 */
    int port; /* 0: any that is free */
    /* The database whose collections have the store's own names. Those of the others are "@DATABASE.NAME" in
     * the store. NULL: "test" */
    const char *database;
    int connections_max; /* 0: TRUCE_CONNECTIONS_MAX */
    const char *
        replica_set; /* the name of the set that it looks like the primary of. NULL: it looks alone */
    const char
        *advertise; /* HOST:PORT by which clients are to reach it then. NULL: where it listens */
    int64_t transaction_ms;  /* that a transaction may last; 0: TRUCE_SERVER_TRANSACTION_MS */
    int64_t past_ms;         /* a moment may be read by its time; 0: TRUCE_SERVER_PAST_MS */
    bool snapshot_isolation; /* transactions do not check at their commit what they have read */
    bool auth;               /* who connects has to log in; there must be a user */
    struct tls_files tls;    /* certificate NULL: without TLS */
    int64_t handshake_ms;    /* that one of TLS may take; 0: TRUCE_HANDSHAKE_MS */
    int64_t
        message_ms; /* that a part of a message, and each step of a login, may take; 0: TRUCE_MESSAGE_MS */
    int64_t stranger_ms; /* that a connection without a login may be silent; 0: TRUCE_STRANGER_MS */
    int64_t send_ms;     /* that a client may read nothing of its answer; 0: TRUCE_SEND_MS */
    const struct server_feed *feed; /* NULL: as the file has it, none at first */
    bool test_commands;             /* configureFailPoint is there (fail_point.h) */
    const char *
        metrics; /* "PORT" or "ADDRESS:PORT" of the loopback: told there (metrics.h). NULL: nowhere */
    /* where NULL: no HTTP. Its TLS files are `tls`. */
    const char *http, *http_hosts;
    int64_t login_delay_ms; /* so late a login that failed is answered; 0: TRUCE_LOGIN_DELAY_MS */
    int64_t sweep_every_ms; /* 0: not by itself */
    void (*shutdown)(
        void *
            arg); /* a client wants it to end: is to call server_stop, but elsewhere; NULL: refused */
    void *shutdown_arg;
    struct log *log; /* borrowed until server_stop; NULL: none */
    int64_t slow_ms; /* commands that take as long are told there; 0: TRUCE_SERVER_SLOW_MS */
};

/* The store is borrowed until server_stop. INVALID: the address or database is wrong; IO: the port is
 * taken. */
truce_status server_start(truce_store *store, const struct server_options *options,
                          struct server **server, bson_error_t *error);
int server_port(const struct server *server);
/* "http://127.0.0.1:9216/metrics"; NULL: nowhere. */
const char *server_metrics(const struct server *server);
/* Returns "http://127.0.0.1:8080"; NULL: no HTTP. */
const char *server_http(const struct server *server);

/* Accepts nobody any more, lets what runs end for `drain_ms`, interrupts the rest (11600), and waits for it. */
void server_stop(struct server *server, int64_t drain_ms);

#endif
