/*
 * Expressions that bind variables: $let, and the loops $map, $filter, and $reduce.
 *
 * A node's `slot` is the first of its variables; the others follow. The body is the last operand.
 *
 * $reduce makes a new value in each step and needs only the last. A long reduction should take
 * memory only for its value. Once it has used COMPACT_BYTES, it therefore moves to an arena of its
 * own, and from then on between two such arenas:
 *
 *     steps ......... | value |  ->  | value | steps ......... | value |  ->  | value | ...
 *     caller's arena             scratch 0                                scratch 1
 *
 * The value may nest deeper with each step; VALUE_DEPTH_MAX bounds later recursions.
 */
#include "base/assert.h"
#include "base/buffer.h"
#include "base/limits.h"
#include "bson/field_path.h"
#include "bson/refuse_value.h"
#include "query/expression/expression_tree.h"

/* ---- a $reduce that appends ------------------------------------------------------------------ */

/*
 * Appends to the array, string, or document that a $reduce makes longer in each step:
 *
 *     in: {$concatArrays: ["$$value", ["$$this"]]}
 *     in: {$cond: [..., {$concatArrays: ["$$value", ["$$this"]]}, "$$value"]}
 *     in: {$concat: ["$$value", ", ", "$$this"]}
 *     in: {$mergeObjects: ["$$value", "$$this"]}
 *
 * New content is appended in place, so that n steps cost O(n) and not O(n * n). A document is a
 * table of its fields until the last step has ended. No other part of the body may read it before
 * that.
 */

struct growth {
    struct arena arena;
    /* The builder of an array. */
    struct builder builder;
    /* The buffer of a string, in the form of a BSON value. */
    struct buffer text;
    /* The fields of a document. Keys and values are in the arena. */
    struct field_table table;
    /* The bytes of the current values of the document's fields. */
    size_t live;
    /* The first step has ended: one of the members above contains the value. */
    bool begun;
};

#define GROWTH_COMPACT_BYTES (1024 * 1024)
#define BYTES_OF_STEP        64

/* -- compiling -------------------------------------------------------------------------------- */

static bool growth_is_operator(const struct expression_node *node, const char *name)
{
    return node->operator&& !strcmp(node->operator->name, name);
}

/* Returns whether the node reads the variable in the slot. Each slot is assigned to one
 * variable. */
static bool growth_reads(const struct expression_node *node, uint32_t slot)
{
    if (!node || truce__expression_is_constant_node(node))
        return false;
    if (node->slot == slot)
        return true;
    for (uint32_t i = 0; i < node->count; i++) {
        if (growth_reads(node->operands[i], slot))
            return true;
    }
    return false;
}

/* Returns whether the node may be evaluated while the variable is not readable. */
static bool may_run(const struct expression_node *node, uint32_t slot, bool hidden)
{
    return !hidden || !growth_reads(node, slot);
}

/* Returns whether the body only extends the variable. With `hidden`, the variable must not be
 * read. */
static bool growth_body_extends(const struct expression_node *body, uint32_t slot, const char *name,
                                bool hidden)
{
    if (truce__expression_is_variable(body, slot))
        return true;
    if (growth_is_operator(body, "$cond"))
        return may_run(body->operands[0], slot, hidden) &&
               growth_body_extends(body->operands[1], slot, name, hidden) &&
               growth_body_extends(body->operands[2], slot, name, hidden);
    if (!growth_is_operator(body, name) || body->count < 2 ||
        !truce__expression_is_variable(body->operands[0], slot))
        return false;
    for (uint32_t i = 1; i < body->count; i++) {
        if (growth_reads(body->operands[i], slot))
            return false;
    }
    return true;
}

/* Returns whether the body does nothing else with the variable in `slot`. */
static bool growth_possible(const struct expression_node *body, uint32_t slot)
{
    if (!body->operator)
        return false;
    return growth_body_extends(body, slot, "$concatArrays", false) ||
           growth_body_extends(body, slot, "$concat", false) ||
           growth_body_extends(body, slot, "$mergeObjects", true);
}

/* -- evaluating ------------------------------------------------------------------------------- */

static void growth_release(struct growth *growth)
{
    truce__arena_release(&growth->arena);
    truce__buffer_release(&growth->text);
    *growth = (struct growth){0};
}

