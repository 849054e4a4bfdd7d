/*
 * Many items of a snapshot: all of them, in the order of the index; or those that match, each looked up by its id, for another version of
 * it may be the one that counts. What is handed out has passed the second look at the master, a batch at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/reserved_fields.h"
#include "patterns/tree/tree.h"
#include "query/incoming.h"
#include "store/reserved.h"

#define CANDIDATES 500

/* ---- handing out ------------------------------------------------------------------------------- */

struct handing {
    truce_tree_snapshot *snapshot;
    truce_tree_function *function;
    void *arg;
    int64_t left; /* of the limit */
    bool enough;
};

static void find_hand(struct handing *handing, const bson_t *item)
{
    if (handing->enough)
        return;
    handing->enough = !handing->function(item, handing->arg) || !--handing->left;
}

/* ---- all items --------------------------------------------------------------------------------- */

/* An item as it is shown, in the arena. */
struct shown {
    uint8_t *bytes;
    uint32_t size;
};

struct walk {
    struct handing handing;
    struct arena arena;   /* of the batch */
    struct shown best;    /* of the item that is being read */
    uint32_t best_room;   /* bytes of `best` */
    struct value best_id; /* in `best`; missing: none */
    bool removed;         /* ... it is */
    struct shown items[TREE_BATCH];
    uint32_t count;
    bson_t *last;  /* {itemId} that was handed out, ... */
    bool skipping; /* ... up to which nothing is handed out again */
};

static void walk_forget(struct walk *walk)
{
    walk->count = 0;
    walk->best_id = truce__value_missing();
    truce__arena_reset(&walk->arena);
}

static void view(const struct shown *shown, bson_t *item)
{
    truce_assert(bson_init_static(item, shown->bytes, shown->size));
}

/* CONFLICT: what is gathered has to be read again. The item that is being read is not among it. */
static truce_status walk_hand(struct walk *walk, bson_error_t *error)
{
    truce_status status = truce__tree_still(walk->handing.snapshot, error);
    bson_t item;

    for (uint32_t i = 0; !status && i < walk->count; i++) {
        view(&walk->items[i], &item);
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

static truce_status walk_add(struct walk *walk, const bson_t *document, bson_error_t *error)
{
    struct tree_item item;
    truce_status status = TRUCE_OK;
    bson_t shown;

    truce__tree_look(document, &item);
    if (item.version > walk->handing.snapshot->version)
        return TRUCE_OK;
    if (walk->skipping && !bson_empty(walk->last) &&
        truce__value_compare(item.id, truce__tree_item_id(walk->last)) <= 0)
        return TRUCE_OK;
    walk->skipping = false;
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
    view(&walk->best, &shown);
    walk->best_id = truce__tree_item_id(&shown);
    walk->removed = item.absent;
    return TRUCE_OK;
}

truce_status truce__tree_find_sorted(const truce_tree *tree, const bson_t *filter,
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

/* From what was handed out last. */
static truce_status walk_once(struct walk *walk, bson_error_t *error)
{
    const truce_tree_snapshot *snapshot = walk->handing.snapshot;
    const truce_tree *tree = snapshot->tree;
    bson_t filter, *sort = BCON_NEW("tree", BCON_INT32(1), "itemId", BCON_INT32(1), "version",
                                    BCON_INT32(1), "token", BCON_INT32(1));
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status;

    truce__tree_filter(tree, &filter); /* it costs less to look at `version` here */
    status = truce__tree_find_sorted(tree, &filter, sort, &cursor, error);
    while (!status && !walk->handing.enough &&
           !(status = truce_cursor_next(cursor, &document, error)) && document)
        status = walk_add(walk, document, error);
    if (!status)
        status = walk_end_item(walk, error);
    if (!status && !walk->handing.enough)
        status = walk_hand(walk, error);
    walk_forget(walk);
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status;
}

static truce_status tree_find_find_all(struct handing *handing, bson_error_t *error)
{
    struct walk *walk = bson_malloc0(sizeof *walk);
    truce_status status;

    walk->handing = *handing;
    walk->last = bson_new();
    do {
        walk->skipping = true;
        status = walk_once(walk, error);
    } while (status == TRUCE_CONFLICT);
    bson_destroy(walk->last);
    truce__arena_release(&walk->arena);
    bson_free(walk->best.bytes);
    bson_free(walk);
    return status;
}

/* ---- some items -------------------------------------------------------------------------------- */

/* Items that match, of any version: what counts is whether it is the one of the snapshot. */
struct candidates {
    struct handing *handing;
    uint32_t count;
    size_t bytes; /* of the items */
    struct candidate {
        bson_t *keys; /* {_id, itemId} */
        bson_t *item; /* as it is shown; NULL: it is not in the version */
    } all[CANDIDATES];
    uint32_t order[CANDIDATES]; /* by itemId */
};

static int by_item(const void *a, const void *b, void *arg)
{
    const struct candidates *candidates = arg;

    return truce__value_compare(truce__tree_item_id(candidates->all[*(const uint32_t *)a].keys),
                                truce__tree_item_id(candidates->all[*(const uint32_t *)b].keys));
}

/* A tree_pair_function. */
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
    if (!function)
        return truce__fail(TRUCE_INVALID, error, "%s needs a function", __func__);
    DEADLINE_SCOPE(snapshot->tree->deadline_ms);
    struct handing handing = {snapshot, function, arg, -1, false};
    const bson_t *sort = options ? options->sort : NULL;
    truce_status status = ROOM_CHECK(options, "truce_tree_find_options", error);

    if (!status && options && options->limit < 0)
        status = truce__fail(TRUCE_INVALID, error, "limit is below zero");
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
                          : tree_find_find_all(&handing, error);
}
