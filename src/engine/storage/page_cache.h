#ifndef TRUCE_ENGINE_STORAGE_PAGE_CACHE_H
#define TRUCE_ENGINE_STORAGE_PAGE_CACHE_H

/*
 * Pages in memory, for all reading connections of a store.
 *
 * SQLite drops the pages of a connection when a snapshot shows a commit that the last one did not.
 * Each read after a commit would therefore read page 1, the root of the tree, and its inner pages
 * from the operating system again, and would compare their checksums again. This cache is below
 * SQLite, in the VFS (checksum_vfs.c, wal_vfs.c), and its pages survive commits: a page has a name
 * that stays the same while its content does.
 *
 *     frame of the log    generation of the log (salts), number of the frame
 *     page of the file    generation of the log, frames that checkpoints have moved into the file,
 *                         number of the page
 *
 *     sets of 8 pages     set = hash of the number; a page goes to its set only, so that an older
 *                         page of the same number is found and replaced
 *
 * Invariants:
 *  1. A page has the content that its name means. A committed frame does not change before the log
 *     begins again, which changes the salts. A checkpoint writes only pages that each reader finds
 *     in the log. A page that a reader looks for in the file is therefore the same as long as the
 *     number of moved frames is (model: models/page_cache.cpp).
 *  2. Only a connection that reads in a snapshot uses the cache, so it reads committed frames. Its
 *     process is present (lock_file.c), so no process removes the log and begins another one.
 *  3. The generation and the number of moved frames belong together (truce__kv_index_end). Both
 *     copies of the header of the log were equal around the read of the number. They count at least
 *     as many frames.
 *  4. Each page was compared with its checksum before it was put in.
 *
 * Inner pages are put in at once. Any other page is put in when it is read for the second time
 * within a short time. A leaf of a large table is rarely read again, and copying it would take
 * longer than reading it.
 */
#include <stdbool.h>
#include <stdint.h>

struct page_cache;

/* The value of `moved` in the name of a frame of the log. */
#define PAGE_IN_LOG UINT32_MAX

struct page_name {
    /* The generation of the log (its salts). */
    uint64_t salts;
    /* The number of the page, or of the frame, from 1. */
    uint32_t number;
    /* The number of frames that checkpoints have moved into the file, or PAGE_IN_LOG for a
     * frame. */
    uint32_t moved;
};

/* Creates the cache. `bytes` is the maximum size. The memory of a page is allocated when it is
 * used. */
struct page_cache *truce__page_cache_new(uint64_t bytes);
/* Frees the cache. NULL is allowed. */
void truce__page_cache_free(struct page_cache *cache);

/* Copies a page. Returns false if the cache does not have it. Any thread. */
bool truce__page_cache_get(struct page_cache *cache, const struct page_name *name, uint8_t *page);

/* Returns whether a page that the cache did not have should be inserted. Any thread. */
bool truce__page_cache_wants(struct page_cache *cache, const struct page_name *name,
                             const uint8_t *page);
/* Inserts a page, unless the cache has it. Any thread. */
void truce__page_cache_put(struct page_cache *cache, const struct page_name *name,
                           const uint8_t *page);

#endif
