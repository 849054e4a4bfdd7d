#include "base/assert.h"
#include "query/expression/expression_tree.h"

/*
 * Arrays as sets: order and repetition do not matter, and elements are equal as in all comparisons
 * (1 and 1.0 are one element; the first of several equal elements is used). A set is a sorted list.
 */

struct set {
    /* ascending, without duplicates */
    struct value *items;
    uint32_t count;
};

static truce_status expression_set_make_set(struct evaluation *run, struct value array,
                                            struct set *set)
{
    struct value *scratch;
    uint32_t kept = 0;
    truce_status status = truce__evaluation_items(run, array, &set->items, &set->count);

    if (status)
        return status;
    scratch = truce__evaluation_take(run, set->count * sizeof *scratch);
    if (!scratch)
        return TRUCE_LIMIT;
    truce__values_sort(set->items, set->count, scratch, NULL, NULL);
    for (uint32_t i = 0; i < set->count; i++) {
        if (!kept || !truce__value_equal(set->items[kept - 1], set->items[i]))
            set->items[kept++] = set->items[i];
    }
    set->count = kept;
    return TRUCE_OK;
}

static bool expression_set_has(const struct set *set, struct value item)
{
    return truce__values_search(set->items, set->count, item) < set->count;
}

static truce_status expression_set_refuse_type(const struct expression_node *node,
                                               struct evaluation *run, uint32_t code,
                                               struct value operand)
{
    return truce__refuse(code, run->error, "%s takes arrays, not %s", truce__expression_name(node),
                         truce__type_name(operand.type));
}

/* -- truth of elements ------------------------------------------------------------------------ */

static truce_status apply_all(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    struct fields fields;
    bool all = true;

    if (operands[0].type != BSON_TYPE_ARRAY)
        return expression_set_refuse_type(node, run, 17040, operands[0]);
    fields = truce__fields(operands[0]);
    while (all && truce__fields_next(&fields))
        all = truce__value_truth(fields.value);
    *result = truce__value_from_bool(all);
    return TRUCE_OK;
}

static truce_status apply_any(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    struct fields fields;
    bool any = false;

    if (operands[0].type != BSON_TYPE_ARRAY)
        return expression_set_refuse_type(node, run, 17041, operands[0]);
    fields = truce__fields(operands[0]);
    while (!any && truce__fields_next(&fields))
        any = truce__value_truth(fields.value);
    *result = truce__value_from_bool(any);
    return TRUCE_OK;
}

/* -- two sets --------------------------------------------------------------------------------- */

/* Returns the elements of the left set that the right set lacks, in their order and without
 * duplicates. */
static truce_status subtract(struct evaluation *run, struct value left, struct value right,
                             struct value *result)
{
    struct fields fields = truce__fields(left);
    struct builder builder;
    struct set removed, all;
    bool *seen;
    truce_status status = expression_set_make_set(run, right, &removed);

    if (!status)
        status = expression_set_make_set(run, left, &all);
    if (status)
        return status;
    seen = truce__evaluation_take(run, all.count);
    if (!seen)
        return TRUCE_LIMIT;
    memset(seen, 0, all.count);
    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    while (truce__fields_next(&fields)) {
        uint32_t at = truce__values_search(all.items, all.count, fields.value);
        truce_assert(at < all.count);
        if (!seen[at] && !expression_set_has(&removed, fields.value))
            truce__builder_element(&builder, fields.value);
        seen[at] = true;
    }
    return truce__builder_finish(&builder, result, run->error);
}

static truce_status apply_difference(const struct expression_node *node, struct evaluation *run,
                                     const struct value *operands, struct value *result)
{
    if (truce__value_is_nullish(operands[0]) || truce__value_is_nullish(operands[1]))
        return truce__evaluation_null(result);
    if (operands[0].type != BSON_TYPE_ARRAY)
        return expression_set_refuse_type(node, run, 17048, operands[0]);
    if (operands[1].type != BSON_TYPE_ARRAY)
        return expression_set_refuse_type(node, run, 17049, operands[1]);
    return subtract(run, operands[0], operands[1], result);
}