/* -- arrays ----------------------------------------------------------------------------------- */

static truce_status growth_append_all(struct growth *growth, struct evaluation *run,
                                      struct value array)
{
    struct fields fields = truce__fields(array);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        truce__builder_element(&growth->builder, fields.value);
        status = truce__evaluation_check(run);
    }
    return status;
}

static truce_status growth_begin(struct growth *growth, struct evaluation *run, struct value value)
{
    growth_release(growth);
    truce__builder_begin(&growth->builder, &growth->arena, TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_ARRAY);
    growth->begun = true;
    return growth_append_all(growth, run, value);
}

/* Returns the array with the elements so far. The next append overwrites its last byte. */
static truce_status growth_show(struct growth *growth, struct evaluation *run, struct value *value)
{
    truce_status status = truce__builder_finish(&growth->builder, value, run->error);

    growth->builder.size--;
    /* The lists cached by address belong to the shorter array. */
    run->list = (struct evaluation_list){NULL};
    run->among = (struct evaluation_among){NULL};
    return status;
}

/* Appends the operands of a $concatArrays to the array that grows. */
static truce_status growth_append_arrays(struct growth *growth, const struct expression_node *node,
                                         struct evaluation *run, struct value *value)
{
    truce_status status = TRUCE_OK;

    if (!growth->begun)
        status = growth_begin(growth, run, *value);
    for (uint32_t i = 1; !status && i < node->count; i++) {
        struct value array;

        status = truce__expression_run(node->operands[i], run, &array);
        if (status)
            break;
        if (truce__value_is_nullish(array)) {
            growth->begun = false;
            return truce__evaluation_null(value);
        }
        if (array.type != BSON_TYPE_ARRAY)
            return truce__refuse(28664, run->error, "$concatArrays takes arrays, not %s",
                                 truce__type_name(array.type));
        status = growth_append_all(growth, run, array);
    }
    return status ? status : growth_show(growth, run, value);
}

/* -- texts ------------------------------------------------------------------------------------ */

/* Returns the string so far. The next append overwrites its NUL. */
static void show_text(struct growth *growth, struct value *value)
{
    uint32_t length = BSON_UINT32_TO_LE((uint32_t)(growth->text.size - 4 + 1));

    truce__buffer_append_byte(&growth->text, 0);
    memcpy(growth->text.bytes, &length, sizeof length);
    *value = (struct value){growth->text.bytes, (uint32_t)growth->text.size, BSON_TYPE_UTF8};
    growth->text.size--;
}

static truce_status growth_append_string(struct growth *growth, struct evaluation *run,
                                         struct value text)
{
    truce__buffer_append(&growth->text, text.data + 4, text.size - 5);
    if (growth->text.size > TRUCE_STAGE_MEMORY_MAX)
        return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, run->error,
                             "an expression's result takes more than %d bytes of memory",
                             TRUCE_STAGE_MEMORY_MAX);
    return truce__evaluation_spend(run, 1 + text.size / BYTES_OF_STEP);
}

/* Appends the operands of a $concat to the string that grows. */
static truce_status concatenate_text(struct growth *growth, const struct expression_node *node,
                                     struct evaluation *run, struct value *value)
{
    truce_status status = TRUCE_OK;

    if (!growth->begun) {
        growth_release(growth);
        truce__buffer_append(&growth->text, value->data, 4);
        growth->begun = true;
        status = growth_append_string(growth, run, *value);
    }
    for (uint32_t i = 1; !status && i < node->count; i++) {
        struct value text;

        status = truce__expression_run(node->operands[i], run, &text);
        if (status)
            break;
        if (truce__value_is_nullish(text)) {
            growth->begun = false;
            return truce__evaluation_null(value);
        }
        if (text.type != BSON_TYPE_UTF8)
            return truce__refuse(16702, run->error, "$concat takes strings, not %s",
                                 truce__type_name(text.type));
        status = growth_append_string(growth, run, text);
    }
    if (!status)
        show_text(growth, value);
    return status;
}

/* -- documents -------------------------------------------------------------------------------- */

static truce_status growth_out_of_memory(struct evaluation *run)
{
    return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, run->error,
                         "evaluating an expression takes more than %d bytes of memory",
                         TRUCE_STAGE_MEMORY_MAX);
}

