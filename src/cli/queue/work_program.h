#ifndef TRUCE_CLI_QUEUE_WORK_PROGRAM_H
#define TRUCE_CLI_QUEUE_WORK_PROGRAM_H

/* A line from a program of `truce work --keep-open`. */
#include "base/buffer.h"
#include "bson/json.h"
#include "cli/queue/work.h"

enum answer_kind { ANSWER_DONE, ANSWER_FAIL, ANSWER_SNOOZE, ANSWER_DISCARD, ANSWER_PROGRESS };

/* The answer; it borrows from the reader until the next line. */
struct answer {
    enum answer_kind kind;
    bson_oid_t job;
    int64_t epoch;
    int64_t delay_ms; /* -1 if the line has none */
    bson_t result;    /* Of ANSWER_DONE and ANSWER_PROGRESS; may be empty. */
    bson_t changes;   /* An array, of ANSWER_DONE; may be empty. */
    const char *error;
};

/* Reads a line. Fails with INVALID if the line is not a valid answer; the message says why. The
 * result needs no release. */
truce_status work_answer_read(struct json_reader *reader, const char *line, size_t size,
                              struct answer *answer, bson_error_t *error);

/* A program that processes many jobs: the lines to it, the lines from it, and its end. One thread
 * uses it. */

struct work_child {
    /* 0 without one. */
    pid_t pid;
    /* Its standard input, output, and error; -1 if closed. */
    int in, out, err;
    struct buffer unsent, unread;
    /* Numbers of bytes already used. */
    size_t sent, taken;
    /* The end of its standard error. */
    char errors[WORK_REASON_MAX + 1];
    size_t errors_length;
    /* As waitpid returns it, after its end. */
    int state;
    int64_t silent_ns,
        /* When it closed its output or its input, and when it got SIGTERM; 0 if it did not. */
        notified_ns;
    bool killed;
};

/* Starts the program. Returns 0 or errno. */
int work_child_start(struct work_child *child, const struct work *work);
/* Queues text that ends with a newline. */
void work_child_send(struct work_child *child, const struct buffer *text);
/* Closes the program's input, so that it may end. */
void work_child_close_in(struct work_child *child);
/* Sends and reads what is possible; waits for it up to `timeout_ms`. Returns false if nothing was
 * possible. */
bool work_child_move(struct work_child *child, int timeout_ms);
/* Reads the next line without its end, valid until the next read. Returns false if there is no line
 * yet, or the line is too long (*too_long). */
bool work_child_line(struct work_child *child, const char **line, size_t *size, bool *too_long);
/* Sends SIGTERM to its process group the first time, and SIGKILL after the grace time. */
void work_child_signal(struct work_child *child, int64_t grace_ms);
/* Returns true after its end. Its output may still be read. */
bool work_child_has_ended(struct work_child *child);
/* Describes its end, with the end of its standard error. The caller frees the string with
 * bson_free. */
char *work_child_end(const struct work_child *child);
/* Releases everything after its end. */
void work_child_forget(struct work_child *child);

#endif
