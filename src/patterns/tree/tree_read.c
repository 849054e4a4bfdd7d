/* Snapshots: reads of one version (TR5 of tree.c). Each read fetches items, THEN reads the master
 * again. The status of a tree is here, too. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "base/time_check.h"
#include "patterns/tree/tree.h"
#include "query/input_check.h"
#include "store/reserved_names.h"

/* ---- ids ------------------------------------------------------------------------------------- */

/* The ids of the items that were written between two versions. */

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

/* ---- find ------------------------------------------------------------------------------------ */

/* Reads of many items of a snapshot: all items in the order of the index, or those that match a
 * filter. A match is looked up by its id, because another version of the item may be the one in the
 * snapshot. Items reach the caller a batch at a time, after the second read of the master. */

/* The maximum number of candidates that are verified together. */
#define CANDIDATES 500

/* ---- passing items on ------------------------------------------------------------------------ */

struct handing {
    truce_tree_snapshot *snapshot;
    truce_tree_function *function;
    void *arg;
    /* The number of items that the caller still wants. */
    int64_t left;
    bool enough;
};

static void find_hand(struct handing *handing, const bson_t *item)
{
    if (handing->enough)
        return;
    handing->enough = !handing->function(item, handing->arg) || !--handing->left;
}

/* ---- all items ------------------------------------------------------------------------------- */

/* An item as users see it. The bytes belong to the arena of the batch, or to the walk. */
struct shown {
    uint8_t *bytes;
    uint32_t size;
};

struct walk {
    struct handing handing;
    /* The memory of the items in the batch. */
    struct arena arena;
    /* The item that is being read, as its latest version so far shows it. */
    struct shown best;
    /* The allocated size of `best` in bytes. */
    uint32_t best_room;
    /* The itemId of `best`; borrows from it. Missing if no item is being read. */
    struct value best_id;
    /* The version of `best` removes the item. */
    bool removed;
    struct shown items[TREE_BATCH];
    uint32_t count;
    /* {itemId} of the last item that was passed to the caller, or {}. */
    bson_t *last;
};

static void walk_forget(struct walk *walk)
{
    walk->count = 0;
    walk->best_id = truce__value_missing();
    truce__arena_reset(&walk->arena);
}

static void shown_view_item(const struct shown *shown, bson_t *item)
{
    truce_assert(bson_init_static(item, shown->bytes, shown->size));
}

/* Passes the batch on. Returns TRUCE_CONFLICT if it must be read again. The item that is being read
 * is not part of it. */
static truce_status walk_hand(struct walk *walk, bson_error_t *error)
{
    truce_status status = truce__tree_still(walk->handing.snapshot, error);
    bson_t item;

    for (uint32_t i = 0; !status && i < walk->count; i++) {
        shown_view_item(&walk->items[i], &item);
        find_hand(&walk->handing, &item);
    }
    if (!status && walk->count) {
        bson_reinit(walk->last);
        truce__value_append(walk->last, "itemId", 6, truce__tree_item_id(&item));
    }
    walk_forget(walk);
    return status;
}

static truce_status walk_end_item(struct walk *walk, bson_error_t *error)
{
    if (walk->best_id.type && !walk->removed)
        walk->items[walk->count++] = (struct shown){
            truce__arena_copy(&walk->arena, walk->best.bytes, walk->best.size), walk->best.size};
    walk->best_id = truce__value_missing();
    return walk->count == TREE_BATCH || walk->arena.bytes > TREE_BATCH_BYTES
               ? walk_hand(walk, error)
               : TRUCE_OK;
}

/* Adds a document to the walk. The last one of an itemId that counts is the item. */
static truce_status walk_add(struct walk *walk, const bson_t *document, bson_error_t *error)
{
    struct tree_item item;
    truce_status status = TRUCE_OK;
    bson_t shown;

    truce__tree_item_parse(document, &item);
    if (item.version > walk->handing.snapshot->version)
        return TRUCE_OK;
    if (walk->best_id.type && !truce__value_equal(walk->best_id, item.id))
        status = walk_end_item(walk, error);
    if (status || !truce__tree_counts(&walk->handing.snapshot->master, &item))
        return status;
    walk->best.size = item.size + 5;
    if (walk->best.size > walk->best_room) {
        walk->best_room = 2 * walk->best.size;
        walk->best.bytes = bson_realloc(walk->best.bytes, walk->best_room);
    }
    truce__tree_pack(&item, walk->best.bytes);
    shown_view_item(&walk->best, &shown);
    walk->best_id = truce__tree_item_id(&shown);
    walk->removed = item.absent;
    return TRUCE_OK;
}

