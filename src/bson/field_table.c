#include "bson/field_table.h"

#include "base/assert.h"

#define SMALL 16 /* entries up to which they are looked through one by one */

void truce__field_table_begin(struct field_table *table, struct arena *arena, size_t bytes_max)
{
    *table = (struct field_table){.arena = arena, .bytes_max = bytes_max};
}

/* FNV-1a */
static uint32_t table_hash(const char *key, uint32_t length)
{
    uint32_t sum = 2166136261u;

    for (uint32_t i = 0; i < length; i++)
        sum = (sum ^ (uint8_t)key[i]) * 16777619u;
    return sum;
}

static bool table_same_key(const struct field_entry *entry, const char *key, uint32_t length)
{
    return entry->key_length == length && !memcmp(entry->key, key, length);
}

struct field_entry *truce__field_table_find(const struct field_table *table, const char *key,
                                            uint32_t length)
{
    if (!table->buckets) {
        for (uint32_t i = 0; i < table->count; i++) {
            if (table_same_key(&table->entries[i], key, length))
                return &table->entries[i];
        }
        return NULL;
    }
    for (uint32_t at = table->buckets[table_hash(key, length) % table->buckets_count]; at;
         at = table->entries[at - 1].next) {
        if (table_same_key(&table->entries[at - 1], key, length))
            return &table->entries[at - 1];
    }
    return NULL;
}

static void link_entry(struct field_table *table, uint32_t at)
{
    struct field_entry *entry = &table->entries[at];
    uint32_t *bucket =
        &table->buckets[table_hash(entry->key, entry->key_length) % table->buckets_count];

    entry->next = *bucket;
    *bucket = at + 1;
}

static bool table_grow(struct field_table *table)
{
    uint32_t room = table->room ? 2 * table->room : SMALL;
    size_t bytes = room * (sizeof *table->entries + sizeof *table->buckets);
    struct field_entry *entries;

    if (table->arena->bytes + bytes > table->bytes_max)
        return false;
    entries = truce__arena_take(table->arena, room * sizeof *entries);
    if (table->count)
        memcpy(entries, table->entries, table->count * sizeof *entries);
    table->entries = entries;
    table->room = room;
    if (room <= SMALL)
        return true;
    table->buckets_count = room;
    table->buckets = truce__arena_take(table->arena, room * sizeof *table->buckets);
    memset(table->buckets, 0, room * sizeof *table->buckets);
    for (uint32_t i = 0; i < table->count; i++)
        link_entry(table, i);
    return true;
}

bool truce__field_table_set(struct field_table *table, const char *key, uint32_t length,
                            struct value value)
{
    struct field_entry *entry = truce__field_table_find(table, key, length);

    if (entry) {
        entry->value = value;
        return true;
    }
    if (table->count == table->room && !table_grow(table))
        return false;
    truce_assert(table->count < table->room);
    table->entries[table->count] =
        (struct field_entry){.key = key, .key_length = length, .value = value};
    if (table->buckets)
        link_entry(table, table->count);
    table->count++;
    return true;
}

void truce__field_table_write(const struct field_table *table, struct builder *builder)
{
    for (uint32_t i = 0; i < table->count; i++)
        truce__builder_append(builder, table->entries[i].key, table->entries[i].key_length,
                              table->entries[i].value);
}
