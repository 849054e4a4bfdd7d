/*
 * The entries of a page of a damaged file, as SQLite's file format has them:
 *
 *     page      (page 1: 100 bytes of the file's header) | kind, count, ... | places of the entries | ... entries
 *     inner     child, greatest row (varint)
 *     leaf      size of the record (varint), row (varint), record or its beginning, (first further page)
 *     further   next further page or 0, bytes
 *     map       (kind of a page, what names it) for each of the pages behind it; page 2, and each 818th from there
 *     record    size of its header, a number for each column: type and size | columns
 *
 * Every place and size is compared with the page's or the record's end. A further page is used once, so that
 * no chain is endless, and no page is read for more than one document.
 */
#include <string.h>

#include "base/limits.h"
#include "engine/storage/page_recovery.h"

#define KIND_INNER   5
#define KIND_LEAF    13
#define FILE_HEADER  100
#define PLACE_COUNT  3
#define PLACE_LAST   8 /* of an inner page: its last child */
#define INNER_HEADER 12
#define LEAF_HEADER  8
#define MAP_ENTRY    5
#define MAP_KIND_MAX 5
#define RECORD_MAX   (TRUCE_ROW_BYTES_MAX + 64)

static uint32_t short_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t entry_number_at(const uint8_t *at)
{
    return short_at(at) << 16 | short_at(at + 2);
}

/* `*at` moves behind it. */
static bool read_varint(const uint8_t *bytes, size_t end, size_t *at, uint64_t *number)
{
    *number = 0;
    for (int i = 0; i < 9; i++) {
        if (*at >= end)
            return false;
        if (i == 8) {
            *number = *number << 8 | bytes[(*at)++];
            return true;
        }
        *number = *number << 7 | (bytes[*at] & 0x7f);
        if (!(bytes[(*at)++] & 0x80))
            return true;
    }
    return false;
}

/* ---- pages ------------------------------------------------------------------------------------ */

static uint32_t header_size(const struct wreck_page *page)
{
    return page->kind == WRECK_INNER ? INNER_HEADER : LEAF_HEADER;
}

static size_t entry_place_of(const struct wreck_page *page, uint32_t i)
{
    return short_at(page->bytes + page->start + header_size(page) + 2 * (size_t)i);
}

static bool places_make_sense(const struct wreck *wreck, const struct wreck_page *page)
{
    size_t least = page->start + header_size(page) + 2 * (size_t)page->count;

    if (least > wreck->usable)
        return false;
    for (uint32_t i = 0; i < page->count; i++) {
        if (entry_place_of(page, i) < least || entry_place_of(page, i) + 4 > wreck->usable)
            return false;
    }
    return true;
}

/* A file has maps or not; what is one can be read as a page of a tree, too, but not the other way round. */
static bool is_map(const struct wreck *wreck, uint32_t number, const uint8_t *bytes)
{
    uint32_t entries = wreck->usable / MAP_ENTRY;
    bool more = true;

    if (number < 2 || (number - 2) % (entries + 1) || !bytes[0])
        return false;
    for (uint32_t i = 0; i < entries; i++, bytes += MAP_ENTRY) {
        if (*bytes > MAP_KIND_MAX || (!more && *bytes))
            return false;
        more = *bytes;
    }
    return true;
}

void truce__wreck_page(const struct wreck *wreck, uint32_t number, struct wreck_page *page)
{
    page->number = number;
    page->state = truce__wreck_read(wreck, number, page->bytes);
    page->kind = WRECK_OTHER;
    page->count = 0;
    page->start = number == 1 ? FILE_HEADER : 0;
    if (page->state == WRECK_GONE || is_map(wreck, number, page->bytes))
        return;
    if (page->bytes[page->start] == KIND_INNER)
        page->kind = WRECK_INNER;
    else if (page->bytes[page->start] == KIND_LEAF)
        page->kind = WRECK_LEAF;
    page->count = short_at(page->bytes + page->start + PLACE_COUNT);
    if (page->kind != WRECK_OTHER && !places_make_sense(wreck, page))
        page->kind = WRECK_OTHER;
}

