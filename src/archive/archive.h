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
    /* The segments, sorted by generation and sequence. */
    struct segment_name *names;
    size_t count, room;
};

truce_status truce__archive_list(struct target *target, struct archive_list *list,
                                 bson_error_t *error);
void truce__archive_list_release(struct archive_list *list);

/* Reads a segment, whose data points into `bytes`. If `pages` is NULL, reads no data. Fails with
 * CORRUPT if the segment is damaged or missing. */
truce_status truce__archive_read(struct target *target, const struct segment_name *name,
                                 struct segment_pages *pages, struct buffer *bytes,
                                 struct segment *segment, bson_error_t *error);

/* Removes the segments before the newest complete base that ended at the age `old_ms` of the
 * archive or before (archive_retention.c). `*removed` is their number, also after a failure. */
truce_status truce__archive_remove_old(struct target *target, int64_t old_ms, uint64_t *removed,
                                       bson_error_t *error);

/* Returns the id of a store, which is also the id of its copies. Creates the id if the store has
 * none. Called before an archiver begins; the store stays open until then. */
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
    /* A call to the target has failed and is repeated. */
    ARCHIVE_FAILS,
    /* The target works again. */
    ARCHIVE_WORKS,
    /* The log has exceeded the limit, so the archiver no longer pins it. */
    ARCHIVE_LIMIT,
    /* Old segments were removed. */
    ARCHIVE_REMOVED,
};

typedef void archive_event_function(enum archive_event event, const struct segment_head *head,
                                    const char *text, void *arg);

struct archive_options {
    /* The pause between two reads of the log in milliseconds. */
    int interval_ms;
    /* The maximum bytes of the log that is pinned while the target is not available. */
    int64_t log_limit;
    /* The milliseconds for which any point in time can be restored, or 0 for ever. */
    int64_t keep_ms;
    /* Whether to return as soon as everything is archived. */
    bool once;
    /* A flag that is set to a value other than 0 to end the archiver, or NULL. */
    const atomic_int *stop;
    /* Receives what is archived, for replies that wait for the archive, or NULL. */
    struct archive_sync *sync;
    /* Called for each event, or NULL. */
    archive_event_function *event;
    void *arg;
};

/* Archives the store in the file until `stop`. Fails with LOCKED if another process archives it.
 * Fails with CONFLICT if the archive belongs to another store, or another archiver writes to it.
 * Fails with CORRUPT if the file was replaced or the archive is damaged, and with INVALID if the
 * lock file is not writable. */
truce_status truce__archive_run(const char *path, const uint8_t store[SEGMENT_STORE_BYTES],
                                struct target *target, const struct archive_options *options,
                                bson_error_t *error);

/* ---- restoring (archive_restore.c) ---------------------------------------------------------- */

struct restore_options {
    /* The store is restored as it was after the last commit whose time is not later, in
     * milliseconds since 1970. INT64_MAX restores the last commit. */
    int64_t at_ms;
    /* The number of the last commit to restore, or 0 if `at_ms` determines it. */
    uint64_t at_commit;
    /* Whether to read and verify the segments without writing a file. */
    bool dry_run;
    /* Called with the number of bytes that were read, or NULL. */
    void (*progress)(int64_t done, void *arg);
    void *arg;
    /* A flag that is set to a value other than 0 to end the restore, or NULL. */
    const atomic_int *stop;
};

struct restore_report {
    uint32_t generation;
    /* A later generation without a complete base, which may have later commits, or 0 if there is
     * none. Set only if the last commit is restored. */
    uint32_t newer_generation;
    /* The last commit that was restored, and its time. If the archive has no commit of the
     * generation, the time is that of the base. */
    uint64_t commit;
    int64_t commit_ms;
    /* The commit after it and its time, or 0 if the archive has none. */
    uint64_t next_commit;
    int64_t next_ms;
    /* The last commit of the generation if its time is not after the requested time, although the
     * time of `next_commit` is, because the clock was set back. Otherwise 0. */
    uint64_t back_commit;
    /* The size of the new file. */
    int64_t bytes;
    /* The number and the bytes of the segments that were read. */
    uint64_t segments, bytes_read;
};

/* Writes the store as it was after a commit into a new file. The file appears complete under its
 * name or not at all. Fails with NOT_FOUND if the archive cannot restore this commit or time, and
 * with INVALID if the file exists. Fails with CORRUPT if a segment is damaged or missing, and with
 * TIMEOUT if `stop` is set. */
truce_status truce__archive_restore(struct target *target, const char *path,
                                    const struct restore_options *options,
                                    struct restore_report *report, bson_error_t *error);

struct verify_report {
    uint32_t generations;
    uint64_t segments, bytes, bases;
    /* The times of the first and the last commit that can be restored. first_ms is 0 if no commit
     * can be restored. */
    int64_t first_ms, last_ms;
    uint64_t first_commit, last_commit;
    /* The number of faults. Successive missing segments are one fault. */
    uint64_t faults;
};

/* Reads every segment and verifies it and the chain. `fault` receives each fault. */
truce_status truce__archive_verify(struct target *target,
                                   void (*fault)(const char *text, void *arg), void *arg,
                                   struct verify_report *report, bson_error_t *error);

#endif
