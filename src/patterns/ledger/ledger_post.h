#ifndef TRUCE_PATTERNS_LEDGER_LEDGER_POST_H
#define TRUCE_PATTERNS_LEDGER_LEDGER_POST_H

/* Posting, as its parts share it (ledger_post.c: the calls; ledger_round.c: alone; ledger_commit.c: in a commit). */
#include "patterns/ledger/ledger.h"

/* Posts those that are not settled, at most LEDGER_TRAVEL; nobody else of this handle does so meanwhile. */
truce_status truce__ledger_run(truce_ledger *ledger, struct ledger_request **requests,
                               uint32_t count, bson_error_t *error);
/* The same, where numbers are documents (ledger_slots.c). */
truce_status truce__ledger_run_slots(truce_ledger *ledger, struct ledger_request **requests,
                                     uint32_t count, bson_error_t *error);
/* In the commit of the plan, behind what was planned in it. */
truce_status truce__ledger_post_planned(struct ledger_plan *plan, struct ledger_request *request,
                                        bson_error_t *error);

typedef truce_status ledger_run(truce_ledger *ledger, struct ledger_request **requests,
                                uint32_t count, bson_error_t *error);
/* Removes the hint `open` of a pending transaction. */
void truce__ledger_close_pending(truce_ledger *ledger, const bson_value_t *id);
/* truce__ledger_expire, posted by that function. */
truce_status truce__ledger_expire_by(truce_ledger *ledger, const char *account, int64_t limit,
                                     ledger_run *run, int64_t *expired, bson_error_t *error);

/* Books the release of what has expired on the accounts of a request (LEDGER_POST). True: something was released. */
bool truce__ledger_expire_for(truce_ledger *ledger, const struct ledger_request *request);

truce_status truce__ledger_post_in(truce_ledger *ledger, truce_commit *commit,
                                   struct ledger_request *request, bson_error_t *error);

void truce__ledger_settle_posted(struct ledger_request *request, const bson_t *document,
                                 bool exists);
/* The pending transaction that the request settles or gives up; NULL: none. */
const bson_value_t *truce__ledger_settles(const struct ledger_request *request);
/* What it settles, gives up or reverses; NULL: nothing. */
const bson_value_t *truce__ledger_of(const struct ledger_request *request);
/* DUPLICATE: `document` settled it before. */
truce_status truce__ledger_tell_settled(const bson_t *document, bson_error_t *error);

#endif
