/* Arrays: elements by number, slices, searching, joining, ranges, sorting, and arrays as sets. Most
 * operators return null if the array is missing or null. */
#include "base/assert.h"
#include "base/buffer.h"
#include "bson/key_encoding.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "query/expression/expression_tree.h"
#include "query/sort/sort.h"

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

/* The size of the shortest array whose elements are listed. */
#define LIST_BYTES_MIN 512

/* Lists the elements of an array for repeated access. A loop may ask for the elements of the same
 * array one by one: pipelines count with a $map over a $range. The second request lists the
 * elements of the array, so that such a loop takes linear and not quadratic time. *list is NULL if
 * the array is short or new; the caller walks it then.
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

/* Returns the element of that index, from the list of elements if the array has one. */
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

/* Applies $arrayElemAt. A negative index counts from the end, and the result is missing if there is
 * no such element. */
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
        return truce__refuse_value(28691, operands[1], run->error,
                                   "the index of $arrayElemAt must be a 32-bit integer");
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

/* Evaluates $concatArrays. The operands after the first null one are not evaluated. */
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

/* Makes a set of the elements of a long array that is searched again, or returns the one made
 * before. Sets *set to NULL if the caller must walk the array. */
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

/* Applies $in: whether the array has an element that equals the value. */
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

/* Applies $indexOfArray, with an optional range. */
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
        status = truce__evaluation_bound(node, run, operands[2], &start);
    if (!status && node->count > 3)
        status = truce__evaluation_bound(node, run, operands[3], &end);
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

/* Applies $reverseArray. */
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

/* Sets *result to up to `count` elements of the array from `first` on, which counts from the end if
 * it is negative. */
static truce_status array_make_slice(struct evaluation *run, struct value array, int64_t first,
                                     int64_t count, struct value *result)
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

/* Applies $slice. With two operands, a negative number takes elements from the end; with three, it
 * is the start, counted from the end. */
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
        return truce__refuse_value(28725, operands[1], run->error,
                                   "the second operand of $slice must be a number");
    if (!truce__value_to_int32(operands[1], &first))
        return truce__refuse_value(28726, operands[1], run->error,
                                   "the second operand of $slice must be a 32-bit integer");
    if (node->count == 2)
        return first >= 0 ? array_make_slice(run, operands[0], 0, first, result)
                          : array_make_slice(run, operands[0], first, INT32_MAX, result);
    if (truce__value_is_nullish(operands[2]))
        return truce__evaluation_null(result);
    if (!truce__value_is_number(operands[2]))
        return truce__refuse_value(28727, operands[2], run->error,
                                   "the third operand of $slice must be a number");
    if (!truce__value_to_int32(operands[2], &count))
        return truce__refuse_value(28728, operands[2], run->error,
                                   "the third operand of $slice must be a 32-bit integer");
    if (count <= 0)
        return truce__refuse_value(28729, operands[2], run->error,
                                   "the third operand of $slice must be positive");
    return array_make_slice(run, operands[0], first, count, result);
}

/* -- $range ----------------------------------------------------------------------------------- */

/* Applies $range: the numbers from the start up to, but not including, the end. */
static truce_status apply_range(const struct expression_node *node, struct evaluation *run,
                                const struct value *operands, struct value *result)
{
    int32_t start, end, step = 1;
    struct builder builder;
    truce_status status = truce__evaluation_int32(node, run, operands[0], "start", 34443, &start);

    if (!status)
        status = truce__evaluation_int32(node, run, operands[1], "end", 34445, &end);
    if (!status && node->count > 2)
        status = truce__evaluation_int32(node, run, operands[2], "step", 34447, &step);
    if (status)
        return status;
    if (step == 0)
        return truce__refuse(34449, run->error, "the step of $range must not be 0");
    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    for (int64_t at = start; !builder.full && (step > 0 ? at < end : at > end); at += step) {
        int32_t number = (int32_t)at;
        struct value item = {(const uint8_t *)&number, 4, BSON_TYPE_INT32};
        truce__builder_element(&builder, item);
    }
    return truce__builder_finish(&builder, result, run->error);
}

/* -- $zip ------------------------------------------------------------------------------------- */

