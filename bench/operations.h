#ifndef TRUCE_BENCH_OPERATIONS_H
#define TRUCE_BENCH_OPERATIONS_H

/*
 * Runs every operation of a pattern once, on any store, to count its round trips. bench/trips.c
 * prints the counts as a table, and tests/servers/trips.c compares them with the promised numbers.
 */
#include "truce/truce.h"

/* The handles of the patterns, and their data in collections of their own. */
struct bench_place;

struct bench_operation {
    const char *name;
    /* ^The maximum number of round trips without contention. 0 means that no number is promised. */
    int most;
    /* The mechanism of a commit. 0 means that the operation is not a commit. */
    truce_mechanism mechanism;
    int documents; /* The number of documents of a commit. */
    truce_status (*run)(struct bench_place *place, const struct bench_operation *operation,
                        bson_error_t *error);
};

/* An operation without a name ends the list. */
extern const struct bench_operation bench_operations[];

/* Creates collections whose names begin with "trips_", which must not exist. Returns NULL and sets
 * `error` on failure. */
struct bench_place *bench_place_new(truce_store *store, bson_error_t *error);
void bench_place_free(struct bench_place *place);

/* Returns whether the store supports the operation: some need transactions. */
bool bench_operation_possible(const struct bench_place *place,
                              const struct bench_operation *operation);

/* Returns the median of several runs, after some runs that fill the caches of metadata. */
truce_status bench_operation_trips(struct bench_place *place,
                                   const struct bench_operation *operation, int *trips,
                                   bson_error_t *error);

#endif
