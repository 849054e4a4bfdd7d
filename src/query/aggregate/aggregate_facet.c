/*
 * $facet: several pipelines over one input, alternately.
 *
 *     input ──> batch ──┬──> tee ──> stages of facet a ──> results of a ─┐
 *                       ├──> tee ──> stages of facet b ──> results of b ─┼─> {a: [...], b: [...]}
 *                       └──> ...                                        ─┘
 *
 * One batch of the input is in memory. Each facet pulls until its tee has returned the whole batch
 * and returns STREAM_PAUSED, which passes up through the facet's stages. Then the next facet runs,
 * and after the last facet the next batch is read. The input is therefore never in memory as a
 * whole. The results are, because they become one document.
 */
#include "base/assert.h"
#include "base/limits.h"
#include "bson/builder.h"
#include "bson/field_path.h"
#include "bson/refuse_value.h"
#include "query/aggregate/stage.h"

#define BATCH_BYTES           (256 * 1024)
#define CODE_RESULT_TOO_LARGE 4031700

struct facet {
    char *name;
    struct pipeline *pipeline;
};

struct facet_stage {
    struct facet *facets;
    uint32_t count;
};

struct facet_stream;

struct tee {
    struct stream base;
    struct facet_stream *facets;
    /* The offset of the next document in the batch. */
    size_t at;
};

struct branch {
    struct stream *last;
    /* The first stream of the facet, which reads the batch. Owned by `last`. */
    struct tee *tee;
    /* The result documents of the facet, one after the other. */
    struct buffer results;
    bool ended;
};

struct facet_stream {
    struct stream base;
    const struct facet_stage *stage;
    struct aggregate_environment environment;
    struct branch *branches;
    /* The current batch of input documents, one after the other. */
    struct buffer batch;
    size_t results_bytes;
    bool drained, given;
};

static uint32_t document_size(const uint8_t *bytes)
{
    uint32_t size;

    memcpy(&size, bytes, sizeof size);
    return size;
}

/* Returns the next document of the batch to one facet. At the end of the batch, pauses the facet
 * until the next batch, or ends it if the input has ended. */
static truce_status tee_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct tee *tee = (struct tee *)base;
    const struct buffer *batch = &tee->facets->batch;

    *document = truce__value_missing();
    if (tee->at == batch->size) {
        if (!tee->facets->drained)
            document->type = STREAM_PAUSED;
        return TRUCE_OK;
    }
    *document = (struct value){batch->bytes + tee->at, document_size(batch->bytes + tee->at),
                               BSON_TYPE_DOCUMENT};
    tee->at += document->size;
    return truce__stream_spend(base, error);
}

/* Reads the next batch of the input, and returns all tees to its beginning. */
static truce_status facet_fill_batch(struct facet_stream *stream, bson_error_t *error)
{
    stream->batch.size = 0;
    for (uint32_t i = 0; i < stream->stage->count; i++) {
        if (!stream->branches[i].ended)
            stream->branches[i].tee->at = 0;
    }
    while (!stream->drained && stream->batch.size < BATCH_BYTES) {
        struct value document;
        truce_status status = stream->base.input->next(stream->base.input, &document, error);

        if (status)
            return status;
        /* Only a $facet around this one could pause the input, and facets are not nested. */
        truce_assert(document.type != STREAM_PAUSED);
        stream->drained = document.type == VALUE_MISSING;
        if (!stream->drained)
            truce__buffer_append(&stream->batch, document.data, document.size);
    }
    return TRUCE_OK;
}

/* Pulls all documents that the facet's stages return for the batch. */
static truce_status facet_run_branch(struct facet_stream *stream, struct branch *branch,
                                     bson_error_t *error)
{
    while (!branch->ended) {
        struct value document;
        truce_status status = branch->last->next(branch->last, &document, error);

        if (status || document.type == STREAM_PAUSED)
            return status;
        if (document.type == VALUE_MISSING) {
            branch->ended = true;
            break;
        }
        truce__buffer_append(&branch->results, document.data, document.size);
        stream->results_bytes += document.size;
        status =
            truce__stream_hold(&stream->base, stream->results_bytes + stream->batch.size, error);
        if (status)
            return status;
        if (stream->results_bytes > TRUCE_STAGE_MEMORY_MAX)
            return truce__refuse(CODE_RESULT_TOO_LARGE, error,
                                 "the document that $facet makes has more than %d bytes",
                                 TRUCE_STAGE_MEMORY_MAX);
    }
    return TRUCE_OK;
}

static bool all_ended(const struct facet_stream *stream)
{
    for (uint32_t i = 0; i < stream->stage->count; i++) {
        if (!stream->branches[i].ended)
            return false;
    }
    return true;
}

/* Makes the document of the stage: an array of results for each facet. */
static truce_status facet_make_document(struct facet_stream *stream, struct value *document,
                                        bson_error_t *error)
{
    struct builder builder;

    truce__builder_begin(&builder, &stream->base.arena, 4 * (size_t)TRUCE_STAGE_MEMORY_MAX,
                         BSON_TYPE_DOCUMENT);
    for (uint32_t i = 0; i < stream->stage->count; i++) {
        const char *name = stream->stage->facets[i].name;
        const struct buffer *results = &stream->branches[i].results;
        struct builder_mark mark =
            truce__builder_open(&builder, name, strlen(name), BSON_TYPE_ARRAY);

        for (size_t at = 0; at < results->size;) {
            uint32_t size = document_size(results->bytes + at);

            truce__builder_element(&builder,
                                   (struct value){results->bytes + at, size, BSON_TYPE_DOCUMENT});
            at += size;
        }
        truce__builder_close(&builder, mark);
    }
    return truce__builder_finish(&builder, document, error);
}

