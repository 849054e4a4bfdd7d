/*
 * $out and $merge: the stages that write. The store writes (aggregate.h, struct
 * aggregate_environment). The stages check their options, pull all of the input, and return no
 * document.
 */
#include "base/assert.h"
#include "bson/refuse_value.h"
#include "query/aggregate/stage.h"

struct write_stage {
    bool is_out;
    /* The target of $out. */
    char *collection;
    /* The options of $merge, as a document. */
    bson_t *options;
};

struct write_stream {
    struct stream base;
    const struct write_stage *stage;
    struct aggregate_environment environment;
    bool begun, done;
};

bool truce__pipeline_writes(const bson_t *stages)
{
    const char *last = "";
    bson_iter_t at, stage;

    if (bson_iter_init(&at, stages))
        while (bson_iter_next(&at))
            if (BSON_ITER_HOLDS_DOCUMENT(&at) && bson_iter_recurse(&at, &stage) &&
                bson_iter_next(&stage))
                last = bson_iter_key(&stage);
    return !strcmp(last, "$out") || !strcmp(last, "$merge");
}

static truce_status aggregate_write_one(struct write_stream *stream, struct value document,
                                        bson_error_t *error)
{
    const struct aggregate_environment *environment = &stream->environment;
    bson_t borrowed;

    truce__arena_reset(&stream->base.arena);
    truce__value_bson(document, &borrowed);
    if (stream->stage->is_out)
        return environment->out(environment->arg, stream->stage->collection, &borrowed, false,
                                error);
    return environment->merge(environment->arg, stream->stage->options, &borrowed,
                              &stream->base.context, error);
}

static truce_status aggregate_write_begin(struct write_stream *stream, bson_error_t *error)
{
    const struct aggregate_environment *environment = &stream->environment;

    stream->begun = true;
    return stream->stage->is_out ? TRUCE_OK
                                 : environment->merge(environment->arg, stream->stage->options,
                                                      NULL, &stream->base.context, error);
}

/* Writes all documents of the input ($out, $merge). Returns no document. */
static truce_status write_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct write_stream *stream = (struct write_stream *)base;
    const struct aggregate_environment *environment = &stream->environment;
    truce_status status = TRUCE_OK;

    if (!stream->begun)
        status = aggregate_write_begin(stream, error);
    while (!status && !stream->done) {
        status = base->input->next(base->input, document, error);
        /* Only a $facet could pause the input, and a $facet cannot contain this stage. */
        truce_assert(status || document->type != STREAM_PAUSED);
        if (!status && truce__stream_is_document(*document))
            status = aggregate_write_one(stream, *document, error);
        else
            stream->done = true;
        if (!status && stream->done && stream->stage->is_out)
            status =
                environment->out(environment->arg, stream->stage->collection, NULL, true, error);
    }
    *document = truce__value_missing();
    return status;
}

/* Opens the stage. Fails if the environment does not allow writes. */
static truce_status aggregate_write_open(const void *data, const struct stage_run *run,
                                         struct stream *input, struct stream **stream,
                                         bson_error_t *error)
{
    const struct write_stage *stage = data;
    bool allowed = stage->is_out ? run->environment->out != NULL : run->environment->merge != NULL;
    struct write_stream *made;

    if (!allowed)
        return truce__refuse(CODE_ILLEGAL_OPERATION, error,
                             "%s is not allowed here: nothing may be "
                             "written",
                             stage->is_out ? "$out" : "$merge");
    made = truce__stream_new(sizeof *made, run, input, write_next, NULL);
    made->stage = stage;
    made->environment = *run->environment;
    *stream = &made->base;
    return TRUCE_OK;
}

static void write_free(void *data)
{
    struct write_stage *stage = data;

    bson_free(stage->collection);
    bson_destroy(stage->options);
    bson_free(stage);
}

static const struct stage_kind write_kind = {.open = aggregate_write_open, .free = write_free};

static truce_status aggregate_write_check_context(const struct stage_parser *parser,
                                                  const char *name, bson_error_t *error)
{
    if (parser->context == CONTEXT_LOOKUP)
        return truce__refuse(51047, error, "%s cannot be used within a $lookup", name);
    if (parser->context == CONTEXT_UNION)
        return truce__refuse(31441, error, "%s cannot be used within a $unionWith", name);
    if (!parser->last)
        return truce__refuse(40601, error, "%s must be the last stage of a pipeline", name);
    return TRUCE_OK;
}

/* Parses "name" or {coll: "name"}. `db` names another database, which is refused. */
static truce_status aggregate_write_parse_target(const char *stage, struct value target,
                                                 const char **collection, bson_error_t *error)
{
    size_t length = 0;

    if (target.type == BSON_TYPE_DOCUMENT) {
        struct fields at = truce__fields(target);

        while (truce__fields_next(&at)) {
            if (!strcmp(at.key, "db"))
                return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                                     "%s into another database is not supported by this store",
                                     stage);
            if (strcmp(at.key, "coll") != 0)
                return truce__refuse(40415, error,
                                     "unknown field '%.80s' of the collection of %s: expected coll",
                                     at.key, stage);
        }
        target = truce__value_field(target, "coll", 4);
    }
    *collection = truce__stage_text(target, &length);
    if (!*collection || length == 0 || strlen(*collection) != length)
        return truce__refuse_value(CODE_INVALID_NAMESPACE, target, error,
                                   "%s must name a collection", stage);
    return TRUCE_OK;
}

