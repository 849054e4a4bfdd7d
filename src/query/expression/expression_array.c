#include "base/assert.h"
#include "bson/number.h"
#include "query/expression/expression_tree.h"

/* Arrays: elements by number, slices, searching, joining, ranges. Most operators return null if the
 * array is missing or null. */

bool truce__value_to_int32(struct value value, int32_t *result)
{
    int64_t wide;

    if (!truce__value_is_number(value) || !truce__number_to_int64(value, &wide))
        return false;
    if (wide < INT32_MIN || wide > INT32_MAX)
        return false;
    *result = (int32_t)wide;
    return true;
}

/* Returns the element number `index`, counted from the end if it is negative; missing if it does
 * not exist. */
static struct value array_element_at(struct value array, int64_t index)
{
    struct fields fields = truce__fields(array);

    if (index < 0)
        index += truce__array_count(array);
    if (index < 0)
        return truce__value_missing();
    while (truce__fields_next(&fields)) {
        if (index-- == 0)
            return fields.value;
    }
    return truce__value_missing();
}

/* the elements of shorter arrays are not listed */
#define LIST_BYTES_MIN 512

/*
 * A loop may ask for the elements of the same array one by one: pipelines count with a $map over a
 * $range. The second request lists the elements of the array, so that such a loop takes linear and
 * not quadratic time. *list is NULL if the array is short or new; the caller walks it then.
 */
static truce_status array_list_of(struct evaluation *run, struct value array,
                                  const struct evaluation_list **listed)
{
    struct evaluation_list *list = &run->list;
    truce_status status = TRUCE_OK;

    *listed = NULL;
    if (list->data != array.data || array.size < LIST_BYTES_MIN) {
        *list = (struct evaluation_list){.data = array.data};
        return TRUCE_OK;
    }
    if (!list->items)
        status = truce__evaluation_items(run, array, &list->items, &list->count);
    if (!status)
        *listed = list;
    return status;
}

static truce_status find_element(struct evaluation *run, struct value array, int64_t index,
                                 struct value *result)
{
    const struct evaluation_list *list;
    truce_status status = array_list_of(run, array, &list);

    if (status)
        return status;
    if (!list) {
        *result = array_element_at(array, index);
        return TRUCE_OK;
    }
    if (index < 0)
        index += list->count;
    *result = index >= 0 && index < list->count ? list->items[index] : truce__value_missing();
    return TRUCE_OK;
}

static truce_status apply_element_at(const struct expression_node *node, struct evaluation *run,
                                     const struct value *operands, struct value *result)
{
    int32_t index;

    if (truce__value_is_nullish(operands[0]) || truce__value_is_nullish(operands[1]))
        return truce__evaluation_null(result);
    if (operands[0].type != BSON_TYPE_ARRAY)
        return truce__refuse(28689, run->error, "$arrayElemAt takes an array, not %s",
                             truce__type_name(operands[0].type));
    if (!truce__value_is_number(operands[1]))
        return truce__refuse(28690, run->error,
                             "the index of $arrayElemAt must be a number, not %s",
                             truce__type_name(operands[1].type));
    if (!truce__value_to_int32(operands[1], &index))
        return truce__refuse(28691, run->error,
                             "the index of $arrayElemAt is not a 32-bit integer");
    return find_element(run, operands[0], index, result);
}

static truce_status apply_end(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    bool last = !strcmp(truce__expression_name(node), "$last");

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (operands[0].type != BSON_TYPE_ARRAY)
        return truce__refuse(28689, run->error, "%s takes an array, not %s",
                             truce__expression_name(node), truce__type_name(operands[0].type));
    *result = array_element_at(operands[0], last ? -1 : 0);
    return TRUCE_OK;
}

