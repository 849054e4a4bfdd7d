#ifndef TRUCE_CLI_SET_SET_WORKER_H
#define TRUCE_CLI_SET_SET_WORKER_H

/*
 * The progress of `truce set apply`, kept in the store it writes to: one document for each chunk of
 * the input that is done, in `truce_jobs`:
 *
 *     {_id: {job: "students.classes /data/messages.ndjson ...", chunk: 3}, check: Binary,
 *      lines: 16384, applied: 15002, stale: 800, duplicate: 560, quarantined: 0,
 *      rejected: [{line: 50017, reason: "...", text: "..."}]}
 *
 * `check` is a hash of the chunk's bytes: a chunk is skipped only if the input still is what was
 * done. The rejected lines stand in the same document, so that they are kept exactly once, whatever
 * is killed when; the reject file is written from them at the end.
 */
#include "cli/core/cli.h"

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

/* `format` is what else the outcome depends on: the options that say how lines are read. */
void job_init(struct job *job, truce_store *store, const char *set, const char *path,
              const char *format);
void job_release(struct job *job);

/* Was this very chunk done? Then `counts` is what it came to. */
truce_status job_find(struct job *job, int64_t chunk, const struct chunk_check *check, bool *done,
                      struct chunk_counts *counts, bson_error_t *error);

/* `rejected`: an array of documents with `line`, in any order. */
truce_status job_done(struct job *job, int64_t chunk, const struct chunk_check *check,
                      const struct chunk_counts *counts, const bson_t *rejected,
                      bson_error_t *error);

/* Adds {line, reason, text} to an array under construction. */
void reject_append(bson_t *array, uint32_t *index, int64_t line, const char *reason,
                   const char *text, size_t size);

/* Writes the reject file anew, from chunks 0 to count - 1, in the order of lines; it
 * appears when it is whole. */
truce_status job_write_rejects(struct job *job, int64_t count, const char *path,
                               bson_error_t *error);

#endif
