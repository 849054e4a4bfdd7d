/* Amounts as strings: whole numbers of the smallest unit, with the decimal point of the
 * currency. */
#include <inttypes.h>
#include <stdio.h>

#include "patterns/ledger/ledger.h"

#include "base/null.h"

static uint64_t amount_power(int digits)
{
    uint64_t number = 1;

    while (digits-- > 0)
        number *= 10;
    return number;
}

const char *truce_ledger_show(int64_t value, int digits, char text[TRUCE_LEDGER_AMOUNT])
{
    uint64_t size = value < 0 ? -(uint64_t)value : (uint64_t)value, unit;

    if (!text)
        return NULL;
    if (digits < 0 || digits > LEDGER_DIGITS_MAX)
        digits = 0;
    unit = amount_power(digits);
    if (digits)
        snprintf(text, TRUCE_LEDGER_AMOUNT, "%s%" PRIu64 ".%0*" PRIu64, value < 0 ? "-" : "",
                 size / unit, digits, size % unit);
    else
        snprintf(text, TRUCE_LEDGER_AMOUNT, "%s%" PRIu64, value < 0 ? "-" : "", size);
    return text;
}

static truce_status ledger_amount_refuse(const char *text, const char *why, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "\"%.60s\" is not a valid amount: %s", text, why);
}

truce_status truce_ledger_read(const char *text, int digits, int64_t *value, bson_error_t *error)
{
    RETURN_IF_NULL(text, error);
    RETURN_IF_NULL(value, error);

    const char *at = text;
    bool negative = *at == '-', point = false, any = false, fits = true;
    int64_t number = 0;
    int behind = 0;

    *value = 0;
    at += *at == '-' || *at == '+';
    for (; *at; at++) {
        if (*at == '.' && !point && digits) {
            point = true;
            continue;
        }
        if (*at < '0' || *at > '9')
            return ledger_amount_refuse(
                text,
                "expected digits, with a point if the currency has decimals, and an optional sign "
                "in front",
                error);
        if (point && ++behind > digits)
            return truce__fail(TRUCE_INVALID, error,
                               "\"%.60s\" has too many digits: the currency has %d after the point",
                               text, digits);
        any = true;
        /* Sums below zero, because the negative range is larger by one. */
        fits = fits && !__builtin_mul_overflow(number, 10, &number) &&
               !__builtin_sub_overflow(number, *at - '0', &number);
    }
    for (; behind < digits; behind++)
        fits = fits && !__builtin_mul_overflow(number, 10, &number);
    if (!any)
        return ledger_amount_refuse(text, "it has no digits", error);
    if (!fits || (!negative && number == INT64_MIN))
        return truce__fail(TRUCE_LIMIT, error, "\"%.60s\" does not fit into 64 bits", text);
    *value = negative ? number : -number;
    return TRUCE_OK;
}
