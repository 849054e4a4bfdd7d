#ifndef TRUCE_TESTS_SUPPORT_MASKED_H
#define TRUCE_TESTS_SUPPORT_MASKED_H

/* A store that can do less than the one it wraps, and fails the test if it is asked to do more.
 * So the test shows that a pattern respects the capabilities. Closes the inner store with
 * itself. */
#include "truce/sys/store.h"

/* `lacks`: of TRUCE_CAN_ITEM_UPDATE, TRUCE_CAN_ARRAY_FILTERS, TRUCE_CAN_PIPELINE_UPDATE,
 * TRUCE_CAN_WILDCARD_INDEX, TRUCE_CAN_ATOMIC_BULK */
truce_store *masked_wrap(truce_store *inner, uint32_t lacks);

#endif
