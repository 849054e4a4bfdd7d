/*
 * Applies projections.
 *
 * The walk goes through the document and the tree together. Included fields stay in the document's
 * order. A computed field takes the place of a shown field of its name; otherwise it comes after
 * the other fields, in the projection's order. A path goes through each element of an array, also
 * of arrays in arrays. An inclusion drops elements that are neither documents nor arrays.
 *
 *     {"a.b": 1}            {a: [{b: 1, c: 2}, 5, [{b: 3}]]}   ->  {a: [{b: 1}, [{b: 3}]]}
 *     {"a.b": {$add: ..}}   {a: [{b: 1, c: 2}, 5]}             ->  {a: [{b: 7}, {b: 7}]}
 *
 * $slice does not go into arrays in arrays. "a.b.$" shows only one element of the first array on
 * its path: the element that the query matched.
 */
#include "query/project/project.h"

#include "base/assert.h"
#include "base/limits.h"
#include "bson/builder.h"
#include "bson/field_path.h"
#include "query/project/project_tree.h"

static struct project *project_allocate(const bson_t *projection)
{
    struct project *new = bson_malloc0(sizeof *new);

    new->source = bson_copy(projection);
    return new;
}

static truce_status project_parse(struct project *new, struct project **project,
                                  bson_error_t *error)
{
    truce_status status = truce__project_parse(new, error);

    *project = NULL;
    new->variables = NULL;
    if (status)
        truce__project_free(new);
    else
        *project = new;
    return status;
}

truce_status truce__project_new(const bson_t *projection, const struct match *match,
                                struct project **project, bson_error_t *error)
{
    struct project *new = project_allocate(projection);

    new->match = match;
    return project_parse(new, project, error);
}

truce_status truce__project_new_stage(const bson_t *projection, const char *const *variables,
                                      struct project **project, bson_error_t *error)
{
    struct project *new = project_allocate(projection);

    new->stage = true;
    new->variables = variables;
    return project_parse(new, project, error);
}

bool truce__project_is_exclusion(const struct project *project)
{
    return !project->inclusion;
}

bool truce__project_keeps(const struct project *project, const char *field, uint32_t length)
{
    const struct project_branch *branch = truce__project_find(&project->root, field, length);

    return branch ? branch->kind == PROJECT_INCLUDE : !project->inclusion;
}

static void free_branches(struct project_node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        struct project_branch *branch = &node->branches[i];

        if (branch->kind == PROJECT_NODE)
            free_branches(branch->as.node);
        else if (branch->kind == PROJECT_COMPUTED)
            truce__expression_free(branch->as.expression);
        else if (branch->kind == PROJECT_ELEM_MATCH)
            truce__match_free(branch->as.match);
    }
}

void truce__project_free(struct project *project)
{
    if (!project)
        return;
    free_branches(&project->root);
    bson_destroy(project->source);
    truce__arena_release(&project->memory);
    bson_free(project);
}

struct walk {
    const struct project *project;
    struct query_context *context;
    struct value root;
    /* The index of the element that the query matched, or -1. */
    int64_t matched;
};

/* Properties of the path on which the walk has reached a value. */
struct way {
    /* The first array on this path shows one element. */
    bool positional;
    /* The path goes through an array in an array, which $slice does not enter. */
    bool nested;
};

struct shown {
    const char *name;
    uint32_t length;
    struct value value;
};

struct shown_list {
    struct shown *items;
    uint32_t count;
    /* slots[i]: the number (from 1) of the item of branch i, or 0 if the branch has no item yet.
     * NULL if no branch is computed. */
    uint32_t *slots;
};

static truce_status project_show(const struct walk *walk, const struct project_node *node,
                                 struct value value, struct way way, struct value *result,
                                 bson_error_t *error);

static struct value project_element_at(struct value array, int64_t index)
{
    struct fields fields = truce__fields(array);

    for (int64_t i = 0; truce__fields_next(&fields); i++) {
        if (i == index)
            return fields.value;
    }
    return truce__value_missing();
}

