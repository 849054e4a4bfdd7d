/*
 * The documents of a collection by their _id, so that many of them in one transaction do not each look at all others.
 *
 * A table of pointers, open addressing, at most half full; what is removed is filled up from behind it (Knuth, The Art of
 * Computer Programming, volume 3, 6.4, algorithm R). A copy of a collection, which is only read, has none.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "store/memory/memory.h"

#define ROOM_LEAST 32

static struct value memory_ids_id_of(const struct memory_document *document)
{
    return truce__value_field(truce__value_document(document->bson), "_id", 3);
}

static size_t home_of(const struct memory_ids *ids, struct value id)
{
    return truce__value_hash(id) & (ids->room - 1);
}

static void memory_ids_put(struct memory_ids *ids, struct memory_document *document)
{
    size_t at = home_of(ids, memory_ids_id_of(document));

    while (ids->slots[at])
        at = (at + 1) & (ids->room - 1);
    ids->slots[at] = document;
}

void truce__memory_ids_add(struct memory_collection *collection, struct memory_document *document)
{
    struct memory_ids *ids = &collection->ids;

    if (2 * collection->count <= ids->room) {
        memory_ids_put(ids, document);
        return;
    }
    bson_free(ids->slots);
    ids->room = ids->room ? 2 * ids->room : ROOM_LEAST;
    while (ids->room < 2 * collection->count)
        ids->room *= 2;
    ids->slots = bson_malloc0(ids->room * sizeof(struct memory_document *));
    for (size_t i = 0; i < collection->count; i++)
        memory_ids_put(ids, collection->documents[i]);
}

void truce__memory_ids_remove(struct memory_collection *collection,
                              const struct memory_document *document)
{
    struct memory_ids *ids = &collection->ids;
    size_t last = ids->room - 1, hole = home_of(ids, memory_ids_id_of(document));

    while (ids->slots[hole] != document) {
        truce_assert(ids->slots[hole] != NULL);
        hole = (hole + 1) & last;
    }
    for (size_t at = (hole + 1) & last; ids->slots[at]; at = (at + 1) & last) {
        size_t home = home_of(ids, memory_ids_id_of(ids->slots[at]));

        if (((at - home) & last) >= ((at - hole) & last)) { /* it may stand as far in front */
            ids->slots[hole] = ids->slots[at];
            hole = at;
        }
    }
    ids->slots[hole] = NULL;
}

const struct memory_document *truce__memory_ids_find(const struct memory_collection *collection,
                                                     struct value id)
{
    const struct memory_ids *ids = &collection->ids;

    if (!ids->room)
        return NULL;
    for (size_t at = home_of(ids, id); ids->slots[at]; at = (at + 1) & (ids->room - 1))
        if (truce__value_equal(memory_ids_id_of(ids->slots[at]), id))
            return ids->slots[at];
    return NULL;
}

/* ---- what a filter can find ------------------------------------------------------------------- */

/* The condition that names all ids that there can be; NULL: there is none. */
static const struct match_node *naming(const struct match_node *node)
{
    const struct match_node *found = NULL;

    if (node->kind == MATCH_AND)
        for (uint32_t i = 0; i < node->children_count && !found; i++)
            found = naming(node->children[i]);
    else if ((node->kind == MATCH_EQ || node->kind == MATCH_IN) && !strcmp(node->path.text, "_id"))
        found = node;
    return found;
}

/* Documents stand in the order of their numbers. */
static size_t memory_ids_position_of(const struct memory_collection *collection,
                                     const struct memory_document *document)
{
    size_t from = 0, to = collection->count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (collection->documents[middle]->record < document->record)
            from = middle + 1;
        else
            to = middle;
    }
    truce_assert(from < collection->count && collection->documents[from] == document);
    return from;
}

static int compare_positions(const void *a, const void *b)
{
    const size_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

bool truce__memory_ids_of(const struct memory_collection *collection, const struct match *match,
                          size_t **positions, size_t *count)
{
    const struct match_node *node = naming(truce__match_root(match));
    const struct value *operands;
    uint32_t operands_count;
    size_t kept = 0;

    if (!node || !collection->ids.room)
        return false;
    operands = node->kind == MATCH_IN ? node->operands : &node->operand;
    operands_count = node->kind == MATCH_IN ? node->operands_count : 1;
    for (uint32_t i = 0; i < operands_count; i++)
        if (!truce__value_identifies(operands[i]))
            return false;
    *positions = bson_malloc((operands_count + 1) * sizeof **positions);
    *count = 0;
    for (uint32_t i = 0; i < operands_count; i++) {
        const struct memory_document *document = truce__memory_ids_find(collection, operands[i]);

        if (document)
            (*positions)[(*count)++] = memory_ids_position_of(collection, document);
    }
    qsort(*positions, *count, sizeof **positions, compare_positions);
    for (size_t i = 0; i < *count; i++)
        if (!i || (*positions)[i] != (*positions)[i - 1])
            (*positions)[kept++] = (*positions)[i];
    *count = kept;
    return true;
}
