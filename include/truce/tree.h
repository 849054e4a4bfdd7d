#ifndef TRUCE_TREE_H
#define TRUCE_TREE_H

/*
 * Versions: many documents that change together, and are seen only together.
 *
 *     pages        {_id, tree: "site", itemId: "about", version: 5, token: ObjectId, pub: true, title: "About", ...}
 *     truce_trees  {_id: "site", current: 5, settled: 4, published: [{token: ObjectId, at: Date}], floor: 1, gone: 1}
 *
 * A change of a tree is an edit: its items are inserted beside those that stand, with the next version number and a token of the
 * edit; then one write of the master publishes them all. A reader reads the master first, and of each item the greatest
 * version up to it that was published: all of one version, while others publish. No item is ever updated; what
 * nobody can read any more is collected by `truce sweep`, as far as the retention says, and no reader holds it.
 *
 * Guarantees: a snapshot is exactly what its version's edit published. Of two edits on one version one is published, and the other is
 * told so (CONFLICT), and can be rebased: merged, item by item. An edit that is never published is never seen.
 *
 * The idea is solution 5 of A. Girbal, "How to implement robust and scalable transactions across documents with MongoDB"
 * (the master last; readers go by its version). There a number alone says what was published, and an edit that died leaves items
 * that the next one publishes by accident; here a token beside it does (docs/trees.md).
 *
 * An item's id (`itemId`) is a text, number, ObjectId, date, bool or binary. The fields _id, tree, version, token, pub, removed and
 * erased are truce's; all others are the user's. Indexes of the user's begin with `tree`.
 *
 * Threads: a tree may be used from any number of threads; an edit or a snapshot by one at a time.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_tree truce_tree;
typedef struct truce_tree_edit truce_tree_edit;
typedef struct truce_tree_snapshot truce_tree_snapshot;

typedef struct truce_tree_options {
    const char *collection; /* of the items; must be said */
    const char *name;       /* several trees may share a collection; NULL: as the collection */
    const char *parent;     /* the field of an item that has its parent's itemId: published are only
                               trees without orphans and circles. NULL: nothing is looked at */
    uint32_t deadline_ms;   /* of a call; 0: 30,000 */
    uint64_t reserved[4];   /* zeros */
} truce_tree_options;

/* Never NULL; what is wrong with the options is refused by every call. They are copied; the store must outlive the
 * handle, and the handle its edits and snapshots. */
TRUCE_EXPORT truce_tree *truce_tree_new(truce_store *store, const truce_tree_options *options);
TRUCE_EXPORT void truce_tree_free(truce_tree *tree);

/* ---- writing -------------------------------------------------------------------------------- */

typedef struct truce_tree_edit_options {
    int64_t base;        /* the version that is edited; 0: the current one */
    const char *message; /* for the log; at most 4 KiB; NULL: none */
    const char *author;  /* the same */
    const bson_oid_t
        *token; /* an edit that was begun before, by any process: it goes on; NULL: a new one */
    /* The caller's own, of what it wants published; NULL: none. Whoever had no answer begins again under it, on the same
     * base: if it was published, nothing is published, and publish tells which version it became. Looked for are the versions
     * after `base` (without one: all that are kept); if they are collected, and there was a base, publish answers EXPIRED. */
    const bson_oid_t *id;
    uint64_t reserved[3]; /* zeros */
} truce_tree_edit_options;

/* The tree is made by its first edit, with version 0, which is empty. NOT_FOUND: there is no such version, or no such edit: it was
 * published, or nothing came of it for a day, and it was given up. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_begin(truce_tree *tree,
                                                          const truce_tree_edit_options *options,
                                                          truce_tree_edit **edit,
                                                          bson_error_t *error);
/* Not published, it stays in the store, and may be gone on with by its token. NULL is allowed. */
TRUCE_EXPORT void truce_tree_edit_free(truce_tree_edit *edit);
TRUCE_EXPORT const bson_oid_t *truce_tree_edit_token(const truce_tree_edit *edit);
TRUCE_EXPORT int64_t truce_tree_edit_base(const truce_tree_edit *edit);

