/*
 * Additions, compiled into a tree of names.
 *
 *     {"b.d": {$add: ["$x", 1]}, e: "$y"}
 *
 *         root ─┬─ b ─── d  compute
 *               └─ e  compute
 *
 * An existing field is replaced at its place. New fields follow at the end, in the order of the
 * specification. A branch of the tree applies to each element of an array, at any depth. If the
 * document has a value that is not a document where the tree has a branch, a document of the
 * computed fields replaces the value ({"a.b": "$x"} of {a: 5} is {a: {b: ...}}). All expressions
 * are evaluated for the original document.
 *
 * Invariants:
 *   1. No path is both a leaf and a branch, and no path is a leaf twice: the second is refused
 *      (40176).
 *   2. Each branch has a leaf below it.
 *   3. The tree does not change after parsing: several threads may apply it at once.
 */
#include "query/project/added_fields.h"

#include "base/assert.h"
#include "base/buffer.h"
#include "base/limits.h"
#include "bson/builder.h"
#include "bson/field_path.h"
#include "query/expression/expression.h"

struct node {
    /* The next child of the same parent, in the order of the specification. */
    struct node *next;
    struct node *first, *last;
    const char *name;
    uint32_t length;
    /* The number of this node among the children of its parent. */
    uint32_t number;
    /* The expression of a leaf, or NULL for a branch. */
    struct expression *expression;
    /* The names of the children; the data of each value points to the child. */
    struct field_table names;
};

struct addition {
    /* The memory of nodes and names. */
    struct arena arena;
    struct node root;
};

/* ---- the tree ------------------------------------------------------------------------------- */

static struct node *added_find_child(const struct node *node, const char *name, uint32_t length)
{
    const struct field_entry *entry = truce__field_table_find(&node->names, name, length);

    return entry ? (struct node *)(uintptr_t)entry->value.data : NULL;
}

bool truce__addition_has(const struct addition *addition, const char *field, uint32_t length)
{
    return added_find_child(&addition->root, field, length) != NULL;
}

/* Adds a field below a node. No other field of the node has this name. */
static struct node *add_child(struct addition *addition, struct node *node, const char *name,
                              uint32_t length)
{
    struct node *child = truce__arena_take(&addition->arena, sizeof *child);
    bool known;

    *child = (struct node){.name = truce__arena_copy(&addition->arena, name, length),
                           .length = length,
                           .number = node->names.count};
    if (!node->first)
        truce__field_table_begin(&node->names, &addition->arena, SIZE_MAX);
    known = truce__field_table_set(&node->names, child->name, length,
                                   (struct value){.data = (const uint8_t *)child});
    truce_assert(known);
    if (node->last)
        node->last->next = child;
    else
        node->first = child;
    node->last = child;
    return child;
}

/* Adds a leaf. On failure the caller still owns `expression`. */
static truce_status added_add_leaf(struct addition *addition, const char *path, size_t length,
                                   struct expression *expression, bson_error_t *error)
{
    struct node *node = &addition->root;
    const char *at = path, *end = path + length;

    for (;;) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        uint32_t part = (uint32_t)((dot ? dot : end) - at);
        struct node *child = added_find_child(node, at, part);

        if (child && (!dot || child->expression))
            return truce__refuse(40176, error, "path '%.*s' collides with another of the same $set",
                                 (int)length, path);
        node = child ? child : add_child(addition, node, at, part);
        if (!dot) {
            node->expression = expression;
            return TRUCE_OK;
        }
        at = dot + 1;
    }
}

/* ---- parsing -------------------------------------------------------------------------------- */

struct parser {
    struct addition *addition;
    const char *const *variables;
    /* The path of the current field. */
    struct buffer path;
};

static truce_status added_parse_computed(struct parser *parser, struct value value,
                                         bson_error_t *error)
{
    const char *path = (const char *)parser->path.bytes;
    struct expression *expression = NULL;
    truce_status status = truce__field_path_check(path, parser->path.size, error);

    if (!status)
        status = truce__expression_new(value, parser->variables, &expression, error);
    if (!status)
        status = added_add_leaf(parser->addition, path, parser->path.size, expression, error);
    if (status)
        truce__expression_free(expression);
    return status;
}

static truce_status added_parse_fields(struct parser *parser, struct value document,
                                       bson_error_t *error);

static truce_status parse_value(struct parser *parser, struct value value, bson_error_t *error)
{
    struct fields fields;

    if (value.type != BSON_TYPE_DOCUMENT)
        return added_parse_computed(parser, value, error);
    fields = truce__fields(value);
    if (!truce__fields_next(&fields))
        return truce__refuse(40180, error,
                             "'%.*s' is an empty document, which adds no field: use {$literal: {}}",
                             (int)parser->path.size, (const char *)parser->path.bytes);
    return fields.key[0] == '$' ? added_parse_computed(parser, value, error)
                                : added_parse_fields(parser, value, error);
}

/* Checks a name within a nested document, which must be a single name. */
static truce_status check_nested_name(const struct fields *at, bson_error_t *error)
{
    if (at->key_length == 0)
        return truce__refuse(40353, error, "a field name must not be empty");
    if (at->key[0] == '$')
        return truce__refuse(40181, error,
                             "'%s': a document with an operator cannot have other fields", at->key);
    if (memchr(at->key, '.', at->key_length))
        return truce__refuse(40183, error, "'%s': a nested field name must not have a dot",
                             at->key);
    return TRUCE_OK;
}

