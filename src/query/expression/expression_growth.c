#include "query/expression/expression_growth.h"

#include "base/limits.h"

/* -- compiling -------------------------------------------------------------------------------- */

static bool is_operator(const struct expression_node *node, const char *name)
{
    return node->operator&& !strcmp(node->operator->name, name);
}

/* Slots are given out once: who else has this one reads it. */
static bool reads(const struct expression_node *node, uint32_t slot)
{
    if (!node || truce__expression_is_constant_node(node))
        return false;
    if (node->slot == slot)
        return true;
    for (uint32_t i = 0; i < node->count; i++) {
        if (reads(node->operands[i], slot))
            return true;
    }
    return false;
}

static bool keeps(const struct expression_node *body, uint32_t slot)
{
    if (truce__expression_is_variable(body, slot))
        return true;
    if (is_operator(body, "$cond"))
        return keeps(body->operands[1], slot) && keeps(body->operands[2], slot);
    if (!is_operator(body, "$concatArrays") || !body->count ||
        !truce__expression_is_variable(body->operands[0], slot))
        return false;
    for (uint32_t i = 1; i < body->count; i++) {
        if (reads(body->operands[i], slot))
            return false;
    }
    return true;
}

bool truce__growth_possible(const struct expression_node *body, uint32_t slot)
{
    return body->operator&& keeps(body, slot);
}

/* -- evaluating ------------------------------------------------------------------------------- */

void truce__growth_release(struct growth *growth)
{
    truce__arena_release(&growth->arena);
    *growth = (struct growth){0};
}

static truce_status append_all(struct growth *growth, struct evaluation *run, struct value array)
{
    struct fields fields = truce__fields(array);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        truce__builder_element(&growth->builder, fields.value);
        status = truce__evaluation_check(run);
    }
    return status;
}

static truce_status begin(struct growth *growth, struct evaluation *run, struct value value)
{
    truce__growth_release(growth);
    truce__builder_begin(&growth->builder, &growth->arena, TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_ARRAY);
    growth->begun = true;
    return append_all(growth, run, value);
}

/* The array as it is now. Its last byte is written over by what is added next. */
static truce_status show(struct growth *growth, struct evaluation *run, struct value *value)
{
    truce_status status = truce__builder_finish(&growth->builder, value, run->error);

    growth->builder.size--;
    /* what was kept of the array by its address is of the shorter one */
    run->list = (struct evaluation_list){NULL};
    run->among = (struct evaluation_among){NULL};
    return status;
}

static truce_status concatenate(struct growth *growth, const struct expression_node *node,
                                struct evaluation *run, struct value *value)
{
    truce_status status = TRUCE_OK;

    if (!growth->begun)
        status = begin(growth, run, *value);
    for (uint32_t i = 1; !status && i < node->count; i++) {
        struct value array;

        status = truce__expression_run(node->operands[i], run, &array);
        if (status)
            break;
        if (truce__value_is_nullish(array)) {
            growth->begun = false;
            return truce__evaluation_null(value);
        }
        if (array.type != BSON_TYPE_ARRAY)
            return truce__refuse(28664, run->error, "$concatArrays takes arrays, not %s",
                                 truce__type_name(array.type));
        status = append_all(growth, run, array);
    }
    return status ? status : show(growth, run, value);
}

truce_status truce__growth_turn(struct growth *growth, const struct expression_node *body,
                                struct evaluation *run, struct value *value)
{
    while (is_operator(body, "$cond")) {
        struct value condition;
        truce_status status = truce__expression_run(body->operands[0], run, &condition);

        if (status)
            return status;
        body = body->operands[truce__value_truth(condition) ? 1 : 2];
    }
    if (!body->operator)
        return TRUCE_OK; /* the variable itself */
    if (value->type != BSON_TYPE_ARRAY)
        return truce__expression_run(body, run, value);
    return concatenate(growth, body, run, value);
}
