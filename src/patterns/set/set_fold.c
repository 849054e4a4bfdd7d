/* Folding a batch: its operations in the order of (document, name, rank falling), so that the first
 * of each name is the one that in-order delivery of the batch would leave. */
#include <stdlib.h>

#include "patterns/set/set.h"

static struct value key_field(const truce_set *set, const bson_t *key, uint32_t i)
{
    return truce__value_field(truce__value_document(key), set->keys[i], strlen(set->keys[i]));
}

uint64_t truce__set_key_hash(const truce_set *set, const bson_t *key)
{
    uint64_t hash = 0;

    for (uint32_t i = 0; i < set->keys_count; i++)
        hash = hash * 0x9e3779b97f4a7c15u + truce__value_hash(key_field(set, key, i));
    return hash;
}

bool truce__set_name_equal(struct value a, struct value b)
{
    if (a.type == b.type && a.type == BSON_TYPE_UTF8)
        return a.size == b.size && !memcmp(a.data, b.data, a.size);
    return truce__value_equal(a, b);
}

static int compare_keys(const truce_set *set, const bson_t *a, const bson_t *b)
{
    for (uint32_t i = 0; i < set->keys_count; i++) {
        int order = truce__value_compare(key_field(set, a, i), key_field(set, b, i));

        if (order)
            return order;
    }
    return 0;
}

bool truce__set_key_equal(const truce_set *set, const bson_t *a, const bson_t *b)
{
    return compare_keys(set, a, b) == 0;
}

static int fold_compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int fold_compare(const void *left, const void *right, void *arg)
{
    const struct set_operation *a = left, *b = right;
    int order = fold_compare_numbers(a->key_hash, b->key_hash);

    if (!order)
        order = compare_keys(arg, a->given->key, b->given->key);
    if (!order)
        order = fold_compare_numbers(a->name_hash, b->name_hash);
    if (!order)
        order = truce__value_compare(a->name, b->name);
    if (!order)
        order = truce__set_rank_compare(&b->rank, &a->rank);
    if (!order)
        order = fold_compare_numbers((uintptr_t)a->call, (uintptr_t)b->call);
    return order ? order : fold_compare_numbers(a->number, b->number);
}

void truce__set_fold(const truce_set *set, struct set_operation *operations, size_t count)
{
    qsort_r(operations, count, sizeof *operations, fold_compare, (void *)set);
}
