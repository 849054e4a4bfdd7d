/*
 * Filters from BSON into trees.
 *
 *     filter      = { name: value, ... }                          all of them hold
 *     name: value = path: { operator: operand, ... }              all of them hold on the path
 *                 | path: regex
 *                 | path: any other value                         equality
 *                 | $and, $or, $nor: [ filter, ... ]
 *                 | $expr, $jsonSchema, $comment ...
 *
 * Two tables name all operators: those that stand in the place of a path, and those that take a
 * path. What an operator's operand may be is decided here and in match_operand.c and match_regex.c;
 * the error codes are MongoDB's.
 */
#include "bson/number.h"
#include "query/expression/expression.h"
#include "query/match/match_tree.h"
#include "query/schema/schema.h"

truce_status truce__match_leaf_new(const struct match_parser *parser, enum match_kind kind,
                                   const struct match_condition *condition,
                                   struct match_node **node)
{
    truce_status status;

    *node = truce__match_node_new(kind);
    (*node)->operand = condition->value;
    status =
        truce__path_parse(condition->path, condition->path_length, &(*node)->path, parser->error);
    if (status != TRUCE_OK) {
        truce__match_node_free(*node);
        *node = NULL;
    }
    return status;
}

static bool parse_is_reference(struct value document)
{
    return truce__value_field(document, "$ref", 4).type != VALUE_MISSING &&
           truce__value_field(document, "$id", 3).type != VALUE_MISSING;
}

bool truce__match_is_condition(struct value value)
{
    struct fields fields;

    if (value.type != BSON_TYPE_DOCUMENT)
        return false;
    fields = truce__fields(value);
    return truce__fields_next(&fields) && fields.key[0] == '$' && !parse_is_reference(value);
}

/* -- operators on a path -- */

typedef truce_status operator_parse(struct match_parser *parser,
                                    const struct match_condition *condition,
                                    struct match_node **node);

static truce_status parse_comparison(struct match_parser *parser, enum match_kind kind,
                                     const struct match_condition *condition,
                                     struct match_node **node)
{
    if (condition->value.type == BSON_TYPE_UNDEFINED)
        return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s' is compared to undefined",
                             condition->path);
    if (condition->value.type == BSON_TYPE_REGEX && kind != MATCH_EQ)
        return truce__refuse(CODE_BAD_VALUE, parser->error,
                             "'%s': %s takes no regular expression, $regex and $not do",
                             condition->path, condition->name);
    return truce__match_leaf_new(parser, kind, condition, node);
}

static truce_status parse_eq(struct match_parser *parser, const struct match_condition *condition,
                             struct match_node **node)
{
    return parse_comparison(parser, MATCH_EQ, condition, node);
}

static truce_status parse_lt(struct match_parser *parser, const struct match_condition *condition,
                             struct match_node **node)
{
    return parse_comparison(parser, MATCH_LT, condition, node);
}

static truce_status parse_lte(struct match_parser *parser, const struct match_condition *condition,
                              struct match_node **node)
{
    return parse_comparison(parser, MATCH_LTE, condition, node);
}

static truce_status parse_gt(struct match_parser *parser, const struct match_condition *condition,
                             struct match_node **node)
{
    return parse_comparison(parser, MATCH_GT, condition, node);
}

static truce_status parse_gte(struct match_parser *parser, const struct match_condition *condition,
                              struct match_node **node)
{
    return parse_comparison(parser, MATCH_GTE, condition, node);
}

static truce_status parse_ne(struct match_parser *parser, const struct match_condition *condition,
                             struct match_node **node)
{
    truce_status status;

    if (condition->value.type == BSON_TYPE_REGEX)
        return truce__refuse(CODE_BAD_VALUE, parser->error,
                             "'%s': $ne takes no regular expression, $not does", condition->path);
    status = parse_eq(parser, condition, node);
    if (status == TRUCE_OK)
        *node = truce__match_node_negate(*node);
    return status;
}

static truce_status parse_nin(struct match_parser *parser, const struct match_condition *condition,
                              struct match_node **node)
{
    truce_status status = truce__match_parse_in(parser, condition, node);

