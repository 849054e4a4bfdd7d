/*
 * The parts of a pipeline that all stages use: streams, the parsing of stages, and stacking streams
 * for a run. This file knows no stage; the parser gets the table of stages from aggregate.c.
 */
#include "query/aggregate/stage.h"
#include "base/assert.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "bson/field_path.h"
#include "bson/refuse_value.h"

/* The maximum number of pipelines within pipelines, as in MongoDB. */
#define PIPELINE_DEPTH_MAX 20

/* ---- streams -------------------------------------------------------------------------------- */

void *truce__stream_new(size_t size, const struct stage_run *run, struct stream *input,
                        truce_status (*next)(struct stream *stream, struct value *document,
                                             bson_error_t *error),
                        void (*release)(struct stream *stream))
{
    struct stream *stream = bson_malloc0(size);

    stream->next = next;
    stream->release = release;
    stream->input = input;
    stream->context = *run->context;
    stream->context.arena = &stream->arena;
    return stream;
}

/* Frees the stream and its inputs. A loop, not a recursion: a pipeline may have a thousand
 * stages. */
void truce__stream_free(struct stream *stream)
{
    while (stream) {
        struct stream *input = stream->input;

        if (stream->release)
            stream->release(stream);
        (void)truce__budget_hold(stream->context.budget, stream->held, 0);
        truce__arena_release(&stream->arena);
        bson_free(stream);
        stream = input;
    }
}

truce_status truce__stream_hold(struct stream *stream, size_t bytes, bson_error_t *error)
{
    size_t before = stream->held;

    stream->held = bytes + stream->arena.bytes;
    return truce__budget_hold(stream->context.budget, before, stream->held)
               ? TRUCE_OK
               : truce__budget_full(stream->context.budget, error);
}

struct spill_options truce__stage_spill(const struct aggregate_environment *environment,
                                        const struct query_context *context)
{
    return (struct spill_options){
        .memory_max = environment && environment->memory_max ? environment->memory_max
                                                             : TRUCE_STAGE_MEMORY_MAX,
        .open = environment ? environment->spill : NULL,
        .arg = environment ? environment->arg : NULL,
        .budget = context->budget,
    };
}

/* ---- sources of documents -------------------------------------------------------------------- */

struct input_stream {
    struct stream base;
    struct source *source;
};

static truce_status input_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct input_stream *stream = (struct input_stream *)base;
    const bson_t *found = NULL;
    truce_status status = truce__stream_spend(base, error);

    if (!status)
        status = stream->source->next(stream->source, &found, error);

    *document = !status && found ? truce__value_document(found) : truce__value_missing();
    return status;
}

static truce_status input_each(struct stream *base, document_take *take, void *arg,
                               bson_error_t *error)
{
    struct source *source = ((struct input_stream *)base)->source;

    return source->each(source, take, arg, error);
}

static void input_release(struct stream *base)
{
    struct source *source = ((struct input_stream *)base)->source;

    source->free(source);
}

struct stream *truce__stream_of_source(const struct stage_run *run, struct source *source)
{
    struct input_stream *stream =
        truce__stream_new(sizeof *stream, run, NULL, input_next, input_release);

    stream->source = source;
    stream->base.each = source->each ? input_each : NULL;
    return &stream->base;
}

truce_status truce__stream_of_collection(const struct stage_run *run, const char *collection,
                                         const bson_t *filter, struct stream **stream,
                                         bson_error_t *error)
{
    struct source *source = NULL;
    truce_status status;

    if (!run->environment || !run->environment->open)
        return truce__fail(TRUCE_INVALID, error, "collection '%s' cannot be read from here",
                           collection);
    status = run->environment->open(run->environment->arg, collection, filter, &source, error);
    if (!status)
        *stream = truce__stream_of_source(run, source);
    return status;
}

/* ---- parsing -------------------------------------------------------------------------------- */

void truce__stage_insert(struct stage_parser *parser, uint32_t at, const struct stage_kind *kind,
                         void *data)
{
    struct pipeline *pipeline = parser->pipeline;
    struct stage *context;

    if (pipeline->count == pipeline->room) {
        pipeline->room = pipeline->room ? 2 * pipeline->room : 8;
        pipeline->stages =
            bson_realloc(pipeline->stages, pipeline->room * sizeof *pipeline->stages);
    }
    context = &pipeline->stages[at];
    memmove(context + 1, context, (pipeline->count++ - at) * sizeof *context);
    *context = (struct stage){kind, data, parser->from, parser->number};
}

void truce__stage_push(struct stage_parser *parser, const struct stage_kind *kind, void *data)
{
    truce__stage_insert(parser, parser->pipeline->count, kind, data);
}

struct stage truce__stage_take(struct stage_parser *parser, uint32_t at)
{
    struct pipeline *pipeline = parser->pipeline;
    struct stage *context = &pipeline->stages[at], taken = *context;

