/* Edits: the documents of items, the shape that an edit leaves, records, and items before they are published (T3, T6, T8 of tree.c). */
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/id.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "bson/field_names.h"
#include "bson/value_set.h"
#include "patterns/tree/tree.h"
#include "query/incoming.h"
#include "store/reserved.h"
#include "store/view.h"

/* ---- documents of items ---------------------------------------------------------------------- */

/* The documents of items: as they are kept, and as users see them. */

enum field { USERS, SHOWN_ID, SHOWN_VERSION, TOKEN, STAMP, REMOVED, ERASED, HIDDEN };

/* In the order of lengths; `version` and `itemId` are shown. */
static enum field which(const char *key, uint32_t length)
{
    switch (length) {
    case 3:
        return !memcmp(key, "_id", 3) ? HIDDEN : !memcmp(key, "pub", 3) ? STAMP : USERS;
    case 4:
        return !memcmp(key, "tree", 4) ? HIDDEN : USERS;
    case 5:
        return !memcmp(key, "token", 5) ? TOKEN : USERS;
    case 6:
        return !memcmp(key, "itemId", 6)   ? SHOWN_ID
               : !memcmp(key, "erased", 6) ? ERASED
               : !memcmp(key, "edited", 6) ? HIDDEN
                                           : USERS;
    case 7:
        return !memcmp(key, "version", 7)   ? SHOWN_VERSION
               : !memcmp(key, "removed", 7) ? REMOVED
                                            : USERS;
    default:
        return USERS;
    }
}

static bool item_is_own(const char *field)
{
    return which(field, (uint32_t)strlen(field)) > SHOWN_VERSION;
}

/* ---- one look --------------------------------------------------------------------------------- */

static void item_take(struct tree_item *item, enum field field, struct value value)
{
    switch (field) {
    case SHOWN_ID:
        if (!item->id.type)
            item->id = value;
        break;
    case SHOWN_VERSION:
        if (truce__value_is_integer(value))
            item->version = truce__value_integer(value);
        break;
    case TOKEN:
        item->token = value;
        break;
    case STAMP:
        item->stamped = true;
        break;
    case REMOVED:
    case ERASED:
        item->absent = true;
        break;
    default:
        break;
    }
}

static void end_piece(struct tree_item *item, const uint8_t *from, const uint8_t *to)
{
    if (from == to || item->count > TREE_OWN_FIELDS)
        return;
    item->pieces[item->count].from = from;
    item->pieces[item->count++].size = (uint32_t)(to - from);
    item->size += (uint32_t)(to - from);
}

void truce__tree_look(const bson_t *document, struct tree_item *item)
{
    struct fields fields = truce__fields(truce__value_document(document));
    const uint8_t *from = fields.at, *at = fields.at;

    *item = (struct tree_item){0};
    while (truce__fields_next(&fields)) {
        enum field field = which(fields.key, fields.key_length);

        if (field != USERS)
            item_take(item, field, fields.value);
        if (field > SHOWN_VERSION) {
            end_piece(item, from, at);
            from = fields.at;
        }
        at = fields.at;
    }
    end_piece(item, from, at);
}

void truce__tree_pack(const struct tree_item *item, uint8_t *bytes)
{
    uint32_t size = BSON_UINT32_TO_LE(item->size + 5);

    memcpy(bytes, &size, sizeof size);
    bytes += sizeof size;
    for (uint32_t i = 0; i < item->count; i++) {
        memcpy(bytes, item->pieces[i].from, item->pieces[i].size);
        bytes += item->pieces[i].size;
    }
    *bytes = 0;
}

/* ---- checked, shown, kept ---------------------------------------------------------------------- */

static truce_status tree_check_item(const bson_t *item, struct value *id, bson_error_t *error)
{
    truce_status status = truce__document_check(item, "item", error);
    bson_iter_t iter;

    if (status)
        return status;
    *id = truce__tree_item_id(item);
    if (!id->type)
        return truce__fail(TRUCE_INVALID, error, "the item has no field \"itemId\"");
    if (!truce__value_identifies(*id))
        return truce__fail(TRUCE_INVALID, error,
                           "an itemId is a text, number, ObjectId, date, bool or binary, not %s",
                           truce__type_name(id->type));
    for (bson_iter_init(&iter, item); bson_iter_next(&iter);) {
        if (item_is_own(bson_iter_key(&iter)))
            return truce__fail(TRUCE_INVALID, error, "the field \"%s\" of an item is truce's own",
                               bson_iter_key(&iter));
    }
    if (item->len > TRUCE_DOCUMENT_BYTES_MAX - TREE_ITEM_ROOM)
        return truce__fail(TRUCE_LIMIT, error,
                           "the item has %u bytes, more than %d less %d for truce's own fields",
                           item->len, TRUCE_DOCUMENT_BYTES_MAX, TREE_ITEM_ROOM);
    return TRUCE_OK;
}