/* The whole item, with its `itemId`; the last one in an edit counts. Items are gathered, and written a thousand at a time.
 * INVALID: no itemId, or a field of truce's (`version`, as a snapshot gives it, is passed over). LIMIT: it is too large. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_put(truce_tree_edit *edit, const bson_t *item,
                                                        bson_error_t *error);
/* The item is in no version from this one on. One that is not there: OK. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_remove(truce_tree_edit *edit,
                                                           const bson_value_t *item,
                                                           bson_error_t *error);
/* What is gathered is written; the edit may be gone on with by its token. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_flush(truce_tree_edit *edit,
                                                          bson_error_t *error);

typedef struct truce_tree_published {
    int64_t version; /* that it has become; the base, if nothing was put */
    bool nothing;    /* nothing was put: nothing is published */
    bool exists;     /* it was published before, under options->id; what was put now is given up */
    uint64_t reserved[4];
} truce_tree_published;

/* All at once. CONFLICT: another one was published on this base: truce_tree_rebase, and again. INVALID: the tree would have an orphan or
 * a circle (options->parent). UNKNOWN: again; an edit is published once. `commit` NULL: alone, now; else with the commit,
 * and CONFLICT there ends it with REFUSED, since the same edit can never be published by running again.
 * `published` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_publish(truce_tree_edit *edit,
                                                            truce_commit *commit,
                                                            truce_tree_published *published,
                                                            bson_error_t *error);

typedef enum truce_tree_prefer {
    TRUCE_TREE_ASK = 0, /* an item that both changed and that cannot be merged is a conflict */
    TRUCE_TREE_MINE,
    TRUCE_TREE_THEIRS,
} truce_tree_prefer;

typedef struct truce_tree_conflict {
    const bson_value_t *item;
    const bson_t *base, *mine, *theirs; /* NULL: it is not there */
    const bson_t *paths;                /* that conflict, an array; empty: all of it */
    uint64_t reserved[4];
} truce_tree_conflict;

typedef struct truce_tree_rebase_options {
    const bson_t *rules; /* policies by path, as of a revision's merge; NULL: ask */
    truce_tree_prefer prefer;
    void (*conflict)(const truce_tree_conflict *conflict, void *arg); /* NULL: only counts */
    void *arg;
    uint64_t reserved[4]; /* zeros */
} truce_tree_rebase_options;

/* The edit as one of the current version: an item that both changed is merged. CONFLICT: `*conflicts` items cannot
 * be; nothing has changed. NOT_FOUND: the edit was given up. Its token is another one then. `options` and `conflicts`
 * may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_rebase(truce_tree_edit *edit,
                                                           const truce_tree_rebase_options *options,
                                                           uint32_t *conflicts,
                                                           bson_error_t *error);

/* Puts what makes the tree what it was in that version. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_revert(truce_tree_edit *edit, int64_t version,
                                                           bson_error_t *error);
/* The edit is not wanted any more; its items are collected. The handle is to be freed. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_abandon(truce_tree_edit *edit,
                                                            bson_error_t *error);

/* ---- reading -------------------------------------------------------------------------------- */

typedef struct truce_tree_at {
    /* one of them; none: the current version */
    int64_t version;
    int64_t time_ms;      /* that was current then; ms since 1970 */
    const char *tag;      /* truce_tree_tag */
    const char *token;    /* truce_tree_snapshot_token, of any process */
    bool hold;            /* the version is kept while the snapshot is open: */
    uint32_t lease_ms;    /* for so long at most without a read; 0: 600,000 */
    uint64_t reserved[4]; /* zeros */
} truce_tree_at;

