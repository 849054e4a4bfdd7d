#ifndef TRUCE_ENGINE_STORAGE_FILE_IDENTITY_H
#define TRUCE_ENGINE_STORAGE_FILE_IDENTITY_H

/*
 * Whether anybody else has written into the database file: its size and time, as truce left them, in the page
 * that all processes share. See the essay in file_identity.c.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/status.h"

struct file_look;
struct kv;
struct lock;

/* Around everything that changes the file itself: alone, or by who has claimed the checkpoint. */
void truce__file_identity_begin_change(struct lock *lock);
void truce__file_identity_end_change(struct lock *lock);

/* CORRUPT: another program has written into the file while the store was open, or has changed its log
 * (file_identity.h). From then on every process that has it open is refused (truce__lock_usable). Any thread. */
truce_status truce__file_identity_check(struct lock *lock, bson_error_t *error);

/* The same, and CORRUPT if the file is not the one under its name, by who has taken the lock to write: `kv` is his
 * connection. */
truce_status truce__file_identity_check_in_turn(struct lock *lock, struct kv *kv,
                                                bson_error_t *error);

/* Once in a while, for who reads; `*last_ms` is the time of the last look, of any thread. */
truce_status truce__file_identity_check_sometimes(struct lock *lock, atomic_llong *last_ms,
                                                  bson_error_t *error);

/* For one who is alone, before he changes anything: is the file as it was left, since this machine
 * was started? True where nobody knows. */
bool truce__file_identity_fits(const struct lock *lock);

/*
 * Whether a file may have left its name since that was looked up, by a look at its descriptor: see file_identity.c.
 */

/* Of one thread at a time. Zero-initialised knows nothing. */
struct path_identity {
    int64_t
        changed_ns; /* the file's time of change, when its name was looked up last; 0: unknown */
    int64_t looked_ms;
};

/* What fstat of the file says now. True: it stands under its name, as far as can be told without
 * looking there. */
bool truce__path_identity_same(const struct path_identity *path_identity, const struct stat *found);

/* The name was looked up, and the file stood there, after `found` was. */
void truce__path_identity_record(struct path_identity *path_identity, const struct stat *found);

/*
 * Whether the log and its index are those that every process has open: see the essay in file_identity.c.
 */

/* A file under a name; all 0 if there is none. IO: that cannot be told. */
truce_status truce__log_identity_look(const char *name, struct file_look *facts,
                                      bson_error_t *error);

/* Records which files the log and its index are. By a process that is alone, or if nothing is recorded yet; with a
 * connection open, and the door shut. */
truce_status truce__log_identity_record(struct lock *lock, bson_error_t *error);

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
