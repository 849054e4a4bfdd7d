/*
 * Numbers: arithmetic, rounding, logarithms, trigonometry, bits, and accumulators over operands.
 *
 * Types widen int32 -> int64 -> double -> decimal: an int32 that overflows becomes an int64, and an
 * int64 becomes a double. $add and $subtract also accept dates. If an operand is missing or null,
 * the result is null, except for accumulators, which ignore it.
 */
#include <math.h>

#include "base/random.h"
#include "bson/decimal.h"
#include "bson/exact_sum.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "query/expression/expression_tree.h"

/* Returns an int32 if the number fits, unless the operand was wider. */
static struct value math_integer(struct evaluation *run, int64_t number, uint8_t type)
{
    if (type == BSON_TYPE_INT32 && number >= INT32_MIN && number <= INT32_MAX)
        return truce__value_from_int32(run->arena, (int32_t)number);
    return truce__value_from_int64(run->arena, number);
}

/* Converts any number to a decimal. A double is converted with 15 significant digits. */
static decimal math_decimal(struct value number)
{
    return truce__decimal_of_bson(truce__number_to_decimal(number));
}

static struct value math_decimal_value(struct evaluation *run, decimal number)
{
    return truce__value_from_decimal(run->arena, truce__decimal_to_bson(number));
}

static bool math_is_zero(struct value number)
{
    if (number.type == BSON_TYPE_DECIMAL128)
        return bid128_isZero(math_decimal(number));
    return truce__number_to_double(number) == 0;
}

static bool is_decimal(const struct value *operands, int count)
{
    for (int i = 0; i < count; i++) {
        if (operands[i].type == BSON_TYPE_DECIMAL128)
            return true;
    }
    return false;
}

/* -- $add ------------------------------------------------------------------------------------- */

/* Rounds a number to milliseconds. Half a millisecond rounds away from zero as a double, and to the
 * even one as a decimal. */
static bool to_milliseconds(struct value number, int64_t *milliseconds)
{
    _IDEC_flags flags = 0;
    double real;

    if (truce__value_is_integer(number)) {
        *milliseconds = truce__value_integer(number);
        return true;
    }
    if (number.type == BSON_TYPE_DECIMAL128) {
        *milliseconds = bid128_to_int64_rnint(math_decimal(number), &flags);
        return !(flags & BID_INVALID_EXCEPTION);
    }
    real = truce__value_double(number);
    if (!(real >= -9223372036854775808.0 && real < 9223372036854775808.0))
        return false;
    *milliseconds = llround(real);
    return true;
}

/* Adds a number of milliseconds to a date. Each number after the date is rounded by itself, and so
 * is the sum of those before it. */
static bool add_to_date(int64_t *date, struct value number)
{
    int64_t milliseconds;

    return to_milliseconds(number, &milliseconds) &&
           !__builtin_add_overflow(*date, milliseconds, date);
}

/* Evaluates $add: numbers, and at most one date. */
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

/* Subtracts a date or a number of milliseconds from a date. The difference of two dates is an
 * int64. */
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
        return truce__refuse_value(
            CODE_OVERFLOW, other, run->error,
            "$subtract takes a number of milliseconds within 64 bits from a date");
    if (__builtin_sub_overflow(left, right, &difference))
        return truce__refuse(CODE_OVERFLOW, run->error, "$subtract leaves the range of dates");
    *result = other.type == BSON_TYPE_DATE_TIME ? truce__value_from_int64(run->arena, difference)
                                                : truce__value_from_date(run->arena, difference);
    return TRUCE_OK;
}

/* Applies $subtract. */
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
    /* The product while the type is INT32 or INT64. */
    int64_t integer;
    /* The product while the type is DOUBLE. */
    double real;
    decimal decimal;
};

static void multiply_decimal(struct product *product, struct value factor, struct evaluation *run)
{
    _IDEC_flags flags = 0;

    if (product->type == BSON_TYPE_DOUBLE)
        product->decimal = math_decimal(truce__value_from_double(run->arena, product->real));
    else if (product->type != BSON_TYPE_DECIMAL128)
        product->decimal = bid128_from_int64(product->integer);
    product->type = BSON_TYPE_DECIMAL128;
    product->decimal =
        bid128_mul(product->decimal, math_decimal(factor), BID_ROUNDING_TO_NEAREST, &flags);
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
        return math_integer(run, product->integer, BSON_TYPE_INT32);
    case BSON_TYPE_INT64:
        return truce__value_from_int64(run->arena, product->integer);
    case BSON_TYPE_DOUBLE:
        return truce__value_from_double(run->arena, product->real);
    default:
        return math_decimal_value(run, product->decimal);
    }
}

/* Evaluates $multiply. */
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

