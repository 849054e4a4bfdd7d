/* Edits: the check of the tree's shape, records, items before publication, publish, and settle
 * (TR1, TR3, TR4, TR6, TR8, and TR12 of tree.c). */
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/reserved_fields.h"
#include "bson/field_name_escape.h"
#include "bson/value_set.h"
#include "commit/commit.h"
#include "patterns/tree/tree.h"
#include "query/input_check.h"
#include "store/reserved_names.h"
#include "store/snapshot_view.h"

/* ---- the shape ------------------------------------------------------------------------------- */

/*
 * The shape that an edit would leave: every parent exists, and no item is its own ancestor.
 *
 * The check reads the edit's items over its base: each item that is put and its ancestors, and the
 * children of each removed item. The base is still current when the edit is published (TR1), so the
 * result holds.
 */

struct shape {
    truce_tree_edit *edit;
    truce_tree_snapshot base;
    struct arena arena;
    /* The items of the edit, each with the index of its node. */
    struct value_set own;
    /* The items that a climb has passed, each with the number of the climb. */
    struct value_set seen;
    struct node {
        /* The id of the item and of its parent. The parent of a root is missing. */
        struct value id, parent;
        bool removed;
    } * nodes;
    size_t count, room;
    /* The id of the removed item whose children are being read. */
    struct value removed;
    bson_error_t *error;
    truce_status status;
};

static struct value parent_of(const struct shape *shape, const bson_t *item)
{
    const char *field = shape->edit->tree->parent;
    struct value parent =
        truce__value_field(truce__value_document(item), field, (uint32_t)strlen(field));

    return parent.type == BSON_TYPE_NULL ? truce__value_missing() : parent;
}

/* Adds an item of the edit to the nodes: its id, its parent, and whether the edit removes it (a
 * tree_own_function). */
static truce_status shape_take_own(const bson_t *document, void *arg, bson_error_t *error)
{
    struct shape *shape = arg;
    struct value parent = parent_of(shape, document);

    (void)error;
    if (shape->count == shape->room) {
        shape->room = shape->room ? 2 * shape->room : 256;
        shape->nodes = bson_realloc(shape->nodes, shape->room * sizeof *shape->nodes);
    }
    shape->nodes[shape->count++] =
        (struct node){truce__value_copy(&shape->arena, truce__tree_item_id(document)),
                      parent.type ? truce__value_copy(&shape->arena, parent) : parent,
                      truce__tree_absent(document)};
    return TRUCE_OK;
}

static const struct node *shape_own(const struct shape *shape, struct value id)
{
    uint32_t number;

    return truce__value_set_number(&shape->own, id, &number) ? &shape->nodes[number - 1] : NULL;
}

/* Finds the parent of an item after the edit. Returns TRUCE_NOT_FOUND if there is no such item. */
static truce_status shape_look_up(struct shape *shape, struct value id, struct value *parent)
{
    const struct node *node = shape_own(shape, id);
    bson_t holder = BSON_INITIALIZER, item;
    bson_error_t unused;
    bson_iter_t iter;
    truce_status status;

    *parent = node ? node->parent : truce__value_missing();
    if (node)
        return node->removed ? TRUCE_NOT_FOUND : TRUCE_OK;
    truce__value_append(&holder, "itemId", 6, id);
    bson_iter_init_find(&iter, &holder, "itemId");
    status = truce_tree_get(&shape->base, bson_iter_value(&iter), &item, &unused);
    if (!status && parent_of(shape, &item).type)
        *parent = truce__value_copy(&shape->arena, parent_of(shape, &item));
    if (status && status != TRUCE_NOT_FOUND && shape->error)
        *shape->error = unused;
    bson_destroy(&item);
    bson_destroy(&holder);
    return status;
}

static truce_status shape_refuse(const struct shape *shape, struct value child, struct value parent,
                                 const char *why)
{
    char one[150], other[150];

    return truce__fail(TRUCE_INVALID, shape->error, "item %s has the parent %s, %s",
                       truce__value_show(child, one, sizeof one),
                       truce__value_show(parent, other, sizeof other), why);
}

/* Climbs from an item that was put to a root, or to an item that is known to reach one. */
static truce_status shape_climb_to_root(struct shape *shape, const struct node *node,
                                        uint32_t number)
{
    struct value child = node->id, parent = node->parent;
    truce_status status = TRUCE_OK;
    struct value above;
    uint32_t seen;

    for (int depth = 0; !status && !truce__value_set_number(&shape->seen, child, &seen); depth++) {
        (void)truce__value_set_add_number(&shape->seen, child, number);
        if (!parent.type)
            return TRUCE_OK;
        if (depth == TREE_DEPTH_MAX)
            return truce__fail(TRUCE_LIMIT, shape->error,
                               "the tree has more than %d levels, which is the maximum",
                               TREE_DEPTH_MAX);
        if (truce__value_set_number(&shape->seen, parent, &seen) && seen == number)
            return shape_refuse(shape, child, parent, "which is its descendant: a cycle");
        status = shape_look_up(shape, parent, &above);
        if (status == TRUCE_NOT_FOUND)
            return shape_refuse(shape, child, parent, "which does not exist");
        child = parent;
        parent = above;
    }
    return status;
}

/* Refuses a child of a removed item, as the base has it, unless the edit has the child, too (a
 * truce_tree_function). */
