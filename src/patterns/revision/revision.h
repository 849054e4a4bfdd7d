#ifndef TRUCE_PATTERNS_REVISION_REVISION_H
#define TRUCE_PATTERNS_REVISION_REVISION_H

/* What the files of revisions share. The contract is in truce/revision.h; the essay in revision.c. */
#include <stdatomic.h>

#include "base/status.h"
#include "bson/value.h"
#include "merge/merge.h"
#include "store/reserved.h"
#include "truce/revision.h"
#include "truce/sys/store.h"

struct truce_revision {
    truce_store *store;
    char *collection, *version;
    char *kept; /* "<collection>.revisions" */
    struct merge_rules *rules;
    char *rules_text; /* as the entries of the inbox keep them; NULL: there are none */
    bool strict, inbox;
    uint32_t keep, deadline_ms, tries_max;
    int64_t keep_ms;
    bool relaxed;
    atomic_uint_fast64_t
        structure; /* of the store, when what is kept for a time had its index; 0: not yet */
    bson_error_t refusal;
    bool refused; /* the options were wrong, `refusal` says why */
};

/* The number in a document; 0: it has none. INVALID: it is no whole number of its range. */
truce_status truce__revision_number(const truce_revision *revision, const bson_t *document,
                                    int64_t *number, bson_error_t *error);

/* The document without its number and truce's own fields: what is compared and merged. */
void truce__revision_content(const truce_revision *revision, const bson_t *document,
                             bson_t *content);

/* The same for one that may replace a document. */
truce_status truce__revision_write(truce_revision *revision, truce_commit *commit,
                                   truce_commit_function *function, void *arg, bson_error_t *error);

/* `result` as at the beginning of a call; whatever was in it is released. */
void truce__revision_reset(truce_revision_result *result);

/* ---- revision.c: what stands there against what was read ---- */

/* ---- revision_keep.c: replaced versions ---- */

/* Versions that are kept for a time get the index by which truce_store_expire finds them. */
truce_status truce__revision_index(truce_revision *revision, bson_error_t *error);
/* In a commit that replaces `document`, of that number: keeps it, and drops what is beyond `keep`. */
truce_status truce__revision_keep(truce_revision *revision, truce_commit *commit,
                                  const bson_t *document, int64_t number, bson_error_t *error);
/* In a commit that removes it: the number is never given again. */
truce_status truce__revision_bury(truce_revision *revision, truce_commit *commit,
                                  const bson_value_t *id, int64_t number, bson_error_t *error);
/* In a commit that inserts: the number that the new document gets. */
truce_status truce__revision_first(truce_revision *revision, truce_commit *commit,
                                   const bson_value_t *id, int64_t *number, bson_error_t *error);
/* What is kept of a number. NOT_FOUND: nothing. */
truce_status truce__revision_kept(truce_revision *revision, truce_commit *commit,
                                  const bson_value_t *id, int64_t number, bson_t *document,
                                  bson_error_t *error);

/* ---- revision.c: one save inside of a commit ---- */

struct revision_save {
    truce_revision *revision;
    const struct merge_rules *rules;
    const bson_t *mine, *base; /* base NULL: from what is kept, and the number alone is compared */
    int64_t version;
    bool merges;
    bool inbox;
    truce_revision_result *result;
};
truce_status truce__revision_save_in(truce_commit *commit, void *save, bson_error_t *error);

/* Adds {path, kind} to the array. */
void truce__revision_append_conflict(bson_t *conflicts, const char *path, const char *kind);

/* The answer's document: `content` with that number. */
void truce__revision_set_document(const truce_revision *revision, truce_revision_result *result,
                                  const bson_t *content, int64_t number);

/* ---- revision_inbox.c: the entries of the inbox ---- */

/* In a commit whose save is a conflict: one that is there, decided or not, is open again. */
truce_status truce__revision_put_entry(struct revision_save *save, truce_commit *commit,
                                       const bson_value_t *id, bson_error_t *error);

/* Of the handle; where it has none, those of the save that told the entry: into `*kept`, which the caller frees. */
const struct merge_rules *truce__revision_entry_rules(const truce_revision *revision,
                                                      const bson_t *entry,
                                                      struct merge_rules **kept);

/* ---- revision.c ---- */

#endif
