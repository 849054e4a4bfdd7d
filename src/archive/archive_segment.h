#ifndef TRUCE_ARCHIVE_ARCHIVE_SEGMENT_H
#define TRUCE_ARCHIVE_ARCHIVE_SEGMENT_H

/*
 * A segment: one file of an archive, with a part of a base copy or of the log. archive_segment.c
 * describes the format.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/hash_table.h"
#include "base/sha256.h"
#include "base/status.h"
#include "engine/storage/kv.h"

#define SEGMENT_PAGE_BYTES 4096
/* The maximum number of different pages of a segment, and of their versions. */
#define SEGMENT_PAGES_MAX   1024
#define SEGMENT_ENTRIES_MAX 16384
/* The number of bytes of the head of a segment, and of one entry of its index. */
#define SEGMENT_HEAD_BYTES  256
#define SEGMENT_ENTRY_BYTES 28
/* The maximum number of bytes of a segment without its pages, of its pages, and of all of it. */
#define SEGMENT_INDEX_BYTES_MAX                                                                    \
    (SEGMENT_HEAD_BYTES + SEGMENT_ENTRIES_MAX * SEGMENT_ENTRY_BYTES + SHA256_BYTES)
#define SEGMENT_DATA_BYTES_MAX (SEGMENT_PAGES_MAX * SEGMENT_PAGE_BYTES)
#define SEGMENT_BYTES_MAX      (SEGMENT_INDEX_BYTES_MAX + SEGMENT_DATA_BYTES_MAX)
/* The number of bytes of the id of the store. */
#define SEGMENT_STORE_BYTES 12
/* The number of bytes of the name of a clock (base/clock.h), which is filled with zeros. */
#define SEGMENT_CLOCK_BYTES 40
/* The number of bytes of a name with the zero byte, for example "00000001/0000000042.base". */
#define SEGMENT_NAME_BYTES 32

enum segment_kind {
    /* The segment has pages of the file. */
    SEGMENT_BASE = 1,
    /* The segment has frames of the log. */
    SEGMENT_LOG,
    /* The segment has no pages. It shows that the base is complete: every later commit can be
     * restored from it. */
    SEGMENT_END,
};

/* The head of a segment is the state of the archive after it, so that an archiver continues from
 * the last segment alone. */
struct segment_head {
    enum segment_kind kind;
    uint8_t store[SEGMENT_STORE_BYTES];
    /* The number of the generation, and the number of the segment in the generation, both from
     * 1. */
    uint32_t generation;
    uint64_t sequence;
    /* The hash of the segment before it, also across generations, or zeros in the first segment of
     * the archive. */
    uint8_t before[SHA256_BYTES];
    /* The number of the last commit. Numbers continue through all generations, from 1. The state
     * in which a generation finds the store has a number, too. */
    uint64_t commit;
    /* The latest time of a commit so far in the generation, or 0 before the first commit. */
    int64_t latest_ms;
    /* The wall clock time at which the segment was made. */
    int64_t made_ms;
    /* The minimum age of the archive in milliseconds, and the monotonic time and the name of the
     * clock by which it was measured. The name is "" if it is unknown. */
    int64_t age_ms;
    int64_t clock_ms;
    char clock[SEGMENT_CLOCK_BYTES];
    /* The position in the log of the store up to which it is archived. */
    struct kv_log_position position;
    /* The number of the first segment that has frames of the current log, or of the first segment
     * of the generation. A base that begins now needs the segments from this one on. */
    uint64_t replay;
    /* The number of the base that is being copied, or of the last complete one. */
    uint32_t base;
    /* The next page to be copied, or 0 if no base is being copied. */
    uint32_t base_next;
    /* The value of `replay` when this base began. */
    uint64_t base_replay;
    /* The size of the last complete base, and of the segments of the log after it, in pages. */
    uint64_t base_pages, log_pages;
    uint32_t entries;
};

struct segment_entry {
    /* The checksum of the page, which is its last 8 bytes unless the page is all zeros. */
    uint64_t sum;
    /* The wall clock time of the commit whose last frame this is. */
    int64_t time_ms;
    uint32_t page;
    /* The number of pages in the file after the commit, or 0 if the frame is not the last one of a
     * commit. */
    uint32_t pages_after;
    /* The number of bytes of the page in the segment, which contains all of it or a change
     * (archive_segment.c). */
    uint32_t size;
};

struct segment {
    struct segment_head head;
    struct segment_entry entries[SEGMENT_ENTRIES_MAX];
    uint8_t hash[SHA256_BYTES];
    /* The pages in the form of the segment, or NULL if they were not read. A segment of a base has
     * whole pages. */
    const uint8_t *data;
};

/* The last versions of the pages of a segment that is made or read, entry by entry.
 * Zero-initialize it. */
struct segment_pages {
    /* The data of a segment that is being made. */
    struct buffer data;
    /* The position at which the next entry of a segment that is being read begins. */
    size_t at;
    /* The last version of each page, in the form of the file and with its checksum. */
    uint8_t *versions;
    uint32_t numbers[SEGMENT_PAGES_MAX];
    uint32_t count;
    /* The positions in `numbers`, by page number. */
    struct hash_table table;
};

struct segment_name {
    uint32_t generation;
    uint64_t sequence;
    enum segment_kind kind;
};

void truce__segment_name(const struct segment_name *name, char text[SEGMENT_NAME_BYTES]);
/* Reads the name of a segment. Returns false if the text is not such a name. */
bool truce__segment_name_parse(const char *text, struct segment_name *name);

/* Returns the latest time of a commit so far in the generation. Before the first commit, returns
 * the time at which the segment was made. */
int64_t truce__segment_time(const struct segment_head *head);

/* Forgets all pages. */
void truce__segment_pages_begin(struct segment_pages *pages);
void truce__segment_pages_release(struct segment_pages *pages);

/* ---- making a segment ----------------------------------------------------------------------- */

/* Returns whether the segment has no space for another page. */
bool truce__segment_is_full(const struct segment *segment, const struct segment_pages *pages);
/* Appends an entry to a segment whose head has its kind. Gives the page the checksum that it has in
 * the file. */
void truce__segment_add(struct segment *segment, struct segment_pages *pages, uint32_t number,
                        uint8_t *page, uint32_t pages_after);
/* Writes the segment into `out`, which is emptied first, and its hash into the segment. */
void truce__segment_encode(struct segment *segment, const struct segment_pages *pages,
                           struct buffer *out);

/* ---- reading a segment ---------------------------------------------------------------------- */

/* Reads a segment from the bytes of the file with this name. Verifies everything but the chain.
 * If `pages` is NULL, the bytes may end after the hash, and the data is not read. Fails with
 * CORRUPT. The data points into `bytes`. */
truce_status truce__segment_decode(const struct segment_name *name, const uint8_t *bytes,
                                   size_t size, struct segment_pages *pages,
                                   struct segment *segment, bson_error_t *error);

/* Returns the page of an entry, which is valid until the next call. The caller calls
 * truce__segment_pages_begin first, and then this function for each entry in order. Returns NULL if
 * the data is damaged, which truce__segment_decode has excluded. */
const uint8_t *truce__segment_page(struct segment_pages *pages, const struct segment *segment,
                                   uint32_t entry);

/* For each of the first `count` entries, sets last[i] to whether no later one of them has the same
 * page. Forgets all pages. */
void truce__segment_find_last(struct segment_pages *pages, const struct segment *segment,
                              uint32_t count, bool last[SEGMENT_ENTRIES_MAX]);

#endif
