#ifndef TRUCE_BENCH_OPERATIONS_H
#define TRUCE_BENCH_OPERATIONS_H

/*
 * Every operation of a pattern, once each, on any store, to count its round trips. bench/trips.c
 * prints the counts as a table, and tests/servers/trips.c compares them with the promised numbers.
 */
#include "truce/truce.h"

/* Handles, and their data in a store: documents in collections of their own. */
struct bench_place;

struct bench_operation {
    const char *name;
    /* The most round trips that it may take without contention; 0: no promise. */
    int most;
    truce_mechanism mechanism; /* The mechanism of a commit; 0: the operation is not a commit. */
    int documents;             /* The number of documents of a commit. */
    truce_status (*run)(struct bench_place *place, const struct bench_operation *operation,
                        bson_error_t *error);
};

extern const struct bench_operation bench_operations[]; /* up to one without a name */

/* Creates collections whose names begin with "trips_", which must not exist. Returns NULL and sets
 * `error` on failure. */
struct bench_place *bench_place_new(truce_store *store, bson_error_t *error);
void bench_place_free(struct bench_place *place);

/* False: this store has no transactions. */
bool bench_operation_possible(const struct bench_place *place,
                              const struct bench_operation *operation);

/* The median of several runs, after some that find the indexes out. */
truce_status bench_operation_trips(struct bench_place *place,
                                   const struct bench_operation *operation, int *trips,
                                   bson_error_t *error);

#endif
