#ifndef TRUCE_SERVER_SESSION_SNAPSHOT_REGISTRY_H
#define TRUCE_SERVER_SESSION_SNAPSHOT_REGISTRY_H

/*
 * Moments of the store that clients read several times, by their time: readConcern {level: "snapshot", atClusterTime}.
 *
 *     read without a time    ->   a new moment, and its time in the answer
 *     read with that time    ->   the same moment, from whatever session
 *
 * Invariants:
 *  1. No two moments have the same time, also of servers before this one (cluster_time.c). What was changed before the time was given, and is on the disk, is in the moment.
 *  2. One that is used, by a call or by a cursor, is not closed.
 *  3. At most TRUCE_SERVER_PASTS_MAX are kept, each for the window; the one that was idle for longest makes room.
 */
#include <stdint.h>

#include "truce/store.h"

struct server;
struct snapshot_registry;

struct registered_snapshot {
    uint64_t time;     /* as replica sets count it (server_time) */
    truce_store *view; /* of that moment */
    struct registered_snapshot *next;
    int users;
    uint64_t used; /* number of its last use */
    int64_t since_ns;
    bool forgotten; /* nobody finds it any more; it ends with its last user */
};

/* window_ms 0: TRUCE_SERVER_PAST_MS */
struct snapshot_registry *snapshot_registry_new(struct server *server, int64_t window_ms);
void snapshot_registry_free(struct snapshot_registry *pasts); /* nobody uses one */

/* The moment of that time; 0: a new one, of now. 239: it is too old; 246: it is not kept; 72: it is to come. LIMIT. */
truce_status snapshot_registry_take(struct snapshot_registry *pasts, uint64_t time,
                                    struct registered_snapshot **past, bson_error_t *error);
/* One user more of what is used. */
void snapshot_registry_hold(struct snapshot_registry *pasts, struct registered_snapshot *past);
void snapshot_registry_release(struct snapshot_registry *pasts, struct registered_snapshot *past);
/* 239, where a read of one is EXPIRED: the store has ended it; else the status as it is. */
truce_status snapshot_registry_status(truce_status status, bson_error_t *error);
/* Forgets those that are older than the window. */
void snapshot_registry_expire(struct snapshot_registry *pasts);

#endif
