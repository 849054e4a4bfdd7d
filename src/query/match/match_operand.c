/* Operators of filters whose operand is more than a value to compare with. */
#include "base/assert.h"
#include "bson/number.h"
#include "query/match/match_tree.h"

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

/* Sorts the operands and drops the repeated ones. */
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

static truce_status add_operand(struct match_parser *parser, struct match_node *node,
                                const struct match_condition *condition, struct value value)
{
    struct match_condition one = *condition;
    struct match_node *regex;
    truce_status status;

    one.value = value;
    if (truce__match_is_condition(value))
        return refuse_operand(parser, CODE_BAD_VALUE, &one, "values without operators inside");
    if (value.type == BSON_TYPE_UNDEFINED)
        return refuse_operand(parser, CODE_BAD_VALUE, &one, "no undefined values");
    if (value.type != BSON_TYPE_REGEX) {
        node->operands[node->operands_count++] = value;
        return TRUCE_OK;
    }
    status = truce__match_regex_new(parser, &one, &regex);
    if (status == TRUCE_OK)
        truce__match_node_add(node, regex);
    return status;
}

/* $in of one value says what equality says. */
static void simplify_in(struct match_node *node)
{
    if (node->operands_count != 1 || node->children_count)
        return;
    node->kind = MATCH_EQ;
    node->operand = node->operands[0];
    node->operands_count = 0;
}

truce_status truce__match_parse_in(struct match_parser *parser,
                                   const struct match_condition *condition,
                                   struct match_node **node)
{
    truce_status status;
    struct fields fields;

    if (condition->value.type != BSON_TYPE_ARRAY)
        return refuse_operand(parser, CODE_BAD_VALUE, condition, "a list of values");
    status = truce__match_leaf_new(parser, MATCH_IN, condition, node);
    if (status != TRUCE_OK)
        return status;
    (*node)->operands =
        bson_malloc((operand_count_elements(condition->value) + 1) * sizeof *(*node)->operands);
    fields = truce__fields(condition->value);
    while (status == TRUCE_OK && truce__fields_next(&fields))
        status = add_operand(parser, *node, condition, fields.value);
    if (status != TRUCE_OK) {
        truce__match_node_free(*node);
        *node = NULL;
        return status;
    }
    sort_operands(*node);
    simplify_in(*node);
    return TRUCE_OK;
}

/* -- $all and $elemMatch -- */

/* the first field of a document */
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
        return truce__match_parse_elements(parser, &one, node);
    }
    if (first_field(value, &fields) && truce__match_is_operator(fields.key))
        return refuse_operand(parser, CODE_BAD_VALUE, &one, "no operators but $elemMatch");
    if (value.type == BSON_TYPE_REGEX)
        return truce__match_regex_new(parser, &one, node);
    return truce__match_leaf_new(parser, MATCH_EQ, &one, node);
}

truce_status truce__match_parse_all(struct match_parser *parser,
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
        *node = truce__match_node_new(MATCH_FALSE);
        return TRUCE_OK;
    }
    all = truce__match_node_new(MATCH_AND);
    fields = truce__fields(condition->value);
    for (bool first = true; status == TRUCE_OK && truce__fields_next(&fields); first = false) {
        if (first)
            elements = begins_with_elements(fields.value);
        status = parse_all_element(parser, condition, fields.value, elements, &one);
        if (status == TRUCE_OK)
            truce__match_node_add(all, one);
    }
    if (status != TRUCE_OK) {
        truce__match_node_free(all);
        return status;
    }
    *node = truce__match_node_flatten(all);
    return TRUCE_OK;
}

/* {$elemMatch: {$gt: 1}} tests the elements themselves, {$elemMatch: {a: 1}} and {$elemMatch: {$or:
 * [...]}} their fields. */
static bool is_about_values(struct value value)
{
    struct fields fields;

    return first_field(value, &fields) && fields.key[0] == '$' &&
           !truce__match_is_clause(fields.key);
}

truce_status truce__match_parse_elements(struct match_parser *parser,
                                         const struct match_condition *condition,
                                         struct match_node **node)
{
    bool values = is_about_values(condition->value), outer = parser->inside_element;
    struct match_node *inside;
    truce_status status;

    if (condition->value.type != BSON_TYPE_DOCUMENT)
        return refuse_operand(parser, CODE_BAD_VALUE, condition, "a filter");
    parser->inside_element = true;
    status = values ? truce__match_parse_conditions(parser, "", 0, condition->value, &inside)
                    : truce__match_parse(parser, condition->value, &inside);
    parser->inside_element = outer;
    if (status != TRUCE_OK)
        return status;
    status = truce__match_leaf_new(parser, values ? MATCH_ELEM_VALUE : MATCH_ELEM_OBJECT, condition,
                                   node);
    if (status == TRUCE_OK)
        truce__match_node_add(*node, inside);
    else
        truce__match_node_free(inside);
    return status;
}

/* -- $size -- */

static bool is_size(struct value value, int64_t *size)
{
    return truce__value_is_number(value) && truce__number_to_int64(value, size) && *size >= 0 &&
           *size <= INT32_MAX;
}

