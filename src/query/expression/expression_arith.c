#include <math.h>

#include "bson/sum.h"
#include "query/expression/expression_number.h"

/*
 * Basic arithmetic and rounding. Types widen int32 -> int64 -> double -> decimal: an int32 that
 * overflows becomes an int64, an int64 a double. $add and $subtract also accept dates. If an
 * operand is missing or null, the result is null.
 */

static bool is_decimal(const struct value *operands, int count)
{
    for (int i = 0; i < count; i++) {
        if (operands[i].type == BSON_TYPE_DECIMAL128)
            return true;
    }
    return false;
}

/* -- $add ------------------------------------------------------------------------------------- */

/* Half a millisecond rounds away from zero as a double, and to the even one as a decimal. */
static bool to_milliseconds(struct value number, int64_t *milliseconds)
{
    _IDEC_flags flags = 0;
    double real;

    if (truce__value_is_integer(number)) {
        *milliseconds = truce__value_integer(number);
        return true;
    }
    if (number.type == BSON_TYPE_DECIMAL128) {
        *milliseconds = bid128_to_int64_rnint(truce__number_as_decimal(number), &flags);
        return !(flags & BID_INVALID_EXCEPTION);
    }
    real = truce__value_double(number);
    if (!(real >= -9223372036854775808.0 && real < 9223372036854775808.0))
        return false;
    *milliseconds = llround(real);
    return true;
}

/* Each number after the date is rounded by itself, and so is the sum of those before it. */
static bool add_to_date(int64_t *date, struct value number)
{
    int64_t milliseconds;

    return to_milliseconds(number, &milliseconds) &&
           !__builtin_add_overflow(*date, milliseconds, date);
}

static truce_status evaluate_add(const struct expression_node *node, struct evaluation *run,
                                 struct value *result)
{
    struct sum sum;
    int64_t date = 0;
    bool dated = false, fits = true;

    truce__sum_begin(&sum);
    for (uint32_t i = 0; i < node->count; i++) {
        struct value operand;
        truce_status status = truce__expression_run(node->operands[i], run, &operand);
        if (status)
            return status;
        if (truce__value_is_number(operand)) {
            if (dated)
                fits = fits && add_to_date(&date, operand);
            else
                truce__sum_add(&sum, operand);
        } else if (operand.type == BSON_TYPE_DATE_TIME) {
            if (dated)
                return truce__refuse(16612, run->error, "$add takes at most one date");
            date = truce__value_int64(operand);
            fits = add_to_date(&date, truce__sum_value(&sum, run->arena));
            dated = true;
        } else if (truce__value_is_nullish(operand)) {
            return truce__evaluation_null(result);
        } else {
            return truce__refuse(CODE_TYPE_MISMATCH, run->error,
                                 "$add takes numbers and dates, not %s",
                                 truce__type_name(operand.type));
        }
    }
    if (!fits)
        return truce__refuse(CODE_OVERFLOW, run->error, "the date that $add makes is out of range");
    *result = dated ? truce__value_from_date(run->arena, date) : truce__sum_value(&sum, run->arena);
    return TRUCE_OK;
}

/* -- $subtract -------------------------------------------------------------------------------- */

static truce_status subtract_from_date(struct evaluation *run, struct value date,
                                       struct value other, struct value *result)
{
    int64_t left = truce__value_int64(date), right, difference;

    if (other.type == BSON_TYPE_DATE_TIME)
        right = truce__value_int64(other);
    else if (!truce__value_is_number(other))
        return truce__refuse(CODE_TYPE_MISMATCH, run->error,
                             "$subtract takes a date or a number from a date, not %s",
                             truce__type_name(other.type));
    else if (!to_milliseconds(other, &right))
        return truce__refuse(31109, run->error,
                             "the number that $subtract takes is not a 64-bit integer");
    if (__builtin_sub_overflow(left, right, &difference))
        return truce__refuse(CODE_OVERFLOW, run->error, "$subtract leaves the range of dates");
    *result = other.type == BSON_TYPE_DATE_TIME ? truce__value_from_int64(run->arena, difference)
                                                : truce__value_from_date(run->arena, difference);
    return TRUCE_OK;
}

static truce_status apply_subtract(const struct expression_node *node, struct evaluation *run,
                                   const struct value *operands, struct value *result)
{
    bool overflow;

    if (truce__value_is_number(operands[0]) && truce__value_is_number(operands[1])) {
        *result =
            truce__number_combine(NUMBER_SUBTRACT, operands[0], operands[1], run->arena, &overflow);
        return TRUCE_OK;
    }
    if (truce__value_is_nullish(operands[0]) || truce__value_is_nullish(operands[1]))
        return truce__evaluation_null(result);
    if (operands[0].type == BSON_TYPE_DATE_TIME)
        return subtract_from_date(run, operands[0], operands[1], result);
    return truce__refuse(CODE_TYPE_MISMATCH, run->error,
                         "$subtract takes numbers and dates: %s - %s",
                         truce__type_name(operands[0].type), truce__type_name(operands[1].type));
}

/* -- $multiply -------------------------------------------------------------------------------- */

struct product {
    uint8_t type;
    /* while the type is INT32 or INT64 */
    int64_t integer;
    /* while the type is DOUBLE */
    double real;
    decimal decimal;
};

static void multiply_decimal(struct product *product, struct value factor, struct evaluation *run)
{
    _IDEC_flags flags = 0;

    if (product->type == BSON_TYPE_DOUBLE)
        product->decimal =
            truce__number_as_decimal(truce__value_from_double(run->arena, product->real));
    else if (product->type != BSON_TYPE_DECIMAL128)
        product->decimal = bid128_from_int64(product->integer);
    product->type = BSON_TYPE_DECIMAL128;
    product->decimal = bid128_mul(product->decimal, truce__number_as_decimal(factor),
                                  BID_ROUNDING_TO_NEAREST, &flags);
}

