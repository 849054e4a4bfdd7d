/*
 * Compiles filters from BSON into trees.
 *
 *     filter      = { name: value, ... }                          all of them hold
 *     name: value = path: { operator: operand, ... }              all of them hold on the path
 *                 | path: regex
 *                 | path: any other value                         equality
 *                 | $and, $or, $nor: [ filter, ... ]
 *                 | $expr, $jsonSchema, $comment ...
 *
 * Two tables name all operators: one those in the place of a path, the other those on a path. This
 * file also checks the operands. The error codes are MongoDB's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/nearest_word.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "query/condition/type_set.h"
#include "query/expression/expression.h"
#include "query/match/match_tree.h"
#include "query/schema/schema.h"

/* ---- nodes ----------------------------------------------------------------------------------- */

static truce_status match_parse_elements(struct match_parser *parser,
                                         const struct match_condition *condition,
                                         struct match_node **node);
static bool match_is_condition(struct value value);
static truce_status match_parse_conditions(struct match_parser *parser, const char *path,
                                           uint32_t length, struct value conditions,
                                           struct match_node **node);
static truce_status match_parse_field(struct match_parser *parser, const char *path,
                                      uint32_t length, struct value value,
                                      struct match_node **node);
static bool match_is_clause(const char *name);
static truce_status truce__match_parse(struct match_parser *parser, struct value filter,
                                       struct match_node **node);

static truce_status match_leaf_new(const struct match_parser *parser, enum match_kind kind,
                                   const struct match_condition *condition,
                                   struct match_node **node);

static struct match_node *match_node_new(enum match_kind kind)
{
    struct match_node *node = bson_malloc0(sizeof *node);

    node->kind = kind;
    return node;
}

/* Frees what `extra` points to, by the kind of the node. */
static void free_extra(struct match_node *node)
{
    switch (node->kind) {
    case MATCH_AND:
    case MATCH_OR:
    case MATCH_NOR:
        truce__match_table_free(node->extra);
        return;
    case MATCH_REGEX:
        truce__regex_free(node->extra);
        return;
    case MATCH_EXPR:
        truce__expression_free(node->extra);
        return;
    case MATCH_SCHEMA:
        truce__schema_free(node->extra);
        return;
    default:
        bson_free(node->extra);
        return;
    }
}

static void match_node_free(struct match_node *node)
{
    if (!node)
        return;
    for (uint32_t i = 0; i < node->children_count; i++)
        match_node_free(node->children[i]);
    free_extra(node);
    truce__path_release(&node->path);
    bson_free(node->children);
    bson_free(node->operands);
    bson_free(node);
}

static void append_child(struct match_node *parent, struct match_node *child)
{
    uint32_t count = parent->children_count;

    /* The array is full, and grows, if the count is 0 or a power of two. */
    if (!(count & (count - 1)))
        parent->children =
            bson_realloc(parent->children, (count ? 2 * count : 1) * sizeof *parent->children);
    parent->children[parent->children_count++] = child;
}

/* Adds a child, which the parent then owns. If both are AND, the parent gets the child's children
 * instead. */
static void match_node_add(struct match_node *parent, struct match_node *child)
{
    if (parent->kind != MATCH_AND || child->kind != MATCH_AND) {
        append_child(parent, child);
        return;
    }
    for (uint32_t i = 0; i < child->children_count; i++)
        append_child(parent, child->children[i]);
    child->children_count = 0;
    match_node_free(child);
}

/* Replaces an AND or OR of one node by this node, an AND of none by TRUE, and an OR of none by
 * FALSE. */
static struct match_node *match_node_flatten(struct match_node *node)
{
    struct match_node *only;

    if (node->kind != MATCH_AND && node->kind != MATCH_OR)
        return node;
    if (!node->children_count) {
        node->kind = node->kind == MATCH_AND ? MATCH_TRUE : MATCH_FALSE;
        return node;
    }
    if (node->children_count > 1)
        return node;
    only = node->children[0];
    node->children_count = 0;
    match_node_free(node);
    return only;
}

/* Returns a NOT whose child is the node. */
static struct match_node *match_node_negate(struct match_node *node)
{
    struct match_node *negated = match_node_new(MATCH_NOT);

    match_node_add(negated, node);
    return negated;
}

/* ---- entry points ---------------------------------------------------------------------------- */

/* The kinds of filters: of documents, of the values of a $pull, of the elements of arrays. */

static truce_status parse_whole(struct match *match, struct match_parser *parser)
{
    return truce__match_parse(parser, truce__value_document(match->filter), &match->root);
}

static void make_tables(struct match_node *node)
{
    for (uint32_t i = 0; i < node->children_count; i++)
        make_tables(node->children[i]);
    if (node->kind == MATCH_AND || node->kind == MATCH_OR || node->kind == MATCH_NOR)
        node->extra = truce__match_table_new(node);
}

