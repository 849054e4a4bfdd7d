/*
 * Documents put aside: for sorts that no index gives, and for writes, which look for what they
 * change before they change anything.
 *
 * Sorted ones go through query/sort.h's sorter, packed as
 *
 *     | row, 8 bytes | array index of the match, 8 bytes | the document |
 */
#include "base/assert.h"
#include "engine/query.h"

struct packed {
    int64_t row, array_index;
};

void truce__found_pack(const struct found *found, struct buffer *packed)
{
    struct packed head = {found->row, found->match.array_index};

    packed->size = 0;
    truce__buffer_append(packed, &head, sizeof head);
    truce__buffer_append(packed, bson_get_data(&found->document), found->document.len);
}

void truce__found_unpack(const void *packed, uint32_t size, struct found *found)
{
    bool sound;
    struct packed head;

    truce_assert(size > sizeof head);
    memcpy(&head, packed, sizeof head);
    found->row = head.row;
    found->match = (struct match_result){.matched = true, .array_index = head.array_index};
    sound = bson_init_static(&found->document, (const uint8_t *)packed + sizeof head,
                             size - sizeof head);
    truce_assert(sound);
}

void truce__gather_release(struct gather *gather)
{
    for (size_t i = 0; i < gather->count; i++) {
        if (gather->items[i].document)
            bson_destroy(gather->items[i].document);
    }
    bson_free(gather->items);
    *gather = (struct gather){0};
}

void truce__gather_add(struct gather *gather, const struct found *found)
{
    struct gathered *item;

    if (gather->count == gather->room) {
        gather->room = gather->room ? gather->room * 2 : 4;
        gather->items = bson_realloc(gather->items, gather->room * sizeof *gather->items);
    }
    item = &gather->items[gather->count++];
    item->row = found->row;
    item->match = found->match;
    item->document = gather->rows_only ? NULL : bson_copy(&found->document);
}
