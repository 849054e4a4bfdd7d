#ifndef TRUCE_COMMIT_JOURNAL_RELEASE_H
#define TRUCE_COMMIT_JOURNAL_RELEASE_H

/* The single writes of the journal, for steps that are sent together (journal.c, CK1). */
#include "commit/commit_entry.h"
#include "commit/journal.h"
#include "merge/document_diff.h"
#include "store/maintenance.h"

/* A write, and the documents that it borrows. */
struct step_write {
    truce_write write;
    bson_t filter, document, exact;
};

/* Initializes the write and its documents. */
void truce__step_write_init(struct step_write *made, truce_write_kind kind, const char *collection);
void truce__step_write_free(struct step_write *made);

/* Makes the write that releases an entry. `seen` is its document with the intent, as the prepare
 * left it, or NULL for a stub. Takes over `seen`. */
void truce__journal_release_write(const truce_store *store, const bson_oid_t *commit,
                                  const bson_t *post, bson_t *seen, struct step_write *made);

/* Makes the write that removes this commit's intent, and what it reserved (`keys`: see
 * truce__journal_strip). */
void truce__journal_strip_write(const char *collection, const bson_value_t *id,
                                const bson_oid_t *commit, int32_t keys, struct step_write *made);
/* Makes the write that removes this commit's stub. */
void truce__journal_strip_stub_write(const char *collection, const bson_value_t *id,
                                     const bson_oid_t *commit, struct step_write *made);

/* Makes the write of truce__journal_done. */
void truce__journal_done_write(const bson_oid_t *commit, struct step_write *made);

/* Appends `changes: [...]` with the whole diff from the entry's base to its `after`. */
void truce__changes_append(bson_t *element, const struct entry *entry, const struct diff *diff);

#endif
