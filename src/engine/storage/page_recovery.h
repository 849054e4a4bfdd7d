#ifndef TRUCE_ENGINE_STORAGE_PAGE_RECOVERY_H
#define TRUCE_ENGINE_STORAGE_PAGE_RECOVERY_H

/*
 * A damaged file, read page by page without SQLite: what stands in the file and in the log, what the checksums say
 * of it, and the entries of a page. Nothing is believed before it was looked at, and nothing is written.
 * One thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

#define WRECK_PAGE_BYTES 4096

enum wreck_state {
    WRECK_GONE,     /* cannot be read, or is empty */
    WRECK_DOUBTFUL, /* its checksum is wrong, or a younger version of it was lost with the log */
    WRECK_SOUND,
};

struct wreck {
    int file, log;    /* -1: there is none */
    uint32_t pages;   /* in file and log */
    uint32_t usable;  /* bytes of a page */
    uint32_t *frames; /* for each page from 1: its last frame that was committed, from 1; 0: none */
    uint8_t *marks;   /* for each page: WRECK_USED and others */
    uint32_t frames_lost;
};

enum {
    WRECK_USED = 1 << 0,  /* belongs to something that was read */
    WRECK_FREE = 1 << 1,  /* is not in use */
    WRECK_STALE = 1 << 2, /* the log had a younger version, which cannot be read */
};

/* NOT_FOUND, IO. LOCKED: somebody has the store open, in this process or another. LIMIT: it is too large. */
truce_status truce__wreck_open(const char *path, struct wreck *wreck, bson_error_t *error);
void truce__wreck_close(struct wreck *wreck);

enum wreck_state truce__wreck_read(const struct wreck *wreck, uint32_t page,
                                   uint8_t bytes[WRECK_PAGE_BYTES]);

/* ---- entries (page_recovery.c) ------------------------------------------------------------------ */

enum wreck_kind {
    WRECK_OTHER, /* a map, an index, or not to be understood */
    WRECK_INNER, /* of a table of rows: (child, greatest row) ... and a last child */
    WRECK_LEAF,  /* of a table of rows */
};

struct wreck_page {
    uint32_t number;
    enum wreck_state state;
    enum wreck_kind kind;
    uint32_t count; /* of entries */
    uint32_t start; /* where its header begins */
    uint8_t bytes[WRECK_PAGE_BYTES];
};

/* Reads a page and looks at its header and at the places of its entries. */
void truce__wreck_page(const struct wreck *wreck, uint32_t number, struct wreck_page *page);

/* Entry `i` of an inner page; the last, i == count, has INT64_MAX. False: it makes no sense. */
bool truce__wreck_child(const struct wreck *wreck, const struct wreck_page *page, uint32_t i,
                        uint32_t *child, int64_t *row);

/* Entry `i` of a leaf. */
bool truce__wreck_row(const struct wreck *wreck, const struct wreck_page *page, uint32_t i,
                      int64_t *row);

/* The record of entry `i`, appended, with what stands on further pages; `take`: those are marked as used.
 * `*doubtful` becomes true if one of them is. False: not all of it can be read. */
bool truce__wreck_record(const struct wreck *wreck, const struct wreck_page *page, uint32_t i,
                         bool take, struct buffer *record, bool *doubtful);

/* Column `which` of a record: an integer, or bytes. False: there is none such. */
struct wreck_column {
    bool bytes;
    int64_t number;
    const uint8_t *data;
    size_t size;
};
bool truce__wreck_column(const struct buffer *record, int which, struct wreck_column *column);

#endif
