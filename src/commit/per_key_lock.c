#include "commit/per_key_lock.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/hash_table.h"
#include "base/limits.h"
#include "commit/commit_entry.h"

/*
 * Per-key locks (FIFO). If many threads read, compute, and write one document, one of them succeeds
 * and the work of the others is wasted. Therefore a commit that lost on a document waits until the
 * commits that lost on it earlier have ended their attempts. A commit that is new to a contended
 * document joins the queue before it reads.
 *
 *  CP1  Correctness never depends on a lock. Every write compares what was read, with or without
 *       it. Other processes, and other handles of the store, do not see the locks.
 *  CP2  Waits are bounded. After COMMIT_LOCK_WAIT_MS (for keys, COMMIT_LOCK_WAIT_KEYS_MS, because
 *       commits that make keys are often long), a commit leaves the queue and makes its try without
 *       the lock. A function that computes for longer than that delays the others once for each
 *       try.
 *  CP3  A commit holds at most one lock, and does not wait for another one; neither does its
 *       thread, whose function may run another commit. So there are no deadlocks.
 *  CP4  A document's lock is chosen by a hash. Two documents may share a lock and delay each other
 *       slightly. Commits that lose on a unique key, such as the next number of an account, have no
 *       common document: they wait for the lock of the collection.
 *  CP5  Locks belong to the open store. A child process opens its own store, so it has its own
 *       locks.
 *  CP6  The lock is released when the write is done, before it is on disk. The next holder may read
 *       the write early, because the log keeps their order. No result is reported before the commit
 *       has waited for the disk: an OK is reported after a durable write that followed all reads,
 *       and after truce_settle otherwise (transact.c).
 *  CP7  In memory, a failed try costs less than a wake-up, so `memory:` stores have no locks.
 *  CP8  In a simulated environment, one thread plays all clients, so there are no locks.
 *  CP9  The holder can leave the id of a commit to the next holder (journal.c, CK6). The id is left
 *       only if a commit waits, in the step that grants the lock, so no id remains without a
 *       holder.
 */

/* The number of locks of documents, and the number of locks of unique keys. Both are powers of
 * two. */
#define STRIPES         64
#define STRIPES_OF_KEYS 16
/* The maximum wait for the lock of contended keys. */
#define COMMIT_LOCK_WAIT_KEYS_MS 1000

/* A commit that waits for a lock. The mutex of the lock protects it. */
struct waiter {
    struct waiter *next;
    /* Signalled when the lock is granted. */
    pthread_cond_t called;
    bool granted;
    /* The previous holder left the commit id `left` to this one (CP9). */
    bool owes;
    bson_oid_t left;
};

/* One lock. Documents with the same hash, modulo the number of locks, share it. */
struct stripe {
    /* Guards the fields below, and the waiters in the queue. */
    pthread_mutex_t mutex;
    /* The queue of waiting commits, and the pointer at its end. Each waiter is on the stack of its
     * thread. */
    struct waiter *first, **end;
    /* A commit holds the lock, or was granted it. Changed with the mutex held, and also read
     * without it. */
    bool taken;
};

/* All per-key locks of an open store. */
struct key_locks {
    /* The locks of documents, followed by the locks of unique keys. */
    struct stripe stripes[STRIPES + STRIPES_OF_KEYS];
};

/* The number of locks that commits of this thread hold (CP3). */
static _Thread_local uint32_t held_here;

struct key_locks *truce__key_locks_new(void)
{
    struct key_locks *locks = bson_malloc0(sizeof *locks);

    for (uint32_t i = 0; i < STRIPES + STRIPES_OF_KEYS; i++) {
        pthread_mutex_init(&locks->stripes[i].mutex, NULL);
        locks->stripes[i].end = &locks->stripes[i].first;
    }
    return locks;
}

void truce__key_locks_free(struct key_locks *locks)
{
    for (uint32_t i = 0; locks && i < STRIPES + STRIPES_OF_KEYS; i++)
        pthread_mutex_destroy(&locks->stripes[i].mutex);
    bson_free(locks);
}

uint32_t truce__key_lock_stripe(const struct entry *entry)
{
    return (uint32_t)truce__entry_hash(entry) & (STRIPES - 1);
}

