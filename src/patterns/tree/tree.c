/*
 * Versioned trees: the handle, the master document, drop, and the rules of all files.
 *
 * The master is the tree's document in truce_trees. `current` is the latest published version. Each
 * version has a random token; every item carries the version and token of the edit that wrote it. A
 * version is settled when each of its items has the stamp `pub`; the master then drops the token. A
 * hold is a document that protects a version from collection. `floor` is the first version that the
 * retention keeps; versions below `gone` may be collected.
 *
 *     1. An edit reads the master (current = n) and writes its record, then its items at version
 *        n + 1 with a fresh token, all confirmed.
 *     2. Publishing is one write:  {current: n} -> {current: n + 1, published: push the token}
 *     3. A reader reads the master (V = current, settled). For each item it takes the greatest
 *        published version <= V: at or below `settled` an item with `pub`, above it an item whose
 *        token is in the master. THEN it reads the master again: gone <= min(V, settled).
 *     4. A reader that holds V writes the hold, THEN reads the master again. If floor > V, the hold
 *        came too late, and the read fails.
 *     5. Settling k = settled + 1 reads the _ids of the items of (k, its token), THEN the master
 *        again (k is still unsettled), and stamps those _ids with `pub`. THEN it writes
 *        {settled: k - 1} -> {settled: k, without the token}.
 *     6. Collecting raises floor = m <= settled, THEN reads the holds, THEN raises gone = min(m,
 *        lowest hold, lowest base of an open edit). Only then it removes items that a version <=
 *        gone superseded, then removals that hide nothing, and items at or below `settled` that
 *        were never published.
 *
 * Invariants (models/tree.cpp is the model; its mutants omit these rules one by one):
 *
 * TR1. The master is written last, and the write compares the base. So version numbers have no
 *     gaps, and each was published once.
 * TR2. A number proves nothing without its token, because a dead edit may leave items at the same
 *     number.
 * TR3. A published item never changes, except that it gets its stamp, and that a user may erase it.
 *     Putting an item again before publication compares a counter, so a late write does nothing.
 * TR4. `settled` moves when every item of the version is stamped. Below it the stamp alone decides
 *     what was published.
 * TR5. gone <= floor <= settled <= current. Superseded items are removed only at or below `gone`. A
 *     reader reads `gone` after its items and compares it with the `settled` that it read first,
 *     not only with its version. Otherwise it could return an item that was collected and whose
 *     insert took effect late: such an item has the right token but no stamp.
 * TR6. Each attempt to insert an item has its own _id. Stamps go to the _ids that were read before
 *     the second read of the master. So a sweeper that was paused does not stamp an item that
 *     took effect late.
 * TR7. A process that raises `gone` above a version sees its hold: a holder writes the hold and
 *     reads the floor; the collector writes the floor and reads the holds.
 * TR8. A record is written before the items of its edit. Unpublished items are removed only after
 *     their record was given up. A rebase renews the record after it has read the items, so it has
 *     all of them, or fails.
 * TR9. Every write of a master requires that it has no intent of a commit, and writes a new _rev.
 * TR10. A branch is a tree of its own. Its master contains the versions of the branch and of its
 *      origin that were merged last, and which of the two is the common base. One commit publishes
 *      a merge, compares the number of merges, and increments it. The new common base is held for a
 *      day before the commit, which makes the hold permanent; a later merge releases earlier holds.
 *      After the commit, the merge reads the source again for items that were erased in the
 *      meantime.
 * TR11. Dropping a tree marks its master first, and removes the master last. Each removal reads the
 *      _ids, THEN the master, so a paused process removes nothing of a later tree of the name.
 * TR12. The caller's id of a publication is in the edit's record. Before a publication with an id,
 *      the records of all versions from the caller's `since` up to the edit's base are read, and
 *      the write of the master compares the base (TR1). So at most one version is published under
 *      an id, however often the caller retries with any base. If a record may have been collected,
 *      the publication fails and says so.
 * TR13. A write of an item, a hold, or a tag requires that no commit holds the document. A
 *      collector leaves a held document to a later collection: `settled` and `collected` do not
 *      pass its version, and no removal is removed before the held item that it hides. Every other
 *      call waits for the commit, and completes the one of a dead process.
 *
 *     tree_item.c                documents of items: stored form and what users see
 *     tree_edit.c                edits, records, the check for orphans and cycles; publication
 *     tree_read.c                snapshots, find, status
 *     tree_garbage_collection.c  holds, tags, erase, retention; removes what no reader needs
 *     tree_history.c             diff, log, export, import
 *     tree_branch.c              branches; merges of items, rebase, revert, merges of branches
 *     tree_maintenance.c         the sweep and the check
 */
