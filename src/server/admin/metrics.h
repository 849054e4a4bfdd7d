#ifndef TRUCE_SERVER_ADMIN_METRICS_H
#define TRUCE_SERVER_ADMIN_METRICS_H

/*
 * The counters of the server, and a port for Prometheus: GET /metrics, as text (version 0.0.4 of
 * its exposition format).
 *
 * libmicrohttpd serves the port: one thread, few connections, each with a fixed amount of memory
 * and a short idle timeout. A request with a body is refused before the body is read.
 *
 * Invariants:
 *  1. No input of a client becomes a name or a label: commands are those of the table, and errors
 *     are numbers, of which at most METRICS_CODES_MAX are counted separately. Except for queues and
 *     consumers of brokers: at most METRICS_QUEUES_MAX queues and METRICS_CONSUMERS_MAX consumers
 *     have labels, with escaped names (metrics_text.h).
 *  2. Counting costs a few atomic additions and never waits. Reading does not wait for a command,
 *     and counts the jobs of the queues by an index.
 *  3. The port listens on the loopback interface only, as it has no login.
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

/* Counts a command and its duration, whatever its outcome. */
void metrics_ran(struct metrics *metrics, const struct command *command, int64_t ns);
/* Counts the error of a command, or of one statement of a write. */
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

/* ---- metrics_port.c -------------------------------------------------------------------------- */

/* Opens the port at `where`: "PORT" or "ADDRESS:PORT". Port 0 means any free port. Fails with
 * INVALID if `where` has another form or is not a loopback address, and with IO if the port is in
 * use. */
truce_status metrics_listen(struct server *server, const char *where, struct metrics_port **made,
                            bson_error_t *error);
/* Returns "http://127.0.0.1:9216/metrics". It lives as long as the port. */
const char *metrics_where(const struct metrics_port *port);
/* Closes the port after the requests that are in progress. NULL is allowed. */
void metrics_close(struct metrics_port *port);

#endif
