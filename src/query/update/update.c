/*
 * Updates: three kinds with one interface.
 *
 *     operators     {$set: {...}, $push: {...}}   a tree of paths, applied as edits of the bytes
 *     replacement   {a: 1, b: 2}                  the new document, except for its `_id`
 *     pipeline      [{$set: {...}}, ...]          stages that make the new document
 *
 * update_parse.c compiles operators into a tree. update_apply.c walks the tree over a document and
 * writes the new bytes. update_operators.c has the operators. This file has replacements and
 * upserts.
 *
 * A compiled update does not change: several threads may apply it at once.
 */
#include "query/update/update.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/random.h"
#include "bson/field_path.h"
#include "query/update/update_parse.h"

/* ---- replacements ---------------------------------------------------------------------------- */

/*
 * Whole documents: replacements, and the results of update pipelines.
 *
 * The new document is stored as given, with these exceptions:
 *   1. `_id` stays the same and comes first, wherever the replacement has it. A replacement may
 *      have an equal number of another type (1.0 for 1), which is then stored.
 *   2. A Timestamp(0, 0) at the top level of a replacement, but not as `_id`, becomes the current
 *      time.
 *   3. No top-level name of a replacement begins with "$" (52). The result of a pipeline may have
 *      such names, and so may an upsert, which inserts.
 *
 * The document counts as modified unless the given document equals the old one byte by byte. A
 * replacement without `_id` therefore always modifies.
 */

static void update_release(struct update *update);
static void update_run_init(struct update_run *run, const struct update *update,
                            const struct match_result *found, struct query_context *context);

static bool replace_is_id(const struct fields *field)
{
    return field->key_length == 3 && memcmp(field->key, "_id", 3) == 0;
}

/* Checks a value of `_id`. Fails with CODE_INVALID_ID_FIELD or CODE_DOLLAR_PREFIXED_FIELD_NAME if
 * the value cannot be stored as `_id`. */
static truce_status update_check_id(struct value id, bson_error_t *error)
{
    struct fields fields;

    if (id.type == BSON_TYPE_ARRAY || id.type == BSON_TYPE_REGEX || id.type == BSON_TYPE_UNDEFINED)
        return truce__refuse(CODE_INVALID_ID_FIELD, error, "'_id' cannot be %s",
                             truce__type_name(id.type));
    if (id.type != BSON_TYPE_DOCUMENT)
        return TRUCE_OK;
    fields = truce__fields(id);
    while (truce__fields_next(&fields)) {
        if (fields.key[0] == '$')
            return truce__refuse(CODE_DOLLAR_PREFIXED_FIELD_NAME, error,
                                 "'_id' has the field '%s': names in it do not begin with '$'",
                                 fields.key);
    }
    return TRUCE_OK;
}

static truce_status replace_check_names(struct value document, bson_error_t *error)
{
    struct fields fields = truce__fields(document);

    while (truce__fields_next(&fields)) {
        if (fields.key[0] == '$')
            return truce__refuse(CODE_DOLLAR_PREFIXED_FIELD_NAME, error,
                                 "the field '%s' of the replacement begins with '$': to store such "
                                 "a name, use a pipeline with $replaceWith",
                                 fields.key);
    }
    return TRUCE_OK;
}

/* Checks a replacement: its names, its `_id`, and its depth. */
static truce_status check_replacement(struct value old_id, struct value new_id,
                                      struct value replacement, bool insert, bool dollar_names,
                                      bson_error_t *error)
{
    char before[128], after[128];
    truce_status status = TRUCE_OK;

    if (!insert && !dollar_names)
        status = replace_check_names(replacement, error);
    if (!status && !insert)
        status = update_check_id(new_id, error);
    if (status)
        return status;
    if ((new_id.type == VALUE_MISSING ? old_id : new_id).type == BSON_TYPE_ARRAY)
        return truce__refuse(CODE_NOT_SINGLE_VALUE_FIELD, error, "'_id' cannot be an array");
    if (old_id.type != VALUE_MISSING && new_id.type != VALUE_MISSING &&
        !truce__value_equal(old_id, new_id))
        return truce__refuse(CODE_IMMUTABLE_FIELD, error,
                             "'_id' is %s and cannot become %s: it never changes",
                             truce__value_show(old_id, before, sizeof before),
                             truce__value_show(new_id, after, sizeof after));
    if (truce__update_depth(replacement) > TRUCE_DOCUMENT_DEPTH_MAX)
        return truce__refuse(CODE_OVERFLOW, error, "the new document nests deeper than %d",
                             TRUCE_DOCUMENT_DEPTH_MAX);
    return TRUCE_OK;
}

