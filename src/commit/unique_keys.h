#ifndef TRUCE_COMMIT_UNIQUE_KEYS_H
#define TRUCE_COMMIT_UNIQUE_KEYS_H

/* Unique indexes and commits: checks that must pass before the decision. */
#include "bson/array.h"
#include "commit/commit.h"
#include "commit/commit_entry.h"
#include "query/index/index.h"

/* Refuses what an index would refuse after the decision, such as keys that cannot be made. In the
 * journal, it also refuses a change of a uniquely indexed value in a collection without declared
 * keys. */
truce_status truce__unique_check(truce_store *store, const struct entry *entry,
                                 bson_error_t *error);

/* Makes the stub of an insert: _id, the intent, and the uniquely indexed paths, which reserve their
 * values from then on. `stub` is always initialized. */
truce_status truce__unique_stub(truce_store *store, const struct entry *entry,
                                const bson_oid_t *commit, bson_t *stub, bson_error_t *error);

/* Finds the holder of a uniquely indexed value of `after`. Returns OK if no document has the value,
 * and DUPLICATE if a document without an intent, or another document of this commit, has it.
 * Returns CONFLICT if another commit holds the document, which is then copied to `held`. Also
 * returns CONFLICT, with an empty `held`, if a document of this commit got the value after it was
 * read. Returns INVALID if a document of this commit gives the value up. The caller initializes and
 * destroys `held`. */
truce_status truce__unique_holder(truce_commit *commit, const struct entry *entry, bson_t *held,
                                  bson_error_t *error);
/* Does what truce__unique_holder does, for values that base does not have, after they were
 * reserved. Only looks into the indexes on the values themselves. */
truce_status truce__unique_reserved_holder(truce_commit *commit, const struct entry *entry,
                                           bson_t *held, bson_error_t *error);

/* Appends a filter for each uniquely indexed value of `after`, which document `id` gets: another
 * document that matches one of them may hold the value. */
truce_status truce__unique_filters(truce_store *store, const char *collection,
                                   const bson_value_t *id, const bson_t *after,
                                   struct array *filters, bson_error_t *error);

/* Waits until no commit holds that document any more. `held` comes from truce__unique_holder. */
truce_status truce__unique_wait(truce_commit *commit, const char *collection, const bson_t *held,
                                bson_error_t *error);

/* Waits briefly after an index refused the entry although no holder was found. Returns OK if the
 * caller should try again, and DUPLICATE if this happened too often. */
truce_status truce__unique_none(truce_commit *commit, const struct entry *entry,
                                bson_error_t *error);

/* Finds the holder of the value after an index refused a write of the entry. Base and `after` are
 * known, and the commit holds nothing else. Returns OK if the caller should try again, DUPLICATE if
 * the value is taken, and otherwise as truce__unique_holder. */
truce_status truce__unique_refused(truce_commit *commit, const struct entry *entry,
                                   bson_error_t *error);

/* `_keys` is the shadow of a document's uniquely indexed values. It has a unique index of its own.
 * The essay is in unique_keys.c. */

typedef truce_status truce__spec_function(const struct index_spec *spec, void *arg,
                                          bson_error_t *error);

/* Makes `_keys` of a document: an array of {i: index, v: [values]} in a fixed order. An empty array
 * means that the field is absent. `keys` is always initialized. Returns INVALID if an index refuses
 * the document, or the index on `_keys` is not sparse. */
truce_status truce__shadow_make(truce_store *store, const char *collection, struct value document,
                                bson_t *keys, bson_error_t *error);

/* Returns whether `_keys` of the document equals `keys`. */
bool truce__shadow_right(const bson_t *document, const bson_t *keys);

/* Sets `_keys` in the entry's `after`. Returns INVALID if a change touched the field. */
truce_status truce__shadow_set(truce_store *store, struct entry *entry, bson_error_t *error);

/* Sets `_keys` of a stored document, by a commit of its own, unless it is correct. */
truce_status truce__shadow_repair(truce_store *store, const char *collection,
                                  const bson_value_t *id, bool *changed, bson_error_t *error);

/* Counts the unique indexes of the collection whose values `_keys` holds too. */
truce_status truce__unique_count(truce_store *store, const char *collection, uint32_t *count,
                                 bson_error_t *error);

/* Returns how many elements `_keys` of base has, if the update adds elements that must be reserved;
 * else -1. */
int32_t truce__shadow_reserves(const struct entry *entry);
/* Appends `_keys` to the $set of a prepare: the old elements first, then the new ones. */
void truce__shadow_reserve(const struct entry *entry, bson_t *set);

/* Makes a document as it was before the prepare: without `_intent`, and with only the first
 * `_intent.keys` elements of `_keys`. `plain` is initialized. */
void truce__shadow_restore(const bson_t *document, bson_t *plain);
/* Returns `_intent.keys`, or -1 if nothing was reserved. */
int32_t truce__shadow_reserved(const bson_t *document);

#endif
