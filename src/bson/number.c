/*
 * Numbers: exact comparison of int32, int64, double, and decimal128, and arithmetic with promotion.
 *
 * No comparison loses precision. An int64 is compared with the integral part of a double, which is
 * an int64 if it is in range. To compare a double with a decimal, the double is rounded toward zero
 * to 34 digits. Decimals have at most 34 digits, so none lies strictly between the double and its
 * rounded form. If the decimal equals the rounded form, the inexact flag decides.
 */
#include "bson/number.h"

#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/assert.h"
#include "bson/decimal.h"

/* ---- text ------------------------------------------------------------------------------------ */

/* The C library uses the decimal point of the process's locale. This file therefore uses its own
 * "C" locale, which lives as long as the process. */

/* The maximum length of the text of a number. */
#define DIGITS_MAX 400

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t plain;

static void make_locale(void)
{
    plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    truce_assert(plain != (locale_t)0);
}

const char *truce__double_show(double number, char text[NUMBER_TEXT_MAX])
{
    locale_t before;

    if (isnan(number))
        return strcpy(text, "NaN");
    if (isinf(number))
        return strcpy(text, number < 0 ? "-Infinity" : "Infinity");
    pthread_once(&once, make_locale);
    before = uselocale(plain);
    /* A double below DBL_MIN may need fewer digits than 15. */
    for (int digits = fabs(number) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, NUMBER_TEXT_MAX, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    uselocale(before);
    return text;
}

const char *truce__number_show(struct value number, char text[NUMBER_TEXT_MAX])
{
    bson_decimal128_t wide;

    switch (number.type) {
    case BSON_TYPE_INT32:
        snprintf(text, NUMBER_TEXT_MAX, "%d", truce__value_int32(number));
        return text;
    case BSON_TYPE_INT64:
        snprintf(text, NUMBER_TEXT_MAX, "%" PRId64, truce__value_int64(number));
        return text;
    case BSON_TYPE_DOUBLE:
        return truce__double_show(truce__value_double(number), text);
    default:
        truce_assert(number.type == BSON_TYPE_DECIMAL128);
        wide = truce__value_decimal(number);
        bson_decimal128_to_string(&wide, text);
        return text;
    }
}

static bool text_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool truce__int64_read(const char *text, size_t length, int64_t *number)
{
    size_t sign = length > 0 && (*text == '+' || *text == '-');
    bool negative = sign && *text == '-';

    *number = 0;
    for (size_t i = sign; i < length; i++) {
        int digit = text[i] - '0';
        if (!text_is_digit(text[i]) || __builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, negative ? -digit : digit, number))
            return false;
    }
    return length > sign;
}

static size_t text_skip_digits(const char *text, size_t at)
{
    while (text_is_digit(text[at]))
        at++;
    return at;
}

/* Returns whether the NUL-terminated text is [+-] digits [. digits] [e [+-] digits], NaN, or
 * infinity. */
static bool text_is_number(const char *text)
{
    size_t at = *text == '+' || *text == '-', first, digits;

    if (!strcasecmp(text + at, "nan") || !strcasecmp(text + at, "inf") ||
        !strcasecmp(text + at, "infinity"))
        return true;
    first = at;
    at = text_skip_digits(text, at);
    digits = at - first;
    if (text[at] == '.') {
        first = ++at;
        at = text_skip_digits(text, at);
        digits += at - first;
    }
    if (digits == 0)
        return false;
    if (text[at] == 'e' || text[at] == 'E') {
        at++;
        at += text[at] == '+' || text[at] == '-';
        first = at;
        at = text_skip_digits(text, at);
        if (at == first)
            return false;
    }
    return text[at] == '\0';
}

/* Copies the number and adds a NUL. Returns false if the text is not a number. */
static bool copy_number(const char *text, size_t length, char copy[DIGITS_MAX + 1])
{
    if (length == 0 || length > DIGITS_MAX || memchr(text, '\0', length))
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return text_is_number(copy);
}

bool truce__double_read(const char *text, size_t length, double *number)
{
    char copy[DIGITS_MAX + 1];

    if (!copy_number(text, length, copy))
        return false;
    pthread_once(&once, make_locale);
    errno = 0;
    *number = strtod_l(copy, NULL, plain);
    return errno != ERANGE;
}

bool truce__decimal_read(const char *text, size_t length, bson_decimal128_t *number)
{
    char copy[DIGITS_MAX + 1];
    _IDEC_flags flags = 0;
    decimal read;

    if (!copy_number(text, length, copy))
        return false;
    read = bid128_from_string(copy, BID_ROUNDING_TO_NEAREST, &flags);
    *number = truce__decimal_to_bson(read);
    return !(flags & (BID_INVALID_EXCEPTION | BID_OVERFLOW_EXCEPTION | BID_UNDERFLOW_EXCEPTION));
}

