#ifndef TRUCE_QUERY_SORT_SPILL_H
#define TRUCE_QUERY_SORT_SPILL_H

/* A place for bytes that do not fit into memory: written once, in order, then read once, in order.
 * The store makes them of temporary files; query/ opens no file. */
#include <stdbool.h>

#include "base/budget.h"
#include "base/buffer.h"
#include "truce/status.h"

struct spill {
    truce_status (*write)(struct spill *spill, const void *bytes, size_t size, bson_error_t *error);
    truce_status (*rewind)(struct spill *spill, bson_error_t *error);
    /* *got < size at the end */
    truce_status (*read)(struct spill *spill, void *bytes, size_t size, size_t *got,
                         bson_error_t *error);
    void (*free)(struct spill *spill);
};

/* How much memory may be taken, and where what is more goes. */
struct spill_options {
    size_t memory_max; /* 0: TRUCE_STAGE_MEMORY_MAX */
    truce_status (*open)(void *arg, struct spill **spill, bson_error_t *error);
    void *arg;
    struct budget *budget; /* time, and memory of all who share it; NULL: as much as it takes */
};

/* Who holds less does not spill because others hold much. */
#define SPILL_BYTES_MIN (256 * 1024)

/*
 * Records in a spill: each a number of bytes, given back whole, aligned for a uint64_t.
 *
 *     truce__spill_begin, truce__spill_put ..., truce__spill_turn, truce__spill_get ...
 */
struct spill_file {
    struct spill *spill; /* NULL: not begun */
    struct buffer buffer;
    size_t at, taken; /* reading: where the next record begins; size of the one given last */
    bool ended;
};

truce_status truce__spill_begin(struct spill_file *file, const struct spill_options *options,
                                bson_error_t *error);
truce_status truce__spill_put(struct spill_file *file, const void *bytes, size_t size,
                              bson_error_t *error);
/* From writing to reading. */
truce_status truce__spill_turn(struct spill_file *file, bson_error_t *error);
/* Borrowed until the next call; *bytes is NULL at the end. TRUCE_CORRUPT: it is cut short. */
truce_status truce__spill_get(struct spill_file *file, const void **bytes, size_t *size,
                              bson_error_t *error);
void truce__spill_release(struct spill_file *file);

#endif
