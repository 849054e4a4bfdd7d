#ifndef TRUCE_TESTS_SUPPORT_TROUBLE_H
#define TRUCE_TESTS_SUPPORT_TROUBLE_H

/* The faults of a process at its n-th store call. The outer store wraps the inner one; both are of
 * truce_fault_wrap. */
#include "truce/sys/decorate.h"

enum trouble { NONE, DIE_BEFORE, DIE_AFTER, LOSE };

static inline void trouble_arm(truce_store *inner_store, truce_store *outer_store,
                               enum trouble trouble, uint64_t at)
{
    truce_fault_options inner = {.kind = TRUCE_FAULT_NONE}, outer = {.kind = TRUCE_FAULT_NONE};

    if (trouble == DIE_AFTER || trouble == LOSE)
        inner = (truce_fault_options){.kind = TRUCE_FAULT_LOSE, .at = at};
    if (trouble == DIE_BEFORE || trouble == DIE_AFTER)
        outer = (truce_fault_options){.kind = TRUCE_FAULT_FAIL,
                                      .at = trouble == DIE_BEFORE ? at : at + 1,
                                      .from_then_on = true};
    truce_fault_arm(inner_store, &inner);
    truce_fault_arm(outer_store, &outer);
}

#endif
