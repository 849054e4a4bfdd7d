#include <math.h>

#include "query/expression/expression_number.h"

/* Trigonometry in radians. Decimals stay decimals; all other numbers become doubles. */

typedef decimal decimal_function(decimal number, _IDEC_round rounding, _IDEC_flags *flags);

struct function {
    double (*of_double)(double);
    decimal_function *of_decimal;
    /* the domain */
    double least, greatest;
    /* the ends are not in the domain */
    bool open;
};

static bool trig_is_inside(const struct function *function, struct value number)
{
    double real = truce__number_to_double(number);

    if (truce__number_is_nan(number))
        return true;
    if (function->open)
        return real > function->least && real < function->greatest;
    return real >= function->least && real <= function->greatest;
}

static truce_status trig_apply_function(const struct expression_node *node, struct evaluation *run,
                                        const struct value *operands, struct value *result)
{
    const struct function *function = node->extra;
    _IDEC_flags flags = 0;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[0]))
        return truce__refuse(28765, run->error, "%s takes a number, not %s",
                             truce__expression_name(node), truce__type_name(operands[0].type));
    if (!trig_is_inside(function, operands[0]))
        return truce__refuse(50989, run->error, "the operand of %s must be in %c%g, %g%c",
                             truce__expression_name(node), function->open ? '(' : '[',
                             function->least, function->greatest, function->open ? ')' : ']');
    if (operands[0].type == BSON_TYPE_DECIMAL128)
        *result = truce__evaluation_decimal(
            run, function->of_decimal(truce__number_as_decimal(operands[0]),
                                      BID_ROUNDING_TO_NEAREST, &flags));
    else
        *result = truce__value_from_double(
            run->arena, function->of_double(truce__number_to_double(operands[0])));
    return TRUCE_OK;
}

static const struct function sine = {sin, bid128_sin, -INFINITY, INFINITY, true};
static const struct function cosine = {cos, bid128_cos, -INFINITY, INFINITY, true};
static const struct function tangent = {tan, bid128_tan, -INFINITY, INFINITY, true};
static const struct function arcsine = {asin, bid128_asin, -1, 1};
static const struct function arccosine = {acos, bid128_acos, -1, 1};
static const struct function arctangent = {atan, bid128_atan, -INFINITY, INFINITY};
static const struct function hyperbolic_sine = {sinh, bid128_sinh, -INFINITY, INFINITY};
static const struct function hyperbolic_cosine = {cosh, bid128_cosh, -INFINITY, INFINITY};
static const struct function hyperbolic_tangent = {tanh, bid128_tanh, -INFINITY, INFINITY};
static const struct function area_sine = {asinh, bid128_asinh, -INFINITY, INFINITY};
static const struct function area_cosine = {acosh, bid128_acosh, 1, INFINITY};
static const struct function area_tangent = {atanh, bid128_atanh, -1, 1};

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
        *result = truce__evaluation_decimal(run, bid128_atan2(truce__number_as_decimal(operands[0]),
                                                              truce__number_as_decimal(operands[1]),
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

    /* the library needs a writable string */
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

static const struct function to_radians = {radians_double, radians_decimal, -INFINITY, INFINITY};
static const struct function to_degrees = {degrees_double, degrees_decimal, -INFINITY, INFINITY};

#define FUNCTION(name, function)                                                                   \
    {                                                                                              \
        name, 1, 1, .apply = trig_apply_function, .extra = function                                \
    }

const struct expression_operator truce__expressions_trig[] = {
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
    {NULL},
};
