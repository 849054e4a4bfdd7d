#ifndef TRUCE_COMMIT_PER_KEY_LOCK_H
#define TRUCE_COMMIT_PER_KEY_LOCK_H

/* Per-key locks: wait queues for documents that many commits of one open store change. The essay is
 * in per_key_lock.c. */
#include <bson/bson.h>
#include <stdbool.h>
#include <stdint.h>

struct entry;
struct key_locks;

struct key_locks *truce__key_locks_new(void);
/* Frees the locks. NULL is allowed. No commit may hold a lock or wait for one. */
void truce__key_locks_free(struct key_locks *locks);

/* The lock that one commit holds. All fields are zero if it holds none. */
struct key_lock {
    struct key_locks *locks;
    /* The number of the lock in `locks`. */
    uint32_t stripe;
    bool held;
    /* The previous holder left the id `left` to this one. The holder handles it and clears `owes`
     * before it releases the lock. */
    bool owes;
    bson_oid_t left;
};

/* Returns the number of a document's lock. */
uint32_t truce__key_lock_stripe(const struct entry *entry);
/* Returns the number of the lock of documents that get a unique key
 * (truce__commit_insert_keyed). */
uint32_t truce__key_lock_stripe_of_keys(const char *collection);

/* Returns whether a commit holds the lock. */
bool truce__key_lock_busy(const struct key_locks *locks, uint32_t stripe);

/* Waits for the lock until the monotonic time `until_ns`, but not longer than the maximum of CP2.
 * If the wait ends without the lock, or the thread already holds a lock for another commit (CP3),
 * `lock->held` is false. A different lock that the commit held before is released first. */
void truce__key_lock_acquire(struct key_lock *lock, struct key_locks *locks, uint32_t stripe,
                             int64_t until_ns);
/* Releases the lock, if the commit holds it, and grants it to the first waiting commit. */
void truce__key_lock_release(struct key_lock *lock);
/* Releases the lock and leaves the id to the next holder. Returns false, and does nothing, if the
 * lock is not held, no commit waits for it, or the holder still owes an id itself. */
bool truce__key_lock_leave(struct key_lock *lock, const bson_oid_t *left);

#endif