/* Parses the fields of a document, below the path of the parser. Nested names are checked. */
static truce_status added_parse_fields(struct parser *parser, struct value document,
                                       bson_error_t *error)
{
    struct fields fields = truce__fields(document);
    size_t before = parser->path.size;
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        if (before)
            status = check_nested_name(&fields, error);
        else if (fields.key_length == 0)
            status = truce__refuse(40352, error, "a field name must not be empty");
        if (status)
            break;
        if (before)
            truce__buffer_append_byte(&parser->path, '.');
        truce__buffer_append(&parser->path, fields.key, fields.key_length);
        status = parse_value(parser, fields.value, error);
        parser->path.size = before;
    }
    return status;
}

truce_status truce__addition_new(struct value specification, const char *const *variables,
                                 struct addition **addition, bson_error_t *error)
{
    struct parser parser = {.addition = bson_malloc0(sizeof *parser.addition),
                            .variables = variables};
    truce_status status = added_parse_fields(&parser, specification, error);

    truce__buffer_release(&parser.path);
    if (status)
        truce__addition_free(parser.addition);
    else
        *addition = parser.addition;
    return status;
}

static void free_expressions(struct node *node)
{
    for (struct node *child = node->first; child; child = child->next)
        free_expressions(child);
    truce__expression_free(node->expression);
}

void truce__addition_free(struct addition *addition)
{
    free_expressions(&addition->root);
    truce__arena_release(&addition->arena);
    bson_free(addition);
}

/* ---- applying ------------------------------------------------------------------------------- */

struct run {
    struct value root;
    struct query_context *context;
    struct builder *builder;
    bson_error_t *error;
};

static truce_status apply_fields(struct run *run, const struct node *node, struct value document,
                                 struct value existing);

static truce_status added_compute(struct run *run, const struct node *node)
{
    struct value result;
    truce_status status = truce__expression_evaluate(
        node->expression, run->root, run->context->variables, run->context, &result, run->error);

    if (!status)
        truce__builder_append(run->builder, node->name, node->length, result);
    return status;
}

/* Applies a branch to `value`, which may be VALUE_MISSING. `key` is NULL for an element of an
 * array. */
static truce_status apply_branch(struct run *run, const struct node *node, const char *key,
                                 uint32_t length, struct value value)
{
    uint8_t type = value.type == BSON_TYPE_ARRAY ? BSON_TYPE_ARRAY : BSON_TYPE_DOCUMENT;
    struct builder_mark mark = key ? truce__builder_open(run->builder, key, length, type)
                                   : truce__builder_open_element(run->builder, type);
    truce_status status = TRUCE_OK;

    if (type == BSON_TYPE_ARRAY) {
        struct fields elements = truce__fields(value);

        while (!status && truce__fields_next(&elements))
            status = apply_branch(run, node, NULL, 0, elements.value);
    } else {
        status = apply_fields(run, node, value, value);
    }
    truce__builder_close(run->builder, mark);
    return status;
}

static truce_status apply_node(struct run *run, const struct node *node, struct value value)
{
    return node->expression ? added_compute(run, node)
                            : apply_branch(run, node, node->name, node->length, value);
}

static truce_status added_find_field(struct run *run, struct value document,
                                     const struct fields *field, struct value *value)
{
    uint32_t steps = 0;

    *value = truce__field_finder_find(run->context->finder, document, field->key, field->key_length,
                                      &steps);
    return truce__budget_spend(run->context->budget, steps, run->error);
}

/* Walks the existing fields in their order. A field that only `existing` has is no longer in the
 * document. */
static truce_status apply_present(struct run *run, const struct node *node, struct value document,
                                  struct value existing, bool *present)
{
    struct fields fields = truce__fields(existing);
    bool all = existing.data == document.data;
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        const struct node *child = added_find_child(node, fields.key, fields.key_length);
        struct value value = fields.value;

        if (!all)
            status = added_find_field(run, document, &fields, &value);
        if (child && !status)
            status = apply_node(run, child, value);
        else
            truce__builder_append(run->builder, fields.key, fields.key_length, value);
        if (child)
            present[child->number] = true;
    }
    return status;
}

static truce_status apply_fields(struct run *run, const struct node *node, struct value document,
                                 struct value existing)
{
    bool *present = truce__arena_take(run->context->arena, node->names.count);
    truce_status status = TRUCE_OK;

    memset(present, 0, node->names.count);
    if (existing.type == BSON_TYPE_DOCUMENT)
        status = apply_present(run, node, document, existing, present);
    for (const struct node *child = node->first; child && !status; child = child->next) {
        if (!present[child->number])
            status = apply_node(run, child, truce__value_missing());
    }
    return status;
}

truce_status truce__addition_apply(const struct addition *addition, struct value document,
                                   struct value existing, struct query_context *context,
                                   struct value *result, bson_error_t *error)
{
    struct builder builder;
    struct run run = {document, context, &builder, error};
    struct field_finder finder = {NULL};
    truce_status status;

    truce_assert(document.type == BSON_TYPE_DOCUMENT && existing.type == BSON_TYPE_DOCUMENT);
    truce__builder_begin(&builder, context->arena, TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_DOCUMENT);
    context->finder = &finder;
    status = apply_fields(&run, &addition->root, document, existing);
    context->finder = NULL;
    truce__field_finder_release(&finder);
    return status ? status : truce__builder_finish(&builder, result, error);
}