static bool shape_refuse_orphan(const bson_t *item, void *arg)
{
    struct shape *shape = arg;

    /* The edit itself moves or removes the child. A moved child is checked from its own parents. */
    if (shape_own(shape, truce__tree_item_id(item)))
        return true;
    shape->status =
        shape_refuse(shape, truce__tree_item_id(item), shape->removed, "which would be removed");
    return false;
}

static truce_status shape_check_orphans(struct shape *shape, const struct node *node)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    shape->removed = node->id;
    truce__tree_append_id(&filter, shape->edit->tree->parent, node->id);
    status = truce_tree_find(&shape->base, &filter, NULL, shape_refuse_orphan, shape, shape->error);
    bson_destroy(&filter);
    return status ? status : shape->status;
}

/* Reads the items of the edit and checks each of them: the children of a removed item, and the
 * ancestors of an item that was put. */
static truce_status shape_begin(struct shape *shape, bson_error_t *error)
{
    const truce_tree_edit *edit = shape->edit;
    truce_status status =
        truce__tree_own(edit->tree, edit->base + 1, &edit->token, shape_take_own, shape, error);

    if (status)
        return status;
    truce__value_set_begin(&shape->own, &shape->arena, (uint32_t)shape->count);
    truce__value_set_begin(&shape->seen, &shape->arena, (uint32_t)shape->count);
    for (size_t i = 0; i < shape->count; i++)
        (void)truce__value_set_add_number(&shape->own, shape->nodes[i].id, (uint32_t)i + 1);
    for (size_t i = 0; !status && i < shape->count; i++)
        status = shape->nodes[i].removed
                     ? shape_check_orphans(shape, &shape->nodes[i])
                     : shape_climb_to_root(shape, &shape->nodes[i], (uint32_t)i + 1);
    return status;
}

/* Returns TRUCE_INVALID if the edit would leave an orphan or a cycle, and TRUCE_LIMIT if the tree
 * has too many levels. */
static truce_status tree_check_shape(truce_tree_edit *edit, bson_error_t *error)
{
    struct shape shape = {.edit = edit, .error = error};
    truce_status status = truce__tree_open(edit->tree, edit->base, &shape.base, error);

    if (!status)
        status = shape_begin(&shape, error);
    truce__tree_leave(&shape.base);
    bson_free(shape.nodes);
    truce__arena_release(&shape.arena);
    return status;
}

/* ---- the edit -------------------------------------------------------------------------------- */

/* The time after which a write of items renews the record of the edit. */
#define RENEW_MS (TREE_EDIT_MS / 24)

/* ---- records --------------------------------------------------------------------------------- */

/* Makes the record of the edit. `since` is stored as "from" if the caller did not give it. */
static bson_t *edit_make_record(const truce_tree_edit *edit, int64_t now_ms)
{
    bson_t *document = BCON_NEW("_id", BCON_OID(&edit->token), "tree", BCON_UTF8(edit->tree->name),
                                "version", BCON_INT64(edit->base + 1), "state", BCON_UTF8("open"),
                                "begun", BCON_DATE_TIME(now_ms), "renewed", BCON_DATE_TIME(now_ms),
                                "ms", BCON_INT64(TREE_EDIT_MS));

    if (edit->message)
        BSON_APPEND_UTF8(document, "message", edit->message);
    if (edit->author)
        BSON_APPEND_UTF8(document, "author", edit->author);
    if (edit->imported)
        BSON_APPEND_OID(document, "origin", &edit->origin);
    if (edit->has_id)
        BCON_APPEND(document, "request", "{", "id", BCON_OID(&edit->id),
                    edit->since_given ? "since" : "from", BCON_INT64(edit->since), "}");
    return document;
}

/* Inserts the record before the first items (TR8). DUPLICATE means that an earlier send took
 * effect. */
static truce_status edit_write_record(truce_tree_edit *edit, bson_error_t *error)
{
    truce_write_options options = {.relaxed = truce__tree_relaxed(edit->tree)};
    int64_t now_ns = truce__clock_monotonic_ns(), now_ms = truce__clock_wall_ms();
    bson_t *document = edit_make_record(edit, now_ms);
    struct worker worker;
    truce_status status;

    truce__worker_init(&worker, edit->tree->store, edit->tree->deadline_ms);
    do
        status = truce_insert(edit->tree->store, TREE_EDITS, document, &options, error);
    while (truce__worker_repeats(&worker, status, "the store"));
    bson_destroy(document);
    if (status && status != TRUCE_DUPLICATE)
        return status;
    edit->recorded = true;
    edit->renewed_ns = now_ns;
    edit->renewed_ms = now_ms;
    return TRUCE_OK;
}

/* Sets fields of a record that is open and matches `guard`; repeats the write until it gets a
 * reply. Sets *done if the record matched. Takes over `guard` and `set`. */
static truce_status edit_write_open(truce_tree *tree, const bson_oid_t *token, bson_t *guard,
                                    bson_t *set, bool *done, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER;
    truce_write_result result = {0};
    struct worker worker;
    truce_status status;

    *done = false;
    BCON_APPEND(guard, "_id", BCON_OID(token), "tree", BCON_UTF8(tree->name), "state",
                BCON_UTF8("open"));
    BSON_APPEND_DOCUMENT(&update, "$set", set);
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    do {
        status = truce_update(tree->store, TREE_EDITS, guard, &update, NULL, &result, error);
        *done = *done || (!status && result.matched);
        truce_write_result_release(&result);
    } while (truce__worker_repeats(&worker, status, "the store"));
    bson_destroy(&update);
    bson_destroy(set);
    bson_destroy(guard);
    return status;
}

