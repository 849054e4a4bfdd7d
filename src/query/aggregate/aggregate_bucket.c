/*
 * $bucket and $bucketAuto.
 *
 * $bucket is parsed into other stages, as in MongoDB: a $group whose id is a $switch over the
 * boundaries, and a $sort by it. For a value that is in no bucket, the $switch fails (40066) unless
 * there is a `default`.
 *
 * $bucketAuto first sorts the documents by their value (a sorter, so it may spill). It then cuts
 * the sorted sequence into buckets of equal size, but never between equal values. With a
 * granularity, each cut moves up to the next number of a preferred series:
 *
 *     R5 ... E192    the numbers of one decade, times any power of ten (ISO 3, IEC 60063)
 *     POWERSOF2      powers of two
 *     1-2-5          1, 2, 5, times any power of ten
 */
#include <math.h>
#include <stddef.h>

#include "base/limits.h"
#include "bson/array.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "query/aggregate/accumulator.h"
#include "query/aggregate/stage.h"
#include "query/expression/expression.h"

/* ---- preferred numbers ----------------------------------------------------------------------- */

/* Series of preferred numbers, for the granularity of $bucketAuto: Renard numbers (ISO 3), E series
 * (IEC 60063), 1-2-5, and powers of two. */

/*
 * A series repeats with each power of ten. It is therefore stored as one decade, and numbers are
 * scaled into it:
 *
 *     ... 0.1 0.16 0.25 0.4 0.63 | 1 1.6 2.5 4 6.3 | 10 16 25 40 63 | 100 ...      R5
 *
 * The numbers are those that the standards print, rounded as they print them. Decimals are computed
 * as doubles and converted back to decimals.
 */

struct series {
    const char *name;
    /* The numbers of one decade, or NULL for powers of two. */
    const double *numbers;
    size_t count;
};

static const double one_two_five[] = {10, 20, 50};
static const double r5[] = {10, 16, 25, 40, 63};
static const double r10[] = {100, 125, 160, 200, 250, 315, 400, 500, 630, 800};
static const double r20[] = {100, 112, 125, 140, 160, 180, 200, 224, 250, 280,
                             315, 355, 400, 450, 500, 560, 630, 710, 800, 900};
static const double r40[] = {100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212,
                             224, 236, 250, 265, 280, 300, 315, 335, 355, 375, 400, 425, 450, 475,
                             500, 530, 560, 600, 630, 670, 710, 750, 800, 850, 900, 950};
static const double r80[] = {103, 109, 115, 122, 128, 136, 145, 155, 165, 175, 185, 195, 206, 218,
                             230, 243, 258, 272, 290, 307, 325, 345, 365, 387, 412, 437, 462, 487,
                             515, 545, 575, 615, 650, 690, 730, 775, 825, 875, 925, 975};
static const double e6[] = {10, 15, 22, 33, 47, 68};
static const double e12[] = {10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82};
static const double e24[] = {10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30,
                             33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91};
static const double e48[] = {100, 105, 110, 115, 121, 127, 133, 140, 147, 154, 162, 169,
                             178, 187, 196, 205, 215, 226, 237, 249, 261, 274, 287, 301,
                             316, 332, 348, 365, 383, 402, 422, 442, 464, 487, 511, 536,
                             562, 590, 619, 649, 681, 715, 750, 787, 825, 866, 909, 953};
static const double e96[] = {100, 102, 105, 107, 110, 113, 115, 118, 121, 124, 127, 130, 133, 137,
                             140, 143, 147, 150, 154, 158, 162, 165, 169, 174, 178, 182, 187, 191,
                             196, 200, 205, 210, 215, 221, 226, 232, 237, 243, 249, 255, 261, 267,
                             274, 280, 287, 294, 301, 309, 316, 324, 332, 340, 348, 357, 365, 374,
                             383, 392, 402, 412, 422, 432, 442, 453, 464, 475, 487, 499, 511, 523,
                             536, 549, 562, 576, 590, 604, 619, 634, 649, 665, 681, 698, 715, 732,
                             750, 768, 787, 806, 825, 845, 866, 887, 909, 931, 953, 976};
