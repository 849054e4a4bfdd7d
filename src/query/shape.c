/*
 * Shapes: inclusion, exclusion and computed fields, compiled into a tree of names.
 *
 *     {a: 1, "b.c": 1, "b.d": {$add: ["$x", 1]}}
 *
 *         root ─┬─ _id  keep          (an inclusion keeps _id unless told otherwise)
 *               ├─ a    keep
 *               └─ b ───┬─ c  keep
 *                       └─ d  compute
 *
 * Applying it is one walk over the document and one over the tree: the fields of the document come
 * first, in their order, each kept, dropped, or descended into; then what is computed and is not
 * there yet, in the order of the specification. $addFields replaces a field in its place.
 *
 * Arrays are transparent: a branch of the tree applies to each element, at any depth. A value that
 * is no document where the tree has a branch is left out of an inclusion, stays in an exclusion,
 * and is replaced by a document of the computed fields if the branch has any ({"a.b": "$x"} of {a:
 * 5} is {a: {b: ...}}).
 *
 * Invariants:
 *   1. No path is a leaf and a branch, nor twice a leaf: the second is refused (31249, 31250; 40176
 *      for $addFields).
 *   2. An exclusion computes nothing; but for _id, an inclusion has no SHAPE_DROP and an exclusion
 * no SHAPE_KEEP.
 *   3. `computes` of a branch tells whether any leaf below computes.
 *   4. The tree does not change after parsing: it is applied from several threads at once.
 */
#include "query/shape.h"

#include "base/assert.h"
#include "base/buffer.h"
#include "base/limits.h"
#include "query/builder.h"
#include "query/expression.h"
#include "query/field_path.h"

enum shape_kind { SHAPE_UNDECIDED, SHAPE_INCLUSION, SHAPE_EXCLUSION, SHAPE_ADDITION };

struct shape_node {
    struct shape_node *next; /* brothers, in the order of the specification */
    struct shape_node *first, *last;
    const char *name;
    uint32_t length;
    bool is_branch, computes;
    enum shape_leaf leaf;
    struct shape_computed computed;
};

struct shape {
    struct arena arena; /* nodes and names */
    struct shape_node root;
    enum shape_kind kind;
};

/* ---- the tree ------------------------------------------------------------------------------- */

static struct shape_node *find_child(const struct shape_node *node, const char *name,
                                     uint32_t length)
{
    for (struct shape_node *child = node->first; child; child = child->next) {
        if (child->length == length && !memcmp(child->name, name, length))
            return child;
    }
    return NULL;
}

static struct shape_node *add_child(struct shape *shape, struct shape_node *node, const char *name,
                                    uint32_t length)
{
    struct shape_node *child = truce__arena_take(&shape->arena, sizeof *child);

    *child = (struct shape_node){.name = truce__arena_copy(&shape->arena, name, length),
                                 .length = length};
    if (node->last)
        node->last->next = child;
    else
        node->first = child;
    node->last = child;
    return child;
}

static truce_status collide(const struct shape *shape, const char *path, size_t length,
                            const char *rest, bson_error_t *error)
{
    bool addition = shape->kind == SHAPE_ADDITION;

    if (rest)
        return truce__refuse(addition ? 40176 : 31249, error,
                             "path '%.*s' collides with a shorter one, which leaves '%.*s'",
                             (int)length, path, (int)(path + length - rest), rest);
    return truce__refuse(addition ? 40176 : 31250, error,
                         "path '%.*s' collides with another of the same specification", (int)length,
                         path);
}