/* Applies $divide. The result is a double or a decimal. */
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
    if (math_is_zero(operands[1]))
        return truce__refuse(CODE_BAD_VALUE, run->error, "$divide by zero");
    if (is_decimal(operands, 2))
        *result =
            math_decimal_value(run, bid128_div(math_decimal(operands[0]), math_decimal(operands[1]),
                                               BID_ROUNDING_TO_NEAREST, &flags));
    else
        *result = truce__value_from_double(run->arena, truce__number_to_double(operands[0]) /
                                                           truce__number_to_double(operands[1]));
    return TRUCE_OK;
}

/* Computes the remainder of two numbers. Like each operator, $mod returns a double if an operand is
 * one. */
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

/* Applies $mod. */
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
    if (math_is_zero(operands[1]))
        return truce__refuse(is_decimal(operands, 2) ? 5733415 : 16610, run->error, "$mod by zero");
    if (!is_decimal(operands, 2))
        return remainder_of(run, operands, result);
    *result = math_decimal_value(
        run, bid128_fmod(math_decimal(operands[0]), math_decimal(operands[1]), &flags));
    return TRUCE_OK;
}

/* ---- functions of one number, rounding, logarithms, powers ----------------------------------- */

/* Functions of numbers: rounding, roots, powers, and logarithms. Null stays null. Integers become
 * doubles if the result is usually not an integer; decimals stay decimals. */

static truce_status math_refuse_type(const struct expression_node *node, struct evaluation *run,
                                     uint32_t code, struct value operand)
{
    return truce__refuse(code, run->error, "%s takes a number, not %s",
                         truce__expression_name(node), truce__type_name(operand.type));
}

/* -- one number to one number ----------------------------------------------------------------- */

/* The properties of $exp, $ceil, and similar operators. An integer becomes a double, unless
 * `keeps_integers` is set. */
struct function {
    double (*of_double)(double);
    decimal (*of_decimal)(decimal number, _IDEC_round rounding, _IDEC_flags *flags);
    /* The result for an integer is the integer. */
    bool keeps_integers;
    bool (*allows)(struct value number);
    /* The code of the error for a number outside the domain. */
    uint32_t code;
    const char *must;
    /* An array is the operand, not a list of operands. The code for a wrong type is
     * CODE_TYPE_MISMATCH then. */
    bool takes_array;
};

/* Applies an operator that is a `struct function`. */
static truce_status math_apply_function(const struct expression_node *node, struct evaluation *run,
                                        const struct value *operands, struct value *result)
{
    const struct function *function = node->extra;
    _IDEC_flags flags = 0;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[0]))
        return math_refuse_type(node, run, function->takes_array ? CODE_TYPE_MISMATCH : 28765,
                                operands[0]);
    if (function->allows && !truce__number_is_nan(operands[0]) && !function->allows(operands[0]))
        return truce__refuse_value(function->code, operands[0], run->error,
                                   "the operand of %s must be %s", truce__expression_name(node),
                                   function->must);
    if (operands[0].type == BSON_TYPE_DECIMAL128)
        *result = math_decimal_value(
            run, function->of_decimal(math_decimal(operands[0]), BID_ROUNDING_TO_NEAREST, &flags));
    else if (function->keeps_integers && truce__value_is_integer(operands[0]))
        *result = operands[0];
    else
        *result = truce__value_from_double(
            run->arena, function->of_double(truce__number_to_double(operands[0])));
    return TRUCE_OK;
}

static bool is_positive(struct value number)
{
    if (number.type == BSON_TYPE_DECIMAL128)
        return !bid128_isSigned(math_decimal(number)) && !bid128_isZero(math_decimal(number));
    return truce__number_to_double(number) > 0;
}

static bool is_not_negative(struct value number)
{
    if (number.type == BSON_TYPE_DECIMAL128)
        return !bid128_isSigned(math_decimal(number)) || bid128_isZero(math_decimal(number));
    return truce__number_to_double(number) >= 0;
}

/* Rounds a decimal up. Like MongoDB, quantizes to exactly zero places: NaN if the number has too
 * many digits or is infinite. */
static decimal ceil_decimal(decimal number, _IDEC_round rounding, _IDEC_flags *flags)
{
    return bid128_quantize(number, bid128_from_int64(1), BID_ROUNDING_UP, flags);
}

static decimal floor_decimal(decimal number, _IDEC_round rounding, _IDEC_flags *flags)
{
    return bid128_quantize(number, bid128_from_int64(1), BID_ROUNDING_DOWN, flags);
}

static const struct function ceil_function = {ceil, ceil_decimal, true};
static const struct function floor_function = {floor, floor_decimal, true};
static double sigmoid(double number)
{
    return 1 / (1 + exp(-number));
}

