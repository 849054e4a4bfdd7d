#ifndef TRUCE_PATTERNS_QUEUE_QUEUE_CARE_H
#define TRUCE_PATTERNS_QUEUE_QUEUE_CARE_H

/* What looks after queues: their line of the table in src/care/parts.c. */
#include "store/care.h"

truce_status truce__queue_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__queue_check(struct check *check, bson_error_t *error);

#endif
