#ifndef TRUCE_COMMIT_LEASE_WATCH_H
#define TRUCE_COMMIT_LEASE_WATCH_H

/*
 * Watches: since when this process has seen a thing in one state.
 *
 * A lease is judged without a comparison of clocks: it is over when its holder has not renewed it for as long as it lasts,
 * measured by the monotonic clock of the process that watches. A watch is the memory of this: a hash of the thing's id, a hash of
 * the state that a renewal changes, and when that state was first seen.
 *
 *   T1. A watch that was seen within the last hour is never evicted. So each lease that is looked at once an hour or more
 *       often is judged one day, however many there are.
 *   T2. A thing has one watch. A renewal overwrites it, so leases that are renewed need no memory for each renewal.
 *   T3. The table has at most 2^20 places of 32 bytes. If it is full, new things are not admitted until others have gone:
 *       they are judged later, and never too early.
 */
#include <stddef.h>
#include <stdint.h>

struct watches {
    struct watch *places;
    size_t size;  /* a power of two, or 0 */
    size_t count; /* places in use */
    int64_t rebuilt_ns;
};

void truce__watches_free(struct watches *watches);

/* Returns since when the thing has been seen in this state: `now_ns` if it is new, or was in another one. */
int64_t truce__watches_see(struct watches *watches, uint64_t thing, uint64_t state, int64_t now_ns);

/* A hash of what `hash` is of, and of these bytes. */
uint64_t truce__watch_hash(uint64_t hash, const void *bytes, size_t size);

#endif
