/*
 * From an update document to its tree: the table of operators, paths, array filters.
 *
 *     {$set: {"a.$[x]": 1}, $inc: {n: 1}}   with arrayFilters [{"x.b": 2}]
 *       |       |        |
 *       |       |        operand: checked by the operator's parse function, kept in the leaf
 *       |       path: no empty part; "$" at most once and not first; "$[x]" names an array filter
 *       operator: a row of the table
 *
 * $rename puts two leaves into the tree: itself at the target, and one that takes the field away at
 * the source, so that both ends conflict with other operators.
 *
 * MongoDB 5.0 and later is the model: an operator without fields ({$set: {}}) changes nothing.
 */
#include "query/update/update_tree.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"
#include "query/match/match_tree.h"

/* where $rename takes the field from: not written by users, so not in the table */
static const struct update_operator rename_source = {
    "$rename", UPDATE_LENIENT | UPDATE_DOLLAR_NAMES, NULL, truce__update_unset};

static truce_status parse_nothing(struct update_parser *parser, struct update_leaf *leaf,
                                  bson_error_t *error)
{
    (void)parser, (void)leaf, (void)error;
    return TRUCE_OK;
}

static const struct update_operator operators[] = {
    {"$set", UPDATE_CREATES, truce__update_parse_set, truce__update_set},
    {"$inc", UPDATE_CREATES, truce__update_parse_number, truce__update_inc},
    {"$unset", UPDATE_LENIENT | UPDATE_DOLLAR_NAMES, parse_nothing, truce__update_unset},
    {"$push", UPDATE_CREATES, truce__update_parse_push, truce__update_push},
    {"$pull", 0, truce__update_parse_pull, truce__update_pull},
    {"$addToSet", UPDATE_CREATES, truce__update_parse_add, truce__update_add},
    {"$min", UPDATE_CREATES, truce__update_parse_set, truce__update_min},
    {"$max", UPDATE_CREATES, truce__update_parse_set, truce__update_max},
    {"$mul", UPDATE_CREATES, truce__update_parse_number, truce__update_mul},
    {"$rename", UPDATE_CREATES, truce__update_parse_rename, truce__update_rename},
    {"$setOnInsert", UPDATE_CREATES | UPDATE_INSERT_ONLY, truce__update_parse_set,
     truce__update_set},
    {"$currentDate", UPDATE_CREATES, truce__update_parse_date, truce__update_date},
    {"$pullAll", 0, truce__update_parse_pull_all, truce__update_pull_all},
    {"$pop", 0, truce__update_parse_pop, truce__update_pop},
    {"$bit", UPDATE_CREATES, truce__update_parse_bit, truce__update_bit},
    {"$update", UPDATE_ITEMS, truce__update_parse_items, NULL},
};

static const struct update_operator *parse_find_operator(const char *name)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (strcmp(operators[i].name, name) == 0)
            return &operators[i];
    }
    return NULL;
}

uint32_t truce__update_depth(struct value value)
{
    uint32_t deepest = 0;
    struct fields fields;

    if (!truce__value_is_container(value))
        return 0;
    fields = truce__fields(value);
    while (truce__fields_next(&fields)) {
        uint32_t depth = truce__update_depth(fields.value);

        deepest = depth > deepest ? depth : deepest;
    }
    return deepest + 1;
}

/* a list in the update's arena that doubles; gives the place of a new item */
static void **new_item(struct update *update, void ***list, uint32_t *count, uint32_t *room)
{
    if (*count == *room) {
        uint32_t more = *room ? *room * 2 : 8;
        void **bigger = truce__arena_take(&update->memory, more * sizeof(void *));

        if (*count)
            memcpy(bigger, *list, *count * sizeof(void *));
        *list = bigger;
        *room = more;
    }
    return &(*list)[(*count)++];
}

void truce__update_own_match(struct update *update, struct match *match)
{
    *new_item(update, &update->matches, &update->matches_count, &update->matches_room) = match;
}

