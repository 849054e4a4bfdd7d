#ifndef TRUCE_COMPACT_H
#define TRUCE_COMPACT_H

/*
 * Giving space back while a store is in use.
 *
 * A file does not become smaller by itself when documents are removed: the space is used again for others. This call
 * puts what stands on half-empty pages together, moves pages from the end of the file to free places, and cuts the
 * end off. It works in small steps, each a commit of its own that holds the lock of the writers for some milliseconds;
 * others read and write in between. No document changes, and nothing is lost wherever it ends: by its
 * deadline, truce_interrupt, kill -9 or a power cut. It can be called again at any time.
 *
 * A cursor or snapshot that is open keeps the pages that it may read (truce/snapshot.h). As long as one does, the file
 * stays as long as it was; the report says so.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

/* `done` of about `total` pages were looked at or moved. */
typedef void truce_compact_progress_function(int64_t done, int64_t total, void *arg);

typedef struct truce_compact_options {
    uint32_t deadline_ms;                      /* 0: as long as it takes */
    truce_compact_progress_function *progress; /* may be NULL */
    void *arg;
    uint64_t reserved[4]; /* zeros */
} truce_compact_options;

typedef struct truce_compact_report {
    int64_t bytes_before, bytes_after; /* of the file */
    int64_t bytes_free;                /* of `bytes_after`, what is not in use */
    int64_t
        reads; /* cursors and snapshots of handles that keep the file from being cut, of all processes; */
    int64_t process;      /* that of the oldest; 0: none does */
    bool complete;        /* all that could be given back is; else call again later */
    uint64_t reserved[4]; /* zeros */
} truce_compact_report;

/* OK: see report->complete. TIMEOUT: the deadline passed, or it was interrupted. INVALID: the store is read-only or a
 * snapshot, is no file, or its file was made by an older truce, whose pages cannot be moved: truce_copy
 * makes a new one of it. CORRUPT: the file is damaged. The report is filled as far as it got, also on failure. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_compact(truce_store *store,
                                                       const truce_compact_options *options,
                                                       truce_compact_report *report,
                                                       bson_error_t *error);

TRUCE_END_DECLS

#endif