/* Adds a leaf; takes over `computed` in any case. */
static truce_status add_leaf(struct shape *shape, const char *path, size_t length,
                             enum shape_leaf leaf, struct shape_computed computed,
                             bson_error_t *error)
{
    struct shape_node *node = &shape->root;
    const char *at = path, *end = path + length;
    truce_status status = TRUCE_OK;

    for (;;) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        uint32_t part = (uint32_t)((dot ? dot : end) - at);
        struct shape_node *child = find_child(node, at, part);

        if (child && !(dot && child->is_branch)) {
            status = collide(shape, path, length, dot ? dot + 1 : NULL, error);
            break;
        }
        if (!child)
            child = add_child(shape, node, at, part);
        child->computes = child->computes || leaf == SHAPE_COMPUTE;
        node = child;
        if (!dot) {
            child->leaf = leaf;
            child->computed = computed;
            shape->root.computes = shape->root.computes || leaf == SHAPE_COMPUTE;
            return TRUCE_OK;
        }
        child->is_branch = true;
        at = dot + 1;
    }
    if (computed.free)
        computed.free(computed.arg);
    return status;
}

/* ---- parsing -------------------------------------------------------------------------------- */

struct parser {
    struct shape *shape;
    const char *const *variables;
    const struct shape_special *special;
    struct buffer path; /* of the field at hand */
    bool keeps_id;
};

static truce_status evaluate_expression(const void *arg, struct value root,
                                        struct query_context *context, struct value *result,
                                        bson_error_t *error)
{
    return truce__expression_evaluate(arg, root, context->variables, context, result, error);
}

static void free_expression(void *arg)
{
    truce__expression_free(arg);
}

static bool is_id(const char *path, size_t length)
{
    return length == 3 && !memcmp(path, "_id", 3);
}

/* Decides between inclusion and exclusion by the first leaf that tells, and holds the others to it.
 */
static truce_status settle_kind(struct parser *parser, const char *path, size_t length,
                                enum shape_leaf leaf, bson_error_t *error)
{
    enum shape_kind *kind = &parser->shape->kind;
    enum shape_kind wanted = leaf == SHAPE_DROP ? SHAPE_EXCLUSION : SHAPE_INCLUSION;

    if (*kind == SHAPE_ADDITION || leaf == SHAPE_EITHER)
        return TRUCE_OK;
    if (is_id(path, length) && leaf != SHAPE_COMPUTE) {
        parser->keeps_id = leaf == SHAPE_KEEP;
        return TRUCE_OK;
    }
    if (*kind == SHAPE_UNDECIDED)
        *kind = wanted;
    if (*kind == wanted)
        return TRUCE_OK;
    if (leaf == SHAPE_DROP)
        return truce__refuse(31254, error, "'%.*s' cannot be excluded in an inclusion", (int)length,
                             path);
    return truce__refuse(leaf == SHAPE_KEEP ? 31253 : 31252, error,
                         "'%.*s' cannot be %s in an exclusion", (int)length, path,
                         leaf == SHAPE_KEEP ? "included" : "computed");
}

static truce_status parse_leaf(struct parser *parser, size_t length, enum shape_leaf leaf,
                               struct shape_computed computed, bson_error_t *error)
{
    const char *path = (const char *)parser->path.bytes;
    truce_status status = truce__field_path_check(path, length, error);

    if (!status)
        status = settle_kind(parser, path, length, leaf, error);
    if (!status)
        return add_leaf(parser->shape, path, length, leaf, computed, error);
    if (computed.free)
        computed.free(computed.arg);
    return status;
}

static truce_status parse_computed(struct parser *parser, struct value value, bson_error_t *error)
{
    struct expression *expression = NULL;
    truce_status status =
        truce__field_path_check((const char *)parser->path.bytes, parser->path.size, error);

    if (!status)
        status = truce__expression_new(value, parser->variables, &expression, error);
    if (status)
        return status;
    return parse_leaf(parser, parser->path.size, SHAPE_COMPUTE,
                      (struct shape_computed){evaluate_expression, free_expression, expression},
                      error);
}

