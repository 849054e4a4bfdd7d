#ifndef TRUCE_QUERY_SORT_SPILL_FILE_H
#define TRUCE_QUERY_SORT_SPILL_FILE_H

/* Storage for bytes that do not fit into memory: written once, in order, then read once, in order.
 * The store makes it from temporary files; query/ opens no file. */
#include <stdbool.h>

#include "base/budget.h"
#include "base/buffer.h"
#include "truce/status.h"

struct spill {
    truce_status (*write)(struct spill *spill, const void *bytes, size_t size, bson_error_t *error);
    truce_status (*rewind)(struct spill *spill, bson_error_t *error);
    /* Reads up to `size` bytes. *got is less than `size` only at the end of the file. */
    truce_status (*read)(struct spill *spill, void *bytes, size_t size, size_t *got,
                         bson_error_t *error);
    void (*free)(struct spill *spill);
};

/* The limit of memory, and the storage for further content. */
struct spill_options {
    /* The limit in bytes. 0 means TRUCE_STAGE_MEMORY_MAX. */
    size_t memory_max;
    truce_status (*open)(void *arg, struct spill **spill, bson_error_t *error);
    void *arg;
    /* The limits of time and memory of all stages together, or NULL for no limits. */
    struct budget *budget;
};

/* A stage that holds fewer bytes does not spill, even if other stages hold many. */
#define SPILL_BYTES_MIN (256 * 1024)

/*
 * Records in a spill: byte strings, each returned whole and aligned for a uint64_t.
 *
 *     truce__spill_begin, truce__spill_put ..., truce__spill_end_run, truce__spill_get ...
 */
struct spill_file {
    /* The storage, or NULL before truce__spill_begin. */
    struct spill *spill;
    struct buffer buffer;
    /* For reading: where the next record begins, and the size of the last one. */
    size_t at, taken;
    bool ended;
};

truce_status truce__spill_begin(struct spill_file *file, const struct spill_options *options,
                                bson_error_t *error);
truce_status truce__spill_put(struct spill_file *file, const void *bytes, size_t size,
                              bson_error_t *error);
/* Switches from writing to reading. */
truce_status truce__spill_end_run(struct spill_file *file, bson_error_t *error);
/* Sets *bytes to the next record, borrowed until the next call, or to NULL at the end. Fails with
 * TRUCE_CORRUPT if the file is truncated. */
truce_status truce__spill_get(struct spill_file *file, const void **bytes, size_t *size,
                              bson_error_t *error);
void truce__spill_release(struct spill_file *file);

#endif
