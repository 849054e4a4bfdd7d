/*
 * Compiles a projection document into its tree.
 *
 * The meaning of a value (MongoDB 4.4 and later):
 *
 *     number or bool                    include or exclude the path; "a.$": the matched element
 *     {$slice: ...}, {$elemMatch: ...}  only in find (in $project, $slice is the expression)
 *     {$op: ...}, other $-names         an expression: a computed field
 *     {b: 1, c: 0}                      the same as "a.b", "a.c"
 *     any other value                   a literal: a computed field
 *
 * A projection includes or excludes. The first field that does one of them decides. A later field
 * of the other kind is an error (31253, 31254), and so is a computed field in an exclusion (31252,
 * 31310). Only `_id` may differ. If no field decides, $slice excludes (shows the rest), and
 * $elemMatch includes. Two paths of which one contains the other are an error (31249, 31250).
 */
#include "query/project/project_tree.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"
#include "bson/field_path.h"
#include "bson/number.h"

enum type { TYPE_UNKNOWN, TYPE_INCLUSION, TYPE_EXCLUSION };

struct parser {
    struct project *project;
    enum type type;
    bool id_specified, id_included, id_excluded;
    bool has_positional, has_elem_match, has_slice;
};

static truce_status project_parse_field(struct parser *parser, const char *parent,
                                        const struct fields *field, bson_error_t *error);

static struct project_branch *parse_find_branch(const struct project_node *node, const char *name,
                                                uint32_t length)
{
    struct field_entry *entry = truce__field_table_find(&node->names, name, length);

    return entry ? &node->branches[entry - node->names.entries] : NULL;
}

/* Adds a branch of that name to a node, and copies the name. */
static struct project_branch *parse_add_branch(struct project *project, struct project_node *node,
                                               const char *name, uint32_t length)
{
    struct project_branch *branch;
    bool known;
    char *copy;

    if (node->count == node->room) {
        uint32_t room = node->room ? node->room * 2 : 4;
        struct project_branch *branches =
            truce__arena_take(&project->memory, room * sizeof *branches);

        if (node->count)
            memcpy(branches, node->branches, node->count * sizeof *branches);
        node->branches = branches;
        node->room = room;
    }
    copy = truce__arena_take(&project->memory, length + 1);
    memcpy(copy, name, length);
    copy[length] = '\0';
    if (!node->count)
        truce__field_table_begin(&node->names, &project->memory, SIZE_MAX);
    known = truce__field_table_set(&node->names, copy, length, truce__value_null());
    truce_assert(known);
    branch = &node->branches[node->count++];
    *branch = (struct project_branch){.name = copy, .length = length};
    return branch;
}

/* Finds or makes the branch of a path in the tree. The caller fills *leaf. */
static truce_status add_path(struct parser *parser, const char *path, bool positional,
                             bool computed, struct project_branch **leaf, bson_error_t *error)
{
    struct project_node *node = &parser->project->root;
    const char *part = path;
    truce_status status = truce__field_path_check(path, strlen(path), error);

    if (status)
        return status;
    for (;;) {
        const char *dot = strchr(part, '.');
        uint32_t length = (uint32_t)(dot ? (size_t)(dot - part) : strlen(part));
        struct project_branch *branch = parse_find_branch(node, part, length);

        node->computed = node->computed || computed;
        if (!dot && branch)
            return truce__refuse(31250, error, "two parts of the projection collide at '%s'", path);
        if (branch && branch->kind != PROJECT_NODE)
            return truce__refuse(31249, error,
                                 "two parts of the projection collide at '%s': '%.*s' is already "
                                 "projected as a whole",
                                 path, (int)(part + length - path), path);
        if (!branch) {
            branch = parse_add_branch(parser->project, node, part, length);
            if (dot) {
                branch->as.node =
                    truce__arena_take(&parser->project->memory, sizeof *branch->as.node);
                *branch->as.node = (struct project_node){0};
            }
        }
        branch->positional = branch->positional || positional;
        if (!dot) {
            *leaf = branch;
            return TRUCE_OK;
        }
        node = branch->as.node;
        part = dot + 1;
    }
}

