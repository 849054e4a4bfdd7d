#ifndef TRUCE_QUERY_AGGREGATE_AGGREGATE_H
#define TRUCE_QUERY_AGGREGATE_AGGREGATE_H

/*
 * Aggregation pipelines: a chain of stages that pull documents from each other, so that the memory
 * is constant if the stages allow it.
 *
 * query/ opens no collection and no file: a pipeline reaches them through `struct
 * aggregate_environment`, which the store fills in.
 */
#include "query/match/match.h"
#include "query/sort/spill_file.h"

/* Takes one document, borrowed for the call. */
typedef truce_status document_take(void *arg, struct value document, bson_error_t *error);

/* A source of documents. `next` returns a borrowed document, valid until the next call; *document
 * is NULL at the end. */
struct source {
    truce_status (*next)(struct source *source, const bson_t **document, bson_error_t *error);
    void (*free)(struct source *source);
    /* Passes all remaining documents to `take`, until it returns an error. A stage that reads all
     * of its input calls it, because the source then need not copy documents. NULL means that the
     * source has only `next`. */
    truce_status (*each)(struct source *source, document_take *take, void *arg,
                         bson_error_t *error);
    /* The first stage to run is a $sort, and the documents already come in the order in which a
     * find with this sort returns them. No field of the sort has an array. */
    bool ordered;
};

struct aggregate_environment {
    void *arg;
    /* Opens the documents of a collection that match `filter` (NULL means all), for $lookup and
     * $unionWith. */
    truce_status (*open)(void *arg, const char *collection, const bson_t *filter,
                         struct source **source, bson_error_t *error);
    /* Returns whether an index serves equality at the path of a collection. NULL means never. */
    bool (*indexed)(void *arg, const char *collection, const char *path);
    /* `out` is called for each document of $out with `last` false, then once with NULL and `last`
     * true. The last call replaces the collection by the written documents, even if nothing was
     * written. `merge` is called once with NULL at the beginning, to check the target, and then for
     * each document of $merge. `stage` has the options that the user gave: the value of "$merge" as
     * a document (the short form "name" as {into: "name"}). NULL means that writing is not
     * allowed. */
    truce_status (*out)(void *arg, const char *collection, const bson_t *document, bool last,
                        bson_error_t *error);
    truce_status (*merge)(void *arg, const bson_t *stage, const bson_t *document,
                          struct query_context *context, bson_error_t *error);
    /* Opens a temporary file. NULL means that a stage must not exceed the memory limit. */
    truce_status (*spill)(void *arg, struct spill **spill, bson_error_t *error);
    /* The memory limit of a stage in bytes. 0 means TRUCE_STAGE_MEMORY_MAX. */
    size_t memory_max;
};

struct pipeline;

/* Checks and compiles the array `stages` as a whole. */
truce_status truce__pipeline_new(const bson_t *stages, struct pipeline **pipeline,
                                 bson_error_t *error);
void truce__pipeline_free(struct pipeline *pipeline);

/* Returns whether the last stage of the array `stages` writes. Works before they are checked. */
bool truce__pipeline_writes(const bson_t *stages);

/* The beginning of a pipeline, if a store can do it itself: a filter (an initial $match; NULL:
 * none), a sort after it, and a limit after that. A $sort distinguishes a missing field from null,
 * a find does not. Only a sort by `_id`, which is never missing, is the same in both (`same_sort`),
 * and only then `limit` is set. Any other $sort must stay in the pipeline, but has little work with
 * an ordered source. */
struct pipeline_head {
    const bson_t *filter, *sort;
    bool same_sort;
    /* The limit, or 0 for no limit. */
    int64_t limit;
    /* The number of stages that the store replaces if it takes the filter, and also the sort and
     * the limit if `same_sort` is set. */
    uint32_t stages_taken;
};
void truce__pipeline_head(const struct pipeline *pipeline, struct pipeline_head *head);

/* A stage as it runs, for explain. */
struct pipeline_part {
    /* The stages of the request from which this one was made. The next stage may have the same
     * range. */
    uint32_t from, to;
    /* The filter of a $match, otherwise NULL. It may differ from that of the request, because
     * filters are moved to the front and joined (aggregate_match.c). */
    const bson_t *filter;
};
/* Fills `part` with stage number `number` as it runs. Returns false if there is no such stage. */
bool truce__pipeline_part(const struct pipeline *pipeline, uint32_t number,
                          struct pipeline_part *part);

/* Runs the stages from number `first` on over `input`, and frees `input` at the end. The pipeline
 * may reset the context's arena. */
truce_status truce__pipeline_open(struct pipeline *pipeline, uint32_t first, struct source *input,
                                  const struct aggregate_environment *environment,
                                  struct query_context *context, struct source **output,
                                  bson_error_t *error);

/* Applies an update pipeline ($set, $unset, $project, $replaceWith) to one document. */
truce_status truce__pipeline_new_update(const bson_t *stages, struct pipeline **pipeline,
                                        bson_error_t *error);
truce_status truce__pipeline_apply(const struct pipeline *pipeline, struct value document,
                                   struct query_context *context, bson_t *result,
                                   bson_error_t *error);

#endif
