/*
 * Branches: a tree that began as a version of another one, and what a merge of the two writes (T10 of tree.c).
 *
 *     truce_trees  {_id: "draft", ..., from: {tree: "site", born, root, theirs: 5, ours: 1, pulled: false, merges: 1}}
 *
 * What both had is the version `ours` of the branch, or, when the branch has taken over from its origin last, `theirs` of that. It is held by
 * a document of `truce_tree_holds` with the number of the merge:
 *
 *     {_id, tree: "draft", version: 1, branch: "draft", merge: 1, until?: a day after the merge began}
 *
 * The commit of the merge takes the day off, and is refused where the hold is gone: what was never merged goes by itself, and what was is
 * held for as long as it is what both had.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/id.h"
#include "base/reserved_fields.h"
#include "patterns/tree/tree.h"
#include "query/incoming.h"
#include "store/reserved.h"

#define PORTION 50 /* items looked at at once, of any size */

/* ---- what the master says ---------------------------------------------------------------------- */

static truce_status branch_parse(const truce_tree *tree, const bson_t *master,
                                 struct tree_from *from, bson_error_t *error)
{
    bson_t said;
    bson_iter_t iter;

    *from = (struct tree_from){.merges = 0};
    if (!truce__value_subdocument(master, "from", &said))
        return TRUCE_OK;
    if (strlen(truce__field_text(&said, "tree")) > TREE_NAME_MAX ||
        strlen(truce__field_text(&said, "root")) > TREE_NAME_MAX ||
        !bson_iter_init_find(&iter, &said, "born") || !BSON_ITER_HOLDS_OID(&iter))
        return truce__fail(TRUCE_INVALID, error, "%s {_id: \"%s\"} is no tree of truce's", TREES,
                           tree->name);
    bson_oid_copy(bson_iter_oid(&iter), &from->born);
    memcpy(from->tree, truce__field_text(&said, "tree"), strlen(truce__field_text(&said, "tree")));
    memcpy(from->root, truce__field_text(&said, "root"), strlen(truce__field_text(&said, "root")));
    from->theirs = truce__field_count(&said, "theirs");
    from->ours = truce__field_count(&said, "ours");
    from->pulled = bson_iter_init_find(&iter, &said, "pulled");
    from->merges = truce__field_count(&said, "merges");
    return TRUCE_OK;
}

static bson_t *setting(const struct tree_from *from)
{
    bson_t *update = bson_new(), set, said;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    BSON_APPEND_DOCUMENT_BEGIN(&set, "from", &said);
    BCON_APPEND(&said, "tree", BCON_UTF8(from->tree), "born", BCON_OID(&from->born), "root",
                BCON_UTF8(from->root), "theirs", BCON_INT64(from->theirs), "ours",
                BCON_INT64(from->ours), "merges", BCON_INT64(from->merges));
    if (from->pulled)
        BSON_APPEND_BOOL(&said, "pulled", true);
    bson_append_document_end(&set, &said);
    bson_append_document_end(update, &set);
    return update;
}

truce_status truce__tree_from(truce_tree *tree, struct tree_from *from, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(tree->name)), found;
    truce_status status = truce_find_one(tree->store, TREES, filter, NULL, &found, error);

    *from = (struct tree_from){.merges = 0};
    if (status == TRUCE_NOT_FOUND)
        (void)truce__fail(status, error, "there is no tree \"%s\"", tree->name);
    if (!status)
        status = branch_parse(tree, &found, from, error);
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* ---- the hold of what both had ------------------------------------------------------------------ */

truce_status truce__tree_let_go_common(truce_tree *branch, int64_t merge, bson_error_t *error)
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
    while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(filter);
    return status;
}

truce_status truce__tree_hold_common(const truce_tree *tree, int64_t version,
                                     struct tree_joint *joint, bson_error_t *error)
{
    const truce_tree *branch = joint->branch;
    int64_t merge = joint->from->merges;
    struct worker worker;
    bson_t *document;
    truce_status status;

