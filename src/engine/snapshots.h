#ifndef TRUCE_ENGINE_SNAPSHOTS_H
#define TRUCE_ENGINE_SNAPSHOTS_H

/*
 * Reads that last: a snapshot that is kept while its reader thinks, on a connection of its own.
 *
 * A kept snapshot pins the log: what is written after it began stays there, and the log grows. So it has a
 * maximum of age and of what was written since, and is ended when it is past one of them.
 *
 * Read-only optimism and its price: Reed, Naming and Synchronization in a Decentralized Computer System, 1978.
 */
#include "engine/readers.h"
#include "engine/storage/snapshot_pins.h"

struct snapshots;

/* When a kept snapshot is over. */
struct snapshot_limits {
    int64_t age_ms; /* it counts once something was written since; 0: TRUCE_SNAPSHOT_AGE_MS */
    uint64_t log;   /* bytes written since; 0: TRUCE_SNAPSHOT_LOG_BYTES */
    bool unlimited; /* never */
};

struct snapshot {
    struct snapshots *all;
    struct snapshot *next, **link; /* in the order in which they began */
    unsigned references;           /* under the mutex of all */
    struct snapshot_limits limits;
    int64_t since_ns, since_ms; /* monotonic, and of the wall */
    uint64_t log_at;            /* truce__pins_log of its beginning */

    pthread_mutex_t mutex; /* over what follows */
    struct reader reader;  /* without a connection: it was ended ... */
    struct reader *home;   /* the slot of the pool that it came from */
    const char *why;       /* ... for this reason */
};

struct snapshots {
    struct readers *readers;
    struct snapshot_limits limits; /* of who gives none */
    struct pins pins;
    pthread_mutex_t mutex; /* over the list; before that of a moment */
    pthread_cond_t change;
    struct snapshot *first, **end;
    unsigned count, unlimited;
    bool running, asleep, stop; /* of the thread that ends what is over */
    pthread_t thread;
};

void truce__snapshots_init(struct snapshots *snapshots, struct readers *readers, struct lock *lock,
                           const struct snapshot_limits *limits);
/* None is kept any more. */
void truce__snapshots_release(struct snapshots *snapshots);

/* Are fewer kept than half of those that may be? */
bool truce__snapshots_room(struct snapshots *snapshots);

/* Keeps the snapshot that the reader is in; the slot of the pool is given back. `limits` NULL: the
 * default. LIMIT: too many are kept, and none of them can be ended; the reader is as before. */
truce_status truce__snapshot_keep(struct snapshots *snapshots, struct reader *reader,
                                  const struct snapshot_limits *limits, struct snapshot **snapshot,
                                  bson_error_t *error);
struct snapshot *truce__snapshot_hold(struct snapshot *snapshot);
/* By the last holder: ends it. NULL is allowed. */
void truce__snapshot_release(struct snapshot *snapshot);

/* The reader in the snapshot, for one thread at a time, until truce__snapshot_leave. EXPIRED: it was ended. */
truce_status truce__snapshot_enter(struct snapshot *snapshot, struct reader **reader,
                                   bson_error_t *error);
void truce__snapshot_leave(struct snapshot *snapshot);

/* What is known of one. */
struct snapshot_facts {
    int64_t age_ms;
    uint64_t log; /* bytes written since it began */
    bool ended;
};
void truce__snapshot_look(struct snapshot *snapshot, struct snapshot_facts *state);

#endif