    memmove(context, context + 1, (--pipeline->count - at) * sizeof *context);
    return taken;
}

void *truce__stage_pop(struct stage_parser *parser, const struct stage_kind *kind,
                       bool (*wanted)(const void *data))
{
    struct pipeline *pipeline = parser->pipeline;
    struct stage *last = pipeline->count ? &pipeline->stages[pipeline->count - 1] : NULL;

    if (!last || last->to + 1 != parser->number || last->kind != kind || !wanted(last->data))
        return NULL;
    parser->from = last->from;
    pipeline->count--;
    return last->data;
}

/* Lists the options that the stage has. */
static truce_status stage_unknown_option(const char *stage, uint32_t code, const char *name,
                                         const struct stage_option *options, bson_error_t *error)
{
    char known[150] = "";

    for (int i = 0; options[i].name; i++) {
        size_t used = strlen(known);

        (void)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", options[i].name);
    }
    return truce__refuse(code, error, "%s has no option '%s': expected %s", stage, name, known);
}

truce_status truce__stage_options(const char *stage, uint32_t code, struct value argument,
                                  const struct stage_option *options, bson_error_t *error)
{
    struct fields fields = truce__fields(argument);

    while (truce__fields_next(&fields)) {
        const struct stage_option *option = options;

        while (option->name && strcmp(option->name, fields.key) != 0)
            option++;
        if (!option->name)
            return stage_unknown_option(stage, code, fields.key, options, error);
        *option->value = fields.value;
    }
    return TRUCE_OK;
}

truce_status truce__stage_refuse(uint32_t code, struct value value, const char *rule,
                                 bson_error_t *error)
{
    char text[80];

    return truce__refuse(code, error, "%s, not %s", rule,
                         truce__value_show(value, text, sizeof text));
}

const char *truce__stage_text(struct value value, size_t *length)
{
    uint32_t size;
    const char *text;

    if (value.type != BSON_TYPE_UTF8)
        return NULL;
    text = truce__value_text(value, &size);
    *length = size;
    return text;
}

truce_status truce__stage_path(struct value value, struct path *path, bson_error_t *error)
{
    size_t length = 0;
    const char *text = truce__stage_text(value, &length);
    truce_status status = truce__field_path_check(text, length, error);

    return status ? status : truce__path_parse(text, length, path, error);
}

bson_t *truce__stage_copy(struct value document)
{
    bson_t borrowed;

    truce__value_bson(document, &borrowed);
    return bson_copy(&borrowed);
}

static const struct stage_name *find_name(const struct stage_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++) {
        if (!strcmp(table->names[i].name, name))
            return &table->names[i];
    }
    return NULL;
}

/* Fails because a pipeline has an unknown stage. */
static truce_status stage_refuse_name(const struct stage_table *table, const char *name,
                                      bson_error_t *error)
{
    struct nearest_word nearest = {.word = name};
    char hint[NEAREST_WORD_HINT_MAX];

    for (size_t i = 0; i < table->count; i++)
        truce__nearest_word_offer(&nearest, table->names[i].name);
    return truce__refuse(40324, error, "unknown pipeline stage \"%s\"%s", name,
                         truce__nearest_word_hint(&nearest, hint));
}

/* Finds a stage by its name and parses it. Refuses stages that are not allowed in this place. */
static truce_status parse_stage(struct stage_parser *parser, struct value stage,
                                bson_error_t *error)
{
    const struct stage_name *name;
    struct fields fields, rest;

    if (stage.type != BSON_TYPE_DOCUMENT)
        return truce__refuse_value(CODE_TYPE_MISMATCH, stage, error,
                                   "each stage of a pipeline must be a document");
    fields = truce__fields(stage);
    if (!truce__fields_next(&fields) || (rest = fields, truce__fields_next(&rest)))
        return truce__refuse_value(
            40323, stage, error, "a stage of a pipeline must be a document with exactly one field");
    name = find_name(parser->table, fields.key);
    if (!name)
        return stage_refuse_name(parser->table, fields.key, error);
    if (parser->context == CONTEXT_UPDATE && !name->in_update)
        return truce__refuse(CODE_INVALID_OPTIONS, error, "%s cannot be used within an update",
                             fields.key);
    if (parser->context == CONTEXT_FACET && name->not_in_facet)
        return truce__refuse(40600, error, "%s cannot be used within a $facet", fields.key);
    if (!name->parse)
        return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                             "%s (%s) is not supported by this store", fields.key, name->refusal);
    return name->parse(parser, fields.value, error);
}

/* Compiles all stages, up to TRUCE_PIPELINE_STAGES_MAX, and joins adjacent filters. */
static truce_status parse_stages(struct stage_parser *parser, struct value stages,
                                 bson_error_t *error)
{
    struct fields fields = truce__fields(stages);
    uint32_t count = 0;
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        parser->number = parser->from = count;
        if (++count > TRUCE_PIPELINE_STAGES_MAX)
            return truce__refuse(7749501, error, "a pipeline has at most %d stages",
                                 TRUCE_PIPELINE_STAGES_MAX);
        parser->first = count == 1;
        parser->last = *fields.at == 0;
        status = parse_stage(parser, fields.value, error);
    }
    return status ? status : parser->table->finish(parser, error);
}