/* Adds a field with an expression. `code` is the error if the projection excludes fields. */
static truce_status project_parse_computed(struct parser *parser, const char *path,
                                           struct value value, uint32_t code, bson_error_t *error)
{
    struct project_branch *branch;
    struct expression *expression;
    truce_status status;

    if (parser->type == TYPE_EXCLUSION)
        return truce__refuse(code, error, "'%s' is computed, but the projection excludes fields",
                             path);
    parser->type = TYPE_INCLUSION;
    status = truce__expression_new(value, parser->project->variables, &expression, error);
    if (status)
        return status;
    status = add_path(parser, path, false, true, &branch, error);
    if (status) {
        truce__expression_free(expression);
        return status;
    }
    branch->kind = PROJECT_COMPUTED;
    branch->as.expression = expression;
    return TRUCE_OK;
}

/* Returns a number truncated to 32 bits, as MongoDB reads the numbers of $slice. */
static int64_t slice_number(struct value value)
{
    double number = truce__number_to_double(value);

    if (!(number > INT32_MIN))
        return number != number ? 0 : INT32_MIN;
    return number < INT32_MAX ? (int64_t)number : INT32_MAX;
}

/* Reads find's $slice: n, or [skip, limit]. Another form may be the expression of that name. */
static bool parse_read_slice(struct value value, struct project_branch *slice)
{
    struct fields fields;
    struct value numbers[2];
    uint32_t count = 0;

    slice->kind = PROJECT_SLICE;
    slice->as.slice.has_skip = false;
    slice->as.slice.skip = 0;
    if (truce__value_is_number(value)) {
        slice->as.slice.limit = slice_number(value);
        return true;
    }
    if (value.type != BSON_TYPE_ARRAY)
        return false;
    fields = truce__fields(value);
    for (; truce__fields_next(&fields); count++) {
        if (count == 2 || !truce__value_is_number(fields.value))
            return false;
        numbers[count] = fields.value;
    }
    if (count != 2)
        return false;
    slice->as.slice.has_skip = true;
    slice->as.slice.skip = slice_number(numbers[0]);
    slice->as.slice.limit = slice_number(numbers[1]);
    return slice->as.slice.limit > 0;
}

/* Parses $slice: numbers select elements of an array; anything else is the expression of that
 * name. */
static truce_status parse_slice(struct parser *parser, const char *path, struct value whole,
                                struct value operand, bson_error_t *error)
{
    struct project_branch *branch, slice = {0};
    truce_status status;

    if (!parse_read_slice(operand, &slice))
        return project_parse_computed(parser, path, whole, 31252, error);
    status = add_path(parser, path, false, false, &branch, error);
    if (status)
        return status;
    branch->kind = PROJECT_SLICE;
    branch->as.slice = slice.as.slice;
    parser->has_slice = true;
    return TRUCE_OK;
}

