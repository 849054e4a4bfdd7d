#include "base/buffer.h"
#include "bson/keys.h"
#include "bson/number.h"
#include "query/expression/expression_tree.h"
#include "query/sort/sort.h"

/* Arrays in order: $sortArray, and the first, last, least, and greatest elements. */

static void merge_runs(const struct value *from, struct value *to, uint32_t low, uint32_t middle,
                       uint32_t high, values_order *order, const void *arg)
{
    uint32_t a = low, b = middle;

    for (uint32_t at = low; at < high; at++) {
        bool take_a = b == high || (a < middle && order(from[a], from[b], arg) <= 0);
        to[at] = take_a ? from[a++] : from[b++];
    }
}

static int natural(struct value a, struct value b, const void *arg)
{
    return truce__value_compare(a, b);
}

void truce__values_sort(struct value *items, uint32_t count, struct value *scratch,
                        values_order *order, const void *arg)
{
    struct value *from = items, *to = scratch;

    if (!order)
        order = natural;
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

uint32_t truce__values_search(const struct value *items, uint32_t count, struct value item)
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
    /* sortBy: 1 or -1 compares the elements themselves */
    bool whole;
    bool descending;
};

/* An element with its key, which memcmp orders. */
struct keyed {
    struct value item;
    const uint8_t *key;
    size_t size;
    /* the offset in the buffer of keys */
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

/* $sortArray compares a field that holds an array as a whole, unlike a sort of documents. */
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
        truce__values_sort(items, count, scratch, order_keys, NULL);
    for (uint32_t i = 0; i < count; i++)
        items[i] = ((const struct keyed *)(const void *)items[i].data)->item;
    truce__buffer_release(&keys);
    return status;
}

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
        truce__values_sort(items, count, scratch, sort->descending ? order_down : NULL, NULL);
    else
        status = sort_by_fields(&sort->fields, run, items, count, scratch);
    return status ? status : truce__evaluation_array(run, items, count, result);
}

static void release_sort(void *sort)
{
    truce__sort_release(sort);
}

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
        return truce__refuse(2942506, compiler->error, "\"sortBy\" of $sortArray must be 1 or -1");
    sort->descending = direction < 0;
    return TRUCE_OK;
}

static truce_status compile_sort(struct expression_compiler *compiler,
                                 const struct expression_operator *operator, struct value argument,
                                 struct expression_node **node)
{
    struct array_sort *sort = truce__arena_take(compiler->arena, sizeof *sort);
    struct value input = truce__value_missing(), by = truce__value_missing();
    struct fields fields;
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(2942500, compiler->error, "$sortArray takes a document of arguments");
    fields = truce__fields(argument);
    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "input"))
            input = fields.value;
        else if (!strcmp(fields.key, "sortBy"))
            by = fields.value;
        else
            return truce__refuse(2942501, compiler->error,
                                 "$sortArray does not take the argument \"%s\"", fields.key);
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
        return truce__refuse(5787902, run->error, "\"n\" of %s must be an integer, not %s",
                             truce__expression_name(node), truce__type_name(value.type));
    if (*n < 1)
        return truce__refuse(5787908, run->error, "\"n\" of %s must be positive",
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
    truce__values_sort(items, kept, scratch, descending ? order_down : NULL, NULL);
    return kept;
}

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

const struct expression_operator truce__expressions_order[] = {
    {"$sortArray", .evaluate = evaluate_sort, .compile = compile_sort},
    {"$firstN", .apply = apply_some, .arguments = &some_arguments, .extra = &some_first},
    {"$lastN", .apply = apply_some, .arguments = &some_arguments, .extra = &some_last},
    {"$minN", .apply = apply_some, .arguments = &some_arguments, .extra = &some_least},
    {"$maxN", .apply = apply_some, .arguments = &some_arguments, .extra = &some_greatest},
    {NULL},
};