/* A $zip. Its operands are the inputs, and then a default or NULL for each. */
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

/* Makes the rows of a $zip: up to the end of the shortest input, or with `longest`, of the longest
 * one. */
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

/* Evaluates the arrays and the defaults of a $zip, and then its rows. */
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

/* Reads the arguments of $zip. */
static truce_status read_zip(struct expression_compiler *compiler, struct value argument,
                             struct value *inputs, struct value *defaults, bool *longest)
{
    struct fields fields;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse_value(34460, argument, compiler->error,
                                   "$zip takes a document of arguments");
    fields = truce__fields(argument);
    while (truce__fields_next(&fields)) {
        struct value value = fields.value;
        if (!strcmp(fields.key, "inputs")) {
            if (value.type != BSON_TYPE_ARRAY)
                return truce__refuse_value(34461, value, compiler->error,
                                           "\"inputs\" of $zip must be an array");
            *inputs = value;
        } else if (!strcmp(fields.key, "defaults")) {
            if (value.type != BSON_TYPE_ARRAY)
                return truce__refuse_value(34462, value, compiler->error,
                                           "\"defaults\" of $zip must be an array");
            *defaults = value;
        } else if (!strcmp(fields.key, "useLongestLength")) {
            if (value.type != BSON_TYPE_BOOL)
                return truce__refuse_value(34463, value, compiler->error,
                                           "\"useLongestLength\" of $zip must be true or false");
            *longest = truce__value_bool(value);
        } else {
            return truce__refuse(
                34464, compiler->error,
                "$zip does not take the argument \"%s\": expected inputs, useLongestLength, or "
                "defaults",
                fields.key);
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

/* Compiles a $zip into its inputs and its defaults. */
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
        return truce__refuse(34467, compiler->error,
                             "$zip needs as many defaults as inputs, and has %u and %u",
                             truce__array_count(defaults), zip->inputs);
    node = truce__expression_node(compiler, operator, 2 * zip->inputs);
    node->extra = zip;
    status = compile_list(compiler, inputs, node->operands);
    if (!status && defaults.type != VALUE_MISSING)
        status = compile_list(compiler, defaults, node->operands + zip->inputs);
    *result = node;
    return status;
}

/* ---- arrays in order ------------------------------------------------------------------------- */

/* Arrays in order: $sortArray, and the first, last, least, and greatest elements. */

typedef int values_order(struct value a, struct value b, const void *arg);

static void merge_runs(const struct value *from, struct value *to, uint32_t low, uint32_t middle,
                       uint32_t high, values_order *order, const void *arg)
{
    uint32_t a = low, b = middle;

    for (uint32_t at = low; at < high; at++) {
        bool take_a = b == high || (a < middle && order(from[a], from[b], arg) <= 0);
        to[at] = take_a ? from[a++] : from[b++];
    }
}

static int array_compare_values(struct value a, struct value b, const void *arg)
{
    return truce__value_compare(a, b);
}

/* Sorts by a stable merge sort; `scratch` has room for `count` values. If `order` is NULL, sorts in
 * the order of values. */
static void values_sort(struct value *items, uint32_t count, struct value *scratch,
                        values_order *order, const void *arg)
{
    struct value *from = items, *to = scratch;

    if (!order)
        order = array_compare_values;
    for (uint64_t width = 1; width < count; width *= 2) {
        struct value *other = from;
        for (uint64_t low = 0; low < count; low += 2 * width)
            merge_runs(from, to, (uint32_t)low, (uint32_t)BSON_MIN(low + width, count),
                       (uint32_t)BSON_MIN(low + 2 * width, count), order, arg);
        from = to;
        to = other;
    }
    if (from != items)
        memcpy(items, from, count * sizeof *items);
}

/* Returns the position of an equal item in an ascending list, or `count`. */
static uint32_t values_search(const struct value *items, uint32_t count, struct value item)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = truce__value_compare(items[middle], item);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return count;
}

/* -- $sortArray ------------------------------------------------------------------------------- */

struct array_sort {
    struct sort fields;
    /* sortBy is 1 or -1, which compares the elements themselves. */
    bool whole;
    bool descending;
};

/* An element with its sort key. memcmp compares two keys. */
struct keyed {
    struct value item;
    const uint8_t *key;
    size_t size;
    /* The offset in the buffer of keys. */
    size_t at;
};

static int order_down(struct value a, struct value b, const void *arg)
{
    return truce__value_compare(b, a);
}

/* Compares two keys; the data of each value is a struct keyed. */
static int order_keys(struct value a, struct value b, const void *arg)
{
    const struct keyed *left = (const void *)a.data, *right = (const void *)b.data;

    return truce__bytes_compare(left->key, left->size, right->key, right->size);
}

/* Returns the value at the path of a document; a path enters an array only by a number. */
static struct value order_value_at(struct value document, const struct path *path)
{
    struct value value = document;

