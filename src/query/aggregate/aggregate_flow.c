/*
 * Stages that drop or reorder documents: $limit, $skip, $sort, $sample; and $unwind, which makes
 * one document of each element of an array.
 *
 * $sort is a sorter (sort.h) with a limit if a $limit follows. $sample is a sorter by a random
 * number with the sample's size as its limit.
 */
#include "base/assert.h"
#include "base/limits.h"
#include "base/random.h"
#include "bson/builder.h"
#include "bson/field_path.h"
#include "bson/number.h"
#include "query/aggregate/stage.h"

/* ---- $limit and $skip ----------------------------------------------------------------------- */

struct count_stream {
    struct stream base;
    int64_t left;
};

static truce_status limit_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct count_stream *stream = (struct count_stream *)base;
    truce_status status;

    *document = truce__value_missing();
    if (stream->left == 0)
        return TRUCE_OK;
    status = base->input->next(base->input, document, error);
    if (!status && truce__stream_is_document(*document))
        stream->left--;
    return status;
}

static truce_status skip_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct count_stream *stream = (struct count_stream *)base;

    for (;;) {
        truce_status status = base->input->next(base->input, document, error);

        if (!status)
            status = truce__stream_spend(base, error);
        if (status || !truce__stream_is_document(*document) || stream->left == 0)
            return status;
        stream->left--;
    }
}

static struct stream *count_stream(const void *data, const struct stage_run *run,
                                   struct stream *input,
                                   truce_status (*next)(struct stream *, struct value *,
                                                        bson_error_t *))
{
    struct count_stream *stream = truce__stream_new(sizeof *stream, run, input, next, NULL);

    stream->left = ((const struct count_stage *)data)->count;
    return &stream->base;
}

static truce_status limit_open(const void *data, const struct stage_run *run, struct stream *input,
                               struct stream **stream, bson_error_t *error)
{
    *stream = count_stream(data, run, input, limit_next);
    return TRUCE_OK;
}

static truce_status skip_open(const void *data, const struct stage_run *run, struct stream *input,
                              struct stream **stream, bson_error_t *error)
{
    *stream = count_stream(data, run, input, skip_next);
    return TRUCE_OK;
}

static const struct stage_kind limit_kind = {
    .open = limit_open, .free = bson_free, .counts = STAGE_LIMIT};
static const struct stage_kind skip_kind = {
    .open = skip_open, .free = bson_free, .counts = STAGE_SKIP};

/* Parses a whole number that is not negative; a number beyond 64 bits becomes the largest. */
static bool flow_parse_count(struct value argument, int64_t *count)
{
    if (!truce__value_is_number(argument))
        return false;
    if (!truce__number_to_int64(argument, count)) {
        *count = INT64_MAX;
        return truce__number_to_double(argument) >= 9223372036854775808.0;
    }
    return *count >= 0;
}

static void push_count(struct stage_parser *parser, const struct stage_kind *kind, int64_t count)
{
    struct count_stage *stage = bson_malloc(sizeof *stage);

    stage->count = count;
    truce__stage_push(parser, kind, stage);
}

truce_status truce__stage_limit(struct stage_parser *parser, struct value argument,
                                bson_error_t *error)
{
    int64_t count;

    if (!flow_parse_count(argument, &count))
        return truce__refuse(5107201, error, "$limit must be a positive whole number");
    if (count == 0)
        return truce__refuse(15958, error, "$limit must be positive");
    push_count(parser, &limit_kind, count);
    return TRUCE_OK;
}

truce_status truce__stage_skip(struct stage_parser *parser, struct value argument,
                               bson_error_t *error)
{
    int64_t count;

    if (!flow_parse_count(argument, &count))
        return truce__refuse(5107200, error, "$skip must be a whole number, zero or more");
    push_count(parser, &skip_kind, count);
    return TRUCE_OK;
}

/* ---- $sort and $sample ---------------------------------------------------------------------- */