    if (status == TRUCE_OK)
        *node = truce__match_node_negate(*node);
    return status;
}

static truce_status parse_exists(struct match_parser *parser,
                                 const struct match_condition *condition, struct match_node **node)
{
    truce_status status = truce__match_leaf_new(parser, MATCH_EXISTS, condition, node);

    if (status == TRUCE_OK && !truce__value_truth(condition->value))
        *node = truce__match_node_negate(*node);
    return status;
}

static truce_status match_parse_parse_not(struct match_parser *parser,
                                          const struct match_condition *condition,
                                          struct match_node **node)
{
    struct value value = condition->value;
    truce_status status;

    if (value.type == BSON_TYPE_REGEX)
        status = truce__match_regex_new(parser, condition, node);
    else if (value.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_BAD_VALUE, parser->error,
                             "'%s': $not takes a regular expression or operators, not %s",
                             condition->path, truce__type_name(value.type));
    else if (value.size == 5)
        return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $not is empty", condition->path);
    else
        status = truce__match_parse_conditions(parser, condition->path, condition->path_length,
                                               value, node);
    if (status == TRUCE_OK)
        *node = truce__match_node_negate(*node);
    return status;
}

static truce_status refuse_geo(struct match_parser *parser, const struct match_condition *condition,
                               struct match_node **node)
{
    bool by_distance =
        strncmp(condition->name, "$near", 5) == 0 || strcmp(condition->name, "$geoNear") == 0;

    (void)truce__refuse(by_distance ? CODE_NO_QUERY_EXECUTION_PLANS : CODE_COMMAND_NOT_SUPPORTED,
                        parser->error, "'%s': %s is not offered: there are no geospatial queries",
                        condition->path, condition->name);
    return TRUCE_INVALID;
}

static truce_status refuse_where(struct match_parser *parser,
                                 const struct match_condition *condition, struct match_node **node)
{
    return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $where takes no field",
                         condition->path);
}

static const struct {
    const char *name;
    operator_parse *parse;
} operators[] = {
    {"$eq", parse_eq},
    {"$lt", parse_lt},
    {"$lte", parse_lte},
    {"$gt", parse_gt},
    {"$gte", parse_gte},
    {"$ne", parse_ne},
    {"$in", truce__match_parse_in},
    {"$nin", parse_nin},
    {"$exists", parse_exists},
    {"$not", match_parse_parse_not},
    {"$regex", truce__match_parse_regex},
    {"$options", truce__match_parse_options},
    {"$elemMatch", truce__match_parse_elements},
    {"$all", truce__match_parse_all},
    {"$size", truce__match_parse_size},
    {"$type", truce__match_parse_type},
    {"$mod", truce__match_parse_mod},
    {"$bitsAllSet", truce__match_parse_bits},
    {"$bitsAllClear", truce__match_parse_bits},
    {"$bitsAnySet", truce__match_parse_bits},
    {"$bitsAnyClear", truce__match_parse_bits},
    {"$near", refuse_geo},
    {"$nearSphere", refuse_geo},
    {"$geoNear", refuse_geo},
    {"$geoWithin", refuse_geo},
    {"$geoIntersects", refuse_geo},
    {"$within", refuse_geo},
    {"$maxDistance", refuse_geo},
    {"$minDistance", refuse_geo},
    {"$where", refuse_where},
};

static operator_parse *operator_named(const char *name)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!strcmp(operators[i].name, name))
            return operators[i].parse;
    }
    return NULL;
}

bool truce__match_is_operator(const char *name)
{
    return operator_named(name) != NULL && strcmp(name, "$where") != 0;
}

truce_status truce__match_parse_conditions(struct match_parser *parser, const char *path,
                                           uint32_t length, struct value conditions,
                                           struct match_node **node)
{
    struct match_node *all = truce__match_node_new(MATCH_AND), *one;
    struct fields fields = truce__fields(conditions);
    truce_status status = TRUCE_OK;

