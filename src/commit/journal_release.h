#ifndef TRUCE_COMMIT_JOURNAL_RELEASE_H
#define TRUCE_COMMIT_JOURNAL_RELEASE_H

/* What the steps of the journal share among themselves. */
#include "commit/entry.h"
#include "commit/journal.h"
#include "merge/diff.h"
#include "store/maintenance.h"

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

/* The changes of one document in a decided commit, and what plain writers made of the same fields since. */

/* Appends `changes: [...]` with all of the diff from the entry's base to its `after`. */
void truce__changes_append(bson_t *element, const struct entry *entry, const struct diff *diff);

#endif
