#ifndef TRUCE_PATTERNS_TRANSFER_TRANSFER_MAINTENANCE_H
#define TRUCE_PATTERNS_TRANSFER_TRANSFER_MAINTENANCE_H

/* The entry of transfers in src/maintenance/maintenance_registry.c. */
#include "store/maintenance.h"

truce_status truce__transfer_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__transfer_check(struct check *check, bson_error_t *error);

#endif
