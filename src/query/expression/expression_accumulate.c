#include "bson/number.h"
#include "bson/sum.h"
#include "query/expression/expression_tree.h"

/*
 * Accumulators as expressions: $sum, $avg, $min, $max, $stdDevPop, $stdDevSamp over their operands.
 * A single operand that is an array is replaced by its elements. Values that are not numbers are
 * ignored; $min and $max ignore only null and missing values.
 */

struct accumulation {
    struct sum sum;
    struct deviation deviation;
    /* missing: no value yet */
    struct value extreme;
};

typedef void add_function(struct accumulation *accumulation, struct value value);
typedef struct value finish_function(const struct accumulation *accumulation,
                                     struct evaluation *run);

struct accumulator {
    add_function *add;
    finish_function *finish;
};

static truce_status evaluate_accumulator(const struct expression_node *node, struct evaluation *run,
                                         struct value *result)
{
    const struct accumulator *accumulator = node->extra;
    struct accumulation accumulation = {.extreme = truce__value_missing()};

    truce__sum_begin(&accumulation.sum);
    for (uint32_t i = 0; i < node->count; i++) {
        struct value operand;
        truce_status status = truce__expression_run(node->operands[i], run, &operand);
        if (status)
            return status;
        if (node->count == 1 && operand.type == BSON_TYPE_ARRAY) {
            struct fields fields = truce__fields(operand);
            while (truce__fields_next(&fields))
                accumulator->add(&accumulation, fields.value);
        } else {
            accumulator->add(&accumulation, operand);
        }
    }
    *result = accumulator->finish(&accumulation, run);
    return TRUCE_OK;
}

static void accumulate_add_number(struct accumulation *accumulation, struct value value)
{
    if (truce__value_is_number(value))
        truce__sum_add(&accumulation->sum, value);
}

static struct value finish_sum(const struct accumulation *accumulation, struct evaluation *run)
{
    return truce__sum_value(&accumulation->sum, run->arena);
}

static struct value finish_average(const struct accumulation *accumulation, struct evaluation *run)
{
    return truce__sum_average(&accumulation->sum, run->arena);
}

static void add_least(struct accumulation *accumulation, struct value value)
{
    if (truce__value_is_nullish(value))
        return;
    if (accumulation->extreme.type == VALUE_MISSING ||
        truce__value_compare(value, accumulation->extreme) < 0)
        accumulation->extreme = value;
}

static void add_greatest(struct accumulation *accumulation, struct value value)
{
    if (truce__value_is_nullish(value))
        return;
    if (accumulation->extreme.type == VALUE_MISSING ||
        truce__value_compare(value, accumulation->extreme) > 0)
        accumulation->extreme = value;
}

static struct value finish_extreme(const struct accumulation *accumulation, struct evaluation *run)
{
    if (accumulation->extreme.type == VALUE_MISSING)
        return truce__value_null();
    return accumulation->extreme;
}

static void add_deviation(struct accumulation *accumulation, struct value value)
{
    if (truce__value_is_number(value))
        truce__deviation_add(&accumulation->deviation, truce__number_to_double(value));
}

static struct value finish_population(const struct accumulation *accumulation,
                                      struct evaluation *run)
{
    return truce__deviation_value(&accumulation->deviation, false, run->arena);
}

static struct value finish_sample(const struct accumulation *accumulation, struct evaluation *run)
{
    return truce__deviation_value(&accumulation->deviation, true, run->arena);
}

static const struct accumulator sum = {accumulate_add_number, finish_sum};
static const struct accumulator average = {accumulate_add_number, finish_average};
static const struct accumulator least = {add_least, finish_extreme};
static const struct accumulator greatest = {add_greatest, finish_extreme};
static const struct accumulator population = {add_deviation, finish_population};
static const struct accumulator sample = {add_deviation, finish_sample};

#define ACCUMULATOR(name, one)                                                                     \
    {                                                                                              \
        name, 0, EXPRESSION_ANY, .evaluate = evaluate_accumulator, .extra = one                    \
    }

const struct expression_operator truce__expressions_accumulate[] = {
    ACCUMULATOR("$sum", &sum),
    ACCUMULATOR("$avg", &average),
    ACCUMULATOR("$min", &least),
    ACCUMULATOR("$max", &greatest),
    ACCUMULATOR("$stdDevPop", &population),
    ACCUMULATOR("$stdDevSamp", &sample),
    {NULL},
};