#include "patterns/tree/tree.h"

#include <string.h>

#include "base/assert.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/reserved_fields.h"
#include "commit/metadata_cache.h"
#include "query/input_check.h"
#include "store/reserved_names.h"
#include "store/snapshot_view.h"
#include "store/store.h"

/* ---- the master ------------------------------------------------------------------------------ */

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads the versions that are published but not settled: one token for each. Returns false if they
 * are invalid. */
static bool read_published(const bson_t *document, struct tree_master *master)
{
    int64_t room = master->current - master->settled, count = 0;
    struct value published = truce__value_field(truce__value_document(document), "published", 9);
    bson_iter_t array, entry;
    bson_t each;

    if (published.type != BSON_TYPE_ARRAY)
        return false;
    truce__value_bson(published, &each);
    if (bson_count_keys(&each) != room || !bson_iter_init(&array, &each))
        return false;
    master->published = bson_malloc0(((size_t)room + 1) * sizeof *master->published);
    for (; bson_iter_next(&array); count++) {
        if (!BSON_ITER_HOLDS_DOCUMENT(&array) || !bson_iter_recurse(&array, &entry) ||
            !bson_iter_find(&entry, "token") || !BSON_ITER_HOLDS_OID(&entry))
            return false;
        bson_oid_copy(bson_iter_oid(&entry), &master->published[count].token);
        if (bson_iter_recurse(&array, &entry) && bson_iter_find(&entry, "at") &&
            BSON_ITER_HOLDS_DATE_TIME(&entry))
            master->published[count].at_ms = truce__iter_date(&entry);
    }
    return true;
}

/* Reads a stored master. Returns false if its numbers contradict each other (TR5). */
static bool master_parse(const bson_t *document, struct tree_master *master)
{
    bson_iter_t iter;
    bson_t keep;

    if (!bson_iter_init_find(&iter, document, "born") || !BSON_ITER_HOLDS_OID(&iter))
        return false;
    bson_oid_copy(bson_iter_oid(&iter), &master->born);
    if (!truce__field_whole(document, "current", &master->current) ||
        !truce__field_whole(document, "settled", &master->settled) ||
        !truce__field_whole(document, "floor", &master->floor) ||
        !truce__field_whole(document, "gone", &master->gone) ||
        !truce__field_whole(document, "collected", &master->collected) ||
        master->current > FIELD_MAX)
        return false;
    master->at_ms = truce__field_date(document, "at");
    master->first = truce__field_count(document, "first");
    master->first = master->first > 0 ? master->first : 1;
    if (truce__value_subdocument(document, "keep", &keep)) {
        master->keep.versions = truce__field_count(&keep, "versions");
        master->keep.age_ms = truce__field_count(&keep, "age_ms");
    }
    return master->collected >= 0 && master->collected <= master->gone &&
           master->gone <= master->floor && master->floor <= master->settled &&
           read_published(document, master);
}

