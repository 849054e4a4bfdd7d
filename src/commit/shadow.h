#ifndef TRUCE_COMMIT_SHADOW_H
#define TRUCE_COMMIT_SHADOW_H

/*
 * `_keys`: the shadow of a document's uniquely indexed values, under a unique index of its own. The
 * essay is in unique.c.
 */
#include "commit/entry.h"
#include "query/index/index.h"

typedef truce_status truce__spec_function(const struct index_spec *spec, void *arg,
                                          bson_error_t *error);

/* Calls for each index of the collection, until one fails; not for those of kinds that truce does not have
 * (hashed, text, geographical, with a collation), which are in nobody's way, unless they are unique: INVALID. */
truce_status truce__each_index(truce_store *store, const char *collection,
                               truce__spec_function *function, void *arg, bson_error_t *error);

/* The index on `_keys` itself. */
bool truce__shadow_index(const struct index_spec *spec);
/* A unique index whose values `_keys` repeats. */
bool truce__shadowed_index(const struct index_spec *spec);

/* What `_keys` must be for this document: an array of {i: index, v: [values]} in a fixed order;
 * empty: the field is absent. `keys` is always initialised. INVALID: an index refuses the document,
 * or the one on `_keys` is not sparse. */
truce_status truce__shadow_make(truce_store *store, const char *collection, struct value document,
                                bson_t *keys, bson_error_t *error);

/* `document` has just that. */
bool truce__shadow_right(const bson_t *document, const bson_t *keys);

/* Gives the entry's `after` its `_keys`. INVALID: a change touched the field. */
truce_status truce__shadow_set(truce_store *store, struct entry *entry, bson_error_t *error);

/* Gives a stored document its `_keys`, by a commit of its own, unless it has them. */
truce_status truce__shadow_mend(truce_store *store, const char *collection, const bson_value_t *id,
                                bool *changed, bson_error_t *error);

/* How many elements `_keys` of base has, if the update brings new ones, which are to be reserved;
 * -1: it does not. */
int32_t truce__shadow_reserves(const struct entry *entry);
/* To the $set of a prepare: `_keys` with the old elements first and the new ones behind them. */
void truce__shadow_reserve(const struct entry *entry, bson_t *set);

/* A document as it was before the prepare: without `_intent`, and `_keys` with only so many elements
 * as `_intent.keys` says. `plain` is initialised here. */
void truce__shadow_restore(const bson_t *document, bson_t *plain);
/* `_intent.keys`; -1: nothing was reserved */
int32_t truce__shadow_reserved(const bson_t *document);

#endif
