#ifndef TRUCE_PATTERNS_CHANGE_LIST_CHANGE_LIST_H
#define TRUCE_PATTERNS_CHANGE_LIST_CHANGE_LIST_H

/*
 * Changes of a commit as people and clients write them down: an array of
 *
 *     {insert: COLLECTION, with: DOCUMENT}              {remove: COLLECTION, id: ID, if: FILTER}
 *     {update: COLLECTION, id: ID, with: OPERATORS, if: FILTER}
 *     {replace: COLLECTION, id: ID, with: DOCUMENT, if: FILTER}
 *     {require: COLLECTION, id: ID, if: FILTER}         {missing: COLLECTION, id: ID}
 *     {hold: COLLECTION, id: ID, if: FILTER}            {change: COLLECTION, id: ID, with: {KEY: [OLD, NEW]}}
 *
 * where "if" may be left out, and what goes into a queue and a ledger with them:
 *
 *     {enqueue: QUEUE, with: PAYLOAD, delay_ms: N, priority: N, unique: KEY, lane: LANE}
 *     {post: BOOK, id: ID, with: {ACCOUNT: AMOUNT, ...}, meta: DOCUMENT}
 *
 * where all but QUEUE and PAYLOAD may be left out, and `meta`. An amount is a whole number of the smallest unit, or a text
 * in the account's currency ("-12.50"): what the balance rises by.
 *
 *   W1  All or nothing, with the rest of the commit: a job of a commit that takes no effect was never there.
 *   W2  A transaction that was posted before is DUPLICATE, also with the same content: the other changes would happen
 *       a second time. Whoever had no answer asks by the commit's key.
 *   W3  A posting that the rules of an account forbid fails with LIMIT, as truce_ledger_post does: one cause has one status.
 */
#include "base/status.h"
#include "truce/changes.h"

/* Decides about changes for a caller. */
struct written_guard {
    /* Allows the collection of each change except those of queues. `reads`: the change does not write to it. */
    truce_status (*allow)(void *arg, const char *collection, bool reads, bson_error_t *error);
    /* Adds a change whose first field begins with "truce": an operation of a layer above. `commit` NULL: it is only checked.
     * If the function is NULL, such a change is invalid. */
    truce_status (*add_operation)(void *arg, int number, const bson_t *change, truce_commit *commit,
                                  bson_error_t *error);
    void *arg;
};

/* INVALID: what is wrong with which change, by its number from 1. An array without a change is sound. */
truce_status truce__written_check(const bson_t *changes, const struct written_guard *guard,
                                  bson_error_t *error);

/* Adds changes that were checked. `guard` NULL allows all. */
truce_status truce__written_add(const bson_t *changes, const struct written_guard *guard,
                                truce_commit *commit, bson_error_t *error);

#endif
