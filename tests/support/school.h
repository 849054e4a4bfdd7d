#ifndef TRUCE_TESTS_SUPPORT_SCHOOL_H
#define TRUCE_TESTS_SUPPORT_SCHOOL_H

/*
 * Work whose result can be checked after any interruption, for the crash tests of the file: store.
 *
 * Each worker does the same round again and again, and notes each acknowledged write:
 *
 *     counters   {_id: worker, n}                 n + 1 at each round
 *     log        {_id: "worker-round", ...}       one inserted at each round; unique by `stamp`,
 *                                                 multikey by `tags`
 *     accounts   {_id: 0 ... 7, money}            an atomic bulk moves money between two: the sum
 *                                                 stays
 *     big        {_id: worker, pad}               replaced by another size: many pages, so that
 *                                                 checkpoints happen
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "truce/store.h"

#define SCHOOL_WORKERS_MAX 64
#define SCHOOL_ACCOUNTS    8
/* The money in each account at the beginning. */
#define SCHOOL_MONEY 1000

/* The acknowledged numbers. Processes may share them. */
struct school_notes {
    /* For each worker, the number of rounds whose first write was sent. */
    atomic_llong begun[SCHOOL_WORKERS_MAX];
    /* For each worker, the number of rounds whose write to `counters` was acknowledged. */
    atomic_llong counted[SCHOOL_WORKERS_MAX];
    /* For each worker, the number of rounds whose write to `log` was acknowledged. */
    atomic_llong logged[SCHOOL_WORKERS_MAX];
};

/* Creates the indexes and accounts, if they are missing. */
truce_status school_open(truce_store *store, bson_error_t *error);

/* Runs the writes of one round, up to the first one that fails. `pad` is the size of the big
 * document in bytes; 0 means that it is not written. */
truce_status school_round(truce_store *store, struct school_notes *notes, int worker, uint32_t pad,
                          bool relaxed, bson_error_t *error);

/*
 * Returns the number of these conditions that do not hold. If `tell` is true, reports each on
 * standard error:
 *
 *     a counter is between the acknowledged and the begun number of rounds      (`durable`)
 *     every logged round that was acknowledged is there                         (`durable`)
 *     no counter is more than was begun; the logged rounds are the first so many, without a gap
 *     the money of all accounts together is unchanged
 *     indexes and documents agree (truce__engine_check)
 */
int school_check(const char *path, const struct school_notes *notes, int workers, bool durable,
                 bool tell);

#endif