struct path *truce__update_path(struct update *update, const char *text, size_t length,
                                bson_error_t *error)
{
    struct path *path = truce__arena_take(&update->memory, sizeof *path);

    return truce__path_parse_into(&update->memory, text, length, path, error) ? NULL : path;
}

static bool is_positional(const struct path_part *part)
{
    return part->length == 1 && part->name[0] == '$';
}

static truce_status check_path(const struct update_parser *parser, const struct path *path,
                               bson_error_t *error)
{
    uint32_t positional = 0;

    for (uint32_t i = 0; i < path->count; i++) {
        if (path->parts[i].length == 0)
            return truce__refuse(CODE_EMPTY_FIELD_NAME, error,
                                 "the path '%s' has an empty field name", path->text);
        positional += is_positional(&path->parts[i]);
    }
    if (path->count == 0)
        return truce__refuse(CODE_EMPTY_FIELD_NAME, error, "an update path is empty");
    if (positional > 1)
        return truce__refuse(CODE_BAD_VALUE, error, "the path '%s' has more than one '$'",
                             path->text);
    if (positional && is_positional(&path->parts[0]))
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the path '%s' starts with '$': there must be a field before it",
                             path->text);
    if (positional && parser->depth)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the path '%s' has a '$', which means nothing inside $update",
                             path->text);
    return TRUCE_OK;
}

/* the second leaf of a $rename */
static truce_status add_rename_source(struct update_parser *parser, struct update_node *root,
                                      const struct path *from, bson_error_t *error)
{
    struct update_leaf *placed;
    truce_status status = truce__update_tree_add(parser, root, from, &placed, error);

    if (!status)
        *placed = (struct update_leaf){.operator= & rename_source, .path = from->text};
    return status;
}

/* $rename's source goes into the tree, and `target` becomes the path that its operand names */
static truce_status begin_rename(struct update_parser *parser, struct update_node *root,
                                 const struct path *from, struct value operand,
                                 struct path **target, bson_error_t *error)
{
    truce_status status;
    uint32_t length;
    const char *text;

    if (operand.type != BSON_TYPE_UTF8)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the target of $rename of '%s' is %s, not a string", from->text,
                             truce__type_name(operand.type));
    text = truce__value_text(operand, &length);
    if (memchr(text, 0, length))
        return truce__refuse(CODE_BAD_VALUE, error, "the target of $rename of '%s' has a zero byte",
                             from->text);
    status = check_path(parser, from, error);
    if (!status)
        status = add_rename_source(parser, root, from, error);
    if (status)
        return status;
    *target = truce__update_path(parser->update, text, length, error);
    return *target ? TRUCE_OK : TRUCE_INVALID;
}

/* {operator: {field: operand}} into the tree */
static truce_status add_operation(struct update_parser *parser, struct update_node *root,
                                  const struct update_operator *operator,
                                  const struct fields * field, bson_error_t *error)
{
    struct update_leaf leaf = {.operator= operator, .operand = field->value }, *placed;
    struct path *path = truce__update_path(parser->update, field->key, field->key_length, error);
    struct path *target = path;
    truce_status status = TRUCE_OK;

    if (!path)
        return TRUCE_INVALID;
    leaf.as.rename.from = path;
    if (operator->apply == truce__update_rename)
        status = begin_rename(parser, root, path, field->value, &target, error);
    if (!status)
        status = check_path(parser, target, error);
    if (status)
        return status;
    leaf.path = target->text;
    status = operator->parse(parser, &leaf, error);
    if (!status)
        status = truce__update_tree_add(parser, root, target, &placed, error);
    if (!status)
        *placed = leaf;
    return status;
}

truce_status truce__update_parse(struct update_parser *parser, struct update_node *root,
                                 struct value update, bson_error_t *error)
{
    struct fields each = truce__fields(update);

