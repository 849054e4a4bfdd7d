/*
 * The format of a segment.
 *
 *     | head, 256 bytes | entry, 24 bytes, for each page | SHA-256 of head and entries | pages |
 *
 *     entry:  | checksum of the page, 8 | time of the commit, 8 | page number, 4 | pages after, 4 |
 *
 * All numbers are little-endian. The head has the hash of the segment before it, so the segments of
 * an archive are a chain through all generations. The hash covers the checksums of the pages, and a
 * page has the same checksum as in the file of a store (kv_page.c). A restore therefore writes the
 * pages as they are.
 *
 * Invariants:
 *  1. The bytes of a segment depend on nothing but its head, entries, and pages.
 *  2. A segment in which any bit has changed is refused: by the hash, or, in a page, by its
 *     checksum. So is a segment under another name.
 *  3. No number in a file leads to an access outside of its bytes or to a large allocation.
 */
#include "archive/segment.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "engine/storage/kv_page.h"

#define MAGIC   "truce archive 1\n"
#define VERSION 1

static const char *const kind_names[] = {
    [SEGMENT_BASE] = "base", [SEGMENT_LOG] = "log", [SEGMENT_END] = "end"};

void truce__segment_name(const struct segment_name *name, char text[SEGMENT_NAME_BYTES])
{
    snprintf(text, SEGMENT_NAME_BYTES, "%08" PRIu32 "/%010" PRIu64 ".%s", name->generation,
             name->sequence % UINT64_C(10000000000), kind_names[name->kind]);
}

static bool segment_digits(const char *text, int count, uint64_t *number)
{
    *number = 0;
    for (int i = 0; i < count; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *number = *number * 10 + (uint64_t)(text[i] - '0');
    }
    return true;
}

bool truce__segment_name_parse(const char *text, struct segment_name *name)
{
    uint64_t generation, sequence;

    if (strlen(text) < 21 || !segment_digits(text, 8, &generation) || text[8] != '/' ||
        !segment_digits(text + 9, 10, &sequence) || text[19] != '.' || !generation || !sequence)
        return false;
    name->generation = (uint32_t)generation;
    name->sequence = sequence;
    for (int kind = SEGMENT_BASE; kind <= SEGMENT_END; kind++) {
        name->kind = (enum segment_kind)kind;
        if (!strcmp(text + 20, kind_names[kind]))
            return true;
    }
    return false;
}

/* ---- numbers -------------------------------------------------------------------------------- */

static void segment_put(uint8_t **at, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(number >> 8 * i);
}

static uint64_t segment_take(const uint8_t **at, int bytes)
{
    uint64_t number = 0;

    for (int i = 0; i < bytes; i++)
        number |= (uint64_t) * (*at)++ << 8 * i;
    return number;
}

static void segment_put_bytes(uint8_t **at, const void *bytes, size_t size)
{
    memcpy(*at, bytes, size);
    *at += size;
}

static void segment_take_bytes(const uint8_t **at, void *bytes, size_t size)
{
    memcpy(bytes, *at, size);
    *at += size;
}

int64_t truce__segment_time(const struct segment_head *head)
{
    return head->latest_ms ? head->latest_ms : head->made_ms;
}

static void segment_put_head(const struct segment_head *head, uint8_t *at)
{
    uint8_t *end = at + SEGMENT_HEAD_BYTES;

    memset(at, 0, SEGMENT_HEAD_BYTES);
    segment_put_bytes(&at, MAGIC, 16);
    segment_put(&at, VERSION, 4);
    segment_put(&at, head->kind, 4);
    segment_put_bytes(&at, head->store, sizeof head->store);
    segment_put(&at, head->generation, 4);
    segment_put(&at, head->sequence, 8);
    segment_put_bytes(&at, head->before, sizeof head->before);
    segment_put(&at, head->commit, 8);
    segment_put(&at, (uint64_t)head->latest_ms, 8);
    segment_put(&at, (uint64_t)head->made_ms, 8);
    segment_put_bytes(&at, &head->place.salts, 8);
    segment_put(&at, head->place.frames, 4);
    segment_put(&at, head->place.sum[0], 4);
    segment_put(&at, head->place.sum[1], 4);
    segment_put(&at, head->base, 4);
    segment_put(&at, head->replay, 8);
    segment_put(&at, head->base_replay, 8);
    segment_put(&at, head->base_pages, 8);
    segment_put(&at, head->log_pages, 8);
    segment_put(&at, head->base_next, 4);
    segment_put(&at, head->entries, 4);
    truce_assert(at <= end);
}

static bool segment_take_head(const uint8_t *at, struct segment_head *head)
{
    if (memcmp(at, MAGIC, 16) != 0)
        return false;
    at += 16;
    if (segment_take(&at, 4) != VERSION)
        return false;
    head->kind = (enum segment_kind)segment_take(&at, 4);
    segment_take_bytes(&at, head->store, sizeof head->store);
    head->generation = (uint32_t)segment_take(&at, 4);
    head->sequence = segment_take(&at, 8);
    segment_take_bytes(&at, head->before, sizeof head->before);
    head->commit = segment_take(&at, 8);
    head->latest_ms = (int64_t)segment_take(&at, 8);
    head->made_ms = (int64_t)segment_take(&at, 8);
    segment_take_bytes(&at, &head->place.salts, 8);
    head->place.frames = (uint32_t)segment_take(&at, 4);
    head->place.sum[0] = (uint32_t)segment_take(&at, 4);
    head->place.sum[1] = (uint32_t)segment_take(&at, 4);
    head->base = (uint32_t)segment_take(&at, 4);
    head->replay = segment_take(&at, 8);
    head->base_replay = segment_take(&at, 8);
    head->base_pages = segment_take(&at, 8);
    head->log_pages = segment_take(&at, 8);
    head->base_next = (uint32_t)segment_take(&at, 4);
    head->entries = (uint32_t)segment_take(&at, 4);
    return true;
}

