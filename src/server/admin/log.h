#ifndef TRUCE_SERVER_ADMIN_LOG_H
#define TRUCE_SERVER_ADMIN_LOG_H

/*
 * The log of the server: a line for each event, as text or as JSON.
 *
 *     2026-03-01T09:00:00.000Z info network conn3 connection accepted from=127.0.0.1:50412 open=1
 *     {"time": "2026-03-01T09:00:00.000Z", "level": "info", "component": "network", "connection": 3,
 *      "message": "connection accepted", "fields": {"from": "127.0.0.1:50412", "open": 1}}     (one line)
 *
 * The message is a constant of the program; whatever comes from outside stands in the fields.
 *
 * Invariants:
 *  1. No secret comes here: no passwords, payloads of logins, documents, filters; of a command its name and its collection.
 *  2. A line is one line, of LOG_LINE_MAX bytes at most with its end, and UTF-8: a text of a field is cut to LOG_TEXT_MAX bytes,
 *     as it is written, and "..." stands behind it; what a terminal would obey is \u and a number.
 *  3. Nobody waits for who reads it: what cannot be written at once is lost, and counted; the next line that can be written
 *     is behind one that tells how many were lost. A reader who has gone away ends nothing. (SIGPIPE is the program's to ignore.)
 */
#include <stdbool.h>
#include <stdint.h>

#include <bson/bson.h>

#include "base/status.h"
#include "truce/hooks.h"

#define LOG_LINE_MAX 4096 /* PIPE_BUF: a pipe takes it whole or not at all */
#define LOG_TEXT_MAX 500
#define LOG_KEPT_MAX 1024 /* lines for getLog, as MongoDB keeps them */

enum log_part {
    LOG_SERVER,  /* it starts and stops */
    LOG_NETWORK, /* connections */
    LOG_ACCESS,  /* logins */
    LOG_COMMAND, /* commands that took long */
    LOG_SWEEP,   /* what the sweep did, and could not do */
    LOG_STORE,   /* what the store tells by itself */
};

struct log;

struct log_options {
    int file;   /* the descriptor; borrowed */
    bool json;  /* else text */
    bool quiet; /* without connections that come and go */
};

struct log *log_new(const struct log_options *options);
void log_free(struct log *log); /* NULL: nothing */

/* From here on lines go to the end of the file of that name (log_file.h), not to the descriptor. `renames`: so it is
 * rotated. */
truce_status log_to_file(struct log *log, const char *path, bool renames, bson_error_t *error);
/* Begins the file anew; if it cannot, lines go on to where they went. A log without a file of its own, or NULL: nothing is done. */
truce_status log_rotate(struct log *log, bson_error_t *error);

/* Any thread. `connection` 0: of none. `fields`: numbers, truth values, and six texts at most; NULL: none. `log` NULL: nothing. */
void log_write(struct log *log, truce_log_level level, enum log_part part, int32_t connection,
               const char *message, const bson_t *fields);
/* The last LOG_KEPT_MAX lines, without their ends, appended as texts; *all is how many there were. `log` NULL: none. */
void log_append(struct log *log, bson_t *array, int64_t *all);

/* For the hooks of a store; `log` is their arg. */
void log_write_store(truce_log_level level, const char *message, void *log);

/*
 * The file that a log is in, and how it is begun anew, as mongod does it:
 *
 *     rename   what was written becomes FILE.2026-03-01T09-00-00 (UTC), and FILE is made anew
 *     reopen   FILE is opened again: somebody else has moved it (logrotate(8))
 *
 * A line is written at the end of whatever is there, whole or not at all.
 */

/* Opens it for appending, and makes it for its owner alone if it is not there; a file, no pipe and no device. INVALID, IO (38). */
truce_status log_file_open(const char *path, int *file, bson_error_t *error);

/* Gives what stands there the name of this moment; what has that name already is left alone, and refused (37). Nothing there: OK. */
truce_status log_file_move(const char *path, int64_t now_ms, bson_error_t *error);

#endif
