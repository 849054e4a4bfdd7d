#ifndef TRUCE_PATTERNS_LEDGER_LEDGER_DRAFT_H
#define TRUCE_PATTERNS_LEDGER_LEDGER_DRAFT_H

/* A transaction while it is planned; ledger_plan.c gives the order of the steps. */
#include "patterns/ledger/ledger.h"

/* A change of the draft, and the account that it changes. */
struct planned {
    struct ledger_change change;
    struct ledger_known *known;
    struct ledger_state after;
    /* The name of the account if the draft owns it, or NULL if the name is the caller's. */
    char *owned;
    /* For a document of another program: its change, borrowed, and the index of that change in
     * `changes`. */
    struct value source;
    uint32_t position;
};

/* The transaction that is being planned. */
struct draft {
    struct ledger_plan *plan;
    const struct ledger_request *request;
    const char *kind, *state;
    /* `counts`, `pending`: the transaction is VALID, or PENDING. `part`: it settles only a part.
     * `inner`: it opens an account or sets rules, so nothing has to balance. */
    bool counts, pending, part, inner;
    /* A document of another program whose state is neither VALID nor PENDING. */
    bool idle;
    /* A document of another program, none of whose accounts is open. */
    bool unopened;
    const bson_value_t *of;
    struct planned *planned;
    uint32_t count;
    int64_t booked_ms;
    /* The stored transaction that `of` names; empty if `of` is NULL. Owned. */
    bson_t settled;
    bool stale;
};

/* Fills `planned` from the request's entries, or from the transaction that it settles
 * (ledger_gather.c). */
truce_status truce__ledger_gather(struct draft *draft, bson_error_t *error);
/* Checks that the accounts allow the draft. Its changes get their numbers and the states after
 * them. */
truce_status truce__ledger_check_entry(struct draft *draft, bool *nothing, bson_error_t *error);
/* Frees the draft. If `planned` is true, first moves the accounts of the book on to the states
 * after the draft. */
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
