/*
 * Branches: a tree that began as a version of another tree, its origin, and merges between the two
 * (TR10 of tree.c).
 *
 *     truce_trees  {_id: "draft", ..., from: {tree: "site", born, root, theirs: 5, ours: 1,
 *                                             pulled: false, merges: 1}}
 *
 * The common base is the version `ours` of the branch or, if the last merge went from the origin
 * into the branch, the version `theirs` of the origin. A document of `truce_tree_holds` with the
 * number of the merge holds it:
 *
 *     {_id, tree: "draft", version: 1, branch: "draft", merge: 1,
 *      until?: a day after the merge began, ms: a day}
 *
 * The commit of the merge removes `until`, and fails if the hold is gone. So the hold of an
 * interrupted merge expires, and the hold of a completed one lasts as long as its version is the
 * common base.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/object_id.h"
#include "base/reserved_fields.h"
#include "merge/merge.h"
#include "patterns/tree/tree.h"
#include "query/input_check.h"
#include "store/reserved_names.h"

/* The number of items that are read at once, whatever their sizes. */
#define PORTION 50

/* ---- the origin ------------------------------------------------------------------------------ */

/* Reads the field `from` of a master. A tree that is not a branch has none: `from` is then all
 * zeros. */
static truce_status branch_parse(const truce_tree *tree, const bson_t *master,
                                 struct tree_from *from, bson_error_t *error)
{
    bson_t given;
    bson_iter_t iter;

    *from = (struct tree_from){.merges = 0};
    if (!truce__value_subdocument(master, "from", &given))
        return TRUCE_OK;
    if (strlen(truce__field_text(&given, "tree")) > TREE_NAME_MAX ||
        strlen(truce__field_text(&given, "root")) > TREE_NAME_MAX ||
        !bson_iter_init_find(&iter, &given, "born") || !BSON_ITER_HOLDS_OID(&iter))
        return truce__fail(TRUCE_INVALID, error, "%s {_id: \"%s\"} is not a valid tree document",
                           TREES, tree->name);
    bson_oid_copy(bson_iter_oid(&iter), &from->born);
    memcpy(from->tree, truce__field_text(&given, "tree"),
           strlen(truce__field_text(&given, "tree")));
    memcpy(from->root, truce__field_text(&given, "root"),
           strlen(truce__field_text(&given, "root")));
    from->theirs = truce__field_count(&given, "theirs");
    from->ours = truce__field_count(&given, "ours");
    from->pulled = bson_iter_init_find(&iter, &given, "pulled");
    from->merges = truce__field_count(&given, "merges");
    return TRUCE_OK;
}

static bson_t *branch_make_update(const struct tree_from *from)
{
    bson_t *update = bson_new(), set, given;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    BSON_APPEND_DOCUMENT_BEGIN(&set, "from", &given);
    BCON_APPEND(&given, "tree", BCON_UTF8(from->tree), "born", BCON_OID(&from->born), "root",
                BCON_UTF8(from->root), "theirs", BCON_INT64(from->theirs), "ours",
                BCON_INT64(from->ours), "merges", BCON_INT64(from->merges));
    if (from->pulled)
        BSON_APPEND_BOOL(&given, "pulled", true);
    bson_append_document_end(&set, &given);
    bson_append_document_end(update, &set);
    return update;
}

truce_status truce__tree_from(truce_tree *tree, struct tree_from *from, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(tree->name)), found;
    truce_status status = truce_find_one(tree->store, TREES, filter, NULL, &found, error);

    *from = (struct tree_from){.merges = 0};
    if (status == TRUCE_NOT_FOUND)
        (void)truce__fail(status, error, "the tree \"%s\" does not exist", tree->name);
    if (!status)
        status = branch_parse(tree, &found, from, error);
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* ---- the hold of the common base ------------------------------------------------------------- */

truce_status truce__tree_release_common(truce_tree *branch, int64_t merge, bson_error_t *error)
{
    truce_write_options options = {.multi = true, .relaxed = truce__tree_relaxed(branch)};
    bson_t *filter =
        BCON_NEW("branch", BCON_UTF8(branch->name), "merge", "{", "$lt", BCON_INT64(merge), "}");
    struct worker worker;
    truce_status status;

    truce__intent_append_absent(filter);
    truce__worker_init(&worker, branch->store, branch->deadline_ms);
    do
        status = truce_remove(branch->store, TREE_HOLDS, filter, &options, NULL, error);
    while (truce__worker_repeats(&worker, status, "the store"));
    bson_destroy(filter);
    return status;
}

/* Holds the new common base for a day, because the merge may fail. In a merge, the caller has a
 * reader's hold of the same version; the first version of a new branch is not published yet. */
