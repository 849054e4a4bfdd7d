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

/* Once for a program, before any store is opened. */
void disk_install(void);

/* Forgets all files and faults. No store may be open. */
void disk_reset(void);

/* With false, syncs do nothing: what a disk that lies, or code that forgets to sync, would give. */
void disk_honest(bool honest);

/* The power goes at the n-th write or sync from now (1: the next). 0: never. */
void disk_cut_after(int64_t calls);
/* ... from the next fault. */
void disk_cut_at_fault(int64_t calls);
/* ... now. */
void disk_cut(void);
bool disk_is_cut(void);

/* Writes into `directory` what a cut disk could hold; call it as often as you like. */
void disk_restore(const char *directory, struct random *random);

/* DISK_SYNC_LOSES: a sync fails, and every second unsynced write of the file never reaches the
 * disk. Readers see these writes anyway, as with the page cache of an operating system. Each
 * open descriptor reports the failure once, from its own next sync; those after that succeed. */
enum disk_fault { DISK_NO_FAULT, DISK_FULL, DISK_WRITE_FAILS, DISK_SYNC_FAILS, DISK_SYNC_LOSES };

/* The n-th write or sync from now that the fault can happen to fails, and with `lasting` all after
 * it. */
void disk_fail(enum disk_fault fault, int64_t calls, bool lasting);
/* The fault happens to files alone whose names end so; NULL: to all. Until disk_reset. */
void disk_fail_only(const char *suffix);

/* How long a sync takes: what was written when it began counts. 0: no time. */
void disk_sync_takes(unsigned microseconds);

/* Syncs begin, and do not end until this is called with false. */
void disk_hold_syncs(bool hold);
/* How many are held. */
int disk_held_syncs(void);

/* How many faults have happened since disk_fail. */
int64_t disk_faults(void);

/* Writes and syncs so far. */
int64_t disk_calls(void);

#endif
