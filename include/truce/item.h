#ifndef TRUCE_ITEM_H
#define TRUCE_ITEM_H

/*
 * Items of an array, changed in place: each call is one atomic write of one document, so whoever
 * reads never sees an item absent, twice or half-changed, and the other items keep their order.
 *
 *     {_id, badges: [{type: "TOP_EMPLOYEE", date: ...}, {type: "MENTOR", ...}]}
 *
 *     truce_item_update(badges, NULL, {_id: 1}, {type: "TOP_EMPLOYEE"}, {$set: {date: null}}, ...)
 *
 * After "MongoDB Arrays and Atomicity", which had to pull an item and push it back. The same calls
 * work where the items stand in a map, keyed by what identifies them; which of the two a document
 * has is looked at call by call, so both may stand in one collection, and one may be turned into
 * the other while writers are at work (truce_item_convert):
 *
 *     {_id, badges: {TOP_EMPLOYEE: {type: "TOP_EMPLOYEE", date: ...}, MENTOR: {type: "MENTOR"}}}
 *
 * Keys of a map: the identity if it is a string, with "%", ".", "$" and NUL as %25 %2E %24 %00, and
 * "%" alone for the empty one; any other value as "%" and its type ("%n5", "%o6560...").
 *
 * Writes keep out of the way of commits that hold a document (truce/commit.h), and set its `_rev`,
 * so that a commit that read it sees that it changed.
 *
 * Threads: an item handle may be used from any number of threads at once. It must be freed before
 * its store is closed.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_item truce_item;

typedef enum truce_item_layout { TRUCE_ITEM_ARRAY = 0, TRUCE_ITEM_MAP } truce_item_layout;

/* How items of an array are changed; all leave the same documents. */
typedef enum truce_item_form {
    TRUCE_ITEM_FORM_AUTO = 0,   /* by what the store can do */
    TRUCE_ITEM_FORM_OPERATOR,   /* {$update: {badges: {$query: ..., $set: ...}}} */
    TRUCE_ITEM_FORM_FILTERS,    /* {$set: {"badges.$[i].date": ...}} with array filters */
    TRUCE_ITEM_FORM_POSITIONAL, /* {$set: {"badges.$.date": ...}} where one item is meant, else the
                                   list as a whole if nobody changed it since it was read */
} truce_item_form;

/* Zero means default; collection, field and identity have to be said (INVALID names the one that is
 * missing). Texts are copied. */
typedef struct truce_item_options {
    const char *collection; /* for example "employees" */
    const char *field;    /* the array, by its path: "badges", "profile.badges"; through an array of
                               documents with $[]: "orders.$[].lines" (update and remove only) */
    const char *identity; /* the field of an item that tells it from the others: "type" */
    truce_item_layout layout; /* of documents that have no items yet */
    truce_item_form form;
    uint32_t deadline_ms; /* how long to wait for commits, and to go on trying; 0: 30,000 */
    const char *version;  /* the field with the document's number (truce/revision.h), which every
                             change raises; NULL: it has none */
    bool relaxed;         /* do not wait for the disk */
    uint64_t reserved[4]; /* zeros */
} truce_item_options;

typedef struct truce_item_result {
    int64_t matched;  /* items that the query found; -1: the change was made, but the store's answer
                         was lost, and how many items it met cannot be told */
    int64_t modified; /* of these, those that are different now, or gone */
    bool added;       /* an item was appended (add, upsert) */
    uint64_t reserved[4]; /* zeros */
} truce_item_result;

/* Never fails and asks the store nothing; wrong options are refused by the first call. */
TRUCE_EXPORT truce_item *truce_item_new(truce_store *store, const truce_item_options *options);
/* NULL is allowed. */
TRUCE_EXPORT void truce_item_free(truce_item *item);

/*
 * All of them change the first document that matches `filter`; NOT_FOUND: none does. That no item
 * matches is OK, with matched 0. With a commit the change is part of it, and made when it is applied;
 * without one (NULL) it is made now. `result` may be NULL.
 *
 * `query` is a condition as $pull has it: on the fields of items that are documents ({} for all), or
 * on the items themselves ({$gte: 5}). $expr, $where and $text are refused.
 *
 * INVALID: it cannot be done, ever (with MongoDB's codes: 40 for two operators on one path); LIMIT:
 * the document would be too large; LOCKED: a commit did not let go, or others were faster all the
 * time; UNKNOWN: the store did not answer, and the document does not tell.
 */

/* `update`: MongoDB's operators, with paths that begin at the item. The identity cannot be changed. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_item_update(truce_item *item, truce_commit *commit, const bson_t *filter, const bson_t *query,
                  const bson_t *update, truce_item_result *result, bson_error_t *error);

/* Appends `document` unless an item of its identity is there (matched 1, nothing is changed). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_add(truce_item *item, truce_commit *commit,
                                                        const bson_t *filter,
                                                        const bson_t *document,
                                                        truce_item_result *result,
                                                        bson_error_t *error);

/* The item of the identity of `document` becomes it, in its place. `query` (NULL: none) must match
 * the old item besides. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_replace(
    truce_item *item, truce_commit *commit, const bson_t *filter, const bson_t *query,
    const bson_t *document, truce_item_result *result, bson_error_t *error);

/* Replaces, or adds if there is no such item. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_upsert(truce_item *item, truce_commit *commit,
                                                           const bson_t *filter,
                                                           const bson_t *document,
                                                           truce_item_result *result,
                                                           bson_error_t *error);

TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_remove(truce_item *item, truce_commit *commit,
                                                           const bson_t *filter,
                                                           const bson_t *query,
                                                           truce_item_result *result,
                                                           bson_error_t *error);

/* ---- the map form --------------------------------------------------------------------------- */

/* The key under which an identity stands in a map; bson_free it. NULL: no item is known by such a
 * value (a document, an array, null, a regular expression, NaN). */
TRUCE_EXPORT char *truce_item_key(const bson_value_t *identity);

/* An index on a field of the items: for arrays and maps alike. A map needs one for each of `keys`
 * (identities, an array); with `keys` NULL a wildcard index over the whole map, INVALID where the
 * store has none. `path` NULL: the identity (arrays only). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_index(truce_item *item,
                                                          truce_item_layout layout,
                                                          const char *path, const bson_t *keys,
                                                          bson_error_t *error);

typedef struct truce_item_converted {
    int64_t documents;    /* turned into the other layout by this call */
    int64_t refused;      /* left as they are: an item without identity, or two of one identity */
    uint64_t reserved[4]; /* zeros */
} truce_item_converted;

/* Turns every document of the collection into `layout`, one atomic write for each, while others read
 * and write them. Stopped half-way it goes on where it was when it is called again. `why` (may be
 * NULL) gets the reason of the first refused document. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_convert(truce_item *item,
                                                            truce_item_layout layout,
                                                            truce_item_converted *converted,
                                                            bson_error_t *why, bson_error_t *error);

TRUCE_END_DECLS

#endif