truce_status truce__tree_master(truce_tree *tree, struct tree_master *master, bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER, document;
    struct worker worker;
    bson_value_t id;
    truce_status status;

    *master = (struct tree_master){0};
    BSON_APPEND_UTF8(&holder, "_id", tree->name);
    id = truce__document_id(&holder);
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    /* Reads the latest master, because the read decides about an earlier read, hold, or stamp (TR5
     * to TR7). */
    worker.latest = true;
    status = truce__journal_read_unguarded(&worker, TREES, &id, &document, error);
    if (!status && bson_has_field(&document, "dropped"))
        status = TRUCE_NOT_FOUND;
    if (status == TRUCE_NOT_FOUND)
        (void)truce__fail(status, error, "the tree \"%s\" does not exist", tree->name);
    if (!status && !master_parse(&document, master))
        status = truce__fail(TRUCE_INVALID, error, "%s {_id: \"%s\"} is not a valid tree document",
                             TREES, tree->name);
    bson_destroy(&document);
    bson_destroy(&holder);
    return status;
}

void truce__tree_master_release(struct tree_master *master)
{
    bson_free(master->published);
    master->published = NULL;
}

bool truce__tree_counts(const struct tree_master *master, const struct tree_item *item)
{
    if (item->version <= 0 || item->version > master->current)
        return false;
    if (item->version <= master->settled)
        return item->stamped;
    return item->token.type == BSON_TYPE_OID &&
           !memcmp(item->token.data,
                   master->published[item->version - master->settled - 1].token.bytes,
                   item->token.size);
}

bool truce__tree_accepts(const struct tree_master *master, const bson_t *document)
{
    struct tree_item item;

    truce__tree_item_parse(document, &item);
    return truce__tree_counts(master, &item);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Creates the indexes of items, edits, and holds, unless they are known to exist. */
static truce_status tree_indexes(truce_tree *tree, bson_error_t *error)
{
    struct {
        const char *collection;
        bson_t *index;
    } all[] = {
        {tree->collection,
         BCON_NEW("key", "{", "tree", BCON_INT32(1), "itemId", BCON_INT32(1), "version",
                  BCON_INT32(1), "token", BCON_INT32(1), "}", "unique", BCON_BOOL(true))},
        {tree->collection,
         BCON_NEW("key", "{", "tree", BCON_INT32(1), "version", BCON_INT32(1), "}")},
        {TREE_EDITS, BCON_NEW("key", "{", "tree", BCON_INT32(1), "version", BCON_INT32(1), "}")},
        {TREE_HOLDS, BCON_NEW("key", "{", "tree", BCON_INT32(1), "version", BCON_INT32(1), "}")},
    };
    uint64_t structure;
    bool known = truce__metadata_known(tree->store, "tree", tree->collection, &structure);
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!status && !known)
            status = truce__index_ensure(tree->store, all[i].collection, all[i].index, error);
        bson_destroy(all[i].index);
    }
    if (!status && !known)
        truce__metadata_learn(tree->store, "tree", tree->collection, structure);
    return status;
}

/* Inserts the master of a new tree. If another process has created the tree in the meantime, that
 * is a success, too. */