    *node = NULL;
    while (status == TRUCE_OK && truce__fields_next(&fields)) {
        struct match_condition condition = {path, length, fields.key, fields.value, conditions};
        operator_parse *parse = operator_named(fields.key);

        one = NULL;
        if (parse)
            status = parse(parser, &condition, &one);
        else
            status = truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': unknown operator '%s'",
                                   path, fields.key);
        if (status == TRUCE_OK && one)
            truce__match_node_add(all, one);
    }
    if (status != TRUCE_OK) {
        truce__match_node_free(all);
        return status;
    }
    *node = truce__match_node_flatten(all);
    return TRUCE_OK;
}

truce_status truce__match_parse_field(struct match_parser *parser, const char *path,
                                      uint32_t length, struct value value, struct match_node **node)
{
    struct match_condition condition = {path, length, "$eq", value, truce__value_missing()};

    if (truce__match_is_condition(value))
        return truce__match_parse_conditions(parser, path, length, value, node);
    if (value.type == BSON_TYPE_REGEX)
        return truce__match_regex_new(parser, &condition, node);
    return parse_eq(parser, &condition, node);
}

/* -- operators in the place of a path -- */

typedef truce_status clause_parse(struct match_parser *parser, const char *name, struct value value,
                                  struct match_node **node);

static truce_status refuse_list(struct match_parser *parser, const char *name)
{
    return truce__refuse(CODE_BAD_VALUE, parser->error,
                         "%s takes a list of filters that is not empty", name);
}

static truce_status match_parse_parse_list(struct match_parser *parser, enum match_kind kind,
                                           const char *name, struct value value,
                                           struct match_node **node)
{
    struct match_node *list = truce__match_node_new(kind), *one;
    truce_status status = TRUCE_OK;
    struct fields fields;

    if (value.type != BSON_TYPE_ARRAY || value.size == 5)
        status = refuse_list(parser, name);
    else
        fields = truce__fields(value);
    while (status == TRUCE_OK && truce__fields_next(&fields)) {
        if (fields.value.type == BSON_TYPE_DOCUMENT)
            status = truce__match_parse(parser, fields.value, &one);
        else
            status = refuse_list(parser, name);
        if (status == TRUCE_OK)
            truce__match_node_add(list, one);
    }
    if (status != TRUCE_OK) {
        truce__match_node_free(list);
        return status;
    }
    *node = truce__match_node_flatten(list);
    return TRUCE_OK;
}

static truce_status parse_and(struct match_parser *parser, const char *name, struct value value,
                              struct match_node **node)
{
    return match_parse_parse_list(parser, MATCH_AND, name, value, node);
}

static truce_status parse_or(struct match_parser *parser, const char *name, struct value value,
                             struct match_node **node)
{
    return match_parse_parse_list(parser, MATCH_OR, name, value, node);
}

static truce_status parse_nor(struct match_parser *parser, const char *name, struct value value,
                              struct match_node **node)
{
    return match_parse_parse_list(parser, MATCH_NOR, name, value, node);
}

static truce_status parse_expr(struct match_parser *parser, const char *name, struct value value,
                               struct match_node **node)
{
    struct expression *expression;
    truce_status status;

    if (parser->inside_element)
        return truce__refuse(CODE_BAD_VALUE, parser->error,
                             "$expr stands at the top of a filter only, not in $elemMatch");
    if (parser->special_banned)
        return truce__refuse(CODE_QUERY_FEATURE_NOT_ALLOWED, parser->error,
                             "$expr is not allowed in this condition");
    status = truce__expression_new(value, parser->variables, &expression, parser->error);
    if (status != TRUCE_OK)
        return status;
    *node = truce__match_node_new(MATCH_EXPR);
    (*node)->operand = value;
    (*node)->extra = expression;
    return TRUCE_OK;
}

static truce_status parse_schema(struct match_parser *parser, const char *name, struct value value,
                                 struct match_node **node)
{
    struct schema *schema;
    truce_status status;

