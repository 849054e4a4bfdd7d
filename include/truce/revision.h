#ifndef TRUCE_REVISION_H
#define TRUCE_REVISION_H

/*
 * Revisions: documents that people (or programs that think for long) read, change and save. Each has
 * a number that every save raises; a save says which number was read. If somebody else saved in
 * between, the two changes are merged, or the caller gets both sides and what they disagree about.
 *
 *     {_id, title: ..., body: ..., version: 4}
 *
 * After "Ensuring Write-Your-Own-Reads Consistency in MongoDB". The number travels in a hidden field of
 * a form, or as an ETag (below).
 *
 * With `keep`, the replaced versions are kept in the collection "<collection>.revisions":
 *
 *     {_id: {id, version: 3}, at: <date of the save that replaced it>, until?, document: {...}}
 *
 * so that a caller who only has the number can be merged with. With the first number of a document, and with its removal,
 * {_id: {id, version: -1}, last: 4} is stored there (with `keep` and without), so that numbers are never used again for one
 * _id: a document that a plain writer removed may have had up to 2^32 numbers. A document without a number has 0, which
 * identifies no document: give `base`, too.
 *
 * Merging is by paths and policies (docs/revisions.md): `rules` is a document such as
 * {views: "sum", tags: "union", body: "text", lines: {key: "sku"}, $default: "ask"}.
 *
 * Threads: a handle may be used from any number of threads at once. It must be freed before its store
 * is closed.
 *
 * Every write path should raise the number. All calls here do; items do with their option `version`;
 * updates of your own, in commits or plain, with {$inc: {version: 1}}. What another program changed
 * without raising it is seen by a save that says what was read (`base`), and is never overwritten by it.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_revision truce_revision;

/* Zero means default; the collection has to be said (INVALID: it is missing). Everything is copied. */
typedef struct truce_revision_options {
    const char *collection; /* for example "posts" */
    const char *version;    /* the field with the number; NULL: "version" */
    const bson_t *rules;    /* policies of merges; NULL: whatever both changed is a conflict */
    bool strict;            /* merge only what one side alone changed */
    uint32_t keep;          /* how many replaced versions of each document are kept; 0: none */
    int64_t keep_ms;        /* and how long at most: truce_store_expire (truce sweep) and
                               truce_revision_prune remove older ones; 0: no limit */
    bool inbox;             /* what merge cannot merge goes to `truce_conflicts` */
    uint32_t tries_max;     /* how often a save begins again because of others; 0: 100 */
    uint32_t deadline_ms;   /* 0: 30,000 */
    bool relaxed;           /* do not wait for the disk */
    uint64_t reserved[4];   /* zeros */
} truce_revision_options;

/* Never fails and asks the store nothing; wrong options are refused by the first call. */
TRUCE_EXPORT truce_revision *truce_revision_new(truce_store *store,
                                                const truce_revision_options *options);
/* NULL is allowed. */
TRUCE_EXPORT void truce_revision_free(truce_revision *revision);

/* A document that is not there yet. */
#define TRUCE_REVISION_NEW (-1)

typedef enum truce_revision_outcome {
    TRUCE_REVISION_SAVED = 1, /* nobody had saved in between (or it is a new document) */
    TRUCE_REVISION_MERGED,    /* somebody had, and both changes are in */
    TRUCE_REVISION_UNCHANGED, /* nothing would be different: nothing was written */
    TRUCE_REVISION_CONFLICT,  /* nothing was written; `conflict` says why */
} truce_revision_outcome;

/* "saved", "merged", "unchanged", "conflict" */
TRUCE_EXPORT const char *truce_revision_outcome_name(truce_revision_outcome outcome);

typedef struct truce_revision_result {
    truce_revision_outcome outcome;
    int64_t version; /* that stands now; TRUCE_REVISION_NEW: there is no document */
    bson_t document; /* as it stands now */
    /* {version, base?, mine, theirs?, conflicts: [{path, kind, base?, mine?, theirs?}]} for a conflict, else
     * empty; kind: both-changed, both-added, delete-edit, type, order, and for the whole document
     * stale (save: somebody changed it since), removed, no-base (what was read is not known any more). Of
     * a text also hunks: [{base, mine, theirs}], and marked: the text with both between markers. */
    bson_t conflict;
    bson_oid_t inbox;     /* of the conflict in the inbox; zeros: it is not there */
    uint64_t reserved[4]; /* zeros */
} truce_revision_result;

TRUCE_EXPORT void truce_revision_result_release(truce_revision_result *result);

/*
 * With a commit (may be NULL: alone, now) they are part of it. `result` is always filled and
 * released by the caller. A conflict is an answer (TRUCE_OK). INVALID: cannot be, ever; NOT_FOUND;
 * CONFLICT: others saved faster, tries_max times; LOCKED, TIMEOUT as truce_transact.
 *
 * UNKNOWN: the store did not answer, and what stands there now does not tell whether this was saved.
 * To ask again is harmless (what is in already merges to nothing), but for the policy "sum", which would
 * count twice. What must count exactly once is saved in truce_transact under a key (truce/commit.h),
 * and asked for again with the same key.
 */