static truce_status insert_master(truce_tree *tree, bson_error_t *error)
{
    int64_t before = tree->first ? tree->first - 1 : 0;
    bson_t *document =
        BCON_NEW("_id", BCON_UTF8(tree->name), "collection", BCON_UTF8(tree->collection), "current",
                 BCON_INT64(before), "settled", BCON_INT64(before), "published", "[", "]", "floor",
                 BCON_INT64(before), "gone", BCON_INT64(before), "collected", BCON_INT64(before));
    bson_oid_t born;
    truce_status status;

    truce__id_new(&born);
    BSON_APPEND_OID(document, "born", &born);
    if (before)
        BSON_APPEND_INT64(document, "first", tree->first);
    if (tree->parent)
        BSON_APPEND_UTF8(document, "parent", tree->parent);
    status = truce_insert(tree->store, TREES, document, NULL, error);
    bson_destroy(document);
    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

truce_status truce__tree_make(truce_tree *tree, bson_error_t *error)
{
    struct worker worker;
    truce_status status = truce__tree_end_drop(tree, error);

    if (!status)
        status = tree_indexes(tree, error);
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    while (!status) {
        status = insert_master(tree, error);
        if (!truce__worker_repeats(&worker, status, "the store"))
            break;
        status = TRUCE_OK;
    }
    return status;
}

/* Copies the update and adds {$set: {_rev}}. */
static void append_rev(const bson_t *update, bson_t *with)
{
    bson_t set, assigned;
    bson_oid_t rev;

    bson_copy_to_excluding_noinit(update, with, "$set", NULL);
    truce__id_new(&rev);
    BSON_APPEND_DOCUMENT_BEGIN(with, "$set", &set);
    if (truce__value_subdocument(update, "$set", &assigned))
        bson_concat(&set, &assigned);
    BSON_APPEND_OID(&set, "_rev", &rev);
    bson_append_document_end(with, &set);
}

truce_status truce__tree_write_master(truce_tree *tree, const struct tree_master *master,
                                      bson_t *guard, bson_t *update, bool *done,
                                      bson_error_t *error)
{
    truce_write_result result = {0};
    struct worker worker;
    bson_t with = BSON_INITIALIZER;
    truce_status status;

    *done = false;
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    BSON_APPEND_UTF8(guard, "_id", tree->name);
    BCON_APPEND(guard, "born", BCON_OID(&master->born), "dropped", "{", "$exists", BCON_BOOL(false),
                "}");
    truce__intent_append_absent(guard);
    append_rev(update, &with);
    do {
        status = truce_update(tree->store, TREES, guard, &with, NULL, &result, error);
        *done = *done || (!status && result.matched);
        truce_write_result_release(&result);
    } while (truce__worker_repeats(&worker, status, "the master"));
    bson_destroy(&with);
    bson_destroy(update);
    bson_destroy(guard);
    return status;
}

/* ---- documents that commits hold ------------------------------------------------------------- */

truce_status truce__tree_any(truce_tree *tree, const char *collection, const bson_t *filter,
                             bool *any, bson_error_t *error)
{
    bson_t *only_id = BCON_NEW("_id", BCON_INT32(1)), found;
    truce_find_options options = {.projection = only_id, .latest = true};
    truce_status status = truce_find_one(tree->store, collection, filter, &options, &found, error);

    *any = !status;
    bson_destroy(&found);
    bson_destroy(only_id);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

bson_t *truce__tree_unheld(const bson_t *filter)
{
    bson_t *unheld = bson_copy(filter);

    /* Invariant TR13. */
    truce__intent_append_absent(unheld);
    return unheld;
}

truce_status truce__tree_await(truce_tree *tree, const char *collection, const bson_t *filter,
                               bson_error_t *error)
{
    bson_t *held = bson_copy(filter), found;
    struct worker worker;
    truce_status status;

    BCON_APPEND(held, "_intent", "{", "$exists", BCON_BOOL(true), "}");
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    do {
        status = truce_find_one(tree->store, collection, held, &truce__find_latest, &found, error);
        if (!status)
            status = truce__intent_complete_other(&worker, collection, &found, error);
        bson_destroy(&found);
    } while (!status || truce__worker_repeats(&worker, status, "the store"));
    bson_destroy(held);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- the handle ------------------------------------------------------------------------------ */

static truce_status tree_check_name(const char *name, const char *what, bson_error_t *error)
{
    size_t length = strlen(name);

    if (!length || length > TREE_NAME_MAX || !bson_utf8_validate(name, length, false))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid %s \"%.60s\": expected 1 to %d bytes of UTF-8", what, name,
                           TREE_NAME_MAX);
    return TRUCE_OK;
}

/* Checks the name of the parent field: a top-level field that truce does not use itself. */
static truce_status check_parent(const char *parent, bson_error_t *error)
{
    static const char *const own[] = {"_id", "tree",    "itemId", "version", "token",
                                      "pub", "removed", "erased", "edited",  "_intent"};

    if (!*parent || *parent == '$' || strchr(parent, '.'))
        return truce__fail(
            TRUCE_INVALID, error,
            "invalid parent field \"%s\": expected a field name without \".\", and without \"$\" "
            "in front",
            parent);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (!strcmp(parent, own[i]))
            return truce__fail(TRUCE_INVALID, error, "the field name \"%s\" is reserved for truce",
                               parent);
    }
    return tree_check_name(parent, "parent field", error);
}

/* Checks the options of a handle. Only the store knows whether they fit an existing tree
 * (tree_read_master). */
static truce_status tree_check_options(const truce_tree_options *options, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_tree_options", error);

    if (!status && (!options || (!options->collection && !options->name)))
        status = truce__fail(
            TRUCE_INVALID, error,
            "the tree has no collection: set `collection` or the name of an existing tree");
    if (!status && options->collection)
        status = truce__collection_name_check(options->collection, error);
    if (!status && options->collection && truce__reserved(options->collection))
        status = truce__fail(TRUCE_INVALID, error, "collection \"%s\" is reserved for truce",
                             options->collection);
    if (!status && options->name)
        status = tree_check_name(options->name, "name of the tree", error);
    if (!status && options->parent)
        status = check_parent(options->parent, error);
    return status;
}

truce_tree *truce_tree_new(truce_store *store, const truce_tree_options *options)
{
    truce_tree *tree = bson_malloc0(sizeof *tree);

    truce_assert(store);
    tree->store = store;
    pthread_mutex_init(&tree->mutex, NULL);
    tree->refused = tree_check_options(options, &tree->refusal) != TRUCE_OK;
    tree->deadline_ms = COMMIT_DEADLINE_MS;
    if (tree->refused) {
        /* Filters use the name before the handle's refusal is reported, so the name must not be
         * NULL. */
        tree->name = bson_strdup("");
        return tree;
    }
    tree->deadline_ms = options->deadline_ms ? options->deadline_ms : COMMIT_DEADLINE_MS;
    tree->collection = bson_strdup(options->collection);
    tree->name = bson_strdup(options->name ? options->name : options->collection);
    tree->parent = bson_strdup(options->parent);
    return tree;
}

void truce_tree_free(truce_tree *tree)
{
    if (!tree)
        return;
    bson_free(tree->collection);
    bson_free(tree->name);
    bson_free(tree->parent);
    pthread_mutex_destroy(&tree->mutex);
    bson_free(tree);
}

bool truce__tree_relaxed(const truce_tree *tree)
{
    return tree->store->capabilities & TRUCE_CAN_KEEP_ORDER;
}

/* ---- lookup and creation --------------------------------------------------------------------- */

static truce_status tree_take(truce_tree *tree, const char *field, const char *kept, char **own,
                              bson_error_t *error)
{
    if (*own && strcmp(*own, kept))
        return *kept ? truce__fail(TRUCE_INVALID, error,
                                   "the %s of tree \"%s\" is \"%s\", not \"%s\"", field, tree->name,
                                   kept, *own)
                     : truce__fail(TRUCE_INVALID, error, "tree \"%s\" was created without a %s",
                                   tree->name, field);
    if (!*own && *kept)
        *own = bson_strdup(kept);
    return TRUCE_OK;
}

/* Finds the tree, and takes the collection and the parent field from it. Returns INVALID if the
 * handle has other ones. The caller holds the mutex of the handle. */
static truce_status tree_read_master(truce_tree *tree, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(tree->name)), found;
    truce_status status = truce_find_one(tree->store, TREES, filter, NULL, &found, error);

    if (!status && bson_has_field(&found, "dropped"))
        status = TRUCE_NOT_FOUND;
    if (status == TRUCE_NOT_FOUND)
        (void)truce__fail(status, error, "the tree \"%s\" does not exist", tree->name);
    if (!status && !*truce__field_text(&found, "collection"))
        status = truce__fail(TRUCE_INVALID, error, "%s {_id: \"%s\"} is not a valid tree document",
                             TREES, tree->name);
    if (!status)
        status = tree_take(tree, "collection", truce__field_text(&found, "collection"),
                           &tree->collection, error);
    if (!status)
        status =
            tree_take(tree, "parent", truce__field_text(&found, "parent"), &tree->parent, error);
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

truce_status truce__tree_ready(truce_tree *tree, bool make, bson_error_t *error)
{
    uint64_t structure = truce__store_structure(tree->store) + 1;
    truce_status status = truce__handle_usable(tree->store, tree->refused, &tree->refusal, error);

    if (status)
        return status;
    pthread_mutex_lock(&tree->mutex);
    if (tree->structure != structure) {
        status = tree_read_master(tree, error);
        if (status == TRUCE_NOT_FOUND && make && tree->collection) {
            status = truce__view_guard(tree->store, "write", tree->collection, error);
            if (!status)
                status = truce__tree_make(tree, error);
            if (!status)
                status = tree_read_master(tree, error);
        }
        if (!status)
            tree->structure = structure;
    }
    if (!status && make)
        status = tree_indexes(tree, error);
    pthread_mutex_unlock(&tree->mutex);
    return status;
}

/* ---- drop ------------------------------------------------------------------------------------ */

/* Dropping marks the master first. From then on the tree counts as absent. Then all of its
 * documents are removed, the master last. If the process dies in between, the sweep or the next
 * creation of a tree of this name removes the rest. */

static truce_status drop_remove_all(truce_tree *tree, const char *collection, const bson_t *filter,
                                    int64_t *removed, bson_error_t *error)
{
    truce_write_options options = {.multi = true, .relaxed = truce__tree_relaxed(tree)};
    truce_write_result result = {0};
    struct worker worker;
    truce_status status;

    *removed = 0;
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    do {
        status = truce_remove(tree->store, collection, filter, &options, &result, error);
        *removed += result.removed;
        truce_write_result_release(&result);
    } while (truce__worker_repeats(&worker, status, "the store"));
    return status;
}

/* Reports whether the dropped tree still has its master. */
static truce_status drop_is_unfinished(truce_tree *tree, const bson_oid_t *born, bool *unfinished,
                                       bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(tree->name), "born", BCON_OID(born));
    /* Reads the latest master. After a drop that ended, the next tree of the name may have written
     * the documents that this call is about to remove. */
    truce_status status = truce__tree_any(tree, TREES, filter, unfinished, error);

    bson_destroy(filter);
    return status;
}