/* Copies the value, and the name if it is new. */
static bool set_field(struct growth *growth, const char *name, uint32_t length, struct value value)
{
    struct field_entry *entry = truce__field_table_find(&growth->table, name, length);

    value = truce__value_copy(&growth->arena, value);
    if (entry) {
        growth->live += value.size;
        growth->live -= entry->value.size;
        entry->value = value;
        return growth->arena.bytes <= TRUCE_STAGE_MEMORY_MAX;
    }
    growth->live += length + value.size;
    return truce__field_table_set(&growth->table, truce__arena_copy(&growth->arena, name, length),
                                  length, value);
}

/* Copies the current values to new memory, without those that were replaced. */
static bool growth_compact(struct growth *growth)
{
    struct growth smaller = {.begun = true};
    bool fits = true;

    truce__field_table_begin(&smaller.table, &smaller.arena, TRUCE_STAGE_MEMORY_MAX);
    for (uint32_t i = 0; i < growth->table.count && fits; i++) {
        const struct field_entry *entry = &growth->table.entries[i];

        fits = set_field(&smaller, entry->key, entry->key_length, entry->value);
    }
    growth_release(growth);
    *growth = smaller;
    growth->table.arena = &growth->arena;
    return fits;
}

/* Sets the fields of one document in the table. Null and missing values change nothing. */
static truce_status growth_merge(struct growth *growth, struct evaluation *run,
                                 struct value document)
{
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (truce__value_is_nullish(document))
        return TRUCE_OK;
    if (document.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(40400, run->error, "$mergeObjects takes documents, not %s",
                             truce__type_name(document.type));
    fields = truce__fields(document);
    while (!status && truce__fields_next(&fields)) {
        if (!set_field(growth, fields.key, fields.key_length, fields.value))
            return growth_out_of_memory(run);
        status = truce__evaluation_spend(run, 1 + fields.value.size / BYTES_OF_STEP);
    }
    return status;
}

/* Merges the operands of a $mergeObjects into the document that grows. Copies its fields to new
 * memory when most of the old memory is unused. */
static truce_status merge_all(struct growth *growth, const struct expression_node *node,
                              struct evaluation *run, struct value *value)
{
    size_t table = growth->table.room * (2 * sizeof *growth->table.entries);
    truce_status status = TRUCE_OK;

