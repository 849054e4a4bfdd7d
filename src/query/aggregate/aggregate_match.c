/*
 * $match, and moving filters to the front of a pipeline as MongoDB's optimizer does, so that
 * indexes serve them.
 *
 *     [{$project: {a: 1, n: {$size: "$b"}}}, {$match: {_id: 5, n: 2}}]
 *     [{$match: {_id: 5}}, {$project: {a: 1, n: {$size: "$b"}}}, {$match: {n: 2}}]
 *
 * Invariants:
 *  1. A condition moves before a stage only if it reads fields that the stage does not change
 *     (stage.h, keeps). These are whole fields of documents, not fields within them, because a
 *     stage may change a part of a field. A field that a stage renames, as $group does for _id, is
 *     renamed in the filter. Before the stage the field may be missing where it is null after it,
 *     and it may be one of several equal values (1, 1.0). Therefore only comparisons move, which
 *     distinguish neither. A filter moves before a $unionWith as a whole, and also to the end of
 *     the other pipeline, where it moves on.
 *  2. Only $and is split, no other operator. $expr and $jsonSchema do not move.
 *  3. Adjacent filters are joined into one, in their order. A filter whose $expr may use variables
 *     of a $lookup stays separate, because the joined filter is passed to the reader of the
 *     collection (truce__pipeline_first_filter).
 *  4. The stages after a moved filter do not see a document that the filter drops. An error that
 *     they would have had with it is not reported. MongoDB behaves the same.
 *
 * Each filter is compiled when it is read, so that errors come in the order of the stages. It is
 * compiled again if it was split or joined. A filter passes at most STAGES_PASSED_MAX stages: the
 * time to compile a pipeline is proportional to its length.
 */
#include "bson/array.h"
#include "query/aggregate/stage.h"

#define STAGES_PASSED_MAX 64

struct match_stage {
    struct match *match;
};

/* ---- running -------------------------------------------------------------------------------- */

struct match_stream {
    struct stream base;
    const struct match *match;
};

/* Returns the next document of the input that matches. */
static truce_status match_next(struct stream *base, struct value *document, bson_error_t *error)
{
    const struct match *match = ((struct match_stream *)base)->match;
    struct match_result found;

    for (;;) {
        truce_status status = base->input->next(base->input, document, error);

        if (status || !truce__stream_is_document(*document))
            return status;
        truce__arena_reset(&base->arena);
        status = truce__stream_spend(base, error);
        if (!status)
            status = truce__match_test(match, *document, &base->context, &found, error);
        if (status || found.matched)
            return status;
    }
}

static truce_status match_open(const void *data, const struct stage_run *run, struct stream *input,
                               struct stream **stream, bson_error_t *error)
{
    *stream = truce__stream_new(sizeof(struct match_stream), run, input, match_next, NULL);
    ((struct match_stream *)*stream)->match = ((const struct match_stage *)data)->match;
    return TRUCE_OK;
}

static void match_free(void *data)
{
    truce__match_free(((struct match_stage *)data)->match);
    bson_free(data);
}

static const bson_t *match_filter(const void *data)
{
    return truce__match_filter(((const struct match_stage *)data)->match);
}

static const struct stage_kind match_kind = {
    .open = match_open, .free = match_free, .filter = match_filter};

/* ---- parts that move before a stage --------------------------------------------------------- */

static bool takes_filters(const char *name)
{
    return !strcmp(name, "$and") || !strcmp(name, "$or") || !strcmp(name, "$nor");
}

static bool all_pass(const struct stage *stage, struct value filter);

/* Returns whether a comparison with the operand cannot distinguish null from a missing field. */
static bool is_comparable(struct value operand)
{
    return operand.type != BSON_TYPE_MINKEY && operand.type != BSON_TYPE_MAXKEY &&
           operand.type != BSON_TYPE_UNDEFINED && operand.type != BSON_TYPE_REGEX;
}

