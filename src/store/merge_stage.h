#ifndef TRUCE_STORE_MERGE_STAGE_H
#define TRUCE_STORE_MERGE_STAGE_H

/* The stage $merge: documents into a collection of the store, by the options of the stage
 * ({into, on, let, whenMatched, whenNotMatched}). Codes are MongoDB's: 51183 where no unique index
 * fits `on`, 51132 where a field of `on` is missing, null or an array, 13113 where whenNotMatched
 * is "fail" and nothing matches. */
#include "query/context.h"
#include "store/store.h"

struct merge;

/* Reads the options, and looks for the index once. `store` and `stage` are borrowed. `unvalidated`: what it writes
 * passes by the validator. */
truce_status truce__merge_new(truce_store *store, const bson_t *stage, bool unvalidated,
                              struct merge **merge, bson_error_t *error);
void truce__merge_free(struct merge *merge); /* NULL is allowed */

/* One document. */
truce_status truce__merge_put(const struct merge *merge, const bson_t *document,
                              struct query_context *context, bson_error_t *error);

#endif