static truce_status tree_hold_common(const truce_tree *tree, int64_t version,
                                     struct tree_joint *joint, bson_error_t *error)
{
    const truce_tree *branch = joint->branch;
    int64_t merge = joint->from->merges;
    struct worker worker;
    bson_t *document;
    truce_status status;

    truce__id_new(&joint->hold);
    document = BCON_NEW(
        "_id", BCON_OID(&joint->hold), "tree", BCON_UTF8(tree->name), "version",
        BCON_INT64(version), "branch", BCON_UTF8(branch->name), "merge", BCON_INT64(merge), "until",
        BCON_DATE_TIME(truce__clock_wall_ms() + TREE_EDIT_MS), "ms", BCON_INT64(TREE_EDIT_MS));
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    do
        status = truce_insert(tree->store, TREE_HOLDS, document, NULL, error);
    while (truce__worker_repeats(&worker, status, "the store"));
    bson_destroy(document);
    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

/* ---- items erased concurrently --------------------------------------------------------------- */

static void branch_append_ids(bson_t *filter, const struct tree_ids *ids, size_t at)
{
    bson_t inner, array;
    uint32_t index = 0;

    BSON_APPEND_DOCUMENT_BEGIN(filter, "itemId", &inner);
    BSON_APPEND_ARRAY_BEGIN(&inner, "$in", &array);
    for (size_t i = at; i < ids->count && i < at + PORTION; i++)
        truce__value_append_element(&array, &index, ids->all[i]);
    bson_append_array_end(&inner, &array);
    bson_append_document_end(filter, &inner);
}

/* Erases items in the target that were erased at the source after the merge read them, while the
 * target was not yet visible to erase. */
static truce_status tree_erase_again(truce_tree *source, truce_tree *target,
                                     const struct tree_ids *ids, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t at = 0; !status && at < ids->count; at += PORTION) {
        truce_cursor *cursor = NULL;
        const bson_t *document;
        int64_t versions;
        bson_t filter;

        truce__tree_filter(source, &filter);
        branch_append_ids(&filter, ids, at);
        BCON_APPEND(&filter, "erased", BCON_BOOL(true));
        status = truce_find(source->store, source->collection, &filter, NULL, &cursor, error);
        while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document)
            status = truce__tree_erase(target, truce__tree_item_id(document), &versions, error);
        truce_cursor_close(cursor);
        bson_destroy(&filter);
    }
    return status;
}

/* ---- the commit ------------------------------------------------------------------------------ */

static truce_status branch_read_master(truce_commit *commit, const truce_tree *tree, bson_t *master,
                                       bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER;
    bson_value_t id;
    truce_status status;

    BSON_APPEND_UTF8(&holder, "_id", tree->name);
    id = truce__document_id(&holder);
    status = truce_commit_read(commit, TREES, &id, master, error);
    bson_destroy(&holder);
    return status == TRUCE_NOT_FOUND
               ? truce__fail(TRUCE_REFUSED, error, "tree \"%s\" was dropped", tree->name)
               : status;
}

/* Writes the state of the branch after a merge, in its commit. Fails with REFUSED if another merge
 * was faster. */
static truce_status write_from(truce_commit *commit, const struct tree_joint *joint,
                               bson_error_t *error)
{
    bson_t master, holder = BSON_INITIALIZER, *update;
    struct tree_from stored;
    bson_value_t id;
    truce_status status = branch_read_master(commit, joint->branch, &master, error);

    if (!status)
        status = branch_parse(joint->branch, &master, &stored, error);
    if (!status && stored.merges != joint->from->merges - 1)
        status = truce__fail(TRUCE_REFUSED, error,
                             "another process merged tree \"%s\" concurrently: merge again",
                             joint->branch->name);
    if (!status) {
        BSON_APPEND_UTF8(&holder, "_id", joint->branch->name);
        id = truce__document_id(&holder);
        update = branch_make_update(joint->from);
        status = truce_commit_update(commit, TREES, &id, NULL, update, error);
        bson_destroy(update);
    }
    bson_destroy(&holder);
    bson_destroy(&master);
    return status;
}

/* Keeps the hold of a merge permanently. Returns TRUCE_REFUSED if the day had passed, and a sweep
 * removed the hold. */
static truce_status branch_make_hold_permanent(truce_commit *commit, const struct tree_joint *joint,
                                               bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER, hold,
           *update = BCON_NEW("$unset", "{", "until", BCON_BOOL(true), "}");
    bson_value_t id;
    truce_status status;

    BSON_APPEND_OID(&holder, "_id", &joint->hold);
    id = truce__document_id(&holder);
    status = truce_commit_read(commit, TREE_HOLDS, &id, &hold, error);
    if (status == TRUCE_NOT_FOUND)
        status = truce__fail(TRUCE_REFUSED, error,
                             "the merge was paused for more than a day; merge again");
    if (!status)
        status = truce_commit_update(commit, TREE_HOLDS, &id, NULL, update, error);
    bson_destroy(update);
    bson_destroy(&hold);
    bson_destroy(&holder);
    return status;
}