static bool all_comparable(struct value list)
{
    struct fields fields = truce__fields(list);
    bool comparable = list.type == BSON_TYPE_ARRAY;

    while (comparable && truce__fields_next(&fields))
        comparable = is_comparable(fields.value);
    return comparable;
}

/* Returns whether a condition consists of comparisons, with operands other than MinKey, MaxKey,
 * undefined, and regular expressions. */
static bool match_condition_compares(struct value condition)
{
    static const char *const operators[] = {"$eq", "$ne", "$lt", "$lte", "$gt", "$gte", NULL};
    struct fields fields;
    bool all = true;

    if (condition.type != BSON_TYPE_DOCUMENT)
        return is_comparable(condition);
    fields = truce__fields(condition);
    if (!truce__fields_next(&fields) || fields.key[0] != '$')
        return true;
    fields = truce__fields(condition);
    while (all && truce__fields_next(&fields)) {
        size_t i = 0;

        while (operators[i] && strcmp(operators[i], fields.key) != 0)
            i++;
        if (!strcmp(fields.key, "$in") || !strcmp(fields.key, "$nin"))
            all = all_comparable(fields.value);
        else
            all = operators[i] && is_comparable(fields.value);
    }
    return all;
}

/* Returns whether this condition of a filter may move before the stage. */
static bool match_may_move_before(const struct stage *stage, const char *key,
                                  struct value condition)
{
    struct fields filters = truce__fields(condition);
    bool pass = takes_filters(key);
    size_t length;

    if (key[0] != '$' && stage->kind->takes)
        return stage->kind->takes(stage->data, key, &length) && match_condition_compares(condition);
    if (key[0] != '$')
        return stage->kind->keeps(stage->data, key, (uint32_t)strcspn(key, "."));
    while (pass && truce__fields_next(&filters))
        pass = all_pass(stage, filters.value);
    return pass;
}

static bool all_pass(const struct stage *stage, struct value filter)
{
    struct fields fields = truce__fields(filter);
    bool pass = true;

    while (pass && truce__fields_next(&fields))
        pass = match_may_move_before(stage, fields.key, fields.value);
    return pass;
}

static void append_and(bson_t *filter, const bson_t *filters)
{
    if (!bson_empty(filters))
        BSON_APPEND_ARRAY(filter, "$and", filters);
}

static void split_and(const struct stage *stage, struct value filters, bson_t *front, bson_t *rest)
{
    bson_t first = BSON_INITIALIZER, second = BSON_INITIALIZER;
    struct fields fields = truce__fields(filters);
    struct array before = {.to = &first}, after = {.to = &second};

    while (truce__fields_next(&fields))
        truce__array_add(all_pass(stage, fields.value) ? &before : &after, fields.value);
    append_and(front, &first);
    append_and(rest, &second);
    bson_destroy(&first);
    bson_destroy(&second);
}

static void match_split(const struct stage *stage, const bson_t *filter, bson_t *front,
                        bson_t *rest)
{
    struct fields fields = truce__fields(truce__value_document(filter));

    while (truce__fields_next(&fields))
        if (!strcmp(fields.key, "$and"))
            split_and(stage, fields.value, front, rest);
        else
            truce__value_append(match_may_move_before(stage, fields.key, fields.value) ? front
                                                                                       : rest,
                                fields.key, fields.key_length, fields.value);
}

static void rename_fields(const struct stage *stage, bson_t *filter);

/* Renames the fields in the filters of an $and, $or, or $nor. */
static void rename_all(const struct stage *stage, const char *key, struct value filters, bson_t *to)
{
    struct fields fields = truce__fields(filters);
    struct array list;

    truce__array_begin(&list, to, key);
    while (truce__fields_next(&fields)) {
        bson_t given, filter;

        truce__value_bson(fields.value, &given);
        bson_copy_to(&given, &filter);
        rename_fields(stage, &filter);
        truce__array_add_document(&list, &filter);
        bson_destroy(&filter);
    }
    truce__array_end(&list, to);
}

