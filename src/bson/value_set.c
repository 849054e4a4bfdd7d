#include "bson/value_set.h"

#include <string.h>

#include "base/assert.h"

#define ROOM_MIN 16

struct value_set_slot {
    uint64_t hash;
    struct value value;
    uint32_t number;
    bool used;
};

static void value_set_make_room(struct value_set *set, uint32_t room)
{
    set->room = room;
    set->slots = truce__arena_take(set->arena, room * sizeof *set->slots);
    memset(set->slots, 0, room * sizeof *set->slots);
}

void truce__value_set_begin(struct value_set *set, struct arena *arena, uint32_t expected)
{
    uint32_t room = ROOM_MIN;

    while (room / 2 < expected && room < UINT32_MAX / 4)
        room *= 2;
    *set = (struct value_set){.arena = arena};
    value_set_make_room(set, room);
}

/* Where the value stands, or would. */
static struct value_set_slot *value_set_find(const struct value_set *set, struct value value,
                                             uint64_t hash)
{
    uint32_t mask = set->room - 1, at = (uint32_t)hash & mask;

    while (set->slots[at].used &&
           !(set->slots[at].hash == hash && truce__value_equal(set->slots[at].value, value)))
        at = (at + 1) & mask;
    return &set->slots[at];
}

bool truce__value_set_has(const struct value_set *set, struct value value)
{
    return value_set_find(set, value, truce__value_hash(value))->used;
}

static void value_set_grow(struct value_set *set)
{
    struct value_set_slot *before = set->slots;
    uint32_t room = set->room;

    truce_assert(room < UINT32_MAX / 2);
    value_set_make_room(set, 2 * room);
    for (uint32_t i = 0; i < room; i++) {
        if (before[i].used)
            *value_set_find(set, before[i].value, before[i].hash) = before[i];
    }
}

bool truce__value_set_number(const struct value_set *set, struct value value, uint32_t *number)
{
    const struct value_set_slot *slot = value_set_find(set, value, truce__value_hash(value));

    *number = slot->number;
    return slot->used;
}

bool truce__value_set_add(struct value_set *set, struct value value)
{
    return truce__value_set_add_number(set, value, 0);
}

bool truce__value_set_add_number(struct value_set *set, struct value value, uint32_t number)
{
    uint64_t hash = truce__value_hash(value);
    struct value_set_slot *slot = value_set_find(set, value, hash);

    if (slot->used)
        return false;
    *slot = (struct value_set_slot){hash, value, number, true};
    if (++set->count > set->room / 2)
        value_set_grow(set);
    return true;
}