uint32_t truce__key_lock_stripe_of_keys(const char *collection)
{
    return STRIPES + ((uint32_t)truce__hash_text(collection) & (STRIPES_OF_KEYS - 1));
}

bool truce__key_lock_busy(const struct key_locks *locks, uint32_t stripe)
{
    return __atomic_load_n(&locks->stripes[stripe].taken, __ATOMIC_RELAXED);
}

static void set_taken(struct stripe *stripe, bool taken)
{
    __atomic_store_n(&stripe->taken, taken, __ATOMIC_RELAXED);
}

static void leave_queue(struct stripe *stripe, const struct waiter *waiter)
{
    struct waiter **at = &stripe->first;

    while (*at != waiter)
        at = &(*at)->next;
    *at = waiter->next;
    if (stripe->end == &waiter->next)
        stripe->end = at;
}

/* Waits in the queue. The mutex must be held. If the time `until` passes first, the lock is not
 * granted (CP2). */
static void wait_in_queue(struct stripe *stripe, const struct timespec *until,
                          struct key_lock *lock)
{
    struct waiter waiter = {.next = NULL};
    pthread_condattr_t attributes;
    int status = 0;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&waiter.called, &attributes);
    pthread_condattr_destroy(&attributes);
    *stripe->end = &waiter;
    stripe->end = &waiter.next;
    while (!waiter.granted && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&waiter.called, &stripe->mutex, until);
    if (!waiter.granted)
        leave_queue(stripe, &waiter);
    pthread_cond_destroy(&waiter.called);
    lock->held = waiter.granted;
    lock->owes = waiter.owes;
    lock->left = waiter.left;
}

void truce__key_lock_acquire(struct key_lock *lock, struct key_locks *locks, uint32_t stripe,
                             int64_t until_ns)
{
    struct stripe *at = &locks->stripes[stripe];
    int64_t lock_wait_ms = stripe < STRIPES ? COMMIT_LOCK_WAIT_MS : COMMIT_LOCK_WAIT_KEYS_MS;
    int64_t most_ns = truce__clock_monotonic_ns() + lock_wait_ms * 1000000;
    struct timespec until;

    if (lock->held && lock->stripe == stripe)
        return;
    truce__key_lock_release(lock);
    if (held_here || truce__environment())
        return;
    until_ns = until_ns < most_ns ? until_ns : most_ns;
    until = (struct timespec){until_ns / 1000000000, until_ns % 1000000000};
    pthread_mutex_lock(&at->mutex);
    *lock = (struct key_lock){.locks = locks, .stripe = stripe, .held = !at->taken};
    if (!lock->held)
        wait_in_queue(at, &until, lock);
    set_taken(at, true);
    pthread_mutex_unlock(&at->mutex);
    held_here += lock->held;
}

/* Grants the lock to the first waiting commit, with the id that the holder leaves (NULL for none).
 * The mutex must be held, and a commit must wait. */
static void key_lock_grant(struct stripe *stripe, const bson_oid_t *left)
{
    struct waiter *next = stripe->first;

    stripe->first = next->next;
    if (!stripe->first)
        stripe->end = &stripe->first;
    next->owes = left != NULL;
    if (left)
        bson_oid_copy(left, &next->left);
    next->granted = true;
    pthread_cond_signal(&next->called);
}

/* Releases the lock. `left` is as for key_lock_grant. Returns false, and keeps the lock, if there
 * is an id and no commit waits. */
static bool key_lock_pass(struct key_lock *lock, const bson_oid_t *left)
{
    struct stripe *at = &lock->locks->stripes[lock->stripe];
    bool waited;

    pthread_mutex_lock(&at->mutex);
    waited = at->first != NULL;
    if (waited)
        key_lock_grant(at, left);
    else if (!left)
        set_taken(at, false);
    pthread_mutex_unlock(&at->mutex);
    if (!waited && left)
        return false;
    lock->held = false;
    held_here--;
    return true;
}

bool truce__key_lock_leave(struct key_lock *lock, const bson_oid_t *left)
{
    return lock->held && !lock->owes && key_lock_pass(lock, left);
}

void truce__key_lock_release(struct key_lock *lock)
{
    if (!lock->held)
        return;
    truce_assert(!lock->owes);
    (void)key_lock_pass(lock, NULL);
}
