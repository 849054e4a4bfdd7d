#ifndef TRUCE_TESTS_SUPPORT_RANDOM_OPERATIONS_H
#define TRUCE_TESTS_SUPPORT_RANDOM_OPERATIONS_H

/*
 * Random operations on a store, as documents, so that they can be printed, left out and run again:
 *
 *     {op: "update", collection: "x", filter: {...}, update: {...}, upsert: true, multi: false}
 *
 * Every operation is made so that its answer does not depend on the order in which a store visits
 * documents. If one document is to be changed, its _id is named, or a sort ends in _id. A find
 * without a sort may have a limit: its answer is the number of documents. The documents themselves
 * depend on the order of the index that the store uses.
 */
#include "base/random.h"
#include "truce/store.h"

/* Makes operation `number` of the sequence of `seed`: depends on nothing else. The caller
 * destroys it. */
bson_t *random_operation(uint64_t seed, uint64_t number);

/* Runs it, and returns the answer for comparison, without parts that may differ between two
 * correct stores. `answer` is initialised by the caller. */
void operation_run(truce_store *store, const bson_t *operation, bson_t *answer);

/* True if two correct stores may differ after this answer. An update of several documents that
 * failed on the way has changed some of them, and does not report which ones. A sort by two
 * arrays is refused, but only if documents are really sorted. */
bool operation_is_ambiguous(const bson_t *operation, const bson_t *answer);

/* Returns the whole contents of the store: collections, documents in natural order, indexes. */
void store_snapshot(truce_store *store, bson_t *snapshot);

#endif
