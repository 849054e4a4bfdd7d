#ifndef TRUCE_ARCHIVE_ARCHIVE_H
#define TRUCE_ARCHIVE_ARCHIVE_H

/*
 * The archive of a store: archive, verify, restore. README.md describes the protocol.
 */
#include <stdatomic.h>

#include "archive/archive_segment.h"
#include "archive/archive_sync.h"
#include "archive/archive_target.h"
#include "truce/store.h"

/* ---- the segments of a target (archive_list.c) ---------------------------------------------- */

struct archive_list {
    /* Sorted by generation and sequence. */
    struct segment_name *names;
    size_t count, room;
};

truce_status truce__archive_list(struct target *target, struct archive_list *list,
                                 bson_error_t *error);
void truce__archive_list_release(struct archive_list *list);

/* Reads a segment. Its data points into `bytes`. If `pages` is NULL, reads no data. Fails with
 * CORRUPT if it is damaged or missing. */
truce_status truce__archive_read(struct target *target, const struct segment_name *name,
                                 struct segment_pages *pages, struct buffer *bytes,
                                 struct segment *segment, bson_error_t *error);

/* Removes the segments before the newest complete base whose age is `old_ms` or less
 * (archive_retention.c). `*removed` is their number, also after a failure. */
truce_status truce__archive_remove_old(struct target *target, int64_t old_ms, uint64_t *removed,
                                       bson_error_t *error);

/* Returns the id of a store, which its copies have, too. Creates it if it has none. Called before
 * an archiver begins: the store stays open until then. */
truce_status truce__archive_store_id(truce_store *store, uint8_t id[SEGMENT_STORE_BYTES],
                                     bson_error_t *error);

/* ---- archiving (archiver.c) ----------------------------------------------------------------- */

enum archive_event {
    /* The archiver continues the archive, or begins a new one. */
    ARCHIVE_CONTINUES,
    /* The log does not continue the archive: a new generation begins. */
    ARCHIVE_GENERATION,
    /* A base is complete. */
    ARCHIVE_BASE,
    /* A call to the target failed; it is repeated. */
    ARCHIVE_FAILS,
    /* The target works again. */
    ARCHIVE_WORKS,
    /* The log exceeded the limit and is not pinned any more. */
    ARCHIVE_LIMIT,
    /* Old segments were removed. */
    ARCHIVE_REMOVED,
};

typedef void archive_event_function(enum archive_event event, const struct segment_head *head,
                                    const char *text, void *arg);

struct archive_options {
    /* The pause between two reads of the log. */
    int interval_ms;
    /* The maximum size of the log that is pinned while the target is not available. */
    int64_t log_limit;
    /* How long a point in time can be restored; 0 means forever. */
    int64_t keep_ms;
    /* Returns when everything is archived. */
    bool once;
    /* Set to a value other than 0 to end; may be NULL. */
    const atomic_int *stop;
    /* Receives what is archived, for answers that wait for it; may be NULL. */
    struct archive_sync *sync;
    /* May be NULL. */
    archive_event_function *event;
    void *arg;
};

/* Archives the store in the file until `stop`. Fails with LOCKED if another process archives it,
 * with CORRUPT if the file was replaced, or the archive is damaged or belongs to another store. */
truce_status truce__archive_run(const char *path, const uint8_t store[SEGMENT_STORE_BYTES],
                                struct target *target, const struct archive_options *options,
                                bson_error_t *error);

/* ---- restoring (archive_restore.c) ---------------------------------------------------------- */

struct restore_options {
    /* The last commit whose time is not later; INT64_MAX: the last commit. */
    int64_t at_ms;
    /* The number of the last commit, or 0 if it is not given. */
    uint64_t at_commit;
    /* Reads and verifies, and writes nothing. */
    bool dry_run;
    /* May be NULL. Receives the bytes that were read. */
    void (*progress)(int64_t done, void *arg);
    void *arg;
    /* Set to a value other than 0 to end; may be NULL. */
    const atomic_int *stop;
};

struct restore_report {
    uint32_t generation;
    /* The last commit was asked for, but this generation, which has no complete base, may have
     * later ones, or 0 if none exists. */
    uint32_t newer_generation;
    /* The commit that was restored, and its time. If the archive has no commit of the generation,
     * it is the time of the base. */
    uint64_t commit;
    int64_t commit_ms;
    /* The commit after it, or 0 if the archive has none. */
    uint64_t next_commit;
    int64_t next_ms;
    /* The last commit of the generation, if its time is not after the wanted one although that of
     * `next_commit` is: the clock went back; 0 if it did not. */
    uint64_t back_commit;
    int64_t bytes;
    uint64_t segments, bytes_read;
};

/* Writes the store as it was after a commit into a new file. The file appears complete under its
 * name or not at all. Fails with NOT_FOUND if the archive cannot restore this commit or time; with
 * INVALID if the file exists; with CORRUPT if a segment is damaged or missing. */
truce_status truce__archive_restore(struct target *target, const char *path,
                                    const struct restore_options *options,
                                    struct restore_report *report, bson_error_t *error);

struct verify_report {
    uint32_t generations;
    uint64_t segments, bytes, bases;
    /* The first and last commit that can be restored; first_ms 0: none. */
    int64_t first_ms, last_ms;
    uint64_t first_commit, last_commit;
    /* Segments that are damaged or missing. */
    uint64_t faults;
};

/* Reads every segment and verifies it and the chain. `fault` receives each fault. */
truce_status truce__archive_verify(struct target *target,
                                   void (*fault)(const char *text, void *arg), void *arg,
                                   struct verify_report *report, bson_error_t *error);

#endif
