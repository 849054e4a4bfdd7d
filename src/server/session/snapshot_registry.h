#ifndef TRUCE_SERVER_SESSION_SNAPSHOT_REGISTRY_H
#define TRUCE_SERVER_SESSION_SNAPSHOT_REGISTRY_H

/*
 * Snapshots of the store that clients read several times, by their time:
 * readConcern {level: "snapshot", atClusterTime}.
 *
 *     a read without a time    ->   opens a new snapshot, and the reply has its time
 *     a read with that time    ->   reads the same snapshot, from any session
 *
 * Invariants:
 *  1. No two snapshots have the same time, also across restarts (cluster_time.c). A snapshot
 *     contains every change that was on the disk before its time was given.
 *  2. A snapshot that a call or a cursor uses is not closed.
 *  3. At most TRUCE_SERVER_SNAPSHOTS_MAX snapshots are registered, each for the window. A further
 *     one evicts the least recently used one that is not in use, or fails with LIMIT.
 */
#include <stdint.h>

#include "truce/store.h"

struct server;
struct snapshot_registry;

struct registered_snapshot {
    /* The cluster time (server_tick). */
    uint64_t time;
    /* The store as of this time. */
    truce_store *view;
    struct registered_snapshot *next;
    /* The number of calls and cursors that use the snapshot. */
    int users;
    /* The number of the last use, for eviction. */
    uint64_t used;
    /* When the snapshot was taken (monotonic). */
    int64_t since_ns;
    /* The snapshot can no longer be found. Its last user closes it. */
    bool forgotten;
};

/* Creates the registry. If `window_ms` is 0, the window is TRUCE_SERVER_SNAPSHOT_MS. */
struct snapshot_registry *snapshot_registry_new(struct server *server, int64_t window_ms);
/* Frees the registry. No snapshot may be in use. */
void snapshot_registry_free(struct snapshot_registry *registry);

/* Finds the snapshot of that time, or opens a new one for time 0, and adds a user to it. Fails with
 * 239 if the time is older than the window, and with 246 if the snapshot was evicted or never
 * existed. Fails with 72 for a time in the future, and with LIMIT if a new snapshot has no room. */
truce_status snapshot_registry_take(struct snapshot_registry *registry, uint64_t time,
                                    struct registered_snapshot **snapshot, bson_error_t *error);
/* Adds a user to a snapshot that is in use. */
void snapshot_registry_hold(struct snapshot_registry *registry,
                            struct registered_snapshot *snapshot);
/* Removes a user. The last user of a snapshot that can no longer be found closes it. */
void snapshot_registry_release(struct snapshot_registry *registry,
                               struct registered_snapshot *snapshot);
/* Converts EXPIRED of a read at a snapshot to error 239: the store has closed the snapshot. */
truce_status snapshot_registry_status(truce_status status, bson_error_t *error);
/* Removes snapshots that are older than the window. The last user of a snapshot in use closes it. */
void snapshot_registry_expire(struct snapshot_registry *registry);

#endif
