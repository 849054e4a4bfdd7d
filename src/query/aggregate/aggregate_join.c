/*
 * $lookup, in two forms, which may be combined:
 *
 *     {from, localField, foreignField, as}    one query for each document: foreignField equals one
 *                                             of the values at localField (none: null)
 *     {from, let, pipeline, as}               one run of a pipeline for each document, in which
 *                                             the variables of `let` stand for the document's values
 *
 * What equals is found by join_find.c.
 *
 * The filter that a pipeline starts with is left to the store, unless it uses variables, so that
 * an index may serve it. A pipeline that depends neither on the document nor on chance gives the
 * same for every document: it is run once and its result kept.
 *
 * A pipeline that begins with $documents has none of a collection's, and no `from`.
 *
 * Variables: a stage within a $lookup knows those of all $lookups around it, the outermost first.
 *
 *     names    outer ... | let ...
 *     values   outer ... | let ..., evaluated for the document at hand
 */
#include "base/limits.h"
#include "bson/builder.h"
#include "query/aggregate/join_find.h"
#include "query/aggregate/stage.h"
#include "query/expression/expression.h"

#define VARIABLES_MAX       100
#define CODE_TOO_MUCH_FOUND 4568
#define BYTES_OF_STEP       256

/* ---- compiled ------------------------------------------------------------------------------- */

struct lookup_stage {
    struct join_on on; /* no `from` (""): the pipeline has documents; no path: the form without */
    struct path as, local;
    uint32_t outer, count; /* variables: of the pipelines around, and with those of `let` */
    const char *names[VARIABLES_MAX + 1];
    struct expression *let[VARIABLES_MAX];
    bson_t *let_source;        /* has the names */
    struct pipeline *pipeline; /* or NULL */
    bool is_constant;          /* the same for every document */
};

struct lookup_stream {
    struct stream base;
    const struct lookup_stage *stage;
    struct aggregate_world world;
    struct value values[VARIABLES_MAX];
    struct value kept; /* an array in `keeping`; VALUE_MISSING: not yet */
    struct arena keeping;
    struct join_finder finder;
};

/* ---- running -------------------------------------------------------------------------------- */

bool truce__filter_uses_expression(struct value filter)
{
    struct fields fields = truce__fields(filter);

    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "$expr") || (truce__value_is_container(fields.value) &&
                                             truce__filter_uses_expression(fields.value)))
            return true;
    }
    return false;
}

/* Those whose foreign field equals a local value. */
static truce_status find_equal(struct lookup_stream *stream, const struct stage_run *run,
                               struct value document, struct stream **foreign, bson_error_t *error)
{
    const struct lookup_stage *stage = stream->stage;
    struct join_values values = JOIN_VALUES_NONE;
    truce_status status;

    truce__join_collect(&values, document, &stage->local);
    if (values.count == 0)
        truce__join_add(&values, truce__value_null());
    status = truce__join_find(&stream->finder, &stage->on, run, &values, foreign, error);
    bson_destroy(&values.list);
    return status;
}

/* Opens what the document at hand is joined with. */
static truce_status open_foreign(struct lookup_stream *stream, struct value document,
                                 struct stream **foreign, bson_error_t *error)
{
    const struct lookup_stage *stage = stream->stage;
    struct query_context context = stream->base.context;
    struct stage_run run = {&stream->world, &context, 0};
    const bson_t *first = stage->pipeline ? truce__pipeline_first_filter(stage->pipeline) : NULL;
    uint32_t skipped = 0;
    truce_status status;

    context.variables = stream->values;
    if (stage->on.path) {
        status = find_equal(stream, &run, document, foreign, error);
    } else {
        if (first && truce__filter_uses_expression(truce__value_document(first)))
            first = NULL;
        skipped = first ? 1 : 0;
        if (stage->on.from[0])
            status = truce__stream_of_collection(&run, stage->on.from, first, foreign, error);
        else
            status = TRUCE_OK;
    }
    if (!status && stage->pipeline)
        status = truce__pipeline_stack(stage->pipeline, skipped, &run, *foreign, foreign, error);
    return status;
}

static size_t held_by(const struct lookup_stream *stream)
{
    return stream->keeping.bytes + truce__join_finder_bytes(&stream->finder);
}

static truce_status join_read_all(struct lookup_stream *stream, struct stream *foreign,
                                  struct arena *arena, struct value *found, bson_error_t *error)
{
    struct builder builder;
    truce_status status;

