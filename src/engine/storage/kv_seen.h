#ifndef TRUCE_ENGINE_KV_SEEN_H
#define TRUCE_ENGINE_KV_SEEN_H

/*
 * Which bodies a connection has looked at and found sound, so that it need not look again: a fingerprint
 * of 32 bits for each row. Rows that are not remembered are looked at again, so it may forget whenever it
 * likes.
 *
 * A file that was made to do harm may show other bytes under the number of the same row, so the number alone
 * says nothing. The fingerprint is one of a family of universal hashes (NH of Black et al., 1999) that is chosen
 * at random by each process: who makes a file cannot know it, and bytes that were never looked at pass for others
 * once in 2^31.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEEN_ROWS   1024 /* of one block: 4 KB */
#define SEEN_BLOCKS 1024 /* a million rows, 4 MB */

struct seen_block {
    int64_t table, number;
    uint32_t prints[SEEN_ROWS]; /* 0: not seen */
};

/* Zero-initialised is empty. */
struct seen {
    struct seen_block *blocks[SEEN_BLOCKS];
};

/* Never 0. */
uint32_t truce__seen_print(const uint8_t *body, size_t size);

static inline uint32_t truce__seen_slot(int64_t table, int64_t number)
{
    return (uint32_t)((uint64_t)number + (uint64_t)table * 0x9e3779b9u) % SEEN_BLOCKS;
}

static inline bool truce__seen_has(const struct seen *seen, int64_t table, int64_t row,
                                   const uint8_t *body, size_t size)
{
    int64_t number = (int64_t)((uint64_t)row / SEEN_ROWS);
    const struct seen_block *block = seen->blocks[truce__seen_slot(table, number)];
    uint32_t print;

    if (!block || block->table != table || block->number != number)
        return false;
    print = block->prints[(uint64_t)row % SEEN_ROWS];
    return print && print == truce__seen_print(body, size);
}

void truce__seen_add(struct seen *seen, int64_t table, int64_t row, const uint8_t *body,
                     size_t size);
void truce__seen_forget(struct seen *seen);

#endif
