/* Sets of numbers, 4,096 to a block, one bit for each. */
#include "base/assert.h"
#include "patterns/set/set.h"

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

bool truce__block_has(const struct block *block, int number)
{
    truce_assert(number >= 0 && number < BLOCK_NUMBERS);
    return block->bits[number / 8] >> number % 8 & 1;
}

bool truce__block_unite(struct block *block, const struct block *from)
{
    uint8_t added = 0;

    for (int i = 0; i < BLOCK_BYTES; i++) {
        added |= from->bits[i] & (uint8_t)~block->bits[i];
        block->bits[i] |= from->bits[i];
    }
    return added != 0;
}

int truce__block_missing(const struct block *block, int from)
{
    int n = from;

    while (n < BLOCK_NUMBERS) {
        if (n % 8 == 0 && block->bits[n / 8] == 0xff)
            n += 8;
        else if (truce__block_has(block, n))
            n++;
        else
            return n;
    }
    return BLOCK_NUMBERS;
}

void truce__block_append(const struct block *block, bson_t *document, const char *field)
{
    uint32_t size = BLOCK_BYTES;

    while (size && !block->bits[size - 1])
        size--;
    bson_append_binary(document, field, -1, BSON_SUBTYPE_BINARY, block->bits, size);
}

void truce__block_read(const bson_t *document, const char *field, struct block *block)
{
    bson_iter_t iter;
    bson_subtype_t subtype;
    const uint8_t *bytes;
    uint32_t size;

    memset(block, 0, sizeof *block);
    if (!bson_iter_init_find(&iter, document, field) || !BSON_ITER_HOLDS_BINARY(&iter))
        return;
    bson_iter_binary(&iter, &subtype, &size, &bytes);
    memcpy(block->bits, bytes, size < BLOCK_BYTES ? size : BLOCK_BYTES);
}
