#ifndef TRUCE_PATTERNS_TREE_TREE_H
#define TRUCE_PATTERNS_TREE_TREE_H

/* Declarations that the files of trees share. truce/tree.h has the contract; tree.c has the
 * essay. */
#include <pthread.h>

#include "base/arena.h"
#include "base/limits.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/journal.h"
#include "store/maintenance.h"
#include "truce/tree.h"

/* ---- tree.c ---- */

/* A handle for a tree. Threads may share it. */
struct truce_tree {
    truce_store *store;
    /* Owned. A name that is NULL is read from the store by truce__tree_ready. */
    char *collection, *name, *parent;
    uint32_t deadline_ms;
    /* The options are invalid; every call fails with `refusal`. */
    bool refused;
    bson_error_t refusal;
    /* The number of the first version if the tree is created, or 0 for 1. */
    int64_t first;
    /* Protects the fields below. It is also held while the tree is looked up. */
    pthread_mutex_t mutex;
    /* The store's structure number plus one when the tree was found, or 0 if it was not found
     * yet. */
    uint64_t structure;
};

/* Looks up the tree. If it does not exist, creates it if `make`, and returns TRUCE_NOT_FOUND
 * otherwise. */
truce_status truce__tree_ready(truce_tree *tree, bool make, bson_error_t *error);
/* Returns whether writes before the last one need not wait for the disk, because one file keeps the
 * order of writes. */
bool truce__tree_relaxed(const truce_tree *tree);

/* ---- tree.c ---- */

/* A version that is published and not settled yet. */
struct tree_version {
    /* The token of the edit that was published as the version. */
    bson_oid_t token;
    /* The time of the publication in ms since 1970. */
    int64_t at_ms;
};

/* The document of a tree in TREES. */
struct tree_master {
    /* Distinguishes this tree from other trees that had its name. */
    bson_oid_t born;
    /* The version numbers that tree.c defines. `collected`: the superseded items up to this version
     * are removed. `at_ms`: the time of the current version. */
    int64_t current, settled, floor, gone, collected, at_ms;
    /* The first version that existed. The version before it is empty and was never published. */
    int64_t first;
    truce_tree_keep keep;
    /* The tokens and times of the versions settled + 1 to current. Owned. */
    struct tree_version *published;
};

/* Reads the master. Initializes `master` even on failure; the caller releases it. Returns
 * TRUCE_NOT_FOUND if there is no such tree, or it was dropped. */
truce_status truce__tree_master(truce_tree *tree, struct tree_master *master, bson_error_t *error);
void truce__tree_master_release(struct tree_master *master);
/* Creates the tree unless it exists. */
truce_status truce__tree_make(truce_tree *tree, bson_error_t *error);
static inline int64_t truce__tree_oldest_version(const struct tree_master *master)
{
    return master->gone > master->first ? master->gone : master->first;
}
/* Writes the master if it matches `guard`, its name, this tree, and no intent; repeats the write
 * until it gets a reply. `update` has operators. The call takes over both documents. Sets `done` if
 * the guard matched. If a send took effect without a reply and the guard no longer matches, `done`
 * stays false. */
truce_status truce__tree_write_master(truce_tree *tree, const struct tree_master *master,
                                      bson_t *guard, bson_t *update, bool *done,
                                      bson_error_t *error);
/* Sets *any to whether a document matches. Reads the latest state. */
truce_status truce__tree_any(truce_tree *tree, const char *collection, const bson_t *filter,
                             bool *any, bson_error_t *error);
/* Waits until no commit holds a document that matches (TR13), and completes or undoes the commit of
 * a dead process. Returns LOCKED at the deadline. */
truce_status truce__tree_await(truce_tree *tree, const char *collection, const bson_t *filter,
                               bson_error_t *error);
/* Copies a filter, and adds the condition that no commit holds the document. */
bson_t *truce__tree_unheld(const bson_t *filter);
/* The number of documents that one write removes. */
#define TREE_REMOVALS 500

/* Returns whether an item belongs to a published version. */
struct tree_item;
bool truce__tree_counts(const struct tree_master *master, const struct tree_item *item);
bool truce__tree_accepts(const struct tree_master *master, const bson_t *document);
static inline int64_t truce__tree_low(const struct tree_master *master, int64_t version)
{
    return version < master->settled ? version : master->settled;
}

/* ---- tree_item.c ---- */