/* Opens a cursor in the order of the index with these fields, by hint unless the index is
 * hidden. */
static truce_status tree_find_sorted(const truce_tree *tree, const bson_t *filter,
                                     const bson_t *sort, truce_cursor **cursor, bson_error_t *error)
{
    truce_find_options options = {.sort = sort, .hint = sort};
    bson_error_t why = {0};
    truce_status status = truce_find(tree->store, tree->collection, filter, &options, cursor, &why);

    options.hint = NULL;
    if (status == TRUCE_INVALID && why.code == CODE_BAD_VALUE)
        return truce_find(tree->store, tree->collection, filter, &options, cursor, error);
    if (status && error)
        *error = why;
    return status;
}

/* Returns the classes of values that follow that of an itemId, in order. */
static const char *const *tree_later_classes(struct value id)
{
    static const char *const classes[] = {"string", "binData", "objectId", "bool", "date", NULL};

    switch (id.type) {
    case BSON_TYPE_UTF8:
        return &classes[1];
    case BSON_TYPE_BINARY:
        return &classes[2];
    case BSON_TYPE_OID:
        return &classes[3];
    case BSON_TYPE_BOOL:
        return &classes[4];
    case BSON_TYPE_DATE_TIME:
        return &classes[5];
    default: /* An itemId of any other type is a number. */
        return &classes[0];
    }
}

void truce__tree_after(struct value id, bson_t *same, bson_t *later)
{
    const char *const *name = tree_later_classes(id);
    bson_t array;

    truce__value_append(same, "$gt", 3, id);
    if (!*name)
        return;
    BSON_APPEND_ARRAY_BEGIN(later, "$type", &array);
    for (char key[2] = "0"; *name; name++, key[0]++)
        BSON_APPEND_UTF8(&array, key, *name);
    bson_append_array_end(later, &array);
}

/* Reads the items whose itemId matches a condition (NULL for all). */
static truce_status walk_query(struct walk *walk, const bson_t *item_id, bson_error_t *error)
{
    const truce_tree_snapshot *snapshot = walk->handing.snapshot;
    const truce_tree *tree = snapshot->tree;
    bson_t filter, *sort = BCON_NEW("tree", BCON_INT32(1), "itemId", BCON_INT32(1), "version",
                                    BCON_INT32(1), "token", BCON_INT32(1));
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status;

    /* `version` is compared in this loop, because a comparison in the filter costs more. */
    truce__tree_filter(tree, &filter);
    if (item_id)
        BSON_APPEND_DOCUMENT(&filter, "itemId", item_id);
    status = tree_find_sorted(tree, &filter, sort, &cursor, error);
    while (!status && !walk->handing.enough &&
           !(status = truce_cursor_next(cursor, &document, error)) && document)
        status = walk_add(walk, document, error);
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status;
}

/* Reads on from the item that was passed on last. */
static truce_status walk_once(struct walk *walk, bson_error_t *error)
{
    bson_t same = BSON_INITIALIZER, later = BSON_INITIALIZER;
    truce_status status;

    if (!bson_empty(walk->last))
        truce__tree_after(truce__tree_item_id(walk->last), &same, &later);
    status = walk_query(walk, bson_empty(&same) ? NULL : &same, error);
    if (!status && !walk->handing.enough && !bson_empty(&later))
        status = walk_query(walk, &later, error);
    if (!status)
        status = walk_end_item(walk, error);
    if (!status && !walk->handing.enough)
        status = walk_hand(walk, error);
    walk_forget(walk);
    bson_destroy(&same);
    bson_destroy(&later);
    return status;
}

/* Finds the items after an itemId (NULL for all). */
static truce_status tree_find_all(struct handing *handing, const bson_value_t *after,
                                  bson_error_t *error)
{
    struct walk *walk = bson_malloc0(sizeof *walk);
    truce_status status;

    walk->handing = *handing;
    walk->last = bson_new();
    if (after)
        BSON_APPEND_VALUE(walk->last, "itemId", after);
    do
        status = walk_once(walk, error);
    while (status == TRUCE_CONFLICT);
    bson_destroy(walk->last);
    truce__arena_release(&walk->arena);
    bson_free(walk->best.bytes);
    bson_free(walk);
    return status;
}

/* ---- some items ------------------------------------------------------------------------------ */