static truce_status parse_special(struct parser *parser, struct value value, bool *taken,
                                  bson_error_t *error)
{
    size_t length = parser->path.size;
    enum shape_leaf leaf = SHAPE_KEEP;
    struct shape_computed computed = {0};
    truce_status status;

    *taken = false;
    if (!parser->special)
        return TRUCE_OK;
    status = parser->special->parse(parser->special->arg, (const char *)parser->path.bytes, &length,
                                    value, taken, &leaf, &computed, error);
    if (status || !*taken)
        return status;
    return parse_leaf(parser, length, leaf, computed, error);
}

static truce_status parse_fields(struct parser *parser, struct value document, bson_error_t *error);

static truce_status parse_document(struct parser *parser, struct value value, bson_error_t *error)
{
    struct fields fields = truce__fields(value);
    bool addition = parser->shape->kind == SHAPE_ADDITION, taken;
    truce_status status;

    if (!truce__fields_next(&fields))
        return truce__refuse(addition ? 40180 : 51270, error,
                             "'%.*s': an empty document is not a specification of fields",
                             (int)parser->path.size, (const char *)parser->path.bytes);
    if (fields.key[0] != '$')
        return parse_fields(parser, value, error);
    status = parse_special(parser, value, &taken, error);
    return status || taken ? status : parse_computed(parser, value, error);
}

static bool ends_in_position(const struct buffer *path)
{
    return path->size >= 2 && !memcmp(path->bytes + path->size - 2, ".$", 2);
}

static truce_status parse_value(struct parser *parser, struct value value, bson_error_t *error)
{
    bool addition = parser->shape->kind == SHAPE_ADDITION, taken = false;
    truce_status status = TRUCE_OK;

    if (ends_in_position(&parser->path))
        status = parse_special(parser, value, &taken, error);
    if (status || taken)
        return status;
    if (value.type == BSON_TYPE_DOCUMENT)
        return parse_document(parser, value, error);
    if (addition || (value.type != BSON_TYPE_BOOL && !truce__value_is_number(value)))
        return parse_computed(parser, value, error);
    return parse_leaf(parser, parser->path.size,
                      truce__value_truth(value) ? SHAPE_KEEP : SHAPE_DROP,
                      (struct shape_computed){0}, error);
}

/* Names within a nested document of $addFields are single names. */
static truce_status check_nested_name(const struct parser *parser, const struct fields *at,
                                      bson_error_t *error)
{
    if (parser->shape->kind != SHAPE_ADDITION)
        return TRUCE_OK;
    if (at->key[0] == '$')
        return truce__refuse(40181, error, "'%s' stands beside fields: an operator stands alone",
                             at->key);
    if (memchr(at->key, '.', at->key_length))
        return truce__refuse(40183, error, "'%s': a nested field name must not have a dot",
                             at->key);
    return TRUCE_OK;
}

static truce_status parse_fields(struct parser *parser, struct value document, bson_error_t *error)
{
    struct fields fields = truce__fields(document);
    size_t before = parser->path.size;
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        if (before) {
            status = check_nested_name(parser, &fields, error);
            if (status)
                break;
            truce__buffer_append_byte(&parser->path, '.');
        }
        truce__buffer_append(&parser->path, fields.key, fields.key_length);
        if (fields.key_length == 0)
            status = truce__refuse(before ? 40353 : 40352, error, "a field name must not be empty");
        else
            status = parse_value(parser, fields.value, error);
        parser->path.size = before;
    }
    return status;
}

static struct shape *new_shape(enum shape_kind kind)
{
    struct shape *shape = bson_malloc0(sizeof *shape);

    shape->kind = kind;
    shape->root.is_branch = true;
    return shape;
}

/* An inclusion keeps _id if it does not say otherwise. */
static void settle_id(struct parser *parser)
{
    struct shape *shape = parser->shape;

    if (shape->kind == SHAPE_UNDECIDED)
        shape->kind = parser->keeps_id ? SHAPE_INCLUSION : SHAPE_EXCLUSION;
    if (shape->kind == SHAPE_INCLUSION && !find_child(&shape->root, "_id", 3))
        add_child(shape, &shape->root, "_id", 3)->leaf = SHAPE_KEEP;
}