/* ---- comparison and arithmetic --------------------------------------------------------------- */

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

#define TWO_TO_63   9223372036854775808.0

static decimal decimal_of(struct value number)
{
    return truce__decimal_of_bson(truce__value_decimal(number));
}

bool truce__number_is_nan(struct value number)
{
    if (number.type == BSON_TYPE_DOUBLE)
        return isnan(truce__value_double(number));
    return number.type == BSON_TYPE_DECIMAL128 && bid128_isNaN(decimal_of(number));
}

static int number_compare_doubles(double a, double b)
{
    if (a < b)
        return -1;
    if (a > b)
        return 1;
    if (a == b)
        return 0;
    return (isnan(b) ? 1 : 0) - (isnan(a) ? 1 : 0);
}

static int compare_integer_double(int64_t a, double b)
{
    int64_t whole;

    if (isnan(b) || b < -TWO_TO_63)
        return 1;
    if (b >= TWO_TO_63)
        return -1;
    whole = (int64_t)b;
    if (a != whole)
        return ORDER(a, whole);
    return number_compare_doubles(0, b - (double)whole);
}

static int compare_decimals(decimal a, decimal b)
{
    _IDEC_flags flags = 0;
    int a_nan = bid128_isNaN(a) != 0, b_nan = bid128_isNaN(b) != 0;

    if (a_nan || b_nan)
        return b_nan - a_nan;
    if (bid128_quiet_equal(a, b, &flags))
        return 0;
    return bid128_quiet_less(a, b, &flags) ? -1 : 1;
}

static int compare_double_decimal(double a, decimal b)
{
    _IDEC_flags flags = 0;
    decimal rounded = binary64_to_bid128(a, BID_ROUNDING_TO_ZERO, &flags);
    int order = compare_decimals(rounded, b);

    if (order || !(flags & BID_INEXACT_EXCEPTION))
        return order;
    return a > 0 ? 1 : -1;
}

/* Compares a number with a decimal, `b`. */
static int compare_with_decimal(struct value a, struct value b)
{
    if (a.type == BSON_TYPE_DOUBLE)
        return compare_double_decimal(truce__value_double(a), decimal_of(b));
    if (a.type == BSON_TYPE_DECIMAL128)
        return compare_decimals(decimal_of(a), decimal_of(b));
    return compare_decimals(bid128_from_int64(truce__value_integer(a)), decimal_of(b));
}

int truce__number_compare(struct value a, struct value b)
{
    truce_assert(truce__value_is_number(a) && truce__value_is_number(b));
    if (truce__value_is_integer(a) && truce__value_is_integer(b))
        return ORDER(truce__value_integer(a), truce__value_integer(b));
    if (b.type == BSON_TYPE_DECIMAL128)
        return compare_with_decimal(a, b);
    if (a.type == BSON_TYPE_DECIMAL128)
        return -compare_with_decimal(b, a);
    if (truce__value_is_integer(a))
        return compare_integer_double(truce__value_integer(a), truce__value_double(b));
    if (truce__value_is_integer(b))
        return -compare_integer_double(truce__value_integer(b), truce__value_double(a));
    return number_compare_doubles(truce__value_double(a), truce__value_double(b));
}

static bool truncate_double(double number, int64_t *result, bool *exact)
{
    if (!(number >= -TWO_TO_63 && number < TWO_TO_63))
        return false;
    *result = (int64_t)number;
    *exact = (double)*result == number;
    return true;
}

static bool truncate_decimal(decimal number, int64_t *result, bool *exact)
{
    _IDEC_flags flags = 0;

    *result = bid128_to_int64_xint(number, &flags);
    *exact = !(flags & BID_INEXACT_EXCEPTION);
    return !(flags & BID_INVALID_EXCEPTION);
}

static bool whole_part(struct value number, int64_t *result, bool *exact)
{
    switch (number.type) {
    case BSON_TYPE_DOUBLE:
        return truncate_double(truce__value_double(number), result, exact);
    case BSON_TYPE_DECIMAL128:
        return truncate_decimal(decimal_of(number), result, exact);
    default:
        *result = truce__value_integer(number);
        *exact = true;
        return true;
    }
}

bool truce__number_to_int64(struct value number, int64_t *result)
{
    bool exact = false;

    return whole_part(number, result, &exact) && exact;
}

bool truce__number_truncate(struct value number, int64_t *result)
{
    bool exact;

    return whole_part(number, result, &exact);
}