/* Publishes the merge in a commit. If no item is put, the merge is the version that was read,
 * whatever was published since. */
static truce_status join_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct tree_joint *joint = arg;
    truce_status status = truce_tree_publish(joint->edit, commit, &joint->published, error);

    if (!status)
        status = write_from(commit, joint, error);
    return status ? status : branch_make_hold_permanent(commit, joint, error);
}

/* Publishes the edit, writes `from`, and makes the hold permanent, in one commit. Returns
 * TRUCE_REFUSED if another process was faster. */
static truce_status tree_join(struct tree_joint *joint, bson_error_t *error)
{
    const truce_tree *tree = joint->edit->tree;
    truce_commit_options options = {.deadline_ms = tree->deadline_ms};
    truce_status status = truce_transact(tree->store, join_in, joint, &options, error);

    return status ? status : truce__tree_release_common(joint->branch, joint->from->merges, error);
}

/* ---- a new branch ---------------------------------------------------------------------------- */

struct branching {
    truce_tree *origin, *branch;
    /* A snapshot of the origin, which holds the version. */
    truce_tree_snapshot *snapshot;
    truce_tree_edit *edit;
    struct tree_ids ids;
    truce_status status;
    bson_error_t *error;
};

/* Copies an item into the edit of the branch (a truce_tree_function). */
static bool copy_item(const bson_t *item, void *arg)
{
    struct branching *branching = arg;

    branching->status = truce_tree_put(branching->edit, item, branching->error);
    truce__tree_ids_add(&branching->ids, truce__tree_item_id(item));
    return !branching->status;
}

static truce_status begin_branch(struct branching *branching, bson_error_t *error)
{
    char message[TREE_NAME_MAX + 64];
    truce_tree_edit_options options = {.message = message};
    struct tree_from from;
    truce_status status;

    snprintf(message, sizeof message, "branch of %s, version %" PRId64, branching->origin->name,
             branching->snapshot->version);
    status = truce_tree_begin(branching->branch, &options, &branching->edit, error);
    if (!status)
        status = truce__tree_from(branching->branch, &from, error);
    if (!status && (branching->edit->base || from.merges))
        status = truce__fail(TRUCE_DUPLICATE, error, "the tree \"%s\" already exists",
                             branching->branch->name);
    return status;
}

static truce_status copy_items(struct branching *branching, bson_error_t *error)
{
    truce_status status =
        truce_tree_find(branching->snapshot, NULL, NULL, copy_item, branching, error);

    return status ? status : branching->status;
}

/* Publishes the copied items as version 1 of the branch, together with `from`. The root is that of
 * the origin, so erase finds all trees of one root. */
static truce_status end_branch(struct branching *branching, bson_error_t *error)
{
    const truce_tree *origin = branching->origin;
    struct tree_from above, from = {.born = branching->snapshot->master.born,
                                    .theirs = branching->snapshot->version,
                                    .ours = branching->ids.count ? 1 : 0,
                                    .merges = 1};
    struct tree_joint joint = {.edit = branching->edit, .branch = branching->branch, .from = &from};
    truce_status status = truce__tree_from(branching->origin, &above, error);

    /* The name fits, because its length was checked. */
    strcpy(from.tree, origin->name);
    strcpy(from.root, *above.root ? above.root : origin->name);
    if (!status)
        status = tree_hold_common(branching->branch, from.ours, &joint, error);
    if (!status)
        status = tree_join(&joint, error);
    return status == TRUCE_REFUSED
               ? truce__fail(TRUCE_DUPLICATE, error, "the tree \"%s\" already exists",
                             branching->branch->name)
               : status;
}

static truce_status branch_off(struct branching *branching, bson_error_t *error)
{
    truce_status status = begin_branch(branching, error);

    if (!status)
        status = copy_items(branching, error);
    if (!status)
        status = end_branch(branching, error);
    if (!status)
        status = tree_erase_again(branching->origin, branching->branch, &branching->ids, error);
    if (status && branching->edit)
        (void)!truce_tree_abandon(branching->edit, NULL);
    return status;
}

