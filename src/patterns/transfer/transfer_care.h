#ifndef TRUCE_PATTERNS_TRANSFER_TRANSFER_CARE_H
#define TRUCE_PATTERNS_TRANSFER_TRANSFER_CARE_H

/* The transfers' line in src/care/parts.c. */
#include "store/care.h"

truce_status truce__transfer_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__transfer_check(struct check *check, bson_error_t *error);

#endif
