#ifndef TRUCE_TESTS_SUPPORT_MASKED_H
#define TRUCE_TESTS_SUPPORT_MASKED_H

/* A store without some capabilities of the store that it wraps. The test fails if a call needs one
 * of them, so the test shows that a pattern respects the capabilities. Closing it closes the inner
 * store. */
#include "truce/sys/store.h"

/* Wraps `inner` without the capabilities `lacks`, a combination of TRUCE_CAN_ITEM_UPDATE,
 * TRUCE_CAN_ARRAY_FILTERS, TRUCE_CAN_PIPELINE_UPDATE, TRUCE_CAN_WILDCARD_INDEX,
 * TRUCE_CAN_ATOMIC_BULK */
truce_store *masked_wrap(truce_store *inner, uint32_t lacks);

#endif
