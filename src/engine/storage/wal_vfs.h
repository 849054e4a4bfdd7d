#ifndef TRUCE_ENGINE_STORAGE_WAL_VFS_H
#define TRUCE_ENGINE_STORAGE_WAL_VFS_H

#include <stdbool.h>
#include <stdint.h>

struct sqlite3_file;

/* SQLite's VFS for stores: it writes the WAL in a few large writes and adds checksums to the pages
 * of the database (checksum_vfs.h). Every connection uses it. */

/* Returns the name of the VFS for sqlite3_open_v2. The first call registers the VFS on top of the
 * default one. Any thread. */
const char *truce__kv_wal_vfs(void);

/* The header of a frame. */
struct kv_frame {
    uint32_t page;
    uint32_t sum[2];
    uint64_t salts;
};

/* Reads the header of a frame, numbered from 1. The log was opened with this VFS. Returns an SQLite
 * result. */
int truce__kv_log_frame(struct sqlite3_file *log, uint32_t number, struct kv_frame *frame);
/* Finds out whether the checksums of all frames up to `last` are right. */
int truce__kv_log_frames(struct sqlite3_file *log, uint32_t last, bool *right);

#endif
