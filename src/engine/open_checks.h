#ifndef TRUCE_ENGINE_OPEN_CHECKS_H
#define TRUCE_ENGINE_OPEN_CHECKS_H

/*
 * Before SQLite opens a file: which one it is, whether this process may, and whether what stands
 * beside it belongs to it.
 */
#include "engine/storage/lock.h"

/* The path without symbolic links, so that everybody who means one file takes one lock file beside it,
 * and so that it stays right when the process changes its directory. The file itself need not be
 * there, unless it must. NOT_FOUND; CORRUPT: no file that can be a store; INVALID: it has several names, or
 * this is a forked child that cannot open it. `*real` is NULL on failure. */
truce_status truce__open_checks_path(const char *path, bool must_exist, char **real,
                                     bson_error_t *error);

/* As truce__lock_enter, and the page is adopted. LOCKED also: the lock file is a new one, and another
 * program has the database open. CORRUPT also: as truce__lock_match. */
truce_status truce__open_checks_begin(const char *path, int64_t deadline_ns, struct lock *lock,
                                      bool *denied, bson_error_t *error);

#endif