static truce_status match_new_finish(truce_status status, struct match *made, struct match **match)
{
    if (status == TRUCE_OK) {
        make_tables(made->root);
        *match = made;
        return TRUCE_OK;
    }
    truce__match_free(made);
    *match = NULL;
    return status;
}

truce_status truce__match_new_with_variables(const bson_t *filter, const char *const *variables,
                                             struct match **match, bson_error_t *error)
{
    struct match_parser parser = {.variables = variables, .error = error};
    struct match *made = bson_malloc0(sizeof *made);

    made->filter = filter ? bson_copy(filter) : bson_new();
    return match_new_finish(parse_whole(made, &parser), made, match);
}

truce_status truce__match_new(const bson_t *filter, struct match **match, bson_error_t *error)
{
    return truce__match_new_with_variables(filter, NULL, match, error);
}

void truce__match_free(struct match *match)
{
    if (!match)
        return;
    match_node_free(match->root);
    bson_destroy(match->filter);
    bson_free(match->identifier);
    bson_free(match);
}

/* Returns whether the condition of a $pull tests the value itself, not its fields. */
static bool is_about_value(struct value condition)
{
    struct fields fields;

    if (condition.type != BSON_TYPE_DOCUMENT)
        return condition.type == BSON_TYPE_REGEX;
    fields = truce__fields(condition);
    return truce__fields_next(&fields) && truce__match_is_operator(fields.key);
}

truce_status truce__match_value_new(struct value condition, struct match **match,
                                    bson_error_t *error)
{
    struct match_parser parser = {.special_banned = true, .error = error};
    struct match *made = bson_malloc0(sizeof *made);
    truce_status status = TRUCE_OK;
    struct value own;

    made->filter = bson_new();
    truce__value_append(made->filter, "", 0, condition);
    own = truce__value_field(truce__value_document(made->filter), "", 0);
    if (is_about_value(own)) {
        made->subject = SUBJECT_FIELD;
        status = match_parse_field(&parser, "", 0, own, &made->root);
    } else if (own.type == BSON_TYPE_DOCUMENT) {
        made->subject = SUBJECT_DOCUMENT;
        status = truce__match_parse(&parser, own, &made->root);
    } else {
        made->subject = SUBJECT_EQUAL;
        made->root = match_node_new(MATCH_EQ);
        made->root->operand = own;
    }
    return match_new_finish(status, made, match);
}

/* Checks that the first parts of all paths are one name. */
static truce_status find_identifier(const struct match_node *node, char **identifier,
                                    bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool logic = node->kind == MATCH_AND || node->kind == MATCH_OR || node->kind == MATCH_NOR ||
                 node->kind == MATCH_NOT;
    const struct path_part *first;

    for (uint32_t i = 0; logic && i < node->children_count && status == TRUCE_OK; i++)
        status = find_identifier(node->children[i], identifier, error);
    if (logic || !node->path.count)
        return status;
    first = node->path.parts;
    if (!*identifier)
        *identifier = bson_strndup(first->name, first->length);
    if (strlen(*identifier) == first->length && !memcmp(*identifier, first->name, first->length))
        return TRUCE_OK;
    return truce__refuse(CODE_FAILED_TO_PARSE, error,
                         "an array filter has one identifier, not '%s' and '%.*s'", *identifier,
                         (int)first->length, first->name);
}

