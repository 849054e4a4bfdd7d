#ifndef TRUCE_COMMIT_JOURNAL_STEP_H
#define TRUCE_COMMIT_JOURNAL_STEP_H

/* What the steps of the journal share among themselves. */
#include "commit/journal.h"
#include "store/maintenance.h"

/* {_id: id, "_intent.c": commit} */
void truce__filter_intent(const bson_value_t *id, const bson_oid_t *commit, bson_t *filter);

/* The document of an entry `whole` or `insert`, with its revision. */
void truce__journal_whole(const bson_t *post, const bson_oid_t *commit, bson_t *document);

/* What an entry that changes a document leaves of one as a plain writer made it (journal_force.c). */
struct merged {
    bson_t after; /* empty: it goes */
    bson_t lost;  /* [{p, v}]: what of it finds no place there */
    const char *reason;
};

/* `merge` false: the commit's values stand, whatever they could be merged with. Initialises `merged`. */
void truce__journal_merge(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
                          bool merge, struct merged *merged);
void truce__merged_release(struct merged *merged);

/* Keeps what is lost, or notes it, if it is too large. */
truce_status truce__journal_keep(struct worker *worker, const bson_oid_t *commit,
                                 const bson_t *post, const struct merged *merged,
                                 bson_error_t *error);

/* Releases a document as it was `seen`, with the intent, and with what a plain writer changed. *done: it was so still.
 */
truce_status truce__journal_release_merged(struct worker *worker, const bson_oid_t *commit,
                                           const bson_t *post, const bson_t *seen, bool *done,
                                           bson_error_t *error);

/* Releases an entry `set` that the store refused for `reason` (journal_force.c). LOCKED: it is refused
 * still. */
truce_status truce__journal_force(struct worker *worker, const bson_oid_t *commit,
                                  const bson_t *post, const bson_error_t *reason,
                                  bson_error_t *error);

/* One write, and what it is made of. */
struct step_write {
    truce_write write;
    bson_t filter, document, exact;
};

/* Initialises what is there of it. */
void truce__step_write_init(struct step_write *made, truce_write_kind kind, const char *collection);
void truce__step_write_free(struct step_write *made);

/* The write that releases an entry whose document is as it was `seen`, with the intent, and as the prepare left it; NULL: a
 * stub. `seen` is taken over. */
void truce__journal_release_write(const truce_store *store, const bson_oid_t *commit,
                                  const bson_t *post, bson_t *seen, struct step_write *made);

/* The write that takes this commit's intent off a document, and what it reserved (`keys` as of truce__journal_strip). */
void truce__journal_strip_write(const char *collection, const bson_value_t *id,
                                const bson_oid_t *commit, int32_t keys, struct step_write *made);
/* The one that takes its stub away. */
void truce__journal_strip_stub_write(const char *collection, const bson_value_t *id,
                                     const bson_oid_t *commit, struct step_write *made);

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