    if (parser->special_banned)
        return truce__refuse(CODE_QUERY_FEATURE_NOT_ALLOWED, parser->error,
                             "$jsonSchema is not allowed in this condition");
    status = truce__schema_new(value, &schema, parser->error);
    if (status != TRUCE_OK)
        return status;
    *node = truce__match_node_new(MATCH_SCHEMA);
    (*node)->operand = value;
    (*node)->extra = schema;
    return TRUCE_OK;
}

static truce_status parse_comment(struct match_parser *parser, const char *name, struct value value,
                                  struct match_node **node)
{
    return TRUCE_OK;
}

/* $alwaysTrue and $alwaysFalse take the number 1. */
static truce_status parse_constant(struct match_parser *parser, const char *name,
                                   struct value value, struct match_node **node)
{
    int64_t number;

    if (!truce__value_is_number(value) || !truce__number_to_int64(value, &number) || number != 1)
        return truce__refuse(CODE_FAILED_TO_PARSE, parser->error, "%s takes the number 1", name);
    *node = truce__match_node_new(!strcmp(name, "$alwaysTrue") ? MATCH_TRUE : MATCH_FALSE);
    return TRUCE_OK;
}

/* the fields of a DBRef, matched as fields */
static truce_status parse_reference(struct match_parser *parser, const char *name,
                                    struct value value, struct match_node **node)
{
    struct match_condition condition = {name, (uint32_t)strlen(name), "$eq", value,
                                        truce__value_missing()};

    return parse_eq(parser, &condition, node);
}

static truce_status refuse_clause(struct match_parser *parser, const char *name, struct value value,
                                  struct match_node **node)
{
    bool text = !strcmp(name, "$text");

    (void)truce__refuse(text ? CODE_INDEX_NOT_FOUND : CODE_BAD_VALUE, parser->error,
                        text ? "%s is not offered: there are no text indexes; use $regex"
                             : "%s is not offered: there is no JavaScript here; use $expr",
                        name);
    return TRUCE_INVALID;
}

static const struct {
    const char *name;
    clause_parse *parse;
} clauses[] = {
    {"$and", parse_and},
    {"$or", parse_or},
    {"$nor", parse_nor},
    {"$expr", parse_expr},
    {"$jsonSchema", parse_schema},
    {"$comment", parse_comment},
    {"$alwaysTrue", parse_constant},
    {"$alwaysFalse", parse_constant},
    {"$ref", parse_reference},
    {"$id", parse_reference},
    {"$db", parse_reference},
    {"$where", refuse_clause},
    {"$text", refuse_clause},
};

bool truce__match_is_clause(const char *name)
{
    for (size_t i = 0; i < sizeof clauses / sizeof *clauses; i++) {
        if (!strcmp(clauses[i].name, name))
            return true;
    }
    return false;
}

static truce_status parse_clause(struct match_parser *parser, const char *name, struct value value,
                                 struct match_node **node)
{
    for (size_t i = 0; i < sizeof clauses / sizeof *clauses; i++) {
        if (!strcmp(clauses[i].name, name))
            return clauses[i].parse(parser, name, value, node);
    }
    return truce__refuse(CODE_BAD_VALUE, parser->error,
                         "unknown operator '%s' in the place of a field name", name);
}

truce_status truce__match_parse(struct match_parser *parser, struct value filter,
                                struct match_node **node)
{
    struct match_node *all = truce__match_node_new(MATCH_AND), *one;
    struct fields fields = truce__fields(filter);
    truce_status status = TRUCE_OK;

    *node = NULL;
    while (status == TRUCE_OK && truce__fields_next(&fields)) {
        one = NULL;
        if (fields.key[0] == '$')
            status = parse_clause(parser, fields.key, fields.value, &one);
        else
            status =
                truce__match_parse_field(parser, fields.key, fields.key_length, fields.value, &one);
        if (status == TRUCE_OK && one)
            truce__match_node_add(all, one);
    }
    if (status != TRUCE_OK) {
        truce__match_node_free(all);
        return status;
    }
    *node = truce__match_node_flatten(all);
    return TRUCE_OK;
}
