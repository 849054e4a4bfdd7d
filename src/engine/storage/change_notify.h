#ifndef TRUCE_ENGINE_STORAGE_CHANGE_NOTIFY_H
#define TRUCE_ENGINE_STORAGE_CHANGE_NOTIFY_H

/*
 * Waits for a change of a collection by any process. The commit wakes the waiter. A wake-up from
 * time to time (change_notify.c) only checks for an interrupt and for a writer that died.
 *
 * Collections share NOTIFY_SLOTS counters in the page of the lock file by a hash of their names, so
 * a waiter may wake for a change of another collection. It never misses a change: the waiter reads
 * the counter before it reads the collection, and every commit increments it.
 */
#include "engine/storage/write_lock.h"

/* The slot that counts replacements of the content of a collection (truce__store_structure). No
 * collection has this slot. */
#define NOTIFY_STRUCTURE (NOTIFY_SLOTS - 1)

uint32_t truce__notify_slot(const char *collection);

/* Records that the commit of a transaction that changed something begins. The caller holds the lock
 * until it has called truce__notify_announce. */
void truce__notify_begin(struct lock *lock);
/* Increments the counters of the changed slots and wakes their waiters, after the commit. Bit i of
 * `touched` means slot i. */
void truce__notify_announce(struct lock *lock, const uint64_t touched[NOTIFY_SLOTS / 64]);

/* Returns the counter of the slot. Accounts for a writer that died before its announcement. */
unsigned truce__notify_count(struct lock *lock, uint32_t slot);

/* Returns a copy of all NOTIFY_SLOTS counters. The caller frees it with bson_free. */
unsigned *truce__notify_counters(struct lock *lock);
/* Returns whether no commit has touched the collection since its counter was `seen`. The caller
 * holds the lock. Its own commit does not count. */
bool truce__notify_unmoved(struct lock *lock, const char *collection, const unsigned *seen);

/* Has the contract of truce_wait. */
truce_status truce__notify_wait(struct lock *lock, const char *collection, uint64_t *token,
                                uint32_t timeout_ms, bson_error_t *error);

#endif
