/* Which items were written between two versions. */
#include <stdlib.h>

#include "patterns/tree/tree.h"

void truce__tree_ids_add(struct tree_ids *ids, struct value id)
{
    if (ids->count == ids->room) {
        ids->room = ids->room ? 2 * ids->room : 256;
        ids->all = bson_realloc(ids->all, ids->room * sizeof *ids->all);
    }
    ids->all[ids->count++] = truce__value_copy(&ids->arena, id);
}

static int tree_ids_by_value(const void *a, const void *b)
{
    return truce__value_compare(*(const struct value *)a, *(const struct value *)b);
}

static void tree_ids_sort(struct tree_ids *ids)
{
    size_t kept = 0;

    if (ids->count)
        qsort(ids->all, ids->count, sizeof *ids->all, tree_ids_by_value);
    for (size_t i = 0; i < ids->count; i++) {
        if (!i || !truce__value_equal(ids->all[kept - 1], ids->all[i]))
            ids->all[kept++] = ids->all[i];
    }
    ids->count = kept;
}

truce_status truce__tree_ids_between(const truce_tree *tree, int64_t low, int64_t high,
                                     struct tree_ids *ids, bson_error_t *error)
{
    bson_t filter, *keys = BCON_NEW("itemId", BCON_INT32(1), "_id", BCON_INT32(0));
    truce_find_options options = {.projection = keys};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    truce__tree_filter(tree, &filter);
    BCON_APPEND(&filter, "version", "{", "$gt", BCON_INT64(low), "$lte", BCON_INT64(high), "}");
    status = truce_find(tree->store, tree->collection, &filter, &options, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document)
        truce__tree_ids_add(ids, truce__tree_item_id(document));
    truce_cursor_close(cursor);
    bson_destroy(keys);
    bson_destroy(&filter);
    tree_ids_sort(ids);
    return status;
}

void truce__tree_ids_release(struct tree_ids *ids)
{
    bson_free(ids->all);
    truce__arena_release(&ids->arena);
    *ids = (struct tree_ids){0};
}