/* Gives the fields of the filter the names that they have before the stage. */
static void rename_fields(const struct stage *stage, bson_t *filter)
{
    struct fields fields = truce__fields(truce__value_document(filter));
    bson_t renamed = BSON_INITIALIZER;

    while (truce__fields_next(&fields)) {
        size_t length = 0;
        const char *field =
            takes_filters(fields.key) ? NULL : stage->kind->takes(stage->data, fields.key, &length);
        char *name = bson_strdup_printf("%s%s", field ? field : "", fields.key + length);

        if (field)
            truce__value_append(&renamed, name, strlen(name), fields.value);
        else
            rename_all(stage, fields.key, fields.value, &renamed);
        bson_free(name);
    }
    bson_destroy(filter);
    bson_steal(filter, &renamed);
}

/* ---- on its way ----------------------------------------------------------------------------- */

/* Returns whether the stage is a filter that can be joined with others (invariant 3). */
static bool is_joined(const struct stage_parser *parser, const struct stage *stage)
{
    const bson_t *filter = truce__stage_filter(stage);

    return filter &&
           !(parser->variables && truce__filter_uses_expression(truce__value_document(filter)));
}

static truce_status insert_filter(struct stage_parser *parser, uint32_t at, const bson_t *filter,
                                  bson_error_t *error)
{
    struct match_stage *stage = bson_malloc0(sizeof *stage);
    truce_status status =
        truce__match_new_with_variables(filter, parser->variables, &stage->match, error);

    if (status)
        bson_free(stage);
    else
        truce__stage_insert(parser, at, &match_kind, stage);
    return status;
}

/* Splits the filter into what moves before the stage (`filter`) and what stays (`rest`). Returns
 * false if nothing moves. */
static bool go_ahead(const struct stage *stage, bson_t *filter, bson_t *rest)
{
    bson_t front = BSON_INITIALIZER;
    bool goes;

    if (stage->kind->filter || stage->kind->inner)
        return true;
    if (!stage->kind->keeps && !stage->kind->takes)
        return false;
    if (all_pass(stage, truce__value_document(filter)))
        return true;
    match_split(stage, filter, &front, rest);
    goes = !bson_empty(&front);
    if (goes) {
        bson_destroy(filter);
        bson_steal(filter, &front);
    } else {
        bson_destroy(&front);
    }
    return goes;
}

static truce_status match_settle(struct stage_parser *parser, bson_error_t *error);

static struct stage_parser match_within(const struct stage_parser *parser, struct pipeline *inner)
{
    return (struct stage_parser){.table = parser->table,
                                 .pipeline = inner,
                                 .variables = parser->variables,
                                 .context = CONTEXT_UNION,
                                 .depth = parser->depth + 1};
}

/* Adds the filter to the end of the other pipeline. */
static truce_status filter_inner(const struct stage_parser *parser, const struct stage *stage,
                                 const bson_t *filter, bson_error_t *error)
{
    struct pipeline **inner = stage->kind->inner(stage->data);
    bson_t none = BSON_INITIALIZER;
    struct stage_parser of_inner;
    truce_status status = TRUCE_OK;

    if (!*inner)
        status = truce__pipeline_compile(parser, truce__value_array(&none), parser->variables,
                                         CONTEXT_UNION, inner, error);
    bson_destroy(&none);
    if (status)
        return status;
    of_inner = match_within(parser, *inner);
    status = insert_filter(&of_inner, of_inner.pipeline->count, filter, error);
    return status ? status : match_settle(&of_inner, error);
}

/* Moves the filter from before stage *at as far to the front as it can. *whole becomes false if the
 * filter was changed or a part of it stayed. */