/* Runs all facets over the whole input, batch by batch, and returns their one document. */
static truce_status facet_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct facet_stream *stream = (struct facet_stream *)base;
    truce_status status = TRUCE_OK;

    *document = truce__value_missing();
    if (stream->given)
        return TRUCE_OK;
    while (!status && !all_ended(stream)) {
        status = facet_fill_batch(stream, error);
        for (uint32_t i = 0; i < stream->stage->count && !status; i++)
            status = facet_run_branch(stream, &stream->branches[i], error);
    }
    stream->given = true;
    if (!status)
        status = facet_make_document(stream, document, error);
    return status ? status : truce__stream_hold(base, stream->results_bytes, error);
}

static void facet_release(struct stream *base)
{
    struct facet_stream *stream = (struct facet_stream *)base;

    for (uint32_t i = 0; i < stream->stage->count; i++) {
        truce__stream_free(stream->branches[i].last);
        truce__buffer_release(&stream->branches[i].results);
    }
    bson_free(stream->branches);
    truce__buffer_release(&stream->batch);
}

static truce_status open_branch(struct facet_stream *stream, uint32_t i, bson_error_t *error)
{
    struct branch *branch = &stream->branches[i];
    struct stage_run run = {&stream->environment, &stream->base.context, 0};
    truce_status status;

    branch->tee = truce__stream_new(sizeof *branch->tee, &run, NULL, tee_next, NULL);
    branch->tee->facets = stream;
    status = truce__pipeline_stack(stream->stage->facets[i].pipeline, 0, &run, &branch->tee->base,
                                   &branch->last, error);
    if (status)
        branch->last = NULL;
    return status;
}

/* Opens the stages of all facets. */
static truce_status facet_open(const void *data, const struct stage_run *run, struct stream *input,
                               struct stream **stream, bson_error_t *error)
{
    const struct facet_stage *stage = data;
    struct facet_stream *made =
        truce__stream_new(sizeof *made, run, input, facet_next, facet_release);
    truce_status status = TRUCE_OK;

    made->stage = stage;
    made->environment = *run->environment;
    made->branches = bson_malloc0(stage->count * sizeof *made->branches);
    for (uint32_t i = 0; i < stage->count && !status; i++)
        status = open_branch(made, i, error);
    if (status) {
        /* On failure, the input stays the caller's. */
        made->base.input = NULL;
        truce__stream_free(&made->base);
        return status;
    }
    *stream = &made->base;
    return TRUCE_OK;
}

static void facet_free(void *data)
{
    struct facet_stage *stage = data;

    for (uint32_t i = 0; i < stage->count; i++) {
        bson_free(stage->facets[i].name);
        truce__pipeline_free(stage->facets[i].pipeline);
    }
    bson_free(stage->facets);
    bson_free(stage);
}

static const struct stage_kind facet_kind = {.open = facet_open, .free = facet_free};

/* Compiles the pipeline of one facet. Its stages must be documents. */
static truce_status parse_facet(struct stage_parser *parser, const struct fields *at,
                                struct facet_stage *stage, bson_error_t *error)
{
    struct facet facet = {0};
    struct fields stages;
    truce_status status = truce__field_name_check(at->key, at->key_length, error);

    if (status)
        return status;
    if (at->value.type != BSON_TYPE_ARRAY)
        return truce__refuse_value(40170, at->value, error,
                                   "$facet's '%s' must be an array of stages", at->key);
    stages = truce__fields(at->value);
    while (truce__fields_next(&stages)) {
        if (stages.value.type != BSON_TYPE_DOCUMENT)
            return truce__refuse_value(40171, stages.value, error,
                                       "the stages of $facet's '%s' must be documents", at->key);
    }
    status = truce__pipeline_compile(parser, at->value, parser->variables, CONTEXT_FACET,
                                     &facet.pipeline, error);
    if (status)
        return status;
    facet.name = bson_strdup(at->key);
    stage->facets = bson_realloc(stage->facets, (stage->count + 1) * sizeof *stage->facets);
    stage->facets[stage->count++] = facet;
    return TRUCE_OK;
}

truce_status truce__stage_facet(struct stage_parser *parser, struct value argument,
                                bson_error_t *error)
{
    struct facet_stage *stage;
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (argument.type != BSON_TYPE_DOCUMENT || argument.data[4] == 0)
        return truce__stage_refuse(40169, argument, "$facet must be a document that is not empty",
                                   error);
    stage = bson_malloc0(sizeof *stage);
    fields = truce__fields(argument);
    while (!status && truce__fields_next(&fields))
        status = parse_facet(parser, &fields, stage, error);
    if (status)
        facet_free(stage);
    else
        truce__stage_push(parser, &facet_kind, stage);
    return status;
}
