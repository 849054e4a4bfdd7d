#include <math.h>

#include "query/expression/expression_number.h"

/* Functions of numbers: rounding, roots, powers, and logarithms. Null stays null. Integers become
 * doubles if the result is usually not an integer; decimals stay decimals. */

static truce_status math_refuse_type(const struct expression_node *node, struct evaluation *run,
                                     uint32_t code, struct value operand)
{
    return truce__refuse(code, run->error, "%s takes a number, not %s",
                         truce__expression_name(node), truce__type_name(operand.type));
}

/* -- one number to one number ----------------------------------------------------------------- */

/* The differences between $exp and similar operators. Integers are converted to doubles. */
struct function {
    double (*of_double)(double);
    decimal (*of_decimal)(decimal number, _IDEC_round rounding, _IDEC_flags *flags);
    /* the result for an integer is the integer itself */
    bool keeps_integers;
    bool (*allows)(struct value number);
    /* the code of the error for a number outside the domain */
    uint32_t code;
    const char *must;
    /* An array is the operand itself, not a list of operands. A wrong type is CODE_TYPE_MISMATCH
     * then. */
    bool takes_array;
};

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
        return truce__refuse(function->code, run->error, "the operand of %s must be %s",
                             truce__expression_name(node), function->must);
    if (operands[0].type == BSON_TYPE_DECIMAL128)
        *result = truce__evaluation_decimal(
            run, function->of_decimal(truce__number_as_decimal(operands[0]),
                                      BID_ROUNDING_TO_NEAREST, &flags));
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
        return !bid128_isSigned(truce__number_as_decimal(number)) &&
               !bid128_isZero(truce__number_as_decimal(number));
    return truce__number_to_double(number) > 0;
}

static bool is_not_negative(struct value number)
{
    if (number.type == BSON_TYPE_DECIMAL128)
        return !bid128_isSigned(truce__number_as_decimal(number)) ||
               bid128_isZero(truce__number_as_decimal(number));
    return truce__number_to_double(number) >= 0;
}

/* Like MongoDB, quantizes to exactly zero places: NaN if the number has too many digits or is
 * infinite. */
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

static truce_status apply_abs(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    int64_t number;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[0]))
        return math_refuse_type(node, run, 28765, operands[0]);
    if (operands[0].type == BSON_TYPE_DECIMAL128) {
        *result = truce__evaluation_decimal(run, bid128_abs(truce__number_as_decimal(operands[0])));
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
    *result = truce__evaluation_integer(run, number < 0 ? -number : number, operands[0].type);
    return TRUCE_OK;
}

/* -- $round, $trunc --------------------------------------------------------------------------- */

#define PLACES_MIN (-20)
#define PLACES_MAX 100

struct rounding {
    _IDEC_round mode;
    double (*of_double)(double);
};

static const struct rounding round_rule = {BID_ROUNDING_TO_NEAREST, nearbyint};
static const struct rounding trunc_rule = {BID_ROUNDING_TO_ZERO, trunc};

/* Returns the decimal with its last digit at 10^-places, or the decimal itself if that needs more
 * digits than exist. */
static decimal math_quantize(decimal number, int places, const struct rounding *rule)
{
    _IDEC_flags flags = 0;
    decimal quantum = bid128_scalbn(bid128_from_int64(1), -places, BID_ROUNDING_TO_NEAREST, &flags);
    decimal result;

    if (bid128_isInf(number) || bid128_isNaN(number))
        return number;
    flags = 0;
    result = bid128_quantize(number, quantum, rule->mode, &flags);
    return flags & BID_INVALID_EXCEPTION ? number : result;
}

static truce_status read_places(const struct expression_node *node, struct evaluation *run,
                                struct value value, int *places)
{
    int64_t wide;