static decimal sigmoid_decimal(decimal number, _IDEC_round rounding, _IDEC_flags *flags)
{
    decimal one = bid128_from_int64(1);
    decimal power = bid128_exp(bid128_negate(number), rounding, flags);

    return bid128_div(one, bid128_add(one, power, rounding, flags), rounding, flags);
}

static const struct function exp_function = {exp, bid128_exp};
static const struct function sigmoid_function = {sigmoid, sigmoid_decimal, .takes_array = true};
static const struct function ln_function = {log, bid128_log, false, is_positive, 28766, "positive"};
static const struct function log10_function = {log10,       bid128_log10, false,
                                               is_positive, 28761,        "positive"};
static const struct function sqrt_function = {sqrt,  bid128_sqrt,       false, is_not_negative,
                                              28714, "zero or positive"};

/* Applies $abs. */
static truce_status apply_abs(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    int64_t number;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[0]))
        return math_refuse_type(node, run, 28765, operands[0]);
    if (operands[0].type == BSON_TYPE_DECIMAL128) {
        *result = math_decimal_value(run, bid128_abs(math_decimal(operands[0])));
        return TRUCE_OK;
    }
    if (operands[0].type == BSON_TYPE_DOUBLE) {
        *result = truce__value_from_double(run->arena, fabs(truce__value_double(operands[0])));
        return TRUCE_OK;
    }
    number = truce__value_integer(operands[0]);
    if (number == INT64_MIN)
        return truce__refuse(28680, run->error,
                             "$abs of the smallest long is not a 64-bit integer");
    *result = math_integer(run, number < 0 ? -number : number, operands[0].type);
    return TRUCE_OK;
}

/* -- $round, $trunc --------------------------------------------------------------------------- */

#define DIGITS_MIN (-20)
#define DIGITS_MAX 100

struct rounding {
    _IDEC_round mode;
    double (*of_double)(double);
};

static const struct rounding round_rule = {BID_ROUNDING_TO_NEAREST, nearbyint};
static const struct rounding trunc_rule = {BID_ROUNDING_TO_ZERO, trunc};

/* Returns the decimal with its last digit at 10^-digits, or the decimal itself if that needs more
 * digits than exist. */
static decimal math_quantize(decimal number, int digits, const struct rounding *rule)
{
    _IDEC_flags flags = 0;
    decimal quantum = bid128_scalbn(bid128_from_int64(1), -digits, BID_ROUNDING_TO_NEAREST, &flags);
    decimal result;

    if (bid128_isInf(number) || bid128_isNaN(number))
        return number;
    flags = 0;
    result = bid128_quantize(number, quantum, rule->mode, &flags);
    return flags & BID_INVALID_EXCEPTION ? number : result;
}

/* Reads the number of decimal places, which may be negative. */
static truce_status read_digits(const struct expression_node *node, struct evaluation *run,
                                struct value value, int *digits)
{
    int64_t wide;

    if (!truce__value_is_number(value))
        return truce__refuse(16004, run->error, "the position of %s must be a number, not %s",
                             truce__expression_name(node), truce__type_name(value.type));
    if (truce__number_is_nan(value) || fabs(truce__number_to_double(value)) >= 0x1p63)
        return truce__refuse_value(31109, value, run->error,
                                   "the position of %s must be from %d to %d",
                                   truce__expression_name(node), DIGITS_MIN, DIGITS_MAX);
    if (!truce__number_to_int64(value, &wide))
        return truce__refuse_value(51082, value, run->error,
                                   "the position of %s must be an integer",
                                   truce__expression_name(node));
    if (wide < DIGITS_MIN || wide > DIGITS_MAX)
        return truce__refuse(51083, run->error,
                             "the position of %s must be from %d to %d, not %" PRId64,
                             truce__expression_name(node), DIGITS_MIN, DIGITS_MAX, wide);
    *digits = (int)wide;
    return TRUCE_OK;
}

static truce_status round_integer(const struct expression_node *node, struct evaluation *run,
                                  struct value number, int digits, struct value *result)
{
    _IDEC_flags flags = 0;
    decimal rounded =
        math_quantize(bid128_from_int64(truce__value_integer(number)), digits, node->extra);
    int64_t whole = bid128_to_int64_int(rounded, &flags);

    if (flags & BID_INVALID_EXCEPTION)
        return truce__refuse(51080, run->error, "the result of %s is not a 64-bit integer",
                             truce__expression_name(node));
    *result = math_integer(run, whole, number.type);
    return TRUCE_OK;
}

static double round_double(double number, int digits, const struct rounding *rule)
{
    _IDEC_flags flags = 0;
    decimal exact;

    if (!isfinite(number))
        return number;
    if (digits == 0)
        return rule->of_double(number);
    exact = binary64_to_bid128(number, BID_ROUNDING_TO_NEAREST, &flags);
    return bid128_to_binary64(math_quantize(exact, digits, rule), BID_ROUNDING_TO_NEAREST, &flags);
}