    if (!growth->begun) {
        growth_release(growth);
        truce__field_table_begin(&growth->table, &growth->arena, TRUCE_STAGE_MEMORY_MAX);
        growth->begun = true;
        status = growth_merge(growth, run, *value);
        *value = truce__value_null();
    }
    if (growth->arena.bytes > GROWTH_COMPACT_BYTES + 2 * (growth->live + table) &&
        !growth_compact(growth))
        return growth_out_of_memory(run);
    for (uint32_t i = 1; !status && i < node->count; i++) {
        struct value document;

        status = truce__expression_run(node->operands[i], run, &document);
        if (!status)
            status = growth_merge(growth, run, document);
    }
    return status;
}

/* Returns the value after the last step. It lives as long as the growth. */
static truce_status growth_end(struct growth *growth, struct evaluation *run, struct value *value)
{
    struct builder builder;

    if (!growth->begun || !growth->table.arena)
        return TRUCE_OK;
    truce__builder_begin(&builder, &growth->arena,
                         growth->arena.bytes + 2 * (size_t)TRUCE_STAGE_MEMORY_MAX,
                         BSON_TYPE_DOCUMENT);
    truce__field_table_write(&growth->table, &builder);
    return truce__builder_finish(&builder, value, run->error);
}

/* -- a step ----------------------------------------------------------------------------------- */

/* Runs one step: *value is the content of the variable and becomes the body's result. The old
 * content is no longer valid. */
static truce_status growth_step(struct growth *growth, const struct expression_node *body,
                                struct evaluation *run, struct value *value)
{
    while (growth_is_operator(body, "$cond")) {
        struct value condition;
        truce_status status = truce__expression_run(body->operands[0], run, &condition);

        if (status)
            return status;
        body = body->operands[truce__value_truth(condition) ? 1 : 2];
    }
    if (!body->operator)
        return TRUCE_OK; /* A body that is only the variable changes nothing. */
    if (growth_is_operator(body, "$mergeObjects") &&
        (growth->begun || value->type == BSON_TYPE_DOCUMENT || truce__value_is_nullish(*value)))
        return merge_all(growth, body, run, value);
    if (growth_is_operator(body, "$concat") && value->type == BSON_TYPE_UTF8)
        return concatenate_text(growth, body, run, value);
    if (growth_is_operator(body, "$concatArrays") && value->type == BSON_TYPE_ARRAY)
        return growth_append_arrays(growth, body, run, value);
    return truce__expression_run(body, run, value);
}

/* ---- loops -------------------------------------------------------------------------------- */

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

/* Reads the arguments of an operator by its table. An argument that is not given is missing. */
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
        return truce__refuse_value(arguments->not_document, argument, compiler->error,
                                   "%s takes a document of arguments", operator->name);
    fields = truce__fields(argument);
    while (truce__fields_next(&fields)) {
        int i = 0;
        while (i < count && strcmp(arguments->list[i].name, fields.key))
            i++;
        if (i == count)
            return truce__expression_unknown_argument(operator, fields.key, compiler->error);
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

/* Compiles a $let: its variables are visible in the body only, not in each other. */
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
        return truce__refuse_value(10065, values[0], compiler->error,
                                   "\"vars\" of $let must be a document");
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

/* Evaluates $map: the body for each element. A missing result becomes null. */
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

/* Evaluates the limit of a $filter, a positive int32. Without one, it is INT32_MAX. */
static truce_status loop_read_limit(const struct expression_node *node, struct evaluation *run,
                                    int32_t *limit)
{
    struct value value;
    truce_status status = truce__expression_run(node->operands[LOOP_LIMIT], run, &value);

    *limit = INT32_MAX;
    if (status || truce__value_is_nullish(value))
        return status;
    if (!truce__value_to_int32(value, limit))
        return truce__refuse_value(327391, value, run->error,
                                   "the limit of $filter must be a 32-bit integer");
    if (*limit < 1)
        return truce__refuse(327392, run->error, "the limit of $filter must be positive, not %d",
                             *limit);
    return TRUCE_OK;
}

/* Evaluates the condition of a $filter for each element, up to the limit. */
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

/* Evaluates $filter. */
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

/* Compiles $map or $filter, whose variable is visible in the body only. */
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
    /* The evaluation of the body. Its arena is the caller's, or one of `scratch`. */
    struct evaluation run;
    struct arena *callers;
    struct arena scratch[2];
    /* The index of the scratch arena that is used next. */
    int next;
    /* The bytes of the arena when the reduction began to use it. */
    size_t base;
    struct growth growth;
    /* The body only extends the value (struct growth). */
    bool grows;
};

/* Moves the value to the other scratch arena, and frees the arena of the steps unless it is the
 * caller's. */
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
    /* The cached list may point into the arena `from`. */
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

/* Evaluates the body of a $reduce for one element. Checks the nesting of the value, and compacts
 * the memory when most of it is unused. */
static truce_status reduce_step(const struct expression_node *node, struct reduction *reduction,
                                struct value item, struct value *value)
{
    struct evaluation *run = &reduction->run;
    struct value before = *value;
    truce_status status;

    run->slots[node->slot] = item;
    run->slots[node->slot + 1] = before;
    if (reduction->grows)
        status = growth_step(&reduction->growth, node->operands[REDUCE_BODY], run, value);
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

/* Evaluates a $reduce over all elements, and copies the result into the arena of the caller. */
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
        status = reduce_step(node, &reduction, fields.value, value);
    if (!status)
        status = growth_end(&reduction.growth, &reduction.run, value);
    if (!status && (reduction.run.arena != run->arena || reduction.growth.begun) && value->size) {
        void *copy = truce__evaluation_take(run, value->size);
        if (copy)
            value->data = memcpy(copy, value->data, value->size);
        else
            status = TRUCE_LIMIT;
    }
    truce__arena_release(&reduction.scratch[0]);
    truce__arena_release(&reduction.scratch[1]);
    growth_release(&reduction.growth);
    return status;
}

/* Evaluates $reduce. */
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

/* Compiles a $reduce, and finds out whether its body only extends the value. */
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
    if (!status && growth_possible(node->operands[REDUCE_BODY], value.slot))
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