/* Matching items of any version, until it is known which of them are in the snapshot. */
struct candidates {
    struct handing *handing;
    uint32_t count;
    /* The total size of the items in bytes. */
    size_t bytes;
    struct candidate {
        /* {_id, itemId} of the document that matched. Owned. */
        bson_t *keys;
        /* The item as users see it, or NULL if the version does not have it. Owned. */
        bson_t *item;
    } all[CANDIDATES];
    /* The indexes of the candidates, sorted by itemId. */
    uint32_t order[CANDIDATES];
};

static int by_item(const void *a, const void *b, void *arg)
{
    const struct candidates *candidates = arg;

    return truce__value_compare(truce__tree_item_id(candidates->all[*(const uint32_t *)a].keys),
                                truce__tree_item_id(candidates->all[*(const uint32_t *)b].keys));
}

/* Shows the item in each candidate that is the document which this version has of it (a
 * tree_pair_function). */
static truce_status find_choose(struct value id, const bson_t *low, const bson_t *high, void *arg,
                                bson_error_t *error)
{
    struct candidates *candidates = arg;
    uint32_t from = 0, to = candidates->count;

    (void)low, (void)error;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;

        if (truce__value_compare(
                truce__tree_item_id(candidates->all[candidates->order[middle]].keys), id) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    for (; from < candidates->count; from++) {
        struct candidate *candidate = &candidates->all[candidates->order[from]];

        if (!truce__value_equal(truce__tree_item_id(candidate->keys), id))
            break;
        if (!truce__value_identical(
                truce__value_field(truce__value_document(candidate->keys), "_id", 3),
                truce__value_field(truce__value_document(high), "_id", 3)))
            continue;
        candidate->item = bson_sized_new(high->len);
        truce__tree_show(high, candidate->item);
    }
    return TRUCE_OK;
}

static void forget_items(struct candidates *candidates)
{
    for (uint32_t i = 0; i < candidates->count; i++) {
        if (candidates->all[i].item)
            bson_destroy(candidates->all[i].item);
        candidates->all[i].item = NULL;
    }
}

static void forget_candidates(struct candidates *candidates)
{
    forget_items(candidates);
    for (uint32_t i = 0; i < candidates->count; i++)
        bson_destroy(candidates->all[i].keys);
    candidates->count = 0;
    candidates->bytes = 0;
}

static void find_append_ids(const struct candidates *candidates, bson_t *ids)
{
    struct value before = truce__value_missing();
    uint32_t index = 0;

    for (uint32_t i = 0; i < candidates->count; i++) {
        struct value id = truce__tree_item_id(candidates->all[candidates->order[i]].keys);

        if (!i || !truce__value_equal(before, id))
            truce__value_append_element(ids, &index, id);
        before = id;
    }
}

/* Reads the items of the candidates in the version of the snapshot, and passes those candidates to
 * the caller that are in it. Repeats the read if versions were collected during it. */
static truce_status hand_candidates(struct candidates *candidates, bson_error_t *error)
{
    truce_tree_snapshot *snapshot = candidates->handing->snapshot;
    bson_t ids = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < candidates->count; i++)
        candidates->order[i] = i;
    qsort_r(candidates->order, candidates->count, sizeof *candidates->order, by_item, candidates);
    find_append_ids(candidates, &ids);
    while (candidates->count) {
        status =
            truce__tree_pairs(snapshot, 0, snapshot->version, &ids, find_choose, candidates, error);
        if (!status)
            status = truce__tree_still(snapshot, error);
        if (status != TRUCE_CONFLICT)
            break;
        forget_items(candidates);
    }
    for (uint32_t i = 0; i < candidates->count; i++) {
        if (!status && candidates->all[i].item)
            find_hand(candidates->handing, candidates->all[i].item);
    }
    forget_candidates(candidates);
    bson_destroy(&ids);
    return status;
}

/* Collects matching documents as candidates, and passes them on in portions of CANDIDATES documents
 * or TREE_BATCH_BYTES. */
static truce_status find_gather(struct candidates *candidates, truce_cursor *cursor,
                                bson_error_t *error)
{
    const bson_t *document = NULL;
    truce_status status = TRUCE_OK;

    while (!status && !candidates->handing->enough &&
           !(status = truce_cursor_next(cursor, &document, error)) && document) {
        bson_t *keys = bson_new();
        bson_value_t id = truce__document_id(document);

        BSON_APPEND_VALUE(keys, "_id", &id);
        truce__value_append(keys, "itemId", 6, truce__tree_item_id(document));
        candidates->all[candidates->count++] = (struct candidate){.keys = keys};
        candidates->bytes += document->len;
        if (candidates->count == CANDIDATES || candidates->bytes > TREE_BATCH_BYTES)
            status = hand_candidates(candidates, error);
    }
    if (!status)
        status = hand_candidates(candidates, error);
    forget_candidates(candidates);
    return status;
}

