#ifndef TRUCE_CLI_QUEUE_WORK_PROGRAM_H
#define TRUCE_CLI_QUEUE_WORK_PROGRAM_H

/* Lines and child processes of `truce work`. */
#include "base/buffer.h"
#include "bson/json.h"
#include "cli/queue/work.h"

enum answer_kind { ANSWER_DONE, ANSWER_FAIL, ANSWER_SNOOZE, ANSWER_DISCARD, ANSWER_PROGRESS };

/* The answer; it borrows from the reader until the next line. */
struct answer {
    enum answer_kind kind;
    bson_oid_t job;
    int64_t epoch;
    /* -1 if the line has no delay. */
    int64_t delay_ms;
    /* For ANSWER_DONE and ANSWER_PROGRESS. May be empty. */
    bson_t result;
    /* For ANSWER_DONE: an array, which may be empty. */
    bson_t changes;
    const char *error;
};

/* Reads a line. Fails with INVALID if the line is not a valid answer; the message says why. The
 * result needs no release. */
truce_status work_answer_read(struct json_reader *reader, const char *line, size_t size,
                              struct answer *answer, bson_error_t *error);

/* A program that processes many jobs: the lines to it, the lines from it, and its end. One thread
 * uses it. */

struct work_child {
    /* The process, or 0 if none is running. */
    pid_t pid;
    /* The pipes to its standard input, output, and error, or -1 if they are closed. */
    int in, out, err;
    struct buffer unsent, unread;
    /* The number of bytes of the buffers that were sent, and that were read as lines. */
    size_t sent, taken;
    /* The end of its standard error, for the reason of a failure. */
    char errors[WORK_REASON_MAX + 1];
    size_t errors_length;
    /* After its end: the state that waitpid returned. */
    int state;
    /* The time when it closed its output or its input, and when it got SIGTERM (monotonic), or
     * 0. */
    int64_t silent_ns, notified_ns;
    bool killed;
};

/* Starts the program. Returns 0 or errno. */
int work_child_start(struct work_child *child, const struct work *work);
/* Queues text that ends with a newline. */
void work_child_send(struct work_child *child, const struct buffer *text);
/* Closes the program's input, so that it may end. */
void work_child_close_in(struct work_child *child);
/* Waits for the pipes up to `timeout_ms`. Sends as many bytes as the program's input accepts, and
 * reads once from each output that is ready. Returns false if no pipe was ready. */
bool work_child_move(struct work_child *child, int timeout_ms);
/* Reads the next line without its end, valid until the next read. Returns false if there is no line
 * yet, or the line is too long (*too_long). */
bool work_child_line(struct work_child *child, const char **line, size_t *size, bool *too_long);
/* Sends SIGTERM to its process group the first time, and SIGKILL after the grace time. */
void work_child_signal(struct work_child *child, int64_t grace_ms);
/* Returns whether the program has ended. If so, kills the processes that it left in its group. Its
 * output may still be read. */
bool work_child_has_ended(struct work_child *child);
/* Describes the end of the program, with the last bytes of its standard error. The caller frees the
 * string with bson_free. */
char *work_child_end(const struct work_child *child);
/* Closes the pipes and frees the buffers after the end of the program, or after a failed start. */
void work_child_forget(struct work_child *child);

#endif