struct sort_stream {
    struct stream base;
    struct sorter *sorter;
    bool sorted;
    /* $sample: sorts by a random number instead of the document */
    struct random *random;
    struct random own;
};

static truce_status sort_add(struct sort_stream *stream, struct value document, bson_error_t *error)
{
    uint64_t number;

    if (!stream->random)
        return truce__sorter_add(stream->sorter, document, document.data, document.size, error);
    number = truce__random_next(stream->random);
    return truce__sorter_add_key(stream->sorter, &number, sizeof number, document.data,
                                 document.size, error);
}

static truce_status sort_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct sort_stream *stream = (struct sort_stream *)base;
    const void *payload;
    uint32_t size;
    truce_status status;

    while (!stream->sorted) {
        status = base->input->next(base->input, document, error);
        if (status || document->type == STREAM_PAUSED)
            return status;
        stream->sorted = document->type == VALUE_MISSING;
        status = stream->sorted ? truce__sorter_sort(stream->sorter, error)
                                : sort_add(stream, *document, error);
        if (status)
            return status;
    }
    status = truce__sorter_next(stream->sorter, &payload, &size, error);
    *document = !status && payload ? (struct value){payload, size, BSON_TYPE_DOCUMENT}
                                   : truce__value_missing();
    return status;
}

static void sort_release(struct stream *base)
{
    struct sort_stream *stream = (struct sort_stream *)base;

    truce__sorter_free(stream->sorter);
}

static struct sort_stream *sort_stream(const struct stage_run *run, struct stream *input,
                                       const struct sort *sort, uint64_t limit)
{
    struct sort_stream *stream =
        truce__stream_new(sizeof *stream, run, input, sort_next, sort_release);
    struct spill_options options = truce__stage_spill(run->environment, run->context);

    truce__sorter_new(sort, limit, &options, &stream->sorter);
    return stream;
}

static truce_status sort_open(const void *data, const struct stage_run *run, struct stream *input,
                              struct stream **stream, bson_error_t *error)
{
    const struct sort_stage *stage = data;

    if (run->ordered)
        *stream = truce__stream_sort_ordered(run, input, &stage->sort);
    else
        *stream = &sort_stream(run, input, &stage->sort, run->limit_ahead)->base;
    return TRUCE_OK;
}

static void sort_free(void *data)
{
    struct sort_stage *stage = data;

    truce__sort_release(&stage->sort);
    bson_destroy(stage->specification);
    bson_free(stage);
}

/* A filter passes: documents stay the same in any order. */
static bool sort_keeps(const void *data, const char *field, uint32_t length)
{
    (void)data, (void)field, (void)length;
    return true;
}

const struct stage_kind truce__sort_kind = {
    .open = sort_open, .free = sort_free, .keeps = sort_keeps};

truce_status truce__stage_sort(struct stage_parser *parser, struct value argument,
                               bson_error_t *error)
{
    struct sort_stage *stage;
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(15973, error, "$sort must be a document");
    if (argument.data[4] == 0)
        return truce__refuse(15976, error, "$sort must name at least one field");
    stage = bson_malloc0(sizeof *stage);
    stage->specification = truce__stage_copy(argument);
    status = truce__sort_parse(stage->specification, &stage->sort, error);
    stage->sort.missing_first = true;
    if (status)
        sort_free(stage);
    else
        truce__stage_push(parser, &truce__sort_kind, stage);
    return status;
}

static truce_status sample_open(const void *data, const struct stage_run *run, struct stream *input,
                                struct stream **stream, bson_error_t *error)
{
    int64_t size = ((const struct count_stage *)data)->count;
    struct sort_stream *made = sort_stream(run, input, NULL, (uint64_t)size);

    truce__random_seed(&made->own, (uint64_t)run->context->now_ms);
    made->random = run->context->random ? run->context->random : &made->own;
    *stream = &made->base;
    return TRUCE_OK;
}

static const struct stage_kind sample_kind = {.open = sample_open, .free = bson_free};

