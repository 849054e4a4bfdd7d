/*
 * The format of a segment.
 *
 *     | head, 256 bytes | entry, 28 bytes, for each page | SHA-256 of head and entries | data |
 *
 *     entry:  | checksum of the page, 8 | time of the commit, 8 | page number, 4 | pages after, 4 |
 *             | size, 4 |
 *     data:   for each entry, `size` bytes: the page (4,096 bytes), or a change
 *     change: | offset, 2 | length, 2 | bytes |, any number of times
 *
 * All numbers are little-endian. The head has the hash of the segment before it, so the segments of
 * an archive are a chain through all generations. The hash covers the checksums of the pages, and a
 * page has the same checksum as in the file of a store (checksum_vfs.c). A restore therefore writes
 * the pages as they are.
 *
 * Successive commits write the same pages again, and change little of them. A log therefore has ten
 * times as many bytes as its changes. A change contains the bytes that differ from the version of
 * the page before it in the same segment, or from zeros if it is the first version. It has no
 * checksum, because the entry has the checksum. A segment of a base has whole pages.
 *
 * Invariants:
 *  1. The bytes of a segment depend on nothing but its head, entries, and pages.
 *  2. A segment in which any bit has changed is refused: by the hash, or, in a page, by its
 *     checksum. So is a segment under another name.
 *  3. No number in a file leads to an access outside of its bytes or to a large allocation.
 */
#include "archive/archive_segment.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "engine/storage/checksum_vfs.h"

#define MAGIC "truce archive 1\n"
/* The version of the format. Segments with another version are refused. */
#define VERSION 3
/* The largest time in milliseconds. Sums and differences of such times do not overflow. */
#define MS_MAX (INT64_MAX / 4)
/* The bytes of a page that a change covers: all but the checksum. */
#define CHANGE_BYTES (SEGMENT_PAGE_BYTES - 8)
/* The number of equal bytes that are skipped at once. */
#define CHANGE_STRIDE 256

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

/* Writes the head of a segment. The order of the fields is the format of the archive. */
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
    segment_put_bytes(&at, &head->position.salts, 8);
    segment_put(&at, head->position.frames, 4);
    segment_put(&at, head->position.sum[0], 4);
    segment_put(&at, head->position.sum[1], 4);
    segment_put(&at, head->base, 4);
    segment_put(&at, head->replay, 8);
    segment_put(&at, head->base_replay, 8);
    segment_put(&at, head->base_pages, 8);
    segment_put(&at, head->log_pages, 8);
    segment_put(&at, head->base_next, 4);
    segment_put(&at, head->entries, 4);
    segment_put(&at, (uint64_t)head->age_ms, 8);
    segment_put(&at, (uint64_t)head->clock_ms, 8);
    segment_put_bytes(&at, head->clock, sizeof head->clock);
    truce_assert(at <= end);
}

/* Reads the head of a segment. Returns false if it has another format or version. Checks no
 * field. */
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
    segment_take_bytes(&at, &head->position.salts, 8);
    head->position.frames = (uint32_t)segment_take(&at, 4);
    head->position.sum[0] = (uint32_t)segment_take(&at, 4);
    head->position.sum[1] = (uint32_t)segment_take(&at, 4);
    head->base = (uint32_t)segment_take(&at, 4);
    head->replay = segment_take(&at, 8);
    head->base_replay = segment_take(&at, 8);
    head->base_pages = segment_take(&at, 8);
    head->log_pages = segment_take(&at, 8);
    head->base_next = (uint32_t)segment_take(&at, 4);
    head->entries = (uint32_t)segment_take(&at, 4);
    head->age_ms = (int64_t)segment_take(&at, 8);
    head->clock_ms = (int64_t)segment_take(&at, 8);
    segment_take_bytes(&at, head->clock, sizeof head->clock);
    return true;
}

/* ---- a segment ------------------------------------------------------------------------------ */

static bool segment_page_is_empty(const uint8_t *page)
{
    return !page[0] && !memcmp(page, page + 1, SEGMENT_PAGE_BYTES - 1);
}