/* Applies $round or $trunc. Integers stay integers. */
static truce_status math_apply_round(const struct expression_node *node, struct evaluation *run,
                                     const struct value *operands, struct value *result)
{
    int digits = 0;
    truce_status status = TRUCE_OK;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[0]))
        return math_refuse_type(node, run, 51081, operands[0]);
    if (node->count > 1 && truce__value_is_nullish(operands[1]))
        return truce__evaluation_null(result);
    if (node->count > 1)
        status = read_digits(node, run, operands[1], &digits);
    if (status)
        return status;
    if (operands[0].type == BSON_TYPE_DECIMAL128)
        *result =
            math_decimal_value(run, math_quantize(math_decimal(operands[0]), digits, node->extra));
    else if (operands[0].type == BSON_TYPE_DOUBLE)
        *result = truce__value_from_double(
            run->arena, round_double(truce__value_double(operands[0]), digits, node->extra));
    else if (digits >= 0)
        *result = operands[0];
    else
        return round_integer(node, run, operands[0], digits, result);
    return TRUCE_OK;
}

/* -- $log, $pow ------------------------------------------------------------------------------- */

static bool is_one(struct value number)
{
    int64_t whole;

    return truce__number_to_int64(number, &whole) && whole == 1;
}

static decimal decimal_log(decimal number, decimal base)
{
    _IDEC_flags flags = 0, ignored = 0;

    if (bid128_quiet_equal(base, bid128_from_int64(2), &ignored))
        return bid128_log2(number, BID_ROUNDING_TO_NEAREST, &flags);
    if (bid128_quiet_equal(base, bid128_from_int64(10), &ignored))
        return bid128_log10(number, BID_ROUNDING_TO_NEAREST, &flags);
    return bid128_div(bid128_log(number, BID_ROUNDING_TO_NEAREST, &flags),
                      bid128_log(base, BID_ROUNDING_TO_NEAREST, &flags), BID_ROUNDING_TO_NEAREST,
                      &flags);
}

/* Applies $log, with any base. */
static truce_status apply_log(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    if (truce__value_is_nullish(operands[0]) || truce__value_is_nullish(operands[1]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[0]))
        return math_refuse_type(node, run, 28756, operands[0]);
    if (!truce__value_is_number(operands[1]))
        return math_refuse_type(node, run, 28757, operands[1]);
    if (!is_positive(operands[0]) && !truce__number_is_nan(operands[0]))
        return truce__refuse_value(28758, operands[0], run->error,
                                   "the operand of $log must be positive");
    if ((!is_positive(operands[1]) && !truce__number_is_nan(operands[1])) || is_one(operands[1]))
        return truce__refuse_value(28759, operands[1], run->error,
                                   "the base of $log must be positive and not 1");
    if (operands[0].type == BSON_TYPE_DECIMAL128 || operands[1].type == BSON_TYPE_DECIMAL128) {
        *result = math_decimal_value(
            run, decimal_log(math_decimal(operands[0]), math_decimal(operands[1])));
        return TRUCE_OK;
    }
    *result = truce__value_from_double(run->arena, log(truce__number_to_double(operands[0])) /
                                                       log(truce__number_to_double(operands[1])));
    return TRUCE_OK;
}

/* Returns false if the result is not an int64. */
static bool integer_power(int64_t base, int64_t exponent, int64_t *result)
{
    *result = 1;
    if (base == 1)
        return true;
    if (base == -1) {
        *result = exponent % 2 ? -1 : 1;
        return true;
    }
    if (exponent < 0)
        return false;
    if (base == 0) {
        *result = exponent == 0;
        return true;
    }
    for (int64_t i = 0; i < exponent; i++) {
        if (__builtin_mul_overflow(*result, base, result))
            return false;
    }
    return true;
}

/* Computes with 34 digits, including trailing zeros, as MongoDB does. */
static decimal decimal_power(decimal base, decimal exponent)
{
    _IDEC_flags flags = 0;
    decimal result = bid128_pow(base, exponent, BID_ROUNDING_TO_NEAREST, &flags);
    decimal zero = bid128_scalbn(bid128_from_int64(0), -6176, BID_ROUNDING_TO_NEAREST, &flags);

    return bid128_add(result, zero, BID_ROUNDING_TO_NEAREST, &flags);
}

static struct value math_power(struct evaluation *run, struct value base, struct value exponent)
{
    int64_t whole;
    uint8_t type;

