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

#define WRECK_PAGE_BYTES 4096

enum wreck_state {
    /* It cannot be read, or it is empty. */
    WRECK_GONE,
    /* Its checksum is wrong, or a newer version was lost with the log. */
    WRECK_DOUBTFUL,
    WRECK_SOUND,
};

struct wreck {
    /* -1: missing. */
    int file, log;
    /* The number of pages in file and log. */
    uint32_t pages;
    /* The usable bytes of a page. */
    uint32_t usable;
    /* For each page, from 1, the number of its last committed frame, from 1; 0: none. */
    uint32_t *frames;
    /* For each page, a combination of WRECK_USED and the other marks. */
    uint8_t *marks;
    uint32_t frames_lost;
};

enum {
    /* Belongs to something that was read. */
    WRECK_USED = 1 << 0,
    /* Is not in use. */
    WRECK_FREE = 1 << 1,
    /* The log had a newer version, which cannot be read. */
    WRECK_STALE = 1 << 2,
};

/* Opens the file. Fails with NOT_FOUND or IO, with LOCKED if any process has the store open, and
 * with LIMIT if the file is too large. */
truce_status truce__wreck_open(const char *path, struct wreck *wreck, bson_error_t *error);
void truce__wreck_close(struct wreck *wreck);

enum wreck_state truce__wreck_read(const struct wreck *wreck, uint32_t page,
                                   uint8_t bytes[WRECK_PAGE_BYTES]);

/* ---- entries -------------------------------------------------------------------------------- */

enum wreck_kind {
    /* A map page, an index, or unreadable. */
    WRECK_OTHER,
    /* An inner page of a table of rows: (child, greatest row) pairs and a last child. */
    WRECK_INNER,
    /* A leaf of a table of rows. */
    WRECK_LEAF,
};

struct wreck_page {
    uint32_t number;
    enum wreck_state state;
    enum wreck_kind kind;
    /* The number of entries. */
    uint32_t count;
    /* The offset of its header. */
    uint32_t start;
    uint8_t bytes[WRECK_PAGE_BYTES];
};

/* Reads a page and checks its header and the offsets of its entries. */
void truce__wreck_page(const struct wreck *wreck, uint32_t number, struct wreck_page *page);

/* Reads entry `i` of an inner page. The last one, i == count, has the row INT64_MAX. Returns false
 * if the entry is not valid. */
bool truce__wreck_child(const struct wreck *wreck, const struct wreck_page *page, uint32_t i,
                        uint32_t *child, int64_t *row);

/* Reads the row number of entry `i` of a leaf. */
bool truce__wreck_row(const struct wreck *wreck, const struct wreck_page *page, uint32_t i,
                      int64_t *row);

/* Appends the record of entry `i` with its overflow pages. `take`: marks these pages as used. Sets
 * `*doubtful` if one of them is doubtful. Returns false if the record cannot be read completely. */
bool truce__wreck_record(const struct wreck *wreck, const struct wreck_page *page, uint32_t i,
                         bool take, struct buffer *record, bool *doubtful);

/* Column `which` of a record: an integer, or bytes. */
struct wreck_column {
    bool bytes;
    int64_t number;
    const uint8_t *data;
    size_t size;
};
/* Returns false if there is no such column. */
bool truce__wreck_column(const struct buffer *record, int which, struct wreck_column *column);

#endif
