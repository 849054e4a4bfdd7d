#ifndef TRUCE_PATTERNS_LEDGER_LEDGER_DRAFT_H
#define TRUCE_PATTERNS_LEDGER_LEDGER_DRAFT_H

/* A transaction while it is planned; ledger_plan.c gives the order of the steps. */
#include "patterns/ledger/ledger.h"

struct planned {
    struct ledger_change change;
    struct ledger_known *known;
    struct ledger_state after;
    /* The account's name, if it is not the caller's. */
    char *owned;
    /* The change of another program's document from which it was made, and its place there. */
    struct value source;
    uint32_t place;
};

struct draft {
    struct ledger_plan *plan;
    const struct ledger_request *request;
    const char *kind, *state;
    /* An inner posting: the opening or the rules of one account; nothing has to balance. */
    bool counts, pending, part, inner;
    /* The state of another program's document is neither VALID nor PENDING. */
    bool idle;
    /* Another program's document, none of whose accounts was opened. */
    bool unopened;
    const bson_value_t *of;
    struct planned *planned;
    uint32_t count;
    int64_t booked_ms;
    /* The transaction of `of`. */
    bson_t settled;
    bool stale;
};

/* Fills `planned` from the request's entries, or from the transaction that it settles
 * (ledger_gather.c). */
truce_status truce__ledger_gather(struct draft *draft, bson_error_t *error);
/* Checks that the accounts allow the draft. Its changes get their numbers and the states after
 * them. */
truce_status truce__ledger_check_entry(struct draft *draft, bool *nothing, bson_error_t *error);
/* Moves the book on to the draft's states if they are `planned`, and frees the draft. */
void truce__ledger_draft_close(struct draft *draft, bool planned);
/* Links the changes, in the order of their numbers, to the chains of their accounts. */
void truce__ledger_link(struct draft *draft, const bson_t *document);
/* Appends the sums after a change, and its hash. */
void truce__ledger_append_state(const struct ledger_state *state, bool hash, bson_t *document);
/* Makes the document of a draft that was checked (ledger_build.c). */
truce_status truce__ledger_build(struct draft *draft, bson_t *document, bson_error_t *error);
/* Returns "withdraw" or "deposit", unless the change has a type of its own. */
const char *truce__ledger_type(const struct ledger_change *change);
/* Returns the entry that the request gives for an account, or NULL if none exists. */
const truce_ledger_entry *truce__ledger_entry(const truce_ledger_transaction *given,
                                              const char *account);

#endif
