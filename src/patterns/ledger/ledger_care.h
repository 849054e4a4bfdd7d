#ifndef TRUCE_PATTERNS_LEDGER_LEDGER_CARE_H
#define TRUCE_PATTERNS_LEDGER_LEDGER_CARE_H

/* The ledgers' line in src/care/parts.c. */
#include "store/care.h"

truce_status truce__ledger_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__ledger_check(struct check *check, bson_error_t *error);

#endif