static const double e192[] = {
    100, 101, 102, 104, 105, 106, 107, 109, 110, 111, 113, 114, 115, 117, 118, 120, 121, 123,
    124, 126, 127, 129, 130, 132, 133, 135, 137, 138, 140, 142, 143, 145, 147, 149, 150, 152,
    154, 156, 158, 160, 162, 164, 165, 167, 169, 172, 174, 176, 178, 180, 182, 184, 187, 189,
    191, 193, 196, 198, 200, 203, 205, 208, 210, 213, 215, 218, 221, 223, 226, 229, 232, 234,
    237, 240, 243, 246, 249, 252, 255, 258, 261, 264, 267, 271, 274, 277, 280, 284, 287, 291,
    294, 298, 301, 305, 309, 312, 316, 320, 324, 328, 332, 336, 340, 344, 348, 352, 357, 361,
    365, 370, 374, 379, 383, 388, 392, 397, 402, 407, 412, 417, 422, 427, 432, 437, 442, 448,
    453, 459, 464, 470, 475, 481, 487, 493, 499, 505, 511, 517, 523, 530, 536, 542, 549, 556,
    562, 569, 576, 583, 590, 597, 604, 612, 619, 626, 634, 642, 649, 657, 665, 673, 681, 690,
    698, 706, 715, 723, 732, 741, 750, 759, 768, 777, 787, 796, 806, 816, 825, 835, 845, 856,
    866, 876, 887, 898, 909, 920, 931, 942, 953, 965, 976, 988};

#define SERIES(name, numbers)                                                                      \
    {                                                                                              \
        name, numbers, sizeof(numbers) / sizeof *(numbers)                                         \
    }

static const struct series all[] = {
    SERIES("1-2-5", one_two_five),
    SERIES("R5", r5),
    SERIES("R10", r10),
    SERIES("R20", r20),
    SERIES("R40", r40),
    SERIES("R80", r80),
    SERIES("E6", e6),
    SERIES("E12", e12),
    SERIES("E24", e24),
    SERIES("E48", e48),
    SERIES("E96", e96),
    SERIES("E192", e192),
    {"POWERSOF2", NULL, 0},
};

/* Returns the series of a name such as "R5", "E24", "1-2-5", or "POWERSOF2", or NULL if the name is
 * unknown. */
static const struct series *series_find(const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!strcmp(all[i].name, name))
            return &all[i];
    }
    return NULL;
}

/* Returns the number at an index of the series, in the decade of `scale`. An index beyond the ends
 * of the decade refers to the neighboring decades. */
static double series_number_at(const struct series *series, ptrdiff_t at, double scale)
{
    ptrdiff_t count = (ptrdiff_t)series->count;

    if (at < 0)
        return series->numbers[at + count] * (scale / 10);
    if (at >= count)
        return series->numbers[at - count] * (scale * 10);
    return series->numbers[at] * scale;
}

/* Returns the power of ten that scales the decade of the series to the number; for numbers near
 * zero, the least power. */
static double scale_of(const struct series *series, double number)
{
    double first = series->numbers[0], scale = 1;

    while (number < first * scale && scale / 10 > 0)
        scale /= 10;
    while (number >= first * scale * 10 && isfinite(scale))
        scale *= 10;
    return scale;
}

static double step_up(const struct series *series, double number)
{
    double scale;

    if (!series->numbers)
        return exp2(floor(log2(number)) + 1);
    scale = scale_of(series, number);
    for (ptrdiff_t i = 0; i <= (ptrdiff_t)series->count; i++) {
        if (series_number_at(series, i, scale) > number)
            return series_number_at(series, i, scale);
    }
    return number;
}

static double step_down(const struct series *series, double number)
{
    double scale;

    if (!series->numbers)
        return exp2(ceil(log2(number)) - 1);
    scale = scale_of(series, number);
    for (ptrdiff_t i = (ptrdiff_t)series->count; i >= -1; i--) {
        if (series_number_at(series, i, scale) < number)
            return series_number_at(series, i, scale);
    }
    return number;
}

