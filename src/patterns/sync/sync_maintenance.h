#ifndef TRUCE_PATTERNS_SYNC_SYNC_MAINTENANCE_H
#define TRUCE_PATTERNS_SYNC_SYNC_MAINTENANCE_H

/* The entry of copies in src/maintenance/maintenance_registry.c. */
#include "store/maintenance.h"

truce_status truce__sync_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__sync_check(struct check *check, bson_error_t *error);

#endif
