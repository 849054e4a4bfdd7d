#ifndef TRUCE_COMMIT_UNIQUE_H
#define TRUCE_COMMIT_UNIQUE_H

/* Indexes and the journal: what must be certain before the decision. */
#include "commit/journal.h"

/* Refuses what an index would refuse after the decision: keys that cannot be made, and, in the
 * journal, a change of a uniquely indexed value in an existing document. */
truce_status truce__unique_check(truce_store *store, const struct entry *entry,
                                 bson_error_t *error);

/* The stub of an insert: _id, the intent, and the uniquely indexed paths, so that their values are
 * taken from here on. `stub` is always initialised. */
truce_status truce__unique_stub(truce_store *store, const struct entry *entry,
                                const bson_oid_t *commit, bson_t *stub, bson_error_t *error);

/* A stub was refused though its _id is free: another document has a uniquely indexed value of it.
 * Held by a commit: it is met, OK: try again. Free: DUPLICATE. */
truce_status truce__unique_holder(struct worker *worker, const struct entry *entry,
                                  bson_error_t *error);

#endif
