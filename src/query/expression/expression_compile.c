#include "base/assert.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "bson/field_path.h"
#include "bson/refuse_value.h"
#include "query/expression/expression_tree.h"

/* Compiles BSON to a tree of nodes: literals, arrays and objects, operators with operands by
 * position or by name. Folds constants. */

#define BYTES_OF_STEP 1024
#define OWNED_GROWTH  4

/* -- evaluating ------------------------------------------------------------------------------- */

static truce_status evaluate_constant(const struct expression_node *node, struct evaluation *run,
                                      struct value *result)
{
    *result = node->value;
    return TRUCE_OK;
}

/* Evaluates all operands, and applies the operator to their values. */
static truce_status evaluate_operands(const struct expression_node *node, struct evaluation *run,
                                      struct value *result)
{
    struct value operands[EXPRESSION_OPERANDS_FIXED > EXPRESSION_NAMED_MAX
                              ? EXPRESSION_OPERANDS_FIXED
                              : EXPRESSION_NAMED_MAX];
    size_t bytes = 0;

    for (uint32_t i = 0; i < node->count; i++) {
        truce_status status = truce__expression_run(node->operands[i], run, &operands[i]);
        if (status)
            return status;
        bytes += operands[i].size;
    }
    /* Most operators read all of their operands, whatever else they do. */
    if (bytes >= BYTES_OF_STEP) {
        truce_status status = truce__evaluation_spend(run, bytes / BYTES_OF_STEP);
        if (status)
            return status;
    }
    return node->operator->apply(node, run, operands, result);
}

static truce_status evaluate_array(const struct expression_node *node, struct evaluation *run,
                                   struct value *result)
{
    struct builder builder;

    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    for (uint32_t i = 0; i < node->count; i++) {
        struct value item;
        truce_status status = truce__expression_run(node->operands[i], run, &item);
        if (status)
            return status;
        truce__builder_element(&builder, item);
    }
    return truce__builder_finish(&builder, result, run->error);
}

/* Evaluates an object literal. Fields with a missing value are left out. */
static truce_status evaluate_object(const struct expression_node *node, struct evaluation *run,
                                    struct value *result)
{
    const struct expression_key *keys = node->extra;
    struct builder builder;

    truce__evaluation_build(run, &builder, BSON_TYPE_DOCUMENT);
    for (uint32_t i = 0; i < node->count; i++) {
        struct value field;
        truce_status status = truce__expression_run(node->operands[i], run, &field);
        if (status)
            return status;
        truce__builder_append(&builder, keys[i].name, keys[i].length, field);
    }
    return truce__builder_finish(&builder, result, run->error);
}

/* -- nodes ------------------------------------------------------------------------------------ */

struct expression_node *truce__expression_node(struct expression_compiler *compiler,
                                               const struct expression_operator *operator,
                                               uint32_t operands)
{
    struct expression_node *node = truce__arena_take(compiler->arena, sizeof *node);

    *node = (struct expression_node){.operator= operator, .count = operands };
    if (operator) {
        node->evaluate = operator->evaluate ? operator->evaluate : evaluate_operands;
        node->extra = operator->extra;
    }
    node->operands = truce__arena_take(compiler->arena, (operands + 1) * sizeof *node->operands);
    memset(node->operands, 0, (operands + 1) * sizeof *node->operands);
    return node;
}

struct expression_node *truce__expression_constant(struct expression_compiler *compiler,
                                                   struct value value)
{
    struct expression_node *node = truce__expression_node(compiler, NULL, 0);

    node->evaluate = evaluate_constant;
    node->value = value;
    return node;
}

bool truce__expression_is_constant_node(const struct expression_node *node)
{
    return node->evaluate == evaluate_constant;
}

void truce__expression_own(struct expression_compiler *compiler, void *thing,
                           void (*release)(void *thing))
{
    struct expression_owned *owned = compiler->owned;

    if (owned->count == owned->room) {
        owned->room += OWNED_GROWTH + owned->room;
        owned->things = bson_realloc(owned->things, owned->room * sizeof *owned->things);
    }
    owned->things[owned->count++] = (struct expression_thing){thing, release};
}

/* -- literals --------------------------------------------------------------------------------- */