static truce_status project_finish(struct builder *builder, struct value *result,
                                   bson_error_t *error)
{
    truce_status status = truce__builder_finish(builder, result, error);

    if (!status && result->size > TRUCE_DOCUMENT_BYTES_MAX + TRUCE_INTERNAL_BYTES_EXTRA)
        status = truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                               "the projected document is larger than %d bytes",
                               TRUCE_DOCUMENT_BYTES_MAX);
    return status;
}

static void project_begin(const struct walk *walk, struct builder *builder, uint8_t type)
{
    truce__builder_begin(builder, walk->context->arena, TRUCE_STAGE_MEMORY_MAX, type);
}

static truce_status array_of_one(const struct walk *walk, struct value element,
                                 struct value *result, bson_error_t *error)
{
    struct builder builder;

    project_begin(walk, &builder, BSON_TYPE_ARRAY);
    truce__builder_element(&builder, element);
    return project_finish(&builder, result, error);
}

static truce_status positional_element(const struct walk *walk, struct value array,
                                       struct value *element, bson_error_t *error)
{
    if (walk->matched < 0)
        return truce__refuse(51246, error,
                             "the positional path finds no array element that the query matched");
    *element = project_element_at(array, walk->matched);
    if (element->type == VALUE_MISSING)
        return truce__refuse(51247, error,
                             "element %lld, which the query matched, is not in the "
                             "array of the positional path",
                             (long long)walk->matched);
    return TRUCE_OK;
}

/* Returns the elements that $slice selects. A negative number without `skip` selects elements at
 * the end. */
static truce_status slice_array(const struct walk *walk, const struct project_branch *branch,
                                struct value array, struct value *result, bson_error_t *error)
{
    struct fields fields = truce__fields(array);
    int64_t length = 0, skip = branch->as.slice.skip, limit = branch->as.slice.limit;
    struct builder builder;

    while (truce__fields_next(&fields))
        length++;
    if (!branch->as.slice.has_skip && limit < 0) {
        skip = limit;
        limit = -limit;
    }
    if (skip < 0)
        skip = length + skip > 0 ? length + skip : 0;
    project_begin(walk, &builder, BSON_TYPE_ARRAY);
    fields = truce__fields(array);
    for (int64_t i = 0; truce__fields_next(&fields) && i < skip + limit; i++) {
        if (i >= skip)
            truce__builder_element(&builder, fields.value);
    }
    return project_finish(&builder, result, error);
}

/* Shows the value of an included field. */
static truce_status show_whole(const struct walk *walk, const struct project_branch *branch,
                               struct value value, struct way way, struct value *result,
                               bson_error_t *error)
{
    struct value element;
    truce_status status;

    *result = value;
    if (value.type != BSON_TYPE_ARRAY)
        return TRUCE_OK;
    if (branch->kind == PROJECT_SLICE && !way.nested)
        return slice_array(walk, branch, value, result, error);
    if (!branch->positional || !way.positional)
        return TRUCE_OK;
    status = positional_element(walk, value, &element, error);
    return status ? status : array_of_one(walk, element, result, error);
}

/* Sets *result to what is shown of an existing field, or to MISSING if it is not shown, or is
 * computed later. */
static truce_status show_field(const struct walk *walk, const struct project_branch *branch,
                               struct value value, struct way way, struct value *result,
                               bson_error_t *error)
{
    bool inclusion = walk->project->inclusion;

    *result = truce__value_missing();
    if (!branch) {
        *result = inclusion ? *result : value;
        return TRUCE_OK;
    }
    switch (branch->kind) {
    case PROJECT_INCLUDE:
    case PROJECT_SLICE:
        return show_whole(walk, branch, value, way, result, error);
    case PROJECT_NODE:
        way.positional = way.positional && branch->positional;
        return project_show(walk, branch->as.node, value, way, result, error);
    case PROJECT_COMPUTED:
    case PROJECT_ELEM_MATCH:
        *result = inclusion ? *result : value;
        return TRUCE_OK;
    case PROJECT_EXCLUDE:
        break;
    }
    return TRUCE_OK;
}

