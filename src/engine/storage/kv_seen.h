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
 *
 * A walk over rows in their order takes no fingerprints where another walk of the same version of the file has
 * been: from one row on it comes by the same pages to the same bodies. (A row that is looked for by its number may come
 * by others in a file whose tree is not in order, so this is said of walks alone.) The version changes with every commit
 * of anybody, and with everything else that makes SQLite forget its pages.
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

#define SEEN_WALKS 256

/* behind row `after` up to row `upto` of a table all bodies were sound */
struct seen_walk {
    int64_t table, after, upto;
    uint32_t version;
};

/* Zero-initialised is empty. */
struct seen {
    struct seen_block *blocks[SEEN_BLOCKS];
    struct seen_walk walks[SEEN_WALKS];
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

/* Up to which row a walk behind `after` need not look; `after` itself: nothing is known of it. */
int64_t truce__seen_walked(const struct seen *seen, uint32_t version, int64_t table, int64_t after);
void truce__seen_walk(struct seen *seen, uint32_t version, int64_t table, int64_t after,
                      int64_t upto);

void truce__seen_add(struct seen *seen, int64_t table, int64_t row, const uint8_t *body,
                     size_t size);
void truce__seen_forget(struct seen *seen);

#endif
