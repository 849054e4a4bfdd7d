#include "bson/number_text.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/assert.h"
#include "bson/decimal.h"

/* The C library reads and writes a decimal point as the process's locale has it; so this keeps a
 * locale of its own, the "C" one, for as long as the process lives. */

#define DIGITS_MAX 400 /* of a number in text; a double with more is none that anybody wrote */

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
    /* a double below DBL_MIN has fewer digits */
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

/* [+-] digits [. digits] [e [+-] digits], or NaN, or infinity; the text ends with a NUL */
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

/* with a NUL behind it; false if it is no number */
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
    bool finite;

    if (!copy_number(text, length, copy))
        return false;
    pthread_once(&once, make_locale);
    *number = strtod_l(copy, NULL, plain);
    finite = text_is_digit(copy[length - 1]) || copy[length - 1] == '.';
    return !finite || isfinite(*number);
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
    return !(flags & (BID_INVALID_EXCEPTION | BID_OVERFLOW_EXCEPTION));
}
