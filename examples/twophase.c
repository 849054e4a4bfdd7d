/*
 * A two-phase transfer: a traveller reserves a seat and receives a ticket, or neither.
 *
 * The transfer holds no document in the meantime. Run it twice: the second time it has no effect.
 *
 *     cc twophase.c $(pkg-config --cflags --libs truce) -o twophase && ./twophase trips.truce
 */
#include <stdio.h>
#include <stdlib.h>

#include <truce/truce.h>

static void must(truce_status status, const bson_error_t *error)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", truce_status_name(status), error->message);
        exit(1);
    }
}

/* Inserts the document unless it exists. */
static void put(truce_store *store, const char *collection, bson_t *document)
{
    bson_error_t error;
    truce_status status = truce_insert(store, collection, document, NULL, &error);

    if (status != TRUCE_DUPLICATE)
        must(status, &error);
    bson_destroy(document);
}

int main(int argc, char **argv)
{
    bson_value_t id = truce_id_utf8("ticket 1"), train = truce_id_utf8("train 7"),
                 ada = truce_id_utf8("ada");
    bson_t *guard = BCON_NEW("seats", "{", "$gt", BCON_INT32(0), "}"),
           *take = BCON_NEW("$inc", "{", "seats", BCON_INT32(-1), "}"),
           *write = BCON_NEW("$addToSet", "{", "tickets", BCON_UTF8("ticket 1"), "}");
    truce_transfer_entry entries[] = {
        {.collection = "trains", .id = &train, .guard = guard, .effect = take},
        {.collection = "people", .id = &ada, .after = true, .effect = write},
    };
    truce_transfer transfer = {.id = &id, .entries = entries, .count = 2};
    truce_transfer_result result;
    truce_transfers *transfers;
    truce_store *store;
    bson_error_t error;

    must(truce_store_open(argc > 1 ? argv[1] : "trips.truce", NULL, &store, &error), &error);
    put(store, "trains", BCON_NEW("_id", BCON_UTF8("train 7"), "seats", BCON_INT32(2)));
    put(store, "people", BCON_NEW("_id", BCON_UTF8("ada")));
    transfers = truce_transfers_new(store, &(truce_transfer_options){.collection = "bookings"});
    must(truce_transfer_start(transfers, NULL, &transfer, &result, &error), &error);
    printf("ticket 1: %s\n", result.exists ? "already booked" : "booked");
    truce_transfers_free(transfers);
    truce_store_close(store);
    bson_destroy(write);
    bson_destroy(take);
    bson_destroy(guard);
    return 0;
}