truce_status truce__tree_renew(truce_tree *tree, const bson_oid_t *token, int64_t *renewed_ms,
                               bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    char text[25];
    bool done;
    truce_status status;

    *renewed_ms = now_ms > *renewed_ms ? now_ms : *renewed_ms + 1;
    status = edit_write_open(tree, token, bson_new(),
                             BCON_NEW("renewed", BCON_DATE_TIME(*renewed_ms)), &done, error);
    bson_oid_to_string(token, text);
    if (!status && !done)
        status = truce__fail(TRUCE_NOT_FOUND, error,
                             "the edit %s of tree \"%s\" does not exist, or has ended", text,
                             tree->name);
    return status;
}

truce_status truce__tree_give_up(truce_tree *tree, const bson_oid_t *token, int64_t renewed_ms,
                                 bool *done, bson_error_t *error)
{
    bson_t *guard = bson_new();

    if (renewed_ms)
        BSON_APPEND_DATE_TIME(guard, "renewed", renewed_ms);
    return edit_write_open(tree, token, guard, BCON_NEW("state", BCON_UTF8("given up")), done,
                           error);
}

/* ---- begin ----------------------------------------------------------------------------------- */

truce_tree_edit *truce__tree_edit_new(truce_tree *tree, const struct tree_master *master,
                                      int64_t base, const char *message, const char *author)
{
    truce_tree_edit *edit = bson_malloc0(sizeof *edit);

    edit->tree = tree;
    edit->born = master->born;
    edit->base = base;
    edit->base_at_ms = base == master->current ? master->at_ms : 0;
    edit->message = bson_strdup(message);
    edit->author = bson_strdup(author);
    truce__id_new(&edit->token);
    return edit;
}

static truce_status edit_check_text(const char *text, const char *what, bson_error_t *error)
{
    size_t length = text ? strlen(text) : 0;

    if (length > TREE_TEXT_MAX || (text && !bson_utf8_validate(text, length, false)))
        return truce__fail(TRUCE_INVALID, error,
                           "the %s has %zu bytes: expected at most %d bytes of UTF-8", what, length,
                           TREE_TEXT_MAX);
    return TRUCE_OK;
}

static truce_status edit_check_options(const truce_tree_edit_options *options, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_tree_edit_options", error);

    if (!status && options)
        status = edit_check_text(options->message, "message", error);
    if (!status && options)
        status = edit_check_text(options->author, "author", error);
    return status;
}

/* Puts an item of the old edit into the new one. */
static truce_status take_over(const bson_t *document, void *arg, bson_error_t *error)
{
    bson_t item = BSON_INITIALIZER;
    truce_status status;

    truce__tree_show(document, &item);
    if (truce__tree_absent(document)) {
        bson_iter_t iter;

        status = bson_iter_init_find(&iter, document, "itemId")
                     ? truce_tree_remove(arg, bson_iter_value(&iter), error)
                     : TRUCE_OK;
    } else {
        status = truce_tree_put(arg, &item, error);
    }
    bson_destroy(&item);
    return status;
}

static void take_request(truce_tree_edit *edit, const bson_t *record)
{
    bson_t request;
    bson_iter_t id;

    if (edit->has_id || !truce__value_subdocument(record, "request", &request) ||
        !bson_iter_init_find(&id, &request, "id") || !BSON_ITER_HOLDS_OID(&id))
        return;
    edit->has_id = true;
    bson_oid_copy(bson_iter_oid(&id), &edit->id);
    edit->since = truce__field_count(&request, "since");
    edit->since_given = bson_has_field(&request, "since");
}

/* Copies the items under a new token. The process that began the old edit may still write items
 * with its token. */
static truce_status edit_resume(truce_tree_edit *edit, const bson_oid_t *token, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(token)), found;
    truce_status status =
        truce_find_one(edit->tree->store, TREE_EDITS, filter, NULL, &found, error);
    int64_t renewed_ms = truce__field_date(&found, "renewed");
    bool done;

    if (!status || status == TRUCE_NOT_FOUND)
        status = truce__tree_renew(edit->tree, token, &renewed_ms, error);
    if (!status) {
        edit->base = truce__field_count(&found, "version") - 1;
        edit->base_at_ms = 0;
        if (!edit->message && *truce__field_text(&found, "message"))
            edit->message = bson_strdup(truce__field_text(&found, "message"));
        if (!edit->author && *truce__field_text(&found, "author"))
            edit->author = bson_strdup(truce__field_text(&found, "author"));
        take_request(edit, &found);
        status = truce__tree_own(edit->tree, edit->base + 1, token, take_over, edit, error);
    }
    if (!status)
        status = truce_tree_flush(edit, error);
    if (!status)
        /* The record is renewed after its items were read (TR8). */
        status = truce__tree_renew(edit->tree, token, &renewed_ms, error);
    if (!status)
        status = truce__tree_give_up(edit->tree, token, 0, &done, error);
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* Reads the master, and creates the tree if it does not exist: it may have been dropped since the
 * handle found it. */
static truce_status read_or_make(truce_tree *tree, struct tree_master *master, bson_error_t *error)
{
    truce_status status = truce__tree_master(tree, master, error);

    if (status != TRUCE_NOT_FOUND)
        return status;
    status = truce__tree_make(tree, error);
    return status ? status : truce__tree_master(tree, master, error);
}

