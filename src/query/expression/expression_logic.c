/* Logic, choice, and comparisons: $and, $or, $not, $cond, $ifNull, $switch, $literal, $cmp, $eq,
 * and others. $and, $or, $cond, $ifNull, and $switch evaluate only the operands that they need. */
#include "base/assert.h"
#include "bson/refuse_value.h"
#include "query/expression/expression_tree.h"

static truce_status evaluate_and(const struct expression_node *node, struct evaluation *run,
                                 struct value *result)
{
    bool truth = true;

    for (uint32_t i = 0; truth && i < node->count; i++) {
        struct value operand;
        truce_status status = truce__expression_run(node->operands[i], run, &operand);
        if (status)
            return status;
        truth = truce__value_truth(operand);
    }
    *result = truce__value_from_bool(truth);
    return TRUCE_OK;
}

static truce_status evaluate_or(const struct expression_node *node, struct evaluation *run,
                                struct value *result)
{
    bool truth = false;

    for (uint32_t i = 0; !truth && i < node->count; i++) {
        struct value operand;
        truce_status status = truce__expression_run(node->operands[i], run, &operand);
        if (status)
            return status;
        truth = truce__value_truth(operand);
    }
    *result = truce__value_from_bool(truth);
    return TRUCE_OK;
}

static truce_status logic_apply_not(const struct expression_node *node, struct evaluation *run,
                                    const struct value *operands, struct value *result)
{
    *result = truce__value_from_bool(!truce__value_truth(operands[0]));
    return TRUCE_OK;
}

/* -- $cond ------------------------------------------------------------------------------------ */

static truce_status evaluate_cond(const struct expression_node *node, struct evaluation *run,
                                  struct value *result)
{
    struct value condition;
    truce_status status = truce__expression_run(node->operands[0], run, &condition);

    if (status)
        return status;
    return truce__expression_run(node->operands[truce__value_truth(condition) ? 1 : 2], run,
                                 result);
}

static const struct expression_arguments cond_arguments = {
    .unknown = 17083,
    .list = {{"if", 17080}, {"then", 17081}, {"else", 17082}},
};

/* -- $ifNull ---------------------------------------------------------------------------------- */

static truce_status evaluate_if_null(const struct expression_node *node, struct evaluation *run,
                                     struct value *result)
{
    for (uint32_t i = 0; i < node->count; i++) {
        truce_status status = truce__expression_run(node->operands[i], run, result);
        if (status || !truce__value_is_nullish(*result))
            return status;
    }
    return TRUCE_OK;
}

static truce_status prepare_if_null(struct expression_compiler *compiler,
                                    struct expression_node *node)
{
    if (node->count < 2)
        return truce__refuse(1257300, compiler->error, "$ifNull takes at least 2 operands, not %u",
                             node->count);
    return TRUCE_OK;
}

/* -- $switch ---------------------------------------------------------------------------------- */

/* Evaluates $switch. The operands are: case, then, case, then ..., and at the end the default or
 * NULL. */
static truce_status evaluate_switch(const struct expression_node *node, struct evaluation *run,
                                    struct value *result)
{
    uint32_t last = node->count - 1;

    truce_assert(node->count % 2 == 1);
    for (uint32_t i = 0; i < last; i += 2) {
        struct value condition;
        truce_status status = truce__expression_run(node->operands[i], run, &condition);
        if (status)
            return status;
        if (truce__value_truth(condition))
            return truce__expression_run(node->operands[i + 1], run, result);
    }
    if (!node->operands[last])
        return truce__refuse(40066, run->error,
                             "no branch of $switch is true, and it has no 'default'");
    return truce__expression_run(node->operands[last], run, result);
}

/* Compiles a branch of $switch into two operands, the case and the value. */
static truce_status compile_branch(struct expression_compiler *compiler, struct value branch,
                                   struct expression_node **operands)
{
    struct fields fields;

