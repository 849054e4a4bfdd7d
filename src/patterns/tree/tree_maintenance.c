/* The sweep and the check of trees. The sweep calls truce_tree_collect once for each tree, and ends
 * drops that were interrupted. The check finds invalid masters, and items that belong to no version
 * and no edit. An insert that took effect after its edit was abandoned leaves such an item; a
 * repair removes it, unless a commit holds it (TR13, src/patterns/tree/tree.c). */
#include "patterns/tree/tree_maintenance.h"

#include <string.h>

#include "base/field.h"
#include "patterns/tree/tree.h"
#include "store/reserved_names.h"

/* ---- the sweep ------------------------------------------------------------------------------- */

static truce_status sweep_tree(struct sweep *sweep, const char *collection, const bson_t *master,
                               void *arg, bson_error_t *error)
{
    truce_tree_options options = {.name = truce__field_text(master, "_id")};
    truce_tree *tree = truce_tree_new(sweep->store, &options);
    truce_tree_collected collected = {0};
    truce_status status = bson_has_field(master, "dropped")
                              ? truce__tree_end_drop(tree, error)
                              : truce_tree_collect(tree, &collected, error);

    (void)collection, (void)arg;
    sweep->report->finished += collected.settled;
    sweep->report->expired += collected.items;
    sweep->report->more = sweep->report->more || collected.more;
    truce_tree_free(tree);
    return status;
}

truce_status truce__tree_sweep(struct sweep *sweep, bson_error_t *error)
{
    return truce__sweep_each(sweep, TREES, NULL, sweep_tree, NULL, error);
}

/* ---- the check ------------------------------------------------------------------------------- */

struct tree_check {
    struct check *check;
    truce_tree *tree;
};

/* Returns whether the item's edit has a record. If so, the edit is in progress, or a sweep removes
 * the item. */
static truce_status has_record(const struct tree_check *context, const bson_t *item, bool *has,
                               bson_error_t *error)
{
    bson_iter_t iter;
    bson_t *filter, found;
    truce_status status;

    *has = false;
    if (!bson_iter_init_find(&iter, item, "token") || !BSON_ITER_HOLDS_OID(&iter))
        return TRUCE_OK;
    filter = BCON_NEW("_id", BCON_OID(bson_iter_oid(&iter)), "pub", "{", "$exists",
                      BCON_BOOL(false), "}");
    status = truce_find_one(context->check->store, TREE_EDITS, filter, NULL, &found, error);
    *has = !status;
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Finds items without a record of their edit. */
static truce_status suspect_items(struct check *check, bson_t *const *items, uint32_t count,
                                  bool *suspect, void *arg, bson_error_t *error)
{
    struct maintenance_links links = {.count = 0};
    bson_t *open = BCON_NEW("pub", "{", "$exists", BCON_BOOL(false), "}");
    bson_iter_t token;
    truce_status status;

    (void)arg;
    for (uint32_t i = 0; i < count; i++) {
        if (bson_iter_init_find(&token, items[i], "token") && BSON_ITER_HOLDS_OID(&token))
            truce__maintenance_link(&links, bson_iter_value(&token), i);
        else
            suspect[i] = true;
    }
    status = truce__maintenance_follow(check, TREE_EDITS, open, &links, suspect, error);
    bson_destroy(open);
    return status;
}

/* Reports an item that belongs to no version and no edit. A repair removes it. */
static truce_status maintenance_check_item(struct check *check, const char *collection,
                                           const bson_t *item, void *arg, bson_error_t *error)
{
    const struct tree_check *context = arg;
    bson_value_t id = truce__document_id(item);
    bson_t filter = BSON_INITIALIZER;
    const struct finding finding = {.rule = "tree-item",
                                    .collection = collection,
                                    .id = &id,
                                    .text = "it belongs to no version and no edit",
                                    .repair = "it is removed"};
    truce_write_result result = {0};
    bool has, repaired = false;
    truce_status status = has_record(context, item, &has, error);

    BSON_APPEND_VALUE(&filter, "_id", &id);
    BCON_APPEND(&filter, "pub", "{", "$exists", BCON_BOOL(false), "}");
    /* Invariant TR13. */
    truce__intent_append_absent(&filter);
    if (!status && !has && truce__check_repairs(check, &finding)) {
        status = truce_remove(check->store, collection, &filter, NULL, &result, error);
        repaired = !status && result.removed;
        truce_write_result_release(&result);
    }
    if (!status && !has)
        truce__check_report(check, &finding, repaired);
    bson_destroy(&filter);
    return status;
}

/* Reports an invalid master. If the master is valid, checks the items without a stamp up to the
 * settled version. */
static truce_status maintenance_check_tree(struct check *check, const char *collection,
                                           const bson_t *kept, void *arg, bson_error_t *error)
{
    truce_tree_options options = {.name = truce__field_text(kept, "_id")};
    struct tree_check context = {check, truce_tree_new(check->store, &options)};
    bson_value_t id = truce__document_id(kept);
    struct tree_master master = {0};
    bson_error_t why;
    bson_t filter;
    truce_status status = truce__tree_ready(context.tree, false, &why);

    (void)arg;
    if (!status)
        status = truce__tree_master(context.tree, &master, &why);
    if (status == TRUCE_INVALID) {
        truce__check_report(
            check,
            &(struct finding){.rule = "tree-master",
                              .collection = collection,
                              .id = &id,
                              .text = why.message,
                              .repair = "none: a program other than truce wrote it"},
            false);
    } else if (!status) {
        truce__tree_filter(context.tree, &filter);
        BCON_APPEND(&filter, "version", "{", "$lte", BCON_INT64(master.settled), "}", "pub", "{",
                    "$exists", BCON_BOOL(false), "}");
        status = truce__check_suspects(check, context.tree->collection, &filter, suspect_items,
                                       maintenance_check_item, &context, error);
        bson_destroy(&filter);
    } else if (error) {
        *error = why;
    }
    truce__tree_master_release(&master);
    truce_tree_free(context.tree);
    return status == TRUCE_INVALID || status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__tree_check(struct check *check, bson_error_t *error)
{
    return truce__check_each(check, TREES, NULL, maintenance_check_tree, NULL, error);
}