/* Gives the page the checksum that it has in the file. Returns the checksum. */
static uint64_t segment_seal(uint8_t *page, uint32_t number)
{
    uint64_t sum = truce__kv_page_sum(page, number);
    uint8_t *at = page + CHANGE_BYTES;

    if (!segment_page_is_empty(page))
        segment_put(&at, sum, sizeof sum);
    return sum;
}

/* ---- the versions of pages ------------------------------------------------------------------ */

void truce__segment_pages_begin(struct segment_pages *pages)
{
    pages->data.size = 0;
    pages->at = 0;
    pages->count = 0;
    truce__hash_release(&pages->table);
}

void truce__segment_pages_release(struct segment_pages *pages)
{
    truce__buffer_release(&pages->data);
    truce__hash_release(&pages->table);
    bson_free(pages->versions);
    pages->versions = NULL;
}

/* Returns the last version of the page, or NULL if it has none. */
static uint8_t *pages_find(const struct segment_pages *pages, uint32_t number)
{
    struct hash_probe probe = truce__hash_probe(&pages->table, truce__hash_word(number));

    while (truce__hash_next(&probe)) {
        if (pages->numbers[probe.number] == number)
            return pages->versions + probe.number * (size_t)SEGMENT_PAGE_BYTES;
    }
    return NULL;
}

/* Adds a page and returns its version, which is undefined. Returns NULL if the segment has too many
 * pages. */
static uint8_t *pages_add(struct segment_pages *pages, uint32_t number)
{
    uint32_t position = pages->count;

    if (position == SEGMENT_PAGES_MAX)
        return NULL;
    if (!pages->versions)
        pages->versions = bson_malloc(SEGMENT_DATA_BYTES_MAX);
    truce__hash_add(&pages->table, truce__hash_word(number), position);
    pages->numbers[position] = number;
    pages->count++;
    return pages->versions + position * (size_t)SEGMENT_PAGE_BYTES;
}

/* Returns the last version of the page. If the segment has no version of the page yet, returns
 * zeros. Returns NULL if the segment has too many pages. */
static uint8_t *pages_before(struct segment_pages *pages, uint32_t number)
{
    uint8_t *version = pages_find(pages, number);

    if (version)
        return version;
    version = pages_add(pages, number);
    if (version)
        memset(version, 0, SEGMENT_PAGE_BYTES);
    return version;
}

static bool chunks_differ(const uint8_t *before, const uint8_t *page, size_t at)
{
    return at < CHANGE_BYTES && memcmp(before + at, page + at, 8) != 0;
}

/* Returns the offset of the first word from `at` on that differs, or CHANGE_BYTES if none does. */
static size_t change_next(const uint8_t *before, const uint8_t *page, size_t at)
{
    while (at + CHANGE_STRIDE <= CHANGE_BYTES && !memcmp(before + at, page + at, CHANGE_STRIDE))
        at += CHANGE_STRIDE;
    while (at < CHANGE_BYTES && !chunks_differ(before, page, at))
        at += 8;
    return at;
}

/* Writes the bytes that differ. Returns their size, or SEGMENT_PAGE_BYTES if the result is not
 * smaller than the page. */
static size_t change_encode(const uint8_t *before, const uint8_t *page, uint8_t *out)
{
    uint8_t *to = out;

    for (size_t at = change_next(before, page, 0), end; at < CHANGE_BYTES;
         at = change_next(before, page, end)) {
        for (end = at + 8;
             chunks_differ(before, page, end) || chunks_differ(before, page, end + 8);)
            end += 8;
        if ((size_t)(to - out) + 4 + (end - at) >= SEGMENT_PAGE_BYTES)
            return SEGMENT_PAGE_BYTES;
        segment_put(&to, at, 2);
        segment_put(&to, end - at, 2);
        segment_put_bytes(&to, page + at, end - at);
    }
    return (size_t)(to - out);
}

/* Applies a change to the page. Returns false if the bytes are not a valid change. */
static bool change_apply(const uint8_t *at, size_t size, uint64_t sum, uint8_t *page)
{
    const uint8_t *end = at + size;
    uint8_t *tail = page + CHANGE_BYTES;

    while (end - at >= 4) {
        size_t offset = (size_t)segment_take(&at, 2), length = (size_t)segment_take(&at, 2);

        /* Invariant 3. */
        if (!length || offset + length > CHANGE_BYTES || length > (size_t)(end - at))
            return false;
        segment_take_bytes(&at, page + offset, length);
    }
    segment_put(&tail, sum, sizeof sum);
    return at == end;
}

