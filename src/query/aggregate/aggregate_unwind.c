/* $unwind: makes one document of each element of an array. */
#include "base/assert.h"
#include "base/limits.h"
#include "bson/builder.h"
#include "bson/field_path.h"
#include "bson/number.h"
#include "query/aggregate/stage.h"

struct unwind_stage {
    /* The path of the array, and of the option includeArrayIndex (zeroed without the option). */
    struct path path, index;
    bool preserve;
};

struct unwind_stream {
    struct stream base;
    const struct unwind_stage *stage;
    /* The document whose array is unwound, or VALUE_MISSING. */
    struct value document;
    struct fields elements;
    int64_t at;
};

/* Returns the field at the path, through documents only. */
static struct value nested_field(struct value value, const struct path *path)
{
    for (uint32_t i = 0; i < path->count; i++) {
        if (value.type != BSON_TYPE_DOCUMENT)
            return truce__value_missing();
        value = truce__value_field(value, path->parts[i].name, path->parts[i].length);
    }
    return value;
}

/* Writes the fields of `document` (none if it is of another type), with `value` at the path: in the
 * position of the old field, or at the end. A missing value removes the field. */
static void write_with(struct builder *builder, struct value document, const struct path *path,
                       uint32_t at, struct value value)
{
    const struct path_part *part = &path->parts[at];
    bool last = at + 1 == path->count, found = false, ended = document.type != BSON_TYPE_DOCUMENT;
    struct fields fields = {0};

    if (!ended)
        fields = truce__fields(document);
    while (!ended || !found) {
        struct value inner = truce__value_missing();

        ended = ended || !truce__fields_next(&fields);
        if (ended && found)
            break;
        if (!ended && (found || fields.key_length != part->length ||
                       memcmp(fields.key, part->name, part->length) != 0)) {
            truce__builder_append(builder, fields.key, fields.key_length, fields.value);
            continue;
        }
        found = true;
        if (!ended)
            inner = fields.value;
        if (last) {
            truce__builder_append(builder, part->name, part->length, value);
        } else {
            struct builder_mark mark =
                truce__builder_open(builder, part->name, part->length, BSON_TYPE_DOCUMENT);
            write_with(builder, inner, path, at + 1, value);
            truce__builder_close(builder, mark);
        }
    }
}

truce_status truce__document_with(struct arena *arena, struct value *document,
                                  const struct path *path, struct value value, bson_error_t *error)
{
    struct builder builder;

    truce__builder_begin(&builder, arena, TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_DOCUMENT);
    write_with(&builder, *document, path, 0, value);
    return truce__builder_finish(&builder, document, error);
}

/* Sets the field for the index of the element, if the stage has one. If `index` is negative, sets
 * it to null. */
static truce_status unwind_add_index(struct unwind_stream *stream, int64_t index,
                                     struct value *document, bson_error_t *error)
{
    struct arena *arena = &stream->base.arena;

    if (!stream->stage->index.count)
        return TRUCE_OK;
    return truce__document_with(
        arena, document, &stream->stage->index,
        index < 0 ? truce__value_null() : truce__value_from_int64(arena, index), error);
}

/* Returns the next element of the current array; *document is missing at the end. */
static truce_status unwind_next_element(struct unwind_stream *stream, struct value *document,
                                        bson_error_t *error)
{
    truce_status status;

    *document = truce__value_missing();
    if (stream->document.type == VALUE_MISSING || !truce__fields_next(&stream->elements)) {
        stream->document = truce__value_missing();
        return TRUCE_OK;
    }
    truce__arena_reset(&stream->base.arena);
    *document = stream->document;
    status = truce__budget_spend(stream->base.context.budget, 8 + document->size / 1024, error);
    if (!status)
        status = truce__document_with(&stream->base.arena, document, &stream->stage->path,
                                      stream->elements.value, error);
    return status ? status : unwind_add_index(stream, stream->at++, document, error);
}

/* Begins a document that was just pulled: starts its array, or returns the document itself, or
 * nothing. */
static truce_status unwind_begin_document(struct unwind_stream *stream, struct value *document,
                                          bson_error_t *error)
{
    struct value found = nested_field(*document, &stream->stage->path);
    bool nothing = found.type == VALUE_MISSING || found.type == BSON_TYPE_NULL ||
                   found.type == BSON_TYPE_UNDEFINED;
    truce_status status = TRUCE_OK;

    truce__arena_reset(&stream->base.arena);
    status = truce__stream_spend(&stream->base, error);
    if (status)
        return status;
    if (found.type == BSON_TYPE_ARRAY) {
        stream->elements = truce__fields(found);
        stream->at = 0;
        nothing = *stream->elements.at == 0;
        if (!nothing) {
            stream->document = *document;
            return unwind_next_element(stream, document, error);
        }
        if (stream->stage->preserve)
            status = truce__document_with(&stream->base.arena, document, &stream->stage->path,
                                          truce__value_missing(), error);
    }
    if (nothing && !stream->stage->preserve)
        *document = truce__value_missing();
    else if (!status)
        status = unwind_add_index(stream, -1, document, error);
    return status;
}

