/*
 * Stages that drop or reorder documents: $limit, $skip, $sort, $sample.
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

/* Parses a non-negative integer; a number beyond 64 bits becomes the largest. */
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
        return truce__stage_refuse(5107201, argument, "$limit must be a positive whole number",
                                   error);
    if (count == 0)
        return truce__stage_refuse(15958, argument, "$limit must be positive", error);
    push_count(parser, &limit_kind, count);
    return TRUCE_OK;
}

truce_status truce__stage_skip(struct stage_parser *parser, struct value argument,
                               bson_error_t *error)
{
    int64_t count;

    if (!flow_parse_count(argument, &count))
        return truce__stage_refuse(5107200, argument, "$skip must be a whole number, zero or more",
                                   error);
    push_count(parser, &skip_kind, count);
    return TRUCE_OK;
}

/* ---- $sort and $sample ---------------------------------------------------------------------- */

struct sort_stream {
    struct stream base;
    struct sorter *sorter;
    bool sorted;
    /* For $sample, which sorts by random numbers. NULL for a $sort. */
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

/* Reads and sorts the whole input at the first call. Returns the next document of the sorter. */
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

/* Returns true, so that filters move before the sort: documents stay the same in any order. */
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
        return truce__stage_refuse(15973, argument, "$sort must be a document", error);
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
        return truce__stage_refuse(28745, argument, "$sample must be a document", error);
    fields = truce__fields(argument);
    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, "size") != 0)
            return truce__refuse(28748, error, "$sample has no option '%s': expected size",
                                 fields.key);
        if (!truce__value_is_number(fields.value))
            return truce__stage_refuse(28746, fields.value, "$sample's size must be a number",
                                       error);
        if (!flow_parse_count(fields.value, &size) || size == 0)
            return truce__stage_refuse(28747, fields.value,
                                       "$sample's size must be a positive whole number", error);
    }
    if (size < 0)
        return truce__refuse(28749, error, "$sample needs 'size', for example {size: 10}");
    push_count(parser, &sample_kind, size);
    return TRUCE_OK;
}