truce_status truce_tree_branch(truce_tree *tree, const truce_tree_at *at, const char *name,
                               bson_error_t *error)
{
    DEADLINE_SCOPE(tree->deadline_ms);
    struct branching branching = {.origin = tree, .error = error};
    truce_tree_at held = at ? *at : (truce_tree_at){0};
    truce_status status = ROOM_CHECK(at, "truce_tree_at", error);

    held.hold = true;
    if (!status && !name)
        status = truce__fail(TRUCE_INVALID, error, "the name of the branch is missing");
    if (!status)
        status = truce_tree_open(tree, &held, &branching.snapshot, error);
    if (!status) {
        branching.branch =
            truce_tree_new(tree->store, &(truce_tree_options){.collection = tree->collection,
                                                              .name = name,
                                                              .parent = tree->parent,
                                                              .deadline_ms = tree->deadline_ms});
        status = branch_off(&branching, error);
    }
    truce__tree_ids_release(&branching.ids);
    truce_tree_edit_free(branching.edit);
    truce_tree_free(branching.branch);
    truce_tree_close(branching.snapshot);
    return status;
}

/* ---- tree merge ------------------------------------------------------------------------------ */

/*
 * Merges of single items, of an edit into another version (rebase and revert), and of a branch with
 * its origin.
 *
 * A three-way merge of an item combines the incoming and the current item, based on their common
 * base. The incoming side is an edit that is rebased, or the other tree.
 */

/* Checks the options, which are borrowed. Call the end function even after a failure. */
static truce_status tree_merging_begin(struct tree_merging *merging,
                                       const truce_tree_rebase_options *options,
                                       bson_error_t *error)
{
    static const truce_tree_rebase_options nothing;
    truce_status status = ROOM_CHECK(options, "truce_tree_rebase_options", error);

    *merging = (struct tree_merging){.options = options ? options : &nothing};
    if (!status && options &&
        (options->prefer < TRUCE_TREE_ASK || options->prefer > TRUCE_TREE_THEIRS))
        status = truce__fail(
            TRUCE_INVALID, error,
            "unknown value %d of `prefer`: expected TRUCE_TREE_ASK, TRUCE_TREE_MINE, or "
            "TRUCE_TREE_THEIRS",
            (int)options->prefer);
    if (!status && options)
        status = truce__check_optional(options->rules, "rules", error);
    if (!status && options && options->rules)
        status = truce__merge_rules_new(options->rules, &merging->rules, error);
    return status;
}

static void tree_merging_end(struct tree_merging *merging)
{
    truce__merge_rules_free(merging->rules);
    merging->rules = NULL;
}

/* ---- contents -------------------------------------------------------------------------------- */

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

/* ---- a conflict ------------------------------------------------------------------------------ */

/* Appends the user's fields; {} for a missing item. */
static void merge_content(const bson_t *kept, bson_t *item)
{
    bson_t shown = BSON_INITIALIZER;

    bson_init(item);
    if (kept)
        truce__tree_show(kept, &shown);
    bson_copy_to_excluding_noinit(&shown, item, "version", NULL);
    bson_destroy(&shown);
}

/* Reports a conflict of an item to the caller. */
static void merge_report(struct tree_merging *merging, const struct tree_three_way *item,
                         const bson_t *paths)
{
    truce_tree_conflict conflict = {.paths = paths};
    const bson_t *mine = merging->foreign ? item->current : item->incoming,
                 *theirs = merging->foreign ? item->incoming : item->current,
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

/* Returns whether the incoming side wins, by default or by choice. */
static bool merging_takes_incoming(const struct tree_merging *merging)
{
    return merging->options->prefer == (merging->foreign ? TRUCE_TREE_THEIRS : TRUCE_TREE_MINE);
}

/* Handles an item that cannot be merged. */
static truce_status merge_conflict(struct tree_merging *merging, const struct tree_three_way *item,
                                   bson_error_t *error)
{
    bson_t all = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    if (merging_takes_incoming(merging))
        status = put_incoming(merging, item, error);
    else if (merging->options->prefer == TRUCE_TREE_ASK)
        merge_report(merging, item, &all);
    bson_destroy(&all);
    return status;
}

/* ---- a merge --------------------------------------------------------------------------------- */

/* Merges an item that both sides have, and puts the result into the edit or reports the
 * conflict. */
static truce_status tree_merge_item(struct tree_merging *merging, const struct tree_three_way *item,
                                    bson_error_t *error)
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
    merge_content(merging->foreign ? item->current : item->incoming, &mine);
    merge_content(merging->foreign ? item->incoming : item->current, &theirs);
    status = truce__merge(truce__value_document(&base), truce__value_document(&mine),
                          truce__value_document(&theirs), &options, &merged, &conflicts, error);
    if (!status && !bson_empty(&conflicts) && merging->options->prefer == TRUCE_TREE_ASK)
        merge_report(merging, item, &conflicts);
    else if (!status && !bson_equal(&merged, merging->foreign ? &mine : &theirs))
        status = truce_tree_put(merging->fresh, &merged, error);
    bson_destroy(&conflicts);
    bson_destroy(&merged);
    bson_destroy(&theirs);
    bson_destroy(&mine);
    bson_destroy(&base);
    return status;
}

