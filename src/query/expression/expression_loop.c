#include "base/assert.h"
#include "base/limits.h"
#include "query/expression/expression_growth.h"
#include "query/expression/expression_tree.h"

/*
 * Expressions that bind variables: $let, and the loops $map, $filter, and $reduce.
 *
 * A node's `slot` is the first of its variables; the others follow. The body is the last operand.
 *
 * $reduce makes a new value in each turn and needs only the last. A long reduction should take
 * memory only for its value. Once it has used COMPACT_BYTES, it therefore moves to an arena of its
 * own, and from then on between two such arenas:
 *
 *     turns ......... | value |  ->  | value | turns ......... | value |  ->  | value | ...
 *     caller's arena             scratch 0                                scratch 1
 *
 * The value may nest deeper with each turn; VALUE_DEPTH_MAX bounds later recursions.
 */

#define COMPACT_BYTES   ((size_t)1024 * 1024)
#define VALUE_DEPTH_MAX (2 * TRUCE_DOCUMENT_DEPTH_MAX)

static truce_status compile_body(struct expression_compiler *compiler, struct value source,
                                 struct expression_node **body)
{
    const struct expression_scope *outer = compiler->scope;
    truce_status status = truce__expression_compile(compiler, source, body);

    truce_assert(compiler->scope == outer);
    return status;
}

/* -- the arguments of loops, before they are compiled ------------------------------------------ */

static truce_status loop_read_arguments(struct expression_compiler *compiler,
                                        const struct expression_operator *operator,
                                        struct value argument, struct value *values)
{
    const struct expression_arguments *arguments = operator->arguments;
    struct fields fields;
    int count = 0;

    for (; arguments->list[count].name; count++)
        values[count] = truce__value_missing();
    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(arguments->not_document, compiler->error,
                             "%s takes a document of arguments", operator->name);
    fields = truce__fields(argument);
    while (truce__fields_next(&fields)) {
        int i = 0;
        while (i < count && strcmp(arguments->list[i].name, fields.key))
            i++;
        if (i == count)
            return truce__refuse(arguments->unknown, compiler->error,
                                 "%s does not take the argument \"%s\"", operator->name,
                                 fields.key);
        values[i] = fields.value;
    }
    for (int i = 0; i < count; i++) {
        if (values[i].type == VALUE_MISSING && arguments->list[i].missing)
            return truce__refuse(arguments->list[i].missing, compiler->error,
                                 "%s needs the argument \"%s\"", operator->name,
                                 arguments->list[i].name);
    }
    return TRUCE_OK;
}

/* -- $let ------------------------------------------------------------------------------------- */

static truce_status loop_evaluate_let(const struct expression_node *node, struct evaluation *run,
                                      struct value *result)
{
    uint32_t body = node->count - 1;

    for (uint32_t i = 0; i < body; i++) {
        truce_status status =
            truce__expression_run(node->operands[i], run, &run->slots[node->slot + i]);
        if (status)
            return status;
    }
    return truce__expression_run(node->operands[body], run, result);
}

static const struct expression_arguments let_arguments = {
    16874, 16875, {{"vars", 16876}, {"in", 16877}}};

static truce_status compile_let_variables(struct expression_compiler *compiler, struct value vars,
                                          struct expression_node *node)
{
    struct fields fields = truce__fields(vars);

