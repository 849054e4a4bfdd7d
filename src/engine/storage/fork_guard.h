#ifndef TRUCE_ENGINE_STORAGE_FORK_GUARD_H
#define TRUCE_ENGINE_STORAGE_FORK_GUARD_H

/* Which files a forked child may not use. The facts are about all open stores of a process. Any
 * thread. */
#include <stdbool.h>

#include "base/status.h"

struct file_id;

/* Opens a file as open(2) does, close-on-exec and never as a standard descriptor. The descriptor is
 * closed in forked children as well. */
int truce__fork_guard_open(const char *path, int flags, unsigned mode);
/* Closes a descriptor that truce__fork_guard_open returned. */
void truce__fork_guard_close(int descriptor);

/* Fails with INVALID in a forked child that cannot open this file. `id` is NULL if the file does
 * not exist yet. */
truce_status truce__fork_guard_may_open(const char *path, const struct file_id *id,
                                        bson_error_t *error);

/* Returns whether this process has the file open, or was forked from one that had. */
bool truce__fork_guard_has_open(const struct file_id *id);

/* Announces that SQLite is about to open a database. The same thread then calls one of the next
 * two. */
void truce__fork_guard_opening(void);
void truce__fork_guard_open_failed(void);
/* Notes that the file is open. Forked children are refused this file from then on, until
 * truce__fork_guard_closed was called as often. */
void truce__fork_guard_opened(const struct file_id *id);
void truce__fork_guard_closed(const struct file_id *id);

#endif
