#ifndef TRUCE_COMMIT_JOURNAL_STEP_H
#define TRUCE_COMMIT_JOURNAL_STEP_H

/* What the steps of the journal share among themselves. */
#include "commit/journal.h"
#include "store/care.h"

/* {_id: id, "_intent.c": commit} */
void truce__filter_intent(const bson_value_t *id, const bson_oid_t *commit, bson_t *filter);

/* The document that the changes of an entry `set` of post leave, whatever stands in their way; that goes
 * into `lost`, an array of {p, v}. `after` is initialised here. */
void truce__journal_forced(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
                           bson_t *after, bson_t *lost);

/* Releases an entry `set` that the store refused for `reason` (journal_force.c). LOCKED: it is refused
 * still. *overwritten: a plain write is lost, and kept nowhere. */
truce_status truce__journal_force(struct worker *worker, const bson_oid_t *commit,
                                  const bson_t *post, const bson_error_t *reason, bool *overwritten,
                                  bson_error_t *error);

#endif
