#ifndef TRUCE_TESTS_SUPPORT_SET_MODEL_H
#define TRUCE_TESTS_SUPPORT_SET_MODEL_H

/* The reference for ordered sets: for each name the operation of the highest rank, as in-order,
 * exactly-once delivery leaves it. It does not use src/patterns, and is short enough to be
 * obviously correct. */
#include "tests/support/test.h"
#include "truce/truce.h"

struct model_operation {
    bool add;
    int64_t seq;
    /* NULL if the operation has no source. */
    const char *source;
    /* Small numbers: the student_id of the key, and the number of the class "CS <name>". */
    int key, name;
};

#define MODEL_NAMES_MAX 64

/* Returns the operation that decides a name after all operations of that key with given[i] (all of
 * them if `given` is NULL). Returns NULL if no operation decides it. */
const struct model_operation *model_winner(const struct model_operation *operations, size_t count,
                                           const bool *given, int key, int name);

/* Makes the public operation. Initializes `key` and `element`, which the caller destroys. The
 * payload of an add names the operation that it came from: {name: "CS 1", from: "web 7"}. */
void model_operation_make(const struct model_operation *operation, bson_t *key, bson_t *element,
                          truce_set_operation *made);

struct model_handles {
    truce_store *store;
    truce_set *set;
};

/* Applies one operation. The next function applies a batch: the operations with the numbers in
 * `chosen`. */
truce_status model_apply(truce_set *set, const struct model_operation *operation,
                         truce_set_outcome *outcome, bson_error_t *error);
truce_status model_apply_batch(truce_set *set, const struct model_operation *operations,
                               const int *chosen, int count, truce_set_result *results,
                               bson_error_t *error);

/* Checks the stored document of a key against the reference, for the names 0 to names - 1. With
 * `tombstones`, also checks that removed names have tombstones. Returns false if it differs, and
 * reports the difference with `what`. */
bool model_check(truce_set *set, const struct model_operation *operations, size_t count,
                 const bool *given, int key, int names, bool tombstones, const char *what);

/* {student_id: key} */
bson_t *model_key(int key);

/* Formats "a1 r2 a3", for messages. */
const char *model_show(const struct model_operation *operations, size_t count, const bool *given,
                       char *text, size_t size);

#endif