static truce_status parse(struct parser *parser, struct value specification, struct shape **shape,
                          bson_error_t *error)
{
    truce_status status = parse_fields(parser, specification, error);

    if (!status)
        settle_id(parser);
    truce__buffer_release(&parser->path);
    if (status)
        truce__shape_free(parser->shape);
    else
        *shape = parser->shape;
    return status;
}

truce_status truce__shape_parse_projection(struct value specification, const char *const *variables,
                                           const struct shape_special *special,
                                           struct shape **shape, bson_error_t *error)
{
    struct parser parser = {
        .shape = new_shape(SHAPE_UNDECIDED), .variables = variables, .special = special};

    return parse(&parser, specification, shape, error);
}

truce_status truce__shape_parse_fields(struct value specification, const char *const *variables,
                                       struct shape **shape, bson_error_t *error)
{
    struct parser parser = {.shape = new_shape(SHAPE_ADDITION), .variables = variables};

    return parse(&parser, specification, shape, error);
}

static truce_status unset_one(struct shape *shape, struct value path, bson_error_t *error)
{
    uint32_t length;
    const char *text;
    truce_status status;

    if (path.type != BSON_TYPE_UTF8)
        return truce__refuse(31120, error, "$unset names fields by strings");
    text = truce__value_text(path, &length);
    status = truce__field_path_check(text, length, error);
    return status ? status
                  : add_leaf(shape, text, length, SHAPE_DROP, (struct shape_computed){0}, error);
}

truce_status truce__shape_parse_unset(struct value specification, struct shape **shape,
                                      bson_error_t *error)
{
    struct shape *made = new_shape(SHAPE_EXCLUSION);
    truce_status status = TRUCE_OK;

    if (specification.type == BSON_TYPE_UTF8) {
        status = unset_one(made, specification, error);
    } else if (specification.type == BSON_TYPE_ARRAY) {
        struct fields fields = truce__fields(specification);

        while (!status && truce__fields_next(&fields))
            status = unset_one(made, fields.value, error);
        if (!status && !made->root.first)
            status = truce__refuse(31119, error, "$unset must name at least one field");
    } else {
        status = truce__refuse(31002, error, "$unset must be a string or an array of strings");
    }
    if (status)
        truce__shape_free(made);
    else
        *shape = made;
    return status;
}

static void free_computed(struct shape_node *node)
{
    for (struct shape_node *child = node->first; child; child = child->next)
        free_computed(child);
    if (node->computed.free)
        node->computed.free(node->computed.arg);
}

void truce__shape_free(struct shape *shape)
{
    if (!shape)
        return;
    free_computed(&shape->root);
    truce__arena_release(&shape->arena);
    bson_free(shape);
}

bool truce__shape_keeps_others(const struct shape *shape)
{
    return shape->kind != SHAPE_INCLUSION;
}

/* ---- applying ------------------------------------------------------------------------------- */

struct run {
    enum shape_kind kind;
    struct value root;
    struct query_context *context;
    struct builder *builder;
    bson_error_t *error;
};

/* Where a value goes: under a key, or (NULL) as the next element of an array. */
struct place {
    const char *key;
    uint32_t length;
};

static void put(struct run *run, struct place place, struct value value)
{
    if (place.key)
        truce__builder_append(run->builder, place.key, place.length, value);
    else
        truce__builder_element(run->builder, value);
}

static struct builder_mark open_container(struct run *run, struct place place, uint8_t type)
{
    if (place.key)
        return truce__builder_open(run->builder, place.key, place.length, type);
    return truce__builder_open_element(run->builder, type);
}

static truce_status apply_fields(struct run *run, const struct shape_node *node,
                                 struct value document);

static truce_status compute(struct run *run, const struct shape_node *node)
{
    struct value result;
    truce_status status =
        node->computed.evaluate(node->computed.arg, run->root, run->context, &result, run->error);

    if (!status)
        truce__builder_append(run->builder, node->name, node->length, result);
    return status;
}