    if (base.type == BSON_TYPE_DECIMAL128 || exponent.type == BSON_TYPE_DECIMAL128)
        return math_decimal_value(run, decimal_power(math_decimal(base), math_decimal(exponent)));
    if (truce__value_is_integer(base) && truce__value_is_integer(exponent) &&
        integer_power(truce__value_integer(base), truce__value_integer(exponent), &whole)) {
        type = base.type == BSON_TYPE_INT64 ? base.type : exponent.type;
        return math_integer(run, whole, type);
    }
    return truce__value_from_double(
        run->arena, pow(truce__number_to_double(base), truce__number_to_double(exponent)));
}

static truce_status apply_pow(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    if (truce__value_is_nullish(operands[0]) || truce__value_is_nullish(operands[1]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[0]))
        return math_refuse_type(node, run, 28762, operands[0]);
    if (!truce__value_is_number(operands[1]))
        return math_refuse_type(node, run, 28763, operands[1]);
    if (math_is_zero(operands[0]) && !is_not_negative(operands[1]) &&
        !truce__number_is_nan(operands[1]))
        return truce__refuse(28764, run->error, "$pow of 0 with a negative exponent");
    *result = math_power(run, operands[0], operands[1]);
    return TRUCE_OK;
}

static truce_status compile_sigmoid(struct expression_compiler *compiler,
                                    const struct expression_operator *operator,
                                    struct value argument, struct expression_node **node)
{
    truce_status status;

    *node = truce__expression_node(compiler, operator, 1);
    status = truce__expression_compile(compiler, argument, &(*node)->operands[0]);
    return status ? status : truce__expression_fold(compiler, node);
}

/* ---- trigonometry ---------------------------------------------------------------------------- */

/* Trigonometry in radians. Decimals stay decimals; all other numbers become doubles. */

typedef decimal decimal_function(decimal number, _IDEC_round rounding, _IDEC_flags *flags);

struct angle_function {
    double (*of_double)(double);
    decimal_function *of_decimal;
    /* The bounds of the domain. */
    double least, greatest;
    /* The ends are not in the domain. */
    bool open;
};

static bool trig_is_inside(const struct angle_function *function, struct value number)
{
    double real = truce__number_to_double(number);

    if (truce__number_is_nan(number))
        return true;
    if (function->open)
        return real > function->least && real < function->greatest;
    return real >= function->least && real <= function->greatest;
}

/* Applies an operator that is a `struct angle_function`. */
static truce_status trig_apply_function(const struct expression_node *node, struct evaluation *run,
                                        const struct value *operands, struct value *result)
{
    const struct angle_function *function = node->extra;
    _IDEC_flags flags = 0;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[0]))
        return truce__refuse(28765, run->error, "%s takes a number, not %s",
                             truce__expression_name(node), truce__type_name(operands[0].type));
    if (!trig_is_inside(function, operands[0]))
        return truce__refuse_value(50989, operands[0], run->error,
                                   "the operand of %s must be in %c%g, %g%c",
                                   truce__expression_name(node), function->open ? '(' : '[',
                                   function->least, function->greatest, function->open ? ')' : ']');
    if (operands[0].type == BSON_TYPE_DECIMAL128)
        *result = math_decimal_value(
            run, function->of_decimal(math_decimal(operands[0]), BID_ROUNDING_TO_NEAREST, &flags));
    else
        *result = truce__value_from_double(
            run->arena, function->of_double(truce__number_to_double(operands[0])));
    return TRUCE_OK;
}

static const struct angle_function sine = {sin, bid128_sin, -INFINITY, INFINITY, true};
static const struct angle_function cosine = {cos, bid128_cos, -INFINITY, INFINITY, true};
static const struct angle_function tangent = {tan, bid128_tan, -INFINITY, INFINITY, true};
static const struct angle_function arcsine = {asin, bid128_asin, -1, 1};
static const struct angle_function arccosine = {acos, bid128_acos, -1, 1};
static const struct angle_function arctangent = {atan, bid128_atan, -INFINITY, INFINITY};
static const struct angle_function hyperbolic_sine = {sinh, bid128_sinh, -INFINITY, INFINITY};
static const struct angle_function hyperbolic_cosine = {cosh, bid128_cosh, -INFINITY, INFINITY};
static const struct angle_function hyperbolic_tangent = {tanh, bid128_tanh, -INFINITY, INFINITY};
static const struct angle_function area_sine = {asinh, bid128_asinh, -INFINITY, INFINITY};
static const struct angle_function area_cosine = {acosh, bid128_acosh, 1, INFINITY};
static const struct angle_function area_tangent = {atanh, bid128_atanh, -1, 1};

