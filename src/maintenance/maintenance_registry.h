#ifndef TRUCE_MAINTENANCE_MAINTENANCE_REGISTRY_H
#define TRUCE_MAINTENANCE_MAINTENANCE_REGISTRY_H

/* The registry: all parts that leave work behind, in the order in which they are swept and
 * checked. */
#include "store/maintenance.h"

extern const struct maintenance_part truce__maintenance_parts[];
extern const uint32_t truce__maintenance_parts_count;

/* The sweep step of the change feed (engine/documents/change_feed.h): removes changes beyond its
 * time or size. A server and its writers do the same; the step is for a file that no process uses.
 * Its rules belong to the file (truce__engine_check). */

#endif
