#ifndef TRUCE_TESTS_SUPPORT_DISK_VFS_H
#define TRUCE_TESTS_SUPPORT_DISK_VFS_H

/*
 * A disk that can lose power and fail: an SQLite VFS, the default one after disk_install, that
 * passes all calls except syncs to the real one. For every database, journal, and WAL it keeps a
 * copy of what a disk would have.
 *
 *     write    goes into the list of the file's unsynced writes
 *     sync     moves the list into the file's durable content
 *     cut      the durable content, and on top of it a random choice of the unsynced writes, in
 *              random order, each whole, missing, or torn at a sector, becomes a new directory
 *
 * Between the cut and disk_reset, every write, sync, truncation, and removal fails, so nothing more
 * is acknowledged.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"

/* Installs the VFS. Called once for a program, before any store is opened. */
void disk_install(void);

/* Forgets all files, faults, and the cut. No store may be open. */
void disk_reset(void);

/* If `honest` is false, syncs make nothing durable: like a disk that lies, or code that does not
 * sync. */
void disk_honest(bool honest);

/* Cuts the power at the n-th write or sync after this call (1 is the next one). 0 means never. */
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

/* Counts the writes and syncs that the fault concerns, and makes number `calls` (from 1) fail. With
 * `lasting`, all later ones fail, too. */
void disk_fail(enum disk_fault fault, int64_t calls, bool lasting);
/* Restricts the fault, until disk_reset, to files whose names end with `suffix`. NULL means all
 * files. */
void disk_fail_only(const char *suffix);

/* Sets the duration of a sync, which covers only the writes before its beginning. disk_reset does
 * not change it. */
void disk_sync_takes(unsigned microseconds);

/* Makes syncs wait until the function is called with false. They cover only the writes before their
 * beginning. */
void disk_hold_syncs(bool hold);
/* Returns the number of waiting syncs. */
int disk_held_syncs(void);

/* Returns the number of faults since disk_fail. */
int64_t disk_faults(void);

/* Returns the number of writes and syncs since disk_reset. */
int64_t disk_calls(void);

#endif
