#ifndef TRUCE_PATTERNS_REVISION_REVISION_H
#define TRUCE_PATTERNS_REVISION_REVISION_H

/* Declarations that the files of revisions share. truce/revision.h has the contract; revision.c has
 * the essay. */
#include <stdatomic.h>

#include "base/status.h"
#include "bson/value.h"
#include "merge/merge.h"
#include "store/reserved_names.h"
#include "truce/revision.h"
#include "truce/sys/store.h"

/* A handle for the versions of the documents of a collection. */
struct truce_revision {
    truce_store *store;
    char *collection, *version;
    /* The collection of kept versions: "<collection>.revisions". Owned. */
    char *kept;
    struct merge_rules *rules;
    /* The rules in the form that entries of the inbox store, or NULL if the handle has no rules.
     * Owned. */
    char *rules_text;
    bool strict, inbox;
    uint32_t keep, deadline_ms, tries_max;
    int64_t keep_ms;
    bool relaxed;
    /* The store's structure number plus one when the index for expiring versions existed, or 0
     * before that. */
    atomic_uint_fast64_t structure;
    bson_error_t refusal;
    /* The options are invalid; every call fails with `refusal`. */
    bool refused;
};

/* Reads the number of a document. The number is 0 if the document has none. Returns TRUCE_INVALID
 * if the field is not an integer in the valid range. */
truce_status truce__revision_number(const truce_revision *revision, const bson_t *document,
                                    int64_t *number, bson_error_t *error);

/* Appends the document without its number and truce's fields: the part that is compared and
 * merged. */
void truce__revision_content(const truce_revision *revision, const bson_t *document,
                             bson_t *content);

/* Runs the function, which may replace a document, in `commit`, or in a commit of its own if
 * `commit` is NULL. Ensures the index of expiring versions first. */
truce_status truce__revision_write(truce_revision *revision, truce_commit *commit,
                                   truce_commit_function *function, void *arg, bson_error_t *error);

/* Releases the result and initializes it for a new call. */
void truce__revision_reset(truce_revision_result *result);

/* ---- revision_history.c: replaced versions ---- */

/* Creates the index by which truce_store_expire finds versions that are kept for a time. */
truce_status truce__revision_index(truce_revision *revision, bson_error_t *error);
/* Keeps `document`, which has that number and which the commit replaces. Drops the version that is
 * now older than the last `keep` ones. */
truce_status truce__revision_keep(truce_revision *revision, truce_commit *commit,
                                  const bson_t *document, int64_t number, bson_error_t *error);
/* Records the number in the commit that removes the document, so that the number is never given
 * again. */
truce_status truce__revision_bury(truce_revision *revision, truce_commit *commit,
                                  const bson_value_t *id, int64_t number, bson_error_t *error);
/* Finds the first number of a document, at least `least`, and reserves a range for it, in the
 * commit that writes the document. */
truce_status truce__revision_first(truce_revision *revision, truce_commit *commit,
                                   const bson_value_t *id, int64_t least, int64_t *number,
                                   bson_error_t *error);
/* Gives a document that the commit has read a new number if another program wrote it under a number
 * that was given before. */
truce_status truce__revision_renumber(truce_revision *revision, truce_commit *commit,
                                      const bson_value_t *id, bson_t *document, int64_t *number,
                                      bool *renumbered, bson_error_t *error);
/* Reads the kept version of a number. Returns TRUCE_NOT_FOUND if that version is not kept. */
truce_status truce__revision_stored_version(truce_revision *revision, truce_commit *commit,
                                            const bson_value_t *id, int64_t number,
                                            bson_t *document, bson_error_t *error);

/* ---- revision.c: one save inside of a commit ---- */

/* One save inside of a commit. */
struct revision_save {
    truce_revision *revision;
    const struct merge_rules *rules;
    /* The document to save, and the document that the caller read. If `base` is NULL, the base is
     * the kept version, and only the number is compared. */
    const bson_t *mine, *base;
    int64_t version;
    bool merges;
    bool inbox;
    /* The commit has read the document itself, so its number is current. */
    bool current;
    truce_revision_result *result;
};
/* Saves in a commit (a truce_commit_function). `save` is a struct revision_save, whose result is
 * reset first. */
truce_status truce__revision_save_in(truce_commit *commit, void *save, bson_error_t *error);

/* Adds a conflict {path, kind} to the array. */
void truce__revision_append_conflict(bson_t *conflicts, const char *path, const char *kind);

/* Sets the document of the result to `content` with that number. */
void truce__revision_set_document(const truce_revision *revision, truce_revision_result *result,
                                  const bson_t *content, int64_t number);

/* ---- revision_conflict_inbox.c: the entries of the inbox ---- */

/* Stores the conflict of a save in its commit. An existing entry, even a decided one, is open
 * again. */
truce_status truce__revision_put_entry(struct revision_save *save, truce_commit *commit,
                                       const bson_value_t *id, bson_error_t *error);

/* Returns the handle's rules or, if it has none, the rules of the save that created the entry: they
 * go into `kept`, which the caller frees. */
const struct merge_rules *truce__revision_entry_rules(const truce_revision *revision,
                                                      const bson_t *entry,
                                                      struct merge_rules **kept);

#endif