/* Removes these documents. If a commit holds one of them, waits for it, and sets *left. */
static truce_status remove_these(truce_tree *tree, const char *collection, const bson_t *these,
                                 bool *left, bson_error_t *error)
{
    bson_t *unheld = truce__tree_unheld(these);
    int64_t removed;
    truce_status status = drop_remove_all(tree, collection, unheld, &removed, error);

    if (!status)
        status = truce__tree_any(tree, collection, these, left, error);
    if (!status && *left)
        status = truce__tree_await(tree, collection, these, error);
    bson_destroy(unheld);
    return status;
}

/* Removes one batch of the documents. Sets `more` if there may be others. The _ids are read before
 * the master: if it still exists, no later tree of the name can have written them (TR11). */
static truce_status remove_some(truce_tree *tree, const char *collection, const bson_t *filter,
                                const bson_oid_t *born, bool *more, bson_error_t *error)
{
    bson_t *keys = BCON_NEW("_id", BCON_INT32(1)), these = BSON_INITIALIZER, inner, array;
    truce_find_options options = {.projection = keys, .limit = TREE_REMOVALS};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    uint32_t count = 0;
    bool unfinished = false, left = false;
    truce_status status = truce_find(tree->store, collection, filter, &options, &cursor, error);

    BSON_APPEND_DOCUMENT_BEGIN(&these, "_id", &inner);
    BSON_APPEND_ARRAY_BEGIN(&inner, "$in", &array);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document)
        truce__value_append_element(&array, &count,
                                    truce__value_field(truce__value_document(document), "_id", 3));
    bson_append_array_end(&inner, &array);
    bson_append_document_end(&these, &inner);
    if (!status && count)
        status = drop_is_unfinished(tree, born, &unfinished, error);
    if (unfinished)
        status = remove_these(tree, collection, &these, &left, error);
    *more = unfinished && (left || count == TREE_REMOVALS);
    truce_cursor_close(cursor);
    bson_destroy(&these);
    bson_destroy(keys);
    return status;
}