truce_status truce__stage_sample(struct stage_parser *parser, struct value argument,
                                 bson_error_t *error)
{
    int64_t size = -1;
    struct fields fields;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(28745, error, "$sample must be a document");
    fields = truce__fields(argument);
    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, "size") != 0)
            return truce__refuse(28748, error, "$sample has no option '%s'", fields.key);
        if (!truce__value_is_number(fields.value))
            return truce__refuse(28746, error, "$sample's size must be a number");
        if (!flow_parse_count(fields.value, &size) || size == 0)
            return truce__refuse(28747, error, "$sample's size must be a positive whole number");
    }
    if (size < 0)
        return truce__refuse(28749, error, "$sample needs 'size'");
    push_count(parser, &sample_kind, size);
    return TRUCE_OK;
}

/* ---- $unwind -------------------------------------------------------------------------------- */

struct unwind_stage {
    /* `index` is all zero if none is wanted */
    struct path path, index;
    bool preserve;
};

struct unwind_stream {
    struct stream base;
    const struct unwind_stage *stage;
    /* the current one; VALUE_MISSING: none */
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

/* Writes the fields of `document` (no field if it is another type) with `value` at the path: at its
 * old place, or else at the end. A missing value removes the field. */
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

/* Sets the field for the index of the element, if the stage has one. `index` < 0: null. */
static truce_status flow_add_index(struct unwind_stream *stream, int64_t index,
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
static truce_status flow_next_element(struct unwind_stream *stream, struct value *document,
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
    return status ? status : flow_add_index(stream, stream->at++, document, error);
}

/* Begins a document that was just pulled: starts its array, or returns the document itself, or
 * nothing. */
static truce_status flow_begin_document(struct unwind_stream *stream, struct value *document,
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
            return flow_next_element(stream, document, error);
        }
        if (stream->stage->preserve)
            status = truce__document_with(&stream->base.arena, document, &stream->stage->path,
                                          truce__value_missing(), error);
    }
    if (nothing && !stream->stage->preserve)
        *document = truce__value_missing();
    else if (!status)
        status = flow_add_index(stream, -1, document, error);
    return status;
}

static truce_status unwind_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct unwind_stream *stream = (struct unwind_stream *)base;
    truce_status status = flow_next_element(stream, document, error);

    while (!status && document->type == VALUE_MISSING) {
        status = base->input->next(base->input, document, error);
        if (status || !truce__stream_is_document(*document))
            return status;
        status = flow_begin_document(stream, document, error);
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
        return truce__refuse(28810, error, "$unwind's includeArrayIndex must be a field name");
    if (text[0] == '$')
        return truce__refuse(28822, error,
                             "$unwind's includeArrayIndex must not begin with '$': '%s'", text);
    /* the option may be given twice */
    truce__path_release(&stage->index);
    return parse_path(text, length, &stage->index, error);
}

static truce_status parse_unwind_options(struct value options, struct unwind_stage *stage,
                                         struct value *path, bson_error_t *error)
{
    struct fields fields = truce__fields(options);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "path")) {
            if (fields.value.type != BSON_TYPE_UTF8)
                return truce__refuse(28808, error, "$unwind's path must be a string");
            *path = fields.value;
        } else if (!strcmp(fields.key, "preserveNullAndEmptyArrays")) {
            if (fields.value.type != BSON_TYPE_BOOL)
                return truce__refuse(28809, error,
                                     "$unwind's preserveNullAndEmptyArrays must be true or false");
            stage->preserve = truce__value_bool(fields.value);
        } else if (!strcmp(fields.key, "includeArrayIndex")) {
            status = parse_index(fields.value, stage, error);
        } else {
            return truce__refuse(28811, error, "$unwind has no option '%s'", fields.key);
        }
    }
    return status;
}

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
        return truce__refuse(15981, error, "$unwind must be a path or a document");
    }
    text = truce__stage_text(path, &length);
    if (!text || length == 0)
        return truce__refuse(28812, error, "$unwind needs a path");
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
