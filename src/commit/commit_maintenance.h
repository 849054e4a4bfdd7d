#ifndef TRUCE_COMMIT_COMMIT_MAINTENANCE_H
#define TRUCE_COMMIT_COMMIT_MAINTENANCE_H

/* The sweep and the check of commits, for the table in src/maintenance/maintenance_registry.c. */
#include "store/maintenance.h"

truce_status truce__commit_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__commit_check(struct check *check, bson_error_t *error);

#endif
