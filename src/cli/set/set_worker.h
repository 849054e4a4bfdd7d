#ifndef TRUCE_CLI_SET_SET_WORKER_H
#define TRUCE_CLI_SET_SET_WORKER_H

/*
 * The progress of `truce set apply`, in the store that it writes to. The collection `truce_jobs`
 * has one document for each chunk of the input that is done:
 *
 *     {_id: {job: "students.classes /data/messages.ndjson ...", chunk: 3}, check: Binary,
 *      lines: 16384, applied: 15002, stale: 800, duplicate: 560, quarantined: 0, rejects: 22,
 *      rejected: [{line: 50017, reason: "...", text: "..."}, ...]}
 *
 * `check` is a hash of the chunk's bytes: a chunk is skipped only if the input is unchanged. The
 * rejected lines are in the same document, so each is stored exactly once in spite of crashes. At
 * the end, they are written to the reject file.
 */
#include "cli/core/cli.h"

/* The command of a worker process. */
extern const struct cli_command cli_set_worker;

/* The number of lines in a chunk, and how many of them had each outcome. */
struct chunk_counts {
    int64_t lines, applied, stale, duplicate, quarantined, rejected;
};

struct chunk_check {
    uint64_t a, b;
};

void chunk_check_add(struct chunk_check *check, const char *bytes, size_t size);

struct job {
    truce_store *store;
    char *name;
};

/* Initializes a job. `format` has the options that affect how lines are read. */
void job_init(struct job *job, truce_store *store, const char *set, const char *path,
              const char *format);
void job_release(struct job *job);

/* Sets *done to whether this chunk was applied. If so, fills `counts` with its result. */
truce_status job_find(struct job *job, int64_t chunk, const struct chunk_check *check, bool *done,
                      struct chunk_counts *counts, bson_error_t *error);

/* Records a chunk as done. `rejected` is an array of documents with `line`, in any order. */
truce_status job_done(struct job *job, int64_t chunk, const struct chunk_check *check,
                      const struct chunk_counts *counts, const bson_t *rejected,
                      bson_error_t *error);

/* Appends {line, reason, text} to an array under construction. */
void reject_append(bson_t *array, uint32_t *index, int64_t line, const char *reason,
                   const char *text, size_t size);

/* Writes the reject file again from chunks 0 to count - 1, in the order of lines. The file appears
 * when it is complete. */
truce_status job_write_rejects(struct job *job, int64_t count, const char *path,
                               bson_error_t *error);

#endif
