#include "bson/field_path.h"

#include "base/arena.h"
#include "base/assert.h"

/* ---- tables ---------------------------------------------------------------------------------- */

/* A table with at most this number of entries is searched linearly. */
#define SMALL 16

void truce__field_table_begin(struct field_table *table, struct arena *arena, size_t bytes_max)
{
    *table = (struct field_table){.arena = arena, .bytes_max = bytes_max, .names.arena = arena};
}

static bool table_same_key(const struct field_entry *entry, const char *key, uint32_t length)
{
    return entry->key_length == length && !memcmp(entry->key, key, length);
}

struct field_entry *truce__field_table_find(const struct field_table *table, const char *key,
                                            uint32_t length)
{
    if (table->room <= SMALL) {
        for (uint32_t i = 0; i < table->count; i++) {
            if (table_same_key(&table->entries[i], key, length))
                return &table->entries[i];
        }
        return NULL;
    }
    for (struct hash_probe probe = truce__hash_probe(&table->names, truce__hash_bytes(key, length));
         truce__hash_next(&probe);) {
        if (table_same_key(&table->entries[probe.number], key, length))
            return &table->entries[probe.number];
    }
    return NULL;
}

static void table_index(struct field_table *table, uint32_t at)
{
    const struct field_entry *entry = &table->entries[at];

    truce__hash_add(&table->names, truce__hash_bytes(entry->key, entry->key_length), at);
}

/* Doubles the room of the table, and indexes its entries once it is larger than SMALL. Returns
 * false if the arena would exceed bytes_max. */
static bool table_grow(struct field_table *table)
{
    uint32_t room = table->room ? 2 * table->room : SMALL;
    size_t bytes = room * sizeof *table->entries;
    struct field_entry *entries;

    if (room > SMALL)
        bytes += truce__hash_bytes_needed(room);
    if (table->arena->bytes + bytes > table->bytes_max)
        return false;
    entries = truce__arena_take(table->arena, room * sizeof *entries);
    if (table->count)
        memcpy(entries, table->entries, table->count * sizeof *entries);
    table->entries = entries;
    table->room = room;
    if (room <= SMALL)
        return true;
    truce__hash_reserve(&table->names, room);
    for (uint32_t i = table->names.count; i < table->count; i++)
        table_index(table, i);
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
    if (table->room > SMALL)
        table_index(table, table->count);
    table->count++;
    return true;
}

void truce__field_table_write(const struct field_table *table, struct builder *builder)
{
    for (uint32_t i = 0; i < table->count; i++)
        truce__builder_append(builder, table->entries[i].key, table->entries[i].key_length,
                              table->entries[i].value);
}

/* ---- finders --------------------------------------------------------------------------------- */

/*
 * A finder has tables for the documents that were searched last. A document gets a table when it is
 * searched for the TABLE_AFTERth time. If more than SLOTS documents alternate, they evict each
 * other and are searched as if there were no finder.
 */

#define SLOTS 8
/* From this search of a document on, a table saves more time than it costs. */
#define TABLE_AFTER 8
/* The maximum size of all tables of a finder. */
#define TABLES_BYTES (64 * 1024 * 1024)

struct table {
    const uint8_t *document;
    uint32_t searches;
    /* The offsets of the fields in the document, by the hashes of their names. */
    struct hash_table fields;
};

struct field_finder_tables {
    struct arena arena;
    struct table slots[SLOTS];
    /* The index of the table that is evicted next. */
    uint32_t next;
};

static struct table *finder_slot_of(struct field_finder_tables *tables, const uint8_t *document)
{
    struct table *slot;

    for (uint32_t i = 0; i < SLOTS; i++) {
        if (tables->slots[i].document == document)
            return &tables->slots[i];
    }
    slot = &tables->slots[tables->next++ % SLOTS];
    *slot = (struct table){.document = document};
    return slot;
}

/* Finds the field of that name and its offset in the document. */
static bool finder_find(const struct table *table, const char *name, uint32_t length, uint64_t hash,
                        uint32_t *at)
{
    for (struct hash_probe probe = truce__hash_probe(&table->fields, hash);
         truce__hash_next(&probe);) {
        const char *known = (const char *)table->document + probe.number + 1;

        if (!strncmp(known, name, length) && !known[length]) {
            *at = probe.number;
            return true;
        }
    }
    return false;
}

