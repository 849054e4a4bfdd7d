#ifndef TRUCE_CARE_PARTS_H
#define TRUCE_CARE_PARTS_H

/* Everything that leaves something to look after, in the order in which it is swept and checked. */
#include "store/care.h"

extern const struct care truce__care_parts[];
extern const uint32_t truce__care_parts_count;

#endif