truce_status truce_tree_begin(truce_tree *tree, const truce_tree_edit_options *options,
                              truce_tree_edit **edit, bson_error_t *error)
{
    RETURN_IF_NULL(edit, error);

    DEADLINE_SCOPE(tree->deadline_ms);
    static const truce_tree_edit_options nothing;
    struct tree_master master = {0};
    truce_status status = edit_check_options(options, error);

    *edit = NULL;
    options = options ? options : &nothing;
    if (!status)
        status = truce__tree_ready(tree, true, error);
    if (!status)
        status = truce__view_guard(tree->store, "write", tree->collection, error);
    if (!status)
        status = read_or_make(tree, &master, error);
    if (!status && (options->base < 0 || options->base > master.current))
        status = truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no version %" PRId64,
                             tree->name, options->base);
    if (!status) {
        *edit = truce__tree_edit_new(tree, &master, options->base ? options->base : master.current,
                                     options->message, options->author);
        if (options->id) {
            (*edit)->has_id = true;
            bson_oid_copy(options->id, &(*edit)->id);
            (*edit)->since = options->base;
            (*edit)->since_given = options->base != 0;
        }
        if (options->token)
            status = edit_resume(*edit, options->token, error);
    }
    if (status) {
        truce_tree_edit_free(*edit);
        *edit = NULL;
    }
    truce__tree_master_release(&master);
    return status;
}

void truce_tree_edit_free(truce_tree_edit *edit)
{
    if (!edit)
        return;
    for (uint32_t i = 0; i < edit->count; i++)
        bson_destroy(edit->items[i]);
    bson_free(edit->message);
    bson_free(edit->author);
    bson_free(edit);
}

const bson_oid_t *truce_tree_edit_token(const truce_tree_edit *edit)
{
    return &edit->token;
}

int64_t truce_tree_edit_base(const truce_tree_edit *edit)
{
    return edit->base;
}

