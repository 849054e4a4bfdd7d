/*
 * One item, three ways: what comes in, beside what stands, both from what they had in common. An edit that is rebased comes in, and so
 * does the other side of a branch.
 */
#include "base/reserved_fields.h"
#include "merge/merge.h"
#include "patterns/tree/tree.h"
#include "query/incoming.h"

truce_status truce__tree_merging_begin(struct tree_merging *merging,
                                       const truce_tree_rebase_options *options,
                                       bson_error_t *error)
{
    static const truce_tree_rebase_options nothing;
    truce_status status = ROOM_CHECK(options, "truce_tree_rebase_options", error);

    *merging = (struct tree_merging){.options = options ? options : &nothing};
    if (!status && options &&
        (options->prefer < TRUCE_TREE_ASK || options->prefer > TRUCE_TREE_THEIRS))
        status = truce__fail(TRUCE_INVALID, error, "there is no such preference");
    if (!status && options)
        status = truce__check_optional(options->rules, "rules", error);
    if (!status && options && options->rules)
        status = truce__merge_rules_new(options->rules, &merging->rules, error);
    return status;
}

void truce__tree_merging_end(struct tree_merging *merging)
{
    truce__merge_rules_free(merging->rules);
    merging->rules = NULL;
}

/* ---- what is put ------------------------------------------------------------------------------- */

static truce_status tree_merge_put(struct tree_merging *merging, const bson_t *kept,
                                   bson_error_t *error)
{
    bson_t item = BSON_INITIALIZER;
    truce_status status;

    truce__tree_show(kept, &item);
    status = truce_tree_put(merging->fresh, &item, error);
    bson_destroy(&item);
    return status;
}

static truce_status put_incoming(struct tree_merging *merging, const struct tree_three_way *item,
                                 bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER;
    bson_iter_t iter;
    truce_status status = TRUCE_OK;

    if (item->incoming)
        return tree_merge_put(merging, item->incoming, error);
    truce__value_append(&holder, "itemId", 6, item->id);
    if (bson_iter_init_find(&iter, &holder, "itemId"))
        status = truce_tree_remove(merging->fresh, bson_iter_value(&iter), error);
    bson_destroy(&holder);
    return status;
}

/* ---- a conflict -------------------------------------------------------------------------------- */

/* The user's part of it; nothing: {}. */
static void merge_content(const bson_t *kept, bson_t *item)
{
    bson_t shown = BSON_INITIALIZER;

    bson_init(item);
    if (kept)
        truce__tree_show(kept, &shown);
    bson_copy_to_excluding_noinit(&shown, item, "version", NULL);
    bson_destroy(&shown);
}

static void merge_tell(struct tree_merging *merging, const struct tree_three_way *item,
                       const bson_t *paths)
{
    truce_tree_conflict conflict = {.paths = paths};
    const bson_t *mine = merging->foreign ? item->standing : item->incoming,
                 *theirs = merging->foreign ? item->incoming : item->standing,
                 *kept[] = {item->base, mine, theirs};
    bson_t parts[3], holder = BSON_INITIALIZER;
    bson_iter_t iter;

    merging->conflicts++;
    truce__value_append(&holder, "itemId", 6, item->id);
    for (int i = 0; i < 3; i++)
        merge_content(kept[i], &parts[i]);
    conflict.base = kept[0] ? &parts[0] : NULL;
    conflict.mine = kept[1] ? &parts[1] : NULL;
    conflict.theirs = kept[2] ? &parts[2] : NULL;
    if (merging->options->conflict && bson_iter_init_find(&iter, &holder, "itemId")) {
        conflict.item = bson_iter_value(&iter);
        merging->options->conflict(&conflict, merging->options->arg);
    }
    for (int i = 0; i < 3; i++)
        bson_destroy(&parts[i]);
    bson_destroy(&holder);
}

/* What comes in is taken, if not otherwise said. */
static bool takes(const struct tree_merging *merging)
{
    return merging->options->prefer == (merging->foreign ? TRUCE_TREE_THEIRS : TRUCE_TREE_MINE);
}

/* It cannot be merged. */
static truce_status merge_disagree(struct tree_merging *merging, const struct tree_three_way *item,
                                   bson_error_t *error)
{
    bson_t all = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    if (takes(merging))
        status = put_incoming(merging, item, error);
    else if (merging->options->prefer == TRUCE_TREE_ASK)
        merge_tell(merging, item, &all);
    bson_destroy(&all);
    return status;
}

/* ---- a merge ----------------------------------------------------------------------------------- */

static truce_status tree_merge_merge(struct tree_merging *merging,
                                     const struct tree_three_way *item, bson_error_t *error)
{
    static const enum merge_settle settle[] = {
        [TRUCE_TREE_ASK] = MERGE_REPORT,
        [TRUCE_TREE_MINE] = MERGE_SETTLE_MINE,
        [TRUCE_TREE_THEIRS] = MERGE_SETTLE_THEIRS,
    };
    struct merge_options options = {.rules = merging->rules,
                                    .mine_is_newer = !merging->foreign,
                                    .settle = settle[merging->options->prefer]};
    bson_t base, mine, theirs, merged, conflicts;
    truce_status status;

    merge_content(item->base, &base);
    merge_content(merging->foreign ? item->standing : item->incoming, &mine);
    merge_content(merging->foreign ? item->incoming : item->standing, &theirs);
    status = truce__merge(truce__value_document(&base), truce__value_document(&mine),
                          truce__value_document(&theirs), &options, &merged, &conflicts, error);
    if (!status && !bson_empty(&conflicts) && merging->options->prefer == TRUCE_TREE_ASK)
        merge_tell(merging, item, &conflicts);
    else if (!status && !bson_equal(&merged, merging->foreign ? &mine : &theirs))
        status = truce_tree_put(merging->fresh, &merged, error);
    bson_destroy(&conflicts);
    bson_destroy(&merged);
    bson_destroy(&theirs);
    bson_destroy(&mine);
    bson_destroy(&base);
    return status;
}

truce_status truce__tree_merge(struct tree_merging *merging, const struct tree_three_way *item,
                               bson_error_t *error)
{
    if (truce__tree_same(item->base, item->standing))
        return put_incoming(merging, item, error);
    if (truce__tree_same(item->incoming, item->standing) ||
        truce__tree_same(item->incoming, item->base))
        return TRUCE_OK;
    return item->incoming && item->standing ? tree_merge_merge(merging, item, error)
                                            : merge_disagree(merging, item, error);
}
