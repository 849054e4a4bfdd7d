#ifndef TRUCE_ENGINE_KV_SEEN_H
#define TRUCE_ENGINE_KV_SEEN_H

/*
 * Which rows a connection has looked at and found sound, so that it need not look again: one bit each.
 * Rows that are not remembered are looked at again, so it may forget whenever it likes.
 *
 * Bytes that come in from the file are verified by checksums, so a row changes only by a commit, and
 * what truce commits is sound.
 */
#include <stdbool.h>
#include <stdint.h>

#define SEEN_ROWS   8192 /* of one block: 1 KB */
#define SEEN_BLOCKS 2048 /* 16 million rows, 2 MB */

struct seen_block {
    int64_t table, number;
    uint64_t bits[SEEN_ROWS / 64];
};

/* Zero-initialised is empty. */
struct seen {
    struct seen_block *blocks[SEEN_BLOCKS];
};

static inline uint32_t truce__seen_slot(int64_t table, int64_t number)
{
    return (uint32_t)((uint64_t)number + (uint64_t)table * 0x9e3779b9u) % SEEN_BLOCKS;
}

static inline bool truce__seen_has(const struct seen *seen, int64_t table, int64_t row)
{
    int64_t number = row / SEEN_ROWS;
    const struct seen_block *block = seen->blocks[truce__seen_slot(table, number)];

    return block && block->table == table && block->number == number && row >= 0 &&
           block->bits[row % SEEN_ROWS / 64] >> row % 64 & 1;
}

void truce__seen_add(struct seen *seen, int64_t table, int64_t row);
void truce__seen_forget(struct seen *seen);

#endif
