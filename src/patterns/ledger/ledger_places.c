/*
 * Documents by the numbers of an account. Those who walk along an account ask for one number after the other, so the
 * numbers are sorted once, when an account is asked for first, or documents have come in since.
 */
#include <stdlib.h>
#include <string.h>

#include "patterns/ledger/ledger.h"

struct ledger_place {
    int64_t number;
    uint32_t item;
};

static int places_compare(const void *a, const void *b)
{
    const struct ledger_place *x = a, *y = b;

    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static void places_add(struct ledger_documents *documents, uint32_t *room, int64_t number,
                       uint32_t item)
{
    if (documents->places_count == *room) {
        *room = *room ? 2 * *room : documents->count + 8;
        documents->places = bson_realloc(documents->places, *room * sizeof *documents->places);
    }
    documents->places[documents->places_count++] = (struct ledger_place){number, item};
}

static void sort_places(struct ledger_documents *documents, const char *account)
{
    struct ledger_change change;
    uint32_t room = 0;

    truce__ledger_places_release(documents);
    documents->account = bson_strdup(account);
    documents->places_of = documents->count;
    for (uint32_t i = 0; i < documents->count; i++) {
        struct fields at = truce__ledger_changes(documents->items[i]);

        while (truce__fields_next(&at)) {
            if (truce__ledger_change(at.value, &change) && !strcmp(change.account, account))
                places_add(documents, &room, change.number, i);
        }
    }
    if (documents->places_count)
        qsort(documents->places, documents->places_count, sizeof *documents->places,
              places_compare);
}

const bson_t *truce__ledger_numbered(struct ledger_documents *documents, const char *account,
                                     int64_t number)
{
    uint32_t low = 0, high;

    if (!documents->account || documents->places_of != documents->count ||
        strcmp(documents->account, account) != 0)
        sort_places(documents, account);
    high = documents->places_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (documents->places[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < documents->places_count && documents->places[low].number == number
               ? documents->items[documents->places[low].item]
               : NULL;
}

void truce__ledger_places_release(struct ledger_documents *documents)
{
    bson_free(documents->account);
    bson_free(documents->places);
    documents->account = NULL;
    documents->places = NULL;
    documents->places_count = documents->places_of = 0;
}
