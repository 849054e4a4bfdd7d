#ifndef TRUCE_ENGINE_STORAGE_FILE_IDENTITY_H
#define TRUCE_ENGINE_STORAGE_FILE_IDENTITY_H

/*
 * The identity of the files of a store. These functions detect that another program has changed the
 * database file, that a path leads to another file, or that the log or its index was replaced.
 * file_identity.c explains each check in an essay.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/status.h"

struct file_facts;
struct kv;
struct lock;

/* Begin and end a change of the file itself. The caller is alone or has claimed the checkpoint. */
void truce__file_identity_begin_change(struct lock *lock);
void truce__file_identity_end_change(struct lock *lock);

/* Fails with CORRUPT if another program has written into the file or changed its log while the
 * store was open. From then on every process that has the store open is refused
 * (truce__lock_usable). Any thread. */
truce_status truce__file_identity_check(struct lock *lock, bson_error_t *error);

/* Does the same, and fails with CORRUPT if the file is not the one under its name. The caller holds
 * the lock to write; `kv` is its connection. */
truce_status truce__file_identity_check_locked(struct lock *lock, struct kv *kv,
                                               bson_error_t *error);

/* Checks as truce__file_identity_check does, for readers, but only once in CHECK_MS
 * (file_identity.c). `*last_ms` is the time of the last check by any thread. */
truce_status truce__file_identity_check_sometimes(struct lock *lock, atomic_llong *last_ms,
                                                  bson_error_t *error);

/* Returns whether the file is as truce left it since this machine was started. True if this is
 * unknown. Called by a process that is alone, before it changes anything. */
bool truce__file_identity_fits(const struct lock *lock);

/* ---- paths ---------------------------------------------------------------------------------- */

/* The last lookup of a path, for one thread at a time. In a zero-initialized struct, no lookup is
 * known. */
struct path_identity {
    /* The change time of the file when its name was last looked up, or 0 if it is unknown. */
    int64_t changed_ns;
    /* The monotonic time of the last lookup in milliseconds. */
    int64_t checked_ms;
};

/* Returns whether the file is still under its name, without a lookup. `found` is the result of
 * fstat. Returns false if only a lookup can show it. */
bool truce__path_identity_same(const struct path_identity *path_identity, const struct stat *found);

/* Records that a lookup found the file under its name, after `found` was read. */
void truce__path_identity_record(struct path_identity *path_identity, const struct stat *found);

/* ---- the log -------------------------------------------------------------------------------- */

/* Reads facts about the file under a name; all are 0 if there is no file. Fails with IO if they
 * cannot be read. */
truce_status truce__log_identity_read(const char *name, struct file_facts *facts,
                                      bson_error_t *error);

/* Records which files the log and its index are. The caller is alone, or nothing is recorded yet;
 * it has a connection open and holds the entry lock. */
truce_status truce__log_identity_record(struct lock *lock, bson_error_t *error);

/* Fails with CORRUPT if the log or its index is not the file under its name, or if the log does not
 * end with the last commit. The caller holds the lock to write and has not written yet; `kv` is its
 * connection. */
truce_status truce__log_identity_check_locked(struct lock *lock, struct kv *kv,
                                              bson_error_t *error);

/* Records how far the log reaches after a commit of the connection. Called under the lock. */
void truce__log_identity_note(struct lock *lock, const struct kv *kv);

/* Ends the writes that began with the check. Called before the lock is released: no process writes
 * into the log until a process has acquired the lock and checked again. */
void truce__log_identity_before_unlock(struct lock *lock);

/* Records that the log is about to be moved into the file and removed. The caller is alone. */
void truce__log_identity_forget(struct lock *lock);

/* Returns whether the log lost its name, or its name leads to another file, while the connection
 * still has the whole log and the database is as truce left it. The caller is alone and closes the
 * store. */
bool truce__log_identity_lost_name(struct lock *lock, struct kv *kv);

/* Checks, before a process that is alone opens the file, that the log belongs to it. The path leads
 * to the file that was open last. Fails with CORRUPT if the log is not the one that was open last,
 * or if a frame of the last commits is missing or damaged. */
truce_status truce__log_identity_match(struct lock *lock, bson_error_t *error);

/* Checks that the connection found all commits in the log that were recorded, before they are
 * recorded again. Fails with IO if SQLite read fewer frames than truce__log_identity_match: the
 * next opening reads them again. */
truce_status truce__log_identity_recovered(const struct lock *lock, struct kv *kv,
                                           bson_error_t *error);

#endif