truce_status truce__match_parse_size(struct match_parser *parser,
                                     const struct match_condition *condition,
                                     struct match_node **node)
{
    struct match_size *size;
    int64_t number;
    truce_status status;

    if (!is_size(condition->value, &number))
        return refuse_operand(parser, CODE_BAD_VALUE, condition,
                              "a whole number from 0 to 2147483647");
    status = truce__match_leaf_new(parser, MATCH_SIZE, condition, node);
    if (status != TRUCE_OK)
        return status;
    (*node)->extra = size = bson_malloc0(sizeof *size);
    size->size = number;
    return TRUCE_OK;
}

/* -- $type -- */

static bool type_of_name(struct value value, uint64_t *mask)
{
    uint32_t length;
    const char *name = truce__value_text(value, &length);

    if (!strcmp(name, "number")) {
        *mask |= truce__match_type_bit(BSON_TYPE_INT32) | truce__match_type_bit(BSON_TYPE_INT64) |
                 truce__match_type_bit(BSON_TYPE_DOUBLE) |
                 truce__match_type_bit(BSON_TYPE_DECIMAL128);
        return true;
    }
    for (int type = 1; type < 256; type++) {
        bool known =
            type <= BSON_TYPE_DECIMAL128 || type == BSON_TYPE_MAXKEY || type == BSON_TYPE_MINKEY;

        if (known && !strcmp(name, truce__type_name((uint8_t)type))) {
            *mask |= truce__match_type_bit((uint8_t)type);
            return true;
        }
    }
    return false;
}

static bool type_of_number(struct value value, uint64_t *mask)
{
    int64_t number;

    if (!truce__number_to_int64(value, &number))
        return false;
    if (number != -1 && number != BSON_TYPE_MAXKEY && (number < 1 || number > BSON_TYPE_DECIMAL128))
        return false;
    *mask |= truce__match_type_bit((uint8_t)number);
    return true;
}

static truce_status add_type(struct value value, const char *what, uint64_t *mask,
                             bson_error_t *error)
{
    char text[120];
    bool known;

    if (value.type == BSON_TYPE_UTF8)
        known = type_of_name(value, mask);
    else if (truce__value_is_number(value))
        known = type_of_number(value, mask);
    else
        return truce__refuse(CODE_TYPE_MISMATCH, error,
                             "%s takes the name or number of a type, not %s", what,
                             truce__value_show(value, text, sizeof text));
    if (!known)
        return truce__refuse(CODE_BAD_VALUE, error, "%s: there is no type %s", what,
                             truce__value_show(value, text, sizeof text));
    return TRUCE_OK;
}

truce_status truce__match_types_parse(struct value value, const char *what, uint64_t *mask,
                                      bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    struct fields fields;

    *mask = 0;
    if (value.type != BSON_TYPE_ARRAY)
        return add_type(value, what, mask, error);
    fields = truce__fields(value);
    while (status == TRUCE_OK && truce__fields_next(&fields))
        status = add_type(fields.value, what, mask, error);
    if (status == TRUCE_OK && !*mask)
        return truce__refuse(CODE_FAILED_TO_PARSE, error, "%s takes at least one type", what);
    return status;
}

truce_status truce__match_parse_type(struct match_parser *parser,
                                     const struct match_condition *condition,
                                     struct match_node **node)
{
    struct match_types *types;
    char what[160];
    uint64_t mask;
    truce_status status;

    snprintf(what, sizeof what, "'%.120s': %s", condition->path, condition->name);
    status = truce__match_types_parse(condition->value, what, &mask, parser->error);
    if (status == TRUCE_OK)
        status = truce__match_leaf_new(parser, MATCH_TYPE, condition, node);
    if (status != TRUCE_OK)
        return status;
    (*node)->extra = types = bson_malloc0(sizeof *types);
    types->mask = mask;
    return TRUCE_OK;
}

/* -- $mod -- */

/* Divisor and remainder. A remainder that is no number counts as 0, as it always has in MongoDB. */
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

truce_status truce__match_parse_mod(struct match_parser *parser,
                                    const struct match_condition *condition,
                                    struct match_node **node)
{
    struct match_modulus modulus;
    truce_status status;

    if (!parse_modulus(condition->value, &modulus))
        return refuse_operand(parser, CODE_BAD_VALUE, condition,
                              "[divisor, remainder], 64-bit integers, the divisor not 0");
    status = truce__match_leaf_new(parser, MATCH_MOD, condition, node);
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
                              "a bit mask that is a 64-bit integer and not negative");
    *bits = bits_of_mask((uint64_t)mask);
    return TRUCE_OK;
}

truce_status truce__match_parse_bits(struct match_parser *parser,
                                     const struct match_condition *condition,
                                     struct match_node **node)
{
    struct match_bits *bits;
    truce_status status = parse_positions(parser, condition, &bits);

    if (status != TRUCE_OK)
        return status;
    bits->all = strstr(condition->name, "All") != NULL;
    bits->set = strstr(condition->name, "Set") != NULL;
    status = truce__match_leaf_new(parser, MATCH_BITS, condition, node);
    if (status == TRUCE_OK)
        (*node)->extra = bits;
    else
        bson_free(bits);
    return status;
}
