/*
 * $graphLookup: searches a collection for everything that a document leads to, step by step.
 *
 *     {from, startWith, connectFromField, connectToField, as, maxDepth, depthField,
 *      restrictSearchWithMatch}
 *
 *     depth 0    the documents of `from` whose connectToField equals startWith, or an element of it
 *     depth 1    those whose connectToField equals a value of connectFromField in those of depth 0
 *     ...        until a depth finds no new document, or at maxDepth
 *
 * Each depth is one query (aggregate_lookup.h). The documents come in the order of their depths;
 * MongoDB promises no order.
 *
 * Invariants:
 *  1. A document is found once, at its least depth, even if several paths or a cycle lead to it:
 *     its _id is stored.
 *  2. A value is looked up once. A search therefore ends: each depth has at least one new value.
 *  3. A document without connectToField is not found, even by null.
 */
#include "base/limits.h"
#include "bson/array.h"
#include "bson/builder.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "bson/value_set.h"
#include "query/aggregate/aggregate_lookup.h"
#include "query/aggregate/stage.h"
#include "query/expression/expression.h"

#define DEPTH_ANY        (-1)
#define CODE_MUCH_MEMORY 40099
#define CODE_NO_ID       40271

/* ---- compiled ------------------------------------------------------------------------------- */

struct graph_stage {
    /* The options `from` and `connectToField`. */
    struct join_on on;
    struct path connect_from, as;
    /* The path of the option depthField. It has no parts if the option is absent. */
    struct path depth_field;
    /* The option maxDepth, or DEPTH_ANY. */
    int64_t depth_max;
    struct expression *start;
    /* [{$match: restrictSearchWithMatch, and the condition of invariant 3}] */
    struct pipeline *restriction;
};

struct graph_stream {
    struct stream base;
    const struct graph_stage *stage;
    struct aggregate_environment environment;
    struct join_finder finder;
    /* `search` lives as long as the search for one document, `document` as long as one document
     * that the search finds. */
    struct arena search, document;
};

/* ---- a search ------------------------------------------------------------------------------- */

struct search {
    struct graph_stream *stream;
    struct builder found;
    struct value_set ids, searched;
    /* The values to look up at `depth`. */
    struct join_values next;
    int64_t depth;
};

static void graph_add_value(struct search *search, struct value value)
{
    if (truce__value_set_has(&search->searched, value))
        return;
    truce__value_set_add(&search->searched, truce__value_copy(&search->stream->search, value));
    truce__join_add(&search->next, value);
}

static void graph_add_values(struct search *search, struct value array)
{
    struct fields elements = truce__fields(array);

    while (truce__fields_next(&elements))
        graph_add_value(search, elements.value);
}

/* Begins the search for one document: the values of startWith are looked up at depth 0. */
static truce_status graph_begin(struct search *search, struct value document, bson_error_t *error)
{
    struct graph_stream *stream = search->stream;
    struct query_context *context = &stream->base.context;
    struct value start;
    truce_status status = truce__expression_evaluate(stream->stage->start, document,
                                                     context->variables, context, &start, error);

    truce__value_set_begin(&search->ids, &stream->search, 0);
    truce__value_set_begin(&search->searched, &stream->search, 0);
    if (!status && start.type == BSON_TYPE_ARRAY)
        graph_add_values(search, start);
    else if (!status && start.type)
        graph_add_value(search, start);
    /* The factor leaves room because the buffer doubles. */
    truce__builder_begin(&search->found, &stream->base.arena,
                         stream->base.arena.bytes + 4 * (size_t)TRUCE_STAGE_MEMORY_MAX,
                         BSON_TYPE_ARRAY);
    return status;
}

static truce_status graph_hold(struct search *search, bson_error_t *error)
{
    struct graph_stream *stream = search->stream;

    if (search->found.size > TRUCE_STAGE_MEMORY_MAX)
        return truce__refuse(
            CODE_MUCH_MEMORY, error,
            "$graphLookup: the documents of '%s' that are reached from one document "
            "have more than %d bytes",
            stream->stage->on.from, TRUCE_STAGE_MEMORY_MAX);
    return truce__stream_hold(
        &stream->base, stream->search.bytes + truce__join_finder_bytes(&stream->finder), error);
}

/* Adds a found document, unless it was found before: stores its _id, sets the field for the depth,
 * and notes the values of connectFromField for the next depth. */
static truce_status graph_add(struct search *search, struct value document, bson_error_t *error)
{
    struct graph_stream *stream = search->stream;
    const struct graph_stage *stage = stream->stage;
    struct join_values values = JOIN_VALUES_NONE;
    struct value id = truce__value_field(document, "_id", 3);
    truce_status status = truce__stream_spend_on(&stream->base, document, error);

    if (!status && !id.type)
        status = truce__refuse(CODE_NO_ID, error, "$graphLookup: a document of '%s' has no _id",
                               stage->on.from);
    if (status || truce__value_set_has(&search->ids, id))
        return status;
    truce__value_set_add(&search->ids, truce__value_copy(&stream->search, id));
    truce__arena_reset(&stream->document);
    if (stage->depth_field.count)
        status =
            truce__document_with(&stream->document, &document, &stage->depth_field,
                                 truce__value_from_int64(&stream->document, search->depth), error);
    if (status)
        return status;
    truce__builder_element(&search->found, document);
    truce__join_collect(&values, document, &stage->connect_from);
    graph_add_values(search, truce__value_document(&values.list));
    bson_destroy(&values.list);
    return graph_hold(search, error);
}

