/* $documents: the pipeline itself has the documents, as an array, in place of a collection's. */
#include "query/aggregate/stage.h"
#include "query/expression/expression.h"

#include <string.h>

struct documents_stream {
    struct stream base;
    const struct expression *expression;
    bool begun;
    struct fields left;
};

/* Evaluates the expression of the stage, which must give an array of documents. */
static truce_status documents_begin(struct documents_stream *stream, bson_error_t *error)
{
    struct value array;
    truce_status status = truce__expression_evaluate(stream->expression, truce__value_missing(),
                                                     stream->base.context.variables,
                                                     &stream->base.context, &array, error);

    if (status)
        return status;
    if (array.type != BSON_TYPE_ARRAY)
        return truce__refuse(5858203, error, "$documents must be an array, not %s",
                             truce__type_name(array.type));
    stream->left = truce__fields(array);
    stream->begun = true;
    return truce__stream_hold(&stream->base, 0, error);
}

static truce_status documents_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct documents_stream *stream = (struct documents_stream *)base;
    truce_status status = stream->begun ? TRUCE_OK : documents_begin(stream, error);

    *document = truce__value_missing();
    if (status || !truce__fields_next(&stream->left))
        return status;
    if (stream->left.value.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(40228, error,
                             "the array of $documents may have only documents, not %s",
                             truce__type_name(stream->left.value.type));
    *document = stream->left.value;
    return truce__stream_spend(base, error);
}

/* Opens the stream. It never reads `input`, because $documents is the first stage. */
static truce_status documents_open(const void *data, const struct stage_run *run,
                                   struct stream *input, struct stream **stream,
                                   bson_error_t *error)
{
    struct documents_stream *made =
        truce__stream_new(sizeof *made, run, input, documents_next, NULL);

    (void)error;
    made->expression = data;
    *stream = &made->base;
    return TRUCE_OK;
}

static void documents_free(void *data)
{
    truce__expression_free(data);
}

static const struct stage_kind documents_kind = {.open = documents_open, .free = documents_free};

truce_status truce__stage_own_documents(const char *stage, struct value stages,
                                        struct value collection, bool *own, bson_error_t *error)
{
    struct fields fields;

    *own = false;
    if (stages.type == BSON_TYPE_ARRAY) {
        fields = truce__fields(stages);
        if (truce__fields_next(&fields) && fields.value.type == BSON_TYPE_DOCUMENT) {
            fields = truce__fields(fields.value);
            *own = truce__fields_next(&fields) && !strcmp(fields.key, "$documents");
        }
    }
    if (*own && collection.type)
        return truce__refuse(
            CODE_INVALID_NAMESPACE, error,
            "%s: a pipeline with $documents reads no collection, so no collection may be named",
            stage);
    if (!*own && !collection.type)
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "%s without a collection must have a pipeline that begins with "
                             "$documents",
                             stage);
    return TRUCE_OK;
}

truce_status truce__stage_documents(struct stage_parser *parser, struct value argument,
                                    bson_error_t *error)
{
    struct expression *expression;
    bool before;
    truce_status status;

    if (!parser->first)
        return truce__refuse(40602, error,
                             "$documents is only valid as the first stage in a pipeline");
    before = truce__let_alone(true);
    status = truce__expression_new(argument, parser->variables, &expression, error);
    truce__let_alone(before);
    if (!status)
        truce__stage_push(parser, &documents_kind, expression);
    return status;
}
