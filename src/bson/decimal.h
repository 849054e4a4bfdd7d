#ifndef TRUCE_BSON_DECIMAL_H
#define TRUCE_BSON_DECIMAL_H

/*
 * Intel's decimal floating-point library (libintelrdfpmath), which MongoDB uses, too. In the
 * variant that is declared here, the rounding mode and the flags are arguments. It has no global
 * state and can be called from any thread. Include this header instead of the library's own ones.
 */
#include <bson/bson.h>

#define DECIMAL_CALL_BY_REFERENCE      0
#define DECIMAL_GLOBAL_ROUNDING        0
#define DECIMAL_GLOBAL_EXCEPTION_FLAGS 0
#include <bid_conf.h>
#include <bid_functions.h>

/* A decimal128. w[0] is the low half. */
typedef BID_UINT128 decimal;

static inline decimal truce__decimal_of_bson(bson_decimal128_t number)
{
    return (decimal){{number.low, number.high}};
}

static inline bson_decimal128_t truce__decimal_to_bson(decimal number)
{
    return (bson_decimal128_t){.low = number.w[0], .high = number.w[1]};
}

#endif
