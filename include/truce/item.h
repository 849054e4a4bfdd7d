#ifndef TRUCE_ITEM_H
#define TRUCE_ITEM_H

/*
 * Items of an array, changed in place.
 *
 * Each call is one atomic write of one document. A reader therefore never sees an item missing,
 * duplicated, or half-changed, and the other items keep their order.
 *
 *     {_id, badges: [{type: "TOP_EMPLOYEE", date: ...}, {type: "MENTOR", ...}]}
 *
 *     truce_item_update(badges, NULL, {_id: 1}, {type: "TOP_EMPLOYEE"}, {$set: {date: null}}, ...)
 *
 * The idea comes from "MongoDB Arrays and Atomicity", which had to pull an item and push it back.
 * The same calls also work if a document stores the items in a map, keyed by the identity of each
 * item. Each call detects the layout of the document, so one collection may contain both.
 * truce_item_convert changes the layout while other programs write:
 *
 *     {_id, badges: {TOP_EMPLOYEE: {type: "TOP_EMPLOYEE", date: ...}, MENTOR: {type: "MENTOR"}}}
 *
 * If the identity is a string, it is the key in the map, with "%", ".", "$", and NUL escaped as
 * %25, %2E, %24, and %00. The key of the empty string is "%". For any other value, the key is "%",
 * a letter for its type, and the value: "%n5" for 5, "%o6560..." for an ObjectId.
 *
 * Writes wait for commits that hold the document (truce/commit.h) and set its `_rev`. A commit that
 * has read the document therefore detects the change.
 *
 * Threads: any number of threads may share an item handle. Free the handle before you close its
 * store.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_item truce_item;

/* The layout of the items in a document: an array, or a map keyed by identity. */
typedef enum truce_item_layout { TRUCE_ITEM_ARRAY = 0, TRUCE_ITEM_MAP } truce_item_layout;

/* The update form for items of an array. All forms leave the same documents. */
typedef enum truce_item_form {
    /* The best form that the store supports. */
    TRUCE_ITEM_FORM_AUTO = 0,
    /* {$update: {badges: {$query: ..., $set: ...}}} */
    TRUCE_ITEM_FORM_OPERATOR,
    /* {$set: {"badges.$[i].date": ...}} with array filters. */
    TRUCE_ITEM_FORM_FILTERS,
    /* {$set: {"badges.$.date": ...}} if the query selects one item. Otherwise the write replaces
     * the whole list, if the list has not changed since it was read. */
    TRUCE_ITEM_FORM_POSITIONAL,
} truce_item_form;

/* Options of an item handle. Zero means the default. `collection`, `field`, and `identity` are
 * required; if one is missing, every call fails with TRUCE_INVALID and names it. Strings are
 * copied. */
