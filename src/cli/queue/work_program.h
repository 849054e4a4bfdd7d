#ifndef TRUCE_CLI_QUEUE_WORK_PROGRAM_H
#define TRUCE_CLI_QUEUE_WORK_PROGRAM_H

/* A line that a program of `truce work --keep-open` writes. */
#include "base/buffer.h"
#include "bson/json.h"
#include "cli/queue/work.h"

enum answer_kind { ANSWER_DONE, ANSWER_FAIL, ANSWER_SNOOZE, ANSWER_DISCARD, ANSWER_PROGRESS };

/* Borrowed from the reader, until it reads again. */
struct answer {
    enum answer_kind kind;
    bson_oid_t job;
    int64_t epoch;
    int64_t delay_ms; /* -1: none was said */
    bson_t result;    /* of ANSWER_DONE and ANSWER_PROGRESS; empty: none */
    bson_t changes;   /* an array, of ANSWER_DONE; empty: none */
    const char *error;
};

/* INVALID: what the line says is none; the sentence says why. Nothing is to be released. */
truce_status work_answer_read(struct json_reader *reader, const char *line, size_t size,
                              struct answer *answer, bson_error_t *error);

/* A program that stays: lines to it, lines from it, and its end. One thread has it. */

struct work_child {
    pid_t pid;        /* 0: there is none */
    int in, out, err; /* its standard input, output and error; -1: closed */
    struct buffer unsent, unread;
    size_t sent, taken;               /* of these so much is over */
    char errors[WORK_REASON_MAX + 1]; /* the end of what it wrote to standard error */
    size_t errors_length;
    int state; /* as waitpid says it, once it has ended */
    int64_t silent_ns,
        told_ns; /* when it closed its output, or its input; when it got SIGTERM; 0: it did not */
    bool killed;
};

/* 0, or errno. */
int work_child_start(struct work_child *child, const struct work *work);
/* Is sent as it is read; the text ends with a newline. */
void work_child_send(struct work_child *child, const struct buffer *text);
/* No more lines come: it may end. */
void work_child_close_in(struct work_child *child);
/* Sends and reads some of what there is; waits for that for so long. false: there was nothing. */
bool work_child_move(struct work_child *child, int timeout_ms);
/* The next line that came, without its end; good until the next call that reads. false: none yet, or *too_long. */
bool work_child_line(struct work_child *child, const char **line, size_t *size, bool *too_long);
/* SIGTERM, the first time; and SIGKILL once the grace after that is over. To its process group. */
void work_child_tell(struct work_child *child, int64_t grace_ms);
/* It has ended; what it wrote may still be read. */
bool work_child_has_ended(struct work_child *child);
/* How it ended, with the end of its standard error; bson_free it. */
char *work_child_end(const struct work_child *child);
/* After its end: nothing of it is left. */
void work_child_forget(struct work_child *child);

#endif
