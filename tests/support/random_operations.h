#ifndef TRUCE_TESTS_SUPPORT_RANDOM_OPERATIONS_H
#define TRUCE_TESTS_SUPPORT_RANDOM_OPERATIONS_H

/*
 * Random operations on a store, as documents, so that they can be printed, left out and run again:
 *
 *     {op: "update", collection: "x", filter: {...}, update: {...}, upsert: true, multi: false}
 *
 * The result of an operation does not depend on the order in which a store visits documents. If it
 * changes one document, it names the _id, or has a sort that ends with _id. A find without a sort
 * may have a limit: its result is the number of documents. The documents themselves depend on the
 * order of the index that the store uses.
 */
#include "base/random.h"
#include "truce/store.h"

/* Makes operation `number` of the sequence of `seed`, which depends on nothing else. The caller
 * destroys it. */
bson_t *random_operation(uint64_t seed, uint64_t number);

/* Runs the operation and appends its result to `answer`, without parts that may differ between two
 * correct stores. The caller has initialized `answer`. */
void operation_run(truce_store *store, const bson_t *operation, bson_t *answer);

/* Returns whether two correct stores may differ after this result. An update of several documents
 * that fails may have changed some of them, and does not report which ones. A sort by two arrays
 * fails only if the store really sorts documents. */
bool operation_is_ambiguous(const bson_t *operation, const bson_t *answer);

/* Appends the whole contents of the store: collections, documents in natural order, indexes. */
void store_snapshot(truce_store *store, bson_t *snapshot);

#endif
