#ifndef TRUCE_OPERATIONS_OPERATION_LEDGER_H
#define TRUCE_OPERATIONS_OPERATION_LEDGER_H

/* Declarations that the files of the operations of ledgers share. */
#include "operations/operation.h"
#include "truce/ledger.h"

/* Returns the ledger that the operation names. */
truce_status truce__operation_ledger(struct operation_call *call, bool writes,
                                     struct handle **handle, bson_error_t *error);

/* Does the same for a read of the whole ledger, which must exist. */
truce_status truce__operation_ledger_read(struct operation_call *call, struct handle **handle,
                                          bson_error_t *error);

/* The names of the kinds, in the order of truce_ledger_kind, followed by NULL. */
extern const char *const truce__ledger_kinds[];

/* Receives a record of a book. Returning false ends the export after the records of its
 * transaction. */
typedef bool ledger_record_function(const bson_t *record, void *arg);

/* operation_ledger_book.c */

/* Calls the function with the records of a snapshot of the book, as truceLedgerExport returns them.
 * `after` and `reached` (NULL is allowed) are those of truce__ledger_walk_after. */
truce_status truce__ledger_records(truce_store *store, const char *collection, truce_ledger *ledger,
                                   const bson_t *after, ledger_record_function *function, void *arg,
                                   bson_t *reached, bson_error_t *error);

extern const struct operation_row truce__ledger_import_operation, truce__ledger_export_operation;

/* operation_ledger_report.c */
extern const struct operation_row truce__ledger_currency_operation,
    truce__ledger_accounts_operation, truce__ledger_search_operation,
    truce__ledger_pending_operation, truce__ledger_verify_operation, truce__ledger_seal_operation,
    truce__ledger_report_operation;

#endif
