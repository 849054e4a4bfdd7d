#ifndef TRUCE_PATTERNS_SYNC_SYNC_CARE_H
#define TRUCE_PATTERNS_SYNC_SYNC_CARE_H

/* The line of copies in src/care/parts.c. */
#include "store/care.h"

truce_status truce__sync_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__sync_check(struct check *check, bson_error_t *error);

#endif
