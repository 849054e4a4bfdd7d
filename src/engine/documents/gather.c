/*
 * Documents put aside: for sorts that no index gives, and for writes, which look for what they
 * change before they change anything.
 *
 * Sorted ones go through query/sort/sort.h's sorter, packed as
 *
 *     | row, 8 bytes | array index of the match, 8 bytes | the document |
 */
#include "base/assert.h"
#include "engine/documents/query.h"

struct packed {
    int64_t row, array_index;
};

void truce__found_pack(const struct found *found, struct buffer *packed)
{
    struct packed head = {found->row, found->match.array_index};

    packed->size = 0;
    truce__buffer_append(packed, &head, sizeof head);
    truce__buffer_append(packed, found->document.data, found->document.size);
}

void truce__found_unpack(const void *packed, uint32_t size, struct found *found)
{
    struct packed head;

    truce_assert(size > sizeof head);
    memcpy(&head, packed, sizeof head);
    found->row = head.row;
    found->match = (struct match_result){.matched = true, .array_index = head.array_index};
    found->document = (struct value){(const uint8_t *)packed + sizeof head,
                                     size - (uint32_t)sizeof head, BSON_TYPE_DOCUMENT};
}

void truce__gather_release(struct gather *gather)
{
    for (size_t i = 0; i < gather->count; i++) {
        if (gather->items[i].document)
            bson_destroy(gather->items[i].document);
    }
    if (gather->items != &gather->first)
        bson_free(gather->items);
    *gather = (struct gather){0};
}

/* Most have one item, which needs no memory of its own. */
static void gather_grow(struct gather *gather)
{
    struct gathered *more = &gather->first;

    gather->room = gather->room ? gather->room * 4 : 1;
    if (gather->room > 1)
        more = bson_malloc(gather->room * sizeof *more);
    if (gather->count)
        memcpy(more, gather->items, gather->count * sizeof *more);
    if (gather->items != &gather->first)
        bson_free(gather->items);
    gather->items = more;
}

void truce__gather_add(struct gather *gather, const struct found *found)
{
    struct gathered *item;
    bson_t document;

    if (gather->count == gather->room)
        gather_grow(gather);
    item = &gather->items[gather->count++];
    item->row = found->row;
    item->match = found->match;
    item->document = NULL;
    if (gather->rows_only)
        return;
    truce__value_bson(found->document, &document);
    if (gather->count == 1) {
        item->document = &gather->first_document;
        bson_copy_to(&document, item->document);
    } else {
        item->document = bson_copy(&document);
    }
}
