#ifndef TRUCE_CLI_QUEUE_WORK_ANSWER_H
#define TRUCE_CLI_QUEUE_WORK_ANSWER_H

/* A line that a program of `truce work --keep-open` writes. */
#include "bson/json.h"

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

#endif
