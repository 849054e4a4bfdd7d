#ifndef TRUCE_PATTERNS_CHANGE_LIST_CHANGE_LIST_H
#define TRUCE_PATTERNS_CHANGE_LIST_CHANGE_LIST_H

/*
 * A change list: the changes of a commit as people and clients write them. It is an array of
 *
 *     {insert: COLLECTION, with: DOCUMENT}
 *     {update: COLLECTION, id: ID, with: OPERATORS, if: FILTER}
 *     {replace: COLLECTION, id: ID, with: DOCUMENT, if: FILTER}
 *     {remove: COLLECTION, id: ID, if: FILTER}
 *     {require: COLLECTION, id: ID, if: FILTER}
 *     {hold: COLLECTION, id: ID, if: FILTER}
 *     {missing: COLLECTION, id: ID}
 *     {change: COLLECTION, id: ID, with: {KEY: [OLD, NEW]}}
 *
 * "if" may be omitted. Jobs and transactions can be part of the list:
 *
 *     {enqueue: QUEUE, with: PAYLOAD, delay_ms: N, priority: N, unique: KEY, lane: LANE}
 *     {post: BOOK, id: ID, with: {ACCOUNT: AMOUNT, ...}, meta: DOCUMENT}
 *
 * Only QUEUE and PAYLOAD are required, and `meta` is optional. An amount is a whole number of the
 * smallest unit, or a string in the account's currency ("-12.50"); the balance rises by it.
 *
 *  PL1.  All changes take effect, or none, together with the rest of the commit. A job of a commit
 *        that takes no effect never existed.
 *  PL2.  A transaction that was posted before is DUPLICATE, even with the same content: the other
 *        changes would happen a second time. If you got no reply, look up the commit by its key.
 *  PL3.  A posting that the rules of an account forbid fails with LIMIT, as truce_ledger_post does:
 *        one cause has one status.
 */
#include "base/status.h"
#include "truce/changes.h"
#include "truce/ledger.h"
#include "truce/queue.h"

/* A caller's decisions about changes. */
struct change_list_guard {
    /* Allows the collection of each change except those of queues. `reads` is true if the change
     * does not write to it. */
    truce_status (*allow)(void *arg, const char *collection, bool reads, bson_error_t *error);
    /* Adds a change whose first field begins with "truce": an operation of a layer above. If
     * `commit` is NULL, the change is only checked. If the function is NULL, such a change is
     * invalid. */
    truce_status (*add_operation)(void *arg, int number, const bson_t *change, truce_commit *commit,
                                  bson_error_t *error);
    void *arg;
};

/* The queue and the book of the last jobs and transactions, which the next ones probably have, too.
 * They belong to one store and one thread. Initialize it with zeros. */
struct change_list_handles {
    truce_queue *queue;
    truce_ledger *book;
    char *queue_name, *book_name;
};

/* Frees the handles, and clears the struct for another use. */
void truce__change_list_handles_release(struct change_list_handles *handles);

/* Checks a list. Returns INVALID if it is wrong; the error then names the change by its number from
 * 1. An array without a change is valid. */
truce_status truce__change_list_check(const bson_t *changes, const struct change_list_guard *guard,
                                      bson_error_t *error);

/* Checks the names of the fields of a change whose values are not known yet: a template of changes.
 * Fails with INVALID as truce__change_list_check does. */
truce_status truce__change_list_check_names(int number, const bson_t *change, bson_error_t *error);

/* Adds changes that were checked. If `guard` is NULL, all changes are allowed. `handles` may be
 * NULL. */
truce_status truce__change_list_add(const bson_t *changes, const struct change_list_guard *guard,
                                    struct change_list_handles *handles, truce_commit *commit,
                                    bson_error_t *error);

#endif