    for (uint32_t i = 0; i < path->count; i++) {
        if (!truce__value_is_container(value))
            return truce__value_null();
        value = truce__value_field(value, path->parts[i].name, path->parts[i].length);
    }
    return value.type == VALUE_MISSING ? truce__value_null() : value;
}

/* Makes the sort keys of the elements. $sortArray compares a field that holds an array as a whole,
 * unlike a sort of documents. */
static truce_status order_make_keys(const struct sort *sort, struct evaluation *run,
                                    struct keyed *keyed, uint32_t count, struct buffer *keys)
{
    for (uint32_t i = 0; i < count; i++) {
        struct value document = keyed[i].item;

        if (document.type != BSON_TYPE_DOCUMENT)
            document = truce__value_missing();
        keyed[i].at = keys->size;
        for (uint32_t j = 0; j < sort->count; j++)
            truce__key_append(keys, order_value_at(document, &sort->fields[j].path),
                              sort->fields[j].descending);
        if (run->arena->bytes + keys->size > run->bytes_max)
            return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, run->error,
                                 "$sortArray takes more than %zu bytes of memory", run->bytes_max);
        keyed[i].size = keys->size - keyed[i].at;
    }
    for (uint32_t i = 0; i < count; i++)
        keyed[i].key = keys->bytes + keyed[i].at;
    return TRUCE_OK;
}

/* Sorts the elements by their sort keys. Each item points to its key while it is sorted. */
static truce_status sort_by_fields(const struct sort *sort, struct evaluation *run,
                                   struct value *items, uint32_t count, struct value *scratch)
{
    struct keyed *keyed = truce__evaluation_take(run, count * sizeof *keyed);
    struct buffer keys = {0};
    truce_status status;

    if (!keyed)
        return TRUCE_LIMIT;
    for (uint32_t i = 0; i < count; i++) {
        keyed[i] = (struct keyed){.item = items[i]};
        items[i] = (struct value){(const uint8_t *)&keyed[i], 0, 0};
    }
    status = order_make_keys(sort, run, keyed, count, &keys);
    if (!status)
        values_sort(items, count, scratch, order_keys, NULL);
    for (uint32_t i = 0; i < count; i++)
        items[i] = ((const struct keyed *)(const void *)items[i].data)->item;
    truce__buffer_release(&keys);
    return status;
}

/* Evaluates $sortArray: by whole elements, or by their fields. */
static truce_status evaluate_sort(const struct expression_node *node, struct evaluation *run,
                                  struct value *result)
{
    const struct array_sort *sort = node->extra;
    struct value input, *items, *scratch;
    uint32_t count;
    truce_status status = truce__expression_run(node->operands[0], run, &input);

    if (status)
        return status;
    if (truce__value_is_nullish(input)) {
        *result = truce__value_null();
        return TRUCE_OK;
    }
    if (input.type != BSON_TYPE_ARRAY)
        return truce__refuse(2942504, run->error,
                             "the input of $sortArray must be an array, not %s",
                             truce__type_name(input.type));
    status = truce__evaluation_items(run, input, &items, &count);
    if (status)
        return status;
    scratch = truce__evaluation_take(run, count * sizeof *scratch);
    if (!scratch)
        return TRUCE_LIMIT;
    if (sort->whole)
        values_sort(items, count, scratch, sort->descending ? order_down : NULL, NULL);
    else
        status = sort_by_fields(&sort->fields, run, items, count, scratch);
    return status ? status : truce__evaluation_array(run, items, count, result);
}