/* Applies $atan2. */
static truce_status apply_atan2(const struct expression_node *node, struct evaluation *run,
                                const struct value *operands, struct value *result)
{
    _IDEC_flags flags = 0;

    if (truce__value_is_nullish(operands[0]) || truce__value_is_nullish(operands[1]))
        return truce__evaluation_null(result);
    for (uint32_t i = 0; i < 2; i++) {
        if (!truce__value_is_number(operands[i]))
            return truce__refuse(51044 + i, run->error, "$atan2 takes numbers, not %s",
                                 truce__type_name(operands[i].type));
    }
    if (operands[0].type == BSON_TYPE_DECIMAL128 || operands[1].type == BSON_TYPE_DECIMAL128)
        *result = math_decimal_value(run, bid128_atan2(math_decimal(operands[0]),
                                                       math_decimal(operands[1]),
                                                       BID_ROUNDING_TO_NEAREST, &flags));
    else
        *result = truce__value_from_double(run->arena, atan2(truce__number_to_double(operands[0]),
                                                             truce__number_to_double(operands[1])));
    return TRUCE_OK;
}

/* -- degrees ---------------------------------------------------------------------------------- */

static decimal decimal_factor(const char *digits)
{
    char text[40];
    _IDEC_flags flags = 0;

    /* The library needs a writable string. */
    strcpy(text, digits);
    return bid128_from_string(text, BID_ROUNDING_TO_NEAREST, &flags);
}

static decimal radians_decimal(decimal degrees, _IDEC_round rounding, _IDEC_flags *flags)
{
    return bid128_mul(degrees, decimal_factor("0.01745329251994329576923690768488613"), rounding,
                      flags);
}

static decimal degrees_decimal(decimal radians, _IDEC_round rounding, _IDEC_flags *flags)
{
    return bid128_mul(radians, decimal_factor("57.29577951308232087679815481410517"), rounding,
                      flags);
}

static double radians_double(double degrees)
{
    return degrees * (M_PI / 180);
}

static double degrees_double(double radians)
{
    return radians * (180 / M_PI);
}

static const struct angle_function to_radians = {radians_double, radians_decimal, -INFINITY,
                                                 INFINITY};
static const struct angle_function to_degrees = {degrees_double, degrees_decimal, -INFINITY,
                                                 INFINITY};

#define FUNCTION(name, function)                                                                   \
    {                                                                                              \
        name, 1, 1, .apply = trig_apply_function, .extra = function                                \
    }

/* ---- bits, timestamps, random numbers -------------------------------------------------------- */

static struct value from_bits(struct evaluation *run, int64_t bits, bool is_long)
{
    return is_long ? truce__value_from_int64(run->arena, bits)
                   : truce__value_from_int32(run->arena, (int32_t)bits);
}

/* -- $bitAnd, $bitOr, $bitXor, $bitNot --------------------------------------------------------- */

static int64_t bits_combine(char operation, int64_t a, int64_t b)
{
    switch (operation) {
    case '&':
        return a & b;
    case '|':
        return a | b;
    default:
        return a ^ b;
    }
}

static truce_status bits_refuse_type(const struct expression_node *node, struct evaluation *run,
                                     struct value operand)
{
    return truce__refuse(CODE_TYPE_MISMATCH, run->error, "%s takes ints and longs, not %s",
                         truce__expression_name(node), truce__type_name(operand.type));
}

/* Evaluates $bitAnd, $bitOr, or $bitXor. All operands are evaluated and checked, even after a null
 * one. */
static truce_status evaluate_bits(const struct expression_node *node, struct evaluation *run,
                                  struct value *result)
{
    char operation = *(const char *)node->extra;
    int64_t bits = operation == '&' ? -1 : 0;
    bool is_long = false, null = false;

    for (uint32_t i = 0; i < node->count; i++) {
        struct value operand;
        truce_status status = truce__expression_run(node->operands[i], run, &operand);
        if (status)
            return status;
        if (truce__value_is_nullish(operand)) {
            null = true;
            continue;
        }
        if (!truce__value_is_integer(operand))
            return bits_refuse_type(node, run, operand);
        is_long = is_long || operand.type == BSON_TYPE_INT64;
        bits = bits_combine(operation, bits, truce__value_integer(operand));
    }
    if (null)
        return truce__evaluation_null(result);
    *result = from_bits(run, bits, is_long);
    return TRUCE_OK;
}

static truce_status bits_apply_not(const struct expression_node *node, struct evaluation *run,
                                   const struct value *operands, struct value *result)
{
    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[0]))
        return truce__refuse(28765, run->error, "$bitNot takes a number, not %s",
                             truce__type_name(operands[0].type));
    if (!truce__value_is_integer(operands[0]))
        return bits_refuse_type(node, run, operands[0]);
    *result =
        from_bits(run, ~truce__value_integer(operands[0]), operands[0].type == BSON_TYPE_INT64);
    return TRUCE_OK;
}

