#ifndef TRUCE_SIM_VERIFY_H
#define TRUCE_SIM_VERIFY_H

/*
 * A checker of histories: were these transactions, by whatever store, strictly serializable?
 *
 * A history is transactions, one document each, in any order:
 *
 *     {process: 3, begin: 17, end: 25, status: "ok",
 *      ops: [["append", "x", 5], ["r", "x", [1, 5]], ["w", "y", 3], ["r", "y", null]]}
 *
 *     process  who ran it: a number; the transactions of one process come one after the other
 *     begin    a number, of one clock for all; `end` likewise: if a.end < b.begin, a comes before b
 *     status   "ok": committed; "fail": certainly not; "unknown": nobody knows, it may take effect at
 *              any later time
 *     ops      append: a value, never twice to one key, to a list. w: a value, never twice to one
 *              key, to a register. r: the list, or the value, that was read; null: there was nothing.
 *              Values are integers. A key is a list or a register, not both.
 *
 * Lists show the order of their versions, so for them a graph of dependencies is built and searched
 * for cycles (Adya 1999; Kingsbury and Alvaro, Elle, 2020). Registers do not: for them an order of all
 * transactions is searched for that explains what was read (Wing and Gong 1993, Lowe 2017).
 *
 * One thread at a time.
 */
#include "base/status.h"

struct verify;

struct verify_anomaly {
    const char *
        name; /* "G0", "G1a", "G1b", "G1c", "G-single", "G2-item", each cycle also with "-realtime";
                         "internal", "duplicate", "incompatible-order", "not-linearizable" */
    const char *text; /* what, with the numbers of the transactions and the cycle */
};

typedef void verify_function(const struct verify_anomaly *anomaly, void *arg);

struct verify *truce__verify_new(void);
void truce__verify_free(struct verify *verify);

/* Copies. INVALID: it is not of the form above. Transactions are numbered from 0 in this order. */
truce_status truce__verify_add(struct verify *verify, const bson_t *transaction,
                               bson_error_t *error);

/* All anomalies found, each told to `function`; returns how many. LIMIT is told as one ("undecided"). */
int truce__verify_run(struct verify *verify, verify_function *function, void *arg);

#endif
