#ifndef TRUCE_SIM_HISTORY_H
#define TRUCE_SIM_HISTORY_H

#include "sim/sim.h"

/* What really happened to the documents, seen from outside, and what the clients believe. */
struct sim_history {
    struct sim_version versions[SIM_DOCUMENTS][SIM_VERSIONS];
    int count[SIM_DOCUMENTS];
    struct sim_txn txns[SIM_TXNS];
    int txns_count;
    int clock;                    /* of events */
    bson_oid_t decided[SIM_TXNS]; /* commits that were seen decided */
    int decided_count;
    bool fence_broken; /* one was, while a document that it held was not as it was read */
    bool keyed;
    const char *wrong_keys; /* what was wrong with some document's `_keys`, or NULL */
    bool overflow;
};

/* After a write to the commit collection on behalf of `txn`: notes a decision, and looks whether the documents
 * that it holds are, at this moment, as they were read. */
void truce__history_decision(struct sim_history *history, truce_store *store, int txn,
                             const bson_t *filter);

/* Looks at the documents, and notes those that are in a new version since a call of `txn` (-1: nobody's) with
 * this filter (NULL: none). */
void truce__history_observe(struct sim_history *history, truce_store *store, int txn,
                            const bson_t *filter);

/* Looks whether every document's `_keys` repeats its value, and, unless a commit holds it, nothing else.
 * `bare`: it may have none. NULL, or what is wrong. */
const char *truce__history_keys(truce_store *store, const bool bare[SIM_DOCUMENTS]);

/* The version that a reader just saw (NULL: missing), as a number; -1: no version was ever so. */
int truce__history_version(const struct sim_history *history, int document, const bson_t *seen);

/* Judges the finished run: atomicity, exactly once, answers that tell the truth, strict
 * serializability. NULL, or what is wrong, with `detail`. */
const char *truce__history_judge(const struct sim_history *history, char *detail, size_t size);

#endif