static truce_status remove_every(truce_tree *tree, const char *collection, bson_t *filter,
                                 const bson_oid_t *born, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool more = true;

    while (!status && more)
        status = remove_some(tree, collection, filter, born, &more, error);
    bson_destroy(filter);
    return status;
}

/* Removes the items, edits, and holds of a dropped tree, and then its master. */
static truce_status remove_rest(truce_tree *tree, const char *items, const bson_oid_t *born,
                                bson_error_t *error)
{
    bson_t *master =
        BCON_NEW("_id", BCON_UTF8(tree->name), "born", BCON_OID(born), "dropped", BCON_BOOL(true));
    int64_t removed;
    truce_status status =
        remove_every(tree, items, BCON_NEW("tree", BCON_UTF8(tree->name)), born, error);

    if (!status)
        status =
            remove_every(tree, TREE_EDITS, BCON_NEW("tree", BCON_UTF8(tree->name)), born, error);
    if (!status)
        status = remove_every(tree, TREE_HOLDS,
                              BCON_NEW("$or", "[", "{", "tree", BCON_UTF8(tree->name), "}", "{",
                                       "branch", BCON_UTF8(tree->name), "}", "]"),
                              born, error);
    /* If a commit holds the master, the next sweep removes it. */
    truce__intent_append_absent(master);
    if (!status)
        status = drop_remove_all(tree, TREES, master, &removed, error);
    bson_destroy(master);
    return status;
}

