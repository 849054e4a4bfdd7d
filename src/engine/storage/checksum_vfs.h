#ifndef TRUCE_ENGINE_STORAGE_CHECKSUM_VFS_H
#define TRUCE_ENGINE_STORAGE_CHECKSUM_VFS_H

/* The database file for SQLite, with a checksum at the end of every page. */
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KV_PAGE_BYTES 4096
/* The number of bytes at the end of each page that SQLite reserves for the checksum. */
#define KV_SUM_BYTES 8

/* The number of attempts to read a page. A read that fails, or returns a wrong checksum, may
 * succeed the next time. */
#define KV_READ_TRIES 3

/* The maximum number of parts of the index of the log, 32 KB each, that are known and guarded. They
 * suffice for a log of one gigabyte. */
#define KV_PAGE_PARTS_MAX 64

/* The offset of the count of commits in the index of the log. */
#define KV_PAGE_COMMITS_OFFSET 8

/* Opens a main database for the VFS (SQLite's xOpen). `file` has room for a struct kv_page_file. */
int truce__kv_page_open(sqlite3_vfs *real, const char *name, sqlite3_file *file, int flags,
                        int *out);

/* Returns whether the connection is moving pages. Then a damaged frame of the log is reported to
 * it. */
bool truce__kv_page_verifies(sqlite3_file *file);
void truce__kv_page_frame_damaged(sqlite3_file *file, uint32_t frame);

/* Passes on the result of a sync of the file or of its log, and reports a failure to the watch. */
int truce__kv_page_synced(sqlite3_file *file, int result);

/* Returns the minimum size of a file object (szOsFile). */
int truce__kv_page_file_size(void);

struct kv_log_end;
/* Reads the end of the log from the beginning of its index. Returns false if a commit is writing
 * it, or is beginning the log again. */
bool truce__kv_index_end(const atomic_uint *index, struct kv_log_end *end);

struct page_cache;
struct page_name;
/* Returns the cache of the connection, and the name of a frame of the log in it. Returns NULL if
 * the connection has no cache, or no index of the log yet. */
struct page_cache *truce__kv_page_frame_name(sqlite3_file *file, uint32_t frame,
                                             struct page_name *name);

/* Requests to a connection, for sqlite3_file_control with "main". */
enum {
    /* uint32_t *: the last page with a wrong checksum, or 0 if none exists. */
    KV_PAGE_DAMAGED = 0x74720001,
    /* uint32_t *: the last frame of the log with a wrong checksum, or 0 if none exists. */
    KV_PAGE_FRAME = 0x74720007,
    /* enum kv_kind *: the kind of the file, by its first bytes. */
    KV_PAGE_KIND = 0x74720002,
    /* struct kv_page_state *: reads a page. */
    KV_PAGE_STATE = 0x74720003,
    /* const struct kv_watch *: is called when a sync fails. */
    KV_PAGE_WATCH = 0x74720004,
    /* const bool *: whether frames of the log are compared with their checksums. */
    KV_PAGE_VERIFY = 0x74720006,
    /* uint32_t *: the number of written pages between two syncs; 0 means that SQLite decides. */
    KV_PAGE_PACE = 0x74720009,
    /* struct budget **: the budget that each page read takes from. */
    KV_PAGE_BOUND = 0x74720008,
    /* struct page_cache **: the cache that the connection shares. */
    KV_PAGE_CACHE = 0x7472000a,
    /* const atomic_uint **: counts the commits of all processes; NULL if there is no log yet. */
    KV_PAGE_COMMITS = 0x74720005,
    /* void *const **: the KV_PAGE_PARTS_MAX parts of the index of the log, or NULL if it is not
     * mapped. */
    KV_PAGE_PARTS = 0x7472000b,
};

/* A page as it is in the file, regardless of the log. */
struct kv_page_state {
    /* In: the page number, from 1. */
    uint32_t page;
    /* Out: whether the file is long enough. */
    bool there;
    /* Out: whether its checksum is right, or it was never written. */
    bool valid;
    /* Out: the content. */
    uint8_t bytes[KV_PAGE_BYTES];
};

/* Returns the checksum of page `number`, over all its bytes except the last KV_SUM_BYTES. */
uint64_t truce__kv_page_sum(const uint8_t *page, uint32_t number);

#endif