/* Returns whether the node is a constant with the same bytes as its source. */
static bool is_itself(const struct expression_node *node, struct value source)
{
    return truce__expression_is_constant_node(node) && truce__value_identical(node->value, source);
}

/* Compiles an array literal. If all elements are constants, the array itself is the constant. */
static truce_status compile_array(struct expression_compiler *compiler, struct value source,
                                  struct expression_node **result)
{
    struct expression_node *node =
        truce__expression_node(compiler, NULL, truce__array_count(source));
    struct fields fields = truce__fields(source);
    bool constant = true;

    for (uint32_t i = 0; truce__fields_next(&fields); i++) {
        truce_status status = truce__expression_compile(compiler, fields.value, &node->operands[i]);
        if (status)
            return status;
        constant = constant && is_itself(node->operands[i], fields.value);
    }
    node->evaluate = evaluate_array;
    *result = constant ? truce__expression_constant(compiler, source) : node;
    return TRUCE_OK;
}

/* Checks the name of a field of an object literal, and that it is not repeated. */
static truce_status check_object_key(const struct fields *fields, struct field_table *seen,
                                     bson_error_t *error)
{
    truce_status status = truce__expression_field_check(fields->key, fields->key_length, error);

    if (status)
        return status;
    if (memchr(fields->key, '.', fields->key_length))
        return truce__refuse(16412, error, "a field name in an object contains '.': \"%s\"",
                             fields->key);
    if (truce__field_table_find(seen, fields->key, fields->key_length))
        return truce__refuse(16406, error, "an object has the field \"%s\" twice", fields->key);
    if (!truce__field_table_set(seen, fields->key, fields->key_length, fields->value))
        return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, error, "an expression is too large");
    return TRUCE_OK;
}

/* Compiles an object literal. If all values are constants, the object itself is the constant. */
static truce_status compile_object(struct expression_compiler *compiler, struct value source,
                                   struct expression_node **result)
{
    uint32_t count = truce__array_count(source);
    struct expression_node *node = truce__expression_node(compiler, NULL, count);
    struct expression_key *keys = truce__arena_take(compiler->arena, (count + 1) * sizeof *keys);
    struct fields fields = truce__fields(source);
    struct field_table seen;
    bool constant = true;

    truce__field_table_begin(&seen, compiler->arena, SIZE_MAX);
    for (uint32_t i = 0; truce__fields_next(&fields); i++) {
        truce_status status = check_object_key(&fields, &seen, compiler->error);
        if (!status)
            status = truce__expression_compile(compiler, fields.value, &node->operands[i]);
        if (status)
            return status;
        keys[i] = (struct expression_key){fields.key, fields.key_length};
        constant = constant && is_itself(node->operands[i], fields.value);
    }
    node->evaluate = evaluate_object;
    node->extra = keys;
    *result = constant ? truce__expression_constant(compiler, source) : node;
    return TRUCE_OK;
}

/* -- operators -------------------------------------------------------------------------------- */

static const struct expression_operator *compile_find_operator(
    const struct expression_compiler *compiler, const char *name)
{
    for (const struct expression_operator *const *table = compiler->operators; *table; table++) {
        for (const struct expression_operator *one = *table; one->name; one++) {
            if (!strcmp(one->name, name))
                return one;
        }
    }
    return NULL;
}

/* Fails because an expression has an unknown operator. */
static truce_status compile_refuse_operator(const struct expression_compiler *compiler,
                                            const char *name)
{
    struct nearest_word nearest = {.word = name};
    char hint[NEAREST_WORD_HINT_MAX];

    for (const struct expression_operator *const *table = compiler->operators; *table; table++)
        for (const struct expression_operator *one = *table; one->name; one++)
            truce__nearest_word_offer(&nearest, one->name);
    return truce__refuse(CODE_INVALID_PIPELINE_OPERATOR, compiler->error,
                         "unknown expression operator \"%s\"%s", name,
                         truce__nearest_word_hint(&nearest, hint));
}

static truce_status wrong_count(const struct expression_operator *operator, uint32_t count,
                                bson_error_t *error)
{
    if (operator->operands_min == operator->operands_max)
        return truce__refuse(
            16020, error,
            "%s takes exactly %u operands, not %u", operator->name, operator->operands_min, count);
    return truce__refuse(operator->flags & EXPRESSION_RANGED ? 28667 : 16020, error,
                         "%s takes %u to %u operands, not %u",
                         operator->name, operator->operands_min, operator->operands_max, count);
}

