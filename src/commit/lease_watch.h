#ifndef TRUCE_COMMIT_LEASE_WATCH_H
#define TRUCE_COMMIT_LEASE_WATCH_H

/*
 * A watch records since when this process has seen a thing in one state.
 *
 * Leases are judged without comparing clocks. A lease is over when its holder has not renewed it
 * for its whole duration, measured by the monotonic clock of the watching process. A watch stores a
 * hash of the thing's id, a hash of the state that a renewal changes, and the time when that state
 * was first seen.
 *
 *   T1  A watch that was used within the last hour is never evicted. So a lease that is checked at
 *       least once an hour is judged eventually, however many leases there are.
 *   T2  A thing has one watch. A renewal overwrites it, so renewals need no memory.
 *   T3  The table has at most 2^20 slots of 32 bytes. If it is full, new things are not admitted
 *       until others are evicted. They are judged later, and never too early.
 */
#include <stddef.h>
#include <stdint.h>

struct watches {
    struct watch *places;
    size_t size;  /* A power of two, or 0. */
    size_t count; /* Used slots. */
    int64_t rebuilt_ns;
};

void truce__watches_free(struct watches *watches);

/* Returns since when the thing has been seen in this state: `now_ns` if the thing or the state is
 * new. */
int64_t truce__watches_see(struct watches *watches, uint64_t thing, uint64_t state, int64_t now_ns);

/* Extends a hash by these bytes. */
uint64_t truce__watch_hash(uint64_t hash, const void *bytes, size_t size);

#endif
