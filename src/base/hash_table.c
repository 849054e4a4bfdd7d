#include "base/hash_table.h"

#include <bson/bson.h>

#include "base/arena.h"
#include "base/assert.h"

#define ROOM_MIN 16

static uint32_t hash_room(uint32_t count)
{
    uint32_t room = ROOM_MIN;

    truce_assert(count <= UINT32_C(1) << 30);
    while (room / 2 < count)
        room *= 2;
    return room;
}

size_t truce__hash_bytes_needed(uint32_t count)
{
    return hash_room(count) * sizeof(struct hash_slot);
}

void truce__hash_reserve(struct hash_table *table, uint32_t count)
{
    struct hash_table larger = {.arena = table->arena, .room = hash_room(count)};
    size_t bytes = larger.room * sizeof *larger.slots;

    if (larger.room <= table->room)
        return;
    larger.slots = table->arena ? truce__arena_take(table->arena, bytes) : bson_malloc(bytes);
    memset(larger.slots, 0, bytes);
    for (uint32_t i = 0; i < table->room; i++) {
        if (table->slots[i].number)
            truce__hash_add(&larger, table->slots[i].hash, table->slots[i].number - 1);
    }
    if (!table->arena)
        bson_free(table->slots);
    *table = larger;
}

void truce__hash_release(struct hash_table *table)
{
    truce_assert(!table->arena);
    bson_free(table->slots);
    *table = (struct hash_table){0};
}
