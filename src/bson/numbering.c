#include "bson/numbering.h"

#include "base/assert.h"

#define SMALL 8 /* things up to which they are looked through one by one */

void truce__numbering_begin(struct numbering *numbering, struct arena *arena, uint32_t most,
                            bool by_value)
{
    uint32_t size = 16;

    *numbering = (struct numbering){.room = most, .by_value = by_value};
    numbering->keys = truce__arena_take(arena, (most + 1) * sizeof *numbering->keys);
    if (most <= SMALL)
        return;
    while (size < 2 * (uint64_t)most && size < 1u << 31)
        size *= 2;
    numbering->mask = size - 1;
    numbering->slots = truce__arena_take(arena, size * sizeof *numbering->slots);
    memset(numbering->slots, 0, size * sizeof *numbering->slots);
}

/* Eight bytes at a time. */
static uint64_t numbering_hash_bytes(struct value key)
{
    uint64_t hash = (key.size + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ key.type, word;
    uint32_t at = 0;

    for (; at + 8 <= key.size; at += 8) {
        memcpy(&word, key.data + at, 8);
        hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
    }
    word = 0;
    if (at < key.size)
        memcpy(&word, key.data + at, key.size - at);
    hash = (hash ^ word) * UINT64_C(0xc4ceb9fe1a85ec53);
    return hash ^ hash >> 29;
}

static bool numbering_same(const struct numbering *numbering, uint32_t number, struct value key)
{
    struct value known = numbering->keys[number];

    if (truce__value_identical(known, key))
        return true;
    return numbering->by_value && truce__value_equal(known, key);
}

static uint32_t numbering_add(struct numbering *numbering, struct value key)
{
    truce_assert(numbering->count < numbering->room);
    numbering->keys[numbering->count] = key;
    return numbering->count++;
}

static uint32_t numbering_look(struct numbering *numbering, struct value key)
{
    for (uint32_t i = 0; i < numbering->count; i++) {
        if (numbering_same(numbering, i, key))
            return i;
    }
    return numbering_add(numbering, key);
}

static uint32_t numbering_look_up(struct numbering *numbering, struct value key)
{
    uint32_t at =
        (uint32_t)(numbering->by_value ? truce__value_hash(key) : numbering_hash_bytes(key));

    for (at &= numbering->mask; numbering->slots[at]; at = (at + 1) & numbering->mask) {
        if (numbering_same(numbering, numbering->slots[at] - 1, key))
            return numbering->slots[at] - 1;
    }
    numbering->slots[at] = numbering->count + 1;
    return numbering_add(numbering, key);
}

uint32_t truce__numbering_of(struct numbering *numbering, struct value key)
{
    uint32_t number = numbering->expected;

    if (number >= numbering->count || !truce__value_identical(numbering->keys[number], key))
        number =
            numbering->slots ? numbering_look_up(numbering, key) : numbering_look(numbering, key);
    numbering->expected = number + 1;
    return number;
}

/* ---- fields ----------------------------------------------------------------------------------- */

static uint32_t numbering_count_fields(struct value document)
{
    uint32_t count = 0;

    for (struct fields fields = truce__fields(document); truce__fields_next(&fields);)
        count++;
    return count;
}

static void numbering_read_side(struct arena *arena, struct numbering *numbering,
                                struct value document, struct aligned *aligned,
                                struct aligned_side *side)
{
    struct fields fields = truce__fields(document);

    side->fields = truce__arena_take(arena, (side->count + 1) * sizeof *side->fields);
    side->numbers = truce__arena_take(arena, (side->count + 1) * sizeof *side->numbers);
    side->places = truce__arena_take(arena, (numbering->room + 1) * sizeof *side->places);
    memset(side->places, 0xff, (numbering->room + 1) * sizeof *side->places);
    numbering->expected = 0;
    for (uint32_t i = 0; truce__fields_next(&fields); i++) {
        uint32_t number =
            truce__numbering_of(numbering, truce__numbering_key(fields.key, fields.key_length));

        side->fields[i] = fields;
        side->numbers[i] = number;
        if (side->places[number] == ALIGNED_NONE)
            side->places[number] = i;
        else
            aligned->unique = false;
    }
}

void truce__align_fields(struct arena *arena, const struct value *documents, int count,
                         struct aligned *aligned)
{
    struct numbering numbering;
    uint32_t most = 0;

    truce_assert(count <= ALIGNED_SIDES);
    *aligned = (struct aligned){.unique = true};
    for (int side = 0; side < count; side++) {
        aligned->sides[side].count = numbering_count_fields(documents[side]);
        most += aligned->sides[side].count;
    }
    truce__numbering_begin(&numbering, arena, most, false);
    for (int side = 0; side < count; side++)
        numbering_read_side(arena, &numbering, documents[side], aligned, &aligned->sides[side]);
    aligned->names = numbering.count;
}

bool truce__aligned_same_order(const struct aligned *aligned, int one, int other)
{
    const struct aligned_side *side = &aligned->sides[one];
    uint32_t least = 0;

    for (uint32_t i = 0; i < side->count; i++) {
        uint32_t place = aligned->sides[other].places[side->numbers[i]];

        if (place == ALIGNED_NONE)
            continue;
        if (place < least)
            return false;
        least = place;
    }
    return true;
}