static struct value bucket_step_number(const struct series *series, struct value number,
                                       struct arena *arena,
                                       double (*step)(const struct series *series, double number))
{
    double from = truce__number_to_double(number);
    struct value result;

    if (from == 0 || !isfinite(from))
        return truce__value_copy(arena, number);
    result = truce__value_from_double(arena, step(series, from));
    if (number.type == BSON_TYPE_DECIMAL128)
        result = truce__value_from_decimal(arena, truce__number_to_decimal(result));
    return result;
}

/* Returns the least number of the series that is greater than `number`, which is not negative and
 * not NaN. Zero and infinity stay. The result is a double, or a decimal if `number` is one. */
static struct value series_up(const struct series *series, struct value number, struct arena *arena)
{
    return bucket_step_number(series, number, arena, step_up);
}

/* Returns the greatest number of the series that is less than `number`, as series_up does. */
static struct value series_down(const struct series *series, struct value number,
                                struct arena *arena)
{
    return bucket_step_number(series, number, arena, step_down);
}

/* ---- $bucketAuto ----------------------------------------------------------------------------- */

struct auto_stage {
    struct expression *group_by;
    int32_t buckets;
    struct accumulators list;
    /* The series of the option `granularity`, or NULL. */
    const struct series *series;
};

struct auto_stream {
    struct stream base;
    const struct auto_stage *stage;
    struct sorter *sorter;
    bool sorted;
    /* The number of documents, and the intended number of documents of a bucket. */
    int64_t documents, size;
    int32_t made;
    /* The current row, which is not in a bucket yet. `value` is missing if there is no row left. */
    struct value value;
    struct accumulator_input *inputs;
    struct buffer row, key, sort_key;
    /* The states of the accumulators of the current bucket, and their arena. */
    struct arena arena;
    void *states;
    /* The bounds of the current bucket, as saved bytes. While rows are added, `max` is the greatest
     * value so far. */
    struct buffer min, max;
};

static bool bucket_is_computed(struct value value);
static void bucket_append_output(bson_t *group, struct value output);

static struct value bucket_load_value(const struct buffer *buffer)
{
    const uint8_t *at = buffer->bytes;

    return truce__value_load(&at);
}

static void auto_save(struct buffer *buffer, struct value value)
{
    buffer->size = 0;
    truce__value_save(value, buffer);
}

/* Adds a document to the sorter of a $bucketAuto, with the inputs of its accumulators. */
static truce_status auto_add_document(struct auto_stream *stream, struct value document,
                                      bson_error_t *error)
{
    const struct auto_stage *stage = stream->stage;
    struct query_context *context = &stream->base.context;
    struct value value;
    truce_status status;

    truce__arena_reset(&stream->base.arena);
    status = truce__expression_evaluate(stage->group_by, document, context->variables, context,
                                        &value, error);
    if (!status && value.type == VALUE_MISSING)
        value = truce__value_null();
    if (!status && stage->series && !truce__value_is_number(value))
        status = truce__refuse_value(40258, value, error,
                                     "$bucketAuto with a granularity takes only numbers");
    if (!status && stage->series &&
        (truce__number_is_nan(value) || truce__number_to_double(value) < 0))
        status =
            truce__refuse_value(truce__number_is_nan(value) ? 40259 : 40260, value, error,
                                "$bucketAuto with a granularity takes only non-negative numbers");
    if (!status)
        status = truce__accumulators_evaluate(&stage->list, document, context, &stream->sort_key,
                                              stream->inputs, error);
    if (status)
        return status;
    auto_save(&stream->row, value);
    truce__accumulators_save_inputs(&stage->list, stream->inputs, &stream->row);
    stream->key.size = 0;
    truce__key_append(&stream->key, value, false);
    stream->documents++;
    return truce__sorter_add_key(stream->sorter, stream->key.bytes, stream->key.size,
                                 stream->row.bytes, (uint32_t)stream->row.size, error);
}