/* -- timestamps ------------------------------------------------------------------------------- */

static truce_status take_half(const struct expression_node *node, struct evaluation *run,
                              struct value operand, uint32_t code, int shift, struct value *result)
{
    uint64_t raw;

    if (truce__value_is_nullish(operand))
        return truce__evaluation_null(result);
    if (operand.type != BSON_TYPE_TIMESTAMP)
        return truce__refuse(code, run->error, "%s takes a timestamp, not %s",
                             truce__expression_name(node), truce__type_name(operand.type));
    raw = (uint64_t)truce__value_int64(operand);
    *result = truce__value_from_int64(run->arena, (int64_t)(uint32_t)(raw >> shift));
    return TRUCE_OK;
}

static truce_status apply_second(const struct expression_node *node, struct evaluation *run,
                                 const struct value *operands, struct value *result)
{
    return take_half(node, run, operands[0], 5687301, 32, result);
}

static truce_status apply_increment(const struct expression_node *node, struct evaluation *run,
                                    const struct value *operands, struct value *result)
{
    return take_half(node, run, operands[0], 5687302, 0, result);
}

/* -- $rand ------------------------------------------------------------------------------------ */

static truce_status evaluate_rand(const struct expression_node *node, struct evaluation *run,
                                  struct value *result)
{
    if (!run->context->random)
        return truce__refuse(3040500, run->error, "$rand is not allowed here");
    *result = truce__value_from_double(run->arena, truce__random_unit(run->context->random));
    return TRUCE_OK;
}

static truce_status compile_rand(struct expression_compiler *compiler,
                                 const struct expression_operator *operator, struct value argument,
                                 struct expression_node **node)
{
    if (!truce__value_is_container(argument))
        return truce__refuse_value(10065, argument, compiler->error,
                                   "$rand takes {} as its argument");
    if (truce__array_count(argument) > 0)
        return truce__refuse(3040501, compiler->error, "$rand takes no arguments, and has %u",
                             truce__array_count(argument));
    *node = truce__expression_node(compiler, operator, 0);
    return TRUCE_OK;
}

/* ---- accumulators over operands -------------------------------------------------------------- */

/*
 * Accumulators as expressions: $sum, $avg, $min, $max, $stdDevPop, $stdDevSamp over their operands.
 * A single operand that is an array is replaced by its elements. Values that are not numbers are
 * ignored; $min and $max ignore only null and missing values.
 */

struct accumulation {
    struct sum sum;
    struct deviation deviation;
    /* The least or greatest value so far, or missing. */
    struct value extreme;
};

typedef void add_function(struct accumulation *accumulation, struct value value);
typedef struct value finish_function(const struct accumulation *accumulation,
                                     struct evaluation *run);

struct accumulator {
    add_function *add;
    finish_function *finish;
};

/* Evaluates an accumulator over its operands. */
static truce_status evaluate_accumulator(const struct expression_node *node, struct evaluation *run,
                                         struct value *result)
{
    const struct accumulator *accumulator = node->extra;
    struct accumulation accumulation = {.extreme = truce__value_missing()};

    truce__sum_begin(&accumulation.sum);
    for (uint32_t i = 0; i < node->count; i++) {
        struct value operand;
        truce_status status = truce__expression_run(node->operands[i], run, &operand);
        if (status)
            return status;
        if (node->count == 1 && operand.type == BSON_TYPE_ARRAY) {
            struct fields fields = truce__fields(operand);
            while (truce__fields_next(&fields))
                accumulator->add(&accumulation, fields.value);
        } else {
            accumulator->add(&accumulation, operand);
        }
    }
    *result = accumulator->finish(&accumulation, run);
    return TRUCE_OK;
}

static void accumulate_add_number(struct accumulation *accumulation, struct value value)
{
    if (truce__value_is_number(value))
        truce__sum_add(&accumulation->sum, value);
}

static struct value finish_sum(const struct accumulation *accumulation, struct evaluation *run)
{
    return truce__sum_value(&accumulation->sum, run->arena);
}

static struct value finish_average(const struct accumulation *accumulation, struct evaluation *run)
{
    return truce__sum_average(&accumulation->sum, run->arena);
}

static void add_least(struct accumulation *accumulation, struct value value)
{
    if (truce__value_is_nullish(value))
        return;
    if (accumulation->extreme.type == VALUE_MISSING ||
        truce__value_compare(value, accumulation->extreme) < 0)
        accumulation->extreme = value;
}

static void add_greatest(struct accumulation *accumulation, struct value value)
{
    if (truce__value_is_nullish(value))
        return;
    if (accumulation->extreme.type == VALUE_MISSING ||
        truce__value_compare(value, accumulation->extreme) > 0)
        accumulation->extreme = value;
}

