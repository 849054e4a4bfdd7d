#ifndef TRUCE_MAINTENANCE_FEED_MAINTENANCE_H
#define TRUCE_MAINTENANCE_FEED_MAINTENANCE_H

/* The feed of changes (engine/documents/feed.h): what is beyond its time or size goes. A server and those who write see to
 * that by themselves; where neither is at work, time passes all the same. Its rules are the file's (truce__engine_check). */
#include "store/maintenance.h"

truce_status truce__feed_sweep(struct sweep *sweep, bson_error_t *error);

#endif