static truce_status unwind_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct unwind_stream *stream = (struct unwind_stream *)base;
    truce_status status = unwind_next_element(stream, document, error);

    while (!status && document->type == VALUE_MISSING) {
        status = base->input->next(base->input, document, error);
        if (status || !truce__stream_is_document(*document))
            return status;
        status = unwind_begin_document(stream, document, error);
    }
    return status;
}

static truce_status unwind_open(const void *data, const struct stage_run *run, struct stream *input,
                                struct stream **stream, bson_error_t *error)
{
    *stream = truce__stream_new(sizeof(struct unwind_stream), run, input, unwind_next, NULL);
    ((struct unwind_stream *)*stream)->stage = data;
    return TRUCE_OK;
}

static void unwind_free(void *data)
{
    struct unwind_stage *stage = data;

    truce__path_release(&stage->path);
    truce__path_release(&stage->index);
    bson_free(stage);
}

static bool unwind_keeps(const void *data, const char *field, uint32_t length)
{
    const struct unwind_stage *stage = data;

    return !truce__path_begins(&stage->path, field, length) &&
           !truce__path_begins(&stage->index, field, length);
}

static const struct stage_kind unwind_kind = {
    .open = unwind_open, .free = unwind_free, .keeps = unwind_keeps};

static truce_status parse_path(const char *text, size_t length, struct path *path,
                               bson_error_t *error)
{
    truce_status status = truce__field_path_check(text, length, error);

    return status ? status : truce__path_parse(text, length, path, error);
}

static truce_status parse_index(struct value value, struct unwind_stage *stage, bson_error_t *error)
{
    size_t length;
    const char *text = truce__stage_text(value, &length);

    if (!text || length == 0)
        return truce__stage_refuse(28810, value, "$unwind's includeArrayIndex must be a field name",
                                   error);
    if (text[0] == '$')
        return truce__refuse(28822, error,
                             "$unwind's includeArrayIndex must not begin with '$': '%s'", text);
    /* If the option is given twice, the last value counts. */
    truce__path_release(&stage->index);
    return parse_path(text, length, &stage->index, error);
}

/* Reads the options of $unwind. */
static truce_status parse_unwind_options(struct value options, struct unwind_stage *stage,
                                         struct value *path, bson_error_t *error)
{
    struct fields fields = truce__fields(options);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "path")) {
            if (fields.value.type != BSON_TYPE_UTF8)
                return truce__stage_refuse(28808, fields.value, "$unwind's path must be a string",
                                           error);
            *path = fields.value;
        } else if (!strcmp(fields.key, "preserveNullAndEmptyArrays")) {
            if (fields.value.type != BSON_TYPE_BOOL)
                return truce__stage_refuse(
                    28809, fields.value,
                    "$unwind's preserveNullAndEmptyArrays must be true or false", error);
            stage->preserve = truce__value_bool(fields.value);
        } else if (!strcmp(fields.key, "includeArrayIndex")) {
            status = parse_index(fields.value, stage, error);
        } else {
            return truce__refuse(28811, error,
                                 "$unwind has no option '%s': expected path, includeArrayIndex, or "
                                 "preserveNullAndEmptyArrays",
                                 fields.key);
        }
    }
    return status;
}

/* Reads the argument of $unwind: a path, or a document of options. */
static truce_status parse_unwind(struct value argument, struct unwind_stage *stage,
                                 bson_error_t *error)
{
    struct value path = argument;
    size_t length;
    const char *text;

    if (argument.type == BSON_TYPE_DOCUMENT) {
        truce_status status;

        path = truce__value_missing();
        status = parse_unwind_options(argument, stage, &path, error);
        if (status)
            return status;
    } else if (argument.type != BSON_TYPE_UTF8) {
        return truce__stage_refuse(15981, argument, "$unwind must be a path or a document", error);
    }
    text = truce__stage_text(path, &length);
    if (!text || length == 0)
        return truce__refuse(28812, error,
                             "$unwind needs a path, for example {$unwind: \"$items\"}");
    if (text[0] != '$')
        return truce__refuse(28818, error, "$unwind's path must begin with '$': '%s'", text);
    return parse_path(text + 1, length - 1, &stage->path, error);
}

truce_status truce__stage_unwind(struct stage_parser *parser, struct value argument,
                                 bson_error_t *error)
{
    struct unwind_stage *stage = bson_malloc0(sizeof *stage);
    truce_status status = parse_unwind(argument, stage, error);

    if (status)
        unwind_free(stage);
    else
        truce__stage_push(parser, &unwind_kind, stage);
    return status;
}
