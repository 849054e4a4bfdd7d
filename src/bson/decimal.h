#ifndef TRUCE_BSON_DECIMAL_H
#define TRUCE_BSON_DECIMAL_H

/*
 * Intel's decimal floating-point library (libintelrdfpmath, the one that MongoDB computes with), in
 * the variant that takes arguments by value and rounding and flags as arguments: no global state,
 * so it may be called from any thread. Include this instead of the library's own headers.
 */
#include <bson/bson.h>

#define DECIMAL_CALL_BY_REFERENCE      0
#define DECIMAL_GLOBAL_ROUNDING        0
#define DECIMAL_GLOBAL_EXCEPTION_FLAGS 0
#include <bid_conf.h>
#include <bid_functions.h>

typedef BID_UINT128 decimal; /* w[0] is the low half */

static inline decimal truce__decimal_of_bson(bson_decimal128_t number)
{
    return (decimal){{number.low, number.high}};
}

static inline bson_decimal128_t truce__decimal_to_bson(decimal number)
{
    return (bson_decimal128_t){.low = number.w[0], .high = number.w[1]};
}

#endif
