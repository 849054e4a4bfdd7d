/*
 * Dropping a tree: its master says so first, and from then on nobody finds it; then everything of it goes, the master last. Whoever
 * dies in between leaves the rest to the sweep, or to whoever makes a tree of this name.
 */
#include <string.h>

#include "base/deadline.h"
#include "base/field.h"
#include "patterns/tree/tree.h"
#include "store/reserved.h"

#define REMOVALS 500 /* in one write */

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
    } while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    return status;
}

/* A part of them; *more: there may be others. */
static truce_status remove_some(truce_tree *tree, const char *collection, const bson_t *filter,
                                bool *more, bson_error_t *error)
{
    bson_t *keys = BCON_NEW("_id", BCON_INT32(1)), these = BSON_INITIALIZER, inner, array;
    truce_find_options options = {.projection = keys, .limit = REMOVALS};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    uint32_t count = 0;
    int64_t removed;
    truce_status status = truce_find(tree->store, collection, filter, &options, &cursor, error);

    BSON_APPEND_DOCUMENT_BEGIN(&these, "_id", &inner);
    BSON_APPEND_ARRAY_BEGIN(&inner, "$in", &array);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document)
        truce__value_append_element(&array, &count,
                                    truce__value_field(truce__value_document(document), "_id", 3));
    bson_append_array_end(&inner, &array);
    bson_append_document_end(&these, &inner);
    if (!status && count)
        status = drop_remove_all(tree, collection, &these, &removed, error);
    *more = count == REMOVALS;
    truce_cursor_close(cursor);
    bson_destroy(&these);
    bson_destroy(keys);
    return status;
}

static truce_status remove_every(truce_tree *tree, const char *collection, bson_t *filter,
                                 bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool more = true;

    while (!status && more)
        status = remove_some(tree, collection, filter, &more, error);
    bson_destroy(filter);
    return status;
}

static truce_status remove_rest(truce_tree *tree, const char *items, const bson_oid_t *born,
                                bson_error_t *error)
{
    bson_t *master =
        BCON_NEW("_id", BCON_UTF8(tree->name), "born", BCON_OID(born), "dropped", BCON_BOOL(true));
    int64_t removed;
    truce_status status = remove_every(tree, items, BCON_NEW("tree", BCON_UTF8(tree->name)), error);

    if (!status)
        status = remove_every(tree, TREE_EDITS, BCON_NEW("tree", BCON_UTF8(tree->name)), error);
    if (!status)
        status = remove_every(tree, TREE_HOLDS,
                              BCON_NEW("$or", "[", "{", "tree", BCON_UTF8(tree->name), "}", "{",
                                       "branch", BCON_UTF8(tree->name), "}", "]"),
                              error);
    truce__intent_append_absent(master); /* of a commit at work on it: the sweep comes again */
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

/* ---- the call ----------------------------------------------------------------------------------- */

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

/* Once; CONFLICT: a commit is at work on the master. */
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
