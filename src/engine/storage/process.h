#ifndef TRUCE_ENGINE_STORAGE_PROCESS_H
#define TRUCE_ENGINE_STORAGE_PROCESS_H

/*
 * What a process as a whole must know of the stores that it has open: what a forked child may not
 * use, and which mapped page may lose its file. Any thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* One file, under whatever name. `born`, in nanoseconds, tells it from an older file whose number it
 * got; 0 where the file system does not know. All 0: no file. */
struct file_id {
    uint64_t device, number, born;
};

/* A file, its size, and when it was written last. */
struct file_look {
    struct file_id id;
    int64_t size, time_ns;
};

/* False, with errno: it is not there, or cannot be looked at. Symbolic links are not followed. */
bool truce__file_look(const char *path, struct file_look *facts);
bool truce__file_id(const char *path, struct file_id *id);
bool truce__file_id_of(int descriptor, struct file_id *id);
bool truce__file_id_equal(const struct file_id *a, const struct file_id *b);

/* ---- forks ---------------------------------------------------------------------------------- */

/* Forks of this process so far, seen from here: differs in a child. */
unsigned truce__process_generation(void);

/* As open(2), close-on-exec, and none of the standard descriptors; closed in forked children as well. */
int truce__process_open(const char *path, int flags, unsigned mode);
void truce__process_close(int descriptor);

/* INVALID: this is a forked child that cannot open this file; `id` NULL: it is not there yet. */
truce_status truce__process_may_open(const char *path, const struct file_id *id,
                                     bson_error_t *error);

/* Has this process it open? */
bool truce__process_has_open(const struct file_id *id);

/* Before SQLite opens a database; then one of the next two, by the same thread. */
void truce__process_opening(void);
void truce__process_gave_up(void);
/* Children forked from now on are refused this file, until truce__process_closed was called as often. */
void truce__process_opened(const struct file_id *id);
void truce__process_closed(const struct file_id *id);

/* ---- faults --------------------------------------------------------------------------------- */

/* If the file behind the mapping is cut short, a look at it finds zeros everywhere, and does not kill the process, as long
 * as no other code handles SIGBUS in it. A mapping may be guarded several times. */
void truce__process_guard(void *mapping, size_t size);
void truce__process_unguard(void *mapping);

#endif