static bool match_new_is_identifier(const char *name)
{
    if (*name < 'a' || *name > 'z')
        return false;
    while ((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
           (*name >= '0' && *name <= '9'))
        name++;
    return !*name;
}

/* Parses an array filter, and finds the identifier with which all of its paths begin. */
static truce_status parse_elements(struct match *match, struct match_parser *parser)
{
    truce_status status = parse_whole(match, parser);

    if (status == TRUCE_OK)
        status = find_identifier(match->root, &match->identifier, parser->error);
    if (status != TRUCE_OK)
        return status;
    if (!match->identifier)
        return truce__refuse(CODE_FAILED_TO_PARSE, parser->error,
                             "an array filter begins with the name of its identifier");
    if (!match_new_is_identifier(match->identifier))
        return truce__refuse(CODE_BAD_VALUE, parser->error,
                             "invalid identifier '%s' of an array filter: expected letters and "
                             "digits that begin with a lowercase letter",
                             match->identifier);
    return TRUCE_OK;
}

truce_status truce__match_elements_new(const bson_t *filter, struct match **match,
                                       const char **identifier, bson_error_t *error)
{
    struct match_parser parser = {.special_banned = true, .error = error};
    struct match *made = bson_malloc0(sizeof *made);
    truce_status status;

    made->filter = bson_copy(filter);
    made->subject = SUBJECT_FIELD;
    status = match_new_finish(parse_elements(made, &parser), made, match);
    *identifier = status == TRUCE_OK ? (*match)->identifier : NULL;
    return status;
}

/* ---- regular expressions --------------------------------------------------------------------- */

/* Regular expressions in filters: /abc/i as a value, $regex with $options, and the prefix of all
 * matches, which gives the bounds of an index. */

/* Makes a leaf for a regular expression, which owns the compiled pattern. */
static truce_status regex_node(struct match_parser *parser, const struct match_condition *condition,
                               const char *pattern, size_t length, const char *options,
                               struct match_node **node)
{
    struct regex *regex;
    truce_status status = truce__regex_new(pattern, length, options, &regex, parser->error);

    if (status != TRUCE_OK)
        return status;
    status = truce__regex_check_group(regex, parser->error);
    if (status == TRUCE_OK)
        status = match_leaf_new(parser, MATCH_REGEX, condition, node);
    if (status == TRUCE_OK)
        (*node)->extra = regex;
    else
        truce__regex_free(regex);
    return status;
}

static truce_status match_regex_new(struct match_parser *parser,
                                    const struct match_condition *condition,
                                    struct match_node **node)
{
    const char *pattern = (const char *)condition->value.data;
    size_t length = strlen(pattern);

    return regex_node(parser, condition, pattern, length, pattern + length + 1, node);
}

static truce_status refuse_options_twice(struct match_parser *parser,
                                         const struct match_condition *condition)
{
    return truce__refuse(51075, parser->error,
                         "'%s': options are given both in $regex and in $options", condition->path);
}

/* Returns the value of $options, or "". */
static truce_status find_options(struct match_parser *parser,
                                 const struct match_condition *condition, const char **options)
{
    struct value value = truce__value_field(condition->siblings, "$options", 8);
    uint32_t length;

    *options = "";
    if (value.type == VALUE_MISSING)
        return TRUCE_OK;
    if (value.type != BSON_TYPE_UTF8)
        return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $options takes a string, not %s",
                             condition->path, truce__type_name(value.type));
    *options = truce__value_text(value, &length);
    if (strlen(*options) != length)
        return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $options contains a NUL",
                             condition->path);
    return TRUCE_OK;
}

/* Parses $regex, with the options in the pattern or in $options. */
static truce_status match_parse_regex(struct match_parser *parser,
                                      const struct match_condition *condition,
                                      struct match_node **node)
{
    const char *options, *pattern, *own;
    uint32_t length;
    truce_status status = find_options(parser, condition, &options);

    if (status != TRUCE_OK)
        return status;
    if (condition->value.type == BSON_TYPE_UTF8) {
        pattern = truce__value_text(condition->value, &length);
        return regex_node(parser, condition, pattern, length, options, node);
    }
    if (condition->value.type != BSON_TYPE_REGEX)
        return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $regex takes a string, not %s",
                             condition->path, truce__type_name(condition->value.type));
    pattern = (const char *)condition->value.data;
    own = pattern + strlen(pattern) + 1;
    if (*own && *options)
        return refuse_options_twice(parser, condition);
    return regex_node(parser, condition, pattern, strlen(pattern), *own ? own : options, node);
}

static truce_status match_parse_options(struct match_parser *parser,
                                        const struct match_condition *condition,
                                        struct match_node **node)
{
    if (truce__value_field(condition->siblings, "$regex", 6).type == VALUE_MISSING)
        return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $options needs a $regex",
                             condition->path);
    return TRUCE_OK;
}

/* Returns whether a pattern without the option x uses the character literally. */
static bool is_literal(char c)
{
    return !strchr("\\^$.[|()?*+{", c);
}