/* Reads the next row, which becomes the current row. */
static truce_status auto_step(struct auto_stream *stream, bson_error_t *error)
{
    const void *payload;
    uint32_t size;
    truce_status status = truce__sorter_next(stream->sorter, &payload, &size, error);
    const uint8_t *at = payload;

    stream->value = truce__value_missing();
    if (status || !payload)
        return status;
    stream->value = truce__value_load(&at);
    truce__accumulators_load_inputs(&stream->stage->list, stream->inputs, &at);
    return TRUCE_OK;
}

/* Reads and sorts the whole input, and computes the size of a bucket. */
static truce_status auto_drain(struct auto_stream *stream, bool *paused, bson_error_t *error)
{
    while (!stream->sorted) {
        struct value document;
        truce_status status = stream->base.input->next(stream->base.input, &document, error);

        *paused = !status && document.type == STREAM_PAUSED;
        if (status || *paused)
            return status;
        if (truce__stream_is_document(document)) {
            status = auto_add_document(stream, document, error);
        } else {
            stream->sorted = true;
            stream->size =
                (int64_t)round((double)stream->documents / (double)stream->stage->buckets);
            if (stream->size < 1)
                stream->size = 1;
            status = truce__sorter_sort(stream->sorter, error);
            if (!status)
                status = auto_step(stream, error);
        }
        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* Adds the current row to the bucket. Its value is the greatest of the bucket so far. */
static truce_status auto_take_row(struct auto_stream *stream, bson_error_t *error)
{
    truce_status status =
        truce__accumulators_add(&stream->stage->list, stream->states, stream->inputs,
                                &stream->arena, &stream->base.context, error);

    auto_save(&stream->max, stream->value);
    if (!status)
        status = truce__stream_hold(&stream->base, stream->arena.bytes, error);
    if (!status && stream->arena.bytes > TRUCE_STAGE_MEMORY_MAX)
        status = truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, error,
                               "one bucket of $bucketAuto takes more than %d bytes of memory",
                               TRUCE_STAGE_MEMORY_MAX);
    return status ? status : auto_step(stream, error);
}

/* Begins a bucket at the current row, with the states of its accumulators, and sets its lower
 * bound. With a series, that is the upper bound of the bucket before it, and for the first bucket
 * the number of the series below its first value. */
static truce_status begin_bucket(struct auto_stream *stream, bson_error_t *error)
{
    bool first = stream->made++ == 0;

    truce__arena_reset(&stream->arena);
    memset(stream->states, 0, stream->stage->list.state_size);
    if (stream->stage->series) {
        if (first)
            auto_save(&stream->min,
                      series_down(stream->stage->series, stream->value, &stream->base.arena));
        else
            auto_save(&stream->min, bucket_load_value(&stream->max));
    } else {
        auto_save(&stream->min, stream->value);
    }
    return truce__accumulators_begin(&stream->stage->list, stream->states, truce__value_missing(),
                                     &stream->base.context, error);
}

/* Adds the rows that also belong to a full bucket, and sets its upper bound. Without a series, they
 * are the rows that equal its last row, and the bound is the first value of the next bucket. With
 * one, they are the rows that are less than the next number of the series, which is the bound. */
static truce_status end_bucket(struct auto_stream *stream, bson_error_t *error)
{
    struct value bound = bucket_load_value(&stream->max);
    truce_status status = TRUCE_OK;

    if (stream->stage->series)
        bound = series_up(stream->stage->series, bound, &stream->base.arena);
    else
        bound = truce__value_copy(&stream->base.arena, bound);
    while (!status && stream->value.type) {
        int order = truce__value_compare(stream->value, bound);

        if (stream->stage->series ? order >= 0 : order > 0)
            break;
        status = auto_take_row(stream, error);
    }
    if (stream->stage->series)
        auto_save(&stream->max, bound);
    else if (!status && stream->value.type)
        auto_save(&stream->max, stream->value);
    return status;
}

/* Makes the document of the current bucket: {_id: {min, max}, ...}, with the results of the
 * accumulators. */
static truce_status auto_make_document(struct auto_stream *stream, struct value *document,
                                       bson_error_t *error)
{
    struct builder builder;
    struct builder_mark mark;
    truce_status status;

    truce__builder_begin(&builder, &stream->base.arena, 2 * (size_t)TRUCE_STAGE_MEMORY_MAX,
                         BSON_TYPE_DOCUMENT);
    mark = truce__builder_open(&builder, "_id", 3, BSON_TYPE_DOCUMENT);
    truce__builder_append(&builder, "min", 3, bucket_load_value(&stream->min));
    truce__builder_append(&builder, "max", 3, bucket_load_value(&stream->max));
    truce__builder_close(&builder, mark);
    status = truce__accumulators_finish(&stream->stage->list, stream->states, &stream->base.context,
                                        &builder, error);
    return status ? status : truce__builder_finish(&builder, document, error);
}

/* Returns the document of the next bucket. Without a series, the last bucket gets all rows that are
 * left. */
static truce_status auto_next(struct stream *base, struct value *document, bson_error_t *error)
{
    struct auto_stream *stream = (struct auto_stream *)base;
    bool paused = false, last;
    truce_status status = auto_drain(stream, &paused, error);

    *document = truce__value_missing();
    if (paused)
        document->type = STREAM_PAUSED;
    if (status || paused || !stream->value.type)
        return status;
    truce__arena_reset(&base->arena);
    status = begin_bucket(stream, error);
    last = stream->made == stream->stage->buckets && !stream->stage->series;
    for (int64_t i = 0; !status && stream->value.type && (last || i < stream->size); i++)
        status = auto_take_row(stream, error);
    if (!status)
        status = end_bucket(stream, error);
    return status ? status : auto_make_document(stream, document, error);
}

static void auto_release(struct stream *base)
{
    struct auto_stream *stream = (struct auto_stream *)base;

    truce__sorter_free(stream->sorter);
    truce__arena_release(&stream->arena);
    bson_free(stream->states);
    bson_free(stream->inputs);
    truce__buffer_release(&stream->row);
    truce__buffer_release(&stream->key);
    truce__buffer_release(&stream->sort_key);
    truce__buffer_release(&stream->min);
    truce__buffer_release(&stream->max);
}

static truce_status auto_open(const void *data, const struct stage_run *run, struct stream *input,
                              struct stream **stream, bson_error_t *error)
{
    const struct auto_stage *stage = data;
    struct spill_options options = truce__stage_spill(run->environment, run->context);
    struct auto_stream *made = truce__stream_new(sizeof *made, run, input, auto_next, auto_release);

    made->stage = stage;
    made->inputs = bson_malloc0((stage->list.count + 1) * sizeof *made->inputs);
    made->states = bson_malloc0(stage->list.state_size + 1);
    truce__sorter_new(NULL, 0, &options, &made->sorter);
    *stream = &made->base;
    return TRUCE_OK;
}

static void auto_free(void *data)
{
    struct auto_stage *stage = data;

    truce__expression_free(stage->group_by);
    truce__accumulators_release(&stage->list);
    bson_free(stage);
}

static const struct stage_kind auto_kind = {.open = auto_open, .free = auto_free};

/* Reads the option buckets, a positive whole number. */
static truce_status parse_buckets(struct value value, int32_t *buckets, bson_error_t *error)
{
    int64_t number;

    if (!truce__value_is_number(value))
        return truce__stage_refuse(40241, value, "$bucketAuto's buckets must be a number", error);
    if (!truce__number_to_int64(value, &number) || number > INT32_MAX || number < INT32_MIN)
        return truce__stage_refuse(40242, value, "$bucketAuto's buckets must be a whole number",
                                   error);
    if (number <= 0)
        return truce__stage_refuse(40243, value, "$bucketAuto's buckets must be greater than 0",
                                   error);
    *buckets = (int32_t)number;
    return TRUCE_OK;
}

/* Reads the option granularity, the name of a series. */
static truce_status parse_granularity(struct value value, const struct series **series,
                                      bson_error_t *error)
{
    size_t length;
    const char *name = truce__stage_text(value, &length);

    if (!name)
        return truce__stage_refuse(40261, value, "$bucketAuto's granularity must be a string",
                                   error);
    *series = series_find(name);
    if (!*series)
        return truce__refuse(
            40257, error,
            "$bucketAuto has no granularity '%s': expected R5, R10, R20, R40, R80, 1-2-5, E6, "
            "E12, E24, E48, E96, E192, or POWERSOF2",
            name);
    return TRUCE_OK;
}

/* Reads the accumulators of the option output. Without it, the buckets have `count`. */
static truce_status parse_output(struct value output, const char *const *variables,
                                 struct accumulators *list, bson_error_t *error)
{
    bson_t usual = BSON_INITIALIZER;
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (!output.type) {
        bucket_append_output(&usual, output);
        output = truce__value_document(&usual);
    }
    fields = truce__fields(output);
    while (!status && truce__fields_next(&fields))
        status = truce__accumulators_add_field(list, fields.key, fields.key_length, fields.value,
                                               variables, error);
    bson_destroy(&usual);
    return status;
}

/* Reads the options of $bucketAuto. */
static truce_status parse_auto(struct value argument, const char *const *variables,
                               struct auto_stage *stage, bson_error_t *error)
{
    struct fields fields = truce__fields(argument);
    struct value output = truce__value_missing();
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "groupBy") && !stage->group_by) {
            if (!bucket_is_computed(fields.value))
                return truce__stage_refuse(40239, fields.value,
                                           "$bucketAuto's groupBy must be a path or an expression",
                                           error);
            status = truce__expression_new(fields.value, variables, &stage->group_by, error);
        } else if (!strcmp(fields.key, "buckets")) {
            status = parse_buckets(fields.value, &stage->buckets, error);
        } else if (!strcmp(fields.key, "output")) {
            if (fields.value.type != BSON_TYPE_DOCUMENT)
                return truce__stage_refuse(40244, fields.value,
                                           "$bucketAuto's output must be a document", error);
            output = fields.value;
        } else if (!strcmp(fields.key, "granularity")) {
            status = parse_granularity(fields.value, &stage->series, error);
        } else {
            return truce__refuse(
                40245, error,
                "$bucketAuto has no option '%s': expected groupBy, buckets, output, or granularity",
                fields.key);
        }
    }
    if (!status && (!stage->group_by || !stage->buckets))
        status = truce__refuse(40246, error, "$bucketAuto needs groupBy and buckets, and has no %s",
                               stage->group_by ? "buckets" : "groupBy");
    return status ? status : parse_output(output, variables, &stage->list, error);
}