static truce_status array_evaluate_concat(const struct expression_node *node,
                                          struct evaluation *run, struct value *result)
{
    struct builder builder;

    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    for (uint32_t i = 0; i < node->count; i++) {
        struct value array;
        struct fields fields;
        truce_status status = truce__expression_run(node->operands[i], run, &array);
        if (status)
            return status;
        if (truce__value_is_nullish(array))
            return truce__evaluation_null(result);
        if (array.type != BSON_TYPE_ARRAY)
            return truce__refuse(28664, run->error, "$concatArrays takes arrays, not %s",
                                 truce__type_name(array.type));
        fields = truce__fields(array);
        while (truce__fields_next(&fields))
            truce__builder_element(&builder, fields.value);
    }
    return truce__builder_finish(&builder, result, run->error);
}

/* *set is NULL if the caller is to walk the array. */
static truce_status set_of(struct evaluation *run, struct value array, struct value_set **set)
{
    struct evaluation_among *among = &run->among;
    struct fields fields;
    uint32_t number = 0;
    truce_status status = TRUCE_OK;

    *set = NULL;
    if (among->data != array.data || array.size < LIST_BYTES_MIN) {
        *among = (struct evaluation_among){.data = array.data};
        return truce__evaluation_spend(run, array.size / 16);
    }
    if (!among->set) {
        among->set = truce__evaluation_take(run, sizeof *among->set);
        if (!among->set)
            return TRUCE_LIMIT;
        truce__value_set_begin(among->set, run->arena, 0);
        fields = truce__fields(array);
        while (!status && truce__fields_next(&fields)) {
            (void)truce__value_set_add_number(among->set, fields.value, number++);
            status = truce__evaluation_check(run);
        }
    }
    *set = status ? NULL : among->set;
    return status;
}

static truce_status array_apply_in(const struct expression_node *node, struct evaluation *run,
                                   const struct value *operands, struct value *result)
{
    struct value_set *set = NULL;
    struct fields fields;
    truce_status status;
    bool found = false;

    if (operands[1].type != BSON_TYPE_ARRAY)
        return truce__refuse(40081, run->error, "$in takes an array as its second operand, not %s",
                             truce__type_name(operands[1].type));
    status = set_of(run, operands[1], &set);
    if (status)
        return status;
    if (set && operands[0].type != VALUE_MISSING)
        found = truce__value_set_has(set, operands[0]);
    fields = truce__fields(operands[1]);
    while (!set && !found && operands[0].type != VALUE_MISSING && truce__fields_next(&fields))
        found = truce__value_equal(operands[0], fields.value);
    *result = truce__value_from_bool(found);
    return TRUCE_OK;
}

/* Reads a bound of $indexOfArray: an integer that is not negative. */
static truce_status array_read_bound(const struct expression_node *node, struct evaluation *run,
                                     struct value value, int32_t *bound)
{
    if (!truce__value_to_int32(value, bound))
        return truce__refuse(40096, run->error, "a bound of %s must be a 32-bit integer, not %s",
                             truce__expression_name(node), truce__type_name(value.type));
    if (*bound < 0)
        return truce__refuse(40097, run->error, "a bound of %s is negative: %d",
                             truce__expression_name(node), *bound);
    return TRUCE_OK;
}

/* Returns the number of the first element in [start, end) that equals the value, or -1. */
static truce_status array_index_of(struct evaluation *run, struct value array, struct value value,
                                   int32_t start, int32_t end, int32_t *found)
{
    struct value_set *set;
    struct fields fields = truce__fields(array);
    truce_status status = set_of(run, array, &set);
    uint32_t first = 0;

    *found = -1;
    if (status || value.type == VALUE_MISSING)
        return status;
    if (set && (!truce__value_set_number(set, value, &first) || first >= (uint32_t)end))
        return TRUCE_OK;
    if (set && first >= (uint32_t)start) {
        *found = (int32_t)first;
        return TRUCE_OK;
    }
    for (int32_t at = 0; *found < 0 && at < end && truce__fields_next(&fields); at++) {
        if (at >= start && truce__value_equal(fields.value, value))
            *found = at;
    }
    return TRUCE_OK;
}