/* Finds the items that match a filter, in the order of `sort`. */
static truce_status find_some(struct handing *handing, const bson_t *filter, const bson_t *sort,
                              bson_error_t *error)
{
    const truce_tree *tree = handing->snapshot->tree;
    struct candidates *candidates = bson_malloc0(sizeof *candidates);
    truce_find_options options = {.sort = sort, .allow_disk_use = true};
    truce_cursor *cursor = NULL;
    bson_t all;
    truce_status status;

    candidates->handing = handing;
    truce__tree_filter(tree, &all);
    BCON_APPEND(&all, "version", "{", "$lte", BCON_INT64(handing->snapshot->version), "}",
                "removed", "{", "$exists", BCON_BOOL(false), "}", "erased", "{", "$exists",
                BCON_BOOL(false), "}");
    if (filter)
        BCON_APPEND(&all, "$and", "[", BCON_DOCUMENT(filter), "]");
    status = truce_find(tree->store, tree->collection, &all, &options, &cursor, error);
    if (!status)
        status = find_gather(candidates, cursor, error);
    truce_cursor_close(cursor);
    bson_destroy(&all);
    bson_free(candidates);
    return status;
}

truce_status truce_tree_find(truce_tree_snapshot *snapshot, const bson_t *filter,
                             const truce_tree_find_options *options, truce_tree_function *function,
                             void *arg, bson_error_t *error)
{
    RETURN_IF_NULL(function, error);
    DEADLINE_SCOPE(snapshot->tree->deadline_ms);
    struct handing handing = {snapshot, function, arg, -1, false};
    const bson_t *sort = options ? options->sort : NULL;
    truce_status status = ROOM_CHECK(options, "truce_tree_find_options", error);

    if (!status && options && options->limit < 0)
        status = truce__fail(TRUCE_INVALID, error,
                             "the limit is %" PRId64 ": expected 0 (no limit) or more",
                             (int64_t)options->limit);
    if (!status)
        status = truce__check_optional(filter, "filter", error);
    if (!status)
        status = truce__check_sort(sort, error);
    if (!status)
        status = truce__tree_renew_hold(snapshot, error);
    if (status)
        return status;
    if (options && options->limit)
        handing.left = options->limit;
    return filter || sort ? find_some(&handing, filter, sort, error)
                          : tree_find_all(&handing, NULL, error);
}

truce_status truce__tree_find_after(truce_tree_snapshot *snapshot, const bson_value_t *after,
                                    truce_tree_function *function, void *arg, bson_error_t *error)
{
    DEADLINE_SCOPE(snapshot->tree->deadline_ms);
    struct handing handing = {snapshot, function, arg, -1, false};
    truce_status status = truce__tree_renew_hold(snapshot, error);

    return status ? status : tree_find_all(&handing, after, error);
}

/* ---- open ------------------------------------------------------------------------------------ */

static truce_status tree_fail_collected(const truce_tree *tree, int64_t version, int64_t from,
                                        bson_error_t *error)
{
    return truce__fail(TRUCE_EXPIRED, error,
                       "version %" PRId64
                       " of tree \"%s\" was collected: the oldest stored version is %" PRId64,
                       version, tree->name, from);
}

static truce_status tree_read_check_version(const truce_tree *tree,
                                            const struct tree_master *master, int64_t version,
                                            bson_error_t *error)
{
    if (version < 0 || version > master->current)
        return truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no version %" PRId64,
                           tree->name, version);
    if (version < master->gone)
        return tree_fail_collected(tree, version, truce__tree_oldest_version(master), error);
    return TRUCE_OK;
}

truce_status truce__tree_open(truce_tree *tree, int64_t version, truce_tree_snapshot *snapshot,
                              bson_error_t *error)
{
    truce_status status;

    *snapshot = (truce_tree_snapshot){.tree = tree, .version = version};
    status = truce__tree_master(tree, &snapshot->master, error);
    return status ? status : tree_read_check_version(tree, &snapshot->master, version, error);
}

void truce__tree_leave(truce_tree_snapshot *snapshot)
{
    truce__tree_master_release(&snapshot->master);
}

