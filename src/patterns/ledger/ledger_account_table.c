/* A hash table of accounts by name, with open addressing over pointers; an account does not
 * move. */
#include "patterns/ledger/ledger.h"

uint64_t truce__ledger_hash(const char *account)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (; *account; account++)
        hash = (hash ^ (uint8_t)*account) * UINT64_C(1099511628211);
    return hash ^ hash >> 29;
}

static struct ledger_known **table_slot(const struct ledger_table *table, const char *account)
{
    uint32_t at = (uint32_t)truce__ledger_hash(account) & (table->room - 1);

    while (table->slots[at] && strcmp(table->slots[at]->account, account) != 0)
        at = (at + 1) & (table->room - 1);
    return &table->slots[at];
}

struct ledger_known *truce__ledger_find(const struct ledger_table *table, const char *account)
{
    return table->room ? *table_slot(table, account) : NULL;
}

static void ledger_table_grow(struct ledger_table *table)
{
    struct ledger_table larger = {.count = table->count,
                                  .room = table->room ? 2 * table->room : 16};

    larger.slots = bson_malloc0(larger.room * sizeof *larger.slots);
    for (uint32_t i = 0; i < table->room; i++) {
        if (table->slots[i])
            *table_slot(&larger, table->slots[i]->account) = table->slots[i];
    }
    bson_free(table->slots);
    *table = larger;
}

struct ledger_known *truce__ledger_at(struct ledger_table *table, const char *account)
{
    struct ledger_known **slot;

    if (2 * (table->count + 1) > table->room)
        ledger_table_grow(table);
    slot = table_slot(table, account);
    if (!*slot) {
        *slot = bson_malloc0(sizeof **slot);
        (*slot)->account = bson_strdup(account);
        table->count++;
    }
    return *slot;
}

void truce__ledger_table_clear(struct ledger_table *table)
{
    for (uint32_t i = 0; i < table->room; i++) {
        if (table->slots[i]) {
            truce__ledger_tail_release(&table->slots[i]->tail);
            bson_free(table->slots[i]->account);
            bson_free(table->slots[i]);
        }
    }
    bson_free(table->slots);
    *table = (struct ledger_table){0};
}