/* Compiles operands by position. An argument that is not an array is the only operand. */
static truce_status compile_operands(struct expression_compiler *compiler,
                                     const struct expression_operator *operator,
                                     struct value argument, struct expression_node **result)
{
    bool list = argument.type == BSON_TYPE_ARRAY;
    uint32_t count = list ? truce__array_count(argument) : 1;
    struct expression_node *node;
    struct fields fields;

    if (count < operator->operands_min || count> operator->operands_max)
        return wrong_count(operator, count, compiler->error);
    truce_assert(!operator->apply || count <= EXPRESSION_OPERANDS_FIXED);
    node = truce__expression_node(compiler, operator, count);
    *result = node;
    if (!list)
        return truce__expression_compile(compiler, argument, &node->operands[0]);
    fields = truce__fields(argument);
    for (uint32_t i = 0; truce__fields_next(&fields); i++) {
        truce_status status = truce__expression_compile(compiler, fields.value, &node->operands[i]);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

static int find_argument(const struct expression_arguments *arguments, const char *name)
{
    for (int i = 0; i < EXPRESSION_NAMED_MAX && arguments->list[i].name; i++) {
        if (!strcmp(arguments->list[i].name, name))
            return i;
    }
    return -1;
}

truce_status truce__expression_unknown_argument(const struct expression_operator *operator,
                                                const char * name, bson_error_t *error)
{
    const struct expression_arguments *arguments = operator->arguments;
    char known[150] = "";

    for (int i = 0; i < EXPRESSION_NAMED_MAX && arguments->list[i].name; i++) {
        size_t used = strlen(known);

        (void)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                       arguments->list[i].name);
    }
    return truce__refuse(arguments->unknown, error,
                         "%s does not take the argument \"%s\": expected %s", operator->name, name,
                         known);
}

truce_status truce__expression_compile_named(struct expression_compiler *compiler,
                                             const struct expression_operator *operator,
                                             struct value argument, struct expression_node **result)
{
    const struct expression_arguments *arguments = operator->arguments;
    struct expression_node *node;
    struct fields fields;
    uint32_t count = 0;

    while (count < EXPRESSION_NAMED_MAX && arguments->list[count].name)
        count++;
    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse_value(arguments->not_document, argument, compiler->error,
                                   "%s takes a document of arguments", operator->name);
    node = truce__expression_node(compiler, operator, count);
    fields = truce__fields(argument);
    while (truce__fields_next(&fields)) {
        int i = find_argument(arguments, fields.key);
        truce_status status;
        if (i < 0)
            return truce__expression_unknown_argument(operator, fields.key, compiler->error);
        status = truce__expression_compile(compiler, fields.value, &node->operands[i]);
        if (status)
            return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!node->operands[i] && arguments->list[i].missing)
            return truce__refuse(arguments->list[i].missing, compiler->error,
                                 "%s needs the argument \"%s\"", operator->name,
                                 arguments->list[i].name);
    }
    *result = node;
    return TRUCE_OK;
}

/* -- folding ---------------------------------------------------------------------------------- */

/*
 * Folding takes time and memory at compilation, when a call cannot be interrupted yet, and a
 * pipeline may have a hundred thousand constants. Therefore the work of folding is bounded for a
 * thread until truce__expression_fold_again. In addition, each expression may always fold a little.
 * A node that exceeds the bound stays as it is and is evaluated within the time of the call.
 */
#define FOLD_STEPS         (1024 * 1024)
#define FOLD_BYTES_OF_STEP 64

static _Thread_local uint32_t steps_folded;

void truce__expression_fold_again(void)
{
    steps_folded = 0;
}

static uint32_t compile_least(uint64_t a, uint32_t b)
{
    return a < b ? (uint32_t)a : b;
}

/* Evaluates a node whose operands are all constants. Returns TIMEOUT if the node exceeds the bound;
 * it is then evaluated for each document. */
