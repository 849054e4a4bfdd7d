/*
 * Prints a table of the round trips of each operation of a pattern through mongodb://, which are
 * its cost on a network. tests/servers/trips.c checks the promised numbers.
 *
 *     bench_trips URI
 *
 * It creates and drops collections whose names begin with "trips_" in the URI's database.
 */
#include <string.h>

#include "bench/bench.h"
#include "bench/operations.h"

static void drop_own(truce_store *store)
{
    bson_t collections;
    bson_iter_t iter, field;
    bson_error_t error;

    BENCH_MUST(truce_collection_list(store, NULL, &collections, &error), error);
    bson_iter_init(&iter, &collections);
    while (bson_iter_next(&iter)) {
        if (bson_iter_recurse(&iter, &field) && bson_iter_find(&field, "name") &&
            !strncmp(bson_iter_utf8(&field, NULL), "trips_", 6))
            BENCH_MUST(truce_collection_drop(store, bson_iter_utf8(&field, NULL), &error), error);
    }
    bson_destroy(&collections);
}

static void trips_show(struct bench_place *place, const struct bench_operation *operation)
{
    bson_error_t error = {0};
    int trips;

    if (!bench_operation_possible(place, operation)) {
        printf("    %-56s %12s\n", operation->name, "cannot");
        return;
    }
    if (bench_operation_trips(place, operation, &trips, &error)) {
        printf("    %-56s %12s   %.60s\n", operation->name, "fails", error.message);
        return;
    }
    printf("    %-56s %12d", operation->name, trips);
    if (operation->most)
        printf("%12d%s", operation->most, trips > operation->most ? "   too many" : "");
    printf("\n");
}

int main(int argc, char **argv)
{
    truce_store *store = NULL;
    struct bench_place *place;
    bson_error_t error = {0};

    if (argc != 2) {
        fprintf(stderr, "usage: bench_trips URI\n");
        return 2;
    }
    BENCH_MUST(truce_store_open(argv[1], NULL, &store, &error), error);
    drop_own(store);
    place = bench_place_new(store, &error);
    BENCH_MUST(place == NULL, error);
    printf("\nRound trips to %s\n\n    %-56s %12s%12s\n", argv[1], "operation", "round trips",
           "at most");
    for (const struct bench_operation *one = bench_operations; one->name; one++)
        trips_show(place, one);
    bench_place_free(place);
    drop_own(store);
    truce_store_close(store);
    return 0;
}
