#ifndef TRUCE_COMMIT_UNIQUE_H
#define TRUCE_COMMIT_UNIQUE_H

/* Unique indexes and commits: what must be certain before the decision. */
#include "commit/commit.h"

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

#endif
