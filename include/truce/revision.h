#ifndef TRUCE_REVISION_H
#define TRUCE_REVISION_H

/*
 * Revisions: documents with optimistic concurrency control.
 *
 * People, or slow programs, read such a document, change it, and save it later. Each document has a
 * revision number, which every save increments. A save names the number that was read. If another
 * save happened in between, the two changes are merged, or the caller receives both sides and their
 * differences.
 *
 *     {_id, title: ..., body: ..., version: 4}
 *
 * The idea comes from "Ensuring Write-Your-Own-Reads Consistency in MongoDB". A web application
 * carries the number in a hidden field of a form, or as an ETag (below).
 *
 * With `keep`, the replaced versions are stored in the collection "<collection>.revisions":
 *
 *     {_id: {id, version: 3}, at: <date of the save that replaced it>, until?, document: {...}}
 *
 * The save of a caller that only knows the number can then be merged. With the first number of a
 * document, and with its removal, {_id: {id, version: -1}, last: 4} is stored there, with and
 * without `keep`. Therefore no number is used twice for one _id. For a document that a plain writer
 * removed, this holds up to 2^32 numbers. If a plain writer inserts a document with a number that
 * was given before, or replaces a whole document and keeps its number, the number is not valid. The
 * document gets a new one, and a caller without a base gets a conflict with the new number. A
 * document without a number has number 0, which identifies no state of it: also pass `base`.
 *
 * Merges follow paths and policies (docs/revisions.md). `rules` is a document such as {views:
 * "sum", tags: "union", body: "text", lines: {key: "sku"}, $default: "ask"}.
 *
 * Threads: any number of threads may share a handle. Free the handle before you close its store.
 *
 * Every write path should increment the number. All calls here do, items do with their option
 * `version`, and your own updates do with {$inc: {version: 1}}, in commits or plain. If another
 * program changes a document without incrementing the number, a save that passes `base` detects the
 * change and never overwrites it.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_revision truce_revision;

/* Options of a revision handle. Zero means the default. `collection` is required (TRUCE_INVALID if
 * it is missing). Everything is copied. */