bool truce__match_regex_prefix(const struct match_node *node, const char **prefix, size_t *length,
                               bool *whole)
{
    const char *pattern = truce__regex_pattern(node->extra), *at;
    const char *options = truce__regex_options(node->extra);

    truce_assert(node->kind == MATCH_REGEX);
    /* A pattern with "|" may have several prefixes. */
    if (*pattern != '^' || strpbrk(options, "imx") || strchr(pattern, '|'))
        return false;
    *prefix = at = pattern + 1;
    while (*at && is_literal(*at))
        at++;
    /* A quantifier makes the last character optional. */
    if (*at && strchr("?*+{", *at) && at > *prefix) {
        do
            at--;
        while (at > *prefix && ((unsigned char)*at & 0xc0) == 0x80);
    }
    *length = (size_t)(at - *prefix);
    *whole = !*at || !strcmp(at, ".*");
    return *length > 0;
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Operators of filters whose operand is more than a value to compare with. */

static truce_status refuse_operand(const struct match_parser *parser, uint32_t code,
                                   const struct match_condition *condition, const char *wanted)
{
    char text[120];

    return truce__refuse(code, parser->error, "'%s': %s takes %s, not %s", condition->path,
                         condition->name, wanted,
                         truce__value_show(condition->value, text, sizeof text));
}

/* -- $in -- */

static int order_of_values(const void *a, const void *b)
{
    return truce__value_compare(*(const struct value *)a, *(const struct value *)b);
}

/* Sorts the operands and removes duplicates. */
static void sort_operands(struct match_node *node)
{
    uint32_t kept = 0;

    qsort(node->operands, node->operands_count, sizeof *node->operands, order_of_values);
    for (uint32_t i = 0; i < node->operands_count; i++) {
        if (!kept || !truce__value_equal(node->operands[kept - 1], node->operands[i]))
            node->operands[kept++] = node->operands[i];
    }
    node->operands_count = kept;
}

static uint32_t operand_count_elements(struct value array)
{
    struct fields fields = truce__fields(array);
    uint32_t count = 0;

    while (truce__fields_next(&fields))
        count++;
    return count;
}

/* Adds a value of $in to the operands, or a regular expression to the children. */
static truce_status add_operand(struct match_parser *parser, struct match_node *node,
                                const struct match_condition *condition, struct value value)
{
    struct match_condition one = *condition;
    struct match_node *regex;
    truce_status status;

    one.value = value;
    if (match_is_condition(value))
        return refuse_operand(parser, CODE_BAD_VALUE, &one, "values without operators");
    if (value.type == BSON_TYPE_UNDEFINED)
        return refuse_operand(parser, CODE_BAD_VALUE, &one, "no undefined values");
    if (value.type != BSON_TYPE_REGEX) {
        node->operands[node->operands_count++] = value;
        return TRUCE_OK;
    }
    status = match_regex_new(parser, &one, &regex);
    if (status == TRUCE_OK)
        match_node_add(node, regex);
    return status;
}

/* Replaces $in with one value by equality. */
static void simplify_in(struct match_node *node)
{
    if (node->operands_count != 1 || node->children_count)
        return;
    node->kind = MATCH_EQ;
    node->operand = node->operands[0];
    node->operands_count = 0;
}

/* Parses $in: a list of values and regular expressions. $nin negates the result (parse_nin). */
static truce_status match_parse_in(struct match_parser *parser,
                                   const struct match_condition *condition,
                                   struct match_node **node)
{
    truce_status status;
    struct fields fields;

    if (condition->value.type != BSON_TYPE_ARRAY)
        return refuse_operand(parser, CODE_BAD_VALUE, condition, "a list of values");
    status = match_leaf_new(parser, MATCH_IN, condition, node);
    if (status != TRUCE_OK)
        return status;
    (*node)->operands =
        bson_malloc((operand_count_elements(condition->value) + 1) * sizeof *(*node)->operands);
    fields = truce__fields(condition->value);
    while (status == TRUCE_OK && truce__fields_next(&fields))
        status = add_operand(parser, *node, condition, fields.value);
    if (status != TRUCE_OK) {
        match_node_free(*node);
        *node = NULL;
        return status;
    }
    sort_operands(*node);
    simplify_in(*node);
    return TRUCE_OK;
}

/* -- $all and $elemMatch -- */

/* Returns the first field of a document. */
static bool first_field(struct value value, struct fields *fields)
{
    if (value.type != BSON_TYPE_DOCUMENT)
        return false;
    *fields = truce__fields(value);
    return truce__fields_next(fields);
}

static bool begins_with_elements(struct value value)
{
    struct fields fields;

    return first_field(value, &fields) && !strcmp(fields.key, "$elemMatch");
}

/* Parses one element of $all. `elements` means that the list has only documents with $elemMatch. */
static truce_status parse_all_element(struct match_parser *parser,
                                      const struct match_condition *condition, struct value value,
                                      bool elements, struct match_node **node)
{
    struct match_condition one = *condition;
    struct fields fields;

    one.value = value;
    if (elements != begins_with_elements(value))
        return refuse_operand(parser, CODE_BAD_VALUE, &one,
                              "values only, or documents with $elemMatch only");
    if (elements) {
        first_field(value, &fields);
        one.value = fields.value;
        one.name = "$elemMatch";
        return match_parse_elements(parser, &one, node);
    }
    if (first_field(value, &fields) && truce__match_is_operator(fields.key))
        return refuse_operand(parser, CODE_BAD_VALUE, &one, "no operators but $elemMatch");
    if (value.type == BSON_TYPE_REGEX)
        return match_regex_new(parser, &one, node);
    return match_leaf_new(parser, MATCH_EQ, &one, node);
}

/* Compiles $all: one condition for each value. An empty list matches nothing. */
static truce_status match_parse_all(struct match_parser *parser,
                                    const struct match_condition *condition,
                                    struct match_node **node)
{
    struct match_node *all, *one;
    truce_status status = TRUCE_OK;
    struct fields fields;
    bool elements = false;

    if (condition->value.type != BSON_TYPE_ARRAY)
        return refuse_operand(parser, CODE_BAD_VALUE, condition, "a list of values");
    if (condition->value.size == 5) {
        *node = match_node_new(MATCH_FALSE);
        return TRUCE_OK;
    }
    all = match_node_new(MATCH_AND);
    fields = truce__fields(condition->value);
    for (bool first = true; status == TRUCE_OK && truce__fields_next(&fields); first = false) {
        if (first)
            elements = begins_with_elements(fields.value);
        status = parse_all_element(parser, condition, fields.value, elements, &one);
        if (status == TRUCE_OK)
            match_node_add(all, one);
    }
    if (status != TRUCE_OK) {
        match_node_free(all);
        return status;
    }
    *node = match_node_flatten(all);
    return TRUCE_OK;
}

/* Returns whether an $elemMatch tests the elements themselves, as {$gt: 1} does, not their fields,
 * as {a: 1} and {$or: [...]} do. */
static bool is_about_values(struct value value)
{
    struct fields fields;

    return first_field(value, &fields) && fields.key[0] == '$' && !match_is_clause(fields.key);
}

/* Parses $elemMatch, which tests either the elements themselves or their fields. */
static truce_status match_parse_elements(struct match_parser *parser,
                                         const struct match_condition *condition,
                                         struct match_node **node)
{
    bool values = is_about_values(condition->value), outer = parser->inside_element;
    struct match_node *inside;
    truce_status status;

    if (condition->value.type != BSON_TYPE_DOCUMENT)
        return refuse_operand(parser, CODE_BAD_VALUE, condition, "a filter");
    parser->inside_element = true;
    status = values ? match_parse_conditions(parser, "", 0, condition->value, &inside)
                    : truce__match_parse(parser, condition->value, &inside);
    parser->inside_element = outer;
    if (status != TRUCE_OK)
        return status;
    status = match_leaf_new(parser, values ? MATCH_ELEM_VALUE : MATCH_ELEM_OBJECT, condition, node);
    if (status == TRUCE_OK)
        match_node_add(*node, inside);
    else
        match_node_free(inside);
    return status;
}

/* -- $size -- */

static bool is_size(struct value value, int64_t *size)
{
    return truce__value_is_number(value) && truce__number_to_int64(value, size) && *size >= 0 &&
           *size <= INT32_MAX;
}

/* Parses $size. */
static truce_status match_parse_size(struct match_parser *parser,
                                     const struct match_condition *condition,
                                     struct match_node **node)
{
    struct match_size *size;
    int64_t number;
    truce_status status;

    if (!is_size(condition->value, &number))
        return refuse_operand(parser, CODE_BAD_VALUE, condition,
                              "a whole number from 0 to 2147483647");
    status = match_leaf_new(parser, MATCH_SIZE, condition, node);
    if (status != TRUCE_OK)
        return status;
    (*node)->extra = size = bson_malloc0(sizeof *size);
    size->size = number;
    return TRUCE_OK;
}

/* -- $type -- */

/* Parses $type. */
static truce_status match_parse_type(struct match_parser *parser,
                                     const struct match_condition *condition,
                                     struct match_node **node)
{
    struct match_types *types;
    char what[160];
    uint64_t mask;
    truce_status status;

    snprintf(what, sizeof what, "'%.120s': %s", condition->path, condition->name);
    status = truce__type_set_parse(condition->value, what, &mask, parser->error);
    if (status == TRUCE_OK)
        status = match_leaf_new(parser, MATCH_TYPE, condition, node);
    if (status != TRUCE_OK)
        return status;
    (*node)->extra = types = bson_malloc0(sizeof *types);
    types->mask = mask;
    return TRUCE_OK;
}

/* -- $mod -- */

/* Parses divisor and remainder. A remainder that is not a number counts as 0, as in MongoDB. */
static bool parse_modulus(struct value value, struct match_modulus *modulus)
{
    struct fields fields;

    if (value.type != BSON_TYPE_ARRAY)
        return false;
    fields = truce__fields(value);
    if (!truce__fields_next(&fields) || !truce__value_is_number(fields.value) ||
        !truce__number_truncate(fields.value, &modulus->divisor) || !modulus->divisor)
        return false;
    if (!truce__fields_next(&fields))
        return false;
    modulus->remainder = 0;
    if (truce__value_is_number(fields.value) &&
        !truce__number_truncate(fields.value, &modulus->remainder))
        return false;
    return !truce__fields_next(&fields);
}

/* Parses $mod. */
static truce_status match_parse_mod(struct match_parser *parser,
                                    const struct match_condition *condition,
                                    struct match_node **node)
{
    struct match_modulus modulus;
    truce_status status;

    if (!parse_modulus(condition->value, &modulus))
        return refuse_operand(parser, CODE_BAD_VALUE, condition,
                              "[divisor, remainder], 64-bit integers, the divisor not 0");
    status = match_leaf_new(parser, MATCH_MOD, condition, node);
    if (status != TRUCE_OK)
        return status;
    (*node)->extra = bson_malloc(sizeof modulus);
    memcpy((*node)->extra, &modulus, sizeof modulus);
    return TRUCE_OK;
}

/* -- bits -- */

static struct match_bits *bits_new(uint32_t room)
{
    return bson_malloc0(sizeof(struct match_bits) + room * sizeof(uint32_t));
}

static struct match_bits *bits_of_mask(uint64_t mask)
{
    struct match_bits *bits = bits_new(64);

    for (uint32_t i = 0; i < 64; i++) {
        if (mask >> i & 1)
            bits->positions[bits->count++] = i;
    }
    return bits;
}

static struct match_bits *bits_of_binary(struct value binary)
{
    uint32_t room = (binary.size - 5) * 8;
    struct match_bits *bits = bits_new(room);

    for (uint32_t i = 0; i < room; i++) {
        if (binary.data[5 + i / 8] >> i % 8 & 1)
            bits->positions[bits->count++] = i;
    }
    return bits;
}

/* Reads a list of positions. Returns NULL if one of them is invalid. */
static struct match_bits *bits_of_list(struct value array)
{
    struct match_bits *bits = bits_new(operand_count_elements(array));
    struct fields fields = truce__fields(array);
    int64_t position;

    while (truce__fields_next(&fields)) {
        if (!truce__value_is_number(fields.value) ||
            !truce__number_to_int64(fields.value, &position) || position < 0 ||
            position > INT32_MAX) {
            bson_free(bits);
            return NULL;
        }
        bits->positions[bits->count++] = (uint32_t)position;
    }
    return bits;
}

/* Reads the positions of bits: a list, a mask, or binary data. */
static truce_status parse_positions(struct match_parser *parser,
                                    const struct match_condition *condition,
                                    struct match_bits **bits)
{
    struct value value = condition->value;
    int64_t mask;

    if (value.type == BSON_TYPE_BINARY) {
        *bits = bits_of_binary(value);
        return TRUCE_OK;
    }
    if (value.type == BSON_TYPE_ARRAY) {
        *bits = bits_of_list(value);
        return *bits ? TRUCE_OK
                     : refuse_operand(parser, CODE_BAD_VALUE, condition,
                                      "positions from 0 to 2147483647");
    }
    if (!truce__value_is_number(value))
        return refuse_operand(parser, CODE_BAD_VALUE, condition,
                              "a list of positions, a bit mask or a binary");
    if (!truce__number_to_int64(value, &mask) || mask < 0)
        return refuse_operand(parser, CODE_FAILED_TO_PARSE, condition,
                              "a bit mask that is a non-negative 64-bit integer");
    *bits = bits_of_mask((uint64_t)mask);
    return TRUCE_OK;
}

/* Parses $bitsAllSet, $bitsAllClear, $bitsAnySet, and $bitsAnyClear. */
static truce_status match_parse_bits(struct match_parser *parser,
                                     const struct match_condition *condition,
                                     struct match_node **node)
{
    struct match_bits *bits;
    truce_status status = parse_positions(parser, condition, &bits);

    if (status != TRUCE_OK)
        return status;
    bits->all = strstr(condition->name, "All") != NULL;
    bits->set = strstr(condition->name, "Set") != NULL;
    status = match_leaf_new(parser, MATCH_BITS, condition, node);
    if (status == TRUCE_OK)
        (*node)->extra = bits;
    else
        bson_free(bits);
    return status;
}

/* ---- the parser ------------------------------------------------------------------------------ */

/* Makes a leaf with the path and the value of the condition. */
static truce_status match_leaf_new(const struct match_parser *parser, enum match_kind kind,
                                   const struct match_condition *condition,
                                   struct match_node **node)
{
    truce_status status;

    *node = match_node_new(kind);
    (*node)->operand = condition->value;
    status =
        truce__path_parse(condition->path, condition->path_length, &(*node)->path, parser->error);
    if (status != TRUCE_OK) {
        match_node_free(*node);
        *node = NULL;
    }
    return status;
}

static bool parse_is_reference(struct value document)
{
    return truce__value_field(document, "$ref", 4).type != VALUE_MISSING &&
           truce__value_field(document, "$id", 3).type != VALUE_MISSING;
}

/* Returns whether the value is a document that begins with an operator, as {$gt: 1}, and is not a
 * DBRef. */
static bool match_is_condition(struct value value)
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
        return truce__refuse(CODE_BAD_VALUE, parser->error,
                             "'%s' cannot be compared with undefined: use {$exists: false}, or "
                             "null",
                             condition->path);
    if (condition->value.type == BSON_TYPE_REGEX && kind != MATCH_EQ)
        return truce__refuse(CODE_BAD_VALUE, parser->error,
                             "'%s': %s does not accept a regular expression: use $regex or $not",
                             condition->path, condition->name);
    return match_leaf_new(parser, kind, condition, node);
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
                             "'%s': $ne does not accept a regular expression: use $not",
                             condition->path);
    status = parse_eq(parser, condition, node);
    if (status == TRUCE_OK)
        *node = match_node_negate(*node);
    return status;
}

