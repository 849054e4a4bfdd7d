#ifndef TRUCE_QUERY_SPILL_H
#define TRUCE_QUERY_SPILL_H

/* A place for bytes that do not fit into memory: written once, in order, then read once, in order.
 * The store makes them of temporary files; query/ opens no file. */
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
};

#endif
