/* $unionWith: after its own input, the documents of another collection. */
#include "base/limits.h"
#include "query/aggregate/stage.h"

struct union_stage {
    /* The collection, or NULL if the pipeline begins with $documents. */
    char *collection;
    /* The pipeline for the other documents, or NULL. */
    struct pipeline *pipeline;
};

struct union_stream {
    struct stream base;
    const struct union_stage *stage;
    struct aggregate_environment environment;
    /* The documents of the other collection, or NULL before the input has ended. */
    struct stream *other;
};

/* Opens the documents of the other collection. The store applies the first filter of the pipeline,
 * unless it has an $expr. */
static truce_status open_other(struct union_stream *stream, bson_error_t *error)
{
    const struct union_stage *stage = stream->stage;
    struct query_context context = stream->base.context;
    struct stage_run run = {&stream->environment, &context, 0};
    const bson_t *filter = stage->pipeline ? truce__pipeline_first_filter(stage->pipeline) : NULL;
    truce_status status;

    if (filter && truce__filter_uses_expression(truce__value_document(filter)))
        filter = NULL;
    status = stage->collection ? truce__stream_of_collection(&run, stage->collection, filter,
                                                             &stream->other, error)
                               : TRUCE_OK;
    if (status || !stage->pipeline)
        return status;
    status = truce__pipeline_stack(stage->pipeline, filter ? 1 : 0, &run, stream->other,
                                   &stream->other, error);
    if (status)
        stream->other = NULL;
    return status;
}

static truce_status union_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct union_stream *stream = (struct union_stream *)base;
    truce_status status = TRUCE_OK;

    if (!stream->other) {
        status = base->input->next(base->input, document, error);
        if (status || document->type != VALUE_MISSING)
            return status;
        status = open_other(stream, error);
    }
    return status ? status : stream->other->next(stream->other, document, error);
}

static void union_release(struct stream *base)
{
    truce__stream_free(((struct union_stream *)base)->other);
}

static truce_status union_open(const void *data, const struct stage_run *run, struct stream *input,
                               struct stream **stream, bson_error_t *error)
{
    struct union_stream *made =
        truce__stream_new(sizeof *made, run, input, union_next, union_release);

    made->stage = data;
    made->environment = *run->environment;
    *stream = &made->base;
    return TRUCE_OK;
}

static void union_free(void *data)
{
    struct union_stage *stage = data;

    truce__pipeline_free(stage->pipeline);
    bson_free(stage->collection);
    bson_free(stage);
}

static struct pipeline **union_inner(void *data)
{
    return &((struct union_stage *)data)->pipeline;
}

static const struct stage_kind union_kind = {
    .open = union_open, .free = union_free, .inner = union_inner};

/* Reads the argument of $unionWith: the name of a collection, or a document of options. */
static truce_status read_union(struct value argument, struct value *collection,
                               struct value *pipeline, bson_error_t *error)
{
    const struct stage_option known[] = {
        {"coll", collection}, {"pipeline", pipeline}, {NULL, NULL}};
    truce_status status;

    *collection = argument;
    *pipeline = truce__value_missing();
    if (argument.type != BSON_TYPE_DOCUMENT)
        return TRUCE_OK;
    *collection = truce__value_missing();
    status = truce__stage_options("$unionWith", 40415, argument, known, error);
    if (status)
        return status;
    if (pipeline->type && pipeline->type != BSON_TYPE_ARRAY)
        return truce__stage_refuse(CODE_TYPE_MISMATCH, *pipeline,
                                   "$unionWith's pipeline must be an array", error);
    return TRUCE_OK;
}

truce_status truce__stage_union_with(struct stage_parser *parser, struct value argument,
                                     bson_error_t *error)
{
    struct value collection, pipeline;
    size_t length = 0;
    bool own;
    struct union_stage *stage;
    truce_status status = read_union(argument, &collection, &pipeline, error);

    if (!status)
        status = truce__stage_own_documents("$unionWith", pipeline, collection, &own, error);
    if (status)
        return status;
    if (!own && (!truce__stage_text(collection, &length) || length == 0))
        return truce__stage_refuse(CODE_FAILED_TO_PARSE, argument,
                                   "$unionWith must name a collection, alone or as 'coll'", error);
    stage = bson_malloc0(sizeof *stage);
    stage->collection = own ? NULL : bson_strdup(truce__stage_text(collection, &length));
    if (pipeline.type)
        status = truce__pipeline_compile(parser, pipeline, parser->variables, CONTEXT_UNION,
                                         &stage->pipeline, error);
    if (status)
        union_free(stage);
    else
        truce__stage_push(parser, &union_kind, stage);
    return status;
}
