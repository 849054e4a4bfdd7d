#ifndef TRUCE_COMMIT_LEASE_WATCH_H
#define TRUCE_COMMIT_LEASE_WATCH_H

/*
 * A watch records since when this process has seen a thing in one state.
 *
 * Leases are checked without a comparison of clocks. A lease has expired when its holder has not
 * renewed it for its whole duration, measured by the monotonic clock of the watching process. A
 * watch stores a hash of the thing's id, a hash of the state that a renewal changes, and the time
 * when that state was first seen.
 *
 * A process forgets its watches when it ends. A process that ends before the lease has expired,
 * such as a sweep that cron starts every minute, therefore also stores in the lease when it saw it:
 *
 *     lease.seen: {"<clock>": {end: <the end that the last renewal set>, ns: <time of the clock>}}
 *
 * All processes with a clock of the same name read the same monotonic clock (truce__clock_name). So
 * a later process uses the time of an earlier one as if it were its own. The wall clock is not
 * used. Another computer, or the same one after a reboot, has another name: it ignores the entry
 * and stores its own. An entry counts only for the end that it names.
 *
 *  CW1  A watch that was used within the last hour is never evicted. So a lease that is checked at
 *       least once an hour is recognized as expired eventually, however many leases exist.
 *  CW2  A thing has one watch. A renewal overwrites it, so renewals need no memory.
 *  CW3  The table has at most 2^20 slots of 32 bytes. If it is full, new things are not admitted
 *       until others are evicted. Their leases expire later, and never too early.
 *  CW4  A lease has expired only if the watch, or a stored observation of its current end, is as
 *       old as the lease is long (truce__metadata_lease_over).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bson/bson.h>

/* A table of the leases that a process has seen (lease_watch.c). */
struct watches {
    /* The hash table, which lease_watch.c defines. Owned. */
    struct watch *slots;
    /* The number of slots: a power of two, or 0 before the first use. */
    size_t size;
    /* The number of slots that are used. */
    size_t count;
    /* When the table was last rebuilt, by the monotonic clock. */
    int64_t rebuilt_ns;
};

static inline void truce__watches_free(struct watches *watches)
{
    bson_free(watches->slots);
    *watches = (struct watches){0};
}

/* Returns since when the thing has been seen in this state: `now_ns` if the thing or the state is
 * new. */
int64_t truce__watches_see(struct watches *watches, uint64_t thing, uint64_t state, int64_t now_ns);

/* Extends a hash by these bytes. */
uint64_t truce__watch_hash(uint64_t hash, const void *bytes, size_t size);

/* Reads when a process with this clock first saw the lease with this end. Returns false if no such
 * observation is stored. */
bool truce__lease_seen(const bson_t *lease, int64_t end, int64_t *seen_ns);

/* Appends to a $set that a process with this clock sees the lease with this end. The clock must
 * have a name. */
void truce__lease_append_seen(int64_t end, bson_t *set);

#endif