/* Writes the replacement, with `_id` first, to `after`, which is initialized and empty. */
static truce_status truce__update_replace(struct value before, struct value replacement,
                                          bool insert, bool dollar_names, bson_t *after,
                                          bson_error_t *error)
{
    struct value old_id = truce__value_field(before, "_id", 3);
    struct value new_id = truce__value_field(replacement, "_id", 3);
    struct fields fields = truce__fields(replacement);
    truce_status status =
        check_replacement(old_id, new_id, replacement, insert, dollar_names, error);

    if (status)
        return status;
    if ((uint64_t)replacement.size + old_id.size > TRUCE_DOCUMENT_BYTES_MAX + 5)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the new document is larger than %d bytes", TRUCE_DOCUMENT_BYTES_MAX);
    truce__value_append(after, "_id", 3, new_id.type == VALUE_MISSING ? old_id : new_id);
    while (truce__fields_next(&fields)) {
        if (!replace_is_id(&fields))
            truce__value_append(after, fields.key, fields.key_length, fields.value);
    }
    if (after->len > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the new document is larger than %d bytes", TRUCE_DOCUMENT_BYTES_MAX);
    return TRUCE_OK;
}

/* Replaces empty timestamps (exception 2). If the document has none, returns it unchanged,
 * otherwise a copy in the arena. */
static struct value replace_stamp(struct value document, const struct query_context *context)
{
    struct fields fields = truce__fields(document);
    struct value stamped = document;

    while (truce__fields_next(&fields)) {
        uint64_t now = truce__update_timestamp(context);

        if (!truce__value_is_empty_timestamp(fields.value) || replace_is_id(&fields))
            continue;
        if (stamped.data == document.data)
            stamped = truce__value_copy(context->arena, document);
        memcpy((uint8_t *)stamped.data + (fields.value.data - document.data), &now, 8);
    }
    return stamped;
}

/* Returns the fields of `document` in the order in which `order` has them, then its other
 * fields. */
static truce_status update_order_fields(struct arena *arena, struct value order,
                                        struct value document, struct value *result,
                                        bson_error_t *error)
{
    struct fields fields = truce__fields(order);
    struct field_table table;
    struct builder builder;
    bool fits = true;

    truce__field_table_begin(&table, arena, TRUCE_STAGE_MEMORY_MAX);
    while (fits && truce__fields_next(&fields))
        fits =
            truce__field_table_set(&table, fields.key, fields.key_length, truce__value_missing());
    fields = truce__fields(document);
    while (fits && truce__fields_next(&fields))
        fits = truce__field_table_set(&table, fields.key, fields.key_length, fields.value);
    if (!fits)
        return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, error,
                             "the update pipeline takes more than %d bytes of memory",
                             TRUCE_STAGE_MEMORY_MAX);
    truce__builder_begin(&builder, arena, TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_DOCUMENT);
    truce__field_table_write(&table, &builder);
    return truce__builder_finish(&builder, result, error);
}

/* Returns whether the stages only set and remove fields, and at least one removes fields. Then each
 * field keeps its position, even if it is removed and set again. */
static bool update_keeps_order(const bson_t *stages)
{
    struct fields stage = truce__fields(truce__value_document(stages));
    bool removes = false;

    while (truce__fields_next(&stage)) {
        struct fields name = truce__fields(stage.value);

        if (!truce__fields_next(&name))
            return false;
        if (strcmp(name.key, "$unset") == 0)
            removes = true;
        else if (strcmp(name.key, "$set") != 0 && strcmp(name.key, "$addFields") != 0)
            return false;
    }
    return removes;
}

/* Returns the result of the replacement or pipeline for `before`. It lives in the arena or the
 * update. */
static truce_status update_whole(const struct update *update, struct value before,
                                 struct query_context *context, struct value *replacement,
                                 bson_error_t *error)
{
    bson_t result;
    truce_status status;

    if (update->kind == UPDATE_REPLACEMENT) {
        *replacement = replace_stamp(truce__value_document(update->source), context);
        return TRUCE_OK;
    }
    status = truce__pipeline_apply(update->pipeline, before, context, &result, error);
    if (!status)
        *replacement = truce__value_from_bson(context->arena, &result, false);
    bson_destroy(&result);
    if (!status && update->keeps_order)
        status = update_order_fields(context->arena, before, *replacement, replacement, error);
    return status;
}

/* ---- upserts --------------------------------------------------------------------------------- */

/*
 * The document that an upsert inserts.
 *
 *     {k: 1, "a.b": 2, n: {$gt: 3}}        equalities of the query, by path     {a: {b: 2}, k: 1}
 *     {$set: {x: 1}, $setOnInsert: {y: 2}} the update, over that document       ... x: 1, y: 2
 *                                          `_id` first, a new one if there is none
 *
 * A replacement takes only `_id` from the query. Equalities that contradict or contain each other
 * are an error (54). The update may not change an `_id` of the query, as if it were stored.
 */

struct equality {
    struct path *path;
    struct value value;
};

