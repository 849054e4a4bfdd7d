#ifndef TRUCE_SIM_HISTORY_CHECKER_H
#define TRUCE_SIM_HISTORY_CHECKER_H

#include "sim/sim.h"

/* Records the versions of the documents as an observer sees them, and the results of the
 * clients. */
struct sim_history {
    struct sim_version versions[SIM_DOCUMENTS][SIM_VERSIONS];
    /* count[d]: the number of versions of document d. */
    int count[SIM_DOCUMENTS];
    struct sim_txn txns[SIM_TXNS];
    int txns_count;
    /* The number of events so far. */
    int clock;
    /* The ids of the commits that were observed as decided. */
    bson_oid_t decided[SIM_TXNS];
    int decided_count;
    /* A commit was decided while a document that it held had changed since it was read. */
    bool fence_broken;
    /* The scenario is keyed, so `_keys` are checked. */
    bool keyed;
    /* The first fault that was found in a document's `_keys`, or NULL. */
    const char *wrong_keys;
    /* The run had too many versions or transactions to be recorded, so it is not checked. */
    bool overflow;
};

/* Runs after a write of `txn` to the collection of commits. Records a decision and checks that the
 * documents of the commit are unchanged since they were read. */
void truce__history_decision(struct sim_history *history, truce_store *store, int txn,
                             const bson_t *filter);

/* Records the documents that have a new version after a call of `txn` (-1 for no transaction) with
 * this filter (may be NULL). */
void truce__history_observe(struct sim_history *history, truce_store *store, int txn,
                            const bson_t *filter);

/* Checks that every document's `_keys` has its value and, unless a commit holds the document,
 * nothing else. If `bare`, it may have no `_keys`. Returns NULL or the fault. */
const char *truce__history_keys(truce_store *store, const bool bare[SIM_DOCUMENTS]);

/* Returns the number of the version that a reader saw (NULL if it is missing), or -1 if it never
 * existed. */
int truce__history_version(const struct sim_history *history, int document, const bson_t *seen);

/* Checks the finished run: atomicity, exactly-once, correct results, and strict serializability.
 * Returns NULL, or the violation and its `detail`. */
const char *truce__history_check(const struct sim_history *history, char *detail, size_t size);

#endif
