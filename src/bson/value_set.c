#include "bson/value_set.h"

#include <string.h>

#define ENTRIES_MIN 8

static void value_set_make_room(struct value_set *set, uint32_t room)
{
    struct value_set_entry *entries = truce__arena_take(set->table.arena, room * sizeof *entries);

    if (set->count)
        memcpy(entries, set->entries, set->count * sizeof *entries);
    set->entries = entries;
    set->room = room;
}

void truce__value_set_begin(struct value_set *set, struct arena *arena, uint32_t expected)
{
    *set = (struct value_set){.table.arena = arena};
    value_set_make_room(set, expected > ENTRIES_MIN ? expected : ENTRIES_MIN);
    truce__hash_reserve(&set->table, expected);
}

/* Returns the entry of the value, or NULL. */
static const struct value_set_entry *value_set_find(const struct value_set *set, struct value value,
                                                    uint64_t hash)
{
    for (struct hash_probe probe = truce__hash_probe(&set->table, hash);
         truce__hash_next(&probe);) {
        if (truce__value_equal(set->entries[probe.number].value, value))
            return &set->entries[probe.number];
    }
    return NULL;
}

bool truce__value_set_has(const struct value_set *set, struct value value)
{
    return value_set_find(set, value, truce__value_hash(value)) != NULL;
}

bool truce__value_set_number(const struct value_set *set, struct value value, uint32_t *number)
{
    const struct value_set_entry *entry = value_set_find(set, value, truce__value_hash(value));

    *number = entry ? entry->number : 0;
    return entry != NULL;
}

bool truce__value_set_add(struct value_set *set, struct value value)
{
    return truce__value_set_add_number(set, value, 0);
}

bool truce__value_set_add_number(struct value_set *set, struct value value, uint32_t number)
{
    uint64_t hash = truce__value_hash(value);

    if (value_set_find(set, value, hash))
        return false;
    if (set->count == set->room)
        value_set_make_room(set, 2 * set->room);
    truce__hash_add(&set->table, hash, set->count);
    set->entries[set->count++] = (struct value_set_entry){value, number};
    return true;
}
