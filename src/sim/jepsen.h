#ifndef TRUCE_SIM_JEPSEN_H
#define TRUCE_SIM_JEPSEN_H

/*
 * Makes transactions for verify.h of a history in Jepsen's form: two operations for a transaction,
 * in the order in which they happened.
 *
 *     {:process 0, :type :invoke, :f :txn, :value [[:r 1 nil] [:append 1 2]]}
 *     {:process 0, :type :ok,     :f :txn, :value [[:r 1 [5]] [:append 1 2]]}
 *
 *     type   invoke: begins; ok: committed; fail: not committed; info: unknown, like a transaction
 *            without a second operation
 *     f      txn (or none): `value` is a list of operations. read, write: `value` is that of one
 *            register, or [key, value]
 *     process  an integer. The operations of other processes, for example :nemesis, are skipped
 *
 * The order of the operations is the clock; `time` and `index` are not read.
 *
 * One thread at a time.
 */
#include "sim/verify.h"

struct jepsen;

/* Creates a reader of Jepsen histories. It adds the transactions to `verify`, which must live
 * longer. */
struct jepsen *truce__jepsen_new(struct verify *verify);
void truce__jepsen_free(struct jepsen *jepsen);

/* Returns true if a document is an operation of this form, and not a transaction of verify.h. */
bool truce__jepsen_is_operation(const bson_t *document);

/* Adds an operation. Returns INVALID if it has another form, or if its process did not begin what
 * it ends. */
truce_status truce__jepsen_add(struct jepsen *jepsen, const bson_t *operation, bson_error_t *error);

/* Adds the transactions that have no second operation. */
truce_status truce__jepsen_end(struct jepsen *jepsen, bson_error_t *error);

#endif
