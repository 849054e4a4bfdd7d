#ifndef TRUCE_COMPACT_H
#define TRUCE_COMPACT_H

/*
 * Compaction: returning unused space while the file is in use.
 *
 * Removing documents does not make a file smaller: the space is reused for other documents. This
 * call merges half-empty pages, moves pages from the end of the file to free ones, and truncates
 * the file. It works in small steps. Each step is a commit of its own that holds the writer lock
 * for some milliseconds; other calls read and write in between.
 *
 * No document changes. Nothing is lost wherever the call ends: by its deadline, truce_interrupt,
 * kill -9, or a power cut. Call it again at any time.
 *
 * An open cursor or snapshot keeps the pages that it may read (truce/snapshot.h). While one does,
 * the file cannot become smaller, and the report says so.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

/* Receives the progress: `done` of about `total` pages were examined or moved. */
typedef void truce_compact_progress_function(int64_t done, int64_t total, void *arg);

typedef struct truce_compact_options {
    /* The deadline of the call. 0 means no deadline. */
    uint32_t deadline_ms;
    /* May be NULL. */
    truce_compact_progress_function *progress;
    void *arg;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_compact_options;

typedef struct truce_compact_report {
    /* The size of the file. */
    int64_t bytes_before, bytes_after;
    /* The part of `bytes_after` that is not in use. */
    int64_t bytes_free;
    /* Open cursors and snapshots, of all processes, that keep the file from being truncated. */
    int64_t reads;
    /* The process of the oldest of these. 0 means none. */
    int64_t process;
    /* All unused space was returned. If false, call again later. */
    bool complete;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_compact_report;

/*
 * Compacts the store. With TRUCE_OK, report->complete says whether nothing is left to do. The
 * report is filled as far as the call got, also on failure.
 *
 *     TRUCE_TIMEOUT   the deadline passed, or the call was interrupted
 *     TRUCE_INVALID   the store is read-only, a snapshot, or not a file; or an older truce made the
 *                     file, and its pages cannot be moved: make a new file with truce_copy
 *     TRUCE_CORRUPT   the file is damaged
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_compact(truce_store *store,
                                                       const truce_compact_options *options,
                                                       truce_compact_report *report,
                                                       bson_error_t *error);

TRUCE_END_DECLS

#endif