/* `value` (or nothing: VALUE_MISSING) where the tree has a branch. */
static truce_status apply_branch(struct run *run, const struct shape_node *node, struct place place,
                                 struct value value)
{
    struct builder_mark mark;
    struct fields elements;
    truce_status status = TRUCE_OK;

    if (value.type == BSON_TYPE_ARRAY) {
        mark = open_container(run, place, BSON_TYPE_ARRAY);
        elements = truce__fields(value);
        while (!status && truce__fields_next(&elements))
            status = apply_branch(run, node, (struct place){0}, elements.value);
        truce__builder_close(run->builder, mark);
    } else if (value.type == BSON_TYPE_DOCUMENT || node->computes) {
        mark = open_container(run, place, BSON_TYPE_DOCUMENT);
        status = apply_fields(run, node, value);
        truce__builder_close(run->builder, mark);
    } else if (run->kind != SHAPE_INCLUSION && value.type != VALUE_MISSING) {
        put(run, place, value);
    }
    return status;
}

/* A field of the document, for which the tree has `node`. */
static truce_status apply_field(struct run *run, const struct shape_node *node,
                                const struct fields *field)
{
    if (node->is_branch)
        return apply_branch(run, node, (struct place){field->key, field->key_length}, field->value);
    if (node->leaf == SHAPE_KEEP || node->leaf == SHAPE_EITHER)
        truce__builder_append(run->builder, field->key, field->key_length, field->value);
    else if (node->leaf == SHAPE_COMPUTE && run->kind == SHAPE_ADDITION)
        return compute(run, node);
    return TRUCE_OK;
}

static truce_status apply_present(struct run *run, const struct shape_node *node,
                                  struct value document)
{
    struct fields fields = truce__fields(document);
    const struct shape_node *expected = node->first;
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        const struct shape_node *child = expected;

        if (!child || child->length != fields.key_length ||
            memcmp(child->name, fields.key, fields.key_length) != 0)
            child = find_child(node, fields.key, fields.key_length);
        if (child) {
            expected = child->next;
            status = apply_field(run, child, &fields);
        } else if (run->kind != SHAPE_INCLUSION) {
            truce__builder_append(run->builder, fields.key, fields.key_length, fields.value);
        }
    }
    return status;
}

/* What is computed and had no place among the fields that were there. */
static truce_status apply_absent(struct run *run, const struct shape_node *node,
                                 struct value document)
{
    truce_status status = TRUCE_OK;

    for (const struct shape_node *child = node->first; child && !status; child = child->next) {
        bool replaces = child->is_branch || run->kind == SHAPE_ADDITION;

        if (!child->computes)
            continue;
        if (replaces && document.type == BSON_TYPE_DOCUMENT &&
            truce__value_field(document, child->name, child->length).type != VALUE_MISSING)
            continue;
        if (child->is_branch)
            status = apply_branch(run, child, (struct place){child->name, child->length},
                                  truce__value_missing());
        else
            status = compute(run, child);
    }
    return status;
}

static truce_status apply_fields(struct run *run, const struct shape_node *node,
                                 struct value document)
{
    truce_status status = TRUCE_OK;

    if (document.type == BSON_TYPE_DOCUMENT)
        status = apply_present(run, node, document);
    if (!status && node->computes)
        status = apply_absent(run, node, document);
    return status;
}

truce_status truce__shape_apply(const struct shape *shape, struct value document,
                                struct query_context *context, struct value *result,
                                bson_error_t *error)
{
    struct builder builder;
    struct run run = {shape->kind, document, context, &builder, error};
    truce_status status;

    truce_assert(document.type == BSON_TYPE_DOCUMENT);
    truce__builder_begin(&builder, context->arena, TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_DOCUMENT);
    status = apply_fields(&run, &shape->root, document);
    return status ? status : truce__builder_finish(&builder, result, error);
}
