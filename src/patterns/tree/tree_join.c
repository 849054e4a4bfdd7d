/* Merges of a branch and its origin (T10 of tree.c). */
#include <string.h>

#include "base/deadline.h"
#include "base/reserved_fields.h"
#include "patterns/tree/tree.h"

#define PORTION 50 /* items looked at at once, of any size */

/* ---- which versions -------------------------------------------------------------------- */

struct joining {
    truce_tree *target, *source, *branch; /* the branch is one of the two */
    struct tree_from from;                /* of the branch */
    const truce_tree_merge_options *options;
    truce_tree_snapshot *incoming; /* of the source; it holds it */
    truce_tree_snapshot base, standing;
    struct tree_merging merging;
    struct tree_ids ids;
    bool differs;
    truce_tree_published published;
};

static truce_status relate(struct joining *joining, bson_error_t *error)
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

static bool pulls(const struct joining *joining)
{
    return joining->branch == joining->target;
}

static truce_tree *join_origin_of(const struct joining *joining)
{
    return pulls(joining) ? joining->source : joining->target;
}

/* What both had: of the origin, or of the branch. */
static truce_status open_base(struct joining *joining, bson_error_t *error)
{
    const struct tree_from *from = &joining->from;

    return from->pulled
               ? truce__tree_open(join_origin_of(joining), from->theirs, &joining->base, error)
               : truce__tree_open(joining->branch, from->ours, &joining->base, error);
}

static truce_status check_origin(const struct joining *joining, bson_error_t *error)
{
    const truce_tree_snapshot *of = pulls(joining) ? joining->incoming : &joining->standing;

    return bson_oid_equal(&of->master.born, &joining->from.born)
               ? TRUCE_OK
               : truce__fail(TRUCE_NOT_FOUND, error,
                             "tree \"%s\" is another one than that which \"%s\" is a branch of",
                             of->tree->name, joining->branch->name);
}

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
        status = truce__tree_open(joining->target, joining->merging.fresh->base, &joining->standing,
                                  error);
    if (!status)
        status = check_origin(joining, error);
    return status ? status : open_base(joining, error);
}

/* ---- their items -------------------------------------------------------------------------- */

/* The items of one version, of a portion. */
struct gathering {
    struct tree_three_way *items;
    size_t count;
    size_t which; /* offset of the document in them */
};

static bson_t **join_document_of(struct tree_three_way *item, size_t which)
{
    return (bson_t **)((char *)item + which);
}

/* A tree_pair_function. */
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

static truce_status merge_portion(struct joining *joining, const struct value *ids, size_t count,
                                  bson_error_t *error)
{
    struct tree_three_way items[PORTION] = {0};
    struct gathering base = {items, count, offsetof(struct tree_three_way, base)},
                     incoming = {items, count, offsetof(struct tree_three_way, incoming)},
                     standing = {items, count, offsetof(struct tree_three_way, standing)};
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
        status = join_gather(&standing, &joining->standing, &array, error);
    for (size_t i = 0; !status && i < count; i++) {
        if (truce__tree_same(items[i].base, items[i].incoming))
            continue;
        joining->differs = true;
        status = truce__tree_merge(&joining->merging, &items[i], error);
    }
    join_forget(&base);
    join_forget(&incoming);
    join_forget(&standing);
    bson_destroy(&array);
    return status;
}

/* What the source wrote since; or, where what both had is of the other tree, everything. */
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

    for (size_t at = 0; !status && at < joining->ids.count; at += PORTION)
        status = merge_portion(
            joining, joining->ids.all + at,
            joining->ids.count - at < PORTION ? joining->ids.count - at : PORTION, error);
    conflicts = joining->merging.conflicts;
    if (!status && conflicts)
        status = truce__fail(
            TRUCE_CONFLICT, error, "%u item%s of tree \"%s\" cannot be merged into tree \"%s\"",
            conflicts, conflicts == 1 ? "" : "s", joining->source->name, joining->target->name);
    return status;
}

/* ---- the merge ------------------------------------------------------------------------------------- */

static truce_status join_publish(struct joining *joining, bson_error_t *error)
{
    struct tree_from from = joining->from;
    struct tree_joint joint = {
        .edit = joining->merging.fresh, .branch = joining->branch, .from = &from};
    truce_status status;

    from.merges++;
    from.pulled = pulls(joining);
    if (from.pulled)
        from.theirs = joining->incoming->version;
    else
        from.ours = joining->incoming->version;
    status = truce__tree_hold_common(joining->source, joining->incoming->version, &joint, error);
    if (!status)
        status = truce__tree_join(&joint, error);
    joining->published = joint.published;
    return status ? status
                  : truce__tree_erase_again(joining->source, joining->target, &joining->ids, error);
}

/* What was read is collected: has one of the trees gone on since? */
static bool went_on(struct joining *joining)
{
    struct tree_from now;
    struct tree_master target = {0}, source = {0};
    bool there = !truce__tree_from(joining->branch, &now, NULL) &&
                 !truce__tree_master(joining->target, &target, NULL) &&
                 !truce__tree_master(joining->source, &source, NULL);
    bool went = there && (now.merges != joining->from.merges ||
                          target.current != joining->standing.version ||
                          source.current != joining->incoming->version);

    truce__tree_master_release(&source);
    truce__tree_master_release(&target);
    return went;
}

/* REFUSED: somebody was faster. */
static truce_status merge_once(struct joining *joining, bson_error_t *error)
{
    truce_status status = relate(joining, error);

    joining->differs = false;
    joining->base = joining->standing = (truce_tree_snapshot){0};
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
    if (status == TRUCE_EXPIRED && joining->incoming && went_on(joining))
        status = TRUCE_REFUSED;
    if (status && joining->merging.fresh)
        (void)!truce_tree_abandon(joining->merging.fresh, NULL);
    truce__tree_leave(&joining->base);
    truce__tree_leave(&joining->standing);
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
        status = truce__fail(TRUCE_INVALID, error, "say the name of the other tree");
    joining.source =
        truce_tree_new(tree->store, &(truce_tree_options){.name = other ? other : "",
                                                          .deadline_ms = tree->deadline_ms});
    if (!status)
        status = truce__tree_merging_begin(&joining.merging, &joining.options->how, error);
    joining.merging.foreign = true;
    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (!status)
        status = truce__tree_ready(joining.source, false, error);
    if (!status)
        status = join_merge(&joining, error);
    truce__tree_merging_end(&joining.merging);
    truce_tree_free(joining.source);
    if (published)
        *published = joining.published;
    if (conflicts)
        *conflicts = joining.merging.conflicts;
    return status;
}