static void release_sort(void *sort)
{
    truce__sort_release(sort);
}

/* Reads the argument sortBy of $sortArray. */
static truce_status read_sort(struct expression_compiler *compiler, struct value by,
                              struct array_sort *sort)
{
    bson_t specification;
    int32_t direction;
    truce_status status;

    *sort = (struct array_sort){.whole = by.type != BSON_TYPE_DOCUMENT};
    if (by.type == BSON_TYPE_DOCUMENT) {
        truce__value_bson(by, &specification);
        status = truce__sort_parse(&specification, &sort->fields, compiler->error);
        if (status)
            return status;
        truce__expression_own(compiler, &sort->fields, release_sort);
        if (sort->fields.count == 0)
            return truce__refuse(15976, compiler->error, "\"sortBy\" of $sortArray has no field");
        return TRUCE_OK;
    }
    if (!truce__value_is_number(by))
        return truce__refuse(2942507, compiler->error,
                             "\"sortBy\" of $sortArray must be 1, -1 or a document, not %s",
                             truce__type_name(by.type));
    if (!truce__value_to_int32(by, &direction) || (direction != 1 && direction != -1))
        return truce__refuse_value(2942506, by, compiler->error,
                                   "\"sortBy\" of $sortArray must be 1 or -1");
    sort->descending = direction < 0;
    return TRUCE_OK;
}

/* Compiles $sortArray. Its sortBy is not an expression. */
static truce_status compile_sort(struct expression_compiler *compiler,
                                 const struct expression_operator *operator, struct value argument,
                                 struct expression_node **node)
{
    struct array_sort *sort = truce__arena_take(compiler->arena, sizeof *sort);
    struct value input = truce__value_missing(), by = truce__value_missing();
    struct fields fields;
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse_value(2942500, argument, compiler->error,
                                   "$sortArray takes a document of arguments");
    fields = truce__fields(argument);
    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "input"))
            input = fields.value;
        else if (!strcmp(fields.key, "sortBy"))
            by = fields.value;
        else
            return truce__refuse(
                2942501, compiler->error,
                "$sortArray does not take the argument \"%s\": expected input or sortBy",
                fields.key);
    }
    if (input.type == VALUE_MISSING)
        return truce__refuse(2942502, compiler->error, "$sortArray needs the argument \"input\"");
    if (by.type == VALUE_MISSING)
        return truce__refuse(2942503, compiler->error, "$sortArray needs the argument \"sortBy\"");
    *node = truce__expression_node(compiler, operator, 1);
    (*node)->extra = sort;
    status = read_sort(compiler, by, sort);
    if (!status)
        status = truce__expression_compile(compiler, input, &(*node)->operands[0]);
    return status ? status : truce__expression_fold(compiler, node);
}

/* -- the first, last, least and greatest n ----------------------------------------------------- */

enum { SOME_N, SOME_INPUT };
enum some { SOME_FIRST, SOME_LAST, SOME_LEAST, SOME_GREATEST };

static truce_status read_n(const struct expression_node *node, struct evaluation *run,
                           struct value value, int64_t *n)
{
    if (!truce__value_is_number(value) || !truce__number_to_int64(value, n))
        return truce__refuse_value(5787902, value, run->error, "\"n\" of %s must be an integer",
                                   truce__expression_name(node));
    if (*n < 1)
        return truce__refuse_value(5787908, value, run->error, "\"n\" of %s must be positive",
                                   truce__expression_name(node));
    return TRUCE_OK;
}

/* Sorts the items without null and missing values. */
static uint32_t order_items(struct value *items, uint32_t count, struct value *scratch,
                            bool descending)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (!truce__value_is_nullish(items[i]))
            items[kept++] = items[i];
    }
    values_sort(items, kept, scratch, descending ? order_down : NULL, NULL);
    return kept;
}