static truce_status apply_index_of(const struct expression_node *node, struct evaluation *run,
                                   const struct value *operands, struct value *result)
{
    int32_t start = 0, end = INT32_MAX, found;
    truce_status status = TRUCE_OK;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (operands[0].type != BSON_TYPE_ARRAY)
        return truce__refuse(40090, run->error, "$indexOfArray takes an array, not %s",
                             truce__type_name(operands[0].type));
    if (node->count > 2)
        status = array_read_bound(node, run, operands[2], &start);
    if (!status && node->count > 3)
        status = array_read_bound(node, run, operands[3], &end);
    if (!status)
        status = array_index_of(run, operands[0], operands[1], start, end, &found);
    if (!status)
        *result = truce__value_from_int32(run->arena, found);
    return status;
}

static truce_status apply_is_array(const struct expression_node *node, struct evaluation *run,
                                   const struct value *operands, struct value *result)
{
    *result = truce__value_from_bool(operands[0].type == BSON_TYPE_ARRAY);
    return TRUCE_OK;
}

static truce_status apply_reverse(const struct expression_node *node, struct evaluation *run,
                                  const struct value *operands, struct value *result)
{
    struct value *items;
    uint32_t count;
    truce_status status;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    if (operands[0].type != BSON_TYPE_ARRAY)
        return truce__refuse(34435, run->error, "$reverseArray takes an array, not %s",
                             truce__type_name(operands[0].type));
    status = truce__evaluation_items(run, operands[0], &items, &count);
    if (status)
        return status;
    for (uint32_t i = 0; i < count / 2; i++) {
        struct value other = items[i];
        items[i] = items[count - 1 - i];
        items[count - 1 - i] = other;
    }
    return truce__evaluation_array(run, items, count, result);
}

static truce_status apply_size(const struct expression_node *node, struct evaluation *run,
                               const struct value *operands, struct value *result)
{
    if (operands[0].type != BSON_TYPE_ARRAY)
        return truce__refuse(17124, run->error, "$size takes an array, not %s",
                             truce__type_name(operands[0].type));
    *result = truce__value_from_int32(run->arena, (int32_t)truce__array_count(operands[0]));
    return TRUCE_OK;
}

/* -- $slice ----------------------------------------------------------------------------------- */

/* A negative `first` counts from the end. */
static truce_status slice(struct evaluation *run, struct value array, int64_t first, int64_t count,
                          struct value *result)
{
    struct fields fields = truce__fields(array);
    const struct evaluation_list *list;
    struct builder builder;
    truce_status status = array_list_of(run, array, &list);

    if (status)
        return status;
    if (first < 0)
        first = BSON_MAX(0, first + (list ? list->count : truce__array_count(array)));
    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    for (int64_t at = first; list && at < list->count && at < first + count; at++)
        truce__builder_element(&builder, list->items[at]);
    for (int64_t at = 0; !list && at < first + count && truce__fields_next(&fields); at++) {
        if (at >= first)
            truce__builder_element(&builder, fields.value);
    }
    return truce__builder_finish(&builder, result, run->error);
}

static truce_status apply_slice(const struct expression_node *node, struct evaluation *run,
                                const struct value *operands, struct value *result)
{
    int32_t first, count;

    if (truce__value_is_nullish(operands[0]) || truce__value_is_nullish(operands[1]))
        return truce__evaluation_null(result);
    if (operands[0].type != BSON_TYPE_ARRAY)
        return truce__refuse(28724, run->error, "$slice takes an array, not %s",
                             truce__type_name(operands[0].type));
    if (!truce__value_is_number(operands[1]))
        return truce__refuse(28725, run->error, "the second operand of $slice must be a number");
    if (!truce__value_to_int32(operands[1], &first))
        return truce__refuse(28726, run->error,
                             "the second operand of $slice is not a 32-bit integer");
    if (node->count == 2)
        return first >= 0 ? slice(run, operands[0], 0, first, result)
                          : slice(run, operands[0], first, INT32_MAX, result);
    if (truce__value_is_nullish(operands[2]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[2]))
        return truce__refuse(28727, run->error, "the third operand of $slice must be a number");
    if (!truce__value_to_int32(operands[2], &count))
        return truce__refuse(28728, run->error,
                             "the third operand of $slice is not a 32-bit integer");
    if (count <= 0)
        return truce__refuse(28729, run->error, "the third operand of $slice must be positive");
    return slice(run, operands[0], first, count, result);
}

