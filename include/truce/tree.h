#ifndef TRUCE_TREE_H
#define TRUCE_TREE_H

/*
 * Versioned trees: documents that become visible only together.
 *
 *     pages        {_id, tree: "site", itemId: "about", version: 5, token: ObjectId, pub: true,
 *                   title: "About", ...}
 *     truce_trees  {_id: "site", current: 5, settled: 4, published: [{token: ObjectId, at: Date}],
 *                   floor: 1, gone: 1}
 *
 * An edit changes a tree. It inserts its items next to the existing ones, with the next version
 * number and a token of the edit. Then one write of the master document in `truce_trees` publishes
 * them all. A reader reads the master first, then the greatest published version of each item up to
 * it: all items belong to one version, also during concurrent publications. No item is ever
 * updated. `truce sweep` collects items that no reader can see, as the retention allows, unless a
 * snapshot holds them.
 *
 * Guarantees:
 *   - A snapshot is exactly what the edit of its version published.
 *   - Of two edits of one version, one is published. The other fails with TRUCE_CONFLICT and can be
 *     rebased: merged, item by item.
 *   - An edit that is never published is never visible.
 *
 * The idea is solution 5 of A. Girbal, "How to implement robust and scalable transactions across
 * documents with MongoDB": the master is written last, and readers follow its version. There only a
 * number identifies published items, so the next edit accidentally publishes the items of an edit
 * that died. Here a token also identifies them (docs/trees.md).
 *
 * The id of an item (`itemId`) is a string, number, ObjectId, date, bool, or binary. The fields
 * _id, tree, version, token, pub, removed, and erased belong to truce; all others belong to the
 * user. Indexes of the user begin with `tree`.
 *
 * Threads: any number of threads may use a tree, and one thread at a time an edit or a snapshot.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_tree truce_tree;
typedef struct truce_tree_edit truce_tree_edit;
typedef struct truce_tree_snapshot truce_tree_snapshot;

typedef struct truce_tree_options {
    /* The collection of the items; required. */
    const char *collection;
    /* Several trees may share a collection. NULL means the name of the collection. */
    const char *name;
    /* The field of an item with the itemId of its parent: only trees without orphans and cycles can
     * be published. NULL means no check. */
    const char *parent;
    /* The deadline of a call. 0 means 30,000. */
    uint32_t deadline_ms;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_tree_options;

/* Returns a handle, never NULL. If the options are wrong, every call fails. The options are copied.
 * The store must outlive the handle, and the handle its edits and snapshots. */
TRUCE_EXPORT truce_tree *truce_tree_new(truce_store *store, const truce_tree_options *options);
/* Frees the handle. */
TRUCE_EXPORT void truce_tree_free(truce_tree *tree);

/* ---- writing ------------------------------------------------------------------------------ */

typedef struct truce_tree_edit_options {
    /* The version that is edited. 0 means the current one. */
    int64_t base;
    /* A message for the log, at most 4 KiB. NULL means none. */
    const char *message;
    /* The author for the log, at most 4 KiB. NULL means none. */
    const char *author;
    /* The token of an edit that any process began before: it is continued. NULL means a new
     * edit. */
    const bson_oid_t *token;
    /* The caller's id of the publication. NULL means none. After a lost reply, begin again under
     * this id, on the same base. If it was published, nothing is published again, and
     * truce_tree_publish returns the version. The search covers the versions after `base` (without
     * a base: all that are kept). If these were collected and a base was given, truce_tree_publish
     * fails with TRUCE_EXPIRED. */
    const bson_oid_t *id;
    /* Must be zero. */
    uint64_t reserved[3];
} truce_tree_edit_options;

/* Begins or continues an edit. The first edit creates the tree, with the empty version 0. If the
 * version does not exist, the call fails with TRUCE_NOT_FOUND. It also fails so if the edit to
 * continue was published, or was abandoned after a day without activity. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_begin(truce_tree *tree,
                                                          const truce_tree_edit_options *options,
                                                          truce_tree_edit **edit,
                                                          bson_error_t *error);
/* Frees the handle of an edit. An unpublished edit stays in the store and can be continued by its
 * token. NULL is allowed. */
TRUCE_EXPORT void truce_tree_edit_free(truce_tree_edit *edit);
/* Returns the token of the edit. The edit owns it. */
TRUCE_EXPORT const bson_oid_t *truce_tree_edit_token(const truce_tree_edit *edit);
/* Returns the version that is edited. */
TRUCE_EXPORT int64_t truce_tree_edit_base(const truce_tree_edit *edit);