/* Finds the version that was current at a time. */
static truce_status version_at(truce_tree *tree, const struct tree_master *master, int64_t time_ms,
                               int64_t *version, bson_error_t *error)
{
    bson_t filter, *sort, found;
    truce_find_options options = {0};
    truce_status status;

    for (int64_t i = master->current; i > master->settled; i--) {
        *version = i;
        if (master->published[i - master->settled - 1].at_ms <= time_ms)
            return TRUCE_OK;
    }
    sort = BCON_NEW("version", BCON_INT32(-1));
    options.sort = sort;
    truce__tree_filter(tree, &filter);
    BCON_APPEND(&filter, "pub", BCON_BOOL(true), "at", "{", "$lte", BCON_DATE_TIME(time_ms), "}",
                "version", "{", "$lte", BCON_INT64(master->settled), "}");
    status = truce_find_one(tree->store, TREE_EDITS, &filter, &options, &found, error);
    *version = truce__field_count(&found, "version");
    if (status == TRUCE_NOT_FOUND)
        status = truce__fail(
            master->gone > 1 ? TRUCE_EXPIRED : TRUCE_NOT_FOUND, error,
            "the version of tree \"%s\" that was current at that time was collected, or the tree "
            "did not exist yet",
            tree->name);
    bson_destroy(&found);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status;
}

static truce_status version_of_token(const truce_tree *tree, const struct tree_master *master,
                                     const char *token, int64_t *version, bson_error_t *error)
{
    char born[25], text[sizeof((truce_tree_snapshot *)0)->token];

    bson_oid_to_string(&master->born, born);
    *version = strtoll(token, NULL, 10);
    snprintf(text, sizeof text, "%" PRId64 "-%s", *version, born);
    return strcmp(text, token) ? truce__fail(TRUCE_NOT_FOUND, error,
                                             "\"%s\" is not the token of a snapshot of tree \"%s\"",
                                             token, tree->name)
                               : TRUCE_OK;
}

/* Finds the version that `at` describes: by number, time, tag, or token, of which at most one may
 * be given. Without any, it is the current version. */
static truce_status find_version(truce_tree *tree, const struct tree_master *master,
                                 const truce_tree_at *at, int64_t *version, bson_error_t *error)
{
    int given = (at->version != 0) + (at->time_ms != 0) + (at->tag != NULL) + (at->token != NULL);

    *version = at->version ? at->version : master->current;
    if (given > 1)
        return truce__fail(
            TRUCE_INVALID, error,
            "%d of version, time, tag, and token are given: a snapshot has at most one of them",
            given);
    if (at->version < 0)
        return truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no version %" PRId64,
                           tree->name, at->version);
    if (at->time_ms && truce__time_check("time_ms", at->time_ms, error))
        return TRUCE_INVALID;
    if (at->time_ms)
        return version_at(tree, master, at->time_ms, version, error);
    if (at->tag)
        return truce__tree_tagged(tree, at->tag, version, error);
    return at->token ? version_of_token(tree, master, at->token, version, error) : TRUCE_OK;
}

/* Tries once to open a snapshot. If the caller wants a hold, holds the version. Returns
 * TRUCE_EXPIRED if the version was collected, perhaps before the hold. */
static truce_status open_once(truce_tree_snapshot *snapshot, const truce_tree_at *at,
                              bson_error_t *error)
{
    const struct tree_master *master = &snapshot->master;
    char born[25];
    truce_status status = truce__tree_master(snapshot->tree, &snapshot->master, error);

    if (!status)
        status = find_version(snapshot->tree, &snapshot->master, at, &snapshot->version, error);
    if (!status && snapshot->version < master->first && snapshot->version != master->current)
        status = tree_fail_collected(snapshot->tree, snapshot->version,
                                     truce__tree_oldest_version(master), error);
    if (!status)
        status =
            tree_read_check_version(snapshot->tree, &snapshot->master, snapshot->version, error);
    if (!status && at->hold)
        status = truce__tree_hold(snapshot, error);
    bson_oid_to_string(&snapshot->master.born, born);
    snprintf(snapshot->token, sizeof snapshot->token, "%" PRId64 "-%s", snapshot->version, born);
    return status;
}

/* Opens a snapshot. The current version may be superseded and collected before it is held. Then the
 * next attempt takes its successor. */
static truce_status open_at(truce_tree_snapshot *snapshot, const truce_tree_at *at,
                            bson_error_t *error)
{
    bool current = !at->version && !at->time_ms && !at->tag && !at->token;
    bson_error_t why;
    truce_status status;

    while ((status = open_once(snapshot, at, &why)) == TRUCE_EXPIRED && current) {
        truce__tree_release(snapshot);
        truce__tree_leave(snapshot);
    }
    if (status && error)
        *error = why;
    return status;
}

