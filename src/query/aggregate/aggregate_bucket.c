/*
 * $bucket and $bucketAuto.
 *
 * $bucket is written in terms of other stages, as in MongoDB: a $group whose id is a $switch over
 * the boundaries, and a $sort by it. A value in no bucket makes the $switch fail (40066).
 *
 * $bucketAuto sorts the documents by their value first (a sorter, so it may spill), and then cuts
 * the sorted sequence into buckets of equal size; equal values never part. With a granularity the
 * cuts are moved up to the next number of a preferred series:
 *
 *     R5 ... E192    1 <= s < 10 or 100, times any power of ten (ISO 3, IEC 60063)
 *     POWERSOF2      powers of two
 *     1-2-5          1, 2, 5, times any power of ten
 */
#include <math.h>

#include "base/limits.h"
#include "query/aggregate/stage.h"
#include "query/expression/expression.h"

/* ---- $bucket -------------------------------------------------------------------------------- */

struct bucket_options {
    struct value group_by, boundaries, fallback, output;
};

bool truce__bucket_is_computed(struct value value)
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

static truce_status read_bucket(struct value argument, struct bucket_options *options,
                                bson_error_t *error)
{
    struct fields fields = truce__fields(argument);

    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "groupBy")) {
            if (!truce__bucket_is_computed(fields.value))
                return truce__refuse(40202, error,
                                     "$bucket's groupBy must be a path or an expression");
            options->group_by = fields.value;
        } else if (!strcmp(fields.key, "boundaries")) {
            if (fields.value.type != BSON_TYPE_ARRAY)
                return truce__refuse(40200, error, "$bucket's boundaries must be an array");
            options->boundaries = fields.value;
        } else if (!strcmp(fields.key, "default")) {
            options->fallback = fields.value;
        } else if (!strcmp(fields.key, "output")) {
            if (fields.value.type != BSON_TYPE_DOCUMENT)
                return truce__refuse(40196, error, "$bucket's output must be a document");
            options->output = fields.value;
        } else {
            return truce__refuse(40197, error, "$bucket has no option '%s'", fields.key);
        }
    }
    if (!options->group_by.type || !options->boundaries.type)
        return truce__refuse(40198, error, "$bucket needs groupBy and boundaries");
    return TRUCE_OK;
}

/* The value of a constant expression, in the arena. */
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
        status = truce__refuse(code, error, "$bucket's %s must be constants", what);
    truce__expression_free(expression);
    return status;
}

struct boundaries {
    struct value *items;
    uint32_t count;
};

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
        return truce__refuse(40192, error, "$bucket needs at least two boundaries");
    for (uint32_t i = 1; i < boundaries->count; i++) {
        struct value lower = boundaries->items[i - 1], upper = boundaries->items[i];

        if (truce__type_class(lower.type) != truce__type_class(upper.type))
            return truce__refuse(40193, error, "$bucket's boundaries must be of one type");
        if (truce__value_compare(lower, upper) >= 0)
            return truce__refuse(40194, error, "$bucket's boundaries must ascend");
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
        return truce__refuse(40199, error,
                             "$bucket's default must be below the lowest boundary, or not below "
                             "the highest");
    return TRUCE_OK;
}

/* key: {$literal: value} */
static void append_literal(bson_t *parent, const char *key, struct value value)
{
    bson_t literal;

    BSON_APPEND_DOCUMENT_BEGIN(parent, key, &literal);
    truce__value_append(&literal, "$literal", 8, value);
    bson_append_document_end(parent, &literal);
}

/* {operator: [groupBy, {$literal: bound}]} */
static void bucket_append_comparison(bson_t *list, const char *key, const char *operator,
                                     struct value group_by, struct value bound)
{
    bson_t comparison, operands;

    BSON_APPEND_DOCUMENT_BEGIN(list, key, &comparison);
    BSON_APPEND_ARRAY_BEGIN(&comparison, operator, & operands);
    truce__value_append(&operands, "0", 1, group_by);
    append_literal(&operands, "1", bound);
    bson_append_array_end(&comparison, &operands);
    bson_append_document_end(list, &comparison);
}

/* {case: {$and: [{$gte: [groupBy, lower]}, {$lt: [groupBy, upper]}]}, then: lower} */
static void append_branch(bson_t *branches, uint32_t number, struct value group_by,
                          struct value lower, struct value upper)
{
    char digits[16];
    const char *key;
    bson_t branch, condition, both;

    bson_uint32_to_string(number, &key, digits, sizeof digits);
    BSON_APPEND_DOCUMENT_BEGIN(branches, key, &branch);
    BSON_APPEND_DOCUMENT_BEGIN(&branch, "case", &condition);
    BSON_APPEND_ARRAY_BEGIN(&condition, "$and", &both);
    bucket_append_comparison(&both, "0", "$gte", group_by, lower);
    bucket_append_comparison(&both, "1", "$lt", group_by, upper);
    bson_append_array_end(&condition, &both);
    bson_append_document_end(&branch, &condition);
    append_literal(&branch, "then", lower);
    bson_append_document_end(branches, &branch);
}

void truce__bucket_append_output(bson_t *group, struct value output)
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

static void bucket_make_group(const struct bucket_options *options,
                              const struct boundaries *boundaries, struct value fallback,
                              bson_t *group)
{
    bson_t id, choice, branches;

    BSON_APPEND_DOCUMENT_BEGIN(group, "_id", &id);
    BSON_APPEND_DOCUMENT_BEGIN(&id, "$switch", &choice);
    BSON_APPEND_ARRAY_BEGIN(&choice, "branches", &branches);
    for (uint32_t i = 1; i < boundaries->count; i++)
        append_branch(&branches, i - 1, options->group_by, boundaries->items[i - 1],
                      boundaries->items[i]);
    bson_append_array_end(&choice, &branches);
    if (fallback.type)
        append_literal(&choice, "default", fallback);
    bson_append_document_end(&id, &choice);
    bson_append_document_end(group, &id);
    truce__bucket_append_output(group, options->output);
}

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
        return truce__refuse(40201, error, "$bucket must be a document");
    status = read_bucket(argument, &options, error);
    if (!status)
        status = push_bucket(parser, &options, &arena, error);
    truce__arena_release(&arena);
    return status;
}
