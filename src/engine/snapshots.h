#ifndef TRUCE_ENGINE_SNAPSHOTS_H
#define TRUCE_ENGINE_SNAPSHOTS_H

/*
 * Long reads: a snapshot that is kept between the calls of its reader, on a connection of its own.
 *
 * A kept snapshot pins the log: everything that is written after it began stays in the log, which
 * grows. Therefore a snapshot has a maximum age and a maximum of bytes written since it began, and
 * is ended when it exceeds one of them. It is also ended if the log becomes too long, or if it is
 * that of a cursor, too many cursors are open, and it was unused for the longest (snapshots.c).
 *
 * On optimistic read-only transactions and their price: Reed, Naming and Synchronization in a
 * Decentralized Computer System, 1978.
 */
#include "engine/reader_pool.h"
#include "engine/storage/snapshot_pins.h"

struct snapshots;

/* The limits after which a kept snapshot expires. */
struct snapshot_limits {
    /* The maximum age in milliseconds, or 0 for the default. A snapshot does not expire if nothing
     * was written since it began. */
    int64_t age_ms;
    /* The maximum number of bytes written to the log since the beginning, or 0 for the default. */
    uint64_t log;
    /* The snapshot never expires, and the limits above are ignored. */
    bool unlimited;
};

struct snapshot {
    struct snapshots *all;
    /* The neighbors in the list, which has the order in which the snapshots began. */
    struct snapshot *next, **link;
    /* Guarded by the mutex of the list. */
    unsigned references;
    struct snapshot_limits limits;
    /* It is a view, and not the snapshot of a cursor. */
    bool view;
    /* It has limits of its own, which are not the defaults. */
    bool own_limits;
    /* The time at which the snapshot began: monotonic, and by the wall clock. */
    int64_t since_ns, since_ms;
    /* The value of truce__pins_log when the snapshot began. */
    uint64_t log_at;

    /* Guards the fields below. */
    pthread_mutex_t mutex;
    /* The time at which the snapshot was last used (monotonic). */
    int64_t used_ns;
    /* The reader, which has no connection after the snapshot was ended. */
    struct reader reader;
    /* The slot of the pool from which the connection came, and to which it returns if the slot is
     * free and has no connection. */
    struct reader *home;
    /* The reason why the snapshot was ended, which may be in `reason`, or "" if its owner ended
     * it. */
    const char *why;
    char reason[100];
};

struct snapshots {
    struct readers *readers;
    /* The default limits. */
    struct snapshot_limits limits;
    /* The maximum number of cursors. */
    unsigned cursors_most;
    struct pins pins;
    /* Guards the list. Locked before the mutex of a snapshot. */
    pthread_mutex_t mutex;
    /* Signaled when the thread is asleep and a snapshot begins or a connection may rest, and when
     * the thread must end. */
    pthread_cond_t change;
    /* The snapshots that were not released yet, the oldest one first, also those that were ended.
     * `end` is the pointer that the next one is stored in. */
    struct snapshot *first, **end;
    /* The number of snapshots in the list, of the views in it, and of those that never expire. */
    unsigned count, views, unlimited;
    /* The time of the last message about an ended snapshot (monotonic, 0 before the first one), and
     * the number of snapshots that ended without a message since then. */
    atomic_llong logged_ns;
    atomic_uint unlogged;
    /* The state of the thread that ends expired snapshots. */
    bool running, asleep, stop;
    pthread_t thread;
};

/* Initializes the registry. `readers` and `lock` belong to the caller. The limits are the defaults
 * of snapshots; a limit of 0 means that of base/limits.h. */
void truce__snapshots_init(struct snapshots *snapshots, struct readers *readers, struct lock *lock,
                           const struct snapshot_limits *limits);
/* Ends the thread and releases the registry. Called when no snapshot is kept any more. */
void truce__snapshots_release(struct snapshots *snapshots);

/* Makes the thread call truce__readers_tick until no more connections rest. */
void truce__snapshots_wake(struct snapshots *snapshots);

/* Returns whether fewer snapshots than half of TRUCE_CURSORS_LEAST are not released yet, including
 * those that were ended. */
bool truce__snapshots_room(struct snapshots *snapshots);

/* Keeps the snapshot that the reader is in, and frees the slot of the pool. `limits` are those of a
 * view; NULL means that the snapshot is that of a cursor, which has the default limits. Fails with
 * LIMIT if too many views are kept, or too many cursors and none of them can be ended; the reader is
 * then unchanged. */
truce_status truce__snapshot_register(struct snapshots *snapshots, struct reader *reader,
                                      const struct snapshot_limits *limits,
                                      struct snapshot **snapshot, bson_error_t *error);
/* Adds a reference, which the caller releases. */
struct snapshot *truce__snapshot_hold(struct snapshot *snapshot);
/* Releases one reference of a snapshot. The last holder ends the snapshot. NULL is allowed. */
void truce__snapshot_release(struct snapshot *snapshot);

/* Returns the reader in the snapshot, for one thread at a time, until truce__snapshot_leave. Fails
 * with EXPIRED if the snapshot was ended. */
truce_status truce__snapshot_enter(struct snapshot *snapshot, struct reader **reader,
                                   bson_error_t *error);
void truce__snapshot_leave(struct snapshot *snapshot);

/* Facts about a snapshot. */
struct snapshot_facts {
    int64_t age_ms;
    /* The bytes written to the log since the snapshot began. */
    uint64_t log;
    /* Whether the snapshot was ended, so that its reads fail. */
    bool ended;
};
/* Reads the facts. Waits while another thread has entered the snapshot, so a thread that has
 * entered it must not call this function. */
void truce__snapshot_check(struct snapshot *snapshot, struct snapshot_facts *state);

#endif
