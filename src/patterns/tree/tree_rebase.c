/* An edit as one of another version: rebase, revert. */
#include <string.h>

#include "base/deadline.h"
#include "base/field.h"
#include "patterns/tree/tree.h"
#include "store/reserved.h"

#define PORTION 200 /* items of an edit that are merged at once */

struct rebase {
    truce_tree_edit *edit; /* as it was; as it will be: merging.fresh */
    struct tree_merging merging;
    truce_tree_snapshot current; /* both versions are read by it */
    uint32_t count;
    size_t bytes;                       /* of what the edit wrote of them */
    bson_t *own[PORTION];               /* as the edit wrote them */
    struct tree_three_way all[PORTION]; /* of these */
};

/* ---- a portion of them -------------------------------------------------------------------------- */

static void forget_pairs(struct rebase *rebase)
{
    for (uint32_t i = 0; i < rebase->count; i++) {
        struct tree_three_way *item = &rebase->all[i];

        if (item->base)
            bson_destroy(item->base);
        if (item->standing)
            bson_destroy(item->standing);
        item->base = item->standing = NULL;
    }
}

/* A tree_pair_function. */
static truce_status take_pair(struct value id, const bson_t *low, const bson_t *high, void *arg,
                              bson_error_t *error)
{
    struct rebase *rebase = arg;

    (void)error;
    for (uint32_t i = 0; i < rebase->count; i++) {
        struct tree_three_way *item = &rebase->all[i];

        if (!truce__value_equal(item->id, id))
            continue;
        item->base = low ? bson_copy(low) : NULL;
        item->standing = high ? bson_copy(high) : NULL;
    }
    return TRUCE_OK;
}

static void forget_own(struct rebase *rebase)
{
    for (uint32_t i = 0; i < rebase->count; i++)
        bson_destroy(rebase->own[i]);
    rebase->count = 0;
    rebase->bytes = 0;
}

static truce_status rebase_portion(struct rebase *rebase, bson_error_t *error)
{
    bson_t ids = BSON_INITIALIZER;
    uint32_t index = 0;
    truce_status status;

    for (uint32_t i = 0; i < rebase->count; i++)
        truce__value_append_element(&ids, &index, rebase->all[i].id);
    do {
        forget_pairs(rebase);
        status = truce__tree_pairs(&rebase->current, rebase->edit->base, rebase->current.version,
                                   &ids, take_pair, rebase, error);
        if (!status)
            status = truce__tree_still(&rebase->current, error);
    } while (status == TRUCE_CONFLICT);
    for (uint32_t i = 0; !status && i < rebase->count; i++)
        status = truce__tree_merge(&rebase->merging, &rebase->all[i], error);
    forget_pairs(rebase);
    forget_own(rebase);
    bson_destroy(&ids);
    return status;
}

/* A tree_own_function. */
static truce_status rebase_take_own(const bson_t *document, void *arg, bson_error_t *error)
{
    struct rebase *rebase = arg;

    bson_t *own = bson_copy(document);

    rebase->all[rebase->count] = (struct tree_three_way){
        .id = truce__tree_item_id(own), .incoming = truce__tree_absent(own) ? NULL : own};
    rebase->own[rebase->count++] = own;
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
        truce__tree_own(edit->tree, edit->base + 1, &edit->token, rebase_take_own, rebase, error);

    if (!status)
        status = rebase_portion(rebase, error);
    forget_own(rebase);
    if (!status)
        status = base_is_there(rebase, error);
    if (!status && edit->recorded)
        status = truce__tree_renew(edit->tree, &edit->token, error); /* T8 */
    if (!status && rebase->merging.conflicts)
        status = truce__fail(TRUCE_CONFLICT, error,
                             "%u item%s cannot be merged with version %" PRId64 " of tree \"%s\"",
                             rebase->merging.conflicts, rebase->merging.conflicts == 1 ? "" : "s",
                             rebase->current.version, edit->tree->name);
    if (!status)
        status = truce_tree_flush(rebase->merging.fresh, error);
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
    struct rebase *rebase;
    struct tree_merging merging;
    struct tree_master master = {0};
    truce_status status = truce__tree_merging_begin(&merging, options, error);

    if (conflicts)
        *conflicts = 0;
    if (!status)
        status = truce_tree_flush(edit, error);
    if (!status)
        status = truce__tree_master(edit->tree, &master, error);
    if (!status)
        status = check_edit(edit, &master, error);
    if (status) {
        truce__tree_merging_end(&merging);
        truce__tree_master_release(&master);
        return status;
    }
    rebase = bson_malloc0(sizeof *rebase);
    rebase->edit = edit;
    rebase->merging = merging;
    rebase->merging.fresh =
        truce__tree_edit_new(edit->tree, &master, master.current, edit->message, edit->author);
    rebase->merging.fresh->has_id = edit->has_id;
    rebase->merging.fresh->id = edit->id;
    rebase->merging.fresh->since = edit->since;
    rebase->merging.fresh->since_said = edit->since_said;
    rebase->current =
        (truce_tree_snapshot){.tree = edit->tree, .version = master.current, .master = master};
    status = rebase_all(rebase, error);
    if (status == TRUCE_CONFLICT && truce__tree_exists(edit)) { /* publish will tell which */
        rebase->merging.conflicts = 0;
        status = TRUCE_OK;
    } else if (!status) {
        swap(edit, rebase->merging.fresh);
    }
    if (conflicts)
        *conflicts = rebase->merging.conflicts;
    (void)!truce_tree_abandon(rebase->merging.fresh, NULL); /* the one that is not gone on with */
    truce__tree_leave(&rebase->current);
    truce_tree_edit_free(rebase->merging.fresh);
    truce__tree_merging_end(&rebase->merging);
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