/* NOT_FOUND: no such tree, version or tag. EXPIRED: the version is collected. `at` NULL: the current one. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_open(truce_tree *tree, const truce_tree_at *at,
                                                         truce_tree_snapshot **snapshot,
                                                         bson_error_t *error);
/* NULL is allowed. */
TRUCE_EXPORT void truce_tree_close(truce_tree_snapshot *snapshot);
TRUCE_EXPORT int64_t truce_tree_version(const truce_tree_snapshot *snapshot);
/* A text that opens the same version elsewhere; of a snapshot that holds it, only while that one is open if it is to be
 * sure. Borrowed. */
TRUCE_EXPORT const char *truce_tree_snapshot_token(const truce_tree_snapshot *snapshot);

/* Items are given with `itemId`, and `version`: in which one it became what it is. All reads: EXPIRED, if the version was collected
 * meanwhile, which one that is held is not.
 *
 * `item` is always initialised. NOT_FOUND: it is not in this version. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_get(truce_tree_snapshot *snapshot,
                                                        const bson_value_t *id, bson_t *item,
                                                        bson_error_t *error);

/* false: enough. */
typedef bool truce_tree_function(const bson_t *item, void *arg);

typedef struct truce_tree_find_options {
    const bson_t *sort;   /* NULL: by itemId without a filter, else in no order */
    int64_t limit;        /* 0: all */
    uint64_t reserved[4]; /* zeros */
} truce_tree_find_options;

/* Calls for each item of the version that matches (NULL: all), with MongoDB's query language. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_find(truce_tree_snapshot *snapshot,
                                                         const bson_t *filter,
                                                         const truce_tree_find_options *options,
                                                         truce_tree_function *function, void *arg,
                                                         bson_error_t *error);

typedef struct truce_tree_change {
    const bson_value_t *item;
    const bson_t *before, *after; /* NULL: it is not there */
    uint64_t reserved[4];
} truce_tree_change;

/* Calls for each item that differs, by itemId. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_diff(
    truce_tree *tree, int64_t from, int64_t to,
    bool (*function)(const truce_tree_change *change, void *arg), void *arg, bson_error_t *error);

/* The versions that are kept, newest first: {version, at, message?, author?, token}. At most `limit`; 0: all. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_log(truce_tree *tree, int64_t limit,
                                                        truce_tree_function *function, void *arg,
                                                        bson_error_t *error);

/* {tree, collection, current, settled, kept, at?, keep?, tags: {name: version}, from?: {tree, theirs, ours, merges}, branches: [names],
 * readers, edits}; always initialised. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_status(truce_tree *tree, bson_t *status,
                                                           bson_error_t *error);

/* ---- branches ------------------------------------------------------------------------------- */

/* A tree of its own, which begins as that version of this one (`at` NULL: the current one): edited, published, read, kept and branched
 * as any other, in the same collection. Its items are copied. DUPLICATE: there is a tree of this name. UNKNOWN: it may
 * be there. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_branch(truce_tree *tree,
                                                           const truce_tree_at *at,
                                                           const char *name, bson_error_t *error);

typedef struct truce_tree_merge_options {
    truce_tree_rebase_options how; /* "mine" is the tree's own, "theirs" the other's */
    const char *message, *author;  /* for the log; NULL: what was merged; none */
    uint64_t reserved[4];          /* zeros */
} truce_tree_merge_options;

/* Publishes in the tree what has changed in another one since the two were merged last: one of them is a branch of the other. What
 * only one of them changed is taken; an item that both changed is merged. CONFLICT: `*conflicts` items cannot be, and
 * nothing has changed. UNKNOWN: again; nothing is merged twice. published->nothing: there was nothing to take.
 * INVALID: they are not branch and origin, or the tree would have an orphan or a circle. `options`, `published` and
 * `conflicts` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_merge(truce_tree *tree, const char *other,
                                                          const truce_tree_merge_options *options,
                                                          truce_tree_published *published,
                                                          uint32_t *conflicts, bson_error_t *error);

/* The tree goes, with all its versions, its log and its tags. INVALID: it has branches. After any other failure: again; a sweep
 * does the rest, too. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_drop(truce_tree *tree, bson_error_t *error);

/* ---- history, out and in --------------------------------------------------------------------- */