/* The number of fields of truce that users do not see. */
#define TREE_OWN_FIELDS 8

/* Returns the itemId of a document, borrowed, or a missing value. */
struct value truce__tree_item_id(const bson_t *document);
/* Returns whether the document says that the item is removed or erased. */
bool truce__tree_absent(const bson_t *document);
/* The parsed document of an item. All pointers refer to the document. */
struct tree_item {
    struct value id;
    int64_t version;
    struct value token;
    /* `stamped`: the item has the stamp of a published version. `absent`: the version removed the
     * item, or the item was erased. */
    bool stamped, absent;
    /* The number of pieces, and their total size in bytes. */
    uint32_t count, size;
    /* The runs of bytes between truce's fields, which users see. */
    struct {
        const uint8_t *from;
        uint32_t size;
    } pieces[TREE_OWN_FIELDS + 1];
};

/* Parses the stored document of an item in one pass. */
void truce__tree_item_parse(const bson_t *document, struct tree_item *item);
/* Writes the document as users see it: item->size + 5 bytes. */
void truce__tree_pack(const struct tree_item *item, uint8_t *bytes);
/* Appends the fields that users see to an empty document. */
void truce__tree_show(const bson_t *document, bson_t *item);
/* Returns whether two documents of an item have equal contents, whatever their versions. If a
 * pointer is NULL, the item does not exist. */
bool truce__tree_same(const bson_t *item, const bson_t *other);

/* Checks an item that a user puts; `id` borrows its itemId. */
truce_status truce__tree_item_check(const bson_t *item, struct value *id, bson_error_t *error);
/* Appends the stored form of an item at a version. truce's fields come first, so an index finds
 * them without reading the user's. If `item` is NULL, this version removes the item. */
void truce__tree_item_document(const truce_tree *tree, int64_t version, const bson_oid_t *token,
                               struct value id, const bson_t *item, bson_t *document);

/* Makes the filter {tree: name}. */
void truce__tree_filter(const truce_tree *tree, bson_t *filter);
void truce__tree_append_id(bson_t *filter, const char *key, struct value id);

/* ---- tree_read.c ---- */

/* An open version of a tree. */
struct truce_tree_snapshot {
    truce_tree *tree;
    /* The master as it was read when the snapshot was opened or held, or when a check last returned
     * TRUCE_CONFLICT. */
    struct tree_master master;
    int64_t version;
    /* The version is held by the document {_id: hold} of the holds. */
    bool holds;
    bson_oid_t hold;
    uint32_t lease_ms;
    /* When the hold was last renewed, by the monotonic clock. */
    int64_t renewed_ns;
    /* The end of the stored lease in ms since 1970. Each renewal changes it. */
    int64_t until_ms;
    /* The text "<version>-<born>", which identifies the version among trees of the same name. */
    char token[TREE_NAME_MAX + 64];
};

/* Opens an existing version without a hold. Version 0 is the empty one, for internal use. */
truce_status truce__tree_open(truce_tree *tree, int64_t version, truce_tree_snapshot *snapshot,
                              bson_error_t *error);
/* Frees what truce__tree_open has read. Does not release a hold. */
void truce__tree_leave(truce_tree_snapshot *snapshot);
/* Checks a read afterwards. Returns TRUCE_OK if it was correct, TRUCE_CONFLICT if it must be
 * repeated (with the newer master, which the snapshot gets), and TRUCE_EXPIRED if the version was
 * collected or the tree was dropped and created again. */
truce_status truce__tree_still(truce_tree_snapshot *snapshot, bson_error_t *error);

/* Receives two versions of an item, as stored documents, or NULL if the item is not in that
 * version. */
typedef truce_status tree_pair_function(struct value id, const bson_t *low, const bson_t *high,
                                        void *arg, bson_error_t *error);
/* Calls the function for each of `ids` (an array of distinct values in ascending order) that is in
 * one of the two versions. The documents are not verified yet: call truce__tree_still
 * afterwards. */
truce_status truce__tree_pairs(const truce_tree_snapshot *snapshot, int64_t low, int64_t high,
                               const bson_t *ids, tree_pair_function *function, void *arg,
                               bson_error_t *error);

/* Calls `function` for each item of the version after an itemId (NULL for all items), by itemId. */
truce_status truce__tree_find_after(truce_tree_snapshot *snapshot, const bson_value_t *after,
                                    truce_tree_function *function, void *arg, bson_error_t *error);