struct value truce__tree_item_id(const bson_t *document)
{
    return truce__value_field(truce__value_document(document), "itemId", 6);
}

bool truce__tree_absent(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "removed") ||
           bson_iter_init_find(&iter, document, "erased");
}

void truce__tree_show(const bson_t *document, bson_t *item)
{
    struct fields fields = truce__fields(truce__value_document(document));

    while (truce__fields_next(&fields)) {
        if (!item_is_own(fields.key))
            truce__value_append(item, fields.key, fields.key_length, fields.value);
    }
    truce__names_restore_own(item);
}

/* An index's key may have them no further behind, and a reader that looks for them finds them at once. */
static void tree_keep_item(const truce_tree *tree, int64_t version, const bson_oid_t *token,
                           struct value id, const bson_t *item, bson_t *document)
{
    struct fields fields;
    bson_oid_t fresh;
    bson_t stored;

    truce__id_new(&fresh);
    BSON_APPEND_OID(document, "_id", &fresh);
    BSON_APPEND_UTF8(document, "tree", tree->name);
    truce__value_append(document, "itemId", 6, id);
    BSON_APPEND_INT64(document, "version", version);
    BSON_APPEND_OID(document, "token", token);
    if (!item) {
        BSON_APPEND_BOOL(document, "removed", true);
        return;
    }
    truce__names_store(item, &stored);
    fields = truce__fields(truce__value_document(&stored));
    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, "itemId") && strcmp(fields.key, "version"))
            truce__value_append(document, fields.key, fields.key_length, fields.value);
    }
    bson_destroy(&stored);
}

/* The next field that is the user's; false: there is none. */
static bool next_of_users(struct fields *fields)
{
    while (truce__fields_next(fields)) {
        if (!item_is_own(fields->key) && strcmp(fields->key, "version"))
            return true;
    }
    return false;
}

bool truce__tree_same(const bson_t *item, const bson_t *other)
{
    struct fields a, b;

    if (!item || !other || truce__tree_absent(item) != truce__tree_absent(other))
        return item == other;
    a = truce__fields(truce__value_document(item));
    b = truce__fields(truce__value_document(other));
    while (next_of_users(&a)) {
        if (!next_of_users(&b) || a.key_length != b.key_length ||
            memcmp(a.key, b.key, a.key_length) || !truce__value_identical(a.value, b.value))
            return false;
    }
    return !next_of_users(&b);
}

void truce__tree_filter(const truce_tree *tree, bson_t *filter)
{
    bson_init(filter);
    BSON_APPEND_UTF8(filter, "tree", tree->name);
}

void truce__tree_append_id(bson_t *filter, const char *key, struct value id)
{
    bson_t inner;

    BSON_APPEND_DOCUMENT_BEGIN(filter, key, &inner);
    truce__value_append(&inner, "$eq", 3, id);
    bson_append_document_end(filter, &inner);
}

/* ---- the shape ------------------------------------------------------------------------------- */

/*
 * The shape of a tree that an edit would leave: every parent is there, nobody is his own ancestor.
 *
 * Looked at is what the edit wrote, over its base: whoever is put, and his ancestors; and the children of whoever is removed. The
 * base is the version that is current when it is published (T1), so what is found here holds.
 */

struct shape {
    truce_tree_edit *edit;
    truce_tree_snapshot base;
    struct arena arena;
    struct value_set own;  /* of what the edit wrote: the number of the node */
    struct value_set seen; /* whose way up was looked at: the number of the climb */
    struct node {
        struct value id, parent; /* parent missing: a root */
        bool removed;
    } * nodes;
    size_t count, room;
    struct value removed; /* whose children are looked for */
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

/* A tree_own_function. */
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

/* The parent of an item as it will be; NOT_FOUND: there is no such item. */
static truce_status shape_look_up(struct shape *shape, struct value id, struct value *parent)
{
    const struct node *node = shape_own(shape, id);
    bson_t holder = BSON_INITIALIZER, item;
    bson_error_t nobody;
    bson_iter_t iter;
    truce_status status;

    *parent = node ? node->parent : truce__value_missing();
    if (node)
        return node->removed ? TRUCE_NOT_FOUND : TRUCE_OK;
    truce__value_append(&holder, "itemId", 6, id);
    bson_iter_init_find(&iter, &holder, "itemId");
    status = truce_tree_get(&shape->base, bson_iter_value(&iter), &item, &nobody);
    if (!status && parent_of(shape, &item).type)
        *parent = truce__value_copy(&shape->arena, parent_of(shape, &item));
    if (status && status != TRUCE_NOT_FOUND && shape->error)
        *shape->error = nobody;
    bson_destroy(&item);
    bson_destroy(&holder);
    return status;
}

static truce_status shape_refuse(const struct shape *shape, struct value child, struct value parent,
                                 const char *why)
{
    char one[150], other[150];

    return truce__fail(TRUCE_INVALID, shape->error, "item %s hangs under %s, %s",
                       truce__value_show(child, one, sizeof one),
                       truce__value_show(parent, other, sizeof other), why);
}

/* From a node that was put, up to a root, or to whoever was found to hang under one. */
static truce_status climb(struct shape *shape, const struct node *node, uint32_t number)
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
            return truce__fail(TRUCE_LIMIT, shape->error, "the tree is deeper than %d",
                               TREE_DEPTH_MAX);
        if (truce__value_set_number(&shape->seen, parent, &seen) && seen == number)
            return shape_refuse(shape, child, parent, "which hangs under it: a circle");
        status = shape_look_up(shape, parent, &above);
        if (status == TRUCE_NOT_FOUND)
            return shape_refuse(shape, child, parent, "which is not there");
        child = parent;
        parent = above;
    }
    return status;
}