/* Adds or replaces a whole item, with its `itemId`; the last item of an edit counts. Items are
 * buffered and written a thousand at a time. If itemId is missing or the item has a field of truce,
 * the call fails with TRUCE_INVALID; `version`, as a snapshot returns it, is ignored. If the item
 * is too large, it fails with TRUCE_LIMIT. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_put(truce_tree_edit *edit, const bson_t *item,
                                                        bson_error_t *error);
/* Removes an item from this version on. If the item does not exist, the call returns TRUCE_OK. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_remove(truce_tree_edit *edit,
                                                           const bson_value_t *item,
                                                           bson_error_t *error);
/* Writes the buffered items. The edit can then be continued by its token. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_flush(truce_tree_edit *edit,
                                                          bson_error_t *error);

typedef struct truce_tree_published {
    /* The version that the edit has become; the base if the edit was empty. */
    int64_t version;
    /* True if the edit was empty, so that nothing was published. */
    bool nothing;
    /* The edit was published before, under options->id. The items of this edit were abandoned. */
    bool exists;
    uint64_t reserved[4];
} truce_tree_published;

/*
 * Publishes all items of the edit together. `published` may be NULL. With a commit, the publication
 * is a part of it; without one (NULL), it happens now. If another edit was published on this base,
 * the call fails with TRUCE_CONFLICT: call truce_tree_rebase and publish again. In a commit, this
 * conflict ends the commit with TRUCE_REFUSED, because running the function again can never publish
 * the same edit.
 *
 * If the tree would have an orphan or a cycle (options->parent), the call fails with TRUCE_INVALID.
 * After TRUCE_UNKNOWN, repeat the call; an edit is published once.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_publish(truce_tree_edit *edit,
                                                            truce_commit *commit,
                                                            truce_tree_published *published,
                                                            bson_error_t *error);

/* The side that wins if an item cannot be merged. */
typedef enum truce_tree_prefer {
    /* An item that both sides changed and that cannot be merged is a conflict. */
    TRUCE_TREE_ASK = 0,
    TRUCE_TREE_MINE,
    TRUCE_TREE_THEIRS,
} truce_tree_prefer;

typedef struct truce_tree_conflict {
    const bson_value_t *item;
    /* NULL means that the item does not exist. */
    const bson_t *base, *mine, *theirs;
    /* The paths in conflict, an array. If it is empty, the whole item is in conflict. */
    const bson_t *paths;
    uint64_t reserved[4];
} truce_tree_conflict;

