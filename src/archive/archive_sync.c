/* Waits for the archive: see archive_sync.h. */
#include "archive/archive_sync.h"

#include <string.h>

#include "base/clock.h"
#include "base/futex.h"
#include "engine/storage/log_archive.h"

#define MILLISECOND INT64_C(1000000)

void truce__archive_sync_init(struct archive_sync *sync, int64_t timeout_ms)
{
    *sync = (struct archive_sync){.timeout_ms = timeout_ms};
    /* No number is archived yet. This value differs from every number. */
    atomic_store(&sync->archived, UINT64_MAX);
    pthread_mutex_init(&sync->mutex, NULL);
    truce__archive_sync_fail(sync, "the archiver has not archived anything yet");
}

void truce__archive_sync_release(struct archive_sync *sync)
{
    pthread_mutex_destroy(&sync->mutex);
}

static void sync_wake(struct archive_sync *sync)
{
    atomic_fetch_add(&sync->changes, 1);
    truce__futex_wake(&sync->changes, INT32_MAX);
}

void truce__archive_sync_note(struct archive_sync *sync, uint64_t number)
{
    bool changed = atomic_exchange(&sync->archived, number) != number;

    changed = atomic_exchange(&sync->out_since_ns, 0) || changed;
    if (changed)
        sync_wake(sync);
}

void truce__archive_sync_fail(struct archive_sync *sync, const char *reason)
{
    pthread_mutex_lock(&sync->mutex);
    snprintf(sync->reason, sizeof sync->reason, "%s", reason);
    if (!atomic_load(&sync->out_since_ns))
        atomic_store(&sync->out_since_ns, truce__clock_monotonic_ns());
    pthread_mutex_unlock(&sync->mutex);
}

/* Records that the target has not replied since this time, unless a failure is recorded. */
static void sync_note_stall(struct archive_sync *sync, int64_t since_ns)
{
    pthread_mutex_lock(&sync->mutex);
    if (!atomic_load(&sync->out_since_ns)) {
        snprintf(sync->reason, sizeof sync->reason, "its target does not reply, or is too slow");
        atomic_store(&sync->out_since_ns, since_ns);
    }
    pthread_mutex_unlock(&sync->mutex);
}

static void sync_reason(struct archive_sync *sync, char reason[ARCHIVE_SYNC_REASON])
{
    pthread_mutex_lock(&sync->mutex);
    memcpy(reason, sync->reason, ARCHIVE_SYNC_REASON);
    pthread_mutex_unlock(&sync->mutex);
}

truce_status truce__archive_sync_ready(struct archive_sync *sync, int64_t until_ns,
                                       bson_error_t *error)
{
    char reason[ARCHIVE_SYNC_REASON];

    for (;;) {
        unsigned seen = atomic_load(&sync->changes);
        int64_t since_ns = atomic_load(&sync->out_since_ns), now_ns = truce__clock_monotonic_ns();
        int64_t end_ns = since_ns + sync->timeout_ms * MILLISECOND;

        if (!since_ns)
            return TRUCE_OK;
        if (end_ns > until_ns)
            end_ns = until_ns;
        /* Invariant 4. */
        if (now_ns >= end_ns) {
            sync_reason(sync, reason);
            return truce__fail(TRUCE_LOCKED, error,
                               "nothing was changed, because the archive that --archive-sync "
                               "needs has not worked for %.1f s (%s): try again later",
                               (double)(now_ns - since_ns) / 1e9, reason);
        }
        truce__futex_wait(&sync->changes, seen, end_ns - now_ns);
    }
}

static bool sync_has(const struct archive_sync *sync, const struct durable *durable,
                     uint64_t number)
{
    uint64_t archived = atomic_load(&sync->archived);

    /* Invariants 1 and 3. */
    return archived >= number && archived <= truce__durable_promised(durable);
}

truce_status truce__archive_sync_wait(struct archive_sync *sync, const struct durable *durable,
                                      int64_t until_ns, bson_error_t *error)
{
    int64_t began_ns = truce__clock_monotonic_ns(),
            end_ns = began_ns + sync->timeout_ms * MILLISECOND;
    uint64_t number = truce__durable_promised(durable);
    char reason[ARCHIVE_SYNC_REASON];

    if (end_ns > until_ns)
        end_ns = until_ns;
    for (bool requested = false;; requested = true) {
        unsigned seen = atomic_load(&sync->changes);
        int64_t now_ns;

        if (sync_has(sync, durable, number))
            return TRUCE_OK;
        if (!requested)
            truce__archive_request(durable->lock);
        now_ns = truce__clock_monotonic_ns();
        /* Invariant 4. */
        if (now_ns >= end_ns)
            break;
        truce__futex_wait(&sync->changes, seen, end_ns - now_ns);
    }
    /* Invariant 5. */
    if (end_ns != until_ns) {
        sync_note_stall(sync, began_ns);
        truce__archive_request(durable->lock);
    }
    sync_reason(sync, reason);
    return truce__fail(TRUCE_UNKNOWN, error,
                       "after %.1f s, the archive does not have all commits that this reply "
                       "depends on (%s): they are on the disk, but can be lost with it",
                       (double)(truce__clock_monotonic_ns() - began_ns) / 1e9,
                       atomic_load(&sync->out_since_ns) ? reason : "the archive is slow");
}