truce_status truce_tree_open(truce_tree *tree, const truce_tree_at *at,
                             truce_tree_snapshot **snapshot, bson_error_t *error)
{
    RETURN_IF_NULL(snapshot, error);

    DEADLINE_SCOPE(tree->deadline_ms);
    static const truce_tree_at now;
    truce_status status = ROOM_CHECK(at, "truce_tree_at", error);

    *snapshot = NULL;
    at = at ? at : &now;
    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (status)
        return status;
    *snapshot = bson_malloc0(sizeof **snapshot);
    (*snapshot)->tree = tree;
    (*snapshot)->lease_ms = at->lease_ms ? at->lease_ms : TREE_LEASE_MS;
    status = open_at(*snapshot, at, error);
    if (status) {
        truce_tree_close(*snapshot);
        *snapshot = NULL;
    }
    return status;
}

void truce_tree_close(truce_tree_snapshot *snapshot)
{
    if (!snapshot)
        return;
    truce__tree_release(snapshot);
    truce__tree_leave(snapshot);
    bson_free(snapshot);
}

int64_t truce_tree_version(const truce_tree_snapshot *snapshot)
{
    return snapshot->version;
}

const char *truce_tree_snapshot_token(const truce_tree_snapshot *snapshot)
{
    return snapshot->token;
}

/* ---- the second read ------------------------------------------------------------------------- */

truce_status truce__tree_still(truce_tree_snapshot *snapshot, bson_error_t *error)
{
    struct tree_master now;
    truce_status status = truce__tree_master(snapshot->tree, &now, error);

    if (!status && !bson_oid_equal(&now.born, &snapshot->master.born))
        status =
            truce__fail(TRUCE_EXPIRED, error,
                        "tree \"%s\" was dropped and created again since the snapshot was opened",
                        snapshot->tree->name);
    if (!status && now.gone > snapshot->version)
        status = tree_fail_collected(snapshot->tree, snapshot->version, now.gone, error);
    if (!status && now.gone > truce__tree_low(&snapshot->master, snapshot->version)) {
        truce__tree_master_release(&snapshot->master);
        snapshot->master = now;
        return TRUCE_CONFLICT;
    }
    truce__tree_master_release(&now);
    return status;
}

/* ---- one item -------------------------------------------------------------------------------- */

/* Finds the document of an item with the greatest published version up to that of the snapshot.
 * Returns TRUCE_NOT_FOUND if no document qualifies. Initializes `found` in any case. */
static truce_status tree_find_item(const truce_tree_snapshot *snapshot, struct value id,
                                   bson_t *found, bson_error_t *error)
{
    const truce_tree *tree = snapshot->tree;
    bson_t filter, *sort = BCON_NEW("version", BCON_INT32(-1));
    truce_find_options options = {.sort = sort};
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status;

    truce__tree_filter(tree, &filter);
    truce__tree_append_id(&filter, "itemId", id);
    BCON_APPEND(&filter, "version", "{", "$lte", BCON_INT64(snapshot->version), "}");
    status = truce_find(tree->store, tree->collection, &filter, &options, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        if (truce__tree_accepts(&snapshot->master, document))
            break;
    }
    if (!status && document)
        bson_copy_to(document, found);
    else
        bson_init(found);
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status || document ? status : TRUCE_NOT_FOUND;
}

static truce_status tree_fail_no_item(const truce_tree_snapshot *snapshot, struct value id,
                                      bson_error_t *error)
{
    char text[200];

    return truce__fail(
        TRUCE_NOT_FOUND, error, "item %s is not in version %" PRId64 " of tree \"%s\"",
        truce__value_show(id, text, sizeof text), snapshot->version, snapshot->tree->name);
}

