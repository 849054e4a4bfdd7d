#ifndef TRUCE_PATTERNS_LEDGER_LEDGER_DRAFT_H
#define TRUCE_PATTERNS_LEDGER_LEDGER_DRAFT_H

/* A transaction while it is planned: ledger_plan.c says in which order. */
#include "patterns/ledger/ledger.h"

struct planned {
    struct ledger_change change;
    struct ledger_known *known;
    struct ledger_state after;
    char *owned;         /* the account's name, where it is not the caller's */
    struct value source; /* the change of another program that it was made of */
    uint32_t place;      /* of that in its document */
};

struct draft {
    struct ledger_plan *plan;
    const struct ledger_request *request;
    const char *kind, *state;
    bool counts, pending, part, inner; /* inner: of one account, nothing to balance */
    bool idle;     /* the state of another program's document is neither VALID nor PENDING */
    bool unopened; /* another program's document, and none of its accounts was opened */
    const bson_value_t *of;
    struct planned *planned;
    uint32_t count;
    int64_t booked_ms;
    bson_t settled; /* the transaction of `of` */
    bool stale;
};

/* Fills `planned`, of the request's entries or of the transaction that it settles (ledger_gather.c). */
truce_status truce__ledger_gather(struct draft *draft, bson_error_t *error);
/* Whether the accounts allow the draft: its changes get their numbers, and the states after them. */
truce_status truce__ledger_judge(struct draft *draft, bool *nothing, bson_error_t *error);
/* Moves the book behind the draft's changes if they are `planned`, and frees the draft. */
void truce__ledger_draft_close(struct draft *draft, bool planned);
/* Links the changes, in the order of their numbers, to the chains of their accounts. */
void truce__ledger_link(struct draft *draft, const bson_t *document);
/* The sums after a change, and its hash. */
void truce__ledger_append_state(const struct ledger_state *state, bool hash, bson_t *document);
/* The document of what was judged (ledger_build.c). */
truce_status truce__ledger_build(struct draft *draft, bson_t *document, bson_error_t *error);
/* "withdraw" or "deposit", unless it says its own */
const char *truce__ledger_type(const struct ledger_change *change);
/* What the request gives for an account; NULL: nothing. */
const truce_ledger_entry *truce__ledger_entry(const truce_ledger_transaction *given,
                                              const char *account);

#endif