/* Puts the merged item if it differs from the current one, or counts and reports a conflict. */
static truce_status truce__tree_merge(struct tree_merging *merging,
                                      const struct tree_three_way *item, bson_error_t *error)
{
    if (truce__tree_same(item->base, item->current))
        return put_incoming(merging, item, error);
    if (truce__tree_same(item->incoming, item->current) ||
        truce__tree_same(item->incoming, item->base))
        return TRUCE_OK;
    return item->incoming && item->current ? tree_merge_item(merging, item, error)
                                           : merge_conflict(merging, item, error);
}

/* ---- rebase and revert ----------------------------------------------------------------------- */

/* Rebase and revert move an edit to another version. */

/* The number of items of an edit that are merged at once. */
#define REBASE_ITEMS 200

struct rebase {
    /* The edit that is moved. `merging.fresh` is the new edit. */
    truce_tree_edit *edit;
    struct tree_merging merging;
    /* A snapshot of the current version, through which the base is read, too. */
    truce_tree_snapshot current;
    uint32_t count;
    /* The total size of the edit's items in this portion in bytes. */
    size_t bytes;
    /* The items of this portion as the edit wrote them. Owned. */
    bson_t *own[REBASE_ITEMS];
    /* The three versions of each of these items. */
    struct tree_three_way all[REBASE_ITEMS];
};

/* ---- one portion ----------------------------------------------------------------------------- */

static void forget_pairs(struct rebase *rebase)
{
    for (uint32_t i = 0; i < rebase->count; i++) {
        struct tree_three_way *item = &rebase->all[i];

        if (item->base)
            bson_destroy(item->base);
        if (item->current)
            bson_destroy(item->current);
        item->base = item->current = NULL;
    }
}

/* Keeps an item of the edit as its base (`low`) and the current version (`high`) have it (a
 * tree_pair_function). */
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
        item->current = high ? bson_copy(high) : NULL;
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

/* Reads the base and the current version of the items in the portion, merges them, and empties the
 * portion. Repeats the read if versions were collected during it. */
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

/* Adds an item of the edit to the portion, and rebases the portion once it is full (a
 * tree_own_function). */
static truce_status rebase_take_own(const bson_t *document, void *arg, bson_error_t *error)
{
    struct rebase *rebase = arg;

    bson_t *own = bson_copy(document);

    rebase->all[rebase->count] = (struct tree_three_way){
        .id = truce__tree_item_id(own), .incoming = truce__tree_absent(own) ? NULL : own};
    rebase->own[rebase->count++] = own;
    rebase->bytes += document->len;
    return rebase->count == REBASE_ITEMS || rebase->bytes > TREE_BATCH_BYTES
               ? rebase_portion(rebase, error)
               : TRUCE_OK;
}

/* ---- all portions ---------------------------------------------------------------------------- */

/* Checks that the base still exists. `current`, whose version is higher, verifies what is read of
 * it. */
static truce_status base_is_there(const struct rebase *rebase, bson_error_t *error)
{
    truce_tree_snapshot base;
    truce_status status = truce__tree_open(rebase->edit->tree, rebase->edit->base, &base, error);

    if (!status && base.master.gone > rebase->edit->base)
        status = truce__fail(TRUCE_EXPIRED, error,
                             "version %" PRId64
                             " was collected, so the edit cannot be rebased: begin another edit",
                             rebase->edit->base);
    truce__tree_leave(&base);
    return status;
}

/* Merges all items of the edit into the new one. Returns TRUCE_CONFLICT if items could not be
 * merged, after all conflicts were reported. */
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
        /* The record is renewed after its items were read (TR8). */
        status = truce__tree_renew(edit->tree, &edit->token, &edit->renewed_ms, error);
    if (!status && rebase->merging.conflicts)
        status = truce__fail(TRUCE_CONFLICT, error,
                             "%u item%s cannot be merged with version %" PRId64 " of tree \"%s\"",
                             rebase->merging.conflicts, rebase->merging.conflicts == 1 ? "" : "s",
                             rebase->current.version, edit->tree->name);
    if (!status)
        status = truce_tree_flush(rebase->merging.fresh, error);
    return status;
}

