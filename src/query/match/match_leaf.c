/*
 * One element against one leaf of a filter. match.c finds the elements; `value` is missing where
 * the path leads to nothing.
 */
#include "base/assert.h"
#include "bson/decimal.h"
#include "bson/number.h"
#include "query/match/match_tree.h"

static bool leaf_is_nothing(struct value value)
{
    return value.type == VALUE_MISSING || value.type == BSON_TYPE_UNDEFINED;
}

/* operand and value have different type classes */
static bool compare_across(enum match_kind kind, struct value value, struct value operand)
{
    switch (operand.type) {
    case BSON_TYPE_NULL:
        return leaf_is_nothing(value) &&
               (kind == MATCH_EQ || kind == MATCH_LTE || kind == MATCH_GTE);
    case BSON_TYPE_MAXKEY:
        return kind == MATCH_LT || kind == MATCH_LTE;
    case BSON_TYPE_MINKEY:
        return kind == MATCH_GT || kind == MATCH_GTE;
    default:
        return false;
    }
}

static bool leaf_holds(enum match_kind kind, int order)
{
    switch (kind) {
    case MATCH_EQ:
        return order == 0;
    case MATCH_LT:
        return order < 0;
    case MATCH_LTE:
        return order <= 0;
    case MATCH_GT:
        return order > 0;
    default:
        return order >= 0;
    }
}

static int compare_integers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

bool truce__match_compare(enum match_kind kind, struct value value, struct value operand)
{
    int order;

    if (truce__value_is_integer(value) && truce__value_is_integer(operand))
        return leaf_holds(
            kind, compare_integers(truce__value_integer(value), truce__value_integer(operand)));
    if (truce__type_class(value.type) != truce__type_class(operand.type))
        return compare_across(kind, value, operand);
    order = truce__value_compare(value, operand);
    /* NaN is the least number in the order of values, but in filters it stands apart */
    if (order && truce__value_is_number(operand) &&
        (truce__number_is_nan(value) || truce__number_is_nan(operand)))
        return false;
    return leaf_holds(kind, order);
}

/* Types of which two values are equal only if their bytes are. */
static bool leaf_is_plain(uint8_t type)
{
    return type == BSON_TYPE_UTF8 || type == BSON_TYPE_INT32 || type == BSON_TYPE_INT64 ||
           type == BSON_TYPE_OID || type == BSON_TYPE_DATE_TIME || type == BSON_TYPE_BOOL;
}

static bool test_equal(const struct match_node *node, struct value value, struct match_run *run)
{
    if (value.type == node->operand.type && leaf_is_plain(value.type))
        return truce__value_identical(value, node->operand);
    return truce__match_compare(MATCH_EQ, value, node->operand);
}

static bool test_order(const struct match_node *node, struct value value, struct match_run *run)
{
    return truce__match_compare(node->kind, value, node->operand);
}

static bool leaf_is_among(struct value value, const struct value *operands, uint32_t count)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = truce__value_compare(value, operands[middle]);

        if (!order)
            return true;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

static bool test_in(const struct match_node *node, struct value value, struct match_run *run)
{
    if (leaf_is_nothing(value))
        value = truce__value_null();
    if (leaf_is_among(value, node->operands, node->operands_count))
        return true;
    for (uint32_t i = 0; i < node->children_count; i++) {
        if (truce__match_spend(run, 1) && truce__match_leaf_test(node->children[i], value, run))
            return true;
    }
    return false;
}

static bool test_exists(const struct match_node *node, struct value value, struct match_run *run)
{
    return value.type != VALUE_MISSING;
}

static bool test_type(const struct match_node *node, struct value value, struct match_run *run)
{
    const struct match_types *types = node->extra;

    return value.type != VALUE_MISSING && (types->mask & truce__match_type_bit(value.type));
}

static bool test_regex(const struct match_node *node, struct value value, struct match_run *run)
{
    const struct regex *regex = node->extra;
    const char *text;
    uint32_t length;
    bool found = false;

    if (value.type == BSON_TYPE_REGEX) {
        const char *pattern = (const char *)value.data;

        return !strcmp(pattern, truce__regex_pattern(regex)) &&
               !strcmp(pattern + strlen(pattern) + 1, truce__regex_options(regex));
    }
    if ((value.type != BSON_TYPE_UTF8 && value.type != BSON_TYPE_SYMBOL) || run->status != TRUCE_OK)
        return false;
    text = truce__value_text(value, &length);
    run->status =
        truce__regex_find(regex, text, length, 0, run->budget, &found, NULL, 0, run->error);
    return found;
}