static truce_status match_move(struct stage_parser *parser, uint32_t *at, bson_t *filter,
                               bool *whole, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool goes = true;

    for (uint32_t passed = 0; !status && goes && *at && passed < STAGES_PASSED_MAX; passed++) {
        bson_t rest = BSON_INITIALIZER;
        const struct stage *stage;

        stage = &parser->pipeline->stages[*at - 1];
        goes = go_ahead(stage, filter, &rest);
        if (goes && stage->kind->takes) {
            rename_fields(stage, filter);
            *whole = false;
        }
        if (goes && stage->kind->inner)
            status = filter_inner(parser, stage, filter, error);
        if (goes && !bson_empty(&rest)) {
            status = insert_filter(parser, *at, &rest, error);
            *whole = false;
        }
        if (goes)
            --*at;
        bson_destroy(&rest);
    }
    return status;
}

/* Moves the last stage, a filter that was just read, forward, and joins it with other filters. */
static truce_status match_settle(struct stage_parser *parser, bson_error_t *error)
{
    struct pipeline *pipeline = parser->pipeline;
    uint32_t at = pipeline->count - 1;
    bool whole = true;
    truce_status status;
    struct stage own;
    bson_t filter;

    if (!at)
        return TRUCE_OK;
    bson_copy_to(truce__stage_filter(&pipeline->stages[at]), &filter);
    own = truce__stage_take(parser, at);
    status = match_move(parser, &at, &filter, &whole, error);
    while (at < pipeline->count && is_joined(parser, &pipeline->stages[at]))
        at++; /* The new filter stays after the filters that it is joined with. */
    if (whole)
        truce__stage_insert(parser, at, own.kind, own.data);
    else
        match_free(own.data);
    if (!status && !whole)
        status = insert_filter(parser, at, &filter, error);
    bson_destroy(&filter);
    return status;
}

truce_status truce__stage_match(struct stage_parser *parser, struct value argument,
                                bson_error_t *error)
{
    bson_t filter;
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__stage_refuse(15959, argument, "$match must be a document", error);
    truce__value_bson(argument, &filter);
    status = insert_filter(parser, parser->pipeline->count, &filter, error);
    return status ? status : match_settle(parser, error);
}

/* ---- adjacent filters ----------------------------------------------------------------------- */

/* Returns the number of stages from number `at` on that are joined. */
static uint32_t count_joined(const struct stage_parser *parser, uint32_t at)
{
    uint32_t end = at;

    while (end < parser->pipeline->count && is_joined(parser, &parser->pipeline->stages[end]))
        end++;
    return end - at;
}

/* Replaces the stages from number `at` on, which are `joined` filters, by one filter that has all
 * of them in $and. */
static truce_status match_join(struct stage_parser *parser, uint32_t at, uint32_t joined,
                               bson_error_t *error)
{
    bson_t filters = BSON_INITIALIZER, filter = BSON_INITIALIZER;
    struct array list = {.to = &filters};
    truce_status status;

    while (joined--) {
        struct stage stage = truce__stage_take(parser, at);

        truce__array_add_document(&list, truce__stage_filter(&stage));
        match_free(stage.data);
    }
    append_and(&filter, &filters);
    status = insert_filter(parser, at, &filter, error);
    bson_destroy(&filters);
    bson_destroy(&filter);
    return status;
}

static truce_status join_inner(const struct stage_parser *parser, const struct stage *stage,
                               bson_error_t *error)
{
    struct pipeline **inner = stage->kind->inner ? stage->kind->inner(stage->data) : NULL;
    struct stage_parser of_inner;

    if (!inner || !*inner)
        return TRUCE_OK;
    of_inner = match_within(parser, *inner);
    return truce__stages_join_filters(&of_inner, error);
}

truce_status truce__stages_join_filters(struct stage_parser *parser, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t at = 0; !status && at < parser->pipeline->count; at++) {
        uint32_t joined = count_joined(parser, at);

        status = join_inner(parser, &parser->pipeline->stages[at], error);
        if (status)
            break;

        if (joined > 1)
            status = match_join(parser, at, joined, error);
    }
    return status;
}
