#ifndef TRUCE_ARCHIVE_SEGMENT_H
#define TRUCE_ARCHIVE_SEGMENT_H

/*
 * A segment: one file of an archive, with a part of a base copy or of the log. segment.c describes
 * the format.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/sha256.h"
#include "base/status.h"
#include "engine/storage/kv.h"

#define SEGMENT_PAGE_BYTES 4096
/* The maximum number of pages of a segment. */
#define SEGMENT_PAGES_MAX   1024
#define SEGMENT_HEAD_BYTES  256
#define SEGMENT_ENTRY_BYTES 24
/* The maximum size of a segment without its pages. */
#define SEGMENT_INDEX_BYTES_MAX                                                                    \
    (SEGMENT_HEAD_BYTES + SEGMENT_PAGES_MAX * SEGMENT_ENTRY_BYTES + SHA256_BYTES)
#define SEGMENT_BYTES_MAX   (SEGMENT_INDEX_BYTES_MAX + SEGMENT_PAGES_MAX * SEGMENT_PAGE_BYTES)
#define SEGMENT_STORE_BYTES 12
/* The size of a name, with the zero byte: "00000001/0000000042.base". */
#define SEGMENT_NAME_BYTES 32

enum segment_kind {
    /* Pages of the file. */
    SEGMENT_BASE = 1,
    /* Frames of the log. */
    SEGMENT_LOG,
    /* No pages: the base is complete, and every later commit can be restored from it. */
    SEGMENT_END,
};

/* The head of a segment is the state of the archive after it, so that an archiver continues from
 * the last segment alone. */
struct segment_head {
    enum segment_kind kind;
    uint8_t store[SEGMENT_STORE_BYTES];
    /* Both count from 1. */
    uint32_t generation;
    uint64_t sequence;
    /* The hash of the segment before it; zeros: it is the first. */
    uint8_t before[SHA256_BYTES];
    /* The number of the last commit. Numbers continue through all generations. */
    uint64_t commit;
    /* The latest time of a commit so far in the generation; 0: no commit yet. */
    int64_t latest_ms;
    /* When the segment was made. */
    int64_t made_ms;
    /* The place in the log of the store. */
    struct kv_log_place place;
    /* The first segment that has frames of the current log, or the first of the generation. A base
     * that begins now needs the log from there. */
    uint64_t replay;
    /* The number of the base that is being copied, or of the last complete one. */
    uint32_t base;
    /* The next page to be copied; 0: no base is being copied. */
    uint32_t base_next;
    /* The value of `replay` when this base began. */
    uint64_t base_replay;
    /* The number of pages of the last complete base, and of the log since. */
    uint64_t base_pages, log_pages;
    uint32_t entries;
};

struct segment_entry {
    uint64_t sum;
    /* The wall clock time of the commit that this frame ends. */
    int64_t time_ms;
    uint32_t page;
    /* The number of pages in the file after this commit; 0: the frame ends none. */
    uint32_t pages_after;
};

struct segment {
    struct segment_head head;
    struct segment_entry entries[SEGMENT_PAGES_MAX];
    uint8_t hash[SHA256_BYTES];
    /* The pages, in the form of the file and with its checksums; NULL if they were not read. */
    const uint8_t *pages;
};

struct segment_name {
    uint32_t generation;
    uint64_t sequence;
    enum segment_kind kind;
};

void truce__segment_name(const struct segment_name *name, char text[SEGMENT_NAME_BYTES]);
/* Returns false if the text is not the name of a segment. */
bool truce__segment_name_parse(const char *text, struct segment_name *name);

/* Returns the latest time of a commit so far in the generation, or, before the first commit, the time
 * when the segment was made. */
int64_t truce__segment_time(const struct segment_head *head);

/* Gives the page the checksum that it has in the file. Returns the checksum. */
uint64_t truce__segment_seal(uint8_t *page, uint32_t number);

/* Writes the segment into `out`, which is emptied first, and its hash into the segment. `pages` has
 * head.entries pages. */
void truce__segment_encode(struct segment *segment, const uint8_t *pages, struct buffer *out);

/* Reads a segment from the bytes of the file with this name. Verifies everything but the chain.
 * With `index`, the bytes may end after the hash, and the pages are not read. Fails with CORRUPT.
 * The pages point into `bytes`. */
truce_status truce__segment_decode(const struct segment_name *name, const uint8_t *bytes,
                                   size_t size, bool index, struct segment *segment,
                                   bson_error_t *error);

#endif
