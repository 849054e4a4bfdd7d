#ifndef TRUCE_ENGINE_STORAGE_BODY_FINGERPRINTS_H
#define TRUCE_ENGINE_STORAGE_BODY_FINGERPRINTS_H

/*
 * Fingerprints of document bodies that a connection of the store has checked, so that no connection
 * checks them again: 32 bits for each row.
 *
 *     prints[hash of (table, row)]    the fingerprint of a valid body, or 0
 *
 * A malicious file may show different bytes for the same row, so the row number alone proves
 * nothing. The hash function is one of a universal family (NH of Black et al., 1999); each process
 * chooses it at random. The author of a file cannot know it. Bytes that were not checked
 * have the stored fingerprint with a probability of 2^-31.
 *
 * Invariant: a stored fingerprint is that of a body that was valid. Validity depends on the bytes
 * alone, so it does not matter which row, connection, or snapshot had them. Therefore rows may
 * share an element of `prints`, and threads read and write it without a lock. A fingerprint may be
 * dropped at any time: then its body is checked again.
 *
 * A walk over rows in their order computes no fingerprints for rows that an earlier walk of the
 * same connection has passed in the same version of the file. From a given row, both walks reach
 * the same bodies through the same pages. A lookup by row number may take other pages if the tree
 * of the file is out of order, so this holds for walks alone. The version changes with every commit
 * of any process, and whenever SQLite drops its pages.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The base-2 logarithm of the number of fingerprints. They take four megabytes, whose pages are
 * allocated when they are used. */
#define SEEN_BITS 20

struct seen {
    atomic_uint prints[1 << SEEN_BITS];
};

/* The maximum number of walks that are remembered. */
#define SEEN_WALKS 256

/* A walk over a table in a version of the file: all bodies after row `after` up to row `upto` were
 * valid. */
struct seen_walk {
    int64_t table, after, upto;
    uint32_t version;
};

/* The walks of one connection. A zero-initialized struct has none. */
struct seen_walks {
    struct seen_walk all[SEEN_WALKS];
};

/* Creates the table of fingerprints. Any thread uses it. */
struct seen *truce__seen_new(void);
/* Frees the table. NULL is allowed. */
void truce__seen_free(struct seen *seen);

/* Returns the fingerprint of a body, which is never 0. */
uint32_t truce__seen_print(const uint8_t *body, size_t size);

/* Returns the position of a row's fingerprint in `prints`. Neighboring rows have neighboring
 * positions. */
static inline uint32_t truce__seen_slot(int64_t table, int64_t row)
{
    return (uint32_t)((uint64_t)row + ((uint64_t)table * 0x9e3779b97f4a7c15u >> 32)) %
           (1u << SEEN_BITS);
}

static inline bool truce__seen_has(const struct seen *seen, int64_t table, int64_t row,
                                   const uint8_t *body, size_t size)
{
    uint32_t print =
        atomic_load_explicit(&seen->prints[truce__seen_slot(table, row)], memory_order_relaxed);

    return print && print == truce__seen_print(body, size);
}

/* Records that the body of the row is valid. */
void truce__seen_add(struct seen *seen, int64_t table, int64_t row, const uint8_t *body,
                     size_t size);

/* Returns the row up to which a walk that begins after `after` need not check bodies, or `after` if
 * no walk is known. */
int64_t truce__seen_walked(const struct seen_walks *walks, uint32_t version, int64_t table,
                           int64_t after);
void truce__seen_walk(struct seen_walks *walks, uint32_t version, int64_t table, int64_t after,
                      int64_t upto);

#endif
