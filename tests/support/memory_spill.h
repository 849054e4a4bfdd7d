#ifndef TRUCE_TESTS_SUPPORT_MEMORY_SPILL_H
#define TRUCE_TESTS_SUPPORT_MEMORY_SPILL_H

/* Spills (query/sort/spill_file.h) that keep their bytes in memory and check how they are used:
 * written, then rewound once, then read. */
#include <stddef.h>

#include "query/sort/spill_file.h"

struct memory_spills {
    /* The number of spills that were opened and freed, and the maximum number that was open at
     * once. */
    int opened, freed, open_most;
    /* The number of bytes written to all spills. */
    size_t bytes;
    /* The call of this number, of any kind, fails with TRUCE_IO. 0 means none. */
    int fail_at;
    /* The number of calls so far. */
    int calls;
};

/* Opens a spill; used as spill_options.open and aggregate_environment.spill. `arg` is a struct
 * memory_spills. */
truce_status memory_spill_open(void *arg, struct spill **spill, bson_error_t *error);

#endif