/* ---- a segment ------------------------------------------------------------------------------ */

static bool segment_page_is_empty(const uint8_t *page)
{
    return !page[0] && !memcmp(page, page + 1, SEGMENT_PAGE_BYTES - 1);
}

uint64_t truce__segment_seal(uint8_t *page, uint32_t number)
{
    uint64_t sum = truce__kv_page_sum(page, number);
    uint8_t *at = page + SEGMENT_PAGE_BYTES - sizeof sum;

    if (!segment_page_is_empty(page))
        segment_put(&at, sum, sizeof sum);
    return sum;
}

void truce__segment_encode(struct segment *segment, const uint8_t *pages, struct buffer *out)
{
    size_t index = SEGMENT_HEAD_BYTES + segment->head.entries * (size_t)SEGMENT_ENTRY_BYTES;
    uint8_t *at;

    truce_assert(segment->head.entries <= SEGMENT_PAGES_MAX);
    out->size = 0;
    truce__buffer_reserve(out, SEGMENT_BYTES_MAX);
    segment_put_head(&segment->head, out->bytes);
    at = out->bytes + SEGMENT_HEAD_BYTES;
    for (uint32_t i = 0; i < segment->head.entries; i++) {
        segment_put(&at, segment->entries[i].sum, 8);
        segment_put(&at, (uint64_t)segment->entries[i].time_ms, 8);
        segment_put(&at, segment->entries[i].page, 4);
        segment_put(&at, segment->entries[i].pages_after, 4);
    }
    truce__sha256(out->bytes, index, segment->hash);
    out->size = index;
    truce__buffer_append(out, segment->hash, SHA256_BYTES);
    truce__buffer_append(out, pages, segment->head.entries * (size_t)SEGMENT_PAGE_BYTES);
}

static truce_status segment_refuse(const struct segment_name *name, const char *reason,
                                   bson_error_t *error)
{
    char text[SEGMENT_NAME_BYTES];

    truce__segment_name(name, text);
    return truce__fail(TRUCE_CORRUPT, error, "the segment %s of the archive is damaged: %s", text,
                       reason);
}

/* Compares the pages with their checksums, and those with the checksums in the pages. */
static bool pages_are_right(const struct segment *segment)
{
    for (uint32_t i = 0; i < segment->head.entries; i++) {
        const uint8_t *page = segment->pages + i * (size_t)SEGMENT_PAGE_BYTES;
        const uint8_t *at = page + SEGMENT_PAGE_BYTES - 8;
        uint64_t sum = truce__kv_page_sum(page, segment->entries[i].page);

        if (sum != segment->entries[i].sum ||
            (segment_take(&at, 8) != sum && !segment_page_is_empty(page)))
            return false;
    }
    return true;
}

static bool entries_are_right(const struct segment *segment)
{
    for (uint32_t i = 0; i < segment->head.entries; i++) {
        if (!segment->entries[i].page)
            return false;
    }
    return true;
}

truce_status truce__segment_decode(const struct segment_name *name, const uint8_t *bytes,
                                   size_t size, bool index, struct segment *segment,
                                   bson_error_t *error)
{
    struct segment_head *head = &segment->head;
    size_t hashed, pages;
    const uint8_t *at;

    segment->pages = NULL;
    if (size < SEGMENT_HEAD_BYTES + SHA256_BYTES)
        return segment_refuse(name, "it is too short", error);
    if (!segment_take_head(bytes, head))
        return segment_refuse(name, "it does not begin as a segment of this version", error);
    if (head->entries > SEGMENT_PAGES_MAX)
        return segment_refuse(name, "it has too many pages", error);
    hashed = SEGMENT_HEAD_BYTES + head->entries * (size_t)SEGMENT_ENTRY_BYTES;
    pages = head->entries * (size_t)SEGMENT_PAGE_BYTES;
    if (size < hashed + SHA256_BYTES || (!index && size != hashed + SHA256_BYTES + pages))
        return segment_refuse(name, "its length is wrong", error);
    truce__sha256(bytes, hashed, segment->hash);
    if (memcmp(segment->hash, bytes + hashed, SHA256_BYTES) != 0)
        return segment_refuse(name, "its hash is wrong", error);
    if (head->generation != name->generation || head->sequence != name->sequence ||
        head->kind != name->kind)
        return segment_refuse(name, "it belongs to another name", error);
    at = bytes + SEGMENT_HEAD_BYTES;
    for (uint32_t i = 0; i < head->entries; i++) {
        segment->entries[i].sum = segment_take(&at, 8);
        segment->entries[i].time_ms = (int64_t)segment_take(&at, 8);
        segment->entries[i].page = (uint32_t)segment_take(&at, 4);
        segment->entries[i].pages_after = (uint32_t)segment_take(&at, 4);
    }
    if (!entries_are_right(segment))
        return segment_refuse(name, "it names page 0", error);
    if (index)
        return TRUCE_OK;
    segment->pages = bytes + hashed + SHA256_BYTES;
    return pages_are_right(segment) ? TRUCE_OK
                                    : segment_refuse(name, "a checksum of a page is wrong", error);
}