truce_status truce_tree_get(truce_tree_snapshot *snapshot, const bson_value_t *id, bson_t *item,
                            bson_error_t *error)
{
    RETURN_IF_NULL(item, error);
    RETURN_EMPTY_IF_NULL(id, item, error);

    DEADLINE_SCOPE(snapshot->tree->deadline_ms);
    bson_t holder = BSON_INITIALIZER, found;
    struct value value;
    truce_status status = truce__check_value(id, "itemId", error), still;

    bson_init(item);
    if (!status)
        status = truce__tree_renew_hold(snapshot, error);
    if (status) {
        bson_destroy(&holder);
        return status;
    }
    BSON_APPEND_VALUE(&holder, "itemId", id);
    value = truce__tree_item_id(&holder);
    for (;;) {
        status = tree_find_item(snapshot, value, &found, error);
        still = status && status != TRUCE_NOT_FOUND ? TRUCE_OK : truce__tree_still(snapshot, error);
        if (still != TRUCE_CONFLICT)
            break;
        bson_destroy(&found);
    }
    if (still)
        status = still;
    else if (status == TRUCE_NOT_FOUND || (!status && truce__tree_absent(&found)))
        status = tree_fail_no_item(snapshot, value, error);
    if (!status)
        truce__tree_show(&found, item);
    bson_destroy(&found);
    bson_destroy(&holder);
    return status;
}

/* ---- differences between two versions of items ----------------------------------------------- */

struct pair {
    const truce_tree_snapshot *snapshot;
    int64_t low_version, high_version;
    /* The current itemId, and the item at both versions. An empty document means that no version
     * was found. */
    bson_t id, low, high;
    tree_pair_function *function;
    void *arg;
};

static void pair_reset(struct pair *pair)
{
    bson_reinit(&pair->id);
    bson_reinit(&pair->low);
    bson_reinit(&pair->high);
}

static truce_status pair_end(struct pair *pair, bson_error_t *error)
{
    bool low = !bson_empty(&pair->low) && !truce__tree_absent(&pair->low),
         high = !bson_empty(&pair->high) && !truce__tree_absent(&pair->high);
    truce_status status = TRUCE_OK;

    if (low || high)
        status = pair->function(truce__tree_item_id(&pair->id), low ? &pair->low : NULL,
                                high ? &pair->high : NULL, pair->arg, error);
    pair_reset(pair);
    return status;
}

static void tree_read_take(bson_t *kept, const bson_t *document)
{
    bson_destroy(kept);
    bson_copy_to(document, kept);
}

/* Adds a document in the order of itemId and version. When the itemId changes, passes the pair of
 * the last one to the function. */
static truce_status pair_add(struct pair *pair, const bson_t *document, bson_error_t *error)
{
    struct value id = truce__tree_item_id(document);
    int64_t version = truce__field_count(document, "version");
    truce_status status = TRUCE_OK;

    if (!bson_empty(&pair->id) && !truce__value_equal(truce__tree_item_id(&pair->id), id))
        status = pair_end(pair, error);
    if (status || !truce__tree_accepts(&pair->snapshot->master, document))
        return status;
    if (bson_empty(&pair->id))
        truce__value_append(&pair->id, "itemId", 6, id);
    if (version <= pair->low_version)
        tree_read_take(&pair->low, document);
    if (version <= pair->high_version)
        tree_read_take(&pair->high, document);
    return TRUCE_OK;
}

truce_status truce__tree_pairs(const truce_tree_snapshot *snapshot, int64_t low, int64_t high,
                               const bson_t *ids, tree_pair_function *function, void *arg,
                               bson_error_t *error)
{
    const truce_tree *tree = snapshot->tree;
    struct pair pair = {snapshot,         low,      high, BSON_INITIALIZER, BSON_INITIALIZER,
                        BSON_INITIALIZER, function, arg};
    bson_t filter, *sort = BCON_NEW("tree", BCON_INT32(1), "itemId", BCON_INT32(1), "version",
                                    BCON_INT32(1), "token", BCON_INT32(1));
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status;

    truce__tree_filter(tree, &filter);
    BCON_APPEND(&filter, "itemId", "{", "$in", BCON_ARRAY(ids), "}", "version", "{", "$lte",
                BCON_INT64(low > high ? low : high), "}");
    status = tree_find_sorted(tree, &filter, sort, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document)
        status = pair_add(&pair, document, error);
    if (!status)
        status = pair_end(&pair, error);
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(sort);
    bson_destroy(&pair.id);
    bson_destroy(&pair.low);
    bson_destroy(&pair.high);
    return status;
}

/* ---- status ---------------------------------------------------------------------------------- */

static truce_status tree_count(truce_tree *tree, const char *collection, bson_t *filter,
                               const char *key, bson_t *status, bson_error_t *error)
{
    int64_t found = 0;
    truce_status result = truce_count(tree->store, collection, filter, NULL, &found, error);

    BSON_APPEND_INT64(status, key, found);
    bson_destroy(filter);
    return result;
}

