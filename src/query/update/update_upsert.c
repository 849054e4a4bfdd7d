/*
 * The document that an upsert inserts.
 *
 *     {k: 1, "a.b": 2, n: {$gt: 3}}        equalities of the query, by path     {a: {b: 2}, k: 1}
 *     {$set: {x: 1}, $setOnInsert: {y: 2}} the update, over that document       ... x: 1, y: 2
 *                                          `_id` first, a new one if there is none
 *
 * A replacement takes only `_id` from the query. Equalities that contradict or contain each other
 * are an error (54). What the query says of `_id` stands like a stored one: the update may not
 * change it.
 */
#include "query/update/update_tree.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/random.h"
#include "bson/field_table.h"

struct equality {
    struct path *path;
    struct value value;
};

struct equalities {
    struct update scratch; /* holds paths and the tree */
    bool only_id;
    struct equality *items;
    uint32_t count, room;
    struct field_table taken; /* paths and what is above them; the value's data is a path's text */
    truce_status status;
    bson_error_t *error;
};

static bool is_about_id(const struct path *path)
{
    return path->count && path->parts[0].length == 3 && !memcmp(path->parts[0].name, "_id", 3);
}

/* Does a path of that length, this one or one above it, end there? */
static bool ends_at(const struct path *path, uint32_t length)
{
    return length == path->length || path->text[length] == '.';
}

/* The text of a path that is this one, above it or below it; NULL: none. */
static const char *find_collision(const struct equalities *all, const struct path *path)
{
    for (uint32_t length = 0; length <= path->length; length++) {
        const struct field_entry *entry =
            ends_at(path, length) ? truce__field_table_find(&all->taken, path->text, length) : NULL;

        if (entry && (length == path->length || !((const char *)entry->value.data)[length]))
            return (const char *)entry->value.data;
    }
    return NULL;
}

/* The path and what is above it lead to the path's text. */
static void upsert_remember(struct equalities *all, const struct path *path)
{
    struct value text = {.data = (const uint8_t *)path->text};
    bool room = true;

    if (!all->count)
        truce__field_table_begin(&all->taken, &all->scratch.memory, SIZE_MAX);
    for (uint32_t length = 0; length <= path->length; length++) {
        if (ends_at(path, length))
            room = truce__field_table_set(&all->taken, path->text, length, text);
        truce_assert(room);
    }
}

static truce_status take_equality(struct equalities *all, const struct path *path,
                                  struct value value)
{
    const char *other;
    struct path *copy;

    if (all->only_id && !is_about_id(path))
        return TRUCE_OK;
    if (all->only_id && path->count > 1)
        return truce__refuse(CODE_NOT_EXACT_VALUE_FIELD, all->error,
                             "the query gives only '%s': '_id' must be given whole", path->text);
    other = find_collision(all, path);
    if (other)
        return truce__refuse(CODE_NOT_SINGLE_VALUE_FIELD, all->error,
                             "the query gives both '%s' and '%s': no one value to insert", other,
                             path->text);
    copy = truce__update_path(&all->scratch, path->text, path->length, all->error);
    if (!copy)
        return TRUCE_INVALID;
    upsert_remember(all, copy);
    if (all->count == all->room) {
        uint32_t room = all->room ? all->room * 2 : 8;
        struct equality *items = truce__arena_take(&all->scratch.memory, room * sizeof *items);

        if (all->count)
            memcpy(items, all->items, all->count * sizeof *items);
        all->items = items;
        all->room = room;
    }
    all->items[all->count++] = (struct equality){copy, value};
    return TRUCE_OK;
}

static bool on_equality(const struct path *path, struct value value, void *arg)
{
    struct equalities *all = arg;

    all->status = take_equality(all, path, value);
    return all->status == TRUCE_OK;
}

static int compare_equalities(const void *a, const void *b)
{
    const struct equality *left = a, *right = b;

    return strcmp(left->path->text, right->path->text);
}

static bool upsert_has_expression(const struct match_node *node)
{
    bool has = node->kind == MATCH_EXPR;

    for (uint32_t i = 0; !has && i < node->children_count; i++)
        has = upsert_has_expression(node->children[i]);
    return has;
}

