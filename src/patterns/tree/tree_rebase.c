/* An edit as one of another version: rebase, revert. */
#include <string.h>

#include "base/deadline.h"
#include "base/field.h"
#include "base/room.h"
#include "merge/merge.h"
#include "patterns/tree/tree.h"
#include "query/incoming.h"
#include "store/reserved.h"

#define PORTION 200 /* items of an edit that are merged at once */

struct rebase {
    truce_tree_edit *edit, *fresh; /* as it was; as it will be */
    truce_tree_snapshot current;   /* both versions are read by it */
    const truce_tree_rebase_options *options;
    struct merge_rules *rules;
    uint32_t conflicts;
    uint32_t count;
    size_t bytes; /* of what the edit wrote of them */
    struct own {
        bson_t *mine;          /* as the edit wrote it */
        bson_t *base, *theirs; /* NULL: it is not there */
    } all[PORTION];
};

/* ---- one item --------------------------------------------------------------------------------- */

static truce_status put(struct rebase *rebase, const bson_t *kept, bson_error_t *error)
{
    bson_t item = BSON_INITIALIZER;
    truce_status status;

    truce__tree_show(kept, &item);
    status = truce_tree_put(rebase->fresh, &item, error);
    bson_destroy(&item);
    return status;
}

static truce_status drop(struct rebase *rebase, const struct own *own, bson_error_t *error)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, own->mine, "itemId")
               ? truce_tree_remove(rebase->fresh, bson_iter_value(&iter), error)
               : TRUCE_OK;
}

static truce_status put_mine(struct rebase *rebase, const struct own *own, bson_error_t *error)
{
    return truce__tree_absent(own->mine) ? drop(rebase, own, error) : put(rebase, own->mine, error);
}

/* The user's part of it; nothing: {}. */
static void content(const bson_t *kept, bson_t *item)
{
    bson_t shown = BSON_INITIALIZER;

    bson_init(item);
    if (kept)
        truce__tree_show(kept, &shown);
    bson_copy_to_excluding_noinit(&shown, item, "version", NULL);
    bson_destroy(&shown);
}

static void tell(struct rebase *rebase, const struct own *own, const bson_t *paths)
{
    truce_tree_conflict conflict = {.paths = paths};
    bson_t parts[3];
    bson_iter_t iter;
    const bson_t *kept[] = {own->base, truce__tree_absent(own->mine) ? NULL : own->mine,
                            own->theirs};

    rebase->conflicts++;
    if (!rebase->options->conflict || !bson_iter_init_find(&iter, own->mine, "itemId"))
        return;
    for (int i = 0; i < 3; i++)
        content(kept[i], &parts[i]);
    conflict.item = bson_iter_value(&iter);
    conflict.base = kept[0] ? &parts[0] : NULL;
    conflict.mine = kept[1] ? &parts[1] : NULL;
    conflict.theirs = kept[2] ? &parts[2] : NULL;
    rebase->options->conflict(&conflict, rebase->options->arg);
    for (int i = 0; i < 3; i++)
        bson_destroy(&parts[i]);
}

/* It cannot be merged, or `paths` of it cannot. */
static truce_status disagree(struct rebase *rebase, const struct own *own, const bson_t *paths,
                             bson_error_t *error)
{
    if (rebase->options->prefer == TRUCE_TREE_MINE)
        return put_mine(rebase, own, error);
    if (rebase->options->prefer == TRUCE_TREE_ASK)
        tell(rebase, own, paths);
    return TRUCE_OK;
}

static truce_status merge(struct rebase *rebase, const struct own *own, bson_error_t *error)
{
    static const enum merge_settle settle[] = {
        [TRUCE_TREE_ASK] = MERGE_REPORT,
        [TRUCE_TREE_MINE] = MERGE_SETTLE_MINE,
        [TRUCE_TREE_THEIRS] = MERGE_SETTLE_THEIRS,
    };
    struct merge_options options = {
        .rules = rebase->rules, .mine_is_newer = true, .settle = settle[rebase->options->prefer]};
    bson_t base, mine, theirs, merged, conflicts;
    truce_status status;

    content(own->base, &base);
    content(own->mine, &mine);
    content(own->theirs, &theirs);
    status = truce__merge(truce__value_document(&base), truce__value_document(&mine),
                          truce__value_document(&theirs), &options, &merged, &conflicts, error);
    if (!status && !bson_empty(&conflicts) && rebase->options->prefer == TRUCE_TREE_ASK)
        tell(rebase, own, &conflicts);
    else if (!status && !bson_equal(&merged, &theirs))
        status = truce_tree_put(rebase->fresh, &merged, error);
    bson_destroy(&conflicts);
    bson_destroy(&merged);
    bson_destroy(&theirs);
    bson_destroy(&mine);
    bson_destroy(&base);
    return status;
}