static truce_status apply_subset(const struct expression_node *node, struct evaluation *run,
                                 const struct value *operands, struct value *result)
{
    struct fields fields;
    struct set right;
    bool inside = true;
    truce_status status;

    if (operands[0].type != BSON_TYPE_ARRAY)
        return expression_set_refuse_type(node, run, 17046, operands[0]);
    if (operands[1].type != BSON_TYPE_ARRAY)
        return expression_set_refuse_type(node, run, 17042, operands[1]);
    status = expression_set_make_set(run, operands[1], &right);
    if (status)
        return status;
    fields = truce__fields(operands[0]);
    while (inside && truce__fields_next(&fields))
        inside = expression_set_has(&right, fields.value);
    *result = truce__value_from_bool(inside);
    return TRUCE_OK;
}

/* -- any number of sets ----------------------------------------------------------------------- */

static bool same_sets(const struct set *a, const struct set *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        if (!truce__value_equal(a->items[i], b->items[i]))
            return false;
    }
    return true;
}

static truce_status evaluate_equals(const struct expression_node *node, struct evaluation *run,
                                    struct value *result)
{
    struct set first = {0}, next;
    bool equal = true;

    for (uint32_t i = 0; i < node->count; i++) {
        struct value array;
        truce_status status = truce__expression_run(node->operands[i], run, &array);
        if (status)
            return status;
        if (array.type != BSON_TYPE_ARRAY)
            return expression_set_refuse_type(node, run, 17044, array);
        status = expression_set_make_set(run, array, i ? &next : &first);
        if (status)
            return status;
        equal = !i || (equal && same_sets(&first, &next));
    }
    *result = truce__value_from_bool(equal);
    return TRUCE_OK;
}

static truce_status prepare_equals(struct expression_compiler *compiler,
                                   struct expression_node *node)
{
    if (node->count < 2)
        return truce__refuse(17045, compiler->error, "$setEquals takes at least 2 operands, not %u",
                             node->count);
    return TRUCE_OK;
}

/* Returns the elements of the smaller set that are in the other. */
static struct set intersect(struct set a, struct set b)
{
    struct set kept = a.count > b.count ? b : a;
    struct set other = a.count > b.count ? a : b;
    uint32_t count = 0;

    for (uint32_t i = 0; i < kept.count; i++) {
        if (expression_set_has(&other, kept.items[i]))
            kept.items[count++] = kept.items[i];
    }
    kept.count = count;
    return kept;
}

static truce_status evaluate_intersection(const struct expression_node *node,
                                          struct evaluation *run, struct value *result)
{
    struct set all = {0}, next;

    for (uint32_t i = 0; i < node->count && (i == 0 || all.count > 0); i++) {
        struct value array;
        truce_status status = truce__expression_run(node->operands[i], run, &array);
        if (status)
            return status;
        if (truce__value_is_nullish(array))
            return truce__evaluation_null(result);
        if (array.type != BSON_TYPE_ARRAY)
            return expression_set_refuse_type(node, run, 17047, array);
        status = expression_set_make_set(run, array, &next);
        if (status)
            return status;
        all = i == 0 ? next : intersect(all, next);
    }
    return truce__evaluation_array(run, all.items, all.count, result);
}

static truce_status evaluate_union(const struct expression_node *node, struct evaluation *run,
                                   struct value *result)
{
    struct builder builder;
    struct value array;
    struct set all;
    truce_status status;

    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    for (uint32_t i = 0; i < node->count; i++) {
        struct fields fields;
        status = truce__expression_run(node->operands[i], run, &array);
        if (status)
            return status;
        if (truce__value_is_nullish(array))
            return truce__evaluation_null(result);
        if (array.type != BSON_TYPE_ARRAY)
            return expression_set_refuse_type(node, run, 17043, array);
        fields = truce__fields(array);
        while (truce__fields_next(&fields))
            truce__builder_element(&builder, fields.value);
    }
    status = truce__builder_finish(&builder, &array, run->error);
    if (!status)
        status = expression_set_make_set(run, array, &all);
    return status ? status : truce__evaluation_array(run, all.items, all.count, result);
}

const struct expression_operator truce__expressions_set[] = {
    {"$allElementsTrue", 1, 1, .apply = apply_all},
    {"$anyElementTrue", 1, 1, .apply = apply_any},
    {"$setDifference", 2, 2, .apply = apply_difference},
    {"$setIsSubset", 2, 2, .apply = apply_subset},
    {"$setEquals", 0, EXPRESSION_ANY, .evaluate = evaluate_equals, .prepare = prepare_equals},
    {"$setIntersection", 0, EXPRESSION_ANY, .evaluate = evaluate_intersection},
    {"$setUnion", 0, EXPRESSION_ANY, .evaluate = evaluate_union},
    {NULL},
};
