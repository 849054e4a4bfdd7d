#ifndef TRUCE_PATTERNS_LEDGER_LEDGER_MAINTENANCE_H
#define TRUCE_PATTERNS_LEDGER_LEDGER_MAINTENANCE_H

/* The sweep and the check of ledgers, for the table in src/maintenance/maintenance_registry.c. */
#include "store/maintenance.h"

truce_status truce__ledger_sweep(struct sweep *sweep, bson_error_t *error);
truce_status truce__ledger_check(struct check *check, bson_error_t *error);

#endif
