#ifndef TRUCE_ENGINE_STORAGE_CHANGE_NOTIFY_H
#define TRUCE_ENGINE_STORAGE_CHANGE_NOTIFY_H

/*
 * Waiting for a change of a collection, in any process, without polling.
 *
 * Collections share NOTIFY_SLOTS counters in the lock file's page by a hash of their names, so a
 * waiter may wake for another's change. It never misses one: the counter is read before the
 * collection is looked at, and moves after every commit.
 */
#include "engine/storage/lock.h"

/* Counts what replaces the content of a collection (truce__store_structure); no collection has its slot. */
#define NOTIFY_STRUCTURE (NOTIFY_SLOTS - 1)

uint32_t truce__notify_slot(const char *collection);

/* Around the commit of a transaction that changed something, by who holds the lock. */
void truce__notify_begin(struct lock *lock);
/* Bit i of `touched`: slot i. */
void truce__notify_announce(struct lock *lock, const uint64_t touched[NOTIFY_SLOTS / 64]);

/* The counter of that slot now. A writer that died before its announcement is accounted for. */
unsigned truce__notify_count(struct lock *lock, uint32_t slot);

/* The counters as they are now, NOTIFY_SLOTS of them: bson_free. */
unsigned *truce__notify_counters(struct lock *lock);
/* By who holds the lock: has no commit touched the collection since its counter was `seen`? All commits but that
 * of who asks are told of. */
bool truce__notify_unmoved(struct lock *lock, const char *collection, const unsigned *seen);

/* As truce_wait. */
truce_status truce__notify_wait(struct lock *lock, const char *collection, uint64_t *token,
                                uint32_t timeout_ms, bson_error_t *error);

#endif
