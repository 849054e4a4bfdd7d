#ifndef TRUCE_ENGINE_STORAGE_FILE_IDENTITY_H
#define TRUCE_ENGINE_STORAGE_FILE_IDENTITY_H

/*
 * Whether anybody else has written into the database file: its size and time, as truce left them, in the page
 * that all processes share. See the essay in file_identity.c.
 */
#include "engine/storage/kv.h"
#include "engine/storage/lock.h"

/* Around everything that changes the file itself: alone, or by who has claimed the checkpoint. */
void truce__stamp_begin(struct lock *lock);
void truce__stamp_end(struct lock *lock);

/* CORRUPT: another program has written into the file while the store was open, or has changed its log
 * (log_identity.h). From then on every process that has it open is refused (truce__lock_usable). Any thread. */
truce_status truce__stamp_check(struct lock *lock, bson_error_t *error);

/* The same, and CORRUPT if the file is not the one under its name, by who has taken the lock to write: `kv` is his
 * connection. */
truce_status truce__stamp_check_in_turn(struct lock *lock, struct kv *kv, bson_error_t *error);

/* Once in a while, for who reads; `*last_ms` is the time of the last look, of any thread. */
truce_status truce__stamp_check_sometimes(struct lock *lock, atomic_llong *last_ms,
                                          bson_error_t *error);

/* For one who is alone, before he changes anything: is the file as it was left, since this machine
 * was started? True where nobody knows. */
bool truce__stamp_fits(const struct lock *lock);
/* The same; false where nobody knows. */
bool truce__stamp_is_left(const struct lock *lock);

#endif
