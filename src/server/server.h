#ifndef TRUCE_SERVER_SERVER_H
#define TRUCE_SERVER_SERVER_H

/*
 * A server with MongoDB's wire protocol for a store: one thread accepts connections, and each
 * connection has a thread. README.md describes the folders and the files.
 *
 * Invariants:
 *  1. The reply to a write has ok: 1 only after the store has acknowledged it.
 *  2. Whatever a client sends, it gets a reply or its connection ends. Other connections are not
 *     affected.
 *  3. A client cannot make the server use unlimited memory. A message has at most
 *     TRUCE_MESSAGE_BYTES_MAX, also after it is decompressed. At most TRUCE_SERVER_CURSORS_MAX
 *     cursors are open. The store limits each query.
 *  4. A cursor, and a session with its transaction, is used by one connection at a time.
 *  5. With a sync target (struct server_sync_target), a write gets a reply without an error only
 *     after the target has all commits that were made before the reply.
 */
#include <stdatomic.h>

#include "server/admin/server_log.h"
#include "server/net/tls_stream.h"
#include "truce/truce.h"

struct server;

/* The change feed that change streams read. It belongs to the file and stays when the server
 * stops. */
struct server_feed {
    /* The age in ms after which entries are removed. 0 means that the feed itself is removed. */
    int64_t keep_ms;
    /* The maximum size of the feed in bytes. 0 means no limit. */
    int64_t keep_bytes;
};

/* A second copy of all commits, which replies wait for (truce serve --archive-sync). The calls end
 * at `until_ns` (monotonic) or earlier. */
struct server_sync_target {
    /* Waits until the target works. Fails with LOCKED; the write is then not begun. */
    truce_status (*ready)(void *arg, int64_t until_ns, bson_error_t *error);
    /* Waits until the target has all commits that were made before the call. Fails with UNKNOWN. */
    truce_status (*wait)(void *arg, int64_t until_ns, bson_error_t *error);
    void *arg;
};

#define SERVER_NO_PORT (-1)

struct server_options {
    /* The address to listen on. Without `auth` it must be a loopback address. NULL means
     * 127.0.0.1. */
    const char *address;
    /* The TCP port. 0 means any free port, and SERVER_NO_PORT means that the server listens only on
     * `socket`. */
    int port;
    /* The path of a Unix socket, or NULL. Connections to it do not use TLS. */
    const char *socket;
    /* The mode of the socket's file. 0 means 0600. */
    unsigned socket_mode;
    /* The database whose collections have the store's own names. A collection of another database
     * is "@DATABASE.NAME" in the store. NULL means "test". */
    const char *database;
    /* The maximum number of connections. 0 means TRUCE_CONNECTIONS_MAX. */
    int connections_max;
    /* The name of the replica set whose primary the server presents itself as. NULL means a
     * standalone server. */
    const char *replica_set;
    /* HOST:PORT that clients of the replica set connect to. NULL means the address that the server
     * listens on. */
    const char *advertise;
    /* Maximum duration of a transaction. 0 means TRUCE_SERVER_TRANSACTION_MS. */
    int64_t transaction_ms;
    /* The time for which a snapshot stays registered and can be read by its cluster time. 0 means
     * TRUCE_SERVER_SNAPSHOT_MS. */
    int64_t snapshot_ms;
    /* Snapshot isolation: the commit of a transaction does not check its reads. */
    bool snapshot_isolation;
    /* Clients must log in. At least one user must exist. */
    bool auth;
    /* The files of TLS. Without a certificate, connections are plain. */
    struct tls_files tls;
    /* Maximum duration of a TLS handshake. 0 means TRUCE_HANDSHAKE_MS. */
    int64_t handshake_ms;
    /* Maximum duration of a part of a message, and of each step of a login. 0 means
     * TRUCE_MESSAGE_MS. */
    int64_t message_ms;
    /* Maximum idle time of a connection that has not logged in. 0 means
     * TRUCE_UNAUTHENTICATED_MS. */
    int64_t unauthenticated_ms;
    /* Maximum time for which a client may read nothing of its reply. 0 means TRUCE_SEND_MS. */
    int64_t send_ms;
    /* The change feed to set. NULL leaves the feed of the file unchanged; a new file has none. */
    const struct server_feed *feed;
    /* Borrowed until server_stop. NULL means that replies wait for the disk only. */
    const struct server_sync_target *sync_target;
    /* The command configureFailPoint exists (fail_point.h). */
    bool test_commands;
    /* "PORT" or "ADDRESS:PORT" on the loopback interface for metrics, or NULL for no such port. */
    const char *metrics;
    /* "PORT" or "ADDRESS:PORT" for HTTP, with the TLS files of `tls`, or NULL for no HTTP. */
    const char *http;
    /* Further names of the server in HTTP's Host header, separated by commas, or NULL. */
    const char *http_hosts;
    /* Delay of the reply to a failed login. 0 means TRUCE_LOGIN_DELAY_MS. */
    int64_t login_delay_ms;
    /* The interval between two sweeps. 0 means that the server does not sweep. */
    int64_t sweep_every_ms;
    /* Called when a client sends `shutdown`. It must cause server_stop in another thread. NULL
     * means that the command is refused. */
    void (*shutdown)(void *arg);
    void *shutdown_arg;
    /* Borrowed until server_stop. NULL means no log. */
    struct log *log;
    /* Commands that take at least this long are logged. 0 means TRUCE_SERVER_SLOW_MS. */
    int64_t slow_ms;
};

/* Checks, before a store is created, whether a server with these options could start. Fails as
 * server_start does, for example if a port is in use or a certificate is not valid. */
truce_status server_check_new(const struct server_options *options, bson_error_t *error);

/* Starts a server. The store is borrowed until server_stop. Fails with INVALID for a wrong
 * option, and with IO if the port is in use. */
truce_status server_start(truce_store *store, const struct server_options *options,
                          struct server **server, bson_error_t *error);
/* Returns the TCP port, or 0 if the server has none. */
int server_port(const struct server *server);
/* Returns the URL of the metrics, "http://127.0.0.1:9216/metrics", or NULL without metrics. */
const char *server_metrics(const struct server *server);
/* Returns "http://127.0.0.1:8080", or NULL without HTTP. */
const char *server_http(const struct server *server);

/* Stops accepting connections, lets running commands end for `drain_ms`, interrupts the others
 * (11600), and waits for them. */
void server_stop(struct server *server, int64_t drain_ms);

#endif
