#ifndef TRUCE_ENGINE_STORAGE_KV_WAL_H
#define TRUCE_ENGINE_STORAGE_KV_WAL_H

#include <stdbool.h>
#include <stdint.h>

struct sqlite3_file;

/* A way for SQLite to the disk that writes the WAL in few large writes, and puts checksums at the end of
 * the database's pages (kv_page.h). Every connection is opened with it. */

/* Its name, for sqlite3_open_v2; made on the first call, on top of the default one. Any thread. */
const char *truce__kv_wal_vfs(void);

/* What the header of a frame says. */
struct kv_frame {
    uint32_t page;
    uint32_t sum[2];
    uint64_t salts;
};

/* Of a log that was opened with this VFS, frames from 1; an SQLite result. */
int truce__kv_log_frame(struct sqlite3_file *log, uint32_t number, struct kv_frame *frame);
/* Are the checksums of all frames up to `last` right? */
int truce__kv_log_frames(struct sqlite3_file *log, uint32_t last, bool *right);

#endif
