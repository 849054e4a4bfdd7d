/*
 * Tables of the names of some documents: the last ones of those that were asked about. A document
 * that is asked for the n-th time gets its table; where more documents take turns than there are
 * places they lose them to each other, and are looked through as if there were no finder.
 */
#include "bson/field_finder.h"

#include "base/arena.h"

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