    truce__builder_begin(&builder, arena, arena->bytes + 2 * (size_t)TRUCE_STAGE_MEMORY_MAX,
                         BSON_TYPE_ARRAY);
    for (;;) {
        struct value document;

        status = foreign->next(foreign, &document, error);
        if (status || document.type == VALUE_MISSING)
            break;
        truce__builder_element(&builder, document);
        status = truce__stream_hold(&stream->base, held_by(stream), error);
        if (status)
            break;
        if (builder.size > TRUCE_STAGE_MEMORY_MAX)
            return truce__refuse(CODE_TOO_MUCH_FOUND, error,
                                 "$lookup: the documents of '%s' that match one document have more "
                                 "than %d bytes",
                                 stream->stage->on.from, TRUCE_STAGE_MEMORY_MAX);
    }
    return status ? status : truce__builder_finish(&builder, found, error);
}

static truce_status join_evaluate_let(struct lookup_stream *stream, struct value document,
                                      bson_error_t *error)
{
    const struct lookup_stage *stage = stream->stage;
    struct query_context *context = &stream->base.context;

    for (uint32_t i = stage->outer; i < stage->count; i++) {
        truce_status status = truce__expression_evaluate(
            stage->let[i], document, context->variables, context, &stream->values[i], error);

        if (status)
            return status;
    }
    return TRUCE_OK;
}

static truce_status find_foreign(struct lookup_stream *stream, struct value document,
                                 struct value *found, bson_error_t *error)
{
    bool keep = stream->stage->is_constant;
    struct arena *arena = keep ? &stream->keeping : &stream->base.arena;
    struct stream *foreign = NULL;
    truce_status status;

    if (stream->kept.type) {
        *found = stream->kept;
        return TRUCE_OK;
    }
    status = join_evaluate_let(stream, document, error);
    if (!status)
        status = open_foreign(stream, document, &foreign, error);
    if (status)
        return status;
    status = join_read_all(stream, foreign, arena, found, error);
    truce__stream_free(foreign);
    if (!status && keep)
        stream->kept = *found;
    return status;
}

static truce_status lookup_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct lookup_stream *stream = (struct lookup_stream *)base;
    struct value found;
    truce_status status = base->input->next(base->input, document, error);

    if (status || !truce__stream_is_document(*document))
        return status;
    truce__arena_reset(&base->arena);
    status = find_foreign(stream, *document, &found, error);
    if (!status)
        status = truce__budget_spend(base->context.budget,
                                     (document->size + found.size) / BYTES_OF_STEP, error);
    if (!status)
        status = truce__document_with(&base->arena, document, &stream->stage->as, found, error);
    return status ? status : truce__stream_hold(base, held_by(stream), error);
}

static void lookup_release(struct stream *base)
{
    struct lookup_stream *stream = (struct lookup_stream *)base;

    truce__join_finder_release(&stream->finder);
    truce__arena_release(&stream->keeping);
}

static truce_status lookup_open(const void *data, const struct stage_run *run, struct stream *input,
                                struct stream **stream, bson_error_t *error)
{
    const struct lookup_stage *stage = data;
    struct lookup_stream *made =
        truce__stream_new(sizeof *made, run, input, lookup_next, lookup_release);

    made->stage = stage;
    made->world = *run->world;
    if (stage->outer)
        memcpy(made->values, run->context->variables, stage->outer * sizeof *made->values);
    *stream = &made->base;
    return TRUCE_OK;
}

/* ---- parsing $lookup ------------------------------------------------------------------------ */

static void lookup_free(void *data)
{
    struct lookup_stage *stage = data;

    for (uint32_t i = stage->outer; i < stage->count; i++)
        truce__expression_free(stage->let[i]);
    truce__pipeline_free(stage->pipeline);
    truce__path_release(&stage->as);
    truce__path_release(&stage->local);
    bson_destroy(stage->let_source);
    truce__join_on_release(&stage->on);
    bson_free(stage);
}

static bool lookup_keeps(const void *data, const char *field, uint32_t length)
{
    return !truce__path_begins(&((const struct lookup_stage *)data)->as, field, length);
}

static const struct stage_kind lookup_kind = {
    .open = lookup_open, .free = lookup_free, .keeps = lookup_keeps};

struct lookup_options {
    struct value from, as, local, foreign, let, pipeline;
};

static truce_status join_read_options(struct value argument, struct lookup_options *options,
                                      bson_error_t *error)
{
    const struct stage_option known[] = {
        {"from", &options->from},
        {"as", &options->as},
        {"localField", &options->local},
        {"foreignField", &options->foreign},
        {"let", &options->let},
        {"pipeline", &options->pipeline},
        {NULL, NULL},
    };

    return truce__stage_options("$lookup", CODE_FAILED_TO_PARSE, argument, known, error);
}

