#ifndef TRUCE_QUERY_AGGREGATE_AGGREGATE_H
#define TRUCE_QUERY_AGGREGATE_AGGREGATE_H

/*
 * Aggregation pipelines: a chain of stages that pull documents from each other, so that memory is
 * flat where a stage allows it.
 *
 * query/ opens no collection and no file: what a pipeline needs of the world it asks through
 * `struct aggregate_world`, which the store fills in.
 */
#include "query/match/match.h"
#include "query/sort/spill.h"

/* Takes one document, borrowed for the call. */
typedef truce_status document_take(void *arg, struct value document, bson_error_t *error);

/* A source of documents. `next` gives a borrowed document, valid until the next call; *document is
 * NULL at the end. */
struct source {
    truce_status (*next)(struct source *source, const bson_t **document, bson_error_t *error);
    void (*free)(struct source *source);
    /* All documents that are left, to `take`, up to its first status that is not OK: for a stage
     * that takes everything before it gives anything. It spares the source to copy them. NULL:
     * there is only `next`. */
    truce_status (*each)(struct source *source, document_take *take, void *arg,
                         bson_error_t *error);
    bool ordered; /* the first stage that runs is a $sort, and documents come in the order in which
                     a find with this sort has them; none has an array at a field of the sort */
};

struct aggregate_world {
    void *arg;
    /* documents of a collection that match (NULL: all), for $lookup and $unionWith */
    truce_status (*open)(void *arg, const char *collection, const bson_t *filter,
                         struct source **source, bson_error_t *error);
    /* Is equality at the path of a collection found without a look at all of it? NULL: never. */
    bool (*indexed)(void *arg, const char *collection, const char *path);
    /* $out: each document with `last` false, then NULL once with `last` true, which replaces the
     * collection by what was written (also if that is nothing). $merge: NULL once at the beginning,
     * to check what only the world can check, then each document; by the stage's options as the
     * user gave them, the value of "$merge" as a document (the short form "name" as
     * {into: "name"}). NULL where writing is not allowed. */
    truce_status (*out)(void *arg, const char *collection, const bson_t *document, bool last,
                        bson_error_t *error);
    truce_status (*merge)(void *arg, const bson_t *stage, const bson_t *document,
                          struct query_context *context, bson_error_t *error);
    /* NULL: spilling is not allowed, the memory limit is final */
    truce_status (*spill)(void *arg, struct spill **spill, bson_error_t *error);
    size_t memory_max; /* 0: TRUCE_STAGE_MEMORY_MAX */
};

struct pipeline;

/* `stages` is the array of stages; checked and compiled as a whole. */
truce_status truce__pipeline_new(const bson_t *stages, struct pipeline **pipeline,
                                 bson_error_t *error);
void truce__pipeline_free(struct pipeline *pipeline);

/* For the planner: what the pipeline starts with, if the store can do it: a filter (an initial
 * $match; NULL: none), a sort behind it, a limit behind that. A $sort tells a missing field from
 * null, where a find does not. Only by `_id`, which is never missing, is it the same (`same_sort`),
 * and the limit given; any other $sort must stay, but has little to do with an ordered source. */
struct pipeline_head {
    const bson_t *filter, *sort;
    bool same_sort;
    int64_t limit;         /* 0: none */
    uint32_t stages_taken; /* stages that the store does when it takes the filter, and the sort and
                              the limit if it is the same sort */
};
void truce__pipeline_head(const struct pipeline *pipeline, struct pipeline_head *head);

/* For explain: a stage as it runs. It is made of the stages from..to as they were given, and so may be the next; or it is a $match:
 * filters stand as far in front as they can, and what meets there is one (aggregate_match.c). */
struct pipeline_part {
    uint32_t from, to;
    const bson_t *filter; /* of a $match; else NULL */
};
/* False: there is no such stage. */
bool truce__pipeline_part(const struct pipeline *pipeline, uint32_t number,
                          struct pipeline_part *part);

/* Runs the stages from number `first` on over `input` (which it frees at the end). The context's
 * arena is the pipeline's to reset. */
truce_status truce__pipeline_open(struct pipeline *pipeline, uint32_t first, struct source *input,
                                  const struct aggregate_world *world,
                                  struct query_context *context, struct source **output,
                                  bson_error_t *error);

/* One document through a pipeline of $set, $unset, $project and $replaceWith: an update pipeline.
 */
truce_status truce__pipeline_new_update(const bson_t *stages, struct pipeline **pipeline,
                                        bson_error_t *error);
truce_status truce__pipeline_apply(const struct pipeline *pipeline, struct value document,
                                   struct query_context *context, bson_t *result,
                                   bson_error_t *error);

#endif