/* A truce_tree_function: a child of one that is removed, as the base has it. */
static bool orphan(const bson_t *item, void *arg)
{
    struct shape *shape = arg;

    if (shape_own(shape, truce__tree_item_id(item)))
        return true; /* it was put elsewhere, and has climbed; or is removed, too */
    shape->status =
        shape_refuse(shape, truce__tree_item_id(item), shape->removed, "which would be removed");
    return false;
}

static truce_status look_for_orphans(struct shape *shape, const struct node *node)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    shape->removed = node->id;
    truce__tree_append_id(&filter, shape->edit->tree->parent, node->id);
    status = truce_tree_find(&shape->base, &filter, NULL, orphan, shape, shape->error);
    bson_destroy(&filter);
    return status ? status : shape->status;
}

static truce_status shape_look(struct shape *shape, bson_error_t *error)
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
        status = shape->nodes[i].removed ? look_for_orphans(shape, &shape->nodes[i])
                                         : climb(shape, &shape->nodes[i], (uint32_t)i + 1);
    return status;
}

truce_status truce__tree_check_shape(truce_tree_edit *edit, bson_error_t *error)
{
    struct shape shape = {.edit = edit, .error = error};
    truce_status status = truce__tree_open(edit->tree, edit->base, &shape.base, error);

    if (!status)
        status = shape_look(&shape, error);
    truce__tree_leave(&shape.base);
    bson_free(shape.nodes);
    truce__arena_release(&shape.arena);
    return status;
}

/* ---- the edit -------------------------------------------------------------------------------- */

#define RENEW_MS (TREE_EDIT_MS / 24)

/* ---- records ---------------------------------------------------------------------------------- */

static bson_t *record(const truce_tree_edit *edit)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t *document = BCON_NEW("_id", BCON_OID(&edit->token), "tree", BCON_UTF8(edit->tree->name),
                                "version", BCON_INT64(edit->base + 1), "state", BCON_UTF8("open"),
                                "begun", BCON_DATE_TIME(now_ms), "renewed", BCON_DATE_TIME(now_ms));

    if (edit->message)
        BSON_APPEND_UTF8(document, "message", edit->message);
    if (edit->author)
        BSON_APPEND_UTF8(document, "author", edit->author);
    if (edit->imported)
        BSON_APPEND_OID(document, "origin", &edit->origin);
    if (edit->has_id)
        BCON_APPEND(document, "request", "{", "id", BCON_OID(&edit->id),
                    edit->since_said ? "since" : "from", BCON_INT64(edit->since), "}");
    return document;
}

static truce_status edit_write_record(truce_tree_edit *edit, bson_error_t *error)
{
    truce_write_options options = {.relaxed = truce__tree_relaxed(edit->tree)};
    bson_t *document = record(edit);
    struct worker worker;
    truce_status status;

    truce__worker_init(&worker, edit->tree->store, edit->tree->deadline_ms);
    do
        status = truce_insert(edit->tree->store, TREE_EDITS, document, &options, error);
    while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(document);
    if (status && status != TRUCE_DUPLICATE)
        return status;
    edit->recorded = true;
    edit->renewed_ms = truce__clock_wall_ms();
    return TRUCE_OK;
}

/* One write of a record that is open; taken over: `guard`, `set`. */
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
    } while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(&update);
    bson_destroy(set);
    bson_destroy(guard);
    return status;
}

truce_status truce__tree_renew(truce_tree *tree, const bson_oid_t *token, bson_error_t *error)
{
    char text[25];
    bool done;
    truce_status status =
        edit_write_open(tree, token, bson_new(),
                        BCON_NEW("renewed", BCON_DATE_TIME(truce__clock_wall_ms())), &done, error);

    bson_oid_to_string(token, text);
    if (!status && !done)
        status = truce__fail(TRUCE_NOT_FOUND, error, "there is no open edit %s of tree \"%s\"",
                             text, tree->name);
    return status;
}