/* Adds an $elemMatch to the projection. */
static truce_status parse_elem_match(struct parser *parser, const char *path, struct value whole,
                                     struct value operand, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    struct project_branch *branch;
    struct match *match = NULL;
    truce_status status;

    if (operand.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(31274, error, "$elemMatch of '%s' takes a document, not %s", path,
                             truce__type_name(operand.type));
    if (parser->has_positional)
        return truce__refuse(31255, error,
                             "a projection cannot have $elemMatch and a positional path");
    if (strchr(path, '.'))
        return truce__refuse(31275, error,
                             "$elemMatch of '%s': a projection supports it only for top-level "
                             "fields",
                             path);
    truce__value_append(&filter, path, strlen(path), whole);
    status = truce__match_new(&filter, &match, error);
    if (!status)
        status = add_path(parser, path, false, true, &branch, error);
    bson_destroy(&filter);
    if (status) {
        truce__match_free(match);
        return status;
    }
    branch->kind = PROJECT_ELEM_MATCH;
    branch->as.match = match;
    parser->has_elem_match = true;
    return TRUCE_OK;
}

static char *parse_join(struct arena *arena, const char *parent, const char *name)
{
    size_t size = strlen(parent) + strlen(name) + 2;
    char *path = truce__arena_take(arena, size);

    snprintf(path, size, "%s.%s", parent, name);
    return path;
}

/* Parses a document in a projection: an operator, an expression, or fields below the path. */
static truce_status parse_document(struct parser *parser, const char *path, struct value document,
                                   bson_error_t *error)
{
    struct fields fields = truce__fields(document), first = fields, second;

    if (!truce__fields_next(&first))
        return truce__refuse(51270, error,
                             "'%s' is an empty document, which projects no field: use {$literal: "
                             "{}}",
                             path);
    second = first;
    if (first.key[0] == '$' && !truce__fields_next(&second)) {
        bool find = !parser->project->stage;

        if (find && strcmp(first.key, "$slice") == 0)
            return parse_slice(parser, path, document, first.value, error);
        if (find && strcmp(first.key, "$elemMatch") == 0)
            return parse_elem_match(parser, path, document, first.value, error);
        return project_parse_computed(parser, path, document, 31252, error);
    }
    while (truce__fields_next(&fields)) {
        truce_status status = project_parse_field(parser, path, &fields, error);

        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* Removes ".$" from the end of `path`; *positional is set to whether it was there. */
static truce_status cut_positional(char *path, bool *positional, bson_error_t *error)
{
    size_t length = strlen(path);

    *positional = length > 2 && strcmp(path + length - 2, ".$") == 0;
    if (*positional)
        path[length - 2] = '\0';
    if (strstr(path, ".$.") || (*positional && length > 4 && !strcmp(path + length - 4, ".$")))
        return truce__refuse(31394, error, "'%s': the positional '$' is allowed only at the end",
                             path);
    return TRUCE_OK;
}

static truce_status check_positional(const struct parser *parser, const char *path,
                                     bson_error_t *error)
{
    if (parser->has_positional)
        return truce__refuse(31276, error, "a projection can have one positional path, not '%s'",
                             path);
    if (parser->has_elem_match)
        return truce__refuse(31256, error,
                             "a projection cannot have $elemMatch and a positional path");
    if (!parser->project->match)
        return truce__refuse(51050, error, "'%s.$' needs a filter with a condition on the array",
                             path);
    return TRUCE_OK;
}

/* Adds a field that is shown, or with `positional`, only its matched element. */
static truce_status parse_inclusion(struct parser *parser, const char *path, bool positional,
                                    bson_error_t *error)
{
    struct project_branch *branch;
    truce_status status = positional ? check_positional(parser, path, error) : TRUCE_OK;

    if (!status)
        status = add_path(parser, path, positional, false, &branch, error);
    if (status)
        return status;
    branch->kind = PROJECT_INCLUDE;
    parser->has_positional = parser->has_positional || positional;
    if (strcmp(path, "_id") == 0 && !positional) {
        parser->id_included = true;
        return TRUCE_OK;
    }
    if (parser->type == TYPE_EXCLUSION)
        return truce__refuse(31253, error, "'%s' is included, but the projection excludes fields",
                             path);
    parser->type = TYPE_INCLUSION;
    return TRUCE_OK;
}

/* Adds a field that is left out. */
static truce_status parse_exclusion(struct parser *parser, const char *path, bson_error_t *error)
{
    struct project_branch *branch;
    truce_status status = add_path(parser, path, false, false, &branch, error);

    if (status)
        return status;
    branch->kind = PROJECT_EXCLUDE;
    if (strcmp(path, "_id") == 0) {
        parser->id_excluded = true;
        return TRUCE_OK;
    }
    if (parser->type == TYPE_INCLUSION)
        return truce__refuse(31254, error, "'%s' is excluded, but the projection includes fields",
                             path);
    parser->type = TYPE_EXCLUSION;
    return TRUCE_OK;
}

/* Parses a field of a projection: an inclusion, an exclusion, a literal, or an expression. */
static truce_status project_parse_field(struct parser *parser, const char *parent,
                                        const struct fields *field, bson_error_t *error)
{
    struct arena *arena = &parser->project->memory;
    char *path = parent ? parse_join(arena, parent, field->key)
                        : truce__arena_copy(arena, field->key, field->key_length + 1);
    bool positional = false;
    truce_status status = TRUCE_OK;

    if (!parser->project->stage)
        status = cut_positional(path, &positional, error);
    if (status)
        return status;
    if (strcmp(path, "_id") == 0 || strncmp(path, "_id.", 4) == 0)
        parser->id_specified = true;
    if (field->value.type == BSON_TYPE_DOCUMENT) {
        if (positional)
            return truce__refuse(31271, error, "'%s.$' cannot be computed", path);
        return parse_document(parser, path, field->value, error);
    }
    if (truce__value_is_number(field->value) || field->value.type == BSON_TYPE_BOOL) {
        if (truce__value_truth(field->value))
            return parse_inclusion(parser, path, positional, error);
        if (positional)
            return truce__refuse(31395, error, "'%s.$' cannot be excluded", path);
        return parse_exclusion(parser, path, error);
    }
    if (positional)
        return truce__refuse(31308, error, "'%s.$' cannot be a literal", path);
    return project_parse_computed(parser, path, field->value,
                                  parser->project->stage ? 31252 : 31310, error);
}

/* Returns the type of a projection in which no field decides. */
static enum type default_type(const struct parser *parser)
{
    if (parser->has_slice)
        return parser->id_included ? TYPE_INCLUSION : TYPE_EXCLUSION;
    if (parser->has_elem_match || parser->id_included)
        return TYPE_INCLUSION;
    return TYPE_EXCLUSION;
}

static void remove_branch(struct project_node *node, const char *name)
{
    struct project_branch *branch = parse_find_branch(node, name, (uint32_t)strlen(name));
    size_t rest = (size_t)(node->branches + node->count - (branch + 1));

    truce_assert(branch);
    memmove(branch, branch + 1, rest * sizeof *branch);
    node->count--;
}

static int parse_compare_branches(const void *a, const void *b)
{
    const struct project_branch *const *left = a, *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

static void sort_branches(struct arena *arena, struct project_node *node)
{
    node->sorted = truce__arena_take(arena, (node->count + 1) * sizeof *node->sorted);
    for (uint32_t i = 0; i < node->count; i++) {
        node->sorted[i] = &node->branches[i];
        if (node->branches[i].kind == PROJECT_NODE)
            sort_branches(arena, node->branches[i].as.node);
    }
    qsort(node->sorted, node->count, sizeof *node->sorted, parse_compare_branches);
}

const struct project_branch *truce__project_find(const struct project_node *node, const char *name,
                                                 uint32_t length)
{
    uint32_t low = 0, high = node->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct project_branch *branch = node->sorted[middle];
        int order = strncmp(name, branch->name, length);

        if (order == 0 && branch->length == length)
            return branch;
        if (order <= 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

truce_status truce__project_parse(struct project *project, bson_error_t *error)
{
    struct parser parser = {.project = project};
    struct fields fields = truce__fields(truce__value_document(project->source));

    while (truce__fields_next(&fields)) {
        truce_status status = project_parse_field(&parser, NULL, &fields, error);

        if (status)
            return status;
    }
    if (parser.type == TYPE_UNKNOWN)
        parser.type = default_type(&parser);
    project->inclusion = parser.type == TYPE_INCLUSION;
    project->positional = parser.has_positional;
    if (project->inclusion ? parser.id_excluded : parser.id_included)
        remove_branch(&project->root, "_id");
    if (project->inclusion && !parser.id_specified)
        parse_add_branch(project, &project->root, "_id", 3)->kind = PROJECT_INCLUDE;
    sort_branches(&project->memory, &project->root);
    return TRUCE_OK;
}
