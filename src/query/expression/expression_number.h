#ifndef TRUCE_QUERY_EXPRESSION_EXPRESSION_NUMBER_H
#define TRUCE_QUERY_EXPRESSION_EXPRESSION_NUMBER_H

/* Helpers for the files of arithmetic: expression_arith.c, expression_math.c, expression_trig.c,
 * and expression_bits.c. */
#include "bson/decimal.h"
#include "bson/number.h"
#include "query/expression/expression_tree.h"

/* Returns an int32 if the number fits, unless the operand was wider. */
static inline struct value truce__evaluation_integer(struct evaluation *run, int64_t number,
                                                     uint8_t type)
{
    if (type == BSON_TYPE_INT32 && number >= INT32_MIN && number <= INT32_MAX)
        return truce__value_from_int32(run->arena, (int32_t)number);
    return truce__value_from_int64(run->arena, number);
}

/* Converts any number; a double with its 15 certain digits. */
static inline decimal truce__number_as_decimal(struct value number)
{
    return truce__decimal_of_bson(truce__number_to_decimal(number));
}

static inline struct value truce__evaluation_decimal(struct evaluation *run, decimal number)
{
    return truce__value_from_decimal(run->arena, truce__decimal_to_bson(number));
}

static inline bool truce__number_is_zero(struct value number)
{
    if (number.type == BSON_TYPE_DECIMAL128)
        return bid128_isZero(truce__number_as_decimal(number));
    return truce__number_to_double(number) == 0;
}

#endif
