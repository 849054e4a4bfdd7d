#ifndef TRUCE_SNAPSHOT_H
#define TRUCE_SNAPSHOT_H

/*
 * A store as it was in one moment.
 *
 * Each find, count, distinct and aggregate of a store shows one moment by itself, cursors of any size included, and
 * never what its own statement writes. A snapshot is for several of them: a report made of many reads, an export of
 * many collections.
 *
 * The view is a store, on which every reading call and every reading function of the patterns works. Every reading call
 * (find, count, distinct, aggregate, truce_read_many) shows each commit wholly or not at all: a document that a commit holds
 * is shown as it is after the commit if that was decided in the moment, else as it was before. Calls that write are refused by name (INVALID), and
 * so is truce_wait: nothing will change. It may be used by several threads, which take turns, and is closed
 * as a store is, before the store that it is of.
 *
 * What a snapshot costs. On `file:` it pins the log: what is written after it began stays in the log beside the file,
 * which grows meanwhile. So it has two maxima, of its age and of what was written since. Past one of them it ends:
 * its reads answer EXPIRED, and writers go on as if it had never been. As long as nothing is written, nothing ends
 * it. The same holds for each cursor that is read in several parts (truce_store_options). `truce doctor` says who pins
 * what. On `memory:` a snapshot holds on to documents that were replaced, without a maximum. On `mongodb://` it needs
 * read concern "snapshot" (MongoDB 5.0, replica set or sharded), and the server's own maximum counts
 * (minSnapshotHistoryWindowInSeconds, five minutes), after which it answers EXPIRED, too.
 *
 * A guarded report: in a commit, read what the report must not be older than (truce_commit_read), THEN take the
 * snapshot, make the report of it, and write it by the commit. If that is applied, what was read stood unchanged from
 * before the snapshot until after it: the report belongs to it. The other way round it may not.
 *
 * Multiversion reads: Bernstein and Goodman, Multiversion Concurrency Control, 1983.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_snapshot_options {
    uint32_t age_ms;      /* 0: as the store says, by default 600,000 */
    uint64_t log_bytes;   /* that are written since; 0: as the store says, by default 1 GiB */
    bool unlimited;       /* neither maximum: for what must be brought to its end, as a backup */
    uint64_t reserved[4]; /* zeros */
} truce_snapshot_options;

/* Everything that was acknowledged before the call is in it. Of a view: another of the same moment. INVALID: the store
 * cannot; LIMIT: 128 cursors and snapshots without a maximum are open. `*view` is NULL on failure. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_snapshot(truce_store *store,
                                                        const truce_snapshot_options *options,
                                                        truce_store **view, bson_error_t *error);

typedef struct truce_snapshot_state {
    int64_t age_ms;
    uint64_t log_bytes; /* written by anybody since it began, and pinned by it; not on a file: 0 */
    bool ended;         /* it reads EXPIRED */
    uint64_t reserved[4]; /* zeros */
} truce_snapshot_state;

/* INVALID: it is no view. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_snapshot_look(truce_store *view,
                                                             truce_snapshot_state *state,
                                                             bson_error_t *error);

TRUCE_END_DECLS

#endif
