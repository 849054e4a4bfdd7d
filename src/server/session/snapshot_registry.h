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
struct pasts;

struct past {
    uint64_t time;     /* as replica sets count it (server_time) */
    truce_store *view; /* of that moment */
    struct past *next;
    int users;
    uint64_t used; /* number of its last use */
    int64_t since_ns;
    bool forgotten; /* nobody finds it any more; it ends with its last user */
};

/* window_ms 0: TRUCE_SERVER_PAST_MS */
struct pasts *pasts_new(struct server *server, int64_t window_ms);
void pasts_free(struct pasts *pasts); /* nobody uses one */

/* The moment of that time; 0: a new one, of now. 239: it is too old; 246: it is not kept; 72: it is to come. LIMIT. */
truce_status pasts_take(struct pasts *pasts, uint64_t time, struct past **past,
                        bson_error_t *error);
/* One user more of what is used. */
void pasts_hold(struct pasts *pasts, struct past *past);
void pasts_give(struct pasts *pasts, struct past *past);
/* 239, where a read of one is EXPIRED: the store has ended it; else the status as it is. */
truce_status pasts_status(truce_status status, bson_error_t *error);
/* Forgets those that are older than the window. */
void pasts_expire(struct pasts *pasts);

#endif
