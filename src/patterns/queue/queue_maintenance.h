#ifndef TRUCE_PATTERNS_QUEUE_QUEUE_MAINTENANCE_H
#define TRUCE_PATTERNS_QUEUE_QUEUE_MAINTENANCE_H

/* The sweep and the check of queues, for the table in src/maintenance/maintenance_registry.c. */
#include "store/maintenance.h"

truce_status truce__queue_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__queue_check(struct check *check, bson_error_t *error);

#endif
