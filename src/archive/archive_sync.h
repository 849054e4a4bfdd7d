#ifndef TRUCE_ARCHIVE_ARCHIVE_SYNC_H
#define TRUCE_ARCHIVE_ARCHIVE_SYNC_H

/*
 * Delays replies until the archive has the commit (truce serve --archive-sync).
 *
 * An archiver and the threads that reply to writes share this state. It is in the memory of their
 * process, because the shared page can have any value after a power cut.
 *
 * The archive is in sync while the calls to its target succeed and its generation has a complete
 * base. A write begins only in sync. If the target fails for a moment, the write is delayed. If it
 * fails for longer than the timeout, the write is refused, and nothing is changed. A target may
 * also not reply at all. The first caller whose wait reaches the timeout then ends the sync.
 *
 * Numbers are those of the commits whose callers wait for the disk (engine/storage/durable.h).
 *
 * Invariants:
 *  1. A number counts as archived after the target has every commit up to it, and a complete base
 *     of the generation from which a restore reaches them.
 *  2. The archiver reads the number before it begins the snapshot that it archives. A commit with
 *     this number or a smaller one is in the snapshot.
 *  3. A number that no process has promised does not count: the counters have begun again.
 *  4. No caller waits for longer than its bound. If the bound passes, the outcome is unknown: the
 *     commit is on the disk, and the archiver continues to try.
 *  5. If the wait of one caller has reached the timeout, later writes are refused until the
 *     archiver has archived something. That caller also wakes the archiver, in case it is idle.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/status.h"
#include "engine/storage/durable.h"

/* The number of bytes of an error message with the zero byte. */
#define ARCHIVE_SYNC_REASON 700

struct archive_sync {
    int64_t timeout_ms;
    /* All commits up to this number are archived. Written only by the archiver. */
    atomic_ullong archived;
    /* A futex that changes when the archiver has archived more or is in sync again. */
    atomic_uint changes;
    /* The monotonic time in nanoseconds since which the archive is not in sync, or 0 if it is in
     * sync. */
    atomic_llong out_since_ns;
    /* Guards `reason`, the reason why the archive is not in sync. */
    pthread_mutex_t mutex;
    char reason[ARCHIVE_SYNC_REASON];
};

/* Initializes the state. The archive is not in sync before the first note. */
void truce__archive_sync_init(struct archive_sync *sync, int64_t timeout_ms);
void truce__archive_sync_release(struct archive_sync *sync);

/* ---- for the archiver ----------------------------------------------------------------------- */

/* Records that all commits up to this number can be restored. */
void truce__archive_sync_note(struct archive_sync *sync, uint64_t number);
/* Records that the archive is no longer in sync, and why. */
void truce__archive_sync_fail(struct archive_sync *sync, const char *reason);

/* ---- for every thread ----------------------------------------------------------------------- */

/* Waits until the archive is in sync. Fails with LOCKED if it is not in sync at `until_ns`
 * (monotonic nanoseconds), or was not during the last timeout. */
truce_status truce__archive_sync_ready(struct archive_sync *sync, int64_t until_ns,
                                       bson_error_t *error);

/* Waits until the archive has all commits that were made before the call. Fails with UNKNOWN at
 * `until_ns` or after the timeout. */
truce_status truce__archive_sync_wait(struct archive_sync *sync, const struct durable *durable,
                                      int64_t until_ns, bson_error_t *error);

#endif