typedef struct truce_tree_rebase_options {
    /* Policies by path, as in a revision's merge. NULL means that every conflict is reported. */
    const bson_t *rules;
    truce_tree_prefer prefer;
    /* Receives each conflict. NULL means that the call only counts. */
    void (*conflict)(const truce_tree_conflict *conflict, void *arg);
    void *arg;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_tree_rebase_options;

/* Turns the edit into one of the current version; items that both sides changed are merged. If
 * `*conflicts` items cannot be merged, the call fails with TRUCE_CONFLICT and changes nothing. If
 * the edit was abandoned, it fails with TRUCE_NOT_FOUND. The edit gets a new token. `options` and
 * `conflicts` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_rebase(truce_tree_edit *edit,
                                                           const truce_tree_rebase_options *options,
                                                           uint32_t *conflicts,
                                                           bson_error_t *error);

/* Adds the changes that restore the tree of that version. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_revert(truce_tree_edit *edit, int64_t version,
                                                           bson_error_t *error);
/* Abandons the edit; its items are collected. Free the handle afterwards. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_abandon(truce_tree_edit *edit,
                                                            bson_error_t *error);

/* ---- reading ------------------------------------------------------------------------------ */

typedef struct truce_tree_at {
    /* Set one of `version`, `time_ms`, `tag`, and `token`. Without any, the current version is
     * opened. */
    int64_t version;
    /* The version that was current at this time; ms since 1970. */
    int64_t time_ms;
    /* The name of a tag (truce_tree_tag). */
    const char *tag;
    /* A result of truce_tree_snapshot_token, of any process. */
    const char *token;
    /* Keep the version while the snapshot is open. */
    bool hold;
    /* The maximum time for which the version is held without a read. 0 means 600,000. */
    uint32_t lease_ms;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_tree_at;

/* Opens a snapshot of a version, of the current one if `at` is NULL. If the tree, version, or tag
 * does not exist, the call fails with TRUCE_NOT_FOUND. If the version was collected, it fails with
 * TRUCE_EXPIRED. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_open(truce_tree *tree, const truce_tree_at *at,
                                                         truce_tree_snapshot **snapshot,
                                                         bson_error_t *error);
/* Closes the snapshot and frees it. NULL is allowed. */
TRUCE_EXPORT void truce_tree_close(truce_tree_snapshot *snapshot);
/* Returns the version of the snapshot. */
TRUCE_EXPORT int64_t truce_tree_version(const truce_tree_snapshot *snapshot);
/* Returns a string that opens the same version in another process. If the snapshot holds its
 * version, this is guaranteed only while the snapshot is open. Borrowed. */
TRUCE_EXPORT const char *truce_tree_snapshot_token(const truce_tree_snapshot *snapshot);

/* Reads one item. Items are returned with `itemId` and with `version`, the version that changed
 * them last. If the version was collected in the meantime, each read fails with TRUCE_EXPIRED; a
 * held version is never collected. `item` is always initialized. If this version does not contain
 * the item, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_get(truce_tree_snapshot *snapshot,
                                                        const bson_value_t *id, bson_t *item,
                                                        bson_error_t *error);

/* Receives an item, which is borrowed. Returning false ends the walk. */
typedef bool truce_tree_function(const bson_t *item, void *arg);

typedef struct truce_tree_find_options {
    /* The order of the items. NULL means by itemId without a filter, and undefined with one. */
    const bson_t *sort;
    /* The maximum number of items. 0 means all. */
    int64_t limit;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_tree_find_options;

/* Calls `function` for each item of the version that matches `filter` (NULL means all), in
 * MongoDB's query language. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_find(truce_tree_snapshot *snapshot,
                                                         const bson_t *filter,
                                                         const truce_tree_find_options *options,
                                                         truce_tree_function *function, void *arg,
                                                         bson_error_t *error);

typedef struct truce_tree_change {
    const bson_value_t *item;
    /* NULL means that the item does not exist. */
    const bson_t *before, *after;
    uint64_t reserved[4];
} truce_tree_change;

/* Calls `function` for each item that differs between two versions, ordered by itemId. Returning
 * false ends the walk. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_diff(
    truce_tree *tree, int64_t from, int64_t to,
    bool (*function)(const truce_tree_change *change, void *arg), void *arg, bson_error_t *error);

/* Calls `function` for the versions that are kept, newest first: {version, at, message?, author?,
 * token}. At most `limit`; 0 means all. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_log(truce_tree *tree, int64_t limit,
                                                        truce_tree_function *function, void *arg,
                                                        bson_error_t *error);

/* Returns {tree, collection, current, settled, kept, at?, keep?, tags: {name: version}, from?:
 * {tree, theirs, ours, merges}, branches: [names], readers, edits}. `status` is always
 * initialized. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_status(truce_tree *tree, bson_t *status,
                                                           bson_error_t *error);

/* ---- branches ----------------------------------------------------------------------------- */

/* Creates a tree that begins as the given version of this one (the current one if `at` is NULL). It
 * is edited, published, read, kept, and branched like any other tree, in the same collection. Its
 * items are copied. If a tree of this name exists, the call fails with TRUCE_DUPLICATE. After
 * TRUCE_UNKNOWN, the branch may exist. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_branch(truce_tree *tree,
                                                           const truce_tree_at *at,
                                                           const char *name, bson_error_t *error);

typedef struct truce_tree_merge_options {
    /* "mine" is this tree, "theirs" is the other. */
    truce_tree_rebase_options how;
    /* The message and the author for the log. A `message` of NULL means one that names the merged
     * versions; an `author` of NULL means none. */
    const char *message, *author;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_tree_merge_options;

/*
 * Publishes in this tree the changes of another one since their last merge; one of them is a branch
 * of the other. Changes of only one side are taken, and items that both sides changed are merged.
 * If there is nothing to take, published->nothing is true. `options`, `published`, and `conflicts`
 * may be NULL.
 *
 *     TRUCE_CONFLICT   `*conflicts` items cannot be merged; nothing was changed
 *     TRUCE_INVALID    the trees are not branch and origin, or the tree would have an orphan
 *                      or a cycle
 *     TRUCE_UNKNOWN    repeat the call; nothing is merged twice
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_merge(truce_tree *tree, const char *other,
                                                          const truce_tree_merge_options *options,
                                                          truce_tree_published *published,
                                                          uint32_t *conflicts, bson_error_t *error);

/* Drops a tree with all its versions, its log, and its tags. If it has branches, the call fails
 * with TRUCE_INVALID. After any other failure, repeat the call, or let the recovery pass complete
 * it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_drop(truce_tree *tree, bson_error_t *error);

/* ---- export and import -------------------------------------------------------------------- */

/*
 * Calls `function` for each line of the tree's history, from version `from` on (0 means all that is
 * kept), in order:
 *
 *     {$tree: "site", collection, parent?, from: 1, to: 3, whole: true}
 *     {$version: 1, at: Date, message?, author?, token: ObjectId}
 *     {itemId: ..., fields}  or  {$remove: itemId}        items of that version; any number
 *     {$tag: "launch", version: 1}
 *     {$end: 3}
 *
 * If `whole` is true, version `from` has all items, not only those that it changed. Versions that
 * are published during the call are not exported. If `from` was collected, the call fails with
 * TRUCE_EXPIRED.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_export(truce_tree *tree, int64_t from,
                                                           truce_tree_function *function, void *arg,
                                                           bson_error_t *error);

typedef struct truce_tree_import truce_tree_import;

/* The result of an import. */
typedef struct truce_tree_imported {
    /* The last version. */
    int64_t version;
    /* Versions published. */
    int64_t published;
    /* Versions skipped because the tree already has them. */
    int64_t passed;
    uint64_t reserved[4];
} truce_tree_imported;

/* Begins an import: the lines become versions of a tree, with their numbers, times, and messages.
 * If the tree exists, versions that it already has are skipped. Therefore an interrupted import can
 * be repeated, and a later export can be added. */
TRUCE_EXPORT truce_tree_import *truce_tree_import_new(truce_tree *tree);
/* Imports one line. If the line is malformed, does not continue the current version, or describes a
 * different version of the same number, the call fails with TRUCE_INVALID; earlier versions stay.
 * `tree` needs no collection: that of the file is used. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_import_line(truce_tree_import *import,
                                                                const bson_t *line,
                                                                bson_error_t *error);
/* Ends the import after the last line. If the lines were cut off, the call fails with
 * TRUCE_INVALID, and the last version may be missing. `imported` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_import_end(truce_tree_import *import,
                                                               truce_tree_imported *imported,
                                                               bson_error_t *error);
/* Frees the import. Without truce_tree_import_end, a version that was begun is not published. NULL
 * is allowed. */
TRUCE_EXPORT void truce_tree_import_free(truce_tree_import *import);

/* ---- retention ---------------------------------------------------------------------------- */

/* The retention of a tree. */
typedef struct truce_tree_keep {
    /* The minimum number of versions. 0 means that the number does not matter. */
    int64_t versions;
    /* The version that was current this long ago, and all later ones. 0 means that the age does not
     * matter. */
    int64_t age_ms;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_tree_keep;

/* Stores the retention. After this, the recovery pass collects versions that neither the retention,
 * a tag, nor a held snapshot keeps. A tree without a retention keeps all versions. If both are 0,
 * all are kept again. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_retain(truce_tree *tree,
                                                           const truce_tree_keep *keep,
                                                           bson_error_t *error);
/* Names a version (0 means the current one). The version and all later ones are kept until the tag
 * is removed. An existing tag moves. If the version was collected, the call fails with
 * TRUCE_EXPIRED. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_tag(truce_tree *tree, const char *name,
                                                        int64_t version, bson_error_t *error);
/* Removes a tag. If it does not exist, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_untag(truce_tree *tree, const char *name,
                                                          bson_error_t *error);

typedef struct truce_tree_collected {
    /* Published versions whose items were marked as visible, so that reads no longer need their
     * tokens. */
    int64_t settled;
    /* Items removed. */
    int64_t items;
    /* Edits abandoned. */
    int64_t edits;
    /* The call ended at its limit. */
    bool more;
    uint64_t reserved[4];
} truce_tree_collected;

/* Settles published versions and removes items that no reader can see, up to a limit. `truce sweep`
 * does this for every tree. `collected` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_collect(truce_tree *tree,
                                                            truce_tree_collected *collected,
                                                            bson_error_t *error);

/* Erases the contents of an item permanently from every version, including snapshots and edits:
 * after this, the item does not exist. This includes the tree that this one is a branch of, and all
 * their branches. *versions is the number of versions that contained it. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_erase(truce_tree *tree, const bson_value_t *id,
                                                          int64_t *versions, bson_error_t *error);

TRUCE_END_DECLS

#endif
