/*
 * Pipelines: the table of stages, and running a pipeline (stage.h has the picture).
 *
 * Some stages are parsed into other stages: $count is a $group and a $project, and $bucket and
 * $sortByCount are a $group and a $sort. Stages that only MongoDB has are in the same table, so
 * that they are refused by name and never ignored.
 *
 * Memory: a stream holds one document, except in $sort, $group, $bucketAuto, $sample, $facet,
 * $lookup, $graphLookup, and $documents, which have a limit (stage.h, struct spill_options). A
 * pipeline of other stages runs in constant memory.
 *
 * Invariants:
 *   1. A compiled pipeline does not change; all state of a run is in its streams.
 *   2. A stream owns its input, so freeing the last stream of a stack frees all of it.
 *   3. A document is valid until its stream is asked for the next one.
 */
#include "query/aggregate/aggregate.h"

#include "base/assert.h"
#include "base/limits.h"
#include "bson/field_path.h"
#include "query/aggregate/stage.h"

/* ---- the table ------------------------------------------------------------------------------ */

static const struct stage_name stage_names[] = {
    {"$match", truce__stage_match},
    {"$project", truce__stage_project, true},
    {"$set", truce__stage_set, true},
    {"$addFields", truce__stage_set, true},
    {"$unset", truce__stage_unset, true},
    {"$replaceRoot", truce__stage_replace_root, true},
    {"$replaceWith", truce__stage_replace_with, true},
    {"$redact", truce__stage_redact},
    {"$group", truce__stage_group},
    {"$count", truce__stage_count},
    {"$sortByCount", truce__stage_sort_by_count},
    {"$sort", truce__stage_sort},
    {"$limit", truce__stage_limit},
    {"$skip", truce__stage_skip},
    {"$unwind", truce__stage_unwind},
    {"$bucket", truce__stage_bucket},
    {"$bucketAuto", truce__stage_bucket_auto},
    {"$facet", truce__stage_facet, .not_in_facet = true},
    {"$lookup", truce__stage_lookup},
    {"$graphLookup", truce__stage_graph_lookup},
    {"$unionWith", truce__stage_union_with},
    {"$sample", truce__stage_sample},
    {"$out", truce__stage_out, .not_in_facet = true},
    {"$merge", truce__stage_merge, .not_in_facet = true},
    {"$setWindowFields", .refusal = "window functions"},
    {"$geoNear", .refusal = "geospatial queries"},
    {"$densify", .refusal = "filling gaps"},
    {"$fill", .refusal = "filling gaps"},
    {"$documents", truce__stage_documents, .not_in_facet = true},
    {"$collStats", .refusal = "collection statistics"},
    {"$indexStats", .refusal = "index statistics"},
    {"$planCacheStats", .refusal = "plan cache statistics"},
    {"$currentOp", .refusal = "the list of operations"},
    {"$listSessions", .refusal = "sessions"},
    {"$listLocalSessions", .refusal = "sessions"},
    {"$listSampledQueries", .refusal = "sampled queries"},
    {"$listSearchIndexes", .refusal = "search indexes"},
    {"$search", .refusal = "text search"},
    {"$searchMeta", .refusal = "text search"},
    {"$vectorSearch", .refusal = "vector search"},
    {"$changeStream", .refusal = "change streams"},
};

static const struct stage_table stage_table = {
    stage_names,
    sizeof stage_names / sizeof *stage_names,
    truce__stages_join_filters,
};

/* The parser of a pipeline that is not inside another. */
static const struct stage_parser outermost = {.table = &stage_table};

truce_status truce__pipeline_new(const bson_t *stages, struct pipeline **pipeline,
                                 bson_error_t *error)
{
    return truce__pipeline_compile(&outermost, truce__value_array(stages), NULL, CONTEXT_TOP,
                                   pipeline, error);
}

truce_status truce__pipeline_new_update(const bson_t *stages, struct pipeline **pipeline,
                                        bson_error_t *error)
{
    return truce__pipeline_compile(&outermost, truce__value_array(stages), NULL, CONTEXT_UPDATE,
                                   pipeline, error);
}

/* ---- the head of a pipeline ------------------------------------------------------------------ */

/* The part of a pipeline that a store can do itself, and the stages as they run: for planners and
 * explain. */

/* Returns whether a $sort orders documents as the sort of a find does. The stage $sort
 * distinguishes a missing field from null, a find does not; `_id` is never missing. */