truce_status truce__stage_bucket_auto(struct stage_parser *parser, struct value argument,
                                      bson_error_t *error)
{
    struct auto_stage *stage;
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__stage_refuse(40240, argument, "$bucketAuto must be a document", error);
    stage = bson_malloc0(sizeof *stage);
    status = parse_auto(argument, parser->variables, stage, error);
    if (status)
        auto_free(stage);
    else
        truce__stage_push(parser, &auto_kind, stage);
    return status;
}

/* ---- $bucket -------------------------------------------------------------------------------- */

struct bucket_options {
    struct value group_by, boundaries, fallback, output;
};

static bool bucket_is_computed(struct value value)
{
    size_t length;
    const char *text = truce__stage_text(value, &length);
    struct fields fields;

    if (text)
        return length > 0 && text[0] == '$';
    if (value.type != BSON_TYPE_DOCUMENT)
        return false;
    fields = truce__fields(value);
    return truce__fields_next(&fields) && fields.key[0] == '$';
}

/* Reads the options of $bucket. */
static truce_status read_bucket(struct value argument, struct bucket_options *options,
                                bson_error_t *error)
{
    struct fields fields = truce__fields(argument);

    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "groupBy")) {
            if (!bucket_is_computed(fields.value))
                return truce__stage_refuse(40202, fields.value,
                                           "$bucket's groupBy must be a path or an expression",
                                           error);
            options->group_by = fields.value;
        } else if (!strcmp(fields.key, "boundaries")) {
            if (fields.value.type != BSON_TYPE_ARRAY)
                return truce__stage_refuse(40200, fields.value,
                                           "$bucket's boundaries must be an array", error);
            options->boundaries = fields.value;
        } else if (!strcmp(fields.key, "default")) {
            options->fallback = fields.value;
        } else if (!strcmp(fields.key, "output")) {
            if (fields.value.type != BSON_TYPE_DOCUMENT)
                return truce__stage_refuse(40196, fields.value,
                                           "$bucket's output must be a document", error);
            options->output = fields.value;
        } else {
            return truce__refuse(
                40197, error,
                "$bucket has no option '%s': expected groupBy, boundaries, default, or output",
                fields.key);
        }
    }
    if (!options->group_by.type || !options->boundaries.type)
        return truce__refuse(40198, error, "$bucket needs groupBy and boundaries, and has no %s",
                             options->group_by.type ? "boundaries" : "groupBy");
    return TRUCE_OK;
}