/* `version` may be NULL. A document without a number has 0. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_get(truce_revision *revision,
                                                            truce_commit *commit,
                                                            const bson_value_t *id,
                                                            bson_t *document, int64_t *version,
                                                            bson_error_t *error);

/* Saves `mine`, a whole document with its _id, if `version` is still the number and `base`, what was read, is
 * what stands (the order of fields and the types of equal numbers are no difference; a number that has
 * got another type since keeps it where mine leaves it as it was). NULL: the number alone is compared, and
 * the base for a conflict's data or a merge is what is kept. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_save(
    truce_revision *revision, truce_commit *commit, const bson_t *mine, int64_t version,
    const bson_t *base, truce_revision_result *result, bson_error_t *error);

/* Saves `mine`, merged with what others saved since `version`, or changed under the same number. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_merge(
    truce_revision *revision, truce_commit *commit, const bson_t *mine, int64_t version,
    const bson_t *base, truce_revision_result *result, bson_error_t *error);

typedef enum truce_patch_kind {
    TRUCE_PATCH_OPERATORS = 1, /* MongoDB's update operators */
    TRUCE_PATCH_JSON,          /* RFC 6902: an array of operations */
    TRUCE_PATCH_MERGE,         /* RFC 7396 */
} truce_patch_kind;

/* Applies a patch to the document of that number (`any`: to whatever stands there), and saves. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_revision_patch(truce_revision *revision, truce_commit *commit, const bson_value_t *id,
                     int64_t version, bool any, truce_patch_kind kind, const bson_t *patch,
                     truce_revision_result *result, bson_error_t *error);

/* Removes the document if `version` is still its number and `base`, what was read, is what stands (NULL: the number
 * alone is compared). SAVED: it is gone. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_remove(
    truce_revision *revision, truce_commit *commit, const bson_value_t *id, int64_t version,
    const bson_t *base, truce_revision_result *result, bson_error_t *error);

/* A patch of `kind` that brings one document to another; `patch` is an array for JSON. INVALID: a
 * merge patch cannot say it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_diff(const bson_t *before,
                                                             const bson_t *after,
                                                             truce_patch_kind kind, bson_t *patch,
                                                             bson_error_t *error);

/* ---- what is kept ----------------------------------------------------------------------------- */

/* A version as it was. NOT_FOUND: it is not kept. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_at(truce_revision *revision,
                                                           const bson_value_t *id, int64_t version,
                                                           bson_t *document, bson_error_t *error);

/* The replaced versions that are kept, newest first, as above. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_log(truce_revision *revision,
                                                            const bson_value_t *id,
                                                            truce_cursor **cursor,
                                                            bson_error_t *error);

/* Removes kept versions that are older than keep_ms. `*pruned` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_prune(truce_revision *revision,
                                                              int64_t *pruned, bson_error_t *error);

/* ---- the inbox -------------------------------------------------------------------------------- */

/* The open conflicts of the collection, oldest first, as entries: {_id, collection, id, at, rules?, version,
 * base?, mine, theirs?, conflicts}. Each is against what stands now: `version` is its number (-1: it was removed),
 * `theirs` its document, and `conflicts` what `mine` disagrees about with that; it may be nothing any more. `rules`
 * are those of the save, as text; they hold for a handle without any. The same edit, sent again, is the same entry.
 * Nothing is written. The cursor is closed before the handle is freed. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_conflicts(truce_revision *revision,
                                                                  truce_cursor **cursor,
                                                                  bson_error_t *error);

/* One of them. NOT_FOUND: there is no such open conflict. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_revision_conflict(truce_revision *revision,
                                                                 const bson_oid_t *conflict,
                                                                 bson_t *entry,
                                                                 bson_error_t *error);

typedef enum truce_resolution {
    TRUCE_RESOLVE_MINE = 1, /* everything merged, and mine where both sides disagree */
    TRUCE_RESOLVE_THEIRS,   /* ... theirs */
    TRUCE_RESOLVE_DOCUMENT, /* the document that is given */
} truce_resolution;

/*
 * Decides an entry against the revision that was `seen`: the entry as it was shown, or {version} of it alone, from
 * which the document is looked up (what a plain writer did to it under its number is then taken for seen). NULL: as
 * it was told last, by the save or by the answer of a call of this kind.
 *
 * Saves the resolution, merged with what was saved since, and closes the entry, in one commit; with it
 * those of the document that say the same: the same edit, or one whose changes all stand now. Where what was saved since
 * disagrees with the decision, or what was seen is not known any more (or was removed), it is a CONFLICT outcome, and nothing is saved. The
 * entry stays open, told against what stands now, which `conflict` shows: look again, decide again.
 *
 * NOT_FOUND: there is no such open conflict.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_revision_resolve(truce_revision *revision, truce_commit *commit, const bson_oid_t *conflict,
                       truce_resolution resolution, const bson_t *document, const bson_t *seen,
                       truce_revision_result *result, bson_error_t *error);

/* ---- over HTTP -------------------------------------------------------------------------------- */

#define TRUCE_ETAG_SIZE 24

/* The number as a strong entity tag: "\"4\"". */
TRUCE_EXPORT void truce_revision_etag(int64_t version, char etag[TRUCE_ETAG_SIZE]);

typedef struct truce_http_request {
    const char *method;   /* "GET", "PUT" ... */
    const char *if_match; /* the fields' values; several fields joined by commas; NULL: absent */
    const char *if_none_match;
    bool demand;          /* requests that change something must have a condition (RFC 6585) */
    uint64_t reserved[4]; /* zeros */
} truce_http_request;

/* What RFC 9110, section 13, says of a request about a document of that number (TRUCE_REVISION_NEW:
 * there is none): 0: go on; 304; 400: a malformed condition (or `reserved` is not zeros); 412; 428. */
TRUCE_EXPORT int truce_revision_http(const truce_http_request *request, int64_t version);

TRUCE_END_DECLS

#endif
