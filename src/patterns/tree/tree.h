#ifndef TRUCE_PATTERNS_TREE_TREE_H
#define TRUCE_PATTERNS_TREE_TREE_H

/* What the files of versions share. The contract is in truce/tree.h; the essay in tree.c. */
#include <pthread.h>

#include "base/arena.h"
#include "base/limits.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/journal.h"
#include "store/maintenance.h"
#include "truce/tree.h"

/* ---- tree.c ---- */

struct truce_tree {
    truce_store *store;
    char *collection, *name, *parent; /* what is NULL is looked up: truce__tree_ready */
    uint32_t deadline_ms;
    bool refused;
    bson_error_t refusal;
    int64_t first;         /* number of its first version, when it is made; 0: 1 */
    pthread_mutex_t mutex; /* of what follows, and of looking up */
    uint64_t structure;    /* of the store, when the tree was found; 0: it was not */
};

/* `make`: the tree is made if it is not there; else NOT_FOUND. */
truce_status truce__tree_ready(truce_tree *tree, bool make, bson_error_t *error);
/* What comes before the last write need not wait for the disk: one file keeps the order of writes. */
bool truce__tree_relaxed(const truce_tree *tree);

/* ---- tree.c ---- */

struct tree_version {
    bson_oid_t token;
    int64_t at_ms;
};

struct tree_master {
    bson_oid_t born; /* of this tree, and no other of its name */
    int64_t current, settled, floor, gone, collected, at_ms;
    int64_t first; /* version there was; the one before it is empty, and nobody's */
    truce_tree_keep keep;
    struct tree_version *published; /* settled + 1 ... current */
};

/* Initialised also on failure. NOT_FOUND: there is no such tree. */
truce_status truce__tree_master(truce_tree *tree, struct tree_master *master, bson_error_t *error);
void truce__tree_master_release(struct tree_master *master);
/* A new one, unless there is one. */
truce_status truce__tree_make(truce_tree *tree, bson_error_t *error);
static inline int64_t truce__tree_kept(const struct tree_master *master)
{
    return master->gone > master->first ? master->gone : master->first;
}
/* One write of the master where `guard` (taken over) matches, beside its name, this tree and no intent; `update` is
 * operators, taken over. *done: it matched, the first time or again. */
truce_status truce__tree_write_master(truce_tree *tree, const struct tree_master *master,
                                      bson_t *guard, bson_t *update, bool *done,
                                      bson_error_t *error);
#define TREE_REMOVALS 500 /* in one write */

/* Is this item part of a published version? */
struct tree_item;
bool truce__tree_counts(const struct tree_master *master, const struct tree_item *item);
bool truce__tree_accepts(const struct tree_master *master, const bson_t *document);
static inline int64_t truce__tree_low(const struct tree_master *master, int64_t version)
{
    return version < master->settled ? version : master->settled;
}

/* ---- tree_item.c ---- */

#define TREE_OWN_FIELDS 7 /* that users do not see */

/* What stands in a document, borrowed; missing: nothing. */
struct value truce__tree_item_id(const bson_t *document);
bool truce__tree_absent(const bson_t *document); /* removed, or erased */
/* A document looked through once; what it points at is the document's. */
struct tree_item {
    struct value id;
    int64_t version;
    struct value token;
    bool stamped, absent;
    uint32_t count, size; /* of the pieces; of all of them */
    struct {
        const uint8_t *from;
        uint32_t size;
    } pieces[TREE_OWN_FIELDS + 1]; /* between truce's own fields: what users see */
};

void truce__tree_look(const bson_t *document, struct tree_item *item);
/* The bytes of a document as users see it, item->size + 5 of them. */
void truce__tree_pack(const struct tree_item *item, uint8_t *bytes);
/* As users see it; appended to an empty document. */
void truce__tree_show(const bson_t *document, bson_t *item);
/* Equal contents, whatever versions; NULL: it is not there. */
bool truce__tree_same(const bson_t *item, const bson_t *other);

/* Checks an item that a user puts; `id` borrows its itemId. */
truce_status truce__tree_item_check(const bson_t *item, struct value *id, bson_error_t *error);
/* Appends the stored form of an item at a version: truce's fields first, so that an index finds them
 * without reading the user's. `item` NULL: the item is removed in this version. */
void truce__tree_item_document(const truce_tree *tree, int64_t version, const bson_oid_t *token,
                               struct value id, const bson_t *item, bson_t *document);

/* {tree, itemId: {$eq}} and more; begun here. */
void truce__tree_filter(const truce_tree *tree, bson_t *filter);
void truce__tree_append_id(bson_t *filter, const char *key, struct value id);

/* ---- tree_read.c ---- */

struct truce_tree_snapshot {
    truce_tree *tree;
    struct tree_master master; /* as it was read */
    int64_t version;
    bool holds;
    bson_oid_t hold;
    uint32_t lease_ms;
    int64_t renewed_ns;
    char token[TREE_NAME_MAX + 64];
};

/* A snapshot without a hold, of a version that is there (0: the empty one, for internal use). */
truce_status truce__tree_open(truce_tree *tree, int64_t version, truce_tree_snapshot *snapshot,
                              bson_error_t *error);
void truce__tree_leave(truce_tree_snapshot *snapshot);
/* After a read: OK, it was right; CONFLICT: it has to be read again. */
truce_status truce__tree_still(truce_tree_snapshot *snapshot, bson_error_t *error);

/* Two versions of an item, documents as they are kept; NULL: it is not in that one. */
typedef truce_status tree_pair_function(struct value id, const bson_t *low, const bson_t *high,
                                        void *arg, bson_error_t *error);
/* Calls for those of `ids` (an array, in the order of values, each once) that are in one of the two versions. What is called has not
 * been looked at again: truce__tree_still. */