static truce_status graph_add_all(struct search *search, struct stream *found, bson_error_t *error)
{
    truce_status status;
    struct value document;

    do {
        status = found->next(found, &document, error);
        if (!status && document.type != VALUE_MISSING)
            status = graph_add(search, document, error);
    } while (!status && document.type != VALUE_MISSING);
    truce__stream_free(found);
    return status;
}

/* Finds all documents of a depth, and collects the values for the next depth. */
static truce_status graph_find_depth(struct search *search, bson_error_t *error)
{
    struct graph_stream *stream = search->stream;
    struct stage_run run = {&stream->environment, &stream->base.context, 0};
    struct stream *found = NULL;
    truce_status status =
        truce__join_find(&stream->finder, &stream->stage->on, &run, &search->next, &found, error);

    bson_reinit(&search->next.list);
    search->next.count = 0;
    if (!status)
        status = truce__pipeline_stack(stream->stage->restriction, 0, &run, found, &found, error);
    if (!status)
        status = graph_add_all(search, found, error);
    return status;
}

static truce_status graph_reach(struct graph_stream *stream, struct value document,
                                struct value *found, bson_error_t *error)
{
    const int64_t depth_max = stream->stage->depth_max;
    struct search search = {.stream = stream, .next = JOIN_VALUES_NONE};
    truce_status status = graph_begin(&search, document, error);

    while (!status && search.next.count && (depth_max == DEPTH_ANY || search.depth <= depth_max)) {
        status = graph_find_depth(&search, error);
        search.depth++;
    }
    bson_destroy(&search.next.list);
    return status ? status : truce__builder_finish(&search.found, found, error);
}

/* ---- the stream ----------------------------------------------------------------------------- */

static truce_status graph_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct graph_stream *stream = (struct graph_stream *)base;
    struct value found;
    truce_status status = base->input->next(base->input, document, error);

    if (status || !truce__stream_is_document(*document))
        return status;
    truce__arena_reset(&base->arena);
    truce__arena_reset(&stream->search);
    status = graph_reach(stream, *document, &found, error);
    return status ? status
                  : truce__document_with(&base->arena, document, &stream->stage->as, found, error);
}

static void graph_release(struct stream *base)
{
    struct graph_stream *stream = (struct graph_stream *)base;

    truce__join_finder_release(&stream->finder);
    truce__arena_release(&stream->search);
    truce__arena_release(&stream->document);
}

static truce_status graph_open(const void *data, const struct stage_run *run, struct stream *input,
                               struct stream **stream, bson_error_t *error)
{
    struct graph_stream *made =
        truce__stream_new(sizeof *made, run, input, graph_next, graph_release);

    made->stage = data;
    made->environment = *run->environment;
    *stream = &made->base;
    return TRUCE_OK;
}

static void graph_free(void *data)
{
    struct graph_stage *stage = data;

    truce__join_on_release(&stage->on);
    truce__path_release(&stage->connect_from);
    truce__path_release(&stage->as);
    truce__path_release(&stage->depth_field);
    truce__expression_free(stage->start);
    truce__pipeline_free(stage->restriction);
    bson_free(stage);
}

static bool graph_keeps(const void *data, const char *field, uint32_t length)
{
    return !truce__path_begins(&((const struct graph_stage *)data)->as, field, length);
}

static const struct stage_kind graph_kind = {
    .open = graph_open, .free = graph_free, .keeps = graph_keeps};

/* ---- parsing -------------------------------------------------------------------------------- */

struct graph_options {
    struct value from, start, connect_from, connect_to, as, depth_max, depth_field, restriction;
};

/* Reads the options of $graphLookup without checking them. Fails with 40104 for an unknown one. */
static truce_status graph_read_options(struct value argument, struct graph_options *options,
                                       bson_error_t *error)
{
    const struct stage_option known[] = {
        {"from", &options->from},
        {"startWith", &options->start},
        {"connectFromField", &options->connect_from},
        {"connectToField", &options->connect_to},
        {"as", &options->as},
        {"maxDepth", &options->depth_max},
        {"depthField", &options->depth_field},
        {"restrictSearchWithMatch", &options->restriction},
        {NULL, NULL},
    };

    return truce__stage_options("$graphLookup", 40104, argument, known, error);
}

static truce_status graph_check_text(const char *name, struct value value, bson_error_t *error)
{
    return !value.type || value.type == BSON_TYPE_UTF8
               ? TRUCE_OK
               : truce__refuse_value(40103, value, error, "$graphLookup's '%s' must be a string",
                                     name);
}