static truce_status evaluate_constants(struct expression_compiler *compiler,
                                       const struct expression_node *node, struct value *result)
{
    static const int always = 1;
    size_t before = compiler->arena->bytes;
    uint32_t common = FOLD_STEPS - steps_folded, taken;
    uint32_t steps = common > compiler->fold_steps ? common : compiler->fold_steps;
    struct budget budget = {.left = steps + 1, .interrupted = &always};
    struct query_context context = {.arena = compiler->arena, .budget = &budget};
    bson_error_t why = {0};
    struct evaluation run = {.context = &context,
                             .arena = compiler->arena,
                             .bytes_max = before + (size_t)steps * FOLD_BYTES_OF_STEP,
                             .error = &why};
    truce_status status = node->evaluate(node, &run, result);

    if (budget.over || status == TRUCE_LIMIT)
        budget.left = 0;
    taken = compile_least(
        steps + 1 - budget.left + (compiler->arena->bytes - before) / FOLD_BYTES_OF_STEP, steps);
    steps_folded += compile_least(taken, common);
    compiler->fold_steps -= compile_least(taken, compiler->fold_steps);
    if (!budget.left)
        return TRUCE_TIMEOUT;
    if (status && compiler->error)
        *compiler->error = why;
    return status;
}

static bool all_constant(const struct expression_node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->operands[i] && !truce__expression_is_constant_node(node->operands[i]))
            return false;
    }
    return true;
}

truce_status truce__expression_fold(struct expression_compiler *compiler,
                                    struct expression_node **node)
{
    struct value value;
    truce_status status;

    if (((*node)->operator->flags & EXPRESSION_UNFOLDED) || !all_constant(*node))
        return TRUCE_OK;
    status = evaluate_constants(compiler, *node, &value);
    if (status)
        return status == TRUCE_TIMEOUT ? TRUCE_OK : status;
    *node = truce__expression_constant(compiler, value);
    return TRUCE_OK;
}

/* Compiles an operator, by its own function or by its table, and folds it. */
static truce_status compile_operator(struct expression_compiler *compiler, const char *name,
                                     struct value argument, struct expression_node **node)
{
    const struct expression_operator *operator= compile_find_operator(compiler, name);
    truce_status status;

    if (!operator)
        return compile_refuse_operator(compiler, name);
    if (operator->compile)
        return operator->compile(compiler, operator, argument, node);
    if (operator->arguments &&(operator->arguments->not_document ||
                               argument.type == BSON_TYPE_DOCUMENT))
        status = truce__expression_compile_named(compiler, operator, argument, node);
    else
        status = compile_operands(compiler, operator, argument, node);
    if (!status && operator->prepare)
        status = operator->prepare(compiler, *node);
    if (!status)
        status = truce__expression_fold(compiler, node);
    return status;
}

/* Compiles a document: an operator if its first name begins with `$`, and otherwise an object
 * literal. */
static truce_status compile_document(struct expression_compiler *compiler, struct value source,
                                     struct expression_node **node)
{
    struct fields fields = truce__fields(source);
    struct fields more;

    if (!truce__fields_next(&fields) || fields.key[0] != '$')
        return compile_object(compiler, source, node);
    more = fields;
    if (truce__fields_next(&more))
        return truce__refuse(
            15983, compiler->error,
            "an expression has exactly one operator, but this one has \"%s\" and \"%s\"",
            fields.key, more.key);
    return compile_operator(compiler, fields.key, fields.value, node);
}

truce_status truce__expression_compile(struct expression_compiler *compiler, struct value source,
                                       struct expression_node **node)
{
    truce_status status = TRUCE_OK;

    if (compiler->depth == EXPRESSION_DEPTH_MAX)
        return truce__refuse(CODE_OVERFLOW, compiler->error,
                             "an expression is nested deeper than %d levels", EXPRESSION_DEPTH_MAX);
    compiler->depth++;
    switch (source.type) {
    case BSON_TYPE_UTF8:
        status = truce__expression_compile_text(compiler, source, node);
        break;
    case BSON_TYPE_ARRAY:
        status = compile_array(compiler, source, node);
        break;
    case BSON_TYPE_DOCUMENT:
        status = compile_document(compiler, source, node);
        break;
    default:
        *node = truce__expression_constant(compiler, source);
    }
    compiler->depth--;
    return status;
}
