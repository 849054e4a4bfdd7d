#ifndef TRUCE_ENGINE_KV_SEEN_H
#define TRUCE_ENGINE_KV_SEEN_H

/*
 * The bodies that a connection has checked and found sound, so that it need not check them again: a
 * fingerprint of 32 bits for each row. Rows that are not remembered are checked again, so entries
 * can be dropped at any time.
 *
 * A malicious file may show different bytes for the same row, so the row number alone proves
 * nothing. The fingerprint is one of a family of universal hashes (NH of Black et al., 1999) that
 * each process chooses at random. The author of a file cannot know it, and unchecked bytes pass for
 * others once in 2^31.
 *
 * A walk over rows in their order takes no fingerprints where another walk of the same version of
 * the file has been. From a given row it reaches the same bodies through the same pages. A lookup
 * by row number may take other pages if the tree of the file is out of order, so this holds for
 * walks alone. The version changes with every commit of any process, and whenever SQLite drops its
 * pages.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rows of one block: 4 KB. */
#define SEEN_ROWS 1024
/* A million rows: 4 MB. */
#define SEEN_BLOCKS 1024

struct seen_block {
    int64_t table, number;
    /* 0: not checked. */
    uint32_t prints[SEEN_ROWS];
};

#define SEEN_WALKS 256

/* In this table, all bodies after row `after` up to row `upto` were sound. */
struct seen_walk {
    int64_t table, after, upto;
    uint32_t version;
};

/* Zero-initialised is empty. */
struct seen {
    struct seen_block *blocks[SEEN_BLOCKS];
    struct seen_walk walks[SEEN_WALKS];
};

/* Returns the fingerprint, which is never 0. */
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

/* Returns the row up to which a walk after `after` need not check; `after` itself if nothing is
 * known. */
int64_t truce__seen_walked(const struct seen *seen, uint32_t version, int64_t table, int64_t after);
void truce__seen_walk(struct seen *seen, uint32_t version, int64_t table, int64_t after,
                      int64_t upto);

void truce__seen_add(struct seen *seen, int64_t table, int64_t row, const uint8_t *body,
                     size_t size);
void truce__seen_forget(struct seen *seen);

#endif
