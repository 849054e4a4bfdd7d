#ifndef TRUCE_PATTERNS_TREE_TREE_CARE_H
#define TRUCE_PATTERNS_TREE_TREE_CARE_H

/* The line of versions in src/care/parts.c. */
#include "store/care.h"

truce_status truce__tree_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__tree_check(struct check *check, bson_error_t *error);

#endif
