#ifndef TRUCE_SNAPSHOT_H
#define TRUCE_SNAPSHOT_H

/*
 * Snapshots: consistent reads of a store.
 *
 * Each find, count, distinct, and aggregate reads one snapshot by itself, with a cursor of any
 * size. It never sees the writes of its own statement. An explicit snapshot serves several reads: a
 * report made of many queries, or an export of many collections.
 *
 * The view is a store. All calls that read, and all reading functions of the patterns, accept it.
 * Each of these reads (find, count, distinct, aggregate, truce_read_many) shows a commit completely
 * or not at all. A document that a commit holds is shown as after the commit if the commit was
 * decided at the snapshot, otherwise as before. Calls that write fail with TRUCE_INVALID and name
 * the call; so does truce_wait, because a view never changes. Several threads may use a view; their
 * calls are serialized. Close it like a store, before the store that it belongs to.
 *
 * Cost. On `file:`, a snapshot pins the log: later writes remain in the log file, which grows in
 * the meantime. A snapshot therefore has two limits, its age and the log bytes written since it
 * began. Past either limit it ends: its reads fail with TRUCE_EXPIRED, and writers are no longer
 * affected. It also ends if the log is longer than twice its maximum of bytes (and than 256 MiB)
 * while no snapshot is unlimited. None of these conditions ends a snapshot before something is
 * written. The same limits apply to each cursor that is read in several parts
 * (truce_store_options). `truce doctor` reports which process pins the log.
 *
 * A store has at most 160 open snapshots, and the next one is refused. It has at most 128 such
 * cursors, or up to 1,200 if the process may open 9,600 files. If another cursor begins, the one
 * that was unused for the longest ends: its next read fails with TRUCE_EXPIRED. If all were used
 * within the last 10 seconds, the new read fails with TRUCE_LIMIT.
 *
 * On `memory:`, a snapshot keeps replaced documents, without a limit. On `mongodb://`, it requires
 * read concern "snapshot" (MongoDB 5.0, replica set or sharded cluster). The server's own limit
 * applies (minSnapshotHistoryWindowInSeconds, five minutes); past it, reads fail with
 * TRUCE_EXPIRED, too.
 *
 * A guarded report belongs to the documents that it depends on. In a commit, take these steps in
 * this order:
 *   - read the documents that the report must not be older than (truce_commit_read);
 *   - take the snapshot and make the report from it;
 *   - write the report by the commit.
 *
 * If the commit is applied, these documents were unchanged from before the snapshot until after it.
 * In another order, there is no such guarantee.
 *
 * Multiversion reads: Bernstein and Goodman, Multiversion Concurrency Control, 1983.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_snapshot_options {
    /* The maximum age. 0 means the store's setting, by default 600,000. */
    uint32_t age_ms;
    /* The maximum of log bytes written since the snapshot began. 0 means the store's setting, by
     * default 1 GiB. */
    uint64_t log_bytes;
    /* No limits, for work that must complete, such as a backup. */
    bool unlimited;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_snapshot_options;

/* Takes a snapshot. It contains every write that was acknowledged before the call. The snapshot of
 * a view is another view of the same state. If the store does not support snapshots, the call fails
 * with TRUCE_INVALID. If 160 snapshots are open, the call fails with TRUCE_LIMIT. On failure,
 * `*view` is NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_snapshot(truce_store *store,
                                                        const truce_snapshot_options *options,
                                                        truce_store **view, bson_error_t *error);

typedef struct truce_snapshot_state {
    int64_t age_ms;
    /* Log bytes that any process has written since the snapshot began, and which the snapshot pins.
     * 0 means that the store is not a file. */
    uint64_t log_bytes;
    /* The snapshot has ended: its reads fail with TRUCE_EXPIRED. */
    bool ended;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_snapshot_state;

/* Returns the state of a snapshot. If `view` is not a view, the call fails with TRUCE_INVALID. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_snapshot_inspect(truce_store *view,
                                                                truce_snapshot_state *state,
                                                                bson_error_t *error);

TRUCE_END_DECLS

#endif
