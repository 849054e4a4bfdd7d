#ifndef TRUCE_SERVER_ADMIN_SERVER_LOG_H
#define TRUCE_SERVER_ADMIN_SERVER_LOG_H

/*
 * The log of the server: a line for each event, as text or as JSON.
 *
 *     2026-03-01T09:00:00.000Z info network conn3 connection accepted from=127.0.0.1:50412 open=1
 *     {"time": "2026-03-01T09:00:00.000Z", "level": "info", "component": "network",
 *      "connection": 3, "message": "connection accepted",
 *      "fields": {"from": "127.0.0.1:50412", "open": 1}}                            (in one line)
 *
 * The message is a constant of the program; outside input is only in the fields.
 *
 * Invariants:
 *  1. The log contains no secrets: no passwords, payloads of logins, documents, or filters. The
 *     log has only the name and the collection of a command.
 *  2. A line is valid UTF-8 and has at most LOG_LINE_MAX bytes with its end. The string of a
 *     field is cut to LOG_TEXT_MAX bytes, with "..." after it. Control characters are escaped.
 *  3. No caller waits for the reader of the log. A line that cannot be written at once is dropped
 *     and counted, and the next line that can be written is preceded by one with the count. A
 *     reader that closes its pipe does not end the process, which ignores SIGPIPE.
 */
#include <stdbool.h>
#include <stdint.h>

#include <bson/bson.h>

#include "base/status.h"
#include "truce/hooks.h"

#define LOG_LINE_MAX 4096 /* PIPE_BUF: a pipe accepts a line of this size as a whole. */
#define LOG_TEXT_MAX 500
/* The maximum number of lines that getLog returns, the same as in MongoDB. */
#define LOG_KEPT_MAX 1024

enum log_part {
    /* The start and the stop of the server. */
    LOG_SERVER,
    /* Connections. */
    LOG_NETWORK,
    /* Logins. */
    LOG_ACCESS,
    /* Slow commands. */
    LOG_COMMAND,
    /* Results and failures of the sweep. */
    LOG_SWEEP,
    /* Messages of the store. */
    LOG_STORE,
};

struct log;

struct log_options {
    /* The descriptor that the lines are written to. Borrowed. */
    int file;
    /* Write JSON instead of text. */
    bool json;
    /* Do not log that connections open and close. */
    bool quiet;
};

struct log *log_new(const struct log_options *options);
/* Frees the log. NULL is allowed. */
void log_free(struct log *log);

/* Writes further lines to the end of the file of that name instead of the descriptor. With
 * `renames`, log_rotate renames the file; otherwise it only opens it again. The file must be a
 * regular file with one name; symbolic links are refused. Its first 512 bytes must have no zero
 * byte, so that a store is never overwritten. */
truce_status log_to_file(struct log *log, const char *path, bool renames, bson_error_t *error);
/* Starts a new file. If it fails, lines continue to go to the old file. Does nothing for NULL or
 * a log without a file of its own. */
truce_status log_rotate(struct log *log, bson_error_t *error);

/* Writes a line, on any thread. `connection` is 0 if the event belongs to no connection. `fields`
 * has numbers, booleans, and at most six strings, or is NULL. If `log` is NULL, does nothing. */
void log_write(struct log *log, truce_log_level level, enum log_part part, int32_t connection,
               const char *message, const bson_t *fields);
/* Appends the last LOG_KEPT_MAX lines, without their ends, as strings. Sets `*all` to the number of
 * all lines, which is 0 if `log` is NULL. */
void log_append(struct log *log, bson_t *array, int64_t *all);

/* Writes a message of a store to the log: the log hook of the store, whose argument is `log`. */
void log_write_store(truce_log_level level, const char *message, void *log);

#endif