static truce_status parse_nin(struct match_parser *parser, const struct match_condition *condition,
                              struct match_node **node)
{
    truce_status status = match_parse_in(parser, condition, node);

    if (status == TRUCE_OK)
        *node = match_node_negate(*node);
    return status;
}

static truce_status parse_exists(struct match_parser *parser,
                                 const struct match_condition *condition, struct match_node **node)
{
    truce_status status = match_leaf_new(parser, MATCH_EXISTS, condition, node);

    if (status == TRUCE_OK && !truce__value_truth(condition->value))
        *node = match_node_negate(*node);
    return status;
}

/* Parses $not: a regular expression, or a document of operators. */
static truce_status match_parse_not(struct match_parser *parser,
                                    const struct match_condition *condition,
                                    struct match_node **node)
{
    struct value value = condition->value;
    truce_status status;

    if (value.type == BSON_TYPE_REGEX)
        status = match_regex_new(parser, condition, node);
    else if (value.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_BAD_VALUE, parser->error,
                             "'%s': $not takes a regular expression or operators, not %s",
                             condition->path, truce__type_name(value.type));
    else if (value.size == 5)
        return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $not is empty", condition->path);
    else
        status =
            match_parse_conditions(parser, condition->path, condition->path_length, value, node);
    if (status == TRUCE_OK)
        *node = match_node_negate(*node);
    return status;
}

