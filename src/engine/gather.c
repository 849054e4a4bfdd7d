/*
 * Documents put aside: for sorts that no index gives, and for writes, which look for what they
 * change before they change anything.
 *
 * With a sort and a number wanted, twice as many are kept at most: whenever so many have come, they
 * are sorted and the better half stays.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "engine/query.h"

#define CODE_SORT_MEMORY 292 /* QueryExceededMemoryLimitNoDiskUseAllowed */

truce_status truce__gather_init(struct gather *gather, const bson_t *sort, bool rows_only,
                                int64_t first, bson_error_t *error)
{
    *gather = (struct gather){.rows_only = rows_only, .first = first};
    return sort && !bson_empty(sort) ? truce__sort_parse(sort, &gather->sort, error) : TRUCE_OK;
}

static void release_item(struct gather *gather, struct gathered *item)
{
    gather->bytes -= item->key_size + (item->document ? item->document->len : 0);
    bson_free(item->key);
    if (item->document)
        bson_destroy(item->document);
}

void truce__gather_release(struct gather *gather)
{
    for (size_t i = 0; i < gather->count; i++)
        release_item(gather, &gather->items[i]);
    bson_free(gather->items);
    truce__sort_release(&gather->sort);
    truce__buffer_release(&gather->scratch);
    *gather = (struct gather){0};
}

static int compare_items(const void *a, const void *b)
{
    const struct gathered *x = a, *y = b;
    size_t common = x->key_size < y->key_size ? x->key_size : y->key_size;
    int order = common ? memcmp(x->key, y->key, common) : 0;

    if (!order)
        order = (x->key_size > y->key_size) - (x->key_size < y->key_size);
    return order ? order : (x->order > y->order) - (x->order < y->order);
}

void truce__gather_finish(struct gather *gather)
{
    if (gather->sort.count && gather->count)
        qsort(gather->items, gather->count, sizeof *gather->items, compare_items);
    while (gather->first && gather->count > (size_t)gather->first)
        release_item(gather, &gather->items[--gather->count]);
}

static truce_status add_key(struct gather *gather, const bson_t *document, struct gathered *item,
                            bson_error_t *error)
{
    struct buffer *key = &gather->scratch;
    truce_status status;

    key->size = 0;
    status = truce__sort_key(&gather->sort, truce__value_document(document), key, error);
    if (status)
        return status;
    item->key = bson_malloc(key->size);
    memcpy(item->key, key->bytes, key->size);
    item->key_size = (uint32_t)key->size;
    return TRUCE_OK;
}

static struct gathered *push(struct gather *gather)
{
    if (gather->count == gather->room) {
        gather->room = gather->room ? gather->room * 2 : 4;
        gather->items = bson_realloc(gather->items, gather->room * sizeof *gather->items);
    }
    return &gather->items[gather->count++];
}

truce_status truce__gather_add(struct gather *gather, const struct found *found,
                               bson_error_t *error)
{
    struct gathered item = {.row = found->row, .match = found->match};
    truce_status status = TRUCE_OK;

    item.order = (uint32_t)gather->came++;
    if (gather->sort.count)
        status = add_key(gather, &found->document, &item, error);
    if (status)
        return status;
    if (!gather->rows_only)
        item.document = bson_copy(&found->document);
    gather->bytes += item.key_size + (item.document ? item.document->len : 0);
    *push(gather) = item;
    if (gather->sort.count && gather->first && gather->count >= 2 * (size_t)gather->first + 64)
        truce__gather_finish(gather);
    if (gather->bytes > TRUCE_STAGE_MEMORY_MAX)
        return truce__refuse(CODE_SORT_MEMORY, error,
                             "the sort needs more than %d MB of memory; an index on its fields, a "
                             "limit, or allow_disk_use would help",
                             TRUCE_STAGE_MEMORY_MAX >> 20);
    return TRUCE_OK;
}
