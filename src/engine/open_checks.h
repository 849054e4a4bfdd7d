#ifndef TRUCE_ENGINE_OPEN_CHECKS_H
#define TRUCE_ENGINE_OPEN_CHECKS_H

/*
 * Checks before SQLite opens a file: which file it is, whether this process may open it, and
 * whether the neighboring files belong to it.
 */
#include "engine/storage/write_lock.h"

/* Returns the path without symbolic links. All processes that use one file therefore use one lock
 * file, and the path stays valid if the process changes its directory. The file need not exist
 * unless `must_exist`. Fails with NOT_FOUND if a file that must exist is missing, and with CORRUPT
 * if the file is not a regular file. Fails with INVALID if it is a directory, if it has several
 * names, or in a forked child that cannot open it. `*real` is NULL on failure. */
truce_status truce__open_checks_path(const char *path, bool must_exist, char **real,
                                     bson_error_t *error);

/* Refuses a file that is not a store before a lock file is created next to it. An existing lock
 * file shows that the file is, or was, a store. `may_make` means that the caller makes an empty
 * file a store. */
truce_status truce__open_checks_kind(const char *path, bool may_make, bson_error_t *error);

/* Does the same as truce__lock_enter and adopts the page. Also fails with LOCKED if the lock file
 * is new and another program has the database open. Fails with CORRUPT as truce__lock_match does,
 * or if the log is damaged or has no database. The lock is closed on failure. */
truce_status truce__open_checks_begin(const char *path, int64_t deadline_ns, struct lock *lock,
                                      bool *denied, bson_error_t *error);

#endif
