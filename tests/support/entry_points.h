#ifndef TRUCE_TESTS_SUPPORT_ENTRY_POINTS_H
#define TRUCE_TESTS_SUPPORT_ENTRY_POINTS_H

/* Every public call that takes BSON, with documents that may be malformed. */
#include "tests/support/fuzz_input.h"
#include "truce/store.h"

/* The number of calls. */
extern const uint32_t entry_points_count;
/* Returns the name of an entry point. */
const char *entry_point_name(uint32_t number);

/* Makes the call with documents and values that are read from the input. The call may change the
 * store in any way. */
truce_status entry_point_call(uint32_t number, truce_store *store, struct fuzz_input *input);

/* Makes the call with `document`, which is malformed, as document or value number `place`. The call
 * must fail. */
truce_status entry_point_call_with(uint32_t number, truce_store *store, const bson_t *document,
                                   uint32_t place);
/* Returns the number of documents and values that the call takes. */
uint32_t entry_point_places(uint32_t number);

#endif