static truce_status refuse_geo(struct match_parser *parser, const struct match_condition *condition,
                               struct match_node **node)
{
    bool by_distance =
        strncmp(condition->name, "$near", 5) == 0 || strcmp(condition->name, "$geoNear") == 0;

    (void)truce__refuse(by_distance ? CODE_NO_QUERY_EXECUTION_PLANS : CODE_COMMAND_NOT_SUPPORTED,
                        parser->error, "'%s': %s is not supported: there are no geospatial queries",
                        condition->path, condition->name);
    return TRUCE_INVALID;
}

static truce_status refuse_where(struct match_parser *parser,
                                 const struct match_condition *condition, struct match_node **node)
{
    return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $where cannot be applied to a field",
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
    {"$in", match_parse_in},
    {"$nin", parse_nin},
    {"$exists", parse_exists},
    {"$not", match_parse_not},
    {"$regex", match_parse_regex},
    {"$options", match_parse_options},
    {"$elemMatch", match_parse_elements},
    {"$all", match_parse_all},
    {"$size", match_parse_size},
    {"$type", match_parse_type},
    {"$mod", match_parse_mod},
    {"$bitsAllSet", match_parse_bits},
    {"$bitsAllClear", match_parse_bits},
    {"$bitsAnySet", match_parse_bits},
    {"$bitsAnyClear", match_parse_bits},
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

/* Fails because a condition has an unknown operator. */
static truce_status match_refuse_operator(const struct match_parser *parser, const char *path,
                                          const char *name)
{
    struct nearest_word nearest = {.word = name};
    char hint[NEAREST_WORD_HINT_MAX];

    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (operators[i].parse != refuse_geo && operators[i].parse != refuse_where)
            truce__nearest_word_offer(&nearest, operators[i].name);
    return truce__refuse(CODE_BAD_VALUE, parser->error, "\"%s\": unknown operator \"%s\"%s", path,
                         name, truce__nearest_word_hint(&nearest, hint));
}

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

/* Parses all operators of the document `conditions` on one path. */
static truce_status match_parse_conditions(struct match_parser *parser, const char *path,
                                           uint32_t length, struct value conditions,
                                           struct match_node **node)
{
    struct match_node *all = match_node_new(MATCH_AND), *one;
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
            status = match_refuse_operator(parser, path, fields.key);
        if (status == TRUCE_OK && one)
            match_node_add(all, one);
    }
    if (status != TRUCE_OK) {
        match_node_free(all);
        return status;
    }
    *node = match_node_flatten(all);
    return TRUCE_OK;
}

