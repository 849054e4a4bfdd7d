#ifndef TRUCE_PATTERNS_TREE_TREE_MAINTENANCE_H
#define TRUCE_PATTERNS_TREE_TREE_MAINTENANCE_H

/* The entry of trees in src/maintenance/maintenance_registry.c. */
#include "store/maintenance.h"

truce_status truce__tree_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__tree_check(struct check *check, bson_error_t *error);

#endif
