#ifndef TRUCE_TESTS_SUPPORT_MEMORY_SPILL_H
#define TRUCE_TESTS_SUPPORT_MEMORY_SPILL_H

/* Spills (query/sort/spill_file.h) that keep their bytes in memory and check how they are used:
 * written, then rewound once, then read. */
#include <stddef.h>

#include "query/sort/spill_file.h"

struct memory_spills {
    int opened, freed, open_most; /* how many in total; how many at once */
    size_t bytes;                 /* written, all together */
    int fail_at;                  /* the n-th call of any kind fails with TRUCE_IO; 0: none does */
    int calls;
};

/* For spill_options.open and aggregate_environment.spill; `arg` is a struct memory_spills. */
truce_status memory_spill_open(void *arg, struct spill **spill, bson_error_t *error);

#endif
