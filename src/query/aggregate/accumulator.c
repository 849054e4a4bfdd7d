/*
 * Lists of accumulators: parsing, and the walk over the list (accumulator_kinds.c and
 * accumulator_n.c have the kinds).
 *
 *     states of one group:  | state of the first | of the second | ...   (aligned, state_size)
 *
 * Putting a state away: a kind whose state is plain bytes is copied; the others tell what they hold
 * (each), and take it up again by adding it, or by `restore` where what is held is not what was added.
 * That works because each kind gives back what it holds in an order that makes the same state.
 */
#include "query/aggregate/accumulator.h"

#include "base/assert.h"
#include "base/limits.h"
#include "bson/number.h"
#include "query/aggregate/accumulator_kind.h"

#define STATE_ALIGN 16

/* ---- parsing -------------------------------------------------------------------------------- */

static const struct accumulator_kind *accumulator_find_kind(const char *name)
{
    static const struct accumulator_kind *const tables[] = {truce__accumulators_plain,
                                                            truce__accumulators_n};

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        for (const struct accumulator_kind *kind = tables[i]; kind->name; kind++) {
            if (!strcmp(kind->name, name))
                return kind;
        }
    }
    return NULL;
}

static truce_status parse_expression(struct accumulator *made, struct value argument,
                                     const char *const *variables, bson_error_t *error)
{
    truce_status status = truce__expression_new(argument, variables, &made->input, error);

    if (!status)
        made->is_constant = truce__expression_constant_value(made->input, &made->constant);
    return status;
}

static truce_status accumulator_parse_option(struct accumulator *made, const struct fields *at,
                                             const char *const *variables, bson_error_t *error)
{
    enum accumulator_form form = made->kind->form;
    const char *wanted = form == FORM_N ? "input" : "output";
    bson_t sort;

    if (!strcmp(at->key, wanted) && !made->input)
        return parse_expression(made, at->value, variables, error);
    if (!strcmp(at->key, "n") && form != FORM_TOP && !made->n)
        return truce__expression_new(at->value, variables, &made->n, error);
    if (!strcmp(at->key, "sortBy") && form != FORM_N && !made->sort.fields) {
        if (at->value.type != BSON_TYPE_DOCUMENT)
            return truce__refuse(10065, error, "%s: sortBy must be a document", made->kind->name);
        truce__value_bson(at->value, &sort);
        return truce__sort_parse(&sort, &made->sort, error);
    }
    return truce__refuse(form == FORM_N ? 5787901 : 5788002, error, "%s has no option '%s'",
                         made->kind->name, at->key);
}

static truce_status accumulator_parse_options(struct accumulator *made, struct value argument,
                                              const char *const *variables, bson_error_t *error)
{
    bool is_n = made->kind->form == FORM_N;
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(is_n ? 5787900 : 5788001, error, "%s must be a document",
                             made->kind->name);
    fields = truce__fields(argument);
    while (!status && truce__fields_next(&fields))
        status = accumulator_parse_option(made, &fields, variables, error);
    if (status)
        return status;
    if (!made->n && made->kind->form != FORM_TOP)
        return truce__refuse(is_n ? 5787906 : 5788003, error, "%s needs 'n'", made->kind->name);
    if (!made->input)
        return truce__refuse(is_n ? 5787907 : 5788004, error, "%s needs '%s'", made->kind->name,
                             is_n ? "input" : "output");
    if (!is_n && made->sort.count == 0)
        return truce__refuse(5788005, error, "%s needs 'sortBy'", made->kind->name);
    return TRUCE_OK;
}

static truce_status parse_argument(struct accumulator *made, struct value argument,
                                   const char *const *variables, bson_error_t *error)
{
    switch (made->kind->form) {
    case FORM_EXPRESSION:
        return parse_expression(made, argument, variables, error);
    case FORM_NOTHING:
        if (argument.type != BSON_TYPE_DOCUMENT || argument.data[4] != 0)
            return truce__refuse(CODE_TYPE_MISMATCH, error, "%s takes no arguments: {%s: {}}",
                                 made->kind->name, made->kind->name);
        return TRUCE_OK;
    default:
        return accumulator_parse_options(made, argument, variables, error);
    }
}

static truce_status accumulator_check_field(const char *name, size_t length,
                                            struct value specification, struct fields *operator,
                                            bson_error_t * error)
{
    struct fields rest;

    if (memchr(name, '.', length))
        return truce__refuse(40235, error, "the field '%s' of a group must not have a dot", name);
    if (name[0] == '$')
        return truce__refuse(40236, error, "the field '%s' of a group must not begin with '$'",
                             name);
    if (specification.type == BSON_TYPE_DOCUMENT) {
        *operator= truce__fields(specification);
        if (truce__fields_next(operator) && operator->key[0] == '$') {
            rest = *operator;
            if (truce__fields_next(&rest))
                return truce__refuse(40238, error, "the field '%s' must have one accumulator",
                                     name);
            return TRUCE_OK;
        }
    }
    return truce__refuse(40234, error, "the field '%s' must be an accumulator, as {$sum: 1}", name);
}