truce_status truce__pipeline_compile(const struct stage_parser *outer, struct value stages,
                                     const char *const *variables, enum stage_context context,
                                     struct pipeline **pipeline, bson_error_t *error)
{
    struct pipeline *made;
    struct stage_parser parser = {.table = outer->table,
                                  .variables = variables,
                                  .context = context,
                                  .depth = outer->pipeline ? outer->depth + 1 : 0};
    truce_status status;

    *pipeline = NULL;
    if (parser.depth > PIPELINE_DEPTH_MAX)
        return truce__refuse(CODE_MAX_SUB_PIPELINE_DEPTH_EXCEEDED, error,
                             "pipelines may be nested at most %d levels deep", PIPELINE_DEPTH_MAX);
    made = bson_malloc0(sizeof *made);
    made->source = truce__stage_copy(stages);
    made->is_update = context == CONTEXT_UPDATE;
    parser.pipeline = made;
    status = parse_stages(&parser, truce__value_array(made->source), error);
    if (status)
        truce__pipeline_free(made);
    else
        *pipeline = made;
    return status;
}

void truce__pipeline_free(struct pipeline *pipeline)
{
    if (!pipeline)
        return;
    for (uint32_t i = 0; i < pipeline->count; i++)
        pipeline->stages[i].kind->free(pipeline->stages[i].data);
    bson_free(pipeline->stages);
    bson_destroy(pipeline->source);
    bson_free(pipeline);
}

/* ---- stacking ------------------------------------------------------------------------------- */

/* The stream of a stage that makes one document of one. */
struct apply_stream {
    struct stream base;
    const struct stage *stage;
};

/* Returns the next document that the stage makes of a document of the input. Documents that it
 * drops are skipped. */
static truce_status apply_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct apply_stream *stream = (struct apply_stream *)base;

    for (;;) {
        truce_status status = base->input->next(base->input, document, error);

        if (status || !truce__stream_is_document(*document))
            return status;
        truce__arena_reset(&base->arena);
        status = truce__budget_spend(base->context.budget, 8 + document->size / 256, error);
        if (!status)
            status = stream->stage->kind->apply(stream->stage->data, *document, &base->context,
                                                document, error);
        if (!status)
            status = truce__stream_hold(base, 0, error);
        if (status || document->type != VALUE_MISSING)
            return status;
    }
}

/* Returns the maximum number of documents that the stages after number `at` read, or 0 if they read
 * all. */
static uint64_t limit_behind(const struct pipeline *pipeline, uint32_t at)
{
    uint64_t skipped = 0;

    for (at++; at < pipeline->count; at++) {
        const struct stage *stage = &pipeline->stages[at];

        if (stage->kind->counts == STAGE_LIMIT)
            return skipped + (uint64_t)((const struct count_stage *)stage->data)->count;
        if (stage->kind->counts == STAGE_SKIP)
            skipped += (uint64_t)((const struct count_stage *)stage->data)->count;
        else if (!stage->kind->apply || stage->kind->drops)
            break;
        if (skipped > UINT32_MAX)
            break;
    }
    return 0;
}

static truce_status open_stage(const struct pipeline *pipeline, uint32_t at,
                               const struct stage_run *run, struct stream *input,
                               struct stream **output, bson_error_t *error)
{
    const struct stage *stage = &pipeline->stages[at];
    struct stage_run ahead = *run;

    if (stage->kind->open) {
        ahead.limit_ahead = limit_behind(pipeline, at);
        return stage->kind->open(stage->data, &ahead, input, output, error);
    }
    *output = truce__stream_new(sizeof(struct apply_stream), run, input, apply_next, NULL);
    ((struct apply_stream *)*output)->stage = stage;
    return TRUCE_OK;
}

truce_status truce__pipeline_stack(const struct pipeline *pipeline, uint32_t first,
                                   const struct stage_run *run, struct stream *input,
                                   struct stream **output, bson_error_t *error)
{
    for (uint32_t i = first; i < pipeline->count; i++) {
        struct stage_run here = *run;
        struct stream *above;
        truce_status status;

        here.ordered = run->ordered && i == first;
        status = open_stage(pipeline, i, &here, input, &above, error);

        if (status) {
            truce__stream_free(input);
            return status;
        }
        input = above;
    }
    *output = input;
    return TRUCE_OK;
}

const bson_t *truce__stage_filter(const struct stage *stage)
{
    return stage->kind->filter ? stage->kind->filter(stage->data) : NULL;
}

const bson_t *truce__pipeline_first_filter(const struct pipeline *pipeline)
{
    return pipeline->count ? truce__stage_filter(&pipeline->stages[0]) : NULL;
}