/* Checks the types of the options, and that none of the necessary ones is missing. */
static truce_status graph_check_options(const struct graph_options *options, bson_error_t *error)
{
    size_t length = 0;
    truce_status status;

    if (options->from.type != BSON_TYPE_UTF8)
        return truce__refuse_value(CODE_FAILED_TO_PARSE, options->from, error,
                                   "$graphLookup's 'from' must be the name of a collection");
    truce__stage_text(options->from, &length);
    if (length == 0)
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "$graphLookup's 'from' is empty: expected the name of a collection");
    if (options->restriction.type && options->restriction.type != BSON_TYPE_DOCUMENT)
        return truce__stage_refuse(40185, options->restriction,
                                   "$graphLookup's restrictSearchWithMatch must be a document",
                                   error);
    status = graph_check_text("as", options->as, error);
    if (!status)
        status = graph_check_text("connectFromField", options->connect_from, error);
    if (!status)
        status = graph_check_text("connectToField", options->connect_to, error);
    if (!status)
        status = graph_check_text("depthField", options->depth_field, error);
    if (!status && !(options->start.type && options->as.type && options->connect_from.type &&
                     options->connect_to.type))
        status =
            truce__refuse(40105, error,
                          "$graphLookup needs 'from', 'as', 'startWith', 'connectFromField', and "
                          "'connectToField', and has no '%s'",
                          !options->as.type             ? "as"
                          : !options->start.type        ? "startWith"
                          : !options->connect_from.type ? "connectFromField"
                                                        : "connectToField");
    return status;
}

/* Reads maxDepth: a non-negative integer. DEPTH_ANY if the option is absent. */
static truce_status read_depth(struct value value, int64_t *depth, bson_error_t *error)
{
    *depth = DEPTH_ANY;
    if (!value.type)
        return TRUCE_OK;
    if (!truce__value_is_number(value))
        return truce__stage_refuse(40100, value, "$graphLookup's maxDepth must be a number", error);
    if (truce__number_to_double(value) < 0)
        return truce__stage_refuse(40101, value, "$graphLookup's maxDepth must not be negative",
                                   error);
    return truce__number_to_int64(value, depth)
               ? TRUCE_OK
               : truce__stage_refuse(40102, value, "$graphLookup's maxDepth must be a whole number",
                                     error);
}

/* Compiles [{$match: {$and: [restriction, {connectToField: {$exists: true}}]}}]. */
static truce_status compile_restriction(struct stage_parser *parser, struct value restriction,
                                        struct graph_stage *stage, bson_error_t *error)
{
    bson_t stages = BSON_INITIALIZER, first, match, one, there;
    struct array list = {.to = &stages}, all;
    truce_status status;

    truce__array_open_document(&list, &first);
    BSON_APPEND_DOCUMENT_BEGIN(&first, "$match", &match);
    truce__array_begin(&all, &match, "$and");
    truce__array_add(&all, restriction);
    truce__array_open_document(&all, &one);
    BSON_APPEND_DOCUMENT_BEGIN(&one, stage->on.path, &there);
    BSON_APPEND_BOOL(&there, "$exists", true);
    bson_append_document_end(&one, &there);
    truce__array_close_document(&all, &one);
    truce__array_end(&all, &match);
    bson_append_document_end(&first, &match);
    truce__array_close_document(&list, &first);
    status = truce__pipeline_compile(parser, truce__value_array(&stages), parser->variables,
                                     CONTEXT_LOOKUP, &stage->restriction, error);
    bson_destroy(&stages);
    return status;
}

/* Compiles the options into the stage. After a failure, the stage is incomplete and the caller
 * frees it. */
static truce_status parse_graph(struct stage_parser *parser, const struct graph_options *options,
                                struct graph_stage *stage, bson_error_t *error)
{
    size_t length = 0;
    truce_status status = read_depth(options->depth_max, &stage->depth_max, error);

    stage->on.from = bson_strdup(truce__stage_text(options->from, &length));
    if (!status)
        status = truce__stage_path(options->as, &stage->as, error);
    if (!status)
        status = truce__stage_path(options->connect_from, &stage->connect_from, error);
    if (!status)
        status = truce__join_on_path(&stage->on, options->connect_to, error);
    if (!status && options->depth_field.type)
        status = truce__stage_path(options->depth_field, &stage->depth_field, error);
    if (!status)
        status = truce__expression_new(options->start, parser->variables, &stage->start, error);
    return status ? status : compile_restriction(parser, options->restriction, stage, error);
}

truce_status truce__stage_graph_lookup(struct stage_parser *parser, struct value argument,
                                       bson_error_t *error)
{
    struct graph_options options = {0};
    struct graph_stage *stage;
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__stage_refuse(CODE_FAILED_TO_PARSE, argument,
                                   "$graphLookup must be a document", error);
    status = graph_read_options(argument, &options, error);
    if (!status)
        status = graph_check_options(&options, error);
    if (status)
        return status;
    stage = bson_malloc0(sizeof *stage);
    status = parse_graph(parser, &options, stage, error);
    if (status)
        graph_free(stage);
    else
        truce__stage_push(parser, &graph_kind, stage);
    return status;
}
