#ifndef TRUCE_ENGINE_STORAGE_LOG_IDENTITY_H
#define TRUCE_ENGINE_STORAGE_LOG_IDENTITY_H

/*
 * Whether the log and its index are those that every process has open: see the essay in log_identity.c.
 */
#include "engine/storage/kv.h"
#include "engine/storage/lock.h"

/* A file under a name; all 0 if there is none. IO: that cannot be told. */
truce_status truce__log_identity_look(const char *name, struct file_look *facts,
                                      bson_error_t *error);

/* Records which files the log and its index are. By a process that is alone, or if nothing is recorded yet; with a
 * connection open, and the door shut. */
truce_status truce__log_identity_record(struct lock *lock, bson_error_t *error);

/* CORRUPT: one of them was removed, replaced, or cut while the store was open. From then on every process that has
 * the store open is refused (truce__lock_usable). IO: it cannot be told now. Any thread. */
truce_status truce__log_identity_check(struct lock *lock, bson_error_t *error);

/* The same, and CORRUPT if the log does not end with the last commit. By the process that has taken the lock to write,
 * before it writes; `kv` is its connection. */
truce_status truce__log_identity_check_in_turn(struct lock *lock, struct kv *kv,
                                               bson_error_t *error);

/* Records how far the log reaches, after a commit of that connection, in the turn. */
void truce__log_identity_note(struct lock *lock, const struct kv *kv);

/* The turn that began with the check ends: nothing writes into the log until the next one. */
void truce__log_identity_end_turn(struct lock *lock);

/* The log is about to be moved into the file and removed, by a process that is alone. */
void truce__log_identity_forget(struct lock *lock);

/* Has the log lost its name, or another file its name, while the connection still has all of the log, and the database is
 * as truce left it? By a process that is alone, before it closes. */
bool truce__log_identity_lost_name(struct lock *lock, struct kv *kv);

/* For a process that is alone, before it opens the file, whose name leads to the file that was open last. CORRUPT: the log
 * is not the one that was open last, or is missing although it has the last commits. */
truce_status truce__log_identity_match(struct lock *lock, bson_error_t *error);

#endif
