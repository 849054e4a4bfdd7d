#ifndef TRUCE_PATTERNS_QUEUE_QUEUE_MAINTENANCE_H
#define TRUCE_PATTERNS_QUEUE_QUEUE_MAINTENANCE_H

/* What looks after queues: their line of the table in src/maintenance/registry.c. */
#include "store/maintenance.h"

truce_status truce__queue_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__queue_check(struct check *check, bson_error_t *error);

#endif