static truce_status match_parse_field(struct match_parser *parser, const char *path,
                                      uint32_t length, struct value value, struct match_node **node)
{
    struct match_condition condition = {path, length, "$eq", value, truce__value_missing()};

    if (match_is_condition(value))
        return match_parse_conditions(parser, path, length, value, node);
    if (value.type == BSON_TYPE_REGEX)
        return match_regex_new(parser, &condition, node);
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

/* Compiles the filters of $and, $or, or $nor. */
static truce_status match_parse_list(struct match_parser *parser, enum match_kind kind,
                                     const char *name, struct value value, struct match_node **node)
{
    struct match_node *list = match_node_new(kind), *one;
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
            match_node_add(list, one);
    }
    if (status != TRUCE_OK) {
        match_node_free(list);
        return status;
    }
    *node = match_node_flatten(list);
    return TRUCE_OK;
}

static truce_status parse_and(struct match_parser *parser, const char *name, struct value value,
                              struct match_node **node)
{
    return match_parse_list(parser, MATCH_AND, name, value, node);
}

static truce_status parse_or(struct match_parser *parser, const char *name, struct value value,
                             struct match_node **node)
{
    return match_parse_list(parser, MATCH_OR, name, value, node);
}

static truce_status parse_nor(struct match_parser *parser, const char *name, struct value value,
                              struct match_node **node)
{
    return match_parse_list(parser, MATCH_NOR, name, value, node);
}