/* Applies $firstN, $lastN, $minN, or $maxN to an array. */
static truce_status apply_some(const struct expression_node *node, struct evaluation *run,
                               const struct value *operands, struct value *result)
{
    enum some some = *(const enum some *)node->extra;
    struct value *items, *scratch;
    uint32_t count, first = 0;
    int64_t n;
    truce_status status = read_n(node, run, operands[SOME_N], &n);

    if (status)
        return status;
    if (operands[SOME_INPUT].type != BSON_TYPE_ARRAY)
        return truce__refuse(5788200, run->error, "the input of %s must be an array, not %s",
                             truce__expression_name(node),
                             truce__type_name(operands[SOME_INPUT].type));
    status = truce__evaluation_items(run, operands[SOME_INPUT], &items, &count);
    if (status)
        return status;
    if (some == SOME_LEAST || some == SOME_GREATEST) {
        scratch = truce__evaluation_take(run, count * sizeof *scratch);
        if (!scratch)
            return TRUCE_LIMIT;
        count = order_items(items, count, scratch, some == SOME_GREATEST);
    }
    if (some == SOME_LAST && n < count)
        first = count - (uint32_t)n;
    return truce__evaluation_array(run, items + first,
                                   (uint32_t)BSON_MIN(n, (int64_t)(count - first)), result);
}

static const enum some some_first = SOME_FIRST, some_last = SOME_LAST, some_least = SOME_LEAST,
                       some_greatest = SOME_GREATEST;

static const struct expression_arguments some_arguments = {
    5787900, 5787901, {{"n", 5787906}, {"input", 5787907}}};

/* ---- arrays as sets -------------------------------------------------------------------------- */

/*
 * Arrays as sets: order and repetition do not matter, and elements are equal as in all comparisons
 * (1 and 1.0 are one element; the first of several equal elements is used). A set is a sorted list.
 */

struct set {
    /* The elements, ascending and without duplicates. */
    struct value *items;
    uint32_t count;
};

/* Makes a set of the elements of an array: sorts them, and removes all but the first of equal
 * ones. */
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
    values_sort(set->items, set->count, scratch, NULL, NULL);
    for (uint32_t i = 0; i < set->count; i++) {
        if (!kept || !truce__value_equal(set->items[kept - 1], set->items[i]))
            set->items[kept++] = set->items[i];
    }
    set->count = kept;
    return TRUCE_OK;
}

static bool expression_set_has(const struct set *set, struct value item)
{
    return values_search(set->items, set->count, item) < set->count;
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
static truce_status expression_set_subtract(struct evaluation *run, struct value left,
                                            struct value right, struct value *result)
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
        uint32_t at = values_search(all.items, all.count, fields.value);
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
    return expression_set_subtract(run, operands[0], operands[1], result);
}

/* Applies $setIsSubset: whether the second array has all elements of the first. An operand that is
 * null or missing is refused, too. */
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

/* Evaluates $setEquals: whether all sets are equal. */
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
static struct set expression_set_intersect(struct set a, struct set b)
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

/* Evaluates $setIntersection. The operands after an empty intersection are not evaluated. */
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
        all = i == 0 ? next : expression_set_intersect(all, next);
    }
    return truce__evaluation_array(run, all.items, all.count, result);
}

/* Evaluates $setUnion: collects the elements of all arrays, and then removes repeated ones. */
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

/* -- the table --------------------------------------------------------------------------------- */

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
    {"$sortArray", .evaluate = evaluate_sort, .compile = compile_sort},
    {"$firstN", .apply = apply_some, .arguments = &some_arguments, .extra = &some_first},
    {"$lastN", .apply = apply_some, .arguments = &some_arguments, .extra = &some_last},
    {"$minN", .apply = apply_some, .arguments = &some_arguments, .extra = &some_least},
    {"$maxN", .apply = apply_some, .arguments = &some_arguments, .extra = &some_greatest},
    {"$allElementsTrue", 1, 1, .apply = apply_all},
    {"$anyElementTrue", 1, 1, .apply = apply_any},
    {"$setDifference", 2, 2, .apply = apply_difference},
    {"$setIsSubset", 2, 2, .apply = apply_subset},
    {"$setEquals", 0, EXPRESSION_ANY, .evaluate = evaluate_equals, .prepare = prepare_equals},
    {"$setIntersection", 0, EXPRESSION_ANY, .evaluate = evaluate_intersection},
    {"$setUnion", 0, EXPRESSION_ANY, .evaluate = evaluate_union},
    {NULL},
};