static void accumulator_release_one(struct accumulator *accumulator)
{
    truce__expression_free(accumulator->input);
    truce__expression_free(accumulator->n);
    truce__sort_release(&accumulator->sort);
    bson_free(accumulator->name);
}

truce_status truce__accumulators_add_field(struct accumulators *list, const char *name,
                                           size_t length, struct value specification,
                                           const char *const *variables, bson_error_t *error)
{
    struct accumulator made = {0};
    struct fields operator;
    truce_status status = accumulator_check_field(name, length, specification, &operator, error);

    if (status)
        return status;
    if (operator.value.type == BSON_TYPE_ARRAY)
        return truce__refuse(40237, error, "the accumulator %s takes one operand", operator.key);
    made.kind = accumulator_find_kind(operator.key);
    if (!made.kind)
        return truce__refuse(15952, error, "there is no accumulator '%s'", operator.key);
    status = parse_argument(&made, operator.value, variables, error);
    if (status) {
        accumulator_release_one(&made);
        return status;
    }
    made.name = bson_strndup(name, length);
    made.name_length = length;
    made.offset = list->state_size;
    list->state_size += (made.kind->state_size + STATE_ALIGN - 1) & ~(size_t)(STATE_ALIGN - 1);
    list->items = bson_realloc(list->items, (list->count + 1) * sizeof *list->items);
    list->items[list->count++] = made;
    return TRUCE_OK;
}

void truce__accumulators_release(struct accumulators *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        accumulator_release_one(&list->items[i]);
    bson_free(list->items);
    *list = (struct accumulators){0};
}

/* ---- one group ------------------------------------------------------------------------------ */

static truce_status evaluate_n(const struct accumulator *accumulator, struct value id,
                               struct query_context *context, int64_t *n, bson_error_t *error)
{
    static const uint8_t empty[] = {5, 0, 0, 0, 0};
    struct value root = id, result;
    truce_status status;

    *n = 1;
    if (!accumulator->n)
        return TRUCE_OK;
    if (id.type != BSON_TYPE_DOCUMENT)
        root = (struct value){empty, sizeof empty, BSON_TYPE_DOCUMENT};
    status = truce__expression_evaluate(accumulator->n, root, context->variables, context, &result,
                                        error);
    if (status)
        return status;
    if (!truce__value_is_number(result))
        return truce__refuse(5787902, error, "%s: n must be a whole number, it is %s",
                             accumulator->kind->name, truce__type_name(result.type));
    if (!truce__number_to_int64(result, n))
        return truce__refuse(5787903, error, "%s: n must be a whole number of 64 bits",
                             accumulator->kind->name);
    if (*n <= 0)
        return truce__refuse(5787908, error, "%s: n must be greater than 0, it is %" PRId64,
                             accumulator->kind->name, *n);
    return TRUCE_OK;
}

truce_status truce__accumulators_begin(const struct accumulators *list, void *states,
                                       struct value id, struct query_context *context,
                                       bson_error_t *error)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct accumulator *accumulator = &list->items[i];
        enum accumulator_form form = accumulator->kind->form;
        struct accumulator_n *head = (void *)((uint8_t *)states + accumulator->offset);
        truce_status status;

        if (form != FORM_N && form != FORM_TOP && form != FORM_TOP_N)
            continue;
        status = evaluate_n(accumulator, id, context, &head->n, error);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

static truce_status accumulator_evaluate_key(const struct accumulator *accumulator,
                                             struct value document, struct query_context *context,
                                             struct buffer *keys, struct value *key,
                                             bson_error_t *error)
{
    truce_status status;

    keys->size = 0;
    status = truce__sort_key(&accumulator->sort, document, keys, error);
    if (!status)
        *key = (struct value){truce__arena_copy(context->arena, keys->bytes, keys->size),
                              (uint32_t)keys->size, BSON_TYPE_BINARY};
    return status;
}

static inline truce_status accumulator_evaluate(const struct accumulator *accumulator,
                                                struct value document,
                                                struct query_context *context, struct buffer *keys,
                                                struct accumulator_input *input,
                                                bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *input = (struct accumulator_input){.value = accumulator->constant};
    if (accumulator->input && !accumulator->is_constant)
        status = truce__expression_evaluate(accumulator->input, document, context->variables,
                                            context, &input->value, error);
    if (!status && accumulator->sort.count)
        status = accumulator_evaluate_key(accumulator, document, context, keys, &input->key, error);
    return status;
}

static inline truce_status accumulator_add(const struct accumulator *accumulator, void *states,
                                           const struct accumulator_input *input,
                                           struct arena *arena, struct query_context *context,
                                           bson_error_t *error)
{
    struct accumulation run = {accumulator, arena, context, error};

    return accumulator->kind->add(&run, (uint8_t *)states + accumulator->offset, input);
}

