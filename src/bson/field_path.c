#include "bson/field_path.h"

#include "base/arena.h"
#include "base/assert.h"

/* ---- tables ---------------------------------------------------------------------------------- */

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

/* ---- finders --------------------------------------------------------------------------------- */

/*
 * Tables of the names of some documents: the last ones of those that were asked about. A document
 * that is asked for the n-th time gets its table; where more documents take turns than there are
 * places they lose them to each other, and are looked through as if there were no finder.
 */

#define PLACES       8
#define ASKED_OFTEN  8                  /* from then on a table is worth it */
#define TABLES_BYTES (64 * 1024 * 1024) /* of all tables; what has no room is looked through */
#define EMPTY        UINT32_MAX

struct name {
    uint32_t at; /* of the field, from the beginning of the document; EMPTY: the slot is free */
    uint32_t length;
};

struct table {
    const uint8_t *document;
    uint32_t asked;
    uint32_t mask;      /* of the slots: a power of two, less one */
    struct name *slots; /* NULL: none yet */
};

struct field_finder_tables {
    struct arena arena;
    struct table places[PLACES];
    uint32_t next; /* place to be given away */
};

static struct table *finder_place_of(struct field_finder_tables *tables, const uint8_t *document)
{
    struct table *place;

    for (uint32_t i = 0; i < PLACES; i++) {
        if (tables->places[i].document == document)
            return &tables->places[i];
    }
    place = &tables->places[tables->next++ % PLACES];
    *place = (struct table){.document = document};
    return place;
}

/* FNV-1a */
static uint32_t finder_hash(const char *name, uint32_t length)
{
    uint32_t sum = 2166136261u;

    for (uint32_t i = 0; i < length; i++)
        sum = (sum ^ (uint8_t)name[i]) * 16777619u;
    return sum ^ sum >> 15;
}

/* The slot of the name, or the free one where it belongs. */
static struct name *finder_find_slot(const struct table *table, const char *name, uint32_t length)
{
    uint32_t at = finder_hash(name, length) & table->mask;

    for (;; at = (at + 1) & table->mask) {
        struct name *slot = &table->slots[at];

        if (slot->at == EMPTY ||
            (slot->length == length && !memcmp(table->document + slot->at + 1, name, length)))
            return slot;
    }
}

/* Of two fields with one name the first is the one. */
static void finder_build(struct field_finder_tables *tables, struct table *table,
                         struct value document, uint32_t *steps)
{
    struct fields fields = truce__fields(document);
    uint32_t count = 0, room = 16;

    while (truce__fields_next(&fields))
        count++;
    while (room < 2 * count)
        room *= 2;
    *steps += count;
    if (tables->arena.bytes + room * sizeof *table->slots > TABLES_BYTES)
        return;
    table->slots = truce__arena_take(&tables->arena, room * sizeof *table->slots);
    table->mask = room - 1;
    memset(table->slots, 0xff, room * sizeof *table->slots);
    fields = truce__fields(document);
    while (truce__fields_next(&fields)) {
        struct name *slot = finder_find_slot(table, fields.key, fields.key_length);
        uint32_t at = (uint32_t)((const uint8_t *)fields.key - 1 - document.data);

        if (slot->at == EMPTY)
            *slot = (struct name){at, fields.key_length};
    }
}

static struct value finder_value_at(struct value document, const struct name *name)
{
    const uint8_t *field = document.data + name->at, *data = field + 1 + name->length + 1;

    return (struct value){data, truce__value_size(*field, data), *field};
}

struct value truce__field_finder_find_large(struct field_finder *finder, struct value document,
                                            const char *name, uint32_t length, uint32_t *steps)
{
    struct table *table;
    struct name *slot;

    if (!finder->tables)
        finder->tables = bson_malloc0(sizeof *finder->tables);
    table = finder_place_of(finder->tables, document.data);
    if (++table->asked == ASKED_OFTEN)
        finder_build(finder->tables, table, document, steps);
    if (!table->slots) {
        *steps += document.size / 1024;
        return truce__value_field(document, name, length);
    }
    *steps += 1;
    slot = finder_find_slot(table, name, length);
    return slot->at == EMPTY ? truce__value_missing() : finder_value_at(document, slot);
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
