#ifndef TRUCE_PATTERNS_LEDGER_LEDGER_DRAFT_H
#define TRUCE_PATTERNS_LEDGER_LEDGER_DRAFT_H

/* A transaction while it is planned: ledger_plan.c says in which order. */
#include "patterns/ledger/ledger.h"

struct planned {
    struct ledger_change change;
    struct ledger_known *known;
    struct ledger_state after;
    char *owned; /* the account's name, where it is not the caller's */
};

struct draft {
    struct ledger_plan *plan;
    const struct ledger_request *request;
    const char *kind, *state;
    bool counts, pending, part, inner; /* inner: of one account, nothing to balance */
    const bson_value_t *of;
    struct planned *planned;
    uint32_t count;
    int64_t booked_ms;
    bson_t settled; /* the transaction of `of` */
    bool stale;
};

/* Fills `planned`, of the request's entries or of the transaction that it settles (ledger_gather.c). */
truce_status truce__ledger_gather(struct draft *draft, bson_error_t *error);
/* The document of what was judged (ledger_build.c). */
truce_status truce__ledger_build(struct draft *draft, bson_t *document, bson_error_t *error);
/* "withdraw" or "deposit", unless it says its own */
const char *truce__ledger_type(const struct ledger_change *change);
/* What the request gives for an account; NULL: nothing. */
const truce_ledger_entry *truce__ledger_entry(const truce_ledger_transaction *given,
                                              const char *account);

#endif