bool truce__wreck_child(const struct wreck *wreck, const struct wreck_page *page, uint32_t i,
                        uint32_t *child, int64_t *row)
{
    size_t at;
    uint64_t key;

    if (i == page->count) {
        *child = entry_number_at(page->bytes + page->start + PLACE_LAST);
        *row = INT64_MAX;
        return *child > 1 && *child <= wreck->pages;
    }
    at = entry_place_of(page, i);
    *child = entry_number_at(page->bytes + at);
    at += 4;
    if (!read_varint(page->bytes, wreck->usable, &at, &key))
        return false;
    *row = (int64_t)key;
    return *child > 1 && *child <= wreck->pages;
}

bool truce__wreck_row(const struct wreck *wreck, const struct wreck_page *page, uint32_t i,
                      int64_t *row)
{
    size_t at = entry_place_of(page, i);
    uint64_t size, key;

    if (!read_varint(page->bytes, wreck->usable, &at, &size) ||
        !read_varint(page->bytes, wreck->usable, &at, &key))
        return false;
    *row = (int64_t)key;
    return true;
}

/* ---- records ---------------------------------------------------------------------------------- */

/* So much of a record stands on the page itself. */
static size_t local_part(const struct wreck *wreck, size_t size)
{
    size_t usable = wreck->usable, most = usable - 35, least, part;

    if (size <= most)
        return size;
    least = (usable - 12) * 32 / 255 - 23;
    part = least + (size - least) % (usable - 4);
    return part <= most ? part : least;
}

static bool entry_follow(const struct wreck *wreck, uint32_t next, size_t left, bool take,
                         struct buffer *record, bool *doubtful)
{
    uint8_t bytes[WRECK_PAGE_BYTES];

    while (left) {
        size_t part = left < wreck->usable - 4 ? left : wreck->usable - 4;
        enum wreck_state state = truce__wreck_read(wreck, next, bytes);

        if (state == WRECK_GONE || wreck->marks[next] & (WRECK_USED | WRECK_FREE))
            return false;
        if (take)
            wreck->marks[next] |= WRECK_USED;
        *doubtful = *doubtful || state == WRECK_DOUBTFUL;
        truce__buffer_append(record, bytes + 4, part);
        left -= part;
        next = entry_number_at(bytes);
    }
    return true;
}

bool truce__wreck_record(const struct wreck *wreck, const struct wreck_page *page, uint32_t i,
                         bool take, struct buffer *record, bool *doubtful)
{
    size_t at = entry_place_of(page, i), part;
    uint64_t size, row;

    if (!read_varint(page->bytes, wreck->usable, &at, &size) ||
        !read_varint(page->bytes, wreck->usable, &at, &row) || size > RECORD_MAX)
        return false;
    part = local_part(wreck, size);
    if (at + part + (part < size ? 4 : 0) > wreck->usable)
        return false;
    truce__buffer_append(record, page->bytes + at, part);
    if (part == size)
        return true;
    return entry_follow(wreck, entry_number_at(page->bytes + at + part), size - part, take, record,
                        doubtful);
}

static bool size_of_type(uint64_t type, size_t *size)
{
    static const uint8_t sizes[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};

    if (type >= 12)
        *size = (type - 12) / 2;
    else if (type < sizeof sizes)
        *size = sizes[type];
    return type >= 12 ? type < UINT64_C(1) << 40 : type < sizeof sizes;
}

static int64_t entry_read_number(uint64_t type, const uint8_t *at, size_t size)
{
    uint64_t number = size && at[0] & 0x80 ? UINT64_MAX : 0;

    for (size_t i = 0; i < size; i++)
        number = number << 8 | at[i];
    return type == 9 ? 1 : (int64_t)number;
}

bool truce__wreck_column(const struct buffer *record, int which, struct wreck_column *column)
{
    size_t at = 0, body, size = 0;
    uint64_t header, type = 0;

    if (!read_varint(record->bytes, record->size, &at, &header) || header > record->size)
        return false;
    body = header;
    for (int i = 0; i <= which; i++) {
        body += size;
        if (!read_varint(record->bytes, header, &at, &type) || !size_of_type(type, &size) ||
            size > record->size || body > record->size - size)
            return false;
    }
    *column =
        (struct wreck_column){.bytes = type >= 12, .data = record->bytes + body, .size = size};
    if (!column->bytes)
        column->number = entry_read_number(type, column->data, size);
    return true;
}