static bool test_mod(const struct match_node *node, struct value value, struct match_run *run)
{
    const struct match_modulus *modulus = node->extra;
    int64_t whole;

    if (!truce__value_is_number(value) || !truce__number_truncate(value, &whole))
        return false;
    /* INT64_MIN % -1 overflows */
    return (modulus->divisor == -1 ? 0 : whole % modulus->divisor) == modulus->remainder;
}

static bool test_size(const struct match_node *node, struct value value, struct match_run *run)
{
    const struct match_size *size = node->extra;
    struct fields fields;
    int64_t count = 0;

    if (value.type != BSON_TYPE_ARRAY)
        return false;
    fields = truce__fields(value);
    while (count <= size->size && truce__fields_next(&fields))
        count++;
    return count == size->size;
}

static bool bit_of_bytes(struct value binary, uint32_t position)
{
    uint32_t byte = position / 8;

    return byte < binary.size - 5 && (binary.data[5 + byte] >> position % 8 & 1);
}

/* the sign goes on beyond the 64th bit */
static bool bit_of_integer(int64_t number, uint32_t position)
{
    return (uint64_t)number >> (position < 63 ? position : 63) & 1;
}

/* The integer whose bits are tested: a double must be one, a decimal is rounded to one. NaN, the
 * infinities, and numbers beyond 64 bits have none. */
static bool integer_for_bits(struct value value, int64_t *number)
{
    _IDEC_flags flags = 0;

    if (value.type == BSON_TYPE_DECIMAL128) {
        *number =
            bid128_to_int64_rnint(truce__decimal_of_bson(truce__value_decimal(value)), &flags);
        return !(flags & BID_INVALID_EXCEPTION);
    }
    return truce__value_is_number(value) && truce__number_to_int64(value, number);
}

static bool test_bits(const struct match_node *node, struct value value, struct match_run *run)
{
    const struct match_bits *bits = node->extra;
    bool is_binary = value.type == BSON_TYPE_BINARY;
    int64_t number = 0;

    if (!is_binary && !integer_for_bits(value, &number))
        return false;
    for (uint32_t i = 0; i < bits->count; i++) {
        bool bit = is_binary ? bit_of_bytes(value, bits->positions[i])
                             : bit_of_integer(number, bits->positions[i]);

        if (bits->all != (bit == bits->set))
            return !bits->all;
    }
    return bits->all;
}

/* $elemMatch: the position is that of the element, whatever stands inside it */
static bool test_elements(const struct match_node *node, struct value value, struct match_run *run)
{
    bool objects = node->kind == MATCH_ELEM_OBJECT;
    struct fields fields;

    if (value.type != BSON_TYPE_ARRAY)
        return false;
    fields = truce__fields(value);
    for (int64_t index = 0; truce__fields_next(&fields); index++) {
        bool all = truce__match_spend(run, 1) && truce__match_sees(run, value, index) &&
                   (!objects || truce__value_is_container(fields.value));

        for (uint32_t i = 0; i < node->children_count && all; i++)
            all = objects ? truce__match_node_test(node->children[i], fields.value, run)
                          : truce__match_element_test(node->children[i], fields.value, run);
        if (all) {
            run->place = (struct match_place){value, index};
            return true;
        }
    }
    return false;
}

typedef bool leaf_test(const struct match_node *node, struct value value, struct match_run *run);

static leaf_test *const leaf_tests[] = {
    [MATCH_EQ] = test_equal,
    [MATCH_LT] = test_order,
    [MATCH_LTE] = test_order,
    [MATCH_GT] = test_order,
    [MATCH_GTE] = test_order,
    [MATCH_IN] = test_in,
    [MATCH_EXISTS] = test_exists,
    [MATCH_TYPE] = test_type,
    [MATCH_REGEX] = test_regex,
    [MATCH_MOD] = test_mod,
    [MATCH_SIZE] = test_size,
    [MATCH_BITS] = test_bits,
    [MATCH_ELEM_OBJECT] = test_elements,
    [MATCH_ELEM_VALUE] = test_elements,
    [MATCH_GROUP] = truce__match_group_test,
};

bool truce__match_leaf_test(const struct match_node *node, struct value value,
                            struct match_run *run)
{
    truce_assert(node->kind < sizeof leaf_tests / sizeof *leaf_tests && leaf_tests[node->kind]);
    return leaf_tests[node->kind](node, value, run);
}