/* Calls for each line of the tree's history, from version `from` on (0: all that is kept), in order:
 *
 *     {$tree: "site", collection, parent?, from: 1, to: 3, whole: true}      whole: `from` has all items, not only those that it changed
 *     {$version: 1, at: Date, message?, author?, token: ObjectId}
 *     {itemId: ..., fields}  or  {$remove: itemId}                           of that version; any number
 *     {$tag: "launch", version: 1}
 *     {$end: 3}
 *
 * Versions that are published meanwhile are not in it. EXPIRED: `from` is collected. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_export(truce_tree *tree, int64_t from,
                                                           truce_tree_function *function, void *arg,
                                                           bson_error_t *error);

typedef struct truce_tree_import truce_tree_import;

typedef struct truce_tree_imported {
    int64_t version;   /* the last one */
    int64_t published; /* versions */
    int64_t passed;    /* versions that were there */
    uint64_t reserved[4];
} truce_tree_imported;

/* Such lines become versions of a tree, with their numbers, times and messages. The tree may be there: versions of the file that
 * it has are passed over, and so an import that was cut off is run again, and a later export is added. */
TRUCE_EXPORT truce_tree_import *truce_tree_import_new(truce_tree *tree);
/* INVALID: the line is none, or does not go on from what stands; a version of this number is another one. The versions before it
 * stay. `tree` needs no collection: that of the file. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_import_line(truce_tree_import *import,
                                                                const bson_t *line,
                                                                bson_error_t *error);
/* After the last line. INVALID: it was cut off, and its last version may be missing. `imported` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_import_end(truce_tree_import *import,
                                                               truce_tree_imported *imported,
                                                               bson_error_t *error);
/* Without an end the version that was begun is not published. NULL is allowed. */
TRUCE_EXPORT void truce_tree_import_free(truce_tree_import *import);

/* ---- what is kept --------------------------------------------------------------------------- */

typedef struct truce_tree_keep {
    int64_t versions;     /* so many at least; 0: not by count */
    int64_t age_ms;       /* what was current so long ago, and all since; 0: not by age */
    uint64_t reserved[4]; /* zeros */
} truce_tree_keep;

/* Kept in the store. From then on the sweep collects what neither asks for, nor a tag or a held snapshot. A tree of which
 * nothing was said keeps all. Both 0: all is kept again. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_retain(truce_tree *tree,
                                                           const truce_tree_keep *keep,
                                                           bson_error_t *error);
/* A name for a version (0: the current one), which is kept, and all after it, until the tag goes. A tag that is there
 * moves. EXPIRED: the version is collected. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_tag(truce_tree *tree, const char *name,
                                                        int64_t version, bson_error_t *error);
/* NOT_FOUND: there is none. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_untag(truce_tree *tree, const char *name,
                                                          bson_error_t *error);

typedef struct truce_tree_collected {
    int64_t settled; /* versions */
    int64_t items;   /* removed */
    int64_t edits;   /* given up */
    bool more;       /* it ended at its bound */
    uint64_t reserved[4];
} truce_tree_collected;

/* Settles what is published and removes what nobody can read, a bounded part of it: what `truce sweep` does for every tree.
 * `collected` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_collect(truce_tree *tree,
                                                            truce_tree_collected *collected,
                                                            bson_error_t *error);

/* Takes the contents of an item out of every version, for ever, snapshots and edits included: from then on it is not there. So in
 * the tree that this one is a branch of, and in all their branches. *versions: how many there were. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_tree_erase(truce_tree *tree, const bson_value_t *id,
                                                          int64_t *versions, bson_error_t *error);

TRUCE_END_DECLS

#endif