/* Evaluates a constant expression into the arena. Fails with `code` if the expression is not
 * constant. */
static truce_status constant_of(struct value source, uint32_t code, const char *what,
                                struct arena *arena, struct value *constant, bson_error_t *error)
{
    struct expression *expression;
    truce_status status = truce__expression_new(source, NULL, &expression, error);

    if (status)
        return status;
    if (truce__expression_constant_value(expression, constant))
        *constant = truce__value_copy(arena, *constant);
    else
        status = truce__refuse_value(code, source, error, "$bucket's %s must be constants", what);
    truce__expression_free(expression);
    return status;
}

struct boundaries {
    struct value *items;
    uint32_t count;
};

/* Evaluates the boundaries of a $bucket and checks that they ascend within one type. */
static truce_status check_boundaries(struct value list, struct arena *arena,
                                     struct boundaries *boundaries, bson_error_t *error)
{
    struct fields fields = truce__fields(list);

    boundaries->items = truce__arena_take(arena, (list.size / 2 + 1) * sizeof(struct value));
    while (truce__fields_next(&fields)) {
        truce_status status = constant_of(fields.value, 40191, "boundaries", arena,
                                          &boundaries->items[boundaries->count++], error);

        if (status)
            return status;
    }
    if (boundaries->count < 2)
        return truce__refuse(40192, error, "$bucket needs at least two boundaries, and has %u",
                             boundaries->count);
    for (uint32_t i = 1; i < boundaries->count; i++) {
        struct value lower = boundaries->items[i - 1], upper = boundaries->items[i];
        char shown[2][60];

        if (truce__type_class(lower.type) != truce__type_class(upper.type))
            return truce__refuse(40193, error,
                                 "$bucket's boundaries must be of one type, and are %s and %s",
                                 truce__type_name(lower.type), truce__type_name(upper.type));
        if (truce__value_compare(lower, upper) >= 0)
            return truce__refuse(40194, error,
                                 "$bucket's boundaries must ascend, but %s is followed by %s",
                                 truce__value_show(lower, shown[0], sizeof shown[0]),
                                 truce__value_show(upper, shown[1], sizeof shown[1]));
    }
    return TRUCE_OK;
}