/* ---- making a segment ----------------------------------------------------------------------- */

bool truce__segment_is_full(const struct segment *segment, const struct segment_pages *pages)
{
    return segment->head.entries == SEGMENT_ENTRIES_MAX || pages->count == SEGMENT_PAGES_MAX ||
           pages->data.size + SEGMENT_PAGE_BYTES > SEGMENT_DATA_BYTES_MAX;
}

void truce__segment_add(struct segment *segment, struct segment_pages *pages, uint32_t number,
                        uint8_t *page, uint32_t pages_after)
{
    struct segment_entry *entry = &segment->entries[segment->head.entries];
    struct buffer *data = &pages->data;
    uint8_t *version;

    truce_assert(!truce__segment_is_full(segment, pages));
    segment->head.entries++;
    *entry = (struct segment_entry){.sum = segment_seal(page, number),
                                    .page = number,
                                    .pages_after = pages_after,
                                    .size = SEGMENT_PAGE_BYTES};
    truce__buffer_reserve(data, SEGMENT_PAGE_BYTES);
    if (segment->head.kind != SEGMENT_BASE) {
        version = pages_before(pages, number);
        /* A page of zeros has no checksum and no data. */
        if (!segment_page_is_empty(page))
            entry->size = (uint32_t)change_encode(version, page, data->bytes + data->size);
        memcpy(version, page, SEGMENT_PAGE_BYTES);
    }
    if (entry->size == SEGMENT_PAGE_BYTES)
        memcpy(data->bytes + data->size, page, SEGMENT_PAGE_BYTES);
    data->size += entry->size;
}

void truce__segment_encode(struct segment *segment, const struct segment_pages *pages,
                           struct buffer *out)
{
    size_t index = SEGMENT_HEAD_BYTES + segment->head.entries * (size_t)SEGMENT_ENTRY_BYTES;
    uint8_t *at;

    truce_assert(segment->head.entries <= SEGMENT_ENTRIES_MAX);
    out->size = 0;
    truce__buffer_reserve(out, SEGMENT_BYTES_MAX);
    segment_put_head(&segment->head, out->bytes);
    at = out->bytes + SEGMENT_HEAD_BYTES;
    for (uint32_t i = 0; i < segment->head.entries; i++) {
        segment_put(&at, segment->entries[i].sum, 8);
        segment_put(&at, (uint64_t)segment->entries[i].time_ms, 8);
        segment_put(&at, segment->entries[i].page, 4);
        segment_put(&at, segment->entries[i].pages_after, 4);
        segment_put(&at, segment->entries[i].size, 4);
    }
    truce__sha256(out->bytes, index, segment->hash);
    out->size = index;
    truce__buffer_append(out, segment->hash, SHA256_BYTES);
    truce__buffer_append(out, pages->data.bytes, pages->data.size);
}

/* ---- reading a segment ---------------------------------------------------------------------- */

static truce_status segment_refuse(const struct segment_name *name, const char *reason,
                                   bson_error_t *error)
{
    char text[SEGMENT_NAME_BYTES];

    truce__segment_name(name, text);
    return truce__fail(TRUCE_CORRUPT, error, "the segment %s of the archive is damaged: %s", text,
                       reason);
}

const uint8_t *truce__segment_page(struct segment_pages *pages, const struct segment *segment,
                                   uint32_t entry)
{
    const struct segment_entry *of = &segment->entries[entry];
    const uint8_t *data = segment->data + pages->at;
    uint8_t *version;

    pages->at += of->size;
    if (segment->head.kind == SEGMENT_BASE)
        return data;
    version = pages_before(pages, of->page);
    if (version && of->size < SEGMENT_PAGE_BYTES)
        return change_apply(data, of->size, of->sum, version) ? version : NULL;
    if (version)
        memcpy(version, data, SEGMENT_PAGE_BYTES);
    return version;
}