/* -- $range ----------------------------------------------------------------------------------- */

static truce_status read_range(struct evaluation *run, struct value value, const char *what,
                               uint32_t code, int32_t *result)
{
    if (!truce__value_is_number(value))
        return truce__refuse(code, run->error, "the %s of $range must be a number, not %s", what,
                             truce__type_name(value.type));
    if (!truce__value_to_int32(value, result))
        return truce__refuse(code + 1, run->error, "the %s of $range is not a 32-bit integer",
                             what);
    return TRUCE_OK;
}

static truce_status apply_range(const struct expression_node *node, struct evaluation *run,
                                const struct value *operands, struct value *result)
{
    int32_t start, end, step = 1;
    struct builder builder;
    truce_status status = read_range(run, operands[0], "start", 34443, &start);

    if (!status)
        status = read_range(run, operands[1], "end", 34445, &end);
    if (!status && node->count > 2)
        status = read_range(run, operands[2], "step", 34447, &step);
    if (status)
        return status;
    if (step == 0)
        return truce__refuse(34449, run->error, "the step of $range is zero");
    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    for (int64_t at = start; !builder.full && (step > 0 ? at < end : at > end); at += step) {
        int32_t number = (int32_t)at;
        struct value item = {(const uint8_t *)&number, 4, BSON_TYPE_INT32};
        truce__builder_element(&builder, item);
    }
    return truce__builder_finish(&builder, result, run->error);
}

/* -- $zip ------------------------------------------------------------------------------------- */

/* The operands are the inputs, then a default or NULL for each. */
struct zip {
    uint32_t inputs;
    bool longest;
};

static bool next_row(struct fields *columns, struct value *row, uint32_t count, bool longest)
{
    uint32_t got = 0;

    for (uint32_t i = 0; i < count; i++) {
        row[i] = truce__value_missing();
        if (truce__fields_next(&columns[i])) {
            row[i] = columns[i].value;
            got++;
        }
    }
    return longest ? got > 0 : got == count;
}

static truce_status zip_rows(const struct zip *zip, struct evaluation *run, struct fields *columns,
                             const struct value *defaults, struct value *result)
{
    struct value *row = truce__evaluation_take(run, zip->inputs * sizeof *row);
    struct builder builder;

    if (!row)
        return TRUCE_LIMIT;
    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    while (!builder.full && next_row(columns, row, zip->inputs, zip->longest)) {
        struct builder_mark mark = truce__builder_open_element(&builder, BSON_TYPE_ARRAY);
        for (uint32_t i = 0; i < zip->inputs; i++)
            truce__builder_element(&builder, row[i].type == VALUE_MISSING ? defaults[i] : row[i]);
        truce__builder_close(&builder, mark);
    }
    return truce__builder_finish(&builder, result, run->error);
}

static truce_status evaluate_zip(const struct expression_node *node, struct evaluation *run,
                                 struct value *result)
{
    const struct zip *zip = node->extra;
    struct fields *columns = truce__evaluation_take(run, zip->inputs * sizeof *columns);
    struct value *defaults = truce__evaluation_take(run, zip->inputs * sizeof *defaults);

    if (!columns || !defaults)
        return TRUCE_LIMIT;
    for (uint32_t i = 0; i < zip->inputs; i++) {
        struct value input;
        truce_status status = truce__expression_run(node->operands[i], run, &input);
        if (status)
            return status;
        if (truce__value_is_nullish(input))
            return truce__evaluation_null(result);
        if (input.type != BSON_TYPE_ARRAY)
            return truce__refuse(34468, run->error, "$zip takes arrays, not %s",
                                 truce__type_name(input.type));
        columns[i] = truce__fields(input);
        status = truce__expression_run(node->operands[zip->inputs + i], run, &defaults[i]);
        if (status)
            return status;
    }
    return zip_rows(zip, run, columns, defaults, result);
}

