#ifndef TRUCE_SERVER_ADMIN_METRICS_H
#define TRUCE_SERVER_ADMIN_METRICS_H

/*
 * What the server counts, and a port of its own where Prometheus reads it: GET /metrics, as text (version 0.0.4 of its
 * exposition format).
 *
 * The port is libmicrohttpd's: one thread, few connections, each of a fixed amount of memory, and ended when nothing comes for
 * a while; a request with a body is refused before the body is read.
 *
 * Invariants:
 *  1. Nothing that a client sends becomes a name or a label: commands are those of the table, errors are numbers, of which
 *     METRICS_CODES_MAX at most are kept apart.
 *  2. To count costs an addition or two, and waits for nobody; to read waits for no command.
 *  3. Who reads is of this machine: the port asks nobody who it is, so it listens on the loopback only.
 */
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

#define METRICS_CODES_MAX 64

struct command;
struct command_table;
struct metrics;
struct metrics_port;
struct server;

struct metrics *metrics_new(const struct command_table *table);
void metrics_free(struct metrics *metrics);

/* The command was begun, and took so long, whatever became of it. */
void metrics_ran(struct metrics *metrics, const struct command *command, int64_t ns);
/* A command, or a statement of one that writes, was answered with that code. */
void metrics_failed(struct metrics *metrics, uint32_t code);
void metrics_received(struct metrics *metrics, size_t bytes);
void metrics_sent(struct metrics *metrics, size_t bytes);
/* Returns the bytes of all messages that were received and sent. */
void metrics_bytes(struct metrics *metrics, uint64_t *received, uint64_t *sent);

/* Numbers of the server that other files count. */
struct metrics_gauges {
    uint64_t cursors, transactions;
};

/* Appends all metrics as text. */
void metrics_write(struct server *server, const struct metrics_gauges *gauges, struct buffer *out);

/* ---- metrics_port.c --------------------------------------------------------------------------- */

/* `where`: "PORT" or "ADDRESS:PORT"; 0: any port that is free. INVALID: it is none, or not of the loopback; IO: the port is
 * taken. */
truce_status metrics_listen(struct server *server, const char *where, struct metrics_port **made,
                            bson_error_t *error);
/* "http://127.0.0.1:9216/metrics", as long as the port is. */
const char *metrics_where(const struct metrics_port *port);
/* Returns when nobody reads any more; NULL: nothing. */
void metrics_close(struct metrics_port *port);

#endif