/* Appends the conditions for the itemIds after `id`: `same` for those of its class, because $gt
 * finds no others, and `later` for those of the classes that follow (empty: none). */
void truce__tree_after(struct value id, bson_t *same, bson_t *later);

/* ---- tree_read.c ---- */

/* Distinct ids in ascending order. Initialize it with zeros. */
struct tree_ids {
    struct arena arena;
    struct value *all;
    size_t count, room;
};

/* Adds the items that were written in versions low + 1 to high. Items of dead edits are included; a
 * comparison finds them equal. */
truce_status truce__tree_ids_between(const truce_tree *tree, int64_t low, int64_t high,
                                     struct tree_ids *ids, bson_error_t *error);
/* Appends a copy of the id. */
void truce__tree_ids_add(struct tree_ids *ids, struct value id);
void truce__tree_ids_release(struct tree_ids *ids);

/* ---- tree_history.c ---- */

/* A part of an export: from version `start` on (0 for the beginning) of an export of the versions
 * `from` (0 for all that are kept) to `to` (0 for the current one). */
struct tree_export_part {
    int64_t from, to, start;
    /* The line of version `start` was exported before, and so were its items up to `item` (NULL for
     * none). */
    bool begun;
    const bson_value_t *item;
};

/* Exports a part as truce_tree_export exports the whole. Fails with EXPIRED if a version that it
 * needs was collected in the meantime. */
truce_status truce__tree_export_part(truce_tree *tree, const struct tree_export_part *part,
                                     truce_tree_function *function, void *arg, bson_error_t *error);

/* Returns whether the record belongs to a published version. */
bool truce__tree_records(const struct tree_master *master, const bson_t *record);

/* ---- tree_edit.c ---- */

/* An edit of a tree, which publishes a version. */
struct truce_tree_edit {
    truce_tree *tree;
    /* The token of the edit, which its items have, and `born` of the tree's master. */
    bson_oid_t token, born;
    /* The version that the edit changes, and its time in ms since 1970, or 0 if the time is
     * unknown. */
    int64_t base, base_at_ms;
    /* The edit imports a version that has a token, `origin`. */
    bool imported;
    /* The time at which an imported version was published originally, or 0 for now. */
    int64_t at_ms;
    /* The version's token in the tree that it was exported from. */
    bson_oid_t origin;
    char *message, *author;
    /* The caller gave an id for the publication. The next three fields apply only then. */
    bool has_id;
    bson_oid_t id;
    /* If a version was published under the id before, it is later than this version. */
    int64_t since;
    /* The caller gave `since`. */
    bool since_given;
    /* The edit publishes a version even if it has no items. */
    bool even_empty;
    /* The record of the edit is stored. */
    bool recorded;
    /* The edit was published, or a version was published under its id. No item can be added any
     * more. */
    bool published;
    /* The number of items that were written. An item that was put and written again counts
     * again. */
    int64_t written;
    /* When the record was last renewed (monotonic), and the time in the record (ms since 1970).
     * Each renewal changes the time. */
    int64_t renewed_ns, renewed_ms;
    /* The number of elements in `items`, and the sum of their sizes. */
    uint32_t count;
    size_t bytes;
    /* The items that are not written yet: {itemId, ...}, or {itemId, removed: true}. Owned. */
    bson_t *items[TREE_BATCH];
    /* hashes[i]: the hash of the itemId of items[i]. */
    uint64_t hashes[TREE_BATCH];
};

/* Is called for each item that an edit wrote, in no particular order. */
typedef truce_status tree_own_function(const bson_t *document, void *arg, bson_error_t *error);
/* Calls the function for each item that the edit with this token wrote at this version. */
truce_status truce__tree_own(truce_tree *tree, int64_t version, const bson_oid_t *token,
                             tree_own_function *function, void *arg, bson_error_t *error);
/* Makes an edit of the version `base` with a fresh token. Writes nothing. */
truce_tree_edit *truce__tree_edit_new(truce_tree *tree, const struct tree_master *master,
                                      int64_t base, const char *message, const char *author);
/* Renews an open record, so that no sweep gives it up. `*renewed_ms` is the last time in the
 * record, and gets the new one, which is always later. Returns TRUCE_NOT_FOUND if it was given
 * up. */