static bool same(const bson_t *one, const bson_t *other)
{
    return one && other ? truce__tree_same(one, other) : one == other;
}

static truce_status rebase_item(struct rebase *rebase, const struct own *own, bson_error_t *error)
{
    const bson_t *mine = truce__tree_absent(own->mine) ? NULL : own->mine;
    bson_t nothing = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    if (same(own->base, own->theirs))
        status = put_mine(rebase, own, error);
    else if (same(mine, own->theirs) || same(mine, own->base))
        status = TRUCE_OK;
    else if (mine && own->theirs)
        status = merge(rebase, own, error);
    else
        status = disagree(rebase, own, &nothing, error);
    bson_destroy(&nothing);
    return status;
}

/* ---- a portion of them -------------------------------------------------------------------------- */

static void forget_pairs(struct rebase *rebase)
{
    for (uint32_t i = 0; i < rebase->count; i++) {
        struct own *own = &rebase->all[i];

        if (own->base)
            bson_destroy(own->base);
        if (own->theirs)
            bson_destroy(own->theirs);
        own->base = own->theirs = NULL;
    }
}

/* A tree_pair_function. */
static truce_status take_pair(struct value id, const bson_t *low, const bson_t *high, void *arg,
                              bson_error_t *error)
{
    struct rebase *rebase = arg;

    (void)error;
    for (uint32_t i = 0; i < rebase->count; i++) {
        struct own *own = &rebase->all[i];

        if (!truce__value_equal(truce__tree_item_id(own->mine), id))
            continue;
        own->base = low ? bson_copy(low) : NULL;
        own->theirs = high ? bson_copy(high) : NULL;
    }
    return TRUCE_OK;
}

static truce_status rebase_portion(struct rebase *rebase, bson_error_t *error)
{
    bson_t ids = BSON_INITIALIZER;
    uint32_t index = 0;
    truce_status status;

    for (uint32_t i = 0; i < rebase->count; i++)
        truce__value_append_element(&ids, &index, truce__tree_item_id(rebase->all[i].mine));
    do {
        forget_pairs(rebase);
        status = truce__tree_pairs(&rebase->current, rebase->edit->base, rebase->current.version,
                                   &ids, take_pair, rebase, error);
        if (!status)
            status = truce__tree_still(&rebase->current, error);
    } while (status == TRUCE_CONFLICT);
    for (uint32_t i = 0; !status && i < rebase->count; i++)
        status = rebase_item(rebase, &rebase->all[i], error);
    forget_pairs(rebase);
    for (uint32_t i = 0; i < rebase->count; i++)
        bson_destroy(rebase->all[i].mine);
    rebase->count = 0;
    rebase->bytes = 0;
    bson_destroy(&ids);
    return status;
}

/* A tree_own_function. */
static truce_status take_own(const bson_t *document, void *arg, bson_error_t *error)
{
    struct rebase *rebase = arg;

    rebase->all[rebase->count++] = (struct own){.mine = bson_copy(document)};
    rebase->bytes += document->len;
    return rebase->count == PORTION || rebase->bytes > TREE_BATCH_BYTES
               ? rebase_portion(rebase, error)
               : TRUCE_OK;
}

/* ---- all of them ------------------------------------------------------------------------------- */

/* The base has to be there still: what is read of it is looked at by `current`, whose version is higher. */
static truce_status base_is_there(const struct rebase *rebase, bson_error_t *error)
{
    truce_tree_snapshot base;
    truce_status status = truce__tree_open(rebase->edit->tree, rebase->edit->base, &base, error);

    if (!status && base.master.gone > rebase->edit->base)
        status = truce__fail(TRUCE_EXPIRED, error, "version %" PRId64 " is collected",
                             rebase->edit->base);
    truce__tree_leave(&base);
    return status;
}