truce_status truce__tree_end_drop(truce_tree *tree, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(tree->name), "dropped", BCON_BOOL(true)), found;
    bson_iter_t iter;
    truce_status status = truce_find_one(tree->store, TREES, filter, NULL, &found, error);

    if (!status && bson_iter_init_find(&iter, &found, "born") && BSON_ITER_HOLDS_OID(&iter))
        status =
            remove_rest(tree, truce__field_text(&found, "collection"), bson_iter_oid(&iter), error);
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- the call -------------------------------------------------------------------------------- */

static truce_status check_branches(const truce_tree *tree, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("from.tree", BCON_UTF8(tree->name), "dropped", "{", "$exists",
                              BCON_BOOL(false), "}"),
           found;
    truce_status status = truce_find_one(tree->store, TREES, filter, NULL, &found, error);

    if (!status)
        status = truce__fail(TRUCE_INVALID, error,
                             "tree \"%s\" has the branch \"%s\": drop that one first", tree->name,
                             truce__field_text(&found, "_id"));
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Marks the master as dropped. Returns TRUCE_CONFLICT if a commit holds the master. */
static truce_status drop_mark(truce_tree *tree, bson_error_t *error)
{
    struct tree_master master;
    bool done = false;
    truce_status status = truce__tree_master(tree, &master, error);

    if (!status)
        status = truce__tree_write_master(tree, &master, bson_new(),
                                          BCON_NEW("$set", "{", "dropped", BCON_BOOL(true), "}"),
                                          &done, error);
    truce__tree_master_release(&master);
    return status || done ? status : TRUCE_CONFLICT;
}

truce_status truce_tree_drop(truce_tree *tree, bson_error_t *error)
{
    DEADLINE_SCOPE(tree->deadline_ms);
    struct worker worker;
    truce_status status = truce__tree_ready(tree, false, error);

    if (!status)
        status = check_branches(tree, error);
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    while (!status && (status = drop_mark(tree, error)) == TRUCE_CONFLICT)
        status = truce__worker_wait(&worker, "the master", error);
    return status ? status : truce__tree_end_drop(tree, error);
}