static truce_status check_fallback(struct value fallback, const struct boundaries *boundaries,
                                   bson_error_t *error)
{
    struct value lowest = boundaries->items[0];
    struct value highest = boundaries->items[boundaries->count - 1];

    if (truce__type_class(fallback.type) == truce__type_class(lowest.type) &&
        truce__value_compare(fallback, lowest) >= 0 && truce__value_compare(fallback, highest) < 0)
        return truce__refuse_value(
            40199, fallback, error,
            "$bucket's default must be below the lowest boundary, or not below the highest");
    return TRUCE_OK;
}

/* Appends key: {$literal: value}. */
static void append_literal(bson_t *parent, const char *key, struct value value)
{
    bson_t literal;

    BSON_APPEND_DOCUMENT_BEGIN(parent, key, &literal);
    truce__value_append(&literal, "$literal", 8, value);
    bson_append_document_end(parent, &literal);
}

/* Appends {operator: [groupBy, {$literal: bound}]}. */
static void bucket_append_comparison(struct array *list, const char *operator,
                                     struct value group_by, struct value bound)
{
    struct array operands;
    bson_t comparison, literal;

    truce__array_open_document(list, &comparison);
    truce__array_begin(&operands, &comparison, operator);
    truce__array_add(&operands, group_by);
    truce__array_open_document(&operands, &literal);
    truce__value_append(&literal, "$literal", 8, bound);
    truce__array_close_document(&operands, &literal);
    truce__array_end(&operands, &comparison);
    truce__array_close_document(list, &comparison);
}

