#ifndef TRUCE_TESTS_SUPPORT_ENTRY_POINTS_H
#define TRUCE_TESTS_SUPPORT_ENTRY_POINTS_H

/* Every public call that takes BSON, with documents that need not be sound. */
#include "tests/support/fuzz_input.h"
#include "truce/store.h"

/* Returns how many calls there are. */
extern const uint32_t entry_points_count;
/* Returns the name of an entry point. */
const char *entry_point_name(uint32_t number);

/* Makes the call, with documents and values that are read from the input. The store may be
 * changed by it in any way. */
truce_status entry_point_call(uint32_t number, truce_store *store, struct fuzz_input *input);

/* The same with one malformed document, in the place of every document in turn: each must be
 * refused. */
truce_status entry_point_call_with(uint32_t number, truce_store *store, const bson_t *document,
                                   uint32_t place);
/* Returns how many documents and values it takes. */
uint32_t entry_point_places(uint32_t number);

#endif
