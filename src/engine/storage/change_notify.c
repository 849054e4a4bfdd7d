/*
 * Notifies waiting threads of changes, in every process.
 *
 *     writer    begun + 1; COMMIT; increment the counter of each touched slot and wake its waiters;
 *               announced + 1; release the lock
 *     waiter    token := counter; read the collection; watched_until := later;
 *               sleep while counter == token
 *
 * A wake-up is a system call, so the writer makes it only while the page says that a thread may be
 * sleeping. Each waiter announces that it sleeps, for longer than its nap. The waiter announces
 * itself before the kernel compares the counter with the token. The writer reads the announcement
 * after it has moved the counter. One of the two sees the other. The announcement is not a count:
 * a count would stay too high forever if a waiter is killed. A waiter that does not announce
 * itself wakes at the end of its nap.
 *
 * A writer that dies between its commit and its announcement leaves begun != announced and the lock
 * free. Therefore a waiter checks for this state after each sleep, and sleeps for SLEEP_NS_MAX at
 * most. It then increments every counter for the dead writer, so that all waiters read their
 * collections again. A writer that finds begun != announced under the lock does the same.
 *
 * A token is the counter plus a high bit, so a token is never 0.
 */
#include "engine/storage/change_notify.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/futex.h"

/* The nanoseconds that a waiting thread sleeps before it checks for an interrupt: at first, and
 * after it has waited for a while. */
#define SLEEP_NS     INT64_C(50000000)
#define SLEEP_NS_MAX INT64_C(250000000)
/* The milliseconds for which a waiting thread announces its sleep. They are more than one sleep, so
 * the announcement does not expire early. */
#define WATCHED_MS 500

uint32_t truce__notify_slot(const char *collection)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (; *collection; collection++)
        hash = (hash ^ (uint8_t)*collection) * 16777619u;
    return hash % NOTIFY_STRUCTURE;
}

/* Returns monotonic milliseconds, of which the page stores the last 32 bits. */
static uint32_t notify_now_ms(void)
{
    return (uint32_t)(truce__clock_monotonic_ns() / 1000000);
}

static void announce_watch(struct lock *lock)
{
    atomic_store(&lock->page->watched_until, notify_now_ms() + WATCHED_MS);
}

static bool is_watched(const struct lock *lock)
{
    uint32_t left = atomic_load(&lock->page->watched_until) - notify_now_ms();

    return left <= WATCHED_MS;
}

static void notify_move(struct lock *lock, uint32_t slot)
{
    atomic_fetch_add(&lock->page->changes[slot], 1);
    if (is_watched(lock))
        truce__futex_wake_shared(&lock->page->changes[slot], INT32_MAX);
}

static void notify_move_all(struct lock *lock)
{
    for (uint32_t i = 0; i < NOTIFY_SLOTS; i++)
        notify_move(lock, i);
}

void truce__notify_begin(struct lock *lock)
{
    unsigned begun = atomic_load(&lock->page->begun);

    truce_assert(lock->held);
    if (begun != atomic_load(&lock->page->announced)) {
        notify_move_all(lock);
        atomic_store(&lock->page->announced, begun);
    }
    atomic_store(&lock->page->begun, begun + 1);
}

void truce__notify_announce(struct lock *lock, const uint64_t touched[NOTIFY_SLOTS / 64])
{
    truce_assert(lock->held);
    for (uint32_t i = 0; i < NOTIFY_SLOTS / 64; i++) {
        for (uint64_t left = touched[i]; left; left &= left - 1)
            notify_move(lock, i * 64 + (uint32_t)__builtin_ctzll(left));
    }
    atomic_store(&lock->page->announced, atomic_load(&lock->page->begun));
}

/* Increments all counters for a writer that died before its announcement. */
static void notify_for_the_dead(struct lock *lock)
{
    unsigned begun = atomic_load(&lock->page->begun);
    unsigned announced = atomic_load(&lock->page->announced);

    if (begun == announced || truce__lock_is_held(lock))
        return;
    notify_move_all(lock);
    /* If this fails, another process has announced since, or has done the same for the dead
     * writer. */
    atomic_compare_exchange_strong(&lock->page->announced, &announced, begun);
}

unsigned truce__notify_count(struct lock *lock, uint32_t slot)
{
    notify_for_the_dead(lock);
    return atomic_load(&lock->page->changes[slot]);
}

unsigned *truce__notify_counters(struct lock *lock)
{
    unsigned *seen = bson_malloc(NOTIFY_SLOTS * sizeof *seen);

    for (uint32_t i = 0; i < NOTIFY_SLOTS; i++)
        seen[i] = atomic_load(&lock->page->changes[i]);
    return seen;
}

/* Returns whether the counter of the collection is still `seen`. If a writer died before its
 * announcement, any collection may have changed: returns false. */
bool truce__notify_unmoved(struct lock *lock, const char *collection, const unsigned *seen)
{
    uint32_t slot = truce__notify_slot(collection);

    truce_assert(lock->held);
    return atomic_load(&lock->page->begun) == atomic_load(&lock->page->announced) &&
           atomic_load(&lock->page->changes[slot]) == seen[slot];
}

truce_status truce__notify_wait(struct lock *lock, const char *collection, uint64_t *token,
                                uint32_t timeout_ms, bson_error_t *error)
{
    atomic_uint *counter = &lock->page->changes[truce__notify_slot(collection)];
    /* The deadline is not computed yet: most callers need not wait. */
    int64_t nap = SLEEP_NS, deadline = 0;

    for (;;) {
        unsigned seen = atomic_load(counter);
        uint64_t now = (uint64_t)1 << 32 | seen;
        int64_t left;

        if (now != *token) {
            *token = now;
            return TRUCE_OK;
        }
        if (!deadline)
            deadline = truce__clock_monotonic_ns() + timeout_ms * INT64_C(1000000);
        left = deadline - truce__clock_monotonic_ns();
        if (truce__lock_interrupted(lock))
            return truce__refuse(CODE_INTERRUPTED, error, "the call was interrupted");
        if (left <= 0)
            return truce__fail(TRUCE_TIMEOUT, error, "nothing was written to %s in %u ms",
                               collection, timeout_ms);
        announce_watch(lock);
        truce__futex_wait_shared(counter, seen, left < nap ? left : nap);
        nap = nap < SLEEP_NS_MAX / 2 ? nap * 2 : SLEEP_NS_MAX;
        if (atomic_load(counter) == seen)
            notify_for_the_dead(lock);
    }
}