/* Computes a field: the value of an expression, or for $elemMatch, an array of the first element
 * that matches. */
static truce_status project_compute(const struct walk *walk, const struct project_branch *branch,
                                    struct value *result, bson_error_t *error)
{
    struct match_result found;
    struct value array;
    truce_status status;

    if (branch->kind == PROJECT_COMPUTED)
        return truce__expression_evaluate(branch->as.expression, walk->root,
                                          walk->context->variables, walk->context, result, error);
    *result = truce__value_missing();
    status = truce__match_test(branch->as.match, walk->root, walk->context, &found, error);
    if (status || !found.matched)
        return status;
    array = truce__value_field(walk->root, branch->name, branch->length);
    truce_assert(array.type == BSON_TYPE_ARRAY && found.array_index >= 0);
    return array_of_one(walk, project_element_at(array, found.array_index), result, error);
}

/* Adds computed fields, and the paths to such fields that the document does not have. */
static truce_status add_computed(const struct walk *walk, const struct project_node *node,
                                 struct way way, struct shown_list *list, bson_error_t *error)
{
    for (uint32_t i = 0; i < node->count; i++) {
        const struct project_branch *branch = &node->branches[i];
        struct shown *slot = list->slots[i] ? &list->items[list->slots[i] - 1] : NULL;
        struct value value;
        truce_status status;

        if (branch->kind == PROJECT_COMPUTED || branch->kind == PROJECT_ELEM_MATCH)
            status = project_compute(walk, branch, &value, error);
        else if (branch->kind == PROJECT_NODE && branch->as.node->computed && !slot)
            status =
                project_show(walk, branch->as.node, truce__value_missing(), way, &value, error);
        else
            continue;
        if (status)
            return status;
        if (!slot) {
            slot = &list->items[list->count++];
            slot->name = branch->name;
            slot->length = branch->length;
        }
        slot->value = value;
    }
    return TRUCE_OK;
}

static uint32_t project_count_fields(struct value document)
{
    struct fields fields;
    uint32_t count = 0;

    if (document.type != BSON_TYPE_DOCUMENT)
        return 0;
    fields = truce__fields(document);
    while (truce__fields_next(&fields))
        count++;
    return count;
}

/* Shows a document. If the document is MISSING, the result has only computed fields. */
static truce_status show_document(const struct walk *walk, const struct project_node *node,
                                  struct value document, struct way way, struct value *result,
                                  bson_error_t *error)
{
    struct shown_list list = {
        .items = truce__arena_take(walk->context->arena,
                                   ((size_t)project_count_fields(document) + node->count + 1) *
                                       sizeof *list.items)};
    struct fields fields;
    struct builder builder;
    truce_status status = TRUCE_OK;

    if (node->computed) {
        list.slots = truce__arena_take(walk->context->arena, node->count * sizeof *list.slots);
        memset(list.slots, 0, node->count * sizeof *list.slots);
    }
    if (document.type == BSON_TYPE_DOCUMENT) {
        fields = truce__fields(document);
        while (!status && truce__fields_next(&fields)) {
            struct shown *shown = &list.items[list.count];
            const struct project_branch *branch =
                truce__project_find(node, fields.key, fields.key_length);

            shown->name = fields.key;
            shown->length = fields.key_length;
            status = show_field(walk, branch, fields.value, way, &shown->value, error);
            if (shown->value.type == VALUE_MISSING)
                continue;
            list.count++;
            if (branch && list.slots && !list.slots[branch - node->branches])
                list.slots[branch - node->branches] = list.count;
        }
    }
    if (!status && node->computed)
        status = add_computed(walk, node, way, &list, error);
    if (status)
        return status;
    project_begin(walk, &builder, BSON_TYPE_DOCUMENT);
    for (uint32_t i = 0; i < list.count; i++)
        truce__builder_append(&builder, list.items[i].name, list.items[i].length,
                              list.items[i].value);
    return project_finish(&builder, result, error);
}

