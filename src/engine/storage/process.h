#ifndef TRUCE_ENGINE_STORAGE_PROCESS_H
#define TRUCE_ENGINE_STORAGE_PROCESS_H

/*
 * The facts about all open stores of a process: which files a forked child may not use, and which
 * mapped pages may lose their file. Any thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* The identity of a file under any name. `born`, in nanoseconds, distinguishes it from an older
 * file with the same inode number; 0 if the file system does not record it. All 0: no file. */
struct file_id {
    uint64_t device, number, born;
};

/* A file, its size, and the time of its last modification. */
struct file_look {
    struct file_id id;
    int64_t size, time_ns;
};

/* These return false, with errno, if the file is missing or cannot be read. They do not follow
 * symbolic links. */
bool truce__file_look(const char *path, struct file_look *facts);
bool truce__file_id(const char *path, struct file_id *id);
bool truce__file_id_of(int descriptor, struct file_id *id);
bool truce__file_id_equal(const struct file_id *a, const struct file_id *b);

/* ---- forks ---------------------------------------------------------------------------------- */

/* Returns a number that differs in a forked child: it counts the forks on the way to this
 * process. */
unsigned truce__process_generation(void);

/* Opens a file as open(2) does, close-on-exec and never as a standard descriptor. The descriptor is
 * closed in forked children as well. */
int truce__process_open(const char *path, int flags, unsigned mode);
void truce__process_close(int descriptor);

/* Fails with INVALID in a forked child that cannot open this file. `id` NULL: the file does not
 * exist yet. */
truce_status truce__process_may_open(const char *path, const struct file_id *id,
                                     bson_error_t *error);

/* Returns whether this process has the file open. */
bool truce__process_has_open(const struct file_id *id);

/* Called before SQLite opens a database. The same thread then calls one of the next two. */
void truce__process_opening(void);
void truce__process_gave_up(void);
/* Forked children are refused this file from then on, until truce__process_closed was called as
 * often. */
void truce__process_opened(const struct file_id *id);
void truce__process_closed(const struct file_id *id);

/* ---- faults --------------------------------------------------------------------------------- */

/* Guards a mapping: if its file is cut, reads return zeros and do not kill the process, unless
 * other code in the process handles SIGBUS. A mapping may be guarded several times. */
void truce__process_guard(void *mapping, size_t size);
void truce__process_unguard(void *mapping);

#endif