struct equalities {
    /* The memory of the paths and the tree. */
    struct update scratch;
    bool only_id;
    struct equality *items;
    uint32_t count, room;
    /* The paths and their ancestors. The data of each value points to the text of a path. */
    struct field_table taken;
    truce_status status;
    bson_error_t *error;
};

static bool is_about_id(const struct path *path)
{
    return path->count && path->parts[0].length == 3 && !memcmp(path->parts[0].name, "_id", 3);
}

/* Returns whether a path of that length, which equals or contains this one, ends there. */
static bool ends_at(const struct path *path, uint32_t length)
{
    return length == path->length || path->text[length] == '.';
}

/* Returns the text of a path that equals, contains, or is contained in this one, or NULL if no path
 * does. */
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

/* Maps the path and its ancestors to the text of the path. */
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

/* Records an equality of the filter, which an upsert inserts. Refuses paths that collide. */
static truce_status take_equality(struct equalities *all, const struct path *path,
                                  struct value value)
{
    const char *other;
    struct path *copy;

    if (all->only_id && !is_about_id(path))
        return TRUCE_OK;
    if (all->only_id && path->count > 1)
        return truce__refuse(CODE_NOT_EXACT_VALUE_FIELD, all->error,
                             "the query gives only '%s': it must give the whole '_id'", path->text);
    other = find_collision(all, path);
    if (other)
        return truce__refuse(CODE_NOT_SINGLE_VALUE_FIELD, all->error,
                             "the query gives both '%s' and '%s': the value to insert is ambiguous",
                             other, path->text);
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

/* Makes a document of the equalities: a tree of $set, in the order of the paths, over an empty
 * document. */
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
    update_run_init(&run, &all->scratch, NULL, context);
    run.insert = true;
    status = truce__update_walk(&run, root, truce__value_document(&empty), error);
    truce__field_finder_release(&run.finder);
    if (!status)
        status = truce__update_splice(&run, truce__value_document(&empty), base, error);
    return status;
}

/* Makes the document of an upsert from the equalities of the query. A replacement takes only _id
 * from it. */
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
    update_release(&all.scratch);
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

/* Moves `_id` to the front, and makes one if it is missing. */
static truce_status upsert_finish(struct value made, const struct query_context *context,
                                  bson_t *document, bson_error_t *error)
{
    struct value id = truce__value_field(made, "_id", 3);
    struct fields fields = truce__fields(made);
    uint64_t more = 0;
    bson_oid_t fresh;
    truce_status status = update_check_id(id, error);

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

/* Applies the update to the base of an upsert. */
static truce_status update_base(const struct update *update, struct value base,
                                struct query_context *context, bson_t *updated, bson_error_t *error)
{
    struct value replacement;
    struct update_run run;
    truce_status status;

    if (update->kind != UPDATE_OPERATORS) {
        status = update_whole(update, base, context, &replacement, error);
        return status ? status
                      : truce__update_replace(base, replacement, true, true, updated, error);
    }
    update_run_init(&run, update, NULL, context);
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

/* ---- the three kinds ------------------------------------------------------------------------- */

bool truce__update_has_operators(const bson_t *update)
{
    struct fields fields = truce__fields(truce__value_document(update));

    return truce__fields_next(&fields) && fields.key[0] == '$';
}

static truce_status check_filters_used(const struct update *update, bson_error_t *error)
{
    for (uint32_t i = 0; i < update->filters_count; i++) {
        if (!update->filters[i].used)
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "the array filter '%s' is not used by a path of the update",
                                 update->filters[i].name);
    }
    return TRUCE_OK;
}

static truce_status update_compile_operators(struct update *update, bson_error_t *error)
{
    struct update_parser parser = {.update = update};
    truce_status status;

    update->kind = UPDATE_OPERATORS;
    update->root = truce__update_node_new(update, UPDATE_OBJECT);
    status =
        truce__update_parse(&parser, update->root, truce__value_document(update->source), error);
    if (!status)
        status = check_filters_used(update, error);
    if (!status)
        truce__update_tree_seal(update->root);
    return status;
}

static truce_status compile_pipeline(struct update *update, bson_error_t *error)
{
    truce_status status;

    update->kind = UPDATE_PIPELINE;
    if (update->filters_count)
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "an update pipeline cannot have array filters");
    status = truce__pipeline_new_update(update->source, &update->pipeline, error);
    if (!status)
        update->keeps_order = update_keeps_order(update->source);
    return status;
}

/* Compiles the update by its form: a pipeline, operators, or a replacement. */
static truce_status update_compile(struct update *update, const struct update_options *options,
                                   bson_error_t *error)
{
    truce_status status;

    if (update->filters_source) {
        status = truce__update_parse_filters(update, update->filters_source, error);
        if (status)
            return status;
    }
    if (options->pipeline)
        return compile_pipeline(update, error);
    if (truce__update_has_operators(update->source))
        return update_compile_operators(update, error);
    update->kind = UPDATE_REPLACEMENT;
    if (options->multi)
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "a replacement cannot be applied to several documents");
    return TRUCE_OK;
}