static bool sorts_as_find(const bson_t *sort)
{
    return bson_count_keys(sort) == 1 && bson_has_field(sort, "_id");
}

void truce__pipeline_head(const struct pipeline *pipeline, struct pipeline_head *head)
{
    uint32_t at = 0;

    *head = (struct pipeline_head){.filter = truce__pipeline_first_filter(pipeline)};
    if (head->filter)
        at++;
    if (at < pipeline->count && pipeline->stages[at].kind == &truce__sort_kind) {
        const bson_t *sort = ((const struct sort_stage *)pipeline->stages[at].data)->specification;

        head->sort = sort;
        head->same_sort = sorts_as_find(sort);
        if (!head->same_sort) {
            head->stages_taken = at;
            return;
        }
        at++;
    }
    if (at < pipeline->count && pipeline->stages[at].kind->counts == STAGE_LIMIT)
        head->limit = ((const struct count_stage *)pipeline->stages[at++].data)->count;
    head->stages_taken = at;
}

bool truce__pipeline_part(const struct pipeline *pipeline, uint32_t number,
                          struct pipeline_part *part)
{
    const struct stage *stage;

    if (number >= pipeline->count)
        return false;
    stage = &pipeline->stages[number];
    *part = (struct pipeline_part){
        .from = stage->from, .to = stage->to, .filter = truce__stage_filter(stage)};
    return true;
}

/* ---- running -------------------------------------------------------------------------------- */

struct output_source {
    struct source base;
    struct stream *last;
    struct query_context context;
    struct aggregate_environment environment;
    bson_t document;
    bool ended;
};

/* Returns the next document of a pipeline. Fails if it is larger than a stored document may be. */
static truce_status output_next(struct source *base, const bson_t **document, bson_error_t *error)
{
    struct output_source *output = (struct output_source *)base;
    struct value value;
    truce_status status;

    *document = NULL;
    if (output->ended)
        return TRUCE_OK;
    status = output->last->next(output->last, &value, error);
    if (status || value.type == VALUE_MISSING) {
        output->ended = true;
        return status;
    }
    truce_assert(truce__stream_is_document(value));
    if (value.size > TRUCE_DOCUMENT_BYTES_MAX) {
        output->ended = true;
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "a document of the pipeline has %u bytes, more than %d", value.size,
                             TRUCE_DOCUMENT_BYTES_MAX);
    }
    truce__value_bson(value, &output->document);
    *document = &output->document;
    return TRUCE_OK;
}

static void output_free(struct source *base)
{
    struct output_source *output = (struct output_source *)base;

    truce__stream_free(output->last);
    bson_free(output);
}

truce_status truce__pipeline_open(struct pipeline *pipeline, uint32_t first, struct source *input,
                                  const struct aggregate_environment *environment,
                                  struct query_context *context, struct source **output,
                                  bson_error_t *error)
{
    struct output_source *made = BSON_ALIGNED_ALLOC0(struct output_source);
    struct stage_run run = {&made->environment, &made->context, .ordered = input->ordered};
    truce_status status;

    truce_assert(!pipeline->is_update && first <= pipeline->count);
    made->base = (struct source){.next = output_next, .free = output_free};
    made->context = *context;
    if (environment)
        made->environment = *environment;
    status = truce__pipeline_stack(pipeline, first, &run, truce__stream_of_source(&run, input),
                                   &made->last, error);
    if (status)
        bson_free(made);
    *output = status ? NULL : &made->base;
    return status;
}

truce_status truce__pipeline_apply(const struct pipeline *pipeline, struct value document,
                                   struct query_context *context, bson_t *result,
                                   bson_error_t *error)
{
    bson_t borrowed;

    truce_assert(pipeline->is_update);
    for (uint32_t i = 0; i < pipeline->count; i++) {
        const struct stage *stage = &pipeline->stages[i];
        truce_status status = stage->kind->apply(stage->data, document, context, &document, error);

        if (status) {
            bson_init(result);
            return status;
        }
    }
    if (document.size > TRUCE_DOCUMENT_BYTES_MAX + TRUCE_INTERNAL_BYTES_EXTRA) {
        bson_init(result);
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the updated document has %u bytes, more than %d", document.size,
                             TRUCE_DOCUMENT_BYTES_MAX);
    }
    truce__value_bson(document, &borrowed);
    bson_copy_to(&borrowed, result);
    return TRUCE_OK;
}
