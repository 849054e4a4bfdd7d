#ifndef TRUCE_BENCH_OPERATIONS_PLACE_H
#define TRUCE_BENCH_OPERATIONS_PLACE_H

/* Handles that operations.c and operations_patterns.c share, and the operations of the latter. */
#include "bench/operations.h"

#define COLLECTION "trips_"

struct bench_place {
    truce_store *store;
    truce_set *set, *classic, *elements;
    truce_item *item;
    truce_revision *revision;
    bson_t post;     /* The post as it was last saved. */
    int64_t version; /* The version of the post. */
    int64_t seq;
    int turn;
    int added, removed; /* The number of badges that were added, and removed. */
    truce_queue *queue;
    truce_ledger *ledger;
    truce_transfers *transfers;
    truce_sync *sync;
    truce_tree *tree, *unswept;
    truce_tree_snapshot *snapshot;
};

/* These functions create the data that the patterns need in the store, and free their handles. */
truce_status bench_patterns_begin(struct bench_place *place, bson_error_t *error);
void bench_patterns_end(struct bench_place *place);

typedef truce_status bench_run(struct bench_place *place, const struct bench_operation *operation,
                               bson_error_t *error);
bench_run bench_queue_add, bench_queue_work, bench_ledger_post, bench_ledger_commit,
    bench_ledger_balance, bench_transfer, bench_rename, bench_publish, bench_publish_unswept,
    bench_tree_get;

#endif