    if (branch.type != BSON_TYPE_DOCUMENT)
        return truce__refuse_value(40062, branch, compiler->error,
                                   "a branch of $switch must be a document");
    fields = truce__fields(branch);
    while (truce__fields_next(&fields)) {
        bool is_case = !strcmp(fields.key, "case");
        truce_status status;
        if (!is_case && strcmp(fields.key, "then"))
            return truce__refuse(
                40063, compiler->error,
                "a branch of $switch does not take the argument \"%s\": expected case or then",
                fields.key);
        status = truce__expression_compile(compiler, fields.value, &operands[is_case ? 0 : 1]);
        if (status)
            return status;
    }
    if (!operands[0])
        return truce__refuse(40064, compiler->error, "a branch of $switch needs a \"case\"");
    if (!operands[1])
        return truce__refuse(40065, compiler->error, "a branch of $switch needs a \"then\"");
    return TRUCE_OK;
}

static truce_status compile_branches(struct expression_compiler *compiler, struct value branches,
                                     struct expression_node *node)
{
    struct fields fields = truce__fields(branches);

    for (uint32_t i = 0; truce__fields_next(&fields); i += 2) {
        truce_status status = compile_branch(compiler, fields.value, &node->operands[i]);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* Compiles $switch into a node with the operands that evaluate_switch expects. */
static truce_status compile_switch(struct expression_compiler *compiler,
                                   const struct expression_operator *operator,
                                   struct value argument, struct expression_node **result)
{
    struct value branches;
    struct expression_node *node;
    struct fields fields;
    uint32_t count = 0;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse_value(40060, argument, compiler->error,
                                   "$switch takes a document of arguments");
    branches = truce__value_field(argument, "branches", 8);
    if (branches.type != VALUE_MISSING && branches.type != BSON_TYPE_ARRAY)
        return truce__refuse_value(40061, branches, compiler->error,
                                   "\"branches\" of $switch must be an array");
    if (branches.type == BSON_TYPE_ARRAY)
        count = truce__array_count(branches);
    node = truce__expression_node(compiler, operator, 2 * count + 1);
    fields = truce__fields(argument);
    while (truce__fields_next(&fields)) {
        truce_status status;
        if (!strcmp(fields.key, "branches") && fields.value.data != branches.data)
            return truce__refuse(40067, compiler->error, "$switch takes \"branches\" only once");
        if (!strcmp(fields.key, "branches"))
            status = compile_branches(compiler, fields.value, node);
        else if (!strcmp(fields.key, "default"))
            status = truce__expression_compile(compiler, fields.value, &node->operands[2 * count]);
        else
            return truce__refuse(
                40067, compiler->error,
                "$switch does not take the argument \"%s\": expected branches or default",
                fields.key);
        if (status)
            return status;
    }
    if (count == 0)
        return truce__refuse(40068, compiler->error, "$switch needs at least one branch");
    *result = node;
    return TRUCE_OK;
}

/* -- $literal --------------------------------------------------------------------------------- */

static truce_status compile_literal(struct expression_compiler *compiler,
                                    const struct expression_operator *operator,
                                    struct value argument, struct expression_node **node)
{
    *node = truce__expression_constant(compiler, argument);
    return TRUCE_OK;
}

/* ---- comparisons ----------------------------------------------------------------------------- */

/* Comparisons by the total order of all values, including missing (bson/value.h). */

/* Compares two values. A missing value differs from null: missing and undefined sort before
 * null. */
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

/* -- the table --------------------------------------------------------------------------------- */

const struct expression_operator truce__expressions_logic[] = {
    {"$and", 0, EXPRESSION_ANY, .evaluate = evaluate_and},
    {"$or", 0, EXPRESSION_ANY, .evaluate = evaluate_or},
    {"$not", 1, 1, .apply = logic_apply_not},
    {"$cond", 3, 3, .evaluate = evaluate_cond, .arguments = &cond_arguments},
    {"$ifNull", 0, EXPRESSION_ANY, .evaluate = evaluate_if_null, .prepare = prepare_if_null},
    {"$switch", .evaluate = evaluate_switch, .compile = compile_switch},
    {"$literal", .compile = compile_literal},
    {"$const", .compile = compile_literal},
    {"$cmp", 2, 2, .apply = three_way},
    {"$eq", 2, 2, .apply = equal},
    {"$ne", 2, 2, .apply = not_equal},
    {"$gt", 2, 2, .apply = greater},
    {"$gte", 2, 2, .apply = greater_equal},
    {"$lt", 2, 2, .apply = less},
    {"$lte", 2, 2, .apply = less_equal},
    {NULL},
};
