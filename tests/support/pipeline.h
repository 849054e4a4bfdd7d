#ifndef TRUCE_TESTS_SUPPORT_PIPELINE_H
#define TRUCE_TESTS_SUPPORT_PIPELINE_H

/* Pipelines over documents in memory, and an environment for them: collections are arrays of
 * documents, written documents are kept as lists, spills are in memory.
 */
#include "base/random.h"
#include "query/aggregate/aggregate.h"
#include "tests/support/memory_spill.h"

struct pipeline_world {
    const char *collections[4]; /* names; NULL: none */
    bson_t *documents[4];       /* of each, an array */
    bson_t out;                 /* the documents of $out, and at each end of it the name: a list */
    bson_t merged;              /* the documents of $merge: {stage, document} */
    uint32_t out_count, merged_count;
    int opened;    /* collections opened */
    int filtered;  /* ... of these with a filter */
    int merges;    /* calls for $merge */
    int pulled;    /* documents pulled from the input */
    int given;     /* ... and from the collections, by their filters */
    int fail_open; /* the n-th opening fails; 0: none */
    size_t memory_max;
    bool spills;  /* allowed */
    bool indexed; /* every path of every collection */
    bool read_only;
    struct memory_spills spill;
    struct random random;
};

void pipeline_world_init(struct pipeline_world *world);
void pipeline_world_release(struct pipeline_world *world);
/* `documents` is taken over. */
void pipeline_world_add(struct pipeline_world *world, const char *name, bson_t *documents);

/* Runs the stages (an array) over the documents (an array); `result` is an array, initialised here.
 */
truce_status pipeline_run(struct pipeline_world *world, const bson_t *stages,
                          const bson_t *documents, bson_t *result, bson_error_t *error);

/* Checks the output of the stages; the stages, the documents, and the result are given as in
 * test_array. */
void pipeline_check(struct pipeline_world *world, const char *stages, const char *documents,
                    const char *expected);
/* Checks that the pipeline is refused, at the latest at a document, with the code. */
void pipeline_check_refused(struct pipeline_world *world, const char *stages, uint32_t code);

/* {"v": [...]} as Extended JSON with ' for ", the array of it; bson_destroy it */
bson_t *test_array(const char *json);

#endif