/* Projects each element of an array. Elements of which nothing is shown are left out. */
static truce_status show_array(const struct walk *walk, const struct project_node *node,
                               struct value array, struct way way, struct value *result,
                               bson_error_t *error)
{
    struct fields fields = truce__fields(array);
    struct builder builder;
    truce_status status;

    project_begin(walk, &builder, BSON_TYPE_ARRAY);
    while (truce__fields_next(&fields)) {
        struct way inner = {.nested = way.nested || fields.value.type == BSON_TYPE_ARRAY};
        struct value element;

        status = project_show(walk, node, fields.value, inner, &element, error);
        if (status)
            return status;
        if (element.type != VALUE_MISSING)
            truce__builder_element(&builder, element);
    }
    return project_finish(&builder, result, error);
}

/* Projects the element that the filter has matched, for the positional operator. */
static truce_status show_positional(const struct walk *walk, const struct project_node *node,
                                    struct value array, struct value *result, bson_error_t *error)
{
    struct value element, shown;
    truce_status status = positional_element(walk, array, &element, error);

    if (status)
        return status;
    status = project_show(walk, node, element, (struct way){0}, &shown, error);
    if (status)
        return status;
    if (shown.type == VALUE_MISSING)
        return truce__refuse(51247, error,
                             "the matched element has no field on the positional path");
    return array_of_one(walk, shown, result, error);
}

/* Sets *result to what is shown of a value at a node of the tree, or to MISSING if nothing is. */
static truce_status project_show(const struct walk *walk, const struct project_node *node,
                                 struct value value, struct way way, struct value *result,
                                 bson_error_t *error)
{
    if (value.type == BSON_TYPE_DOCUMENT)
        return show_document(walk, node, value, way, result, error);
    if (value.type == BSON_TYPE_ARRAY)
        return way.positional ? show_positional(walk, node, value, result, error)
                              : show_array(walk, node, value, way, result, error);
    if (node->computed)
        return show_document(walk, node, truce__value_missing(), way, result, error);
    *result = walk->project->inclusion ? truce__value_missing() : value;
    return TRUCE_OK;
}

/* Finds the positional element. If `found` is NULL, tests the query again. */
static truce_status find_matched(struct walk *walk, const struct match_result *found,
                                 bson_error_t *error)
{
    struct match_result again;
    truce_status status;

    walk->matched = -1;
    if (!walk->project->positional)
        return TRUCE_OK;
    if (!found) {
        status = truce__match_test(walk->project->match, walk->root, walk->context, &again, error);
        if (status)
            return status;
        found = &again;
    }
    if (found->matched)
        walk->matched = found->array_index;
    return TRUCE_OK;
}

/* Applies the projection to the document at the root. All expressions share a finder for the fields
 * of the document. */
static truce_status show_root(const struct walk *walk, struct way way, struct value *result,
                              bson_error_t *error)
{
    struct field_finder finder = {NULL};
    truce_status status;

    walk->context->finder = &finder;
    status = project_show(walk, &walk->project->root, walk->root, way, result, error);
    walk->context->finder = NULL;
    truce__field_finder_release(&finder);
    return status;
}

truce_status truce__project_apply(const struct project *project, struct value document,
                                  const struct match_result *found, struct query_context *context,
                                  bson_t *result, bson_error_t *error)
{
    struct walk walk = {.project = project, .context = context, .root = document};
    struct way way = {.positional = project->positional};
    struct value shown;
    truce_status status = find_matched(&walk, found, error);
    uint8_t *bytes;

    bson_init(result);
    if (!status)
        status = show_root(&walk, way, &shown, error);
    if (status)
        return status;
    bytes = bson_reserve_buffer(result, shown.size);
    truce_assert(bytes);
    memcpy(bytes, shown.data, shown.size);
    return TRUCE_OK;
}

truce_status truce__project_show(const struct project *project, struct value document,
                                 struct query_context *context, struct value *result,
                                 bson_error_t *error)
{
    struct walk walk = {.project = project, .context = context, .root = document, .matched = -1};

    truce_assert(!project->positional);
    return show_root(&walk, (struct way){0}, result, error);
}
