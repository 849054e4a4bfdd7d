#ifndef TRUCE_PATTERNS_LEDGER_LEDGER_POST_H
#define TRUCE_PATTERNS_LEDGER_LEDGER_POST_H

/* Declarations of posting: ledger_post.c has the calls, ledger_batch.c posts without a commit,
 * ledger_commit.c posts in a commit. */
#include "patterns/ledger/ledger.h"

/* Posts the requests that are not settled: at most LEDGER_BATCH_TRANSACTIONS_MAX requests of all waiting
 * threads. No other thread posts for the same accounts of this handle in the meantime. */
truce_status truce__ledger_run(truce_ledger *ledger, struct ledger_request **requests,
                               uint32_t count, bson_error_t *error);
/* Does what truce__ledger_run does, for a ledger whose numbers are documents (ledger_slots.c). */
truce_status truce__ledger_run_slots(truce_ledger *ledger, struct ledger_request **requests,
                                     uint32_t count, bson_error_t *error);
/* Posts a request in the commit of the plan, after the requests that were planned in it. */
truce_status truce__ledger_post_planned(struct ledger_plan *plan, struct ledger_request *request,
                                        bson_error_t *error);

typedef truce_status ledger_run(truce_ledger *ledger, struct ledger_request **requests,
                                uint32_t count, bson_error_t *error);
/* Removes the hint `open` of a pending transaction. */
void truce__ledger_close_pending(truce_ledger *ledger, const bson_value_t *id);
/* Does what truce__ledger_expire does; `run` posts the releases. */
truce_status truce__ledger_expire_by(truce_ledger *ledger, const char *account, int64_t limit,
                                     ledger_run *run, int64_t *expired, bson_error_t *error);

/* Books the release of expired amounts on the accounts of a request (LEDGER_POST). Returns true if
 * something was released. */
bool truce__ledger_expire_for(truce_ledger *ledger, const struct ledger_request *request);

/* Posts a request in a commit of the caller, with the plan that the handle keeps
 * (ledger_commit.c). */
truce_status truce__ledger_post_in(truce_ledger *ledger, truce_commit *commit,
                                   struct ledger_request *request, bson_error_t *error);

/* Settles a request whose transaction is stored. `exists` is true if it was posted before. */
void truce__ledger_settle_posted(struct ledger_request *request, const bson_t *document,
                                 bool exists);
/* Returns the pending transaction that the request settles or voids, or NULL if none exists. */
const bson_value_t *truce__ledger_settles(const struct ledger_request *request);
/* Returns the transaction that the request settles, voids, or reverses, or NULL if none
 * exists. */
const bson_value_t *truce__ledger_of(const struct ledger_request *request);
/* Makes the error DUPLICATE: `document` settled it before. */
truce_status truce__ledger_report_settled(const bson_t *document, bson_error_t *error);

#endif