/* The equalities as a document: a tree of $set, in the order of the paths, over nothing. */
static truce_status upsert_fill(struct equalities *all, struct query_context *context, bson_t *base,
                                bson_error_t *error)
{
    static const struct update_operator set = {"the query", UPDATE_CREATES, NULL,
                                               truce__update_set};
    struct update_parser parser = {.update = &all->scratch};
    struct update_node *root = truce__update_node_new(&all->scratch, UPDATE_OBJECT);
    struct update_run run;
    bson_t empty = BSON_INITIALIZER;
    truce_status status;

    if (all->count)
        qsort(all->items, all->count, sizeof *all->items, compare_equalities);
    for (uint32_t i = 0; i < all->count; i++) {
        struct update_leaf *leaf;

        status = truce__update_tree_add(&parser, root, all->items[i].path, &leaf, error);
        if (status)
            return status;
        *leaf = (struct update_leaf){.operator= & set,
                                     .path = all->items[i].path->text,
                                     .operand = all->items[i].value,
                                     .depth = truce__update_depth(all->items[i].value)};
    }
    truce__update_run_init(&run, &all->scratch, NULL, context);
    run.insert = true;
    status = truce__update_walk(&run, root, truce__value_document(&empty), error);
    truce__field_finder_release(&run.finder);
    if (!status)
        status = truce__update_splice(&run, truce__value_document(&empty), base, error);
    return status;
}

static truce_status document_of_query(const struct update *update, const struct match *match,
                                      struct query_context *context, bson_t *base,
                                      bson_error_t *error)
{
    struct equalities all = {.only_id = update->kind == UPDATE_REPLACEMENT, .error = error};
    truce_status status;

    if (match && upsert_has_expression(truce__match_root(match)))
        return truce__refuse(CODE_QUERY_FEATURE_NOT_ALLOWED, error,
                             "$expr is not allowed in the query of an upsert");
    if (match)
        truce__match_equalities(match, on_equality, &all);
    status = all.status;
    if (!status)
        status = upsert_fill(&all, context, base, error);
    truce__update_release(&all.scratch);
    return status;
}

static void new_id(const struct query_context *context, bson_oid_t *id)
{
    uint32_t seconds = (uint32_t)(context->now_ms / 1000);
    uint64_t random;

    bson_oid_init(id, NULL);
    if (!context->random)
        return;
    seconds = BSON_UINT32_TO_BE(seconds);
    random = truce__random_next(context->random);
    memcpy(id->bytes, &seconds, 4);
    memcpy(id->bytes + 4, &random, 8);
}

/* `_id` first, made if there is none */
static truce_status upsert_finish(struct value made, const struct query_context *context,
                                  bson_t *document, bson_error_t *error)
{
    struct value id = truce__value_field(made, "_id", 3);
    struct fields fields = truce__fields(made);
    uint64_t more = 0;
    bson_oid_t fresh;
    truce_status status = truce__update_check_id(id, error);

    if (status)
        return status;
    if (id.type == VALUE_MISSING) {
        new_id(context, &fresh);
        id = (struct value){fresh.bytes, sizeof fresh.bytes, BSON_TYPE_OID};
        more = (uint64_t)id.size + 5;
    }
    if (made.size + more > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the document to insert is larger than %d bytes",
                             TRUCE_DOCUMENT_BYTES_MAX);
    truce__value_append(document, "_id", 3, id);
    while (truce__fields_next(&fields)) {
        if (fields.key_length != 3 || memcmp(fields.key, "_id", 3) != 0)
            truce__value_append(document, fields.key, fields.key_length, fields.value);
    }
    return TRUCE_OK;
}

static truce_status update_base(const struct update *update, struct value base,
                                struct query_context *context, bson_t *updated, bson_error_t *error)
{
    struct value replacement;
    struct update_run run;
    truce_status status;

    if (update->kind != UPDATE_OPERATORS) {
        status = truce__update_whole(update, base, context, &replacement, error);
        return status ? status
                      : truce__update_replace(base, replacement, true, true, updated, error);
    }
    truce__update_run_init(&run, update, NULL, context);
    run.insert = true;
    status = truce__update_walk(&run, update->root, base, error);
    truce__field_finder_release(&run.finder);
    return status ? status : truce__update_splice(&run, base, updated, error);
}

truce_status truce__update_insert(const struct update *update, const struct match *match,
                                  struct query_context *context, bson_t *document,
                                  bson_error_t *error)
{
    bson_t base = BSON_INITIALIZER, updated = BSON_INITIALIZER;
    truce_status status;

    bson_init(document);
    status = document_of_query(update, match, context, &base, error);
    if (!status)
        status = update_base(update, truce__value_document(&base), context, &updated, error);
    if (!status)
        status = upsert_finish(truce__value_document(&updated), context, document, error);
    bson_destroy(&base);
    bson_destroy(&updated);
    return status;
}