static truce_status read_zip(struct expression_compiler *compiler, struct value argument,
                             struct value *inputs, struct value *defaults, bool *longest)
{
    struct fields fields;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(34460, compiler->error, "$zip takes a document of arguments");
    fields = truce__fields(argument);
    while (truce__fields_next(&fields)) {
        struct value value = fields.value;
        if (!strcmp(fields.key, "inputs")) {
            if (value.type != BSON_TYPE_ARRAY)
                return truce__refuse(34461, compiler->error, "\"inputs\" of $zip must be an array");
            *inputs = value;
        } else if (!strcmp(fields.key, "defaults")) {
            if (value.type != BSON_TYPE_ARRAY)
                return truce__refuse(34462, compiler->error,
                                     "\"defaults\" of $zip must be an array");
            *defaults = value;
        } else if (!strcmp(fields.key, "useLongestLength")) {
            if (value.type != BSON_TYPE_BOOL)
                return truce__refuse(34463, compiler->error,
                                     "\"useLongestLength\" of $zip must be true or false");
            *longest = truce__value_bool(value);
        } else {
            return truce__refuse(34464, compiler->error, "$zip does not take \"%s\"", fields.key);
        }
    }
    return TRUCE_OK;
}

static truce_status compile_list(struct expression_compiler *compiler, struct value list,
                                 struct expression_node **operands)
{
    struct fields fields = truce__fields(list);

    for (uint32_t i = 0; truce__fields_next(&fields); i++) {
        truce_status status = truce__expression_compile(compiler, fields.value, &operands[i]);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

static truce_status compile_zip(struct expression_compiler *compiler,
                                const struct expression_operator *operator, struct value argument,
                                struct expression_node **result)
{
    struct value inputs = truce__value_missing(), defaults = truce__value_missing();
    struct zip *zip = truce__arena_take(compiler->arena, sizeof *zip);
    struct expression_node *node;
    bool longest = false;
    truce_status status = read_zip(compiler, argument, &inputs, &defaults, &longest);

    if (status)
        return status;
    *zip = (struct zip){inputs.type == VALUE_MISSING ? 0 : truce__array_count(inputs), longest};
    if (zip->inputs == 0)
        return truce__refuse(34465, compiler->error, "$zip needs at least one input");
    if (defaults.type != VALUE_MISSING && !longest)
        return truce__refuse(34466, compiler->error,
                             "$zip takes \"defaults\" only with \"useLongestLength\"");
    if (defaults.type != VALUE_MISSING && truce__array_count(defaults) != zip->inputs)
        return truce__refuse(34467, compiler->error, "$zip needs as many defaults as inputs");
    node = truce__expression_node(compiler, operator, 2 * zip->inputs);
    node->extra = zip;
    status = compile_list(compiler, inputs, node->operands);
    if (!status && defaults.type != VALUE_MISSING)
        status = compile_list(compiler, defaults, node->operands + zip->inputs);
    *result = node;
    return status;
}

const struct expression_operator truce__expressions_array[] = {
    {"$arrayElemAt", 2, 2, .apply = apply_element_at},
    {"$first", 1, 1, .apply = apply_end},
    {"$last", 1, 1, .apply = apply_end},
    {"$concatArrays", 0, EXPRESSION_ANY, .evaluate = array_evaluate_concat},
    {"$in", 2, 2, .apply = array_apply_in},
    {"$indexOfArray", 2, 4, EXPRESSION_RANGED, .apply = apply_index_of},
    {"$isArray", 1, 1, .apply = apply_is_array},
    {"$reverseArray", 1, 1, .apply = apply_reverse},
    {"$size", 1, 1, .apply = apply_size},
    {"$slice", 2, 3, EXPRESSION_RANGED, .apply = apply_slice},
    {"$range", 2, 3, EXPRESSION_RANGED, .apply = apply_range},
    {"$zip", .evaluate = evaluate_zip, .compile = compile_zip},
    {NULL},
};
