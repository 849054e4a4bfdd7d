#ifndef TRUCE_SIM_VERIFY_PARTS_H
#define TRUCE_SIM_VERIFY_PARTS_H

/* Declarations that the parts of the checker share: verify.c (reading), verify_lists.c,
 * verify_graph.c, verify_registers.c, verify_smallest.c, and verify_draw.c. */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/hash_table.h"
#include "sim/verify.h"

enum verify_outcome { VERIFY_OK, VERIFY_FAIL, VERIFY_UNKNOWN };
enum verify_kind { VERIFY_APPEND, VERIFY_WRITE, VERIFY_READ };

/* An operation of a transaction. */
struct verify_op {
    enum verify_kind kind;
    uint32_t key;
    /* The value of an append, of a write, or of a register that was read. */
    int64_t value;
    /* The read returned null. */
    bool nothing;
    /* The list that was read; its values are in the arena. */
    const int64_t *list;
    uint32_t length;
};

/* A transaction of the history. */
struct verify_txn {
    /* The position of the transaction in the history, from 0. */
    uint32_t number;
    int64_t process;
    /* The times at which the transaction began and ended, by the clock of the history. */
    double begin, end;
    enum verify_outcome outcome;
    const struct verify_op *ops;
    uint32_t ops_count;
};

enum verify_type { VERIFY_UNTYPED, VERIFY_LIST, VERIFY_REGISTER };

/* The history, and the state of its verification. */
struct verify {
    struct arena arena;
    struct verify_txn *txns;
    uint32_t count, room;
    const char **keys;
    enum verify_type *types;
    uint32_t keys_count, keys_room;
    /* Finds the number of a key by its hash. */
    struct hash_table key_numbers;
    /* The steps of the search for an order of registers: the maximum, and those of the last run. */
    uint64_t steps_max, steps;

    verify_function *function;
    void *arg;
    int anomalies;
};

/* Reports an anomaly to the caller's function, and counts it. */
void truce__verify_report(struct verify *verify, const char *name, const char *format, ...)
    TRUCE_PRINTF(3, 4);

/* Checks the lists of the history (verify_lists.c). The next function checks its registers. */
void truce__verify_lists(struct verify *verify);
void truce__verify_registers(struct verify *verify);

/* Reduces the history to a small part that has an anomaly of this name, too. The part shares the
 * keys of `verify`; the caller frees `txns` and releases `arena`. */
void truce__verify_smallest(const struct verify *verify, const char *name, struct verify *part);

/* ---- the graph ---- */

enum verify_edge { EDGE_WW = 1, EDGE_WR = 2, EDGE_RW = 4, EDGE_TIME = 8 };

struct verify_graph;

struct verify_graph *truce__graph_new(uint32_t nodes);
void truce__graph_free(struct verify_graph *graph);
/* Adds an edge, unless it is from a node to itself. `key` is the list that both transactions used,
 * or any value for EDGE_TIME. */
void truce__graph_add(struct verify_graph *graph, uint32_t from, uint32_t to, enum verify_edge kind,
                      uint32_t key);

/* A step of a cycle. */
struct verify_step {
    uint32_t node;
    /* The kinds of the edge that leaves the node, as bits of verify_edge. */
    unsigned kinds;
    uint32_t key;
};

/* Finds a short cycle with edges of these kinds only: the shortest one if the graph is small.
 * Returns its length and its steps, which the caller frees. If there is no cycle, returns 0 and
 * sets `*steps` to NULL. */
uint32_t truce__graph_cycle(const struct verify_graph *graph, unsigned kinds_allowed,
                            struct verify_step **steps);

#endif