    for (uint32_t i = 0; truce__fields_next(&fields); i++) {
        truce_status status =
            truce__expression_variable_check(fields.key, fields.key_length, compiler->error);
        if (!status)
            status = truce__expression_compile(compiler, fields.value, &node->operands[i]);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

static truce_status loop_compile_let(struct expression_compiler *compiler,
                                     const struct expression_operator *operator,
                                     struct value argument, struct expression_node **result)
{
    const struct expression_scope *outer = compiler->scope;
    struct value values[2];
    truce_status status = loop_read_arguments(compiler, operator, argument, values);
    struct expression_node *node;
    struct fields fields;
    uint32_t count;

    if (status)
        return status;
    if (!truce__value_is_container(values[0]))
        return truce__refuse(10065, compiler->error, "\"vars\" of $let must be a document");
    count = truce__array_count(values[0]);
    node = truce__expression_node(compiler, operator, count + 1);
    status = compile_let_variables(compiler, values[0], node);
    if (status)
        return status;
    node->slot = compiler->slots;
    fields = truce__fields(values[0]);
    while (truce__fields_next(&fields)) {
        struct expression_scope *scope = truce__arena_take(compiler->arena, sizeof *scope);
        truce__expression_scope_enter(compiler, scope, fields.key, fields.key_length);
    }
    status = compile_body(compiler, values[1], &node->operands[count]);
    compiler->scope = outer;
    *result = node;
    return status;
}

/* -- $map and $filter: operands are the input, the body, and $filter's limit ------------------- */

enum { LOOP_INPUT, LOOP_BODY, LOOP_LIMIT };

static truce_status evaluate_map(const struct expression_node *node, struct evaluation *run,
                                 struct value *result)
{
    struct value input;
    truce_status status = truce__expression_run(node->operands[LOOP_INPUT], run, &input);
    struct builder builder;
    struct fields fields;

    if (status)
        return status;
    if (truce__value_is_nullish(input)) {
        *result = truce__value_null();
        return TRUCE_OK;
    }
    if (input.type != BSON_TYPE_ARRAY)
        return truce__refuse(16883, run->error, "the input of $map must be an array, not %s",
                             truce__type_name(input.type));
    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    fields = truce__fields(input);
    while (!status && truce__fields_next(&fields)) {
        struct value item;
        run->slots[node->slot] = fields.value;
        status = truce__expression_run(node->operands[LOOP_BODY], run, &item);
        if (!status) {
            truce__builder_element(&builder, item);
            status = truce__evaluation_check(run);
        }
    }
    return status ? status : truce__builder_finish(&builder, result, run->error);
}

static truce_status loop_read_limit(const struct expression_node *node, struct evaluation *run,
                                    int32_t *limit)
{
    struct value value;
    truce_status status = truce__expression_run(node->operands[LOOP_LIMIT], run, &value);

    *limit = INT32_MAX;
    if (status || truce__value_is_nullish(value))
        return status;
    if (!truce__value_to_int32(value, limit))
        return truce__refuse(327391, run->error, "the limit of $filter must be a 32-bit integer");
    if (*limit < 1)
        return truce__refuse(327392, run->error, "the limit of $filter must be positive, not %d",
                             *limit);
    return TRUCE_OK;
}

static truce_status filter_items(const struct expression_node *node, struct evaluation *run,
                                 struct value input, int32_t limit, struct value *result)
{
    struct fields fields = truce__fields(input);
    truce_status status = TRUCE_OK;
    struct builder builder;

    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    while (!status && limit > 0 && truce__fields_next(&fields)) {
        struct value condition;
        run->slots[node->slot] = fields.value;
        status = truce__expression_run(node->operands[LOOP_BODY], run, &condition);
        if (!status && truce__value_truth(condition)) {
            truce__builder_element(&builder, fields.value);
            limit--;
        }
        if (!status)
            status = truce__evaluation_check(run);
    }
    return status ? status : truce__builder_finish(&builder, result, run->error);
}

static truce_status evaluate_filter(const struct expression_node *node, struct evaluation *run,
                                    struct value *result)
{
    struct value input;
    int32_t limit;
    truce_status status = truce__expression_run(node->operands[LOOP_INPUT], run, &input);

    if (status)
        return status;
    if (truce__value_is_nullish(input)) {
        *result = truce__value_null();
        return TRUCE_OK;
    }
    if (input.type != BSON_TYPE_ARRAY)
        return truce__refuse(28651, run->error, "the input of $filter must be an array, not %s",
                             truce__type_name(input.type));
    status = loop_read_limit(node, run, &limit);
    return status ? status : filter_items(node, run, input, limit, result);
}

static const struct expression_arguments map_arguments = {
    16878, 16879, {{"input", 16880}, {"in", 16882}, {"as", 0}}};
static const struct expression_arguments filter_arguments = {
    28646, 28647, {{"input", 28648}, {"cond", 28650}, {"as", 0}, {"limit", 0}}};

/* Returns the name of the variable: that of `as`, or "this". */
static truce_status loop_variable(struct expression_compiler *compiler, struct value as,
                                  const char **name, size_t *length)
{
    uint32_t text_length = 0;

    *name = "this";
    *length = 4;
    if (as.type == VALUE_MISSING)
        return TRUCE_OK;
    *name = as.type == BSON_TYPE_UTF8 ? truce__value_text(as, &text_length) : "";
    *length = text_length;
    return truce__expression_variable_check(*name, *length, compiler->error);
}

static truce_status compile_loop(struct expression_compiler *compiler,
                                 const struct expression_operator *operator, struct value argument,
                                 struct expression_node **result)
{
    struct expression_node *node = truce__expression_node(compiler, operator, 3);
    struct value values[4] = {{0}};
    struct expression_scope scope;
    const char *name;
    size_t length;
    truce_status status = loop_read_arguments(compiler, operator, argument, values);

    if (!status)
        status = truce__expression_compile(compiler, values[0], &node->operands[LOOP_INPUT]);
    if (!status && values[3].type != VALUE_MISSING)
        status = truce__expression_compile(compiler, values[3], &node->operands[LOOP_LIMIT]);
    if (!status)
        status = loop_variable(compiler, values[2], &name, &length);
    if (status)
        return status;
    truce__expression_scope_enter(compiler, &scope, name, length);
    node->slot = scope.slot;
    status = compile_body(compiler, values[1], &node->operands[LOOP_BODY]);
    compiler->scope = scope.outer;
    *result = node;
    return status;
}

/* -- $reduce ---------------------------------------------------------------------------------- */

enum { REDUCE_INPUT, REDUCE_INITIAL, REDUCE_BODY };

struct reduction {
    /* its arena is the caller's, or one of `scratch` */
    struct evaluation run;
    struct arena *callers;
    struct arena scratch[2];
    /* the number of the scratch arena that is used next */
    int next;
    /* the bytes of the arena when the reduction began to use it */
    size_t base;
    struct growth growth;
    /* the body only extends the value (expression_growth.h) */
    bool grows;
};

static void loop_compact(struct reduction *reduction, struct value *value)
{
    struct arena *to = &reduction->scratch[reduction->next];
    struct arena *from = reduction->run.arena;

    truce_assert(to != from);
    if (!reduction->growth.begun)
        *value = truce__value_copy(to, *value);
    if (from == reduction->callers)
        reduction->run.bytes_max -= BSON_MIN(reduction->run.bytes_max, from->bytes);
    else
        truce__arena_release(from);
    reduction->run.arena = to;
    /* it may have been in `from` */
    reduction->run.list = (struct evaluation_list){NULL};
    reduction->run.among = (struct evaluation_among){NULL};
    reduction->base = to->bytes;
    reduction->next = !reduction->next;
}

static bool is_deeper(struct value value, int levels)
{
    struct fields fields;

    if (!truce__value_is_container(value))
        return false;
    if (levels == 0)
        return true;
    fields = truce__fields(value);
    while (truce__fields_next(&fields)) {
        if (is_deeper(fields.value, levels - 1))
            return true;
    }
    return false;
}

static truce_status reduce_turn(const struct expression_node *node, struct reduction *reduction,
                                struct value item, struct value *value)
{
    struct evaluation *run = &reduction->run;
    struct value before = *value;
    truce_status status;

    run->slots[node->slot] = item;
    run->slots[node->slot + 1] = before;
    if (reduction->grows)
        status = truce__growth_turn(&reduction->growth, node->operands[REDUCE_BODY], run, value);
    else
        status = truce__expression_run(node->operands[REDUCE_BODY], run, value);
    if (!status)
        status = truce__evaluation_check(run);
    if (status)
        return status;
    if (value->data != before.data && !reduction->growth.begun &&
        is_deeper(*value, VALUE_DEPTH_MAX))
        return truce__refuse(CODE_OVERFLOW, run->error,
                             "the value of $reduce is nested deeper than %d levels",
                             VALUE_DEPTH_MAX);
    if (run->arena->bytes - reduction->base > COMPACT_BYTES + 2 * (size_t)value->size)
        loop_compact(reduction, value);
    return TRUCE_OK;
}

static truce_status reduce_items(const struct expression_node *node, struct evaluation *run,
                                 struct value input, struct value *value)
{
    struct reduction reduction = {.run = *run,
                                  .callers = run->arena,
                                  .base = run->arena->bytes,
                                  .grows = node->extra != NULL};
    struct fields fields = truce__fields(input);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields))
        status = reduce_turn(node, &reduction, fields.value, value);
    if (!status)
        status = truce__growth_end(&reduction.growth, &reduction.run, value);
    if (!status && (reduction.run.arena != run->arena || reduction.growth.begun) && value->size) {
        void *copy = truce__evaluation_take(run, value->size);
        if (copy)
            value->data = memcpy(copy, value->data, value->size);
        else
            status = TRUCE_LIMIT;
    }
    truce__arena_release(&reduction.scratch[0]);
    truce__arena_release(&reduction.scratch[1]);
    truce__growth_release(&reduction.growth);
    return status;
}