/* Appends {case: {$and: [{$gte: [groupBy, lower]}, {$lt: [groupBy, upper]}]}, then: lower}. */
static void append_branch(struct array *branches, struct value group_by, struct value lower,
                          struct value upper)
{
    bson_t branch, condition;
    struct array both;

    truce__array_open_document(branches, &branch);
    BSON_APPEND_DOCUMENT_BEGIN(&branch, "case", &condition);
    truce__array_begin(&both, &condition, "$and");
    bucket_append_comparison(&both, "$gte", group_by, lower);
    bucket_append_comparison(&both, "$lt", group_by, upper);
    truce__array_end(&both, &condition);
    bson_append_document_end(&branch, &condition);
    append_literal(&branch, "then", lower);
    truce__array_close_document(branches, &branch);
}

static void bucket_append_output(bson_t *group, struct value output)
{
    struct fields fields;
    bson_t count;

    if (!output.type) {
        BSON_APPEND_DOCUMENT_BEGIN(group, "count", &count);
        BSON_APPEND_INT32(&count, "$sum", 1);
        bson_append_document_end(group, &count);
        return;
    }
    fields = truce__fields(output);
    while (truce__fields_next(&fields))
        truce__value_append(group, fields.key, fields.key_length, fields.value);
}

/* Makes the specification of the $group that $bucket becomes: its _id is a $switch over the
 * boundaries. */
static void bucket_make_group(const struct bucket_options *options,
                              const struct boundaries *boundaries, struct value fallback,
                              bson_t *group)
{
    bson_t id, choice;
    struct array branches;

    BSON_APPEND_DOCUMENT_BEGIN(group, "_id", &id);
    BSON_APPEND_DOCUMENT_BEGIN(&id, "$switch", &choice);
    truce__array_begin(&branches, &choice, "branches");
    for (uint32_t i = 1; i < boundaries->count; i++)
        append_branch(&branches, options->group_by, boundaries->items[i - 1], boundaries->items[i]);
    truce__array_end(&branches, &choice);
    if (fallback.type)
        append_literal(&choice, "default", fallback);
    bson_append_document_end(&id, &choice);
    bson_append_document_end(group, &id);
    bucket_append_output(group, options->output);
}

/* Checks the options of $bucket, and appends its $group and its $sort to the pipeline. */
static truce_status push_bucket(struct stage_parser *parser, const struct bucket_options *options,
                                struct arena *arena, bson_error_t *error)
{
    struct boundaries boundaries = {0};
    struct value fallback = truce__value_missing();
    bson_t group = BSON_INITIALIZER, sort = BSON_INITIALIZER;
    truce_status status = check_boundaries(options->boundaries, arena, &boundaries, error);

    if (!status && options->fallback.type)
        status = constant_of(options->fallback, 40195, "default", arena, &fallback, error);
    if (!status && fallback.type)
        status = check_fallback(fallback, &boundaries, error);
    if (!status) {
        bucket_make_group(options, &boundaries, fallback, &group);
        BSON_APPEND_INT32(&sort, "_id", 1);
        status = truce__stage_group(parser, truce__value_document(&group), error);
    }
    if (!status)
        status = truce__stage_sort(parser, truce__value_document(&sort), error);
    bson_destroy(&group);
    bson_destroy(&sort);
    return status;
}

truce_status truce__stage_bucket(struct stage_parser *parser, struct value argument,
                                 bson_error_t *error)
{
    struct bucket_options options = {0};
    struct arena arena = ARENA_INIT;
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__stage_refuse(40201, argument, "$bucket must be a document", error);
    status = read_bucket(argument, &options, error);
    if (!status)
        status = push_bucket(parser, &options, &arena, error);
    truce__arena_release(&arena);
    return status;
}