typedef struct truce_revision_options {
    /* For example "posts". */
    const char *collection;
    /* The field with the number. NULL means "version". */
    const char *version;
    /* Merge policies. NULL means that a field that both sides changed is a conflict. */
    const bson_t *rules;
    /* Merge only fields that one side alone changed. */
    bool strict;
    /* The number of replaced versions of each document that are kept. 0 means none. */
    uint32_t keep;
    /* The maximum age of kept versions: truce_store_expire (truce sweep) and truce_revision_prune
     * remove older ones. 0 means no limit. */
    int64_t keep_ms;
    /* Conflicts that a merge cannot resolve are recorded in `truce_conflicts`. */
    bool inbox;
    /* The number of times that a save restarts because of other writers. 0 means 100. */
    uint32_t tries_max;
    /* The deadline of a call. 0 means the deadline_ms of the store, but at most 30,000. */
    uint32_t deadline_ms;
    /* Do not wait for the disk. */
    bool relaxed;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_revision_options;

/* Returns a handle. The call never fails and does not access the store. If the options are wrong,
 * the first call on the handle fails. */
TRUCE_EXPORT truce_revision *truce_revision_new(truce_store *store,
                                                const truce_revision_options *options);
/* Frees the handle. NULL is allowed. */
TRUCE_EXPORT void truce_revision_free(truce_revision *revision);

/* The number of a document that does not exist yet. */
#define TRUCE_REVISION_NEW (-1)

typedef enum truce_revision_outcome {
    /* No other save happened in between, or the document is new. */
    TRUCE_REVISION_SAVED = 1,
    /* Another save happened in between, and both changes are stored. */
    TRUCE_REVISION_MERGED,
    /* The save would change nothing: nothing was written. */
    TRUCE_REVISION_UNCHANGED,
    /* Nothing was written; `conflict` has the reason. */
    TRUCE_REVISION_CONFLICT,
} truce_revision_outcome;

/* Returns "saved", "merged", "unchanged", or "conflict". */
TRUCE_EXPORT const char *truce_revision_outcome_name(truce_revision_outcome outcome);

typedef struct truce_revision_result {
    truce_revision_outcome outcome;
    /* The current number. TRUCE_REVISION_NEW means that no document exists. */
    int64_t version;
    /* The current document. */
    bson_t document;
    /*
     * For a conflict, {version, base?, mine, theirs?, conflicts: [{path, kind, base?, mine?,
     * theirs?}]}; otherwise empty. `kind` is both-changed, both-added, delete-edit, type, order, or
     * for the whole document:
     *
     *     stale     of a save: the document changed since it was read
     *     removed   the document was removed, or it never existed: a save that inserts a document
     *               has the version TRUCE_REVISION_NEW
     *     no-base   the version that was read is no longer known
     *
     * For a string, an element also has hunks: [{base, mine, theirs}], and marked: the string with
     * both sides between markers.
     */
    bson_t conflict;
    /* The id of the conflict in the inbox, or zeros if it was not recorded there. */
    bson_oid_t inbox;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_revision_result;

/* Frees the contents of a result. */
TRUCE_EXPORT void truce_revision_result_release(truce_revision_result *result);

/*
 * The following calls are a part of `commit`, or take effect now if it is NULL. `result` is always
 * filled, and the caller releases it. A conflict is a result (TRUCE_OK).
 *
 *     TRUCE_INVALID                 the call can never succeed
 *     TRUCE_NOT_FOUND               the document does not exist
 *     TRUCE_CONFLICT                other writers won tries_max times
 *     TRUCE_LOCKED, TRUCE_TIMEOUT   as in truce_transact
 *     TRUCE_UNKNOWN                 the store did not reply, and the current document does not
 *                                   reveal whether this save took effect
 *
 * After TRUCE_UNKNOWN, repeating a save is harmless, because a change that is already stored merges
 * to nothing. The exception is the policy "sum", which would count twice. If a change must count
 * exactly once, save it in truce_transact under a key (truce/commit.h) and repeat it with the same
 * key.
 */

/* Returns a document and its number. `version` may be NULL. A document without a number has number
 * 0. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_get(truce_revision *revision,
                                                            truce_commit *commit,
                                                            const bson_value_t *id,
                                                            bson_t *document, int64_t *version,
                                                            bson_error_t *error);

/* Saves `mine`, a whole document with its _id, if `version` is still the number and `base` is still
 * the document. `version` is the result of truce_revision_get: 0 is the number of a document
 * without one, and a conflict if there is no such document. TRUCE_REVISION_NEW inserts a new
 * document. `base` is the document that was read. The order of fields and the types of equal
 * numbers do not matter. A number whose type has changed since keeps the new type where `mine`
 * leaves it unchanged. If `base` is NULL, only the number is compared. A conflict or a merge then
 * takes its base from the kept versions. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_save(
    truce_revision *revision, truce_commit *commit, const bson_t *mine, int64_t version,
    const bson_t *base, truce_revision_result *result, bson_error_t *error);

/* Saves `mine`, merged with other changes since `version`, or with changes under the same
 * number. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_merge(
    truce_revision *revision, truce_commit *commit, const bson_t *mine, int64_t version,
    const bson_t *base, truce_revision_result *result, bson_error_t *error);

/* The format of a patch. */
typedef enum truce_patch_kind {
    /* MongoDB's update operators. */
    TRUCE_PATCH_OPERATORS = 1,
    /* RFC 6902: an array of operations. */
    TRUCE_PATCH_JSON,
    /* RFC 7396. */
    TRUCE_PATCH_MERGE,
} truce_patch_kind;

/* Applies a patch to the document with this number (`any`: to the current document) and saves
 * it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_revision_patch(truce_revision *revision, truce_commit *commit, const bson_value_t *id,
                     int64_t version, bool any, truce_patch_kind kind, const bson_t *patch,
                     truce_revision_result *result, bson_error_t *error);

/* Removes the document if `version` is still its number and `base`, the document that was read, is
 * still current (NULL means that only the number is compared). The outcome TRUCE_REVISION_SAVED
 * means that it was removed. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_remove(
    truce_revision *revision, truce_commit *commit, const bson_value_t *id, int64_t version,
    const bson_t *base, truce_revision_result *result, bson_error_t *error);

/* Returns a patch of `kind` that changes one document into the other; for TRUCE_PATCH_JSON,
 * `patch` is an array. If a merge patch cannot express the difference, the call fails with
 * TRUCE_INVALID. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_diff(const bson_t *before,
                                                             const bson_t *after,
                                                             truce_patch_kind kind, bson_t *patch,
                                                             bson_error_t *error);

/* ---- kept versions ------------------------------------------------------------------------ */

/* Returns a kept version. If the version is not kept, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_at(truce_revision *revision,
                                                           const bson_value_t *id, int64_t version,
                                                           bson_t *document, bson_error_t *error);

/* Lists the replaced versions that are kept, newest first, in the form above. The caller closes the
 * cursor. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_log(truce_revision *revision,
                                                            const bson_value_t *id,
                                                            truce_cursor **cursor,
                                                            bson_error_t *error);

/* Removes kept versions that are older than keep_ms. `*pruned` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_prune(truce_revision *revision,
                                                              int64_t *pruned, bson_error_t *error);

/* ---- the inbox ---------------------------------------------------------------------------- */

/*
 * Lists the open conflicts of the collection, oldest first, as entries: {_id, collection, id, at,
 * rules?, version, base?, mine, theirs?, conflicts}. Each entry compares with the current document:
 *
 *     version     its number (-1 means that it was removed)
 *     theirs      the document
 *     conflicts   the differences between `mine` and the document; there may be none left
 *     rules       the rules of the save, as a string; they apply for a handle without rules
 *
 * The same edit, sent again, is the same entry. Nothing is written. Close the cursor before you
 * free the handle.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_conflicts(truce_revision *revision,
                                                                  truce_cursor **cursor,
                                                                  bson_error_t *error);

/* Returns one entry. If no such open conflict exists, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_conflict(truce_revision *revision,
                                                                 const bson_oid_t *conflict,
                                                                 bson_t *entry,
                                                                 bson_error_t *error);

typedef enum truce_resolution {
    /* The merged document, with `mine` where both sides differ. */
    TRUCE_RESOLVE_MINE = 1,
    /* The merged document, with `theirs` where both sides differ. */
    TRUCE_RESOLVE_THEIRS,
    /* The document that the caller passes. */
    TRUCE_RESOLVE_DOCUMENT,
} truce_resolution;

/*
 * Resolves an entry against the revision `seen`: the entry as it was shown, or only its {version}.
 * With only the number, the document is looked up, and changes of a plain writer under the same
 * number count as seen. NULL means the entry as the save or a call of this kind last returned it.
 *
 * The call saves the resolution, merged with later saves, and closes the entry, in one commit. It
 * also closes the entries of the document with the same edit, and those whose changes are all
 * stored now. If later saves contradict the decision, or `seen` is no longer known or was removed,
 * the outcome is a conflict and nothing is saved. The entry stays open and compares with the
 * current document, which `conflict` shows: review it and decide again.
 *
 * If no such open conflict exists, the call fails with TRUCE_NOT_FOUND.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_revision_resolve(truce_revision *revision, truce_commit *commit, const bson_oid_t *conflict,
                       truce_resolution resolution, const bson_t *document, const bson_t *seen,
                       truce_revision_result *result, bson_error_t *error);

/* ---- over HTTP ---------------------------------------------------------------------------- */

/* The buffer size for truce_revision_etag. */
#define TRUCE_ETAG_SIZE 24

/* Formats the number as a strong entity tag: "\"4\"". */
TRUCE_EXPORT void truce_revision_etag(int64_t version, char etag[TRUCE_ETAG_SIZE]);

/* The conditions of an HTTP request. */
typedef struct truce_http_request {
    /* "GET", "PUT" ... */
    const char *method;
    /* The values of the header fields; several fields joined by commas. NULL means absent. */
    const char *if_match;
    const char *if_none_match;
    /* Refuse requests that change data without a condition, with status 428 (RFC 6585). */
    bool demand;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_http_request;

/* Evaluates a request by RFC 9110, section 13, for a document with this number (TRUCE_REVISION_NEW:
 * no document exists). Returns 0 to continue, or the status code 304, 412, 428, or 400 for a
 * malformed condition or nonzero `reserved`. */
TRUCE_EXPORT int truce_revision_http(const truce_http_request *request, int64_t version);

TRUCE_END_DECLS

#endif
