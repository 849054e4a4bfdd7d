#ifndef TRUCE_TESTS_SUPPORT_PIPELINE_H
#define TRUCE_TESTS_SUPPORT_PIPELINE_H

/* Pipelines over documents in memory, and an environment for them: collections are arrays of
 * documents, written documents are kept as lists, spills are in memory. */
#include "base/random.h"
#include "query/aggregate/aggregate.h"
#include "tests/support/memory_spill.h"

struct pipeline_world {
    /* The names of the collections; NULL means unused. */
    const char *collections[4];
    /* The documents of each collection, as an array. */
    bson_t *documents[4];
    /* A list of the documents of $out; the name of the collection follows the last document of each
     * $out. */
    bson_t out;
    /* The documents of $merge, each as {stage, document}. */
    bson_t merged;
    uint32_t out_count, merged_count;
    /* The number of collections that were opened. */
    int opened;
    /* The number of these that were opened with a filter. */
    int filtered;
    /* The number of calls for $merge. */
    int merges;
    /* The number of documents that were read from the input. */
    int pulled;
    /* The number of documents that were read from collections. */
    int given;
    /* The opening of this number fails; 0 means none. */
    int fail_open;
    size_t memory_max;
    /* Stages may use spills. */
    bool spills;
    /* Every path of every collection has an index. */
    bool indexed;
    bool read_only;
    struct memory_spills spill;
    struct random random;
};

void pipeline_world_init(struct pipeline_world *world);
void pipeline_world_release(struct pipeline_world *world);
/* Adds a collection. The environment owns `documents`. */
void pipeline_world_add(struct pipeline_world *world, const char *name, bson_t *documents);

/* Runs the stages (an array) over the documents (an array). Initializes `result`, an array. */
truce_status pipeline_run(struct pipeline_world *world, const bson_t *stages,
                          const bson_t *documents, bson_t *result, bson_error_t *error);

/* Checks the output of the stages; the stages, the documents, and the result are given as in
 * test_array. */
void pipeline_check(struct pipeline_world *world, const char *stages, const char *documents,
                    const char *expected);
/* Checks that the pipeline fails with this code, when it is compiled or when it runs. */
void pipeline_check_refused(struct pipeline_world *world, const char *stages, uint32_t code);

/* Parses {"v": [...]}, Extended JSON in which ' may replace ", and returns the array. The caller
 * destroys it. */
bson_t *test_array(const char *json);

#endif
