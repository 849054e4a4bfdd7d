#include "query/condition/comparison.h"

#include "bson/number.h"

static bool comparison_is_nothing(struct value value)
{
    return value.type == VALUE_MISSING || value.type == BSON_TYPE_UNDEFINED;
}

/* Compares values of different type classes. */
static bool compare_across(enum comparison comparison, struct value value, struct value operand)
{
    switch (operand.type) {
    case BSON_TYPE_NULL:
        return comparison_is_nothing(value) &&
               (comparison == COMPARISON_EQ || comparison == COMPARISON_LTE ||
                comparison == COMPARISON_GTE);
    case BSON_TYPE_MAXKEY:
        return comparison == COMPARISON_LT || comparison == COMPARISON_LTE;
    case BSON_TYPE_MINKEY:
        return comparison == COMPARISON_GT || comparison == COMPARISON_GTE;
    default:
        return false;
    }
}

static bool comparison_has_order(enum comparison comparison, int order)
{
    switch (comparison) {
    case COMPARISON_EQ:
        return order == 0;
    case COMPARISON_LT:
        return order < 0;
    case COMPARISON_LTE:
        return order <= 0;
    case COMPARISON_GT:
        return order > 0;
    default:
        return order >= 0;
    }
}

static int compare_integers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

bool truce__comparison_holds(enum comparison comparison, struct value value, struct value operand)
{
    int order;

    if (truce__value_is_integer(value) && truce__value_is_integer(operand))
        return comparison_has_order(comparison, compare_integers(truce__value_integer(value),
                                                                 truce__value_integer(operand)));
    if (truce__type_class(value.type) != truce__type_class(operand.type))
        return compare_across(comparison, value, operand);
    order = truce__value_compare(value, operand);
    /* In the order of values, NaN is the least number. In filters, it compares only with NaN. */
    if (order && truce__value_is_number(operand) &&
        (truce__number_is_nan(value) || truce__number_is_nan(operand)))
        return false;
    return comparison_has_order(comparison, order);
}
