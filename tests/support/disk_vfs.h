#ifndef TRUCE_TESTS_SUPPORT_DISK_VFS_H
#define TRUCE_TESTS_SUPPORT_DISK_VFS_H

/*
 * A disk that can lose power and fail: an SQLite VFS, default once installed, that passes all calls
 * to the real one. For every database and WAL it keeps a copy of what a disk would hold.
 *
 *     write    goes into the list of the file's unsynced writes
 *     sync     moves the list into the file's durable content
 *     cut      the durable content, and on top of it a random choice of the unsynced writes, in
 *              random order, each whole, missing, or torn at a sector, becomes a new directory
 *
 * Between cut and heal every write and sync fails, so that nothing more is acknowledged.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"

/* Called once for a program, before any store is opened. */
void disk_install(void);

/* Forgets all files and faults. No store may be open. */
void disk_reset(void);

/* With false, syncs do nothing: like a disk that lies, or code that forgets to sync. */
void disk_honest(bool honest);

/* Cuts the power at the n-th write or sync after this call (1: the next). 0: never. */
void disk_cut_after(int64_t calls);
/* Cuts the power at the n-th call after the next fault. */
void disk_cut_at_fault(int64_t calls);
/* Cuts the power now. */
void disk_cut(void);
bool disk_is_cut(void);

/* Writes a possible state of a cut disk into `directory`; call it as often as you like. */
void disk_restore(const char *directory, struct random *random);

/* DISK_SYNC_LOSES: a sync fails, and every second unsynced write of the file never reaches the
 * disk. Readers see these writes anyway, as with the page cache of an operating system. Each
 * open descriptor reports the failure once, from its own next sync; those after that succeed. */
enum disk_fault { DISK_NO_FAULT, DISK_FULL, DISK_WRITE_FAILS, DISK_SYNC_FAILS, DISK_SYNC_LOSES };

/* Makes the n-th write or sync fail of those that the fault can happen to, and with `lasting`
 * all after it. */
void disk_fail(enum disk_fault fault, int64_t calls, bool lasting);
/* Restricts the fault to files whose names end so; NULL: all. Until disk_reset. */
void disk_fail_only(const char *suffix);

/* Sets how long a sync takes: it covers the writes before its beginning. 0: no time. */
void disk_sync_takes(unsigned microseconds);

/* Holds syncs: they begin, and do not end until this is called with false. */
void disk_hold_syncs(bool hold);
/* Returns how many are held. */
int disk_held_syncs(void);

/* Returns how many faults have happened since disk_fail. */
int64_t disk_faults(void);

/* Returns the writes and syncs so far. */
int64_t disk_calls(void);

#endif