static truce_status join_check_text(const char *name, struct value value, bool needed,
                                    bson_error_t *error)
{
    size_t length = 0;

    if (!value.type && !needed)
        return TRUCE_OK;
    if (!truce__stage_text(value, &length) || length == 0)
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "$lookup needs '%s', a string that is not empty", name);
    return TRUCE_OK;
}

static truce_status join_check_options(const struct lookup_options *options, bson_error_t *error)
{
    bool fields = options->local.type || options->foreign.type || !options->pipeline.type, own;
    truce_status status =
        truce__stage_own_documents("$lookup", options->pipeline, options->from, &own, error);

    if (!status)
        status = join_check_text("from", options->from, !own, error);
    if (!status && own && fields)
        status = truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                               "$lookup: documents of the pipeline's own are not joined by fields, "
                               "but by a $match with $expr");
    if (!status)
        status = join_check_text("as", options->as, true, error);
    if (!status)
        status = join_check_text("localField", options->local, fields, error);
    if (!status)
        status = join_check_text("foreignField", options->foreign, fields, error);
    if (!status && options->let.type && options->let.type != BSON_TYPE_DOCUMENT)
        status = truce__refuse(CODE_FAILED_TO_PARSE, error, "$lookup's let must be a document");
    if (!status && options->let.type && !options->pipeline.type)
        status = truce__refuse(CODE_FAILED_TO_PARSE, error,
                               "$lookup's let is of no use without a pipeline");
    if (!status && options->pipeline.type && options->pipeline.type != BSON_TYPE_ARRAY)
        status = truce__refuse(CODE_TYPE_MISMATCH, error, "$lookup's pipeline must be an array");
    return status;
}

static truce_status parse_let(struct lookup_stage *stage, const char *const *outer,
                              struct value let, bson_error_t *error)
{
    struct fields fields;

    while (outer && outer[stage->outer]) {
        stage->names[stage->outer] = outer[stage->outer];
        stage->outer++;
    }
    stage->count = stage->outer;
    if (!let.type)
        return TRUCE_OK;
    stage->let_source = truce__stage_copy(let);
    fields = truce__fields(truce__value_document(stage->let_source));
    while (truce__fields_next(&fields)) {
        truce_status status =
            truce__expression_variable_check(fields.key, fields.key_length, error);

        if (!status && stage->count == VARIABLES_MAX)
            status = truce__refuse(CODE_FAILED_TO_PARSE, error,
                                   "$lookup stages within each other have at most %d variables",
                                   VARIABLES_MAX);
        if (!status)
            status = truce__expression_new(fields.value, outer, &stage->let[stage->count], error);
        if (status)
            return status;
        stage->names[stage->count++] = fields.key;
    }
    return TRUCE_OK;
}

/* Does anything in it depend on chance? */
static bool is_random(struct value container)
{
    struct fields fields = truce__fields(container);

    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "$sample") || !strcmp(fields.key, "$rand") ||
            (truce__value_is_container(fields.value) && is_random(fields.value)))
            return true;
    }
    return false;
}

static truce_status parse_lookup(struct stage_parser *parser, const struct lookup_options *options,
                                 struct lookup_stage *stage, bson_error_t *error)
{
    size_t length;
    truce_status status = truce__stage_path(options->as, &stage->as, error);

    stage->on.from =
        bson_strdup(options->from.type ? truce__stage_text(options->from, &length) : "");
    if (!status && options->local.type)
        status = truce__stage_path(options->local, &stage->local, error);
    if (!status && options->foreign.type)
        status = truce__join_on_path(&stage->on, options->foreign, error);
    if (!status)
        status = parse_let(stage, parser->variables, options->let, error);
    if (status || !options->pipeline.type)
        return status;
    stage->is_constant =
        !stage->on.path && stage->count == stage->outer && !is_random(options->pipeline);
    return truce__pipeline_compile(options->pipeline, stage->names, PLACE_LOOKUP, parser->depth + 1,
                                   &stage->pipeline, error);
}

truce_status truce__stage_lookup(struct stage_parser *parser, struct value argument,
                                 bson_error_t *error)
{
    struct lookup_options options = {0};
    struct lookup_stage *stage;
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_FAILED_TO_PARSE, error, "$lookup must be a document");
    status = join_read_options(argument, &options, error);
    if (!status)
        status = join_check_options(&options, error);
    if (status)
        return status;
    stage = bson_malloc0(sizeof *stage);
    status = parse_lookup(parser, &options, stage, error);
    if (status)
        lookup_free(stage);
    else
        truce__stage_push(parser, &lookup_kind, stage);
    return status;
}
