#ifndef TRUCE_COMMIT_UNIQUE_H
#define TRUCE_COMMIT_UNIQUE_H

/* Unique indexes and commits: what must be certain before the decision. */
#include "commit/commit.h"
#include "commit/entry.h"
#include "query/index/index.h"

/* Refuses what an index would refuse after the decision: keys that cannot be made, and, in the
 * journal, a change of a uniquely indexed value where the collection has no declared keys. */
truce_status truce__unique_check(truce_store *store, const struct entry *entry,
                                 bson_error_t *error);

/* The stub of an insert: _id, the intent, and the uniquely indexed paths, so that their values are
 * taken from here on. `stub` is always initialised. */
truce_status truce__unique_stub(truce_store *store, const struct entry *entry,
                                const bson_oid_t *commit, bson_t *stub, bson_error_t *error);

/* Who has a uniquely indexed value of `after`? OK: nobody. DUPLICATE: a document that is free.
 * CONFLICT: one that is held by another commit: `held`, which the caller initialises and destroys
 * (empty: one that this commit knows otherwise). INVALID: one that this commit changes too. */
truce_status truce__unique_holder(truce_commit *commit, const struct entry *entry, bson_t *held,
                                  bson_error_t *error);
/* The same for values that base does not have, after they were reserved; of the indexes on the
 * values themselves. */
truce_status truce__unique_look(truce_commit *commit, const struct entry *entry, bson_t *held,
                                bson_error_t *error);

/* Waits until no commit holds that document any more (`held`: as truce__unique_holder gave it). */
truce_status truce__unique_wait(truce_commit *commit, const char *collection, const bson_t *held,
                                bson_error_t *error);

/* An index refused the entry, but nobody was found. OK, after a moment: try again. DUPLICATE: that
 * happened too often. */
truce_status truce__unique_nobody(truce_commit *commit, const struct entry *entry,
                                  bson_error_t *error);

/* An index refused a write of the entry, of which base and `after` are known, while nothing else is
 * held: finds out who has the value. OK: try again. DUPLICATE: it is taken. */
truce_status truce__unique_refused(truce_commit *commit, const struct entry *entry,
                                   bson_error_t *error);

/*
 * `_keys`: the shadow of a document's uniquely indexed values, under a unique index of its own. The
 * essay is in unique.c.
 */

typedef truce_status truce__spec_function(const struct index_spec *spec, void *arg,
                                          bson_error_t *error);

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

/* Counts the unique indexes of the collection whose values `_keys` holds too. */
truce_status truce__unique_count(truce_store *store, const char *collection, uint32_t *count,
                                 bson_error_t *error);

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
