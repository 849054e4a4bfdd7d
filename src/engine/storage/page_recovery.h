#ifndef TRUCE_ENGINE_STORAGE_PAGE_RECOVERY_H
#define TRUCE_ENGINE_STORAGE_PAGE_RECOVERY_H

/*
 * Reads a damaged file page by page, without SQLite. It finds the versions of a page in the file
 * and in the log, checks their checksums, and reads the entries of a page. It verifies everything
 * before it uses it, and writes nothing. One thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

#define PAGE_RECOVERY_PAGE_BYTES 4096

enum page_recovery_state {
    /* The page cannot be read, or it is empty. */
    PAGE_RECOVERY_GONE,
    /* The checksum of the page is wrong, or a newer version was lost with the log. */
    PAGE_RECOVERY_DOUBTFUL,
    /* The checksum of the page is right, and no newer version was lost. */
    PAGE_RECOVERY_VALID,
};

struct page_recovery {
    /* The descriptors of the file and of its log, or -1 for a missing log. */
    int file, log;
    /* The last page that the file or the log may have. Pages are numbered from 1. */
    uint32_t pages;
    /* The number of whole pages in the file. */
    uint32_t file_pages;
    /* The number of bytes of a page that SQLite uses. */
    uint32_t usable;
    /* frames[page]: the number of the page's last committed frame, from 1, or 0 if the log has
     * none. */
    uint32_t *frames;
    /* marks[page]: a combination of PAGE_RECOVERY_USED and the other marks. */
    uint8_t *marks;
    /* The number of frames of the log that are damaged. */
    uint32_t frames_lost;
};

enum {
    /* The page belongs to something that was read. */
    PAGE_RECOVERY_USED = 1 << 0,
    /* The page is not in use. */
    PAGE_RECOVERY_FREE = 1 << 1,
    /* The log had a newer version of the page, which cannot be read. */
    PAGE_RECOVERY_STALE = 1 << 2,
};

/* Opens the file. Fails with NOT_FOUND or IO, and with LOCKED if any process has the store open.
 * Fails with CORRUPT if the file is not a regular file, and with LIMIT if it is too large. */
truce_status truce__page_recovery_open(const char *path, struct page_recovery *recovery,
                                       bson_error_t *error);
void truce__page_recovery_close(struct page_recovery *recovery);

/* Returns whether a page of the file or of its log has the right checksum, or page 1 begins as that of
 * a store. Otherwise, nothing can be read from the file. */
bool truce__page_recovery_finds_store(const struct page_recovery *recovery);

/* The numbers in the header of the file. */
struct page_recovery_header {
    /* The number of pages of the file. */
    uint32_t pages;
    /* The first page of the list of free pages, or 0. */
    uint32_t free;
};

/* Reads the header, which is in page 1. Returns false if the page is damaged. */
bool truce__page_recovery_header(const struct page_recovery *recovery,
                                 struct page_recovery_header *header);

/* Returns how many of the first `pages` pages the file or its log has. */
uint32_t truce__page_recovery_count(const struct page_recovery *recovery, uint32_t pages);

/* Reads the best version of a page: from the log, otherwise from the file. Returns its state.
 * Numbers of pages begin at 1. */
enum page_recovery_state truce__page_recovery_read(const struct page_recovery *recovery,
                                                   uint32_t page,
                                                   uint8_t bytes[PAGE_RECOVERY_PAGE_BYTES]);

/* ---- entries -------------------------------------------------------------------------------- */

enum page_recovery_kind {
    /* A map page, a page of an index, or an unreadable page. */
    PAGE_RECOVERY_OTHER,
    /* An inner page of a table of rows: (child, greatest row) pairs and a last child. */
    PAGE_RECOVERY_INNER,
    /* A leaf of a table of rows. */
    PAGE_RECOVERY_LEAF,
};

struct page_recovery_page {
    uint32_t number;
    enum page_recovery_state state;
    enum page_recovery_kind kind;
    /* The number of entries. */
    uint32_t count;
    /* The offset of the page's header. */
    uint32_t start;
    uint8_t bytes[PAGE_RECOVERY_PAGE_BYTES];
};

/* Reads a page and checks its header and the offsets of its entries. */
void truce__page_recovery_page(const struct page_recovery *recovery, uint32_t number,
                               struct page_recovery_page *page);

/* Reads entry `i` of an inner page. The last one, i == count, has the row INT64_MAX. Returns false
 * if the entry is not valid. If the file was cut, the child may be a page after its end. */
bool truce__page_recovery_child(const struct page_recovery *recovery,
                                const struct page_recovery_page *page, uint32_t i, uint32_t *child,
                                int64_t *row);

/* Reads the row number of entry `i` of a leaf. */
bool truce__page_recovery_row(const struct page_recovery *recovery,
                              const struct page_recovery_page *page, uint32_t i, int64_t *row);

/* Appends the record of entry `i` with its overflow pages. With `take`, marks these pages as used.
 * Sets `*doubtful` if one of them is doubtful. Returns false if the record cannot be read
 * completely. */
bool truce__page_recovery_record(const struct page_recovery *recovery,
                                 const struct page_recovery_page *page, uint32_t i, bool take,
                                 struct buffer *record, bool *doubtful);

/* Column `which` of a record: an integer, or bytes. */
struct page_recovery_column {
    bool bytes;
    int64_t number;
    const uint8_t *data;
    size_t size;
};
/* Reads a column of a record. Returns false if the record has no such column. */
bool truce__page_recovery_column(const struct buffer *record, int which,
                                 struct page_recovery_column *column);

#endif