truce_status truce__accumulators_evaluate(const struct accumulators *list, struct value document,
                                          struct query_context *context, struct buffer *keys,
                                          struct accumulator_input *inputs, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < list->count && !status; i++)
        status = accumulator_evaluate(&list->items[i], document, context, keys, &inputs[i], error);
    return status;
}

truce_status truce__accumulators_add(const struct accumulators *list, void *states,
                                     const struct accumulator_input *inputs, struct arena *arena,
                                     struct query_context *context, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < list->count && !status; i++)
        status = accumulator_add(&list->items[i], states, &inputs[i], arena, context, error);
    return status;
}

truce_status truce__accumulators_take(const struct accumulators *list, void *states,
                                      struct value document, struct arena *arena,
                                      struct query_context *context, struct buffer *keys,
                                      bson_error_t *error)
{
    struct accumulator_input input;
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < list->count && !status; i++) {
        status = accumulator_evaluate(&list->items[i], document, context, keys, &input, error);
        if (!status)
            status = accumulator_add(&list->items[i], states, &input, arena, context, error);
    }
    return status;
}

truce_status truce__accumulators_finish(const struct accumulators *list, const void *states,
                                        struct query_context *context, struct builder *builder,
                                        bson_error_t *error)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct accumulator *accumulator = &list->items[i];
        struct accumulation run = {accumulator, NULL, context, error};
        struct value result;
        truce_status status =
            accumulator->kind->finish(&run, (const uint8_t *)states + accumulator->offset, &result);

        if (status)
            return status;
        if (result.type == VALUE_MISSING)
            result = truce__value_null();
        truce__builder_append(builder, accumulator->name, accumulator->name_length, result);
    }
    return TRUCE_OK;
}

/* ---- putting away --------------------------------------------------------------------------- */

void truce__value_save(struct value value, struct buffer *bytes)
{
    truce__buffer_append_byte(bytes, value.type);
    truce__buffer_append(bytes, &value.size, sizeof value.size);
    truce__buffer_append(bytes, value.data, value.size);
}

struct value truce__value_load(const uint8_t **at)
{
    struct value value = {*at + 5, 0, (*at)[0]};

    memcpy(&value.size, *at + 1, sizeof value.size);
    *at += 5 + value.size;
    return value;
}

void truce__accumulators_save_inputs(const struct accumulators *list,
                                     const struct accumulator_input *inputs, struct buffer *bytes)
{
    for (uint32_t i = 0; i < list->count; i++) {
        truce__value_save(inputs[i].value, bytes);
        if (list->items[i].sort.count)
            truce__value_save(inputs[i].key, bytes);
    }
}

void truce__accumulators_load_inputs(const struct accumulators *list,
                                     struct accumulator_input *inputs, const uint8_t **at)
{
    for (uint32_t i = 0; i < list->count; i++) {
        inputs[i] = (struct accumulator_input){.value = truce__value_load(at)};
        if (list->items[i].sort.count)
            inputs[i].key = truce__value_load(at);
    }
}

struct saving {
    struct buffer *bytes;
    uint32_t count;
};

static void save_one(void *arg, struct accumulator_input input)
{
    struct saving *saving = arg;

    truce__value_save(input.value, saving->bytes);
    truce__value_save(input.key, saving->bytes);
    saving->count++;
}

void truce__accumulators_save(const struct accumulators *list, const void *states,
                              struct buffer *bytes)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct accumulator *accumulator = &list->items[i];
        const uint8_t *state = (const uint8_t *)states + accumulator->offset;
        struct saving saving = {bytes, 0};
        size_t start = bytes->size;

        if (!accumulator->kind->each) {
            truce__buffer_append(bytes, state, accumulator->kind->state_size);
            continue;
        }
        truce__buffer_append(bytes, &saving.count, sizeof saving.count);
        accumulator->kind->each(state, save_one, &saving);
        memcpy(bytes->bytes + start, &saving.count, sizeof saving.count);
    }
}

static truce_status load_one(struct accumulation *run, void *state, const uint8_t **at)
{
    const struct accumulator_kind *kind = run->accumulator->kind;
    uint32_t count;
    truce_status status = TRUCE_OK;

    if (!kind->each) {
        memcpy(state, *at, kind->state_size);
        *at += kind->state_size;
        return TRUCE_OK;
    }
    memcpy(&count, *at, sizeof count);
    *at += sizeof count;
    while (!status && count-- > 0) {
        struct accumulator_input input;

        input.value = truce__value_load(at);
        input.key = truce__value_load(at);
        status = kind->restore ? kind->restore(run, state, &input) : kind->add(run, state, &input);
    }
    return status;
}

truce_status truce__accumulators_load(const struct accumulators *list, void *states,
                                      const uint8_t **at, struct arena *arena,
                                      struct query_context *context, bson_error_t *error)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct accumulation run = {&list->items[i], arena, context, error};
        truce_status status = load_one(&run, (uint8_t *)states + list->items[i].offset, at);

        if (status)
            return status;
    }
    return TRUCE_OK;
}
