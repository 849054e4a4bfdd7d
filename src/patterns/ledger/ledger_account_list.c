/*
 * A list of accounts that need not fit into memory: each account with the greatest of its numbers,
 * in the order of names.
 *
 *     add --> table --(full)--> sorter --(full)--> temporary files
 *                                  |
 *                                 sort --> next, which joins the rows of an account
 *
 * An account with many entries is one row of the sorter for each time that the table was full. The
 * order is that of strcmp: a key ends in the zero byte, which no name contains.
 */
#include <string.h>

#include "patterns/ledger/ledger.h"
#include "query/sort/sort.h"
#include "store/pipeline.h"

/* The maximum size in bytes of the rows that are sorted in memory. */
#define LIST_MEMORY (16 * 1024 * 1024)

static truce_status list_spill(void *arg, struct spill **spill, bson_error_t *error)
{
    (void)arg;
    return truce__store_spill(spill, error);
}

/* Moves the accounts of the table into the sorter. The payload is the number and the name. */
static truce_status list_empty_table(struct ledger_list *list, bson_error_t *error)
{
    static const struct spill_options options = {.memory_max = LIST_MEMORY, .open = list_spill};
    truce_status status = TRUCE_OK;

    if (!list->sorter)
        truce__sorter_new(NULL, 0, &options, &list->sorter);
    for (uint32_t i = 0; !status && i < list->table.room; i++) {
        const struct ledger_known *known = list->table.slots[i];
        size_t size = known ? strlen(known->account) + 1 : 0;

        if (!known)
            continue;
        list->row.size = 0;
        truce__buffer_append(&list->row, &known->state.number, sizeof known->state.number);
        truce__buffer_append(&list->row, known->account, size);
        status = truce__sorter_add_key(list->sorter, known->account, size, list->row.bytes,
                                       (uint32_t)list->row.size, error);
    }
    truce__ledger_table_clear(&list->table);
    return status;
}

truce_status truce__ledger_list_add(struct ledger_list *list, const char *account, int64_t number,
                                    bson_error_t *error)
{
    struct ledger_known *known = truce__ledger_at(&list->table, account);

    if (number > known->state.number)
        known->state.number = number;
    return list->table.count < LEDGER_KNOWN_MAX ? TRUCE_OK : list_empty_table(list, error);
}

truce_status truce__ledger_list_sort(struct ledger_list *list, bson_error_t *error)
{
    truce_status status = list_empty_table(list, error);

    if (!status)
        status = truce__sorter_sort(list->sorter, error);
    return status ? status : truce__ledger_list_next(list, error);
}

/* Reads the next row. */
static truce_status list_read(struct ledger_list *list, bson_error_t *error)
{
    uint32_t size;

    return truce__sorter_next(list->sorter, &list->ahead, &size, error);
}

static int64_t list_number_ahead(const struct ledger_list *list)
{
    int64_t number;

    memcpy(&number, list->ahead, sizeof number);
    return number;
}

static const char *list_name_ahead(const struct ledger_list *list)
{
    return (const char *)list->ahead + sizeof(int64_t);
}

truce_status truce__ledger_list_next(struct ledger_list *list, bson_error_t *error)
{
    truce_status status = list->begun ? TRUCE_OK : list_read(list, error);

    list->begun = true;
    list->account = NULL;
    list->number = 0;
    if (status || !list->ahead)
        return status;
    list->row.size = 0;
    truce__buffer_append(&list->row, list_name_ahead(list), strlen(list_name_ahead(list)) + 1);
    list->account = (const char *)list->row.bytes;
    while (!status && list->ahead && !strcmp(list_name_ahead(list), list->account)) {
        if (list_number_ahead(list) > list->number)
            list->number = list_number_ahead(list);
        status = list_read(list, error);
    }
    return status;
}

void truce__ledger_list_release(struct ledger_list *list)
{
    truce__ledger_table_clear(&list->table);
    truce__sorter_free(list->sorter);
    truce__buffer_release(&list->row);
    *list = (struct ledger_list){0};
}