void truce__segment_find_last(struct segment_pages *pages, const struct segment *segment,
                              uint32_t count, bool last[SEGMENT_ENTRIES_MAX])
{
    truce__segment_pages_begin(pages);
    for (uint32_t i = count; i--;) {
        uint32_t number = segment->entries[i].page;

        last[i] = !pages_find(pages, number) && pages_add(pages, number);
    }
    truce__segment_pages_begin(pages);
}

/* Compares each page with the checksum in its entry, and with the checksum in the page. */
static bool pages_are_right(const struct segment *segment, struct segment_pages *pages)
{
    truce__segment_pages_begin(pages);
    for (uint32_t i = 0; i < segment->head.entries; i++) {
        const uint8_t *page = truce__segment_page(pages, segment, i), *at;
        uint64_t sum = page ? truce__kv_page_sum(page, segment->entries[i].page) : 0;

        if (!page || sum != segment->entries[i].sum)
            return false;
        at = page + CHANGE_BYTES;
        if (segment_take(&at, 8) != sum && !segment_page_is_empty(page))
            return false;
    }
    return true;
}

/* Sums the sizes of the entries. Returns false if an entry is not valid. */
static bool entries_are_right(const struct segment *segment, size_t *size)
{
    bool whole = segment->head.kind == SEGMENT_BASE;

    *size = 0;
    for (uint32_t i = 0; i < segment->head.entries; i++) {
        const struct segment_entry *entry = &segment->entries[i];

        if (!entry->page || entry->size > SEGMENT_PAGE_BYTES ||
            (whole && entry->size < SEGMENT_PAGE_BYTES))
            return false;
        *size += entry->size;
    }
    return *size <= SEGMENT_DATA_BYTES_MAX;
}

static void segment_take_entries(const uint8_t *at, struct segment *segment)
{
    for (uint32_t i = 0; i < segment->head.entries; i++) {
        segment->entries[i].sum = segment_take(&at, 8);
        segment->entries[i].time_ms = (int64_t)segment_take(&at, 8);
        segment->entries[i].page = (uint32_t)segment_take(&at, 4);
        segment->entries[i].pages_after = (uint32_t)segment_take(&at, 4);
        segment->entries[i].size = (uint32_t)segment_take(&at, 4);
    }
}

truce_status truce__segment_decode(const struct segment_name *name, const uint8_t *bytes,
                                   size_t size, struct segment_pages *pages,
                                   struct segment *segment, bson_error_t *error)
{
    struct segment_head *head = &segment->head;
    size_t hashed, data;

    segment->data = NULL;
    if (size < SEGMENT_HEAD_BYTES + SHA256_BYTES)
        return segment_refuse(name, "it is too short", error);
    if (!segment_take_head(bytes, head))
        return segment_refuse(name, "it has no valid header of this version", error);
    if (head->entries > SEGMENT_ENTRIES_MAX)
        return segment_refuse(name, "it has too many pages", error);
    hashed = SEGMENT_HEAD_BYTES + head->entries * (size_t)SEGMENT_ENTRY_BYTES;
    if (size < hashed + SHA256_BYTES)
        return segment_refuse(name, "its length is wrong", error);
    truce__sha256(bytes, hashed, segment->hash);
    if (memcmp(segment->hash, bytes + hashed, SHA256_BYTES) != 0)
        return segment_refuse(name, "its hash is wrong", error);
    if (head->generation != name->generation || head->sequence != name->sequence ||
        head->kind != name->kind)
        return segment_refuse(name, "its header belongs to a segment with another name", error);
    if (head->age_ms < 0 || head->age_ms > MS_MAX || head->clock_ms < 0 || head->clock_ms > MS_MAX)
        return segment_refuse(name, "its time is out of range", error);
    segment_take_entries(bytes + SEGMENT_HEAD_BYTES, segment);
    if (!entries_are_right(segment, &data))
        return segment_refuse(name, "one of its entries is invalid", error);
    if (!pages)
        return TRUCE_OK;
    if (size != hashed + SHA256_BYTES + data)
        return segment_refuse(name, "its length is wrong", error);
    segment->data = bytes + hashed + SHA256_BYTES;
    return pages_are_right(segment, pages)
               ? TRUCE_OK
               : segment_refuse(name, "a checksum of a page is wrong", error);
}