double truce__number_to_double(struct value number)
{
    _IDEC_flags flags = 0;

    switch (number.type) {
    case BSON_TYPE_DOUBLE:
        return truce__value_double(number);
    case BSON_TYPE_DECIMAL128:
        return bid128_to_binary64(decimal_of(number), BID_ROUNDING_TO_NEAREST, &flags);
    default:
        return (double)truce__value_integer(number);
    }
}

/* Returns the decimal nearest to `number` whose last digit is at 10^exponent. */
static decimal number_quantize(decimal number, int exponent)
{
    _IDEC_flags flags = 0;
    decimal quantum =
        bid128_scalbn(bid128_from_int64(1), exponent, BID_ROUNDING_TO_NEAREST, &flags);

    return bid128_quantize(number, quantum, BID_ROUNDING_TO_NEAREST, &flags);
}

/* Converts a double to a decimal. A double has 15 to 17 significant digits. MongoDB keeps the 15
 * that are always exact, including trailing zeros: 1.5 becomes 1.50000000000000. */
static decimal double_to_decimal(double number)
{
    const int digits = 15;
    const uint64_t above_digits = 1000000000000000;
    _IDEC_flags flags = 0;
    decimal whole = binary64_to_bid128(number, BID_ROUNDING_TO_NEAREST, &flags), result;
    int exponent2, exponent10;

    if (number == 0 || !isfinite(number))
        return whole;
    frexp(number, &exponent2);
    exponent2--;
    exponent10 = exponent2 * 30103 / 100000 - (exponent2 < 0);
    result = number_quantize(whole, exponent10 - digits + 1);
    if (result.w[0] >= above_digits)
        result = number_quantize(whole, exponent10 - digits + 2);
    return result;
}

bson_decimal128_t truce__number_to_decimal(struct value number)
{
    switch (number.type) {
    case BSON_TYPE_DECIMAL128:
        return truce__value_decimal(number);
    case BSON_TYPE_DOUBLE:
        return truce__decimal_to_bson(double_to_decimal(truce__value_double(number)));
    default:
        return truce__decimal_to_bson(bid128_from_int64(truce__value_integer(number)));
    }
}

/* Adds, subtracts, or multiplies as decimals. */
static struct value combine_decimals(enum number_operation operation, struct value a,
                                     struct value b, struct arena *arena)
{
    _IDEC_flags flags = 0;
    decimal left = truce__decimal_of_bson(truce__number_to_decimal(a));
    decimal right = truce__decimal_of_bson(truce__number_to_decimal(b));
    decimal result;

    switch (operation) {
    case NUMBER_ADD:
        result = bid128_add(left, right, BID_ROUNDING_TO_NEAREST, &flags);
        break;
    case NUMBER_SUBTRACT:
        result = bid128_sub(left, right, BID_ROUNDING_TO_NEAREST, &flags);
        break;
    default:
        result = bid128_mul(left, right, BID_ROUNDING_TO_NEAREST, &flags);
        break;
    }
    return truce__value_from_decimal(arena, truce__decimal_to_bson(result));
}

static struct value combine_doubles(enum number_operation operation, struct value a, struct value b,
                                    struct arena *arena)
{
    double left = truce__number_to_double(a), right = truce__number_to_double(b);

    switch (operation) {
    case NUMBER_ADD:
        return truce__value_from_double(arena, left + right);
    case NUMBER_SUBTRACT:
        return truce__value_from_double(arena, left - right);
    default:
        return truce__value_from_double(arena, left * right);
    }
}

static bool combine_integers(enum number_operation operation, int64_t a, int64_t b, int64_t *result)
{
    switch (operation) {
    case NUMBER_ADD:
        return !__builtin_add_overflow(a, b, result);
    case NUMBER_SUBTRACT:
        return !__builtin_sub_overflow(a, b, result);
    default:
        return !__builtin_mul_overflow(a, b, result);
    }
}

struct value truce__number_combine(enum number_operation operation, struct value a, struct value b,
                                   struct arena *arena, bool *overflow)
{
    int64_t result;

    truce_assert(truce__value_is_number(a) && truce__value_is_number(b));
    *overflow = false;
    if (a.type == BSON_TYPE_DECIMAL128 || b.type == BSON_TYPE_DECIMAL128)
        return combine_decimals(operation, a, b, arena);
    if (a.type == BSON_TYPE_DOUBLE || b.type == BSON_TYPE_DOUBLE)
        return combine_doubles(operation, a, b, arena);
    if (!combine_integers(operation, truce__value_integer(a), truce__value_integer(b), &result)) {
        *overflow = true;
        return combine_doubles(operation, a, b, arena);
    }
    if (a.type == BSON_TYPE_INT32 && b.type == BSON_TYPE_INT32 && result >= INT32_MIN &&
        result <= INT32_MAX)
        return truce__value_from_int32(arena, (int32_t)result);
    return truce__value_from_int64(arena, result);
}