static truce_status evaluate_reduce(const struct expression_node *node, struct evaluation *run,
                                    struct value *result)
{
    struct value input;
    truce_status status = truce__expression_run(node->operands[REDUCE_INPUT], run, &input);

    if (status)
        return status;
    if (truce__value_is_nullish(input)) {
        *result = truce__value_null();
        return TRUCE_OK;
    }
    if (input.type != BSON_TYPE_ARRAY)
        return truce__refuse(40080, run->error, "the input of $reduce must be an array, not %s",
                             truce__type_name(input.type));
    status = truce__expression_run(node->operands[REDUCE_INITIAL], run, result);
    return status ? status : reduce_items(node, run, input, result);
}

static const struct expression_arguments reduce_arguments = {
    40075, 40076, {{"input", 40077}, {"initialValue", 40078}, {"in", 40079}}};

static truce_status compile_reduce(struct expression_compiler *compiler,
                                   const struct expression_operator *operator,
                                   struct value argument, struct expression_node **result)
{
    struct expression_node *node = truce__expression_node(compiler, operator, 3);
    struct value values[3];
    struct expression_scope item, value;
    truce_status status = loop_read_arguments(compiler, operator, argument, values);

    if (!status)
        status = truce__expression_compile(compiler, values[0], &node->operands[REDUCE_INPUT]);
    if (!status)
        status = truce__expression_compile(compiler, values[1], &node->operands[REDUCE_INITIAL]);
    if (status)
        return status;
    truce__expression_scope_enter(compiler, &item, "this", 4);
    truce__expression_scope_enter(compiler, &value, "value", 5);
    truce_assert(value.slot == item.slot + 1);
    node->slot = item.slot;
    status = compile_body(compiler, values[2], &node->operands[REDUCE_BODY]);
    if (!status && truce__growth_possible(node->operands[REDUCE_BODY], value.slot))
        node->extra = node->operands[REDUCE_BODY];
    compiler->scope = item.outer;
    *result = node;
    return status;
}

const struct expression_operator truce__expressions_loop[] = {
    {"$let", .evaluate = loop_evaluate_let, .compile = loop_compile_let,
     .arguments = &let_arguments},
    {"$map", .evaluate = evaluate_map, .compile = compile_loop, .arguments = &map_arguments},
    {"$filter", .evaluate = evaluate_filter, .compile = compile_loop,
     .arguments = &filter_arguments},
    {"$reduce", .evaluate = evaluate_reduce, .compile = compile_reduce,
     .arguments = &reduce_arguments},
    {NULL},
};
