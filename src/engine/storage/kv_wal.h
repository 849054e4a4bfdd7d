#ifndef TRUCE_ENGINE_STORAGE_KV_WAL_H
#define TRUCE_ENGINE_STORAGE_KV_WAL_H

#include <stdint.h>

struct sqlite3_file;

/* A way for SQLite to the disk that writes the WAL in few large writes, and puts checksums at the end of
 * the database's pages (kv_page.h). Every connection is opened with it. */

/* Its name, for sqlite3_open_v2; made on the first call, on top of the default one. Any thread. */
const char *truce__kv_wal_vfs(void);

/* The page of a frame of the log, which is SQLite's own opening of it; an SQLite result. */
int truce__kv_log_frame_page(struct sqlite3_file *log, uint32_t frame, uint32_t *page);

#endif
