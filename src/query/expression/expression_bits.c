#include "base/random.h"
#include "query/expression/expression_number.h"

/* Bits of integers, the two parts of timestamps, random numbers. */

static struct value from_bits(struct evaluation *run, int64_t bits, bool is_long)
{
    return is_long ? truce__value_from_int64(run->arena, bits)
                   : truce__value_from_int32(run->arena, (int32_t)bits);
}

/* -- $bitAnd, $bitOr, $bitXor, $bitNot --------------------------------------------------------- */

static int64_t bits_combine(char operation, int64_t a, int64_t b)
{
    switch (operation) {
    case '&':
        return a & b;
    case '|':
        return a | b;
    default:
        return a ^ b;
    }
}

static truce_status bits_refuse_type(const struct expression_node *node, struct evaluation *run,
                                     struct value operand)
{
    return truce__refuse(CODE_TYPE_MISMATCH, run->error, "%s takes ints and longs, not %s",
                         truce__expression_name(node), truce__type_name(operand.type));
}

static truce_status evaluate_bits(const struct expression_node *node, struct evaluation *run,
                                  struct value *result)
{
    char operation = *(const char *)node->extra;
    int64_t bits = operation == '&' ? -1 : 0;
    bool is_long = false, null = false;

    for (uint32_t i = 0; i < node->count; i++) {
        struct value operand;
        truce_status status = truce__expression_run(node->operands[i], run, &operand);
        if (status)
            return status;
        if (truce__value_is_nullish(operand)) {
            null = true;
            continue;
        }
        if (!truce__value_is_integer(operand))
            return bits_refuse_type(node, run, operand);
        is_long = is_long || operand.type == BSON_TYPE_INT64;
        bits = bits_combine(operation, bits, truce__value_integer(operand));
    }
    if (null)
        return truce__evaluation_null(result);
    *result = from_bits(run, bits, is_long);
    return TRUCE_OK;
}

static truce_status bits_apply_not(const struct expression_node *node, struct evaluation *run,
                                   const struct value *operands, struct value *result)
{
    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[0]))
        return truce__refuse(28765, run->error, "$bitNot takes a number, not %s",
                             truce__type_name(operands[0].type));
    if (!truce__value_is_integer(operands[0]))
        return bits_refuse_type(node, run, operands[0]);
    *result =
        from_bits(run, ~truce__value_integer(operands[0]), operands[0].type == BSON_TYPE_INT64);
    return TRUCE_OK;
}

/* -- timestamps ------------------------------------------------------------------------------- */

static truce_status take_half(const struct expression_node *node, struct evaluation *run,
                              struct value operand, uint32_t code, int shift, struct value *result)
{
    uint64_t raw;

    if (truce__value_is_nullish(operand))
        return truce__evaluation_null(result);
    if (operand.type != BSON_TYPE_TIMESTAMP)
        return truce__refuse(code, run->error, "%s takes a timestamp, not %s",
                             truce__expression_name(node), truce__type_name(operand.type));
    raw = (uint64_t)truce__value_int64(operand);
    *result = truce__value_from_int64(run->arena, (int64_t)(uint32_t)(raw >> shift));
    return TRUCE_OK;
}

static truce_status apply_second(const struct expression_node *node, struct evaluation *run,
                                 const struct value *operands, struct value *result)
{
    return take_half(node, run, operands[0], 5687301, 32, result);
}

static truce_status apply_increment(const struct expression_node *node, struct evaluation *run,
                                    const struct value *operands, struct value *result)
{
    return take_half(node, run, operands[0], 5687302, 0, result);
}

/* -- $rand ------------------------------------------------------------------------------------ */

static truce_status evaluate_rand(const struct expression_node *node, struct evaluation *run,
                                  struct value *result)
{
    if (!run->context->random)
        return truce__refuse(3040500, run->error, "$rand is not allowed here");
    *result = truce__value_from_double(run->arena, truce__random_unit(run->context->random));
    return TRUCE_OK;
}

static truce_status compile_rand(struct expression_compiler *compiler,
                                 const struct expression_operator *operator, struct value argument,
                                 struct expression_node **node)
{
    if (!truce__value_is_container(argument))
        return truce__refuse(10065, compiler->error, "$rand takes {} as its argument");
    if (truce__array_count(argument) > 0)
        return truce__refuse(3040501, compiler->error, "$rand takes no arguments");
    *node = truce__expression_node(compiler, operator, 0);
    return TRUCE_OK;
}

const struct expression_operator truce__expressions_bits[] = {
    {"$bitAnd", 0, EXPRESSION_ANY, .evaluate = evaluate_bits, .extra = "&"},
    {"$bitOr", 0, EXPRESSION_ANY, .evaluate = evaluate_bits, .extra = "|"},
    {"$bitXor", 0, EXPRESSION_ANY, .evaluate = evaluate_bits, .extra = "^"},
    {"$bitNot", 1, 1, .apply = bits_apply_not},
    {"$tsSecond", 1, 1, .apply = apply_second},
    {"$tsIncrement", 1, 1, .apply = apply_increment},
    {"$rand", .evaluate = evaluate_rand, .compile = compile_rand},
    {NULL},
};
