#ifndef TRUCE_OPERATIONS_OPERATION_LEDGER_H
#define TRUCE_OPERATIONS_OPERATION_LEDGER_H

/* Declarations that the files of the operations of ledgers share. */
#include "operations/operation.h"
#include "truce/ledger.h"

/* Returns the ledger that the operation names. */
truce_status truce__operation_ledger(struct operation_call *call, bool writes,
                                     struct handle **handle, bson_error_t *error);

/* operation_ledger_report.c */
extern const struct operation_row truce__ledger_currency_operation,
    truce__ledger_accounts_operation, truce__ledger_search_operation,
    truce__ledger_pending_operation, truce__ledger_verify_operation, truce__ledger_seal_operation;

#endif