typedef struct truce_item_options {
    /* For example "employees". */
    const char *collection;
    /* The path of the array: "badges", "profile.badges". A path may cross an array of documents
     * with $[]: "orders.$[].lines" (update and remove only). */
    const char *field;
    /* The field that identifies an item: "type". */
    const char *identity;
    /* The layout for documents that have no items yet. */
    truce_item_layout layout;
    truce_item_form form;
    /* The maximum time to wait for commits and to retry. 0 means the deadline_ms of the store, but
     * at most 30,000. */
    uint32_t deadline_ms;
    /* The field with the revision number of the document (truce/revision.h), which every change
     * increments. NULL means none. */
    const char *version;
    /* Do not wait for the disk. */
    bool relaxed;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_item_options;

typedef struct truce_item_result {
    /* The number of items that matched the query. -1 means that the change was made, but the
     * store's reply was lost, so the number is unknown. */
    int64_t matched;
    /* The number of matched items that the call changed or removed. */
    int64_t modified;
    /* An item was appended (add, upsert). */
    bool added;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_item_result;

/* Returns a handle. The call never fails and does not access the store. If the options are wrong,
 * the first call on the handle fails. */
TRUCE_EXPORT truce_item *truce_item_new(truce_store *store, const truce_item_options *options);
/* Frees the handle. NULL is allowed. */
TRUCE_EXPORT void truce_item_free(truce_item *item);

/*
 * The following calls change the first document that matches `filter`. If no document matches, a
 * call fails with TRUCE_NOT_FOUND. If no item matches, the call returns TRUCE_OK with `matched` 0.
 * With a commit, the change becomes a part of the commit and takes effect when the commit is
 * applied. Without one (NULL), the change is made now. `result` may be NULL.
 *
 * `query` is a condition as in $pull: on the fields of items that are documents ({} for all), or on
 * the items themselves ({$gte: 5}). $expr, $where, and $text are refused.
 *
 *     TRUCE_INVALID   the change is impossible (MongoDB's code; 40: two operators on one path)
 *     TRUCE_LIMIT     the document would be too large
 *     TRUCE_LOCKED    a commit did not release the document, or other writers won every retry
 *     TRUCE_UNKNOWN   the store did not reply, and the document does not reveal the outcome
 */

/* Applies MongoDB's update operators to the matching items. The paths of `update` begin at the
 * item. An update cannot change the identity. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_item_update(truce_item *item, truce_commit *commit, const bson_t *filter, const bson_t *query,
                  const bson_t *update, truce_item_result *result, bson_error_t *error);

/* Appends `document`. If an item with its identity exists, the call changes nothing and sets
 * `matched` to 1. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_add(truce_item *item, truce_commit *commit,
                                                        const bson_t *filter,
                                                        const bson_t *document,
                                                        truce_item_result *result,
                                                        bson_error_t *error);

/* Replaces the item that has the identity of `document`, in its position. If `query` is not NULL,
 * the old item must also match it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_replace(
    truce_item *item, truce_commit *commit, const bson_t *filter, const bson_t *query,
    const bson_t *document, truce_item_result *result, bson_error_t *error);

/* Replaces the item, or adds it if no such item exists. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_upsert(truce_item *item, truce_commit *commit,
                                                           const bson_t *filter,
                                                           const bson_t *document,
                                                           truce_item_result *result,
                                                           bson_error_t *error);

/* Removes the matching items. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_remove(truce_item *item, truce_commit *commit,
                                                           const bson_t *filter,
                                                           const bson_t *query,
                                                           truce_item_result *result,
                                                           bson_error_t *error);

/* ---- the map form ------------------------------------------------------------------------- */

/* Returns the key of an identity in a map; the caller frees it with bson_free. Returns NULL for a
 * value that cannot identify an item: a document, an array, null, a regular expression, or NaN. */
TRUCE_EXPORT char *truce_item_key(const bson_value_t *identity);

/* Creates an index on a field of the items, for arrays or for maps. A map needs one index for each
 * identity in the array `keys`. If `keys` is NULL, the call creates a wildcard index over the whole
 * map; if the store does not support wildcard indexes, the call fails with TRUCE_INVALID. If `path`
 * is NULL, the index covers the identity (arrays only). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_index(truce_item *item,
                                                          truce_item_layout layout,
                                                          const char *path, const bson_t *keys,
                                                          bson_error_t *error);

typedef struct truce_item_converted {
    /* The number of documents that this call converted. */
    int64_t documents;
    /* The number of documents left unchanged: an item has no identity, or two items have the same
     * one. */
    int64_t refused;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_item_converted;

/* Converts every document of the collection to `layout`, with one atomic write for each, while
 * other programs read and write them. If the conversion is interrupted, call it again to continue.
 * `why` (may be NULL) receives the reason of the first refused document. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_item_convert(truce_item *item,
                                                            truce_item_layout layout,
                                                            truce_item_converted *converted,
                                                            bson_error_t *why, bson_error_t *error);

TRUCE_END_DECLS

#endif