truce_status truce_tree_abandon(truce_tree_edit *edit, bson_error_t *error)
{
    DEADLINE_SCOPE(edit->tree->deadline_ms);
    bool done;

    return edit->recorded ? truce__tree_give_up(edit->tree, &edit->token, 0, &done, error)
                          : TRUCE_OK;
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* Adds an item to the gathered ones, and takes over `item`. */
static truce_status edit_gather(truce_tree_edit *edit, struct value id, bson_t *item,
                                bson_error_t *error)
{
    uint64_t hash = truce__value_hash(id);
    truce_status status = TRUCE_OK;

    if (edit->published)
        status =
            truce__fail(TRUCE_INVALID, error, "the edit was already published: begin another one");
    for (uint32_t i = 0; !status && i < edit->count; i++) {
        if (edit->hashes[i] != hash || !truce__value_equal(truce__tree_item_id(edit->items[i]), id))
            continue;
        edit->bytes = edit->bytes - edit->items[i]->len + item->len;
        bson_destroy(edit->items[i]);
        edit->items[i] = item;
        return TRUCE_OK;
    }
    if (!status && (edit->count == TREE_BATCH || edit->bytes + item->len > TREE_BATCH_BYTES))
        status = truce_tree_flush(edit, error);
    if (status) {
        bson_destroy(item);
        return status;
    }
    edit->hashes[edit->count] = hash;
    edit->items[edit->count++] = item;
    edit->bytes += item->len;
    return TRUCE_OK;
}

truce_status truce_tree_put(truce_tree_edit *edit, const bson_t *item, bson_error_t *error)
{
    RETURN_IF_NULL(item, error);

    DEADLINE_SCOPE(edit->tree->deadline_ms);
    struct value id;
    truce_status status = truce__tree_item_check(item, &id, error);

    return status ? status : edit_gather(edit, id, bson_copy(item), error);
}

truce_status truce_tree_remove(truce_tree_edit *edit, const bson_value_t *item, bson_error_t *error)
{
    RETURN_IF_NULL(item, error);

    DEADLINE_SCOPE(edit->tree->deadline_ms);
    bson_t *document;
    struct value id;
    truce_status status = truce__check_value(item, "itemId", error);

    if (status)
        return status;
    document = bson_new();
    BSON_APPEND_VALUE(document, "itemId", item);
    status = truce__tree_item_check(document, &id, error);
    if (status) {
        bson_destroy(document);
        return status;
    }
    BSON_APPEND_BOOL(document, "removed", true);
    return edit_gather(edit, id, document, error);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void own_filter(const truce_tree_edit *edit, struct value id, bson_t *filter)
{
    truce__tree_filter(edit->tree, filter);
    truce__tree_append_id(filter, "itemId", id);
    BSON_APPEND_INT64(filter, "version", edit->base + 1);
    BSON_APPEND_OID(filter, "token", &edit->token);
}

/* Replaces an item that this edit, or an attempt without a reply, wrote before: {_id, edited: as
 * read} -> the next. Returns TRUCE_CONFLICT if the caller should read the document again. */
static truce_status edit_replace(truce_tree_edit *edit, const bson_t *item, bson_error_t *error)
{
    struct value id = truce__tree_item_id(item);
    truce_write_options options = {.relaxed = truce__tree_relaxed(edit->tree)};
    truce_write_result result = {0};
    bson_t filter, found, guard = BSON_INITIALIZER, document = BSON_INITIALIZER;
    int64_t edited;
    bson_value_t there;
    truce_status status;

    own_filter(edit, id, &filter);
    status =
        truce_find_one(edit->tree->store, edit->tree->collection, &filter, NULL, &found, error);
    if (!status && !truce__tree_same(&found, item)) {
        edited = truce__field_count(&found, "edited");
        there = truce__document_id(&found);
        BSON_APPEND_VALUE(&guard, "_id", &there);
        if (edited)
            BSON_APPEND_INT64(&guard, "edited", edited);
        else
            BCON_APPEND(&guard, "edited", "{", "$exists", BCON_BOOL(false), "}");
        /* Invariant TR13. */
        truce__intent_append_absent(&guard);
        truce__tree_item_document(edit->tree, edit->base + 1, &edit->token, id,
                                  truce__tree_absent(item) ? NULL : item, &document);
        BSON_APPEND_INT64(&document, "edited", edited + 1);
        bson_t whole = BSON_INITIALIZER;
        bson_copy_to_excluding_noinit(&document, &whole, "_id", NULL);
        status = truce_update(edit->tree->store, edit->tree->collection, &guard, &whole, &options,
                              &result, error);
        if (!status && !result.matched) {
            status = truce__tree_await(edit->tree, edit->tree->collection, &filter, error);
            status = status ? status : TRUCE_CONFLICT;
        }
        truce_write_result_release(&result);
        bson_destroy(&whole);
    }
    bson_destroy(&document);
    bson_destroy(&guard);
    bson_destroy(&found);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_CONFLICT : status;
}

/* Writes the gathered items. The first `edit->count` items are then those that could not be
 * written. Returns TRUCE_OK if no item remains, otherwise the status of a failed write: if
 * possible, of one that repeating does not help. */
static truce_status write_gathered(truce_tree_edit *edit, bson_error_t *error)
{
    truce_bulk_options options = {.unordered = true, .relaxed = truce__tree_relaxed(edit->tree)};
    truce_write *writes = bson_malloc0(edit->count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(edit->count * sizeof *outcomes);
    bson_t *documents = bson_malloc(edit->count * sizeof *documents);
    uint32_t left = 0;
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < edit->count; i++) {
        const bson_t *item = edit->items[i];

        bson_init(&documents[i]);
        truce__tree_item_document(edit->tree, edit->base + 1, &edit->token,
                                  truce__tree_item_id(item), truce__tree_absent(item) ? NULL : item,
                                  &documents[i]);
        writes[i] = (truce_write){.kind = TRUCE_WRITE_INSERT,
                                  .collection = edit->tree->collection,
                                  .document = &documents[i]};
    }
    (void)!truce_bulk(edit->tree->store, writes, edit->count, &options, outcomes, error);
    for (uint32_t i = 0; i < edit->count; i++) {
        truce_status one = outcomes[i].status;

        if (one == TRUCE_DUPLICATE)
            one = edit_replace(edit, edit->items[i], &outcomes[i].error);
        if (one == TRUCE_OK) {
            edit->bytes -= edit->items[i]->len;
            edit->written++;
            bson_destroy(edit->items[i]);
        } else {
            edit->hashes[left] = edit->hashes[i];
            edit->items[left++] = edit->items[i];
            if (!status || truce__repeatable(status)) {
                status = one;
                if (error)
                    *error = outcomes[i].error;
            }
        }
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&documents[i]);
    }
    edit->count = left;
    bson_free(documents);
    bson_free(outcomes);
    bson_free(writes);
    return status;
}

truce_status truce_tree_flush(truce_tree_edit *edit, bson_error_t *error)
{
    DEADLINE_SCOPE(edit->tree->deadline_ms);
    struct worker worker;
    truce_status status = TRUCE_OK;

    truce__worker_init(&worker, edit->tree->store, edit->tree->deadline_ms);
    if ((edit->count || edit->even_empty) && !edit->recorded)
        status = edit_write_record(edit, error);
    else if (edit->count &&
             truce__clock_monotonic_ns() - edit->renewed_ns > RENEW_MS * INT64_C(1000000)) {
        edit->renewed_ns = truce__clock_monotonic_ns();
        status = truce__tree_renew(edit->tree, &edit->token, &edit->renewed_ms, error);
    }
    while (!status && edit->count) {
        status = write_gathered(edit, error);
        if (!truce__worker_repeats(&worker, status, "the store"))
            break;
        status = TRUCE_OK;
    }
    return status;
}

/* ---- the items of an edit -------------------------------------------------------------------- */

truce_status truce__tree_own(truce_tree *tree, int64_t version, const bson_oid_t *token,
                             tree_own_function *function, void *arg, bson_error_t *error)
{
    bson_t filter;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    truce__tree_filter(tree, &filter);
    BSON_APPEND_INT64(&filter, "version", version);
    BSON_APPEND_OID(&filter, "token", token);
    status = truce_find(tree->store, tree->collection, &filter, NULL, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document)
        status = function(document, arg, error);
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* ---- tree publish ---------------------------------------------------------------------------- */

/* ---- settle ---------------------------------------------------------------------------------- */

/*
 * Settling stamps the items of a published version; then the version's token leaves the master (TR4
 * and TR6 of tree.c).
 *
 * A sweeper that is paused between the read and a stamp stamps only _ids that existed when the
 * version was unsettled. Items that take effect late have other _ids. So any number of concurrent
 * sweepers is safe, however long they pause.
 */

/* The number of _ids in one write of stamps. */
#define STAMPS 500

struct settling {
    truce_tree *tree;
    int64_t version;
    struct tree_version published;
    /* The _ids to stamp, in arrays of up to STAMPS. Owned. */
    bson_t **ids;
    /* The number of arrays. */
    size_t count;
    /* The number of _ids in the last array. */
    uint32_t last;
};

static void take_id(struct settling *settling, const bson_value_t *id)
{
    char key[12];

    if (!settling->count || settling->last == STAMPS) {
        settling->ids = bson_realloc(settling->ids, (settling->count + 1) * sizeof *settling->ids);
        settling->ids[settling->count++] = bson_new();
        settling->last = 0;
    }
    snprintf(key, sizeof key, "%u", settling->last++);
    BSON_APPEND_VALUE(settling->ids[settling->count - 1], key, id);
}

static void forget_ids(struct settling *settling)
{
    for (size_t i = 0; i < settling->count; i++)
        bson_destroy(settling->ids[i]);
    bson_free(settling->ids);
    settling->ids = NULL;
    settling->count = 0;
}

/* Reads the items of the version that have no stamp. */
static truce_status tree_settle_read_items(struct settling *settling, bson_error_t *error)
{
    bson_t filter, *only_id = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {.projection = only_id};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    truce__tree_filter(settling->tree, &filter);
    BSON_APPEND_INT64(&filter, "version", settling->version);
    BSON_APPEND_OID(&filter, "token", &settling->published.token);
    BCON_APPEND(&filter, "pub", "{", "$exists", BCON_BOOL(false), "}");
    status = truce_find(settling->tree->store, settling->tree->collection, &filter, &options,
                        &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        bson_value_t id = truce__document_id(document);

        take_id(settling, &id);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(only_id);
    return status;
}

/* Finds the first unsettled version. Returns false if all are settled. */
static bool take_first(struct settling *settling, const struct tree_master *master)
{
    if (master->settled >= master->current)
        return false;
    settling->version = master->settled + 1;
    settling->published = master->published[0];
    return true;
}

/* Sets *mine to whether the version is still the first unsettled one. */
static truce_status settle_is_first(struct settling *settling, bool *mine,
                                    struct tree_master *master, bson_error_t *error)
{
    truce_status status = truce__tree_master(settling->tree, master, error);

    *mine = !status && master->settled < master->current &&
            settling->version == master->settled + 1 &&
            bson_oid_equal(&settling->published.token, &master->published[0].token);
    return status;
}

/* Writes stamps to the documents that match. Sets *matched to their number. */
static truce_status write_stamps(struct settling *settling, const char *collection, bson_t *filter,
                                 bson_t *update, int64_t *matched, bson_error_t *error)
{
    truce_write_options options = {.multi = true, .relaxed = truce__tree_relaxed(settling->tree)};
    truce_write_result result = {0};
    struct worker worker;
    truce_status status;

    truce__worker_init(&worker, settling->tree->store, settling->tree->deadline_ms);
    do {
        status = truce_update(settling->tree->store, collection, filter, update, &options, &result,
                              error);
        *matched = result.matched;
        truce_write_result_release(&result);
    } while (truce__worker_repeats(&worker, status, "the store"));
    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

/* Stamps one array of items, except those that a commit holds. Sets *all to whether each has a
 * stamp. */
static truce_status settle_stamp_some(struct settling *settling, const bson_t *ids, uint32_t count,
                                      bool *all, bson_error_t *error)
{
    truce_tree *tree = settling->tree;
    bson_t *filter = BCON_NEW("_id", "{", "$in", BCON_ARRAY(ids), "}", "pub", "{", "$exists",
                              BCON_BOOL(false), "}");
    int64_t matched;
    bool left = false;
    truce_status status =
        write_stamps(settling, tree->collection, truce__tree_unheld(filter),
                     BCON_NEW("$set", "{", "pub", BCON_BOOL(true), "}"), &matched, error);

    /* Another sweeper may have stamped some of them, or a commit holds some. */
    if (!status && matched < count)
        status = truce__tree_any(tree, tree->collection, filter, &left, error);
    /* Invariant TR13. */
    *all = !left;
    bson_destroy(filter);
    return status;
}

static truce_status settle_stamp(struct settling *settling, bool *all, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *all = true;
    for (size_t i = 0; !status && *all && i < settling->count; i++)
        status = settle_stamp_some(settling, settling->ids[i],
                                   i + 1 < settling->count ? STAMPS : settling->last, all, error);
    return status;
}

static truce_status stamp_record(struct settling *settling, bson_error_t *error)
{
    int64_t matched;

    return write_stamps(settling, TREE_EDITS, BCON_NEW("_id", BCON_OID(&settling->published.token)),
                        BCON_NEW("$set", "{", "pub", BCON_BOOL(true), "state",
                                 BCON_UTF8("published"), "at",
                                 BCON_DATE_TIME(settling->published.at_ms), "}"),
                        &matched, error);
}

/* Reads the items, THEN the master again, THEN writes the stamps. Sets `mine` if the version is
 * still unsettled, and `all` if each of its items has a stamp then. */
static truce_status stamp_all(struct settling *settling, struct tree_master *master, bool *mine,
                              bool *all, bson_error_t *error)
{
    truce_status status = tree_settle_read_items(settling, error);

    truce__tree_master_release(master);
    if (!status)
        status = settle_is_first(settling, mine, master, error);
    return status || !*mine ? status : settle_stamp(settling, all, error);
}

/* Settles the first unsettled version of a master that was just read, and reads the master once
 * more. Clears *done if there is no such version, or a commit holds an item of it. */
static truce_status tree_settle_first(truce_tree *tree, struct tree_master *master, bool *done,
                                      bson_error_t *error)
{
    struct settling settling = {.tree = tree};
    bool mine = false, all = true, written;
    truce_status status = TRUCE_OK;

    *done = take_first(&settling, master);
    if (*done)
        status = stamp_all(&settling, master, &mine, &all, error);
    /* Invariant TR13. */
    if (!all)
        *done = mine = false;
    if (!status && mine)
        status = stamp_record(&settling, error);
    if (!status && mine)
        status = truce__tree_write_master(tree, master,
                                          BCON_NEW("settled", BCON_INT64(settling.version - 1)),
                                          BCON_NEW("$inc", "{", "settled", BCON_INT64(1), "}",
                                                   "$pop", "{", "published", BCON_INT32(-1), "}"),
                                          &written, error);
    forget_ids(&settling);
    return status;
}

truce_status truce__tree_settle(truce_tree *tree, bool *done, bson_error_t *error)
{
    struct tree_master master = {0};
    truce_status status = truce__tree_master(tree, &master, error);

    *done = false;
    if (!status)
        status = tree_settle_first(tree, &master, done, error);
    truce__tree_master_release(&master);
    return status;
}

/* ---- publish --------------------------------------------------------------------------------- */

struct found_request {
    /* The version that was published under the id, or 0 if no version was. */
    int64_t version;
    /* This edit itself published the version. */
    bool own;
};

static truce_status edit_fail_conflict(const truce_tree_edit *edit, truce_status status,
                                       int64_t current, bson_error_t *error)
{
    return truce__fail(status, error,
                       "version %" PRId64
                       " of tree \"%s\" is current, but the edit is based on version %" PRId64
                       ": rebase it",
                       current, edit->tree->name, edit->base);
}

static truce_status publish_another(const truce_tree_edit *edit, bson_error_t *error)
{
    return truce__fail(TRUCE_NOT_FOUND, error,
                       "tree \"%s\" was dropped and created again since the edit began: "
                       "begin the edit again",
                       edit->tree->name);
}

/* Sets *published to whether the edit was published. Above `settled` the master decides, below it
 * the stamp of the record. */
truce_status truce__tree_published(const truce_tree_edit *edit, const struct tree_master *master,
                                   bool *published, bson_error_t *error)
{
    int64_t version = edit->base + 1;
    bson_t *filter, found;
    truce_status status = TRUCE_OK;

    *published = false;
    if (version > master->current)
        return TRUCE_OK;
    if (version > master->settled) {
        *published =
            bson_oid_equal(&edit->token, &master->published[version - master->settled - 1].token);
        return TRUCE_OK;
    }
    filter = BCON_NEW("_id", BCON_OID(&edit->token), "pub", BCON_BOOL(true));
    status = truce_find_one(edit->tree->store, TREE_EDITS, filter, NULL, &found, error);
    *published = !status;
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Returns the time of the publication. Times of versions never decrease, whatever the clock
 * does. */
static int64_t publish_time_of(const truce_tree_edit *edit)
{
    int64_t now_ms = edit->at_ms ? edit->at_ms : truce__clock_wall_ms();

    return now_ms > edit->base_at_ms ? now_ms : edit->base_at_ms;
}

static bson_t *edit_publish_update(const truce_tree_edit *edit)
{
    int64_t at_ms = publish_time_of(edit);

    return BCON_NEW("$inc", "{", "current", BCON_INT64(1), "}", "$max", "{", "at",
                    BCON_DATE_TIME(at_ms), "}", "$push", "{", "published", "{", "token",
                    BCON_OID(&edit->token), "at", BCON_DATE_TIME(at_ms), "}", "}");
}

/* ---- alone ----------------------------------------------------------------------------------- */

/* Publishes the edit by one write of the master. Repeats the write until the edit is published, or
 * another version is. */
static truce_status publish_alone(truce_tree_edit *edit, bson_error_t *error)
{
    struct tree_master master = {0};
    struct worker worker;
    bool done = false, other = false;
    truce_status status;

    truce__worker_init(&worker, edit->tree->store, edit->tree->deadline_ms);
    for (;;) {
        status = truce__tree_write_master(edit->tree, &(struct tree_master){.born = edit->born},
                                          BCON_NEW("current", BCON_INT64(edit->base)),
                                          edit_publish_update(edit), &done, error);
        if (status || done)
            break;
        /* Another process published first, or this edit was published without a reply, or a commit
         * holds the master. The next read waits for that commit. */
        truce__tree_master_release(&master);
        status = truce__tree_master(edit->tree, &master, error);
        other = !status && !bson_oid_equal(&master.born, &edit->born);
        if (!status && !other)
            status = truce__tree_published(edit, &master, &done, error);
        if (status || done || other || master.current != edit->base)
            break;
        status = truce__worker_wait(&worker, "the master", error);
        if (status)
            break;
    }
    if (!status && other)
        status = publish_another(edit, error);
    else if (!status && !done)
        status = edit_fail_conflict(edit, TRUCE_CONFLICT, master.current, error);
    truce__tree_master_release(&master);
    return status;
}

/* Settles one version, so that the master stays small even without a sweeper. An error is ignored,
 * because a sweep settles the version later. */
static void settle_one(truce_tree *tree)
{
    struct tree_master master = {0};
    bson_error_t unused;
    bool done;

    if (!truce__tree_master(tree, &master, &unused) &&
        master.current - master.settled > TREE_UNSETTLED)
        (void)!tree_settle_first(tree, &master, &done, &unused);
    truce__tree_master_release(&master);
}

/* ---- in a commit ----------------------------------------------------------------------------- */

/* Publishes the edit in a commit of the caller. */
static truce_status tree_edit_publish_in(truce_tree_edit *edit, truce_commit *commit,
                                         bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER, document, *update;
    bson_value_t id;
    bson_iter_t iter;
    int64_t current;
    truce_status status;

    BSON_APPEND_UTF8(&holder, "_id", edit->tree->name);
    id = truce__document_id(&holder);
    status = truce_commit_read(commit, TREES, &id, &document, error);
    current = truce__field_count(&document, "current");
    if (!status && (!bson_iter_init_find(&iter, &document, "born") || !BSON_ITER_HOLDS_OID(&iter) ||
                    !bson_oid_equal(bson_iter_oid(&iter), &edit->born) ||
                    bson_has_field(&document, "dropped")))
        status = TRUCE_NOT_FOUND;
    if (status == TRUCE_NOT_FOUND)
        status = publish_another(edit, error);
    if (!status && current != edit->base)
        status = edit_fail_conflict(edit, TRUCE_REFUSED, current, error);
    if (!status) {
        update = edit_publish_update(edit);
        status = truce_commit_update(commit, TREES, &id, NULL, update, error);
        bson_destroy(update);
    }
    bson_destroy(&document);
    bson_destroy(&holder);
    return status;
}

/* ---- publication under an id of the caller --------------------------------------------------- */

/* Finds the version that was published under the id among the versions of `master`, or 0 if
 * none exists. */
static truce_status find_request(const truce_tree_edit *edit, const struct tree_master *master,
                                 struct found_request *found, bson_error_t *error)
{
    const bson_t *record;
    truce_cursor *cursor = NULL;
    bson_iter_t token;
    bson_t filter;
    truce_status status;

    truce__tree_filter(edit->tree, &filter);
    BCON_APPEND(&filter, "version", "{", "$gt", BCON_INT64(edit->since), "}", "request.id",
                BCON_OID(&edit->id));
    status = truce_find(edit->tree->store, TREE_EDITS, &filter, NULL, &cursor, error);
    while (!status && !found->version && !(status = truce_cursor_next(cursor, &record, error)) &&
           record) {
        if (!truce__tree_records(master, record) || !bson_iter_init_find(&token, record, "_id"))
            continue;
        found->version = truce__field_count(record, "version");
        found->own = bson_oid_equal(bson_iter_oid(&token), &edit->token);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* Looks for a publication under the caller's id (TR12): reads the master, THEN the records of its
 * versions, THEN whether a record may have been removed in the meantime. */
static truce_status edit_find_request(truce_tree_edit *edit, struct found_request *found,
                                      bson_error_t *error)
{
    struct tree_master master = {0}, now = {0};
    truce_status status = truce__tree_master(edit->tree, &master, error);

    *found = (struct found_request){0};
    if (!status && !bson_oid_equal(&master.born, &edit->born))
        status = publish_another(edit, error);
    if (!status && master.current > edit->since) {
        status = find_request(edit, &master, found, error);
        if (!status && !found->version)
            status = truce__tree_master(edit->tree, &now, error);
        if (!status && edit->since_given && now.gone > edit->since + 1)
            status = truce__fail(TRUCE_EXPIRED, error,
                                 "version %" PRId64
                                 " of tree \"%s\" is collected: it is unknown whether the edit "
                                 "was published",
                                 edit->since + 1, edit->tree->name);
    }
    truce__tree_master_release(&now);
    truce__tree_master_release(&master);
    return status;
}

bool truce__tree_id_published(truce_tree_edit *edit)
{
    struct found_request found = {0};

    return edit->has_id && !edit_find_request(edit, &found, NULL) && found.version;
}

static void take_found(truce_tree_edit *edit, const struct found_request *found,
                       truce_tree_published *published)
{
    /* If this fails, the sweep gives the edit up. */
    if (!found->own && !edit->published)
        (void)!truce_tree_abandon(edit, NULL);
    edit->published = true;
    *published = (truce_tree_published){.version = found->version, .exists = !found->own};
}

/* ---- the call -------------------------------------------------------------------------------- */

truce_status truce_tree_publish(truce_tree_edit *edit, truce_commit *commit,
                                truce_tree_published *published, bson_error_t *error)
{
    DEADLINE_SCOPE(edit->tree->deadline_ms);
    truce_tree_published unused;
    struct found_request found;
    truce_status status = TRUCE_OK;

    published = published ? published : &unused;
    *published = (truce_tree_published){.version = edit->base};
    if (commit && commit->store != edit->tree->store)
        return truce__fail(TRUCE_INVALID, error,
                           "tree \"%s\" and the commit belong to different stores",
                           edit->tree->name);
    if (edit->has_id && !edit->published) {
        status = edit_find_request(edit, &found, error);
        if (!status && found.version)
            take_found(edit, &found, published);
        if (status || found.version)
            return status;
    }
    published->nothing = !edit->count && !edit->written && !edit->even_empty;
    if (published->nothing)
        return TRUCE_OK;
    if (!edit->published) {
        status = truce_tree_flush(edit, error);
        if (!status && edit->tree->parent)
            status = tree_check_shape(edit, error);
    }
    if (!status && commit)
        status = tree_edit_publish_in(edit, commit, error);
    else if (!status && !edit->published)
        status = publish_alone(edit, error);
    if (status == TRUCE_CONFLICT && edit->has_id && !edit_find_request(edit, &found, NULL) &&
        found.version) {
        take_found(edit, &found, published);
        return TRUCE_OK;
    }
    if (status)
        return status;
    published->version = edit->base + 1;
    if (!commit) {
        edit->published = true;
        settle_one(edit->tree);
    }
    return TRUCE_OK;
}