truce_status truce__tree_pairs(const truce_tree_snapshot *snapshot, int64_t low, int64_t high,
                               const bson_t *ids, tree_pair_function *function, void *arg,
                               bson_error_t *error);

/* ---- tree_read.c ---- */

/* In the order of values, each once. Begun with zeros. */
struct tree_ids {
    struct arena arena;
    struct value *all;
    size_t count, room;
};

/* Adds those of the items that were written in (low, high]; of edits that died, too: they are found equal. */
truce_status truce__tree_ids_between(const truce_tree *tree, int64_t low, int64_t high,
                                     struct tree_ids *ids, bson_error_t *error);
void truce__tree_ids_add(struct tree_ids *ids, struct value id); /* a copy, at the end */
void truce__tree_ids_release(struct tree_ids *ids);

/* ---- tree_history.c ---- */

/* Is this record one of a published version? */
bool truce__tree_records(const struct tree_master *master, const bson_t *record);

/* ---- tree_edit.c ---- */

struct truce_tree_edit {
    truce_tree *tree;
    bson_oid_t token, born;
    int64_t base, base_at_ms;
    bool imported;     /* of one: */
    int64_t at_ms;     /* when it was published; 0: now */
    bson_oid_t origin; /* its token there */
    char *message, *author;
    bool has_id; /* the caller's: */
    bson_oid_t id;
    int64_t since;   /* it is a version after this one, if it was published */
    bool since_said; /* by the caller */
    bool even_empty; /* it is published, whether anything was put or not */
    bool recorded;   /* its record is in the store */
    bool published;
    int64_t written; /* items */
    int64_t renewed_ms;
    uint32_t count;
    size_t bytes;
    bson_t *items[TREE_BATCH]; /* gathered: {itemId, ...}, or {itemId, removed: true} */
    uint64_t hashes[TREE_BATCH];
};

/* The items that an edit wrote, in no order. */
typedef truce_status tree_own_function(const bson_t *document, void *arg, bson_error_t *error);
truce_status truce__tree_own(truce_tree *tree, int64_t version, const bson_oid_t *token,
                             tree_own_function *function, void *arg, bson_error_t *error);
truce_tree_edit *truce__tree_edit_new(truce_tree *tree, const struct tree_master *master,
                                      int64_t base, const char *message, const char *author);
/* Of a record that is open: it is at work. NOT_FOUND: it was given up. */
truce_status truce__tree_renew(truce_tree *tree, const bson_oid_t *token, bson_error_t *error);
/* open -> given up, if it was silent since (0: or not); none such: OK. */
truce_status truce__tree_give_up(truce_tree *tree, const bson_oid_t *token, int64_t silent_since_ms,
                                 bool *done, bson_error_t *error);

/* ---- tree_merge.c ---- */

struct merge_rules;

struct tree_merging {
    truce_tree_edit *fresh; /* what the merge is put into */
    const truce_tree_rebase_options *options;
    struct merge_rules *rules;
    bool foreign; /* what comes in is "theirs"; else "mine" */
    uint32_t conflicts;
};

/* Documents as they are kept, that are not absent; NULL: it is not there. */
struct tree_three_way {
    struct value id;
    bson_t *base, *incoming, *standing;
};

/* ---- tree_publish.c ---- */

/* Was something published under its id? */
bool truce__tree_exists(truce_tree_edit *edit);
/* Was this edit published? */
truce_status truce__tree_published(const truce_tree_edit *edit, const struct tree_master *master,
                                   bool *published, bson_error_t *error);

/* ---- tree_edit.c ---- */

/* ---- tree_publish.c, tree_collect.c ---- */

/* The first version that is not; *done: there was one, and it is now (by whom ever). */
truce_status truce__tree_settle(truce_tree *tree, bool *done, bson_error_t *error);

/* ---- tree_collect.c ---- */

/* Notes that the version is in use; then looks at the floor, and so reads the master again. EXPIRED: too late. */
truce_status truce__tree_hold(truce_tree_snapshot *snapshot, bson_error_t *error);
truce_status truce__tree_renew_hold(truce_tree_snapshot *snapshot, bson_error_t *error);
void truce__tree_let_go(truce_tree_snapshot *snapshot);
truce_status truce__tree_tagged(truce_tree *tree, const char *tag, int64_t *version,
                                bson_error_t *error);

/* ---- tree_branch.c ---- */

/* Of a branch's master: {from: {tree, born, root, theirs, ours, merges, pulled?}}. */
struct tree_from {
    char tree[TREE_NAME_MAX + 1], root[TREE_NAME_MAX + 1]; /* "" : it is no branch */
    bson_oid_t born;                                       /* of the origin */
    int64_t theirs, ours; /* versions of the origin and of the branch that were merged last */
    bool pulled;          /* `theirs` is what both had; else `ours` */
    int64_t merges;
};

/* NOT_FOUND: there is no such tree. */
truce_status truce__tree_from(truce_tree *tree, struct tree_from *from, bson_error_t *error);

struct tree_joint {
    truce_tree_edit *edit; /* of the target */
    truce_tree *branch;
    const struct tree_from *from; /* as it will be */
    bson_oid_t hold;              /* of what both will have */
    truce_tree_published published;
};

/* The holds of what both had before this merge go. */
truce_status truce__tree_let_go_common(truce_tree *branch, int64_t merge, bson_error_t *error);

/* ---- tree_erase.c ---- */

/* Of this tree alone; adds to *versions how many there were. */
truce_status truce__tree_erase(truce_tree *tree, struct value id, int64_t *versions,
                               bson_error_t *error);

/* If somebody began to drop it. A handle that knows its name only will do. */
truce_status truce__tree_end_drop(truce_tree *tree, bson_error_t *error);

#endif