/* Allocates an update. Its first memory is part of it, so that a small update needs no other. */
static struct update *update_make(const bson_t *source, const struct update_options *options)
{
    struct update *made = bson_malloc(sizeof *made);
    const bson_t *filters = options->array_filters;

    memset(made, 0, offsetof(struct update, first));
    made->memory.at = made->first;
    made->memory.end = made->memory.at + sizeof made->first;
    if (!options->borrows) {
        source = made->own_source = bson_copy(source);
        filters = made->own_filters_source = filters ? bson_copy(filters) : NULL;
    }
    made->source = source;
    made->filters_source = filters;
    return made;
}

truce_status truce__update_new(const bson_t *update, const struct update_options *options,
                               struct update **made, bson_error_t *error)
{
    static const struct update_options defaults = {0};
    struct update *new = update_make(update, options ? options : &defaults);
    truce_status status;

    *made = NULL;
    status = update_compile(new, options ? options : &defaults, error);
    if (status) {
        truce__update_free(new);
        return status;
    }
    *made = new;
    return TRUCE_OK;
}

/* Frees the compiled filters and the memory of an update, but not the struct. Also for the scratch
 * update of an upsert. */
static void update_release(struct update *update)
{
    for (uint32_t i = 0; i < update->matches_count; i++)
        truce__match_free(update->matches[i]);
    truce__arena_release(&update->memory);
}

void truce__update_free(struct update *update)
{
    if (!update)
        return;
    if (update->pipeline)
        truce__pipeline_free(update->pipeline);
    update_release(update);
    bson_destroy(update->own_source);
    bson_destroy(update->own_filters_source);
    bson_free(update);
}

bool truce__update_is_replacement(const struct update *update)
{
    return update->kind == UPDATE_REPLACEMENT;
}

/* Initializes a run, except the inline edits. `matched` becomes the index of the element that the
 * filter has matched. */
static void update_run_init(struct update_run *run, const struct update *update,
                            const struct match_result *found, struct query_context *context)
{
    truce_assert(context && context->arena);
    run->update = update;
    run->context = context;
    run->insert = false;
    run->matched[0] = '\0';
    run->edits = run->edits_inline;
    run->edits_count = 0;
    run->edits_room = UPDATE_EDITS_INLINE;
    run->inserted = 0;
    run->changes = 0;
    run->items_matched = 0;
    run->items_modified = 0;
    run->finder = (struct field_finder){0};
    if (found && found->matched && found->array_index >= 0)
        snprintf(run->matched, sizeof run->matched, "%lld", (long long)found->array_index);
}

static void copy_document(struct value document, bson_t *copy)
{
    uint8_t *bytes = bson_reserve_buffer(copy, document.size);

    truce_assert(bytes);
    memcpy(bytes, document.data, document.size);
}

/* Applies operators to a document. If nothing changes, copies it. */
static truce_status update_apply_operators(const struct update *update, struct value before,
                                           const struct match_result *found,
                                           struct query_context *context, bson_t *after,
                                           struct update_result *result, bson_error_t *error)
{
    struct update_run run;
    truce_status status;

    update_run_init(&run, update, found, context);
    status = truce__update_walk(&run, update->root, before, error);
    truce__field_finder_release(&run.finder);
    if (status)
        return status;
    if (run.edits_count) {
        status = truce__update_splice(&run, before, after, error);
        if (status)
            return status;
    } else {
        copy_document(before, after);
    }
    result->modified = run.changes > 0;
    result->items_matched = run.items_matched;
    result->items_modified = run.items_modified;
    return TRUCE_OK;
}

static truce_status update_apply_whole(const struct update *update, struct value before,
                                       struct query_context *context, bson_t *after,
                                       struct update_result *result, bson_error_t *error)
{
    struct value replacement;
    bool pipeline = update->kind == UPDATE_PIPELINE;
    truce_status status = update_whole(update, before, context, &replacement, error);

    if (!status)
        status = truce__update_replace(before, replacement, false, pipeline, after, error);
    if (status)
        return status;
    result->modified = !truce__value_identical(before, replacement);
    return TRUCE_OK;
}

truce_status truce__update_apply(const struct update *update, const bson_t *before,
                                 const struct match_result *found, struct query_context *context,
                                 bson_t *after, struct update_result *result, bson_error_t *error)
{
    struct value document = truce__value_document(before);

    bson_init(after);
    *result = (struct update_result){0};
    if (update->kind == UPDATE_OPERATORS)
        return update_apply_operators(update, document, found, context, after, result, error);
    return update_apply_whole(update, document, context, after, result, error);
}