static struct value finish_extreme(const struct accumulation *accumulation, struct evaluation *run)
{
    if (accumulation->extreme.type == VALUE_MISSING)
        return truce__value_null();
    return accumulation->extreme;
}

static void add_deviation(struct accumulation *accumulation, struct value value)
{
    if (truce__value_is_number(value))
        truce__deviation_add(&accumulation->deviation, truce__number_to_double(value));
}

static struct value finish_population(const struct accumulation *accumulation,
                                      struct evaluation *run)
{
    return truce__deviation_value(&accumulation->deviation, false, run->arena);
}

static struct value finish_sample(const struct accumulation *accumulation, struct evaluation *run)
{
    return truce__deviation_value(&accumulation->deviation, true, run->arena);
}

static const struct accumulator sum = {accumulate_add_number, finish_sum};
static const struct accumulator average = {accumulate_add_number, finish_average};
static const struct accumulator least = {add_least, finish_extreme};
static const struct accumulator greatest = {add_greatest, finish_extreme};
static const struct accumulator population = {add_deviation, finish_population};
static const struct accumulator sample = {add_deviation, finish_sample};

#define ACCUMULATOR(name, one)                                                                     \
    {                                                                                              \
        name, 0, EXPRESSION_ANY, .evaluate = evaluate_accumulator, .extra = one                    \
    }

/* -- the table --------------------------------------------------------------------------------- */

const struct expression_operator truce__expressions_math[] = {
    {"$add", 0, EXPRESSION_ANY, .evaluate = evaluate_add},
    {"$subtract", 2, 2, .apply = apply_subtract},
    {"$multiply", 0, EXPRESSION_ANY, .evaluate = evaluate_multiply},
    {"$divide", 2, 2, .apply = apply_divide},
    {"$mod", 2, 2, .apply = apply_mod},
    {"$abs", 1, 1, .apply = apply_abs},
    {"$ceil", 1, 1, .apply = math_apply_function, .extra = &ceil_function},
    {"$floor", 1, 1, .apply = math_apply_function, .extra = &floor_function},
    {"$exp", 1, 1, .apply = math_apply_function, .extra = &exp_function},
    {"$sigmoid", 1, 1, .apply = math_apply_function, .compile = compile_sigmoid,
     .extra = &sigmoid_function},
    {"$ln", 1, 1, .apply = math_apply_function, .extra = &ln_function},
    {"$log10", 1, 1, .apply = math_apply_function, .extra = &log10_function},
    {"$sqrt", 1, 1, .apply = math_apply_function, .extra = &sqrt_function},
    {"$round", 1, 2, EXPRESSION_RANGED, .apply = math_apply_round, .extra = &round_rule},
    {"$trunc", 1, 2, EXPRESSION_RANGED, .apply = math_apply_round, .extra = &trunc_rule},
    {"$log", 2, 2, .apply = apply_log},
    {"$pow", 2, 2, .apply = apply_pow},
    FUNCTION("$sin", &sine),
    FUNCTION("$cos", &cosine),
    FUNCTION("$tan", &tangent),
    FUNCTION("$asin", &arcsine),
    FUNCTION("$acos", &arccosine),
    FUNCTION("$atan", &arctangent),
    FUNCTION("$sinh", &hyperbolic_sine),
    FUNCTION("$cosh", &hyperbolic_cosine),
    FUNCTION("$tanh", &hyperbolic_tangent),
    FUNCTION("$asinh", &area_sine),
    FUNCTION("$acosh", &area_cosine),
    FUNCTION("$atanh", &area_tangent),
    FUNCTION("$degreesToRadians", &to_radians),
    FUNCTION("$radiansToDegrees", &to_degrees),
    {"$atan2", 2, 2, .apply = apply_atan2},
    {"$bitAnd", 0, EXPRESSION_ANY, .evaluate = evaluate_bits, .extra = "&"},
    {"$bitOr", 0, EXPRESSION_ANY, .evaluate = evaluate_bits, .extra = "|"},
    {"$bitXor", 0, EXPRESSION_ANY, .evaluate = evaluate_bits, .extra = "^"},
    {"$bitNot", 1, 1, .apply = bits_apply_not},
    {"$tsSecond", 1, 1, .apply = apply_second},
    {"$tsIncrement", 1, 1, .apply = apply_increment},
    {"$rand", .evaluate = evaluate_rand, .compile = compile_rand},
    ACCUMULATOR("$sum", &sum),
    ACCUMULATOR("$avg", &average),
    ACCUMULATOR("$min", &least),
    ACCUMULATOR("$max", &greatest),
    ACCUMULATOR("$stdDevPop", &population),
    ACCUMULATOR("$stdDevSamp", &sample),
    {NULL},
};