/* Appends {tags: {TAG: version, ...}}. */
static truce_status append_tags(truce_tree *tree, bson_t *status, bson_error_t *error)
{
    bson_t *filter =
               BCON_NEW("tree", BCON_UTF8(tree->name), "tag", "{", "$exists", BCON_BOOL(true), "}"),
           tags;
    const bson_t *document;
    truce_cursor *cursor = NULL;
    truce_status result = truce_find(tree->store, TREE_HOLDS, filter, NULL, &cursor, error);

    BSON_APPEND_DOCUMENT_BEGIN(status, "tags", &tags);
    while (!result && !(result = truce_cursor_next(cursor, &document, error)) && document)
        BSON_APPEND_INT64(&tags, truce__field_text(document, "tag"),
                          truce__field_count(document, "version"));
    bson_append_document_end(status, &tags);
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return result;
}

static truce_status append_from(truce_tree *tree, bson_t *status, bson_error_t *error)
{
    struct tree_from from;
    truce_status result = truce__tree_from(tree, &from, error);

    if (!result && from.merges)
        BCON_APPEND(status, "from", "{", "tree", BCON_UTF8(from.tree), "theirs",
                    BCON_INT64(from.theirs), "ours", BCON_INT64(from.ours), "merges",
                    BCON_INT64(from.merges - 1), "}");
    return result;
}

/* Appends {branches: [name, ...]}, the trees that began as versions of this one, without dropped
 * ones. */
static truce_status append_branches(truce_tree *tree, bson_t *status, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("from.tree", BCON_UTF8(tree->name), "dropped", "{", "$exists",
                              BCON_BOOL(false), "}"),
           names;
    const bson_t *document;
    uint32_t index = 0;
    truce_cursor *cursor = NULL;
    truce_status result = truce_find(tree->store, TREES, filter, NULL, &cursor, error);

    BSON_APPEND_ARRAY_BEGIN(status, "branches", &names);
    while (!result && !(result = truce_cursor_next(cursor, &document, error)) && document)
        truce__value_append_element(&names, &index,
                                    truce__value_field(truce__value_document(document), "_id", 3));
    bson_append_array_end(status, &names);
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return result;
}

/* Appends what the master says about the tree. "kept" is the oldest version that can be read. */
static void append_master(const truce_tree *tree, const struct tree_master *master, bson_t *status)
{
    BSON_APPEND_UTF8(status, "tree", tree->name);
    BSON_APPEND_UTF8(status, "collection", tree->collection);
    if (tree->parent)
        BSON_APPEND_UTF8(status, "parent", tree->parent);
    BSON_APPEND_INT64(status, "current", master->current);
    if (master->current)
        BSON_APPEND_DATE_TIME(status, "at", master->at_ms);
    BSON_APPEND_INT64(status, "settled", master->settled);
    BSON_APPEND_INT64(status, "kept", truce__tree_oldest_version(master));
    if (master->keep.versions || master->keep.age_ms) {
        bson_t keep;

        BSON_APPEND_DOCUMENT_BEGIN(status, "keep", &keep);
        if (master->keep.versions)
            BSON_APPEND_INT64(&keep, "versions", master->keep.versions);
        if (master->keep.age_ms)
            BSON_APPEND_INT64(&keep, "age_ms", master->keep.age_ms);
        bson_append_document_end(status, &keep);
    }
}

truce_status truce_tree_status(truce_tree *tree, bson_t *status, bson_error_t *error)
{
    RETURN_IF_NULL(status, error);

    DEADLINE_SCOPE(tree->deadline_ms);
    struct tree_master master = {0};
    truce_status result = truce__tree_ready(tree, false, error);

    bson_init(status);
    if (!result)
        result = truce__tree_master(tree, &master, error);
    if (!result) {
        append_master(tree, &master, status);
        result = append_tags(tree, status, error);
    }
    if (!result)
        result = append_from(tree, status, error);
    if (!result)
        result = append_branches(tree, status, error);
    if (!result)
        result = tree_count(tree, TREE_HOLDS,
                            BCON_NEW("tree", BCON_UTF8(tree->name), "tag", "{", "$exists",
                                     BCON_BOOL(false), "}", "branch", "{", "$exists",
                                     BCON_BOOL(false), "}"),
                            "readers", status, error);
    if (!result)
        result = tree_count(tree, TREE_EDITS,
                            BCON_NEW("tree", BCON_UTF8(tree->name), "state", BCON_UTF8("open"),
                                     "version", "{", "$gt", BCON_INT64(master.current), "}"),
                            "edits", status, error);
    truce__tree_master_release(&master);
    return result;
}
