#include "query/expression/expression_tree.h"

/* Comparisons by the total order of all values, including missing (bson/value.h). */

/* A missing value differs from null: missing and undefined sort before null. */
static int compare_with_missing(struct value a, struct value b)
{
    if (truce__value_is_nullish(a) && truce__value_is_nullish(b))
        return (a.type == BSON_TYPE_NULL) - (b.type == BSON_TYPE_NULL);
    return truce__value_compare(a, b);
}

#define COMPARISON(name, condition)                                                                \
    static truce_status name(const struct expression_node *node, struct evaluation *run,           \
                             const struct value *operands, struct value *result)                   \
    {                                                                                              \
        int order = compare_with_missing(operands[0], operands[1]);                                \
        *result = truce__value_from_bool(condition);                                               \
        return TRUCE_OK;                                                                           \
    }

COMPARISON(equal, order == 0)
COMPARISON(not_equal, order != 0)
COMPARISON(greater, order > 0)
COMPARISON(greater_equal, order >= 0)
COMPARISON(less, order < 0)
COMPARISON(less_equal, order <= 0)

static truce_status three_way(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    int order = compare_with_missing(operands[0], operands[1]);

    *result = truce__value_from_int32(run->arena, (order > 0) - (order < 0));
    return TRUCE_OK;
}

const struct expression_operator truce__expressions_compare[] = {
    {"$cmp", 2, 2, .apply = three_way},     {"$eq", 2, 2, .apply = equal},
    {"$ne", 2, 2, .apply = not_equal},      {"$gt", 2, 2, .apply = greater},
    {"$gte", 2, 2, .apply = greater_equal}, {"$lt", 2, 2, .apply = less},
    {"$lte", 2, 2, .apply = less_equal},    {NULL},
};
