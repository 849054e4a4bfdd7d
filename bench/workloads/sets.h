#ifndef TRUCE_BENCH_WORKLOADS_SETS_H
#define TRUCE_BENCH_WORKLOADS_SETS_H

/*
 * Ordered sets: operations that arrive out of order, of 2,000 students with 50 classes each
 * (element `name` of set `set` is there from the setup, with the number set * NAMES + name + 1); of
 * each class the operation with the highest number wins. The side computes the expected sets
 * without the store.
 */
#include "bench/harness.h"

#define SETS_MAX 2000
#define SETS     (bench_small ? SETS_MAX / 10 : SETS_MAX)
#define NAMES    50
/* The operations of the setup, which put every student into every class. */
#define FILLED    (SETS * NAMES)
#define BATCH     1000
#define NAME_SIZE 16

struct set_operation {
    int64_t set, seq;
    int name;
    bool remove;
    char text[NAME_SIZE]; /* "CS 17" */
};

struct sets_state {
    atomic_int_fast64_t next; /* The next number. */
    /* winners[s][n]: the number of the winning operation, times 2, plus 1 for a remove. 0 means
     * none. */
    atomic_int_fast64_t winners[SETS_MAX][NAMES];
    char script[48];
};

/* For setups: sets the winners so that every student is in every class. */
void sets_fill(struct bench_side *side);
/* Draws an operation, and updates the winners. */
void sets_draw(struct bench_side *side, struct set_operation *operation);

/* The state of a check, which compares each stored element once. */
struct sets_found {
    int64_t winners[SETS_MAX][NAMES];
};
void sets_found_add(struct sets_found *found, int64_t set, const char *name, int64_t seq,
                    bool removed);
void sets_compare(struct bench_side *side, const struct sets_found *found);

/* truce (set_truce.c); sql and redis (set_peers.c); mongodb (set_mongo.c) */
void set_truce_join(struct bench_side *side);  /* Sets side->local to the truce_set. */
void set_truce_setup(struct bench_side *side); /* form->arg is a truce_set_layout. */
bench_function set_truce_one, set_truce_batch;
void set_truce_check(struct bench_side *side);

void set_rows_setup(struct bench_side *side);
bench_function set_rows_one, set_rows_batch_postgres, set_rows_batch_sqlite;
void set_rows_check(struct bench_side *side);

void set_jsonb_setup(struct bench_side *side);
bench_function set_jsonb_one;
void set_jsonb_check(struct bench_side *side);

void set_redis_setup(struct bench_side *side);
bench_function set_redis_one, set_redis_batch;
void set_redis_check(struct bench_side *side);

void set_mongo_setup(struct bench_side *side);
bench_function set_mongo_one, set_mongo_batch;
void set_mongo_check(struct bench_side *side);

#endif