truce_status truce__tree_give_up(truce_tree *tree, const bson_oid_t *token, int64_t silent_since_ms,
                                 bool *done, bson_error_t *error)
{
    bson_t *guard = bson_new();

    if (silent_since_ms)
        BCON_APPEND(guard, "renewed", "{", "$lte", BCON_DATE_TIME(silent_since_ms), "}");
    return edit_write_open(tree, token, guard, BCON_NEW("state", BCON_UTF8("given up")), done,
                           error);
}

/* ---- begin ------------------------------------------------------------------------------------ */

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
        return truce__fail(TRUCE_INVALID, error, "the %s is UTF-8 of at most %d bytes", what,
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

/* A put of the new edit for each of the old one. */
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
    edit->since_said = bson_has_field(&request, "since");
}

/* The items get a token of this edit's own: who began it may be at work still, and writes into what is his. */
static truce_status edit_resume(truce_tree_edit *edit, const bson_oid_t *token, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(token)), found;
    truce_status status =
        truce_find_one(edit->tree->store, TREE_EDITS, filter, NULL, &found, error);
    bool done;

    if (!status || status == TRUCE_NOT_FOUND)
        status = truce__tree_renew(edit->tree, token, error);
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
        status = truce__tree_renew(edit->tree, token, error); /* T8 */
    if (!status)
        status = truce__tree_give_up(edit->tree, token, 0, &done, error);
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* It may have been dropped since this handle knew of it. */
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
            (*edit)->since_said = options->base != 0;
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

/* ---- what is gathered -------------------------------------------------------------------------- */

/* Takes `item` over. */
static truce_status edit_gather(truce_tree_edit *edit, struct value id, bson_t *item,
                                bson_error_t *error)
{
    uint64_t hash = truce__value_hash(id);
    truce_status status = TRUCE_OK;

    if (edit->published)
        status = truce__fail(TRUCE_INVALID, error, "the edit was published");
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
    truce_status status = tree_check_item(item, &id, error);

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
    status = tree_check_item(document, &id, error);
    if (status) {
        bson_destroy(document);
        return status;
    }
    BSON_APPEND_BOOL(document, "removed", true);
    return edit_gather(edit, id, document, error);
}

/* ---- what is written --------------------------------------------------------------------------- */

static void own_filter(const truce_tree_edit *edit, struct value id, bson_t *filter)
{
    truce__tree_filter(edit->tree, filter);
    truce__tree_append_id(filter, "itemId", id);
    BSON_APPEND_INT64(filter, "version", edit->base + 1);
    BSON_APPEND_OID(filter, "token", &edit->token);
}

/* It was put before in this edit, or by an attempt that was not answered: {_id, edited: as it is} -> the next. CONFLICT: look again. */
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
        tree_keep_item(edit->tree, edit->base + 1, &edit->token, id,
                       truce__tree_absent(item) ? NULL : item, &document);
        BSON_APPEND_INT64(&document, "edited", edited + 1);
        bson_t whole = BSON_INITIALIZER;
        bson_copy_to_excluding_noinit(&document, &whole, "_id", NULL);
        status = truce_update(edit->tree->store, edit->tree->collection, &guard, &whole, &options,
                              &result, error);
        if (!status && !result.matched)
            status = TRUCE_CONFLICT;
        truce_write_result_release(&result);
        bson_destroy(&whole);
    }
    bson_destroy(&document);
    bson_destroy(&guard);
    bson_destroy(&found);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_CONFLICT : status;
}

/* Those that are left after it: the first `edit->count`. OK: each of the others is written; CONFLICT: once more. */
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
        tree_keep_item(edit->tree, edit->base + 1, &edit->token, truce__tree_item_id(item),
                       truce__tree_absent(item) ? NULL : item, &documents[i]);
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
    bson_error_t waited;
    truce_status status = TRUCE_OK;

    truce__worker_init(&worker, edit->tree->store, edit->tree->deadline_ms);
    if ((edit->count || edit->even_empty) && !edit->recorded)
        status = edit_write_record(edit, error);
    else if (edit->count && truce__clock_wall_ms() > edit->renewed_ms + RENEW_MS) {
        status = truce__tree_renew(edit->tree, &edit->token, error);
        edit->renewed_ms = truce__clock_wall_ms();
    }
    while (!status && edit->count) {
        status = write_gathered(edit, error);
        if (!truce__repeatable(status) || truce__worker_wait(&worker, "the store", &waited))
            break;
        status = TRUCE_OK;
    }
    return status;
}

/* ---- what was written -------------------------------------------------------------------------- */

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
