#include "query/expression_tree.h"

/* Arrays in order: sorting. */

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

const struct expression_operator truce__expressions_order[] = {
    {NULL},
};