/* Builds the table of the fields of a document. If two fields have one name, the first is found. */
static void finder_build(struct field_finder_tables *tables, struct table *table,
                         struct value document, uint32_t *steps)
{
    struct fields fields = truce__fields(document);
    uint32_t count = 0, known;

    while (truce__fields_next(&fields))
        count++;
    *steps += count;
    if (tables->arena.bytes + truce__hash_bytes_needed(count) > TABLES_BYTES)
        return;
    table->fields.arena = &tables->arena;
    truce__hash_reserve(&table->fields, count);
    fields = truce__fields(document);
    while (truce__fields_next(&fields)) {
        uint64_t hash = truce__hash_bytes(fields.key, fields.key_length);

        if (!finder_find(table, fields.key, fields.key_length, hash, &known))
            truce__hash_add(&table->fields, hash,
                            (uint32_t)((const uint8_t *)fields.key - 1 - document.data));
    }
}

static struct value finder_value_at(struct value document, uint32_t at, uint32_t name_length)
{
    const uint8_t *field = document.data + at, *data = field + 1 + name_length + 1;

    return (struct value){data, truce__value_size(*field, data), *field};
}

struct value truce__field_finder_find_large(struct field_finder *finder, struct value document,
                                            const char *name, uint32_t length, uint32_t *steps)
{
    struct table *table;
    uint32_t at;

    if (!finder->tables)
        finder->tables = bson_malloc0(sizeof *finder->tables);
    table = finder_slot_of(finder->tables, document.data);
    if (++table->searches == TABLE_AFTER)
        finder_build(finder->tables, table, document, steps);
    if (!table->fields.room) {
        *steps += document.size / 1024;
        return truce__value_field(document, name, length);
    }
    *steps += 1;
    if (!finder_find(table, name, length, truce__hash_bytes(name, length), &at))
        return truce__value_missing();
    return finder_value_at(document, at, length);
}

void truce__field_finder_release_tables(struct field_finder *finder)
{
    truce__arena_release(&finder->tables->arena);
    bson_free(finder->tables);
    finder->tables = NULL;
}

/* ---- paths ----------------------------------------------------------------------------------- */

static bool path_is_reference(const char *part, size_t length)
{
    return (length == 3 && (!memcmp(part, "$id", 3) || !memcmp(part, "$db", 3))) ||
           (length == 4 && !memcmp(part, "$ref", 4));
}

static truce_status path_check_part(const char *part, size_t length, bool first,
                                    bson_error_t *error)
{
    if (length == 0)
        return truce__refuse(15998, error, "a field path must not have an empty part");
    if (part[0] == '$' && (first || !path_is_reference(part, length)))
        return truce__refuse(16410, error, "'%.*s': a part of a field path must not begin with '$'",
                             (int)length, part);
    return TRUCE_OK;
}

truce_status truce__field_path_check(const char *text, size_t length, bson_error_t *error)
{
    size_t start = 0, parts = 0;
    truce_status status = TRUCE_OK;

    if (length == 0)
        return truce__refuse(40352, error, "a field path must not be empty");
    if (memchr(text, '\0', length))
        return truce__refuse(16411, error, "a field path must not contain a zero byte");
    if (text[length - 1] == '.')
        return truce__refuse(40353, error, "field path '%.*s' ends with a dot", (int)length, text);
    for (size_t i = 0; i <= length && !status; i++) {
        if (i < length && text[i] != '.')
            continue;
        status = path_check_part(text + start, i - start, start == 0, error);
        start = i + 1;
        if (++parts > PATH_PARTS_MAX)
            return truce__refuse(CODE_OVERFLOW, error, "a field path has at most %d parts",
                                 PATH_PARTS_MAX);
    }
    return status;
}

truce_status truce__field_name_check(const char *name, size_t length, bson_error_t *error)
{
    if (length && memchr(name, '.', length))
        return truce__refuse(16412, error, "'%.*s': a field name must not contain a dot",
                             (int)length, name);
    return path_check_part(name, length, true, error);
}
