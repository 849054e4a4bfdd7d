#ifndef TRUCE_TESTS_SUPPORT_HALF_COMMIT_H
#define TRUCE_TESTS_SUPPORT_HALF_COMMIT_H

/*
 * A commit of the journal that moves, changes, and inserts documents, and ends after any of its
 * writes:
 *
 *     before    m0: mover, changed (n: 1), still (n: 1)     m1: old (n: 1)
 *     after     m0: changed (n: 2), still                   m1: old, mover, fresh (n: 9)
 */
#include "tests/support/bank.h"
#include "truce/sys/decorate.h"

static inline void half_commit_fill(truce_store *store)
{
    bson_t *index = test_bson("{'key': {'n': 1}}");
    bson_error_t error = {0};

    insert_json(store, "m0", "{'_id': 'mover', 'a': 7}");
    insert_json(store, "m0", "{'_id': 'changed', 'n': 1}");
    insert_json(store, "m0", "{'_id': 'still', 'n': 1}");
    insert_json(store, "m1", "{'_id': 'old', 'n': 1}");
    insert_json(store, "names", "{'_id': 1, 'of': 'fresh'}");
    for (int i = 0; i < 2; i++)
        CHECK_OK(truce_index_create(store, i ? "m1" : "m0", index, &error), error);
    bson_destroy(index);
}

static inline truce_status half_commit_add(truce_commit *commit, bson_error_t *error)
{
    bson_t *mover = test_bson("{'_id': 'mover', 'a': 7}"),
           *fresh = test_bson("{'_id': 'fresh', 'n': 9}");
    bson_value_t id = text_id("mover");
    truce_status status = truce_commit_remove(commit, "m0", &id, NULL, error);

    if (!status)
        status = truce_commit_insert(commit, "m1", mover, error);
    if (!status)
        status = truce_commit_insert(commit, "m1", fresh, error);
    if (!status)
        status = add_update(commit, "m0", "changed", NULL, "{'$set': {'n': 2}}", error);
    bson_destroy(fresh);
    bson_destroy(mover);
    return status;
}

/* Applies the commit to a store of truce_fault_wrap, whose write number `at` and all later writes
 * fail. Returns false if the commit has fewer writes. */
static inline bool half_commit_end_at(truce_store *store, uint64_t at)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .deadline_ms = 1};
    truce_fault_options fault = {.kind = TRUCE_FAULT_FAIL,
                                 .at = at,
                                 .from_then_on = true,
                                 .writes_only = true,
                                 .status = TRUCE_IO};
    truce_commit *commit = NULL;
    bson_error_t error = {0};
    uint64_t hits;

    truce_fault_arm(store, &fault);
    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    CHECK_OK(half_commit_add(commit, &error), error);
    (void)!truce_commit_apply(commit, &error);
    hits = truce_fault_hits(store);
    truce_fault_arm(store, &(truce_fault_options){0});
    truce_commit_free(commit);
    return hits > 0;
}

#endif
