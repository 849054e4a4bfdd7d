#include "bson/key_numbering.h"

#include "base/assert.h"

/* A numbering of at most this number of keys is searched linearly. */
#define SMALL 8

void truce__numbering_begin(struct numbering *numbering, struct arena *arena, uint32_t most,
                            bool by_value)
{
    *numbering = (struct numbering){.room = most, .by_value = by_value, .table.arena = arena};
    numbering->keys = truce__arena_take(arena, (most + 1) * sizeof *numbering->keys);
    if (most > SMALL)
        truce__hash_reserve(&numbering->table, most);
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

static uint32_t numbering_scan(struct numbering *numbering, struct value key)
{
    for (uint32_t i = 0; i < numbering->count; i++) {
        if (numbering_same(numbering, i, key))
            return i;
    }
    return numbering_add(numbering, key);
}

static uint32_t numbering_look_up(struct numbering *numbering, struct value key)
{
    uint64_t hash = numbering->by_value ? truce__value_hash(key)
                                        : truce__hash_bytes(key.data, key.size) ^ key.type;

    for (struct hash_probe probe = truce__hash_probe(&numbering->table, hash);
         truce__hash_next(&probe);) {
        if (numbering_same(numbering, probe.number, key))
            return probe.number;
    }
    truce__hash_add(&numbering->table, hash, numbering->count);
    return numbering_add(numbering, key);
}

uint32_t truce__numbering_of(struct numbering *numbering, struct value key)
{
    uint32_t number = numbering->expected;

    if (number >= numbering->count || !truce__value_identical(numbering->keys[number], key))
        number = numbering->room > SMALL ? numbering_look_up(numbering, key)
                                         : numbering_scan(numbering, key);
    numbering->expected = number + 1;
    return number;
}

/* ---- fields --------------------------------------------------------------------------------- */

static uint32_t numbering_count_fields(struct value document)
{
    uint32_t count = 0;

    for (struct fields fields = truce__fields(document); truce__fields_next(&fields);)
        count++;
    return count;
}

/* Lists the fields of one document with the numbers of their names. A name that occurs twice clears
 * `unique`. */
static void numbering_read_side(struct arena *arena, struct numbering *numbering,
                                struct value document, struct aligned *aligned,
                                struct aligned_side *side)
{
    struct fields fields = truce__fields(document);

    side->fields = truce__arena_take(arena, (side->count + 1) * sizeof *side->fields);
    side->numbers = truce__arena_take(arena, (side->count + 1) * sizeof *side->numbers);
    side->positions = truce__arena_take(arena, (numbering->room + 1) * sizeof *side->positions);
    memset(side->positions, 0xff, (numbering->room + 1) * sizeof *side->positions);
    numbering->expected = 0;
    for (uint32_t i = 0; truce__fields_next(&fields); i++) {
        uint32_t number =
            truce__numbering_of(numbering, truce__numbering_key(fields.key, fields.key_length));

        side->fields[i] = fields;
        side->numbers[i] = number;
        if (side->positions[number] == ALIGNED_NONE)
            side->positions[number] = i;
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
        uint32_t position = aligned->sides[other].positions[side->numbers[i]];

        if (position == ALIGNED_NONE)
            continue;
        if (position < least)
            return false;
        least = position;
    }
    return true;
}
