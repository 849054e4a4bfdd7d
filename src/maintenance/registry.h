#ifndef TRUCE_MAINTENANCE_REGISTRY_H
#define TRUCE_MAINTENANCE_REGISTRY_H

/* Everything that leaves something to look after, in the order in which it is swept and checked. */
#include "store/maintenance.h"

extern const struct care truce__care_parts[];
extern const uint32_t truce__care_parts_count;

/* The feed of changes (engine/documents/feed.h): what is beyond its time or size goes. A server and those who write see to
 * that by themselves; where neither is at work, time passes all the same. Its rules are the file's (truce__engine_check). */

#endif
