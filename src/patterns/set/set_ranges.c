/*
 * Sets of numbers: as ranges in memory, and as bytes in documents.
 *
 * Stored ranges are variable-length numbers: seven bits in a byte, the lowest first; the highest
 * bit says that another byte follows. Each range has the number 2 * gap, where the gap is the
 * count of numbers between it and the range before it (or from the base on, for the first range).
 * If the range has more than one number, the number is 2 * gap + 1, and the count of further
 * numbers follows. A block has one bit for each of its numbers.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "patterns/set/set.h"

void truce__ranges_release(struct ranges *ranges)
{
    bson_free(ranges->at);
    *ranges = (struct ranges){0};
}

static void ranges_grow(struct ranges *ranges)
{
    if (ranges->count < ranges->room)
        return;
    ranges->room = ranges->room ? 2 * ranges->room : 16;
    ranges->at = bson_realloc(ranges->at, ranges->room * sizeof *ranges->at);
}

/* Returns the first range that ends at or after `number`. */
static size_t first_from(const struct ranges *ranges, int64_t number)
{
    size_t low = 0, high = ranges->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (ranges->at[middle].to < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool truce__ranges_touch(const struct ranges *ranges, int64_t from, int64_t to)
{
    size_t i = first_from(ranges, from - 1);

    return i < ranges->count && ranges->at[i].from <= truce__number_after(to);
}

bool truce__ranges_has(const struct ranges *ranges, int64_t number)
{
    size_t i = first_from(ranges, number);

    return i < ranges->count && ranges->at[i].from <= number;
}

int64_t truce__ranges_end(const struct ranges *ranges, int64_t from)
{
    size_t i = first_from(ranges, from);

    return i < ranges->count && ranges->at[i].from <= from ? ranges->at[i].to : from - 1;
}

void truce__ranges_add(struct ranges *ranges, int64_t from, int64_t to)
{
    size_t i = first_from(ranges, from - 1), end = i;

    truce_assert(from > INT64_MIN && from <= to);
    for (; end < ranges->count && ranges->at[end].from <= truce__number_after(to); end++) {
        from = ranges->at[end].from < from ? ranges->at[end].from : from;
        to = ranges->at[end].to > to ? ranges->at[end].to : to;
    }
    if (i == end) {
        ranges_grow(ranges);
        memmove(ranges->at + i + 1, ranges->at + i, (ranges->count - i) * sizeof *ranges->at);
        ranges->count++;
    } else {
        memmove(ranges->at + i + 1, ranges->at + end, (ranges->count - end) * sizeof *ranges->at);
        ranges->count -= end - i - 1;
    }
    ranges->at[i] = (struct range){from, to};
}

void truce__ranges_append(struct ranges *ranges, int64_t from, int64_t to)
{
    ranges_grow(ranges);
    ranges->at[ranges->count++] = (struct range){from, to};
}

static int ranges_by_from(const void *left, const void *right)
{
    const struct range *a = left, *b = right;

    return (a->from > b->from) - (a->from < b->from);
}

void truce__ranges_settle(struct ranges *ranges)
{
    size_t kept = 0;

    if (ranges->count)
        qsort(ranges->at, ranges->count, sizeof *ranges->at, ranges_by_from);
    for (size_t i = 1; i < ranges->count; i++) {
        struct range *last = &ranges->at[kept], next = ranges->at[i];

        if (next.from > truce__number_after(last->to))
            ranges->at[++kept] = next;
        else if (next.to > last->to)
            last->to = next.to;
    }
    if (ranges->count)
        ranges->count = kept + 1;
}

void truce__ranges_merge(struct ranges *ranges, const struct ranges *more)
{
    struct ranges both = {0};
    size_t i = 0, k = 0;

    while (i < ranges->count || k < more->count) {
        bool old =
            k == more->count || (i < ranges->count && ranges->at[i].from <= more->at[k].from);
        struct range next = old ? ranges->at[i++] : more->at[k++];
        struct range *last = both.count ? &both.at[both.count - 1] : NULL;

        if (!last || next.from > truce__number_after(last->to))
            truce__ranges_append(&both, next.from, next.to);
        else if (next.to > last->to)
            last->to = next.to;
    }
    truce__ranges_release(ranges);
    *ranges = both;
}

/* ---- bytes ---- */

static void ranges_put_number(struct buffer *bytes, uint64_t number)
{
    uint8_t byte;

    do {
        byte = (uint8_t)(number & 0x7f) | (number > 0x7f ? 0x80 : 0);
        truce__buffer_append(bytes, &byte, 1);
        number >>= 7;
    } while (number);
}

static bool ranges_take_number(const uint8_t **at, const uint8_t *end, uint64_t *number)
{
    *number = 0;
    for (int shift = 0; shift < 63 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;

        *number |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

void truce__ranges_store(const struct ranges *ranges, int64_t base, bson_t *document,
                         const char *field)
{
    struct buffer bytes = {0};
    int64_t next = base;

    for (size_t i = 0; i < ranges->count; i++) {
        struct range range = ranges->at[i];

        ranges_put_number(&bytes, (uint64_t)(range.from - next) * 2 + (range.to > range.from));
        if (range.to > range.from)
            ranges_put_number(&bytes, (uint64_t)(range.to - range.from));
        next = truce__number_after(range.to);
    }
    bson_append_binary(document, field, -1, BSON_SUBTYPE_BINARY, bytes.bytes, (uint32_t)bytes.size);
    truce__buffer_release(&bytes);
}

static bool find_bytes(const bson_t *document, const char *field, const uint8_t **bytes,
                       uint32_t *size)
{
    bson_iter_t iter;
    bson_subtype_t subtype;

    if (!bson_iter_init_find(&iter, document, field) || !BSON_ITER_HOLDS_BINARY(&iter))
        return false;
    bson_iter_binary(&iter, &subtype, size, bytes);
    return true;
}

bool truce__ranges_read(const bson_t *document, const char *field, int64_t base, int64_t end,
                        struct ranges *ranges)
{
    const uint8_t *at, *bytes_end;
    /* `left` is the number of numbers from `next` to `end`. */
    uint64_t gap, more, left = (uint64_t)end - (uint64_t)base + 1;
    int64_t next = base;
    uint32_t size;

    if (!find_bytes(document, field, &at, &size))
        return false;
    for (bytes_end = at + size; at < bytes_end;) {
        if (!ranges_take_number(&at, bytes_end, &gap) || gap / 2 >= left)
            return false;
        left -= gap / 2 + 1;
        next += (int64_t)(gap / 2);
        more = 0;
        if (gap % 2 && (!ranges_take_number(&at, bytes_end, &more) || more > left))
            return false;
        left -= more;
        truce__ranges_append(ranges, next, next + (int64_t)more);
        next = truce__number_after(next + (int64_t)more);
    }
    return true;
}

/* ---- blocks ---- */

void truce__block_add(struct block *block, int from, int to)
{
    truce_assert(from >= 0 && from <= to && to < BLOCK_NUMBERS);
    for (int n = from; n <= to; n++) {
        if (n % 8 == 0 && n + 7 <= to) {
            block->bits[n / 8] = 0xff;
            n += 7;
        } else {
            block->bits[n / 8] |= (uint8_t)(1 << n % 8);
        }
    }
}

void truce__block_take(struct block *block, int64_t base, const struct ranges *ranges)
{
    int64_t end = base + (BLOCK_NUMBERS - 1);

    for (size_t i = first_from(ranges, base); i < ranges->count && ranges->at[i].from <= end; i++) {
        int64_t from = ranges->at[i].from > base ? ranges->at[i].from : base;
        int64_t to = ranges->at[i].to < end ? ranges->at[i].to : end;

        truce__block_add(block, (int)(from - base), (int)(to - base));
    }
}

void truce__block_store(const struct ranges *ranges, int64_t base, bson_t *document,
                        const char *field)
{
    struct block block = {{0}};
    uint32_t size = BLOCK_BYTES;

    truce__block_take(&block, base, ranges);
    while (size && !block.bits[size - 1])
        size--;
    bson_append_binary(document, field, -1, BSON_SUBTYPE_BINARY, block.bits, size);
}

bool truce__block_read(const bson_t *document, const char *field, int64_t base,
                       struct ranges *ranges)
{
    const uint8_t *bytes;
    uint32_t size;
    int from = -1;

    if (!find_bytes(document, field, &bytes, &size) || size > BLOCK_BYTES)
        return false;
    for (int n = 0; n <= (int)size * 8; n++) {
        bool in = n < (int)size * 8 && bytes[n / 8] >> n % 8 & 1;

        if (in && from < 0)
            from = n;
        if (!in && from >= 0) {
            truce__ranges_append(ranges, base + from, base + n - 1);
            from = -1;
        }
    }
    return true;
}