    truce__id_new(&joint->hold);
    document =
        BCON_NEW("_id", BCON_OID(&joint->hold), "tree", BCON_UTF8(tree->name), "version",
                 BCON_INT64(version), "branch", BCON_UTF8(branch->name), "merge", BCON_INT64(merge),
                 "until", BCON_DATE_TIME(truce__clock_wall_ms() + TREE_EDIT_MS));
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    do
        status = truce_insert(tree->store, TREE_HOLDS, document, NULL, error);
    while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(document);
    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

/* ---- erased meanwhile -------------------------------------------------------------------------- */

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

truce_status truce__tree_erase_again(truce_tree *source, truce_tree *target,
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

/* ---- the commit -------------------------------------------------------------------------------- */

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
               ? truce__fail(TRUCE_REFUSED, error, "tree \"%s\" is gone", tree->name)
               : status;
}

static truce_status write_from(truce_commit *commit, const struct tree_joint *joint,
                               bson_error_t *error)
{
    bson_t master, holder = BSON_INITIALIZER, *update;
    struct tree_from stands;
    bson_value_t id;
    truce_status status = branch_read_master(commit, joint->branch, &master, error);

    if (!status)
        status = branch_parse(joint->branch, &master, &stands, error);
    if (!status && stands.merges != joint->from->merges - 1)
        status = truce__fail(TRUCE_REFUSED, error, "tree \"%s\" was merged meanwhile",
                             joint->branch->name);
    if (!status) {
        BSON_APPEND_UTF8(&holder, "_id", joint->branch->name);
        id = truce__document_id(&holder);
        update = setting(joint->from);
        status = truce_commit_update(commit, TREES, &id, NULL, update, error);
        bson_destroy(update);
    }
    bson_destroy(&holder);
    bson_destroy(&master);
    return status;
}

/* REFUSED: the day was over, and a sweep has let go of it. */
static truce_status keep_hold(truce_commit *commit, const struct tree_joint *joint,
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
        status = truce__fail(TRUCE_REFUSED, error, "the merge stood still for too long");
    if (!status)
        status = truce_commit_update(commit, TREE_HOLDS, &id, NULL, update, error);
    bson_destroy(update);
    bson_destroy(&hold);
    bson_destroy(&holder);
    return status;
}

/* Where nothing is put, what stood when it was read is the merge, whatever was published since. */
static truce_status join_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct tree_joint *joint = arg;
    truce_status status = truce_tree_publish(joint->edit, commit, &joint->published, error);

    if (!status)
        status = write_from(commit, joint, error);
    return status ? status : keep_hold(commit, joint, error);
}

truce_status truce__tree_join(struct tree_joint *joint, bson_error_t *error)
{
    const truce_tree *tree = joint->edit->tree;
    truce_commit_options options = {.deadline_ms = tree->deadline_ms};
    truce_status status = truce_transact(tree->store, join_in, joint, &options, error);

    return status ? status : truce__tree_let_go_common(joint->branch, joint->from->merges, error);
}

/* ---- a new branch ------------------------------------------------------------------------------- */

struct branching {
    truce_tree *origin, *branch;
    truce_tree_snapshot *snapshot; /* of the origin */
    truce_tree_edit *edit;
    struct tree_ids ids;
    truce_status status;
    bson_error_t *error;
};

/* A truce_tree_function. */
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
        status = truce__fail(TRUCE_DUPLICATE, error, "there is a tree \"%s\" already",
                             branching->branch->name);
    return status;
}

static truce_status copy_items(struct branching *branching, bson_error_t *error)
{
    truce_status status =
        truce_tree_find(branching->snapshot, NULL, NULL, copy_item, branching, error);

    return status ? status : branching->status;
}

static truce_status end_branch(struct branching *branching, bson_error_t *error)
{
    const truce_tree *origin = branching->origin;
    struct tree_from above, from = {.born = branching->snapshot->master.born,
                                    .theirs = branching->snapshot->version,
                                    .ours = branching->ids.count ? 1 : 0,
                                    .merges = 1};
    struct tree_joint joint = {.edit = branching->edit, .branch = branching->branch, .from = &from};
    truce_status status = truce__tree_from(branching->origin, &above, error);

    strcpy(from.tree, origin->name); /* of a length that was checked */
    strcpy(from.root, *above.root ? above.root : origin->name);
    if (!status)
        status = truce__tree_hold_common(branching->branch, from.ours, &joint, error);
    if (!status)
        status = truce__tree_join(&joint, error);
    return status == TRUCE_REFUSED
               ? truce__fail(TRUCE_DUPLICATE, error, "there is a tree \"%s\" already",
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
        status =
            truce__tree_erase_again(branching->origin, branching->branch, &branching->ids, error);
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
        status = truce__fail(TRUCE_INVALID, error, "say the name of the branch");
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
