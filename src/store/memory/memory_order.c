/*
 * The order of documents without a sort: that of the plan which a file with the same documents and indexes
 * makes (engine/documents/plan.h). The plan decides the order only, and never which documents match.
 *
 * The place of a document is (number of the scan, key): of its first key that lies in a range of the plan. Documents of
 * the same place keep the order of insertion.
 */
#include <stdlib.h>

#include "engine/documents/plan.h"
#include "store/memory/memory.h"

struct order_item {
    struct memory_match match;
    uint32_t scan; /* number in the plan */
    const uint8_t *key;
    size_t size;
    size_t inserted; /* position among the matches */
};

/* As the catalog of a file shows it; it borrows the definitions of the indexes. */
static void order_describe(const struct memory_collection *collection, struct collection *described)
{
    *described = (struct collection){.indexes_count = collection->indexes_count};
    described->indexes = bson_malloc0(collection->indexes_count * sizeof *described->indexes);
    for (uint32_t i = 0; i < collection->indexes_count; i++) {
        struct index *index = &described->indexes[i];

        *index = (struct index){.id = i + 1, .state = INDEX_READY, .spec = *collection->indexes[i]};
        for (size_t k = 0; k < collection->count; k++)
            index->multikey_fields |= collection->documents[k]->keys[i].multikey_fields;
    }
}

static bool order_within(const struct plan_scan *scan, const uint8_t *key, size_t size)
{
    uint32_t low = 0, high = scan->count;

    /* the last range that begins at the key or before it */
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const struct buffer *from = &scan->ranges[middle].from;

        if (truce__bytes_compare(from->bytes, from->size, key, size) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low)
        return false;
    return !scan->ranges[low - 1].to.size ||
           truce__bytes_compare(key, size, scan->ranges[low - 1].to.bytes,
                                scan->ranges[low - 1].to.size) < 0;
}

/* The least key of the document that the scan looks at; false: it looks at none. */
static bool order_find_key(const struct plan_scan *scan, const struct field_keys *keys,
                           struct order_item *item)
{
    item->key = NULL;
    for (uint32_t i = 0; i < keys->count; i++) {
        uint32_t begin = i ? keys->ends[i - 1] : 0;
        const uint8_t *key = keys->bytes.bytes + begin;
        size_t size = keys->ends[i] - begin;

        if (!order_within(scan, key, size) ||
            (item->key && truce__bytes_compare(item->key, item->size, key, size) <= 0))
            continue;
        item->key = key;
        item->size = size;
    }
    return item->key;
}

static int order_compare(const void *a, const void *b)
{
    const struct order_item *x = a, *y = b;
    int order = (x->scan > y->scan) - (x->scan < y->scan);

    if (!order)
        order = truce__bytes_compare(x->key, x->size, y->key, y->size);
    return order ? order : (x->inserted > y->inserted) - (x->inserted < y->inserted);
}

static void order_arrange(const struct plan *plan, struct memory_matches *matches)
{
    struct order_item *items = bson_malloc0(matches->count * sizeof *items);

    for (size_t i = 0; i < matches->count; i++) {
        struct order_item *item = &items[i];

        item->match = matches->items[i];
        item->inserted = i;
        while (item->scan < plan->count &&
               !order_find_key(&plan->scans[item->scan],
                               &item->match.document->keys[plan->scans[item->scan].index - 1],
                               item))
            item->scan++;
        if (!item->key)
            item->key = (const uint8_t *)"";
    }
    qsort(items, matches->count, sizeof *items, order_compare);
    for (size_t i = 0; i < matches->count; i++)
        matches->items[i] = items[i].match;
    bson_free(items);
}

truce_status truce__memory_order(const struct memory_collection *collection,
                                 const struct memory_query *query, struct memory_matches *matches,
                                 bson_error_t *error)
{
    struct collection described;
    struct plan_request request = {.collection = &described,
                                   .match = query->match,
                                   .hint = query->hint,
                                   .min = query->min,
                                   .max = query->max};
    struct plan plan = {0};
    truce_status status;

    if (matches->count < 2)
        return TRUCE_OK;
    order_describe(collection, &described);
    status = truce__plan_make(&request, &plan, error);
    /* a scan of all rows keeps the order of insertion */
    if (!status && plan.count && plan.scans[0].index)
        order_arrange(&plan, matches);
    truce__plan_release(&plan);
    bson_free(described.indexes);
    return status;
}
