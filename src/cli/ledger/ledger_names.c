/* Names of accounts and currencies in an import: open addressing over pointers, which stay. */
#include <string.h>

#include "cli/ledger/ledger_import.h"

static uint32_t names_hash_of(const char *name)
{
    uint32_t hash = 2166136261U;

    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619U;
    return hash ^ hash >> 15;
}

static struct import_name **names_place(const struct import_names *names, const char *name)
{
    uint32_t at = names_hash_of(name) & (names->room - 1);

    while (names->slots[at] && strcmp(names->slots[at]->name, name) != 0)
        at = (at + 1) & (names->room - 1);
    return &names->slots[at];
}

struct import_name *import_find(const struct import_names *names, const char *name)
{
    return names->room ? *names_place(names, name) : NULL;
}

static void names_grow(struct import_names *names)
{
    struct import_names larger = {.count = names->count,
                                  .room = names->room ? 2 * names->room : 64};

    larger.slots = bson_malloc0(larger.room * sizeof *larger.slots);
    for (uint32_t i = 0; i < names->room; i++) {
        if (names->slots[i])
            *names_place(&larger, names->slots[i]->name) = names->slots[i];
    }
    bson_free(names->slots);
    *names = larger;
}

struct import_name *import_add(struct import_names *names, const char *name)
{
    struct import_name **slot;

    if (2 * (names->count + 1) > names->room)
        names_grow(names);
    slot = names_place(names, name);
    if (!*slot) {
        *slot = bson_malloc0(sizeof **slot);
        (*slot)->name = bson_strdup(name);
        names->count++;
    }
    return *slot;
}

void import_names_release(struct import_names *names)
{
    for (uint32_t i = 0; i < names->room; i++) {
        if (names->slots[i]) {
            bson_free(names->slots[i]->name);
            bson_free(names->slots[i]->currency);
            bson_free(names->slots[i]);
        }
    }
    bson_free(names->slots);
}
