/*
 * Erase: an item's contents go out of every version of a tree, of the tree that it is a branch of, and of all their branches.
 *
 * A branch, or a merge, that has read the item already looks for what was erased after it has become visible (tree_branch.c): this
 * here marks the items first, and then looks which trees there are.
 */
#include <string.h>

#include "base/deadline.h"
#include "base/field.h"
#include "base/null.h"
#include "patterns/tree/tree.h"
#include "query/incoming.h"
#include "store/reserved.h"

/* Operators, so that a stamp that is set meanwhile stays. The document stays, and so the index refuses an insert of it that lands
 * late. */
static truce_status erase_one(truce_tree *tree, const bson_t *document, bson_error_t *error)
{
    bson_t shown = BSON_INITIALIZER, filter = BSON_INITIALIZER, update = BSON_INITIALIZER, unset;
    bson_value_t id = truce__document_id(document);
    struct worker worker;
    bson_iter_t iter;
    truce_status status;

    truce__tree_show(document, &shown);
    BSON_APPEND_VALUE(&filter, "_id", &id);
    BCON_APPEND(&update, "$set", "{", "erased", BCON_BOOL(true), "}");
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$unset", &unset);
    for (bson_iter_init(&iter, &shown); bson_iter_next(&iter);) {
        if (strcmp(bson_iter_key(&iter), "itemId") && strcmp(bson_iter_key(&iter), "version"))
            BSON_APPEND_BOOL(&unset, bson_iter_key(&iter), true);
    }
    BSON_APPEND_BOOL(&unset, "removed", true);
    bson_append_document_end(&update, &unset);
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    do
        status = truce_update(tree->store, tree->collection, &filter, &update, NULL, NULL, error);
    while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(&update);
    bson_destroy(&filter);
    bson_destroy(&shown);
    return status;
}

truce_status truce__tree_erase(truce_tree *tree, struct value id, int64_t *versions,
                               bson_error_t *error)
{
    bson_t filter;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    truce__tree_filter(tree, &filter);
    truce__tree_append_id(&filter, "itemId", id);
    BCON_APPEND(&filter, "removed", "{", "$exists", BCON_BOOL(false), "}", "erased", "{", "$exists",
                BCON_BOOL(false), "}");
    status = truce_find(tree->store, tree->collection, &filter, NULL, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        status = erase_one(tree, document, error);
        *versions += !status;
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* Those of one root, but for `tree` itself. */
static truce_status erase_family(truce_tree *tree, struct value id, int64_t *versions,
                                 bson_error_t *error)
{
    struct tree_from from;
    bson_t *filter;
    truce_cursor *cursor = NULL;
    const bson_t *master;
    const char *root;
    truce_status status = truce__tree_from(tree, &from, error);

    if (status)
        return status;
    root = *from.root ? from.root : tree->name;
    filter = BCON_NEW("$or", "[", "{", "_id", BCON_UTF8(root), "}", "{", "from.root",
                      BCON_UTF8(root), "}", "]");
    status = truce_find(tree->store, TREES, filter, NULL, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &master, error)) && master) {
        truce_tree_options options = {.name = truce__field_text(master, "_id"),
                                      .deadline_ms = tree->deadline_ms};
        truce_tree *other;

        if (!strcmp(options.name, tree->name))
            continue;
        other = truce_tree_new(tree->store, &options);
        status = truce__tree_ready(other, false, error);
        if (!status)
            status = truce__tree_erase(other, id, versions, error);
        if (status == TRUCE_NOT_FOUND) /* it is being dropped */
            status = TRUCE_OK;
        truce_tree_free(other);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return status;
}

truce_status truce_tree_erase(truce_tree *tree, const bson_value_t *id, int64_t *versions,
                              bson_error_t *error)
{
    RETURN_IF_NULL(versions, error);

    DEADLINE_SCOPE(tree->deadline_ms);
    bson_t holder = BSON_INITIALIZER;
    struct value item;
    truce_status status = truce__check_value(id, "itemId", error);

    *versions = 0;
    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (!status) {
        BSON_APPEND_VALUE(&holder, "itemId", id);
        item = truce__tree_item_id(&holder);
        status = truce__tree_erase(tree, item, versions, error);
        if (!status)
            status = erase_family(tree, item, versions, error);
    }
    bson_destroy(&holder);
    return status;
}