    while (truce__fields_next(&each)) {
        const struct update_operator *operator= parse_find_operator(each.key);
        struct fields fields;

        if (parser->depth && strcmp(each.key, "$query") == 0)
            continue;
        if (!operator)
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "unknown update operator '%s'; operators and fields do not mix",
                                 each.key);
        if (each.value.type != BSON_TYPE_DOCUMENT)
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "%s wants a document of fields, not %s", each.key,
                                 truce__type_name(each.value.type));
        fields = truce__fields(each.value);
        while (truce__fields_next(&fields)) {
            truce_status status = add_operation(parser, root, operator, & fields, error);

            if (status)
                return status;
        }
    }
    return TRUCE_OK;
}

/* $expr has no place in a condition on one value: its variables would mean the document */
static truce_status refuse_expressions(const struct match_node *node, bson_error_t *error)
{
    if (node->kind == MATCH_EXPR)
        return truce__refuse(CODE_QUERY_FEATURE_NOT_ALLOWED, error,
                             "$expr is not allowed in a condition on array items");
    for (uint32_t i = 0; i < node->children_count; i++) {
        truce_status status = refuse_expressions(node->children[i], error);

        if (status)
            return status;
    }
    return TRUCE_OK;
}

static bool parse_is_identifier(const char *name)
{
    if (name[0] < 'a' || name[0] > 'z')
        return false;
    for (; *name; name++) {
        if (!((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
              (*name >= '0' && *name <= '9')))
            return false;
    }
    return true;
}

static truce_status parse_filter(struct update *update, struct value condition, bson_error_t *error)
{
    struct update_filter *filter = &update->filters[update->filters_count];
    truce_status status;
    bson_t document;

    if (condition.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_TYPE_MISMATCH, error, "an array filter is a document, not %s",
                             truce__type_name(condition.type));
    truce__value_bson(condition, &document);
    status = truce__match_elements_new(&document, &filter->match, &filter->name, error);
    if (status)
        return status;
    truce__update_own_match(update, filter->match);
    status = refuse_expressions(truce__match_root(filter->match), error);
    if (status)
        return status;
    if (!parse_is_identifier(filter->name))
        return truce__refuse(CODE_BAD_VALUE, error,
                             "an array filter's identifier is of letters and digits and begins "
                             "with a small letter, '%s' is not",
                             filter->name);
    for (uint32_t i = 0; i < update->filters_count; i++) {
        if (strcmp(update->filters[i].name, filter->name) == 0)
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "there are two array filters for '%s'", filter->name);
    }
    update->filters_count++;
    return TRUCE_OK;
}

truce_status truce__update_parse_filters(struct update *update, const bson_t *filters,
                                         bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(filters));
    uint32_t count = bson_count_keys(filters);

    update->filters = truce__arena_take(&update->memory, (count + 1) * sizeof *update->filters);
    memset(update->filters, 0, (count + 1) * sizeof *update->filters);
    while (truce__fields_next(&fields)) {
        truce_status status = parse_filter(update, fields.value, error);

        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* {$gte: 5} is about the value; {x: 1}, and what begins with $or and the like, is about its fields. */
static bool parse_is_about_fields(struct value condition)
{
    struct fields fields;

    if (condition.type != BSON_TYPE_DOCUMENT)
        return false;
    fields = truce__fields(condition);
    return !truce__fields_next(&fields) || !truce__match_is_operator(fields.key);
}

truce_status truce__update_condition(struct update_parser *parser, struct value condition,
                                     struct match **match, bool *documents_only,
                                     bson_error_t *error)
{
    truce_status status;
    bson_t document;

    *match = NULL;
    *documents_only = parse_is_about_fields(condition);
    if (*documents_only) {
        truce__value_bson(condition, &document);
        status = truce__match_new(&document, match, error);
    } else {
        status = truce__match_value_new(condition, match, error);
    }
    if (status)
        return status;
    truce__update_own_match(parser->update, *match);
    return refuse_expressions(truce__match_root(*match), error);
}
