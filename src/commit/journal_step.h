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
 * still. */
truce_status truce__journal_force(struct worker *worker, const bson_oid_t *commit,
                                  const bson_t *post, const bson_error_t *reason,
                                  bson_error_t *error);

/* A plain writer changed the document under the intent. */
bool truce__journal_was_changed(const bson_t *post, const bson_t *document);

/* Notes in the commit that its release goes over a plain write of the document. */
truce_status truce__journal_note(struct worker *worker, const bson_oid_t *commit,
                                 const char *collection, const bson_value_t *id,
                                 bson_error_t *error);

/* Writes the document (`update` NULL: removes it) if it is as it was `seen`, with the intent. *done: it was. */
truce_status truce__journal_write_same(struct worker *worker, const bson_oid_t *commit,
                                       const char *collection, const bson_t *seen,
                                       const bson_t *update, bool *done, bson_error_t *error);

#endif