static truce_status rebase_all(struct rebase *rebase, bson_error_t *error)
{
    truce_tree_edit *edit = rebase->edit;
    truce_status status =
        truce__tree_own(edit->tree, edit->base + 1, &edit->token, take_own, rebase, error);

    if (!status)
        status = rebase_portion(rebase, error);
    for (uint32_t i = 0; i < rebase->count; i++)
        bson_destroy(rebase->all[i].mine);
    rebase->count = 0;
    if (!status)
        status = base_is_there(rebase, error);
    if (!status && edit->recorded)
        status = truce__tree_renew(edit->tree, &edit->token, error); /* T8 */
    if (!status && rebase->conflicts)
        status = truce__fail(TRUCE_CONFLICT, error,
                             "%u item%s cannot be merged with version %" PRId64 " of tree \"%s\"",
                             rebase->conflicts, rebase->conflicts == 1 ? "" : "s",
                             rebase->current.version, edit->tree->name);
    if (!status)
        status = truce_tree_flush(rebase->fresh, error);
    return status;
}

static void swap(truce_tree_edit *edit, truce_tree_edit *fresh)
{
    truce_tree_edit before = *edit;

    *edit = *fresh;
    *fresh = before;
}

static truce_status check_edit(truce_tree_edit *edit, const struct tree_master *master,
                               bson_error_t *error)
{
    bool published = edit->published;
    truce_status status = TRUCE_OK;

    if (!bson_oid_equal(&master->born, &edit->born))
        return truce__fail(TRUCE_NOT_FOUND, error,
                           "tree \"%s\" is another one than that which was edited",
                           edit->tree->name);
    if (!published)
        status = truce__tree_published(edit, master, &published, error);
    if (!status && published)
        status = truce__fail(TRUCE_INVALID, error, "the edit was published");
    return status;
}

truce_status truce_tree_rebase(truce_tree_edit *edit, const truce_tree_rebase_options *options,
                               uint32_t *conflicts, bson_error_t *error)
{
    DEADLINE_SCOPE(edit->tree->deadline_ms);
    static const truce_tree_rebase_options nothing;
    struct rebase *rebase;
    struct merge_rules *rules = NULL;
    struct tree_master master = {0};
    truce_status status = ROOM_CHECK(options, "truce_tree_rebase_options", error);

    if (conflicts)
        *conflicts = 0;
    if (!status && options &&
        (options->prefer < TRUCE_TREE_ASK || options->prefer > TRUCE_TREE_THEIRS))
        status = truce__fail(TRUCE_INVALID, error, "there is no such preference");
    if (!status && options)
        status = truce__check_optional(options->rules, "rules", error);
    if (!status && options && options->rules)
        status = truce__merge_rules_new(options->rules, &rules, error);
    if (!status)
        status = truce_tree_flush(edit, error);
    if (!status)
        status = truce__tree_master(edit->tree, &master, error);
    if (!status)
        status = check_edit(edit, &master, error);
    if (status) {
        truce__merge_rules_free(rules);
        truce__tree_master_release(&master);
        return status;
    }
    rebase = bson_malloc0(sizeof *rebase);
    rebase->edit = edit;
    rebase->options = options ? options : &nothing;
    rebase->rules = rules;
    rebase->fresh =
        truce__tree_edit_new(edit->tree, &master, master.current, edit->message, edit->author);
    rebase->current =
        (truce_tree_snapshot){.tree = edit->tree, .version = master.current, .master = master};
    status = rebase_all(rebase, error);
    if (conflicts)
        *conflicts = rebase->conflicts;
    if (!status)
        swap(edit, rebase->fresh);
    (void)!truce_tree_abandon(rebase->fresh, NULL); /* the one that is not gone on with */
    truce__tree_leave(&rebase->current);
    truce_tree_edit_free(rebase->fresh);
    truce__merge_rules_free(rules);
    bson_free(rebase);
    return status;
}

/* ---- revert ----------------------------------------------------------------------------------- */

struct reverting {
    truce_tree_edit *edit;
    truce_status status;
    bson_error_t *error;
};

static bool revert_item(const truce_tree_change *change, void *arg)
{
    struct reverting *reverting = arg;

    reverting->status = change->after
                            ? truce_tree_put(reverting->edit, change->after, reverting->error)
                            : truce_tree_remove(reverting->edit, change->item, reverting->error);
    return !reverting->status;
}

truce_status truce_tree_revert(truce_tree_edit *edit, int64_t version, bson_error_t *error)
{
    struct reverting reverting = {edit, TRUCE_OK, error};
    truce_status status =
        truce_tree_diff(edit->tree, edit->base, version, revert_item, &reverting, error);

    return status ? status : reverting.status;
}