static void arith_multiply(struct product *product, struct value factor, struct evaluation *run)
{
    if (product->type == BSON_TYPE_DECIMAL128 || factor.type == BSON_TYPE_DECIMAL128) {
        multiply_decimal(product, factor, run);
        return;
    }
    product->real *= truce__number_to_double(factor);
    if (factor.type == BSON_TYPE_DOUBLE)
        product->type = BSON_TYPE_DOUBLE;
    else if (factor.type == BSON_TYPE_INT64 && product->type == BSON_TYPE_INT32)
        product->type = BSON_TYPE_INT64;
    if (product->type != BSON_TYPE_DOUBLE &&
        __builtin_mul_overflow(product->integer, truce__value_integer(factor), &product->integer))
        product->type = BSON_TYPE_DOUBLE;
}

static struct value product_value(const struct product *product, struct evaluation *run)
{
    switch (product->type) {
    case BSON_TYPE_INT32:
        return truce__evaluation_integer(run, product->integer, BSON_TYPE_INT32);
    case BSON_TYPE_INT64:
        return truce__value_from_int64(run->arena, product->integer);
    case BSON_TYPE_DOUBLE:
        return truce__value_from_double(run->arena, product->real);
    default:
        return truce__evaluation_decimal(run, product->decimal);
    }
}

static truce_status evaluate_multiply(const struct expression_node *node, struct evaluation *run,
                                      struct value *result)
{
    struct product product = {.type = BSON_TYPE_INT32, .integer = 1, .real = 1};

    for (uint32_t i = 0; i < node->count; i++) {
        struct value factor;
        truce_status status = truce__expression_run(node->operands[i], run, &factor);
        if (status)
            return status;
        if (truce__value_is_nullish(factor))
            return truce__evaluation_null(result);
        if (!truce__value_is_number(factor))
            return truce__refuse(CODE_TYPE_MISMATCH, run->error, "$multiply takes numbers, not %s",
                                 truce__type_name(factor.type));
        arith_multiply(&product, factor, run);
    }
    *result = product_value(&product, run);
    return TRUCE_OK;
}

/* -- $divide, $mod ---------------------------------------------------------------------------- */

static truce_status apply_divide(const struct expression_node *node, struct evaluation *run,
                                 const struct value *operands, struct value *result)
{
    _IDEC_flags flags = 0;

    if (!truce__value_is_number(operands[0]) || !truce__value_is_number(operands[1])) {
        if (truce__value_is_nullish(operands[0]) || truce__value_is_nullish(operands[1]))
            return truce__evaluation_null(result);
        return truce__refuse(CODE_TYPE_MISMATCH, run->error, "$divide takes numbers: %s / %s",
                             truce__type_name(operands[0].type),
                             truce__type_name(operands[1].type));
    }
    if (truce__number_is_zero(operands[1]))
        return truce__refuse(CODE_BAD_VALUE, run->error, "$divide by zero");
    if (is_decimal(operands, 2))
        *result = truce__evaluation_decimal(run, bid128_div(truce__number_as_decimal(operands[0]),
                                                            truce__number_as_decimal(operands[1]),
                                                            BID_ROUNDING_TO_NEAREST, &flags));
    else
        *result = truce__value_from_double(run->arena, truce__number_to_double(operands[0]) /
                                                           truce__number_to_double(operands[1]));
    return TRUCE_OK;
}

/* Like each operator, $mod returns a double if an operand is one. */
static truce_status remainder_of(struct evaluation *run, const struct value *operands,
                                 struct value *result)
{
    int64_t right, left;

    if (operands[0].type == BSON_TYPE_DOUBLE || operands[1].type == BSON_TYPE_DOUBLE) {
        *result = truce__value_from_double(run->arena, fmod(truce__number_to_double(operands[0]),
                                                            truce__number_to_double(operands[1])));
        return TRUCE_OK;
    }
    left = truce__value_integer(operands[0]);
    right = truce__value_integer(operands[1]);
    left = right == -1 ? 0 : left % right;
    if (operands[0].type == BSON_TYPE_INT64 || operands[1].type == BSON_TYPE_INT64)
        *result = truce__value_from_int64(run->arena, left);
    else
        *result = truce__value_from_int32(run->arena, (int32_t)left);
    return TRUCE_OK;
}

static truce_status apply_mod(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    _IDEC_flags flags = 0;

    if (!truce__value_is_number(operands[0]) || !truce__value_is_number(operands[1])) {
        if (truce__value_is_nullish(operands[0]) || truce__value_is_nullish(operands[1]))
            return truce__evaluation_null(result);
        return truce__refuse(16611, run->error, "$mod takes numbers: %s mod %s",
                             truce__type_name(operands[0].type),
                             truce__type_name(operands[1].type));
    }
    if (truce__number_is_zero(operands[1]))
        return truce__refuse(is_decimal(operands, 2) ? 5733415 : 16610, run->error, "$mod by zero");
    if (!is_decimal(operands, 2))
        return remainder_of(run, operands, result);
    *result =
        truce__evaluation_decimal(run, bid128_fmod(truce__number_as_decimal(operands[0]),
                                                   truce__number_as_decimal(operands[1]), &flags));
    return TRUCE_OK;
}

const struct expression_operator truce__expressions_arith[] = {
    {"$add", 0, EXPRESSION_ANY, .evaluate = evaluate_add},
    {"$subtract", 2, 2, .apply = apply_subtract},
    {"$multiply", 0, EXPRESSION_ANY, .evaluate = evaluate_multiply},
    {"$divide", 2, 2, .apply = apply_divide},
    {"$mod", 2, 2, .apply = apply_mod},
    {NULL},
};
