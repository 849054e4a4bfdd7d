#ifndef TRUCE_QUERY_CONDITION_COMPARISON_H
#define TRUCE_QUERY_CONDITION_COMPARISON_H

/* The comparisons of filters: $eq, $lt, $lte, $gt, and $gte. */
#include "bson/value.h"

enum comparison {
    COMPARISON_EQ,
    COMPARISON_LT,
    COMPARISON_LTE,
    COMPARISON_GT,
    COMPARISON_GTE,
};

/* Returns whether `value` fulfils the comparison with `operand`. Values of different types do not
 * compare, with three exceptions: null equals a missing value, and MinKey and MaxKey compare with
 * every value. NaN equals only NaN. */
bool truce__comparison_holds(enum comparison comparison, struct value value, struct value operand);

#endif