truce_status truce__tree_renew(truce_tree *tree, const bson_oid_t *token, int64_t *renewed_ms,
                               bson_error_t *error);
/* Marks an open record as given up if it still has the time `renewed_ms`, or in any case if that is
 * 0. If such a record does not exist, the result is TRUCE_OK. */
truce_status truce__tree_give_up(truce_tree *tree, const bson_oid_t *token, int64_t renewed_ms,
                                 bool *done, bson_error_t *error);

/* ---- merges (tree_branch.c, tree_edit.c) ---- */

struct merge_rules;

/* The settings of a merge of items, and its result. */
struct tree_merging {
    /* The edit that receives the merged items. */
    truce_tree_edit *fresh;
    const truce_tree_rebase_options *options;
    struct merge_rules *rules;
    /* In the merge rules, the incoming side is "theirs"; otherwise it is "mine". */
    bool foreign;
    /* The number of conflicts that were reported so far. */
    uint32_t conflicts;
};

/* The three versions of an item: stored documents that are not removed, or NULL if the item does
 * not exist in that version. */
struct tree_three_way {
    struct value id;
    bson_t *base, *incoming, *current;
};

/* ---- publication (tree_edit.c) ---- */

/* Returns whether a version was published under the edit's id. */
bool truce__tree_id_published(truce_tree_edit *edit);
/* Reports whether this edit was published. */
truce_status truce__tree_published(const truce_tree_edit *edit, const struct tree_master *master,
                                   bool *published, bson_error_t *error);

/* Settles the first unsettled version. Sets `done` if there was one. It is settled then, perhaps by
 * another process, unless a commit holds the master. */
truce_status truce__tree_settle(truce_tree *tree, bool *done, bson_error_t *error);

/* ---- tree_garbage_collection.c ---- */

/* Holds the version, THEN reads the master and compares the floor. Returns TRUCE_EXPIRED if the
 * version may have been collected before the hold. */
truce_status truce__tree_hold(truce_tree_snapshot *snapshot, bson_error_t *error);
/* Renews the hold of the snapshot once a third of its lease has passed. Returns TRUCE_EXPIRED if
 * the hold was removed and the version was collected. */
truce_status truce__tree_renew_hold(truce_tree_snapshot *snapshot, bson_error_t *error);
/* Removes the hold of the snapshot. A failure is ignored, because the lease of the hold ends. */
void truce__tree_release(truce_tree_snapshot *snapshot);
/* Finds the version of a tag. */
truce_status truce__tree_tagged(truce_tree *tree, const char *tag, int64_t *version,
                                bson_error_t *error);

/* ---- tree_branch.c ---- */

/* The origin of a branch, from its master: {from: {tree, born, root, theirs, ours, merges,
 * pulled?}}. */
struct tree_from {
    /* The names of the origin and of the root. `tree` is "" if the tree is not a branch. */
    char tree[TREE_NAME_MAX + 1], root[TREE_NAME_MAX + 1];
    /* Identifies the origin among trees that had its name. */
    bson_oid_t born;
    /* The versions of the origin and of the branch that were merged last. */
    int64_t theirs, ours;
    /* The common base is the version `theirs` of the origin; otherwise it is `ours` of the
     * branch. */
    bool pulled;
    int64_t merges;
};

/* Reads the origin of a tree. Returns TRUCE_NOT_FOUND if there is no such tree. */
truce_status truce__tree_from(truce_tree *tree, struct tree_from *from, bson_error_t *error);

/* A merge of a branch: what its publication also writes. */
struct tree_joint {
    /* The edit that publishes the merge in the target. */
    truce_tree_edit *edit;
    truce_tree *branch;
    /* The state of the branch that the commit writes. */
    const struct tree_from *from;
    /* The _id of the hold of the new common base. */
    bson_oid_t hold;
    truce_tree_published published;
};

/* Releases the holds of common bases from before this merge. */
truce_status truce__tree_release_common(truce_tree *branch, int64_t merge, bson_error_t *error);

/* ---- erase (tree_garbage_collection.c) ---- */

/* Erases the item in this tree only; adds the number of its versions to `versions`. */
truce_status truce__tree_erase(truce_tree *tree, struct value id, int64_t *versions,
                               bson_error_t *error);

/* Completes an interrupted drop. Only the name of the handle is used. */
truce_status truce__tree_end_drop(truce_tree *tree, bson_error_t *error);

#endif