    if (!truce__value_is_number(value))
        return truce__refuse(16004, run->error, "the position of %s must be a number, not %s",
                             truce__expression_name(node), truce__type_name(value.type));
    if (truce__number_is_nan(value) || fabs(truce__number_to_double(value)) >= 0x1p63)
        return truce__refuse(31109, run->error, "the position of %s is out of range",
                             truce__expression_name(node));
    if (!truce__number_to_int64(value, &wide))
        return truce__refuse(51082, run->error, "the position of %s must be an integer",
                             truce__expression_name(node));
    if (wide < PLACES_MIN || wide > PLACES_MAX)
        return truce__refuse(51083, run->error,
                             "the position of %s must be from %d to %d, not %" PRId64,
                             truce__expression_name(node), PLACES_MIN, PLACES_MAX, wide);
    *places = (int)wide;
    return TRUCE_OK;
}

static truce_status round_integer(const struct expression_node *node, struct evaluation *run,
                                  struct value number, int places, struct value *result)
{
    _IDEC_flags flags = 0;
    decimal rounded =
        math_quantize(bid128_from_int64(truce__value_integer(number)), places, node->extra);
    int64_t whole = bid128_to_int64_int(rounded, &flags);

    if (flags & BID_INVALID_EXCEPTION)
        return truce__refuse(51080, run->error, "the result of %s is not a 64-bit integer",
                             truce__expression_name(node));
    *result = truce__evaluation_integer(run, whole, number.type);
    return TRUCE_OK;
}

static double round_double(double number, int places, const struct rounding *rule)
{
    _IDEC_flags flags = 0;
    decimal exact;

    if (!isfinite(number))
        return number;
    if (places == 0)
        return rule->of_double(number);
    exact = binary64_to_bid128(number, BID_ROUNDING_TO_NEAREST, &flags);
    return bid128_to_binary64(math_quantize(exact, places, rule), BID_ROUNDING_TO_NEAREST, &flags);
}

static truce_status math_apply_round(const struct expression_node *node, struct evaluation *run,
                                     const struct value *operands, struct value *result)
{
    int places = 0;
    truce_status status = TRUCE_OK;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[0]))
        return math_refuse_type(node, run, 51081, operands[0]);
    if (node->count > 1 && truce__value_is_nullish(operands[1]))
        return truce__evaluation_null(result);
    if (node->count > 1)
        status = read_places(node, run, operands[1], &places);
    if (status)
        return status;
    if (operands[0].type == BSON_TYPE_DECIMAL128)
        *result = truce__evaluation_decimal(
            run, math_quantize(truce__number_as_decimal(operands[0]), places, node->extra));
    else if (operands[0].type == BSON_TYPE_DOUBLE)
        *result = truce__value_from_double(
            run->arena, round_double(truce__value_double(operands[0]), places, node->extra));
    else if (places >= 0)
        *result = operands[0];
    else
        return round_integer(node, run, operands[0], places, result);
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
        return truce__refuse(28758, run->error, "the operand of $log must be positive");
    if ((!is_positive(operands[1]) && !truce__number_is_nan(operands[1])) || is_one(operands[1]))
        return truce__refuse(28759, run->error, "the base of $log must be positive and not 1");
    if (operands[0].type == BSON_TYPE_DECIMAL128 || operands[1].type == BSON_TYPE_DECIMAL128) {
        *result =
            truce__evaluation_decimal(run, decimal_log(truce__number_as_decimal(operands[0]),
                                                       truce__number_as_decimal(operands[1])));
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
        return truce__evaluation_decimal(
            run, decimal_power(truce__number_as_decimal(base), truce__number_as_decimal(exponent)));
    if (truce__value_is_integer(base) && truce__value_is_integer(exponent) &&
        integer_power(truce__value_integer(base), truce__value_integer(exponent), &whole)) {
        type = base.type == BSON_TYPE_INT64 ? base.type : exponent.type;
        return truce__evaluation_integer(run, whole, type);
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
    if (truce__number_is_zero(operands[0]) && !is_not_negative(operands[1]) &&
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

const struct expression_operator truce__expressions_math[] = {
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
    {NULL},
};
