#ifndef TRUCE_MAINTENANCE_MAINTENANCE_REGISTRY_H
#define TRUCE_MAINTENANCE_MAINTENANCE_REGISTRY_H

/* The registry: all parts with work that a dead process can leave unfinished. A sweep and a check
 * first call the parts that concern the whole store, then, for each database, the others, both in
 * the order of the table. */
#include "store/maintenance.h"

extern const struct maintenance_part truce__maintenance_parts[];
extern const uint32_t truce__maintenance_parts_count;

/* The sweep step of the change feed (engine/documents/change_feed.h): removes entries that are too
 * old or too many. A server and writers do the same; the step serves a file that no process uses.
 * The rules of the feed are part of the check of the file (truce__engine_check). */

#endif