truce_status truce__stage_out(struct stage_parser *parser, struct value argument,
                              bson_error_t *error)
{
    struct write_stage *stage;
    const char *collection;
    truce_status status = aggregate_write_check_context(parser, "$out", error);

    if (!status && argument.type != BSON_TYPE_UTF8 && argument.type != BSON_TYPE_DOCUMENT)
        status = truce__stage_refuse(16990, argument, "$out must name a collection", error);
    if (!status)
        status = aggregate_write_parse_target("$out", argument, &collection, error);
    if (status)
        return status;
    stage = bson_malloc0(sizeof *stage);
    stage->is_out = true;
    stage->collection = bson_strdup(collection);
    truce__stage_push(parser, &write_kind, stage);
    return TRUCE_OK;
}

/* ---- $merge --------------------------------------------------------------------------------- */

/* Checks that a field of $merge is one of the words. `list` names the words, for the error
 * message. */
static truce_status check_word(const char *name, struct value value, const char *const *words,
                               const char *list, bson_error_t *error)
{
    size_t length;
    const char *text = truce__stage_text(value, &length);

    if (!text)
        return truce__refuse_value(name[4] == 'M' ? 51191 : CODE_TYPE_MISMATCH, value, error,
                                   "$merge's %s must be a string%s", name,
                                   name[4] == 'M' ? " or a pipeline" : "");
    for (; *words; words++) {
        if (!strcmp(text, *words))
            return TRUCE_OK;
    }
    return truce__refuse(CODE_BAD_VALUE, error, "$merge's %s must be %s, not '%.80s'", name, list,
                         text);
}

/* Checks one option of $merge. */
static truce_status check_merge_option(const struct fields *at, bson_error_t *error)
{
    static const char *const matched[] = {"replace", "keepExisting", "merge", "fail", NULL};
    static const char *const missing[] = {"insert", "discard", "fail", NULL};
    const char *collection;

    if (!strcmp(at->key, "into")) {
        if (at->value.type != BSON_TYPE_UTF8 && at->value.type != BSON_TYPE_DOCUMENT)
            return truce__stage_refuse(51178, at->value, "$merge's into must name a collection",
                                       error);
        return aggregate_write_parse_target("$merge", at->value, &collection, error);
    }
    if (!strcmp(at->key, "on")) {
        if (at->value.type != BSON_TYPE_UTF8 && at->value.type != BSON_TYPE_ARRAY)
            return truce__stage_refuse(51186, at->value,
                                       "$merge's on must be a field or an array of fields", error);
        return TRUCE_OK;
    }
    if (!strcmp(at->key, "let")) {
        if (at->value.type != BSON_TYPE_DOCUMENT)
            return truce__stage_refuse(CODE_TYPE_MISMATCH, at->value,
                                       "$merge's let must be a document", error);
        return TRUCE_OK;
    }
    if (!strcmp(at->key, "whenMatched"))
        return at->value.type == BSON_TYPE_ARRAY
                   ? TRUCE_OK
                   : check_word(at->key, at->value, matched,
                                "replace, keepExisting, merge, fail, or a pipeline", error);
    if (!strcmp(at->key, "whenNotMatched"))
        return check_word(at->key, at->value, missing, "insert, discard, or fail", error);
    return truce__refuse(
        40415, error,
        "$merge has no option '%s': expected into, on, let, whenMatched, or whenNotMatched",
        at->key);
}

/* Checks all options of $merge and that the necessary ones are present. */
static truce_status check_merge(struct value options, bson_error_t *error)
{
    struct fields fields = truce__fields(options);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields))
        status = check_merge_option(&fields, error);
    if (!status && !truce__value_field(options, "into", 4).type)
        status = truce__refuse(40414, error, "$merge needs 'into', the name of a collection");
    if (!status && truce__value_field(options, "let", 3).type &&
        truce__value_field(options, "whenMatched", 11).type != BSON_TYPE_ARRAY)
        status = truce__refuse_value(51199, truce__value_field(options, "whenMatched", 11), error,
                                     "$merge's let needs a pipeline as whenMatched");
    return status;
}

/* Copies the options without the fields that MongoDB treats as absent if they are null. */
static bson_t *copy_merge_options(struct value given)
{
    struct fields fields = truce__fields(given);
    bson_t *options = bson_new();

    while (truce__fields_next(&fields)) {
        bool nullable = !strcmp(fields.key, "let") || !strcmp(fields.key, "whenNotMatched");

        if (!nullable ||
            (fields.value.type != BSON_TYPE_NULL && fields.value.type != BSON_TYPE_UNDEFINED))
            truce__value_append(options, fields.key, fields.key_length, fields.value);
    }
    return options;
}

truce_status truce__stage_merge(struct stage_parser *parser, struct value argument,
                                bson_error_t *error)
{
    bson_t *options;
    struct write_stage *stage;
    truce_status status = aggregate_write_check_context(parser, "$merge", error);

    if (!status && argument.type != BSON_TYPE_UTF8 && argument.type != BSON_TYPE_DOCUMENT)
        status = truce__stage_refuse(51182, argument,
                                     "$merge must name a collection or be a document", error);
    if (status)
        return status;
    if (argument.type == BSON_TYPE_UTF8) {
        options = bson_new();
        truce__value_append(options, "into", 4, argument);
    } else {
        options = copy_merge_options(argument);
    }
    status = check_merge(truce__value_document(options), error);
    if (status) {
        bson_destroy(options);
        return status;
    }
    stage = bson_malloc0(sizeof *stage);
    stage->options = options;
    truce__stage_push(parser, &write_kind, stage);
    return TRUCE_OK;
}