/* Parses $expr, which is allowed only at the top of a filter. */
static truce_status parse_expr(struct match_parser *parser, const char *name, struct value value,
                               struct match_node **node)
{
    struct expression *expression;
    truce_status status;

    if (parser->inside_element)
        return truce__refuse(CODE_BAD_VALUE, parser->error,
                             "$expr is allowed only at the top of a filter, not in $elemMatch");
    if (parser->special_banned)
        return truce__refuse(CODE_QUERY_FEATURE_NOT_ALLOWED, parser->error,
                             "$expr is not allowed in this condition");
    status = truce__expression_new(value, parser->variables, &expression, parser->error);
    if (status != TRUCE_OK)
        return status;
    *node = match_node_new(MATCH_EXPR);
    (*node)->operand = value;
    (*node)->extra = expression;
    return TRUCE_OK;
}

/* Parses $jsonSchema. */
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
    *node = match_node_new(MATCH_SCHEMA);
    (*node)->operand = value;
    (*node)->extra = schema;
    return TRUCE_OK;
}

static truce_status parse_comment(struct match_parser *parser, const char *name, struct value value,
                                  struct match_node **node)
{
    return TRUCE_OK;
}

/* Parses $alwaysTrue and $alwaysFalse, whose operand must be the number 1. */
static truce_status parse_constant(struct match_parser *parser, const char *name,
                                   struct value value, struct match_node **node)
{
    int64_t number;

    if (!truce__value_is_number(value) || !truce__number_to_int64(value, &number) || number != 1)
        return truce__refuse_value(CODE_FAILED_TO_PARSE, value, parser->error,
                                   "%s takes the number 1", name);
    *node = match_node_new(!strcmp(name, "$alwaysTrue") ? MATCH_TRUE : MATCH_FALSE);
    return TRUCE_OK;
}

/* Parses the fields of a DBRef, which are matched as fields. */
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
                        text ? "%s is not supported: there are no text indexes; use $regex"
                             : "%s is not supported: there is no JavaScript; use $expr",
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

static bool match_is_clause(const char *name)
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
    struct nearest_word nearest = {.word = name};
    char hint[NEAREST_WORD_HINT_MAX];

    for (size_t i = 0; i < sizeof clauses / sizeof *clauses; i++) {
        if (!strcmp(clauses[i].name, name))
            return clauses[i].parse(parser, name, value, node);
    }
    for (size_t i = 0; i < sizeof clauses / sizeof *clauses; i++)
        if (clauses[i].parse != refuse_clause)
            truce__nearest_word_offer(&nearest, clauses[i].name);
    return truce__refuse(CODE_BAD_VALUE, parser->error,
                         "unknown operator \"%s\" in the place of a field name%s", name,
                         truce__nearest_word_hint(&nearest, hint));
}

/* Compiles a filter into a node that the caller frees. After OK, `*node` is not NULL: an empty
 * filter becomes TRUE. The functions in the tables above may leave it NULL if there is nothing to
 * test ($comment, $options). */
static truce_status truce__match_parse(struct match_parser *parser, struct value filter,
                                       struct match_node **node)
{
    struct match_node *all = match_node_new(MATCH_AND), *one;
    struct fields fields = truce__fields(filter);
    truce_status status = TRUCE_OK;

    *node = NULL;
    while (status == TRUCE_OK && truce__fields_next(&fields)) {
        one = NULL;
        if (fields.key[0] == '$')
            status = parse_clause(parser, fields.key, fields.value, &one);
        else
            status = match_parse_field(parser, fields.key, fields.key_length, fields.value, &one);
        if (status == TRUCE_OK && one)
            match_node_add(all, one);
    }
    if (status != TRUCE_OK) {
        match_node_free(all);
        return status;
    }
    *node = match_node_flatten(all);
    return TRUCE_OK;
}
