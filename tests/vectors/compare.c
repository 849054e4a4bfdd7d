/* Answers compared byte for byte: types, the order of fields, -0.0 and the digits of decimals
 * count; any NaN equals any NaN of its type. */
#include "tests/vectors/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_placeholder(const bson_value_t *value)
{
    static const uint8_t mark[11] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                     0xff, 0xff, 0xff, 0xff, 0xff};

    return value->value_type == BSON_TYPE_OID && !memcmp(value->value.v_oid.bytes, mark, 11);
}

static bool is_now(const bson_value_t *value)
{
    if (value->value_type == BSON_TYPE_DATE_TIME)
        return value->value.v_datetime == 0;
    return value->value_type == BSON_TYPE_TIMESTAMP && value->value.v_timestamp.timestamp == 0;
}

static bool is_decimal_nan(const bson_decimal128_t *decimal)
{
    return (decimal->high >> 58 & 31) == 31;
}

static bool same_text(const char *a, uint32_t a_size, const char *b, uint32_t b_size)
{
    return a_size == b_size && !memcmp(a, b, a_size);
}

static bool same_bytes(const uint8_t *a, uint32_t a_size, const uint8_t *b, uint32_t b_size)
{
    return a_size == b_size && !memcmp(a, b, a_size);
}

static bool same_container(const bson_value_t *expected, const bson_value_t *actual,
                           const struct vector_rules *rules);

static bool same_scalar(const bson_value_t *e, const bson_value_t *a)
{
    switch (e->value_type) {
    case BSON_TYPE_DOUBLE:
        return (isnan(e->value.v_double) && isnan(a->value.v_double)) ||
               !memcmp(&e->value.v_double, &a->value.v_double, sizeof(double));
    case BSON_TYPE_DECIMAL128:
        return (is_decimal_nan(&e->value.v_decimal128) && is_decimal_nan(&a->value.v_decimal128)) ||
               (e->value.v_decimal128.low == a->value.v_decimal128.low &&
                e->value.v_decimal128.high == a->value.v_decimal128.high);
    case BSON_TYPE_INT32:
        return e->value.v_int32 == a->value.v_int32;
    case BSON_TYPE_INT64:
        return e->value.v_int64 == a->value.v_int64;
    case BSON_TYPE_DATE_TIME:
        return e->value.v_datetime == a->value.v_datetime;
    case BSON_TYPE_TIMESTAMP:
        return e->value.v_timestamp.timestamp == a->value.v_timestamp.timestamp &&
               e->value.v_timestamp.increment == a->value.v_timestamp.increment;
    case BSON_TYPE_BOOL:
        return e->value.v_bool == a->value.v_bool;
    case BSON_TYPE_OID:
        return bson_oid_equal(&e->value.v_oid, &a->value.v_oid);
    case BSON_TYPE_UTF8:
        return same_text(e->value.v_utf8.str, e->value.v_utf8.len, a->value.v_utf8.str,
                         a->value.v_utf8.len);
    case BSON_TYPE_SYMBOL:
        return same_text(e->value.v_symbol.symbol, e->value.v_symbol.len, a->value.v_symbol.symbol,
                         a->value.v_symbol.len);
    case BSON_TYPE_CODE:
        return same_text(e->value.v_code.code, e->value.v_code.code_len, a->value.v_code.code,
                         a->value.v_code.code_len);
    case BSON_TYPE_CODEWSCOPE:
        return same_text(e->value.v_codewscope.code, e->value.v_codewscope.code_len,
                         a->value.v_codewscope.code, a->value.v_codewscope.code_len) &&
               same_bytes(e->value.v_codewscope.scope_data, e->value.v_codewscope.scope_len,
                          a->value.v_codewscope.scope_data, a->value.v_codewscope.scope_len);
    case BSON_TYPE_BINARY:
        return e->value.v_binary.subtype == a->value.v_binary.subtype &&
               same_bytes(e->value.v_binary.data, e->value.v_binary.data_len,
                          a->value.v_binary.data, a->value.v_binary.data_len);
    case BSON_TYPE_REGEX:
        return !strcmp(e->value.v_regex.regex, a->value.v_regex.regex) &&
               !strcmp(e->value.v_regex.options, a->value.v_regex.options);
    case BSON_TYPE_DBPOINTER:
        return !strcmp(e->value.v_dbpointer.collection, a->value.v_dbpointer.collection) &&
               bson_oid_equal(&e->value.v_dbpointer.oid, &a->value.v_dbpointer.oid);
    default: /* null, undefined, MinKey, MaxKey */
        return true;
    }
}

bool vector_same_value(const bson_value_t *expected, const bson_value_t *actual,
                       const struct vector_rules *rules)
{
    if (rules->generated_id && is_placeholder(expected))
        return actual->value_type == BSON_TYPE_OID;
    if (expected->value_type != actual->value_type)
        return false;
    if (rules->now && is_now(expected))
        return true;
    if (expected->value_type == BSON_TYPE_DOCUMENT || expected->value_type == BSON_TYPE_ARRAY)
        return same_container(expected, actual, rules);
    return same_scalar(expected, actual);
}

static bool same_in_order(const bson_t *expected, const bson_t *actual,
                          const struct vector_rules *rules, bool keys)
{
    bson_iter_t e, a;
    bool e_more, a_more;

    if (!bson_iter_init(&e, expected) || !bson_iter_init(&a, actual))
        return false;
    for (;;) {
        e_more = bson_iter_next(&e);
        a_more = bson_iter_next(&a);
        if (!e_more || !a_more)
            return e_more == a_more;
        if (keys && strcmp(bson_iter_key(&e), bson_iter_key(&a)) != 0)
            return false;
        if (!vector_same_value(bson_iter_value(&e), bson_iter_value(&a), rules))
            return false;
    }
}

/* Checks that each element of `expected` matches a different one of `actual`. */
static bool same_as_sets(const bson_t *expected, const bson_t *actual,
                         const struct vector_rules *rules)
{
    uint32_t count = bson_count_keys(expected);
    bool *taken = calloc(count + 1, sizeof(*taken));
    bool same = count == bson_count_keys(actual), found;
    bson_iter_t e, a;

    for (bson_iter_init(&e, expected); same && bson_iter_next(&e); same = found) {
        uint32_t number = 0;

        found = false;
        for (bson_iter_init(&a, actual); !found && bson_iter_next(&a); number++)
            if (!taken[number] &&
                vector_same_value(bson_iter_value(&e), bson_iter_value(&a), rules))
                found = taken[number] = true;
    }
    free(taken);
    return same;
}

static bool same_container(const bson_value_t *expected, const bson_value_t *actual,
                           const struct vector_rules *rules)
{
    bool is_array = expected->value_type == BSON_TYPE_ARRAY;
    bson_t e, a;

    if (!bson_init_static(&e, expected->value.v_doc.data, expected->value.v_doc.data_len) ||
        !bson_init_static(&a, actual->value.v_doc.data, actual->value.v_doc.data_len))
        return false;
    if (is_array && rules->as_sets)
        return same_as_sets(&e, &a, rules);
    return same_in_order(&e, &a, rules, !is_array);
}

bool vector_same(const bson_t *expected, const bson_t *actual, const struct vector_rules *rules)
{
    return same_in_order(expected, actual, rules, true);
}