static void branch_swap_edits(truce_tree_edit *edit, truce_tree_edit *fresh)
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
        return truce__fail(
            TRUCE_NOT_FOUND, error,
            "tree \"%s\" was dropped and created again since the edit began: begin the edit again",
            edit->tree->name);
    if (!published)
        status = truce__tree_published(edit, master, &published, error);
    if (!status && published)
        status =
            truce__fail(TRUCE_INVALID, error, "the edit was already published: begin another one");
    return status;
}

truce_status truce_tree_rebase(truce_tree_edit *edit, const truce_tree_rebase_options *options,
                               uint32_t *conflicts, bson_error_t *error)
{
    DEADLINE_SCOPE(edit->tree->deadline_ms);
    struct rebase *rebase;
    struct tree_merging merging;
    struct tree_master master = {0};
    truce_status status = tree_merging_begin(&merging, options, error);

    if (conflicts)
        *conflicts = 0;
    if (!status)
        status = truce_tree_flush(edit, error);
    if (!status)
        status = truce__tree_master(edit->tree, &master, error);
    if (!status)
        status = check_edit(edit, &master, error);
    if (status) {
        tree_merging_end(&merging);
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
    rebase->merging.fresh->since_given = edit->since_given;
    rebase->current =
        (truce_tree_snapshot){.tree = edit->tree, .version = master.current, .master = master};
    status = rebase_all(rebase, error);
    /* The id was published already, so the edit stays as it is. Publishing reports the version. */
    if (status == TRUCE_CONFLICT && truce__tree_id_published(edit)) {
        rebase->merging.conflicts = 0;
        status = TRUCE_OK;
    } else if (!status) {
        branch_swap_edits(edit, rebase->merging.fresh);
    }
    if (conflicts)
        *conflicts = rebase->merging.conflicts;
    /* The edit that does not continue is abandoned. */
    (void)!truce_tree_abandon(rebase->merging.fresh, NULL);
    truce__tree_leave(&rebase->current);
    truce_tree_edit_free(rebase->merging.fresh);
    tree_merging_end(&rebase->merging);
    bson_free(rebase);
    return status;
}

/* ---- revert ---------------------------------------------------------------------------------- */

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

/* ---- merges of branches ---------------------------------------------------------------------- */

/* Merges of a branch with its origin (TR10 of tree.c). */

/* The number of items that are read at once, whatever their sizes. */
#define MERGE_BATCH_ITEMS 50

/* ---- versions -------------------------------------------------------------------------------- */

struct joining {
    /* The tree that receives the merge, the tree whose changes are merged, and the one of the two
     * that is the branch. */
    truce_tree *target, *source, *branch;
    /* The state of the branch, from its master. */
    struct tree_from from;
    const truce_tree_merge_options *options;
    /* A snapshot of the source, which holds the version. */
    truce_tree_snapshot *incoming;
    truce_tree_snapshot base, current;
    struct tree_merging merging;
    struct tree_ids ids;
    bool differs;
    truce_tree_published published;
};

static truce_status joining_find_branch(struct joining *joining, bson_error_t *error)
{
    struct tree_from *from = &joining->from;
    truce_status status = truce__tree_from(joining->target, from, error);

    joining->branch = joining->target;
    if (!status && strcmp(from->tree, joining->source->name)) {
        joining->branch = joining->source;
        status = truce__tree_from(joining->source, from, error);
        if (!status && strcmp(from->tree, joining->target->name))
            status = truce__fail(TRUCE_INVALID, error,
                                 "neither of the trees \"%s\" and \"%s\" is a branch of the other",
                                 joining->target->name, joining->source->name);
    }
    return status;
}

static bool joining_is_pull(const struct joining *joining)
{
    return joining->branch == joining->target;
}

static truce_tree *join_origin_of(const struct joining *joining)
{
    return joining_is_pull(joining) ? joining->source : joining->target;
}

/* Opens the common base, a version of the origin or of the branch. */
static truce_status open_base(struct joining *joining, bson_error_t *error)
{
    const struct tree_from *from = &joining->from;

    return from->pulled
               ? truce__tree_open(join_origin_of(joining), from->theirs, &joining->base, error)
               : truce__tree_open(joining->branch, from->ours, &joining->base, error);
}

static truce_status check_origin(const struct joining *joining, bson_error_t *error)
{
    const truce_tree_snapshot *of =
        joining_is_pull(joining) ? joining->incoming : &joining->current;

    return bson_oid_equal(&of->master.born, &joining->from.born)
               ? TRUCE_OK
               : truce__fail(
                     TRUCE_NOT_FOUND, error,
                     "tree \"%s\" was dropped and created again, so \"%s\" is not its branch",
                     of->tree->name, joining->branch->name);
}

/* Opens the three versions of a merge: the source with a hold, the target through a new edit, and
 * the common base. The caller closes what was opened, also after a failure. */
static truce_status open_versions(struct joining *joining, bson_error_t *error)
{
    truce_tree_at now = {.hold = true};
    char message[TREE_NAME_MAX + 64];
    truce_tree_edit_options options = {.message = joining->options->message,
                                       .author = joining->options->author};
    truce_status status = truce_tree_open(joining->source, &now, &joining->incoming, error);

    if (status)
        return status;
    snprintf(message, sizeof message, "merge of %s, version %" PRId64, joining->source->name,
             joining->incoming->version);
    if (!options.message)
        options.message = message;
    status = truce_tree_begin(joining->target, &options, &joining->merging.fresh, error);
    if (!status)
        status = truce__tree_open(joining->target, joining->merging.fresh->base, &joining->current,
                                  error);
    if (!status)
        status = check_origin(joining, error);
    return status ? status : open_base(joining, error);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* The items of one version in a portion. */
struct gathering {
    struct tree_three_way *items;
    size_t count;
    /* The offset of the member of struct tree_three_way that is filled. */
    size_t which;
};

static bson_t **join_document_of(struct tree_three_way *item, size_t which)
{
    return (bson_t **)((char *)item + which);
}

/* Keeps an item as the version has it (`high`), in the gathering's field (a tree_pair_function). */
static truce_status join_take(struct value id, const bson_t *low, const bson_t *high, void *arg,
                              bson_error_t *error)
{
    struct gathering *gathering = arg;

    (void)low, (void)error;
    for (size_t i = 0; i < gathering->count; i++) {
        if (high && truce__value_equal(gathering->items[i].id, id))
            *join_document_of(&gathering->items[i], gathering->which) = bson_copy(high);
    }
    return TRUCE_OK;
}

static void join_forget(struct gathering *gathering)
{
    for (size_t i = 0; i < gathering->count; i++) {
        bson_t **document = join_document_of(&gathering->items[i], gathering->which);

        if (*document)
            bson_destroy(*document);
        *document = NULL;
    }
}

static truce_status join_gather(struct gathering *gathering, truce_tree_snapshot *snapshot,
                                const bson_t *ids, bson_error_t *error)
{
    truce_status status;

    do {
        join_forget(gathering);
        status =
            truce__tree_pairs(snapshot, 0, snapshot->version, ids, join_take, gathering, error);
        if (!status)
            status = truce__tree_still(snapshot, error);
    } while (status == TRUCE_CONFLICT);
    return status;
}

/* Reads the three versions of some items, and merges those that the incoming tree has changed. */
static truce_status merge_portion(struct joining *joining, const struct value *ids, size_t count,
                                  bson_error_t *error)
{
    struct tree_three_way items[MERGE_BATCH_ITEMS] = {0};
    struct gathering base = {items, count, offsetof(struct tree_three_way, base)},
                     incoming = {items, count, offsetof(struct tree_three_way, incoming)},
                     current = {items, count, offsetof(struct tree_three_way, current)};
    bson_t array = BSON_INITIALIZER;
    uint32_t index = 0;
    truce_status status;

    for (size_t i = 0; i < count; i++) {
        items[i].id = ids[i];
        truce__value_append_element(&array, &index, ids[i]);
    }
    status = join_gather(&base, &joining->base, &array, error);
    if (!status)
        status = join_gather(&incoming, joining->incoming, &array, error);
    if (!status)
        status = join_gather(&current, &joining->current, &array, error);
    for (size_t i = 0; !status && i < count; i++) {
        if (truce__tree_same(items[i].base, items[i].incoming))
            continue;
        joining->differs = true;
        status = truce__tree_merge(&joining->merging, &items[i], error);
    }
    join_forget(&base);
    join_forget(&incoming);
    join_forget(&current);
    bson_destroy(&array);
    return status;
}

/* Finds the items that the source wrote since the base. If the base belongs to the other tree,
 * finds all items. */
static truce_status find_ids(struct joining *joining, bson_error_t *error)
{
    bool own = joining->base.tree == joining->source;
    truce_status status = truce__tree_ids_between(joining->source, own ? joining->base.version : 0,
                                                  joining->incoming->version, &joining->ids, error);

    return status || own ? status
                         : truce__tree_ids_between(joining->base.tree, 0, joining->base.version,
                                                   &joining->ids, error);
}

static truce_status join_merge_items(struct joining *joining, bson_error_t *error)
{
    truce_status status = find_ids(joining, error);
    uint32_t conflicts;

    for (size_t at = 0; !status && at < joining->ids.count; at += MERGE_BATCH_ITEMS)
        status = merge_portion(joining, joining->ids.all + at,
                               joining->ids.count - at < MERGE_BATCH_ITEMS ? joining->ids.count - at
                                                                           : MERGE_BATCH_ITEMS,
                               error);
    conflicts = joining->merging.conflicts;
    if (!status && conflicts)
        status = truce__fail(
            TRUCE_CONFLICT, error, "%u item%s of tree \"%s\" cannot be merged into tree \"%s\"",
            conflicts, conflicts == 1 ? "" : "s", joining->source->name, joining->target->name);
    return status;
}

/* ---- the merge ------------------------------------------------------------------------------- */

/* Publishes the merge, with the new state of the branch: the merged version of the source becomes
 * the common base. */
static truce_status join_publish(struct joining *joining, bson_error_t *error)
{
    struct tree_from from = joining->from;
    struct tree_joint joint = {
        .edit = joining->merging.fresh, .branch = joining->branch, .from = &from};
    truce_status status;

    from.merges++;
    from.pulled = joining_is_pull(joining);
    if (from.pulled)
        from.theirs = joining->incoming->version;
    else
        from.ours = joining->incoming->version;
    status = tree_hold_common(joining->source, joining->incoming->version, &joint, error);
    if (!status)
        status = tree_join(&joint, error);
    joining->published = joint.published;
    return status ? status
                  : tree_erase_again(joining->source, joining->target, &joining->ids, error);
}

/* Returns whether one of the trees has new versions, after a read found collected items. */
static bool trees_have_advanced(struct joining *joining)
{
    struct tree_from now;
    struct tree_master target = {0}, source = {0};
    bool there = !truce__tree_from(joining->branch, &now, NULL) &&
                 !truce__tree_master(joining->target, &target, NULL) &&
                 !truce__tree_master(joining->source, &source, NULL);
    bool went = there &&
                (now.merges != joining->from.merges || target.current != joining->current.version ||
                 source.current != joining->incoming->version);

    truce__tree_master_release(&source);
    truce__tree_master_release(&target);
    return went;
}

/* Tries the merge once. Returns TRUCE_REFUSED if another process was faster. */
static truce_status merge_once(struct joining *joining, bson_error_t *error)
{
    truce_status status = joining_find_branch(joining, error);

    joining->differs = false;
    joining->base = joining->current = (truce_tree_snapshot){0};
    if (!status)
        status = open_versions(joining, error);
    if (!status)
        status = join_merge_items(joining, error);
    if (!status) {
        joining->published =
            (truce_tree_published){.version = joining->merging.fresh->base, .nothing = true};
        if (joining->differs)
            status = join_publish(joining, error);
    }
    if (status == TRUCE_EXPIRED && joining->incoming && trees_have_advanced(joining))
        status = TRUCE_REFUSED;
    if (status && joining->merging.fresh)
        (void)!truce_tree_abandon(joining->merging.fresh, NULL);
    truce__tree_leave(&joining->base);
    truce__tree_leave(&joining->current);
    truce_tree_close(joining->incoming);
    joining->incoming = NULL;
    truce__tree_ids_release(&joining->ids);
    truce_tree_edit_free(joining->merging.fresh);
    joining->merging.fresh = NULL;
    return status;
}

static truce_status join_merge(struct joining *joining, bson_error_t *error)
{
    struct worker worker;
    bson_error_t why;
    truce_status status;

    truce__worker_init(&worker, joining->target->store, joining->target->deadline_ms);
    while ((status = merge_once(joining, &why)) == TRUCE_REFUSED) {
        status = truce__worker_wait(&worker, "the master", &why);
        if (status)
            break;
    }
    if (status && error)
        *error = why;
    return status;
}

truce_status truce_tree_merge(truce_tree *tree, const char *other,
                              const truce_tree_merge_options *options,
                              truce_tree_published *published, uint32_t *conflicts,
                              bson_error_t *error)
{
    DEADLINE_SCOPE(tree->deadline_ms);
    static const truce_tree_merge_options nothing;
    struct joining joining = {.target = tree, .options = options ? options : &nothing};
    truce_status status = ROOM_CHECK(options, "truce_tree_merge_options", error);

    if (!status && !other)
        status = truce__fail(TRUCE_INVALID, error, "the name of the other tree is missing");
    joining.source =
        truce_tree_new(tree->store, &(truce_tree_options){.name = other ? other : "",
                                                          .deadline_ms = tree->deadline_ms});
    if (!status)
        status = tree_merging_begin(&joining.merging, &joining.options->how, error);
    joining.merging.foreign = true;
    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (!status)
        status = truce__tree_ready(joining.source, false, error);
    if (!status)
        status = join_merge(&joining, error);
    tree_merging_end(&joining.merging);
    truce_tree_free(joining.source);
    if (published)
        *published = joining.published;
    if (conflicts)
        *conflicts = joining.merging.conflicts;
    return status;
}
