#include "query/expression/expression.h"

#include "base/assert.h"
#include "base/limits.h"
#include "bson/field_path.h"
#include "bson/refuse_value.h"
#include "query/expression/expression_tree.h"

/*
 * An expression from compilation to result. expression_compile.c makes the tree of nodes, and
 * expression_path.c the variables and field paths in it. The operators are in the other files, with
 * a table in each.
 *
 * A variable is a slot: $let, $map, and other operators get the next free slot number at
 * compilation, so that an evaluation looks up no name. Slot 0 is ROOT, and slot 1 is CURRENT. The
 * caller's variables follow, then the variables inside the expression. "$a.b" is "$$CURRENT.a.b".
 *
 *     evaluation      slots: | ROOT | CURRENT | caller's ... | $let, $map ... |
 *
 * Constants are folded at compilation, as in MongoDB. {$divide: [1, 0]} is therefore an error of
 * the compilation, even if no document is ever evaluated. A constant that takes long is not folded.
 *
 * Invariants
 *  1. A node and everything it points to lives in the expression's arena or in its copy of the
 *     source, and does not change once truce__expression_new has returned.
 *  2. A result points into the document, the compiled expression, or the evaluation's arena.
 *  3. Each loop over user data calls truce__evaluation_check or appends to a builder: the arena
 *     never exceeds TRUCE_STAGE_MEMORY_MAX by more than one small value. A loop that runs other
 *     loops, or reads the same data again, calls the check: it ends when the time of the call has
 *     expired.
 *  4. The recursion of compilation and evaluation is bounded by EXPRESSION_DEPTH_MAX. The depth of
 *     values that a loop makes is bounded ($reduce), and so is the recursion that compares them.
 */

#define SLOTS_ON_STACK 16
#define FOLD_STEPS_OWN 256
/* Bytes of a result that count as one step. */
#define BYTES_OF_STEP 64

struct expression {
    struct arena arena;
    struct expression_node *root;
    /* The field if the expression is only a field, such as "$a". Otherwise NULL. */
    const struct expression_key *field;
    uint32_t slots;
    /* The number of the caller's variables. */
    uint32_t variables;
    struct expression_owned owned;
};

/* -- the operators ----------------------------------------------------------------------------- */

/* Refuses an operator that needs JavaScript. The operators that truce does not have are in a table,
 * too, so that they are not reported as unknown. */
static truce_status refuse_javascript(struct expression_compiler *compiler,
                                      const struct expression_operator *operator,
                                      struct value argument, struct expression_node **node)
{
    return truce__refuse(31264, compiler->error,
                         "%s needs JavaScript, which this server does not run", operator->name);
}

/* Refuses $meta, which needs text search or similar features. */
static truce_status compile_meta(struct expression_compiler *compiler,
                                 const struct expression_operator *operator, struct value argument,
                                 struct expression_node **node)
{
    static const char *const known[] = {"textScore",    "randVal",         "searchScore",
                                        "geoNearPoint", "geoNearDistance", "searchHighlights",
                                        "recordId",     "indexKey",        "sortKey"};
    const char *name;
    uint32_t length;

    if (argument.type != BSON_TYPE_UTF8)
        return truce__refuse_value(17307, argument, compiler->error, "$meta takes a string");
    name = truce__value_text(argument, &length);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!strcmp(known[i], name))
            return truce__refuse(40218, compiler->error,
                                 "$meta: \"%s\" is not available in this place", name);
    }
    return truce__refuse(17308, compiler->error, "unknown value \"%s\" of $meta", name);
}

static const struct expression_operator refused[] = {
    {"$function", .compile = refuse_javascript},
    {"$_internalJsEmit", .compile = refuse_javascript},
    {"$accumulator", .compile = refuse_javascript},
    {"$where", .compile = refuse_javascript},
    {"$meta", .compile = compile_meta},
    {NULL},
};

static const struct expression_operator *const operator_tables[] = {
    truce__expressions_logic,
    truce__expressions_math,
    truce__expressions_array,
    truce__expressions_loop,
    truce__expressions_object,
    truce__expressions_string,
    truce__expressions_regex,
    truce__expressions_date,
    truce__expressions_convert,
    refused,
    NULL,
};

/* -- the interface ---------------------------------------------------------------------------- */

/* Defines ROOT, CURRENT, and the caller's variables, in the order of their slots. */
static const struct expression_scope *enter_variables(struct expression_compiler *compiler,
                                                      const char *const *variables)
{
    static const char *const fixed[] = {"ROOT", "CURRENT", NULL};
    const char *const *lists[] = {fixed, variables};

    for (int i = 0; i < 2; i++) {
        for (const char *const *name = lists[i]; name && *name; name++) {
            struct expression_scope *scope = truce__arena_take(compiler->arena, sizeof *scope);
            size_t length = strlen(*name);
            truce__expression_scope_enter(
                compiler, scope, truce__arena_copy(compiler->arena, *name, length + 1), length);
        }
    }
    return compiler->scope;
}

truce_status truce__expression_new(struct value source, const char *const *variables,
                                   struct expression **expression, bson_error_t *error)
{
    struct expression *made = bson_malloc0(sizeof *made);
    struct expression_compiler compiler = {.arena = &made->arena,
                                           .owned = &made->owned,
                                           .operators = operator_tables,
                                           .fold_steps = FOLD_STEPS_OWN,
                                           .error = error};
    truce_status status;

    enter_variables(&compiler, variables);
    made->variables = compiler.slots - EXPRESSION_SLOTS_FIXED;
    status =
        truce__expression_compile(&compiler, truce__value_copy(&made->arena, source), &made->root);
    made->slots = compiler.slots;
    if (!status && made->root->slot < EXPRESSION_SLOTS_FIXED)
        made->field = truce__expression_single_field(made->root);
    if (status) {
        truce__expression_free(made);
        made = NULL;
    }
    *expression = made;
    return status;
}

void truce__expression_free(struct expression *expression)
{
    if (!expression)
        return;
    for (uint32_t i = 0; i < expression->owned.count; i++)
        expression->owned.things[i].release(expression->owned.things[i].thing);
    bson_free(expression->owned.things);
    truce__arena_release(&expression->arena);
    bson_free(expression);
}

bool truce__expression_constant_value(const struct expression *expression, struct value *value)
{
    if (!truce__expression_is_constant_node(expression->root))
        return false;
    *value = expression->root->value;
    return true;
}

/* Returns the first field of a path at the node or below it that is not in `names`, or NULL. */
static const char *expression_find_other(const struct expression_node *node,
                                         const char *const *names)
{
    const struct expression_key *first =
        node->slot < EXPRESSION_SLOTS_FIXED ? truce__expression_first_field(node) : NULL;
    const char *found = NULL;

    while (first && *names && strcmp(*names, first->name) != 0)
        names++;
    if (first)
        return *names ? NULL : first->name;
    for (uint32_t i = 0; !found && i < node->count; i++)
        if (node->operands[i])
            found = expression_find_other(node->operands[i], names);
    return found;
}

const char *truce__expression_other_field(const struct expression *expression,
                                          const char *const *names)
{
    return expression_find_other(expression->root, names);
}

/* Finds the field in a large document. The function is separate to keep the one for small documents
 * short. */
__attribute__((noinline)) static truce_status find_in_large(const struct expression *expression,
                                                            struct value root,
                                                            struct query_context *context,
                                                            struct value *result,
                                                            bson_error_t *error)
{
    uint32_t steps = 1;

    *result = truce__field_finder_find(context->finder, root, expression->field->name,
                                       expression->field->length, &steps);
    return truce__budget_spend(context->budget, steps, error);
}

truce_status truce__expression_evaluate(const struct expression *expression, struct value root,
                                        const struct value *values, struct query_context *context,
                                        struct value *result, bson_error_t *error)
{
    const struct expression_key *field = expression->field;

    if (!field || root.type != BSON_TYPE_DOCUMENT)
        return truce__expression_evaluate_within(expression, root, root, values, context, result,
                                                 error);
    if (root.size >= FIELD_FINDER_BYTES)
        return find_in_large(expression, root, context, result, error);
    *result = truce__value_field(root, field->name, field->length);
    return TRUCE_OK;
}

truce_status truce__expression_evaluate_within(const struct expression *expression,
                                               struct value root, struct value current,
                                               const struct value *values,
                                               struct query_context *context, struct value *result,
                                               bson_error_t *error)
{
    struct value few[SLOTS_ON_STACK];
    struct value *slots = few;
    struct field_finder own = {NULL};
    size_t before = context->arena->bytes;
    struct evaluation run = {.context = context,
                             .arena = context->arena,
                             .bytes_max = context->arena->bytes + TRUCE_STAGE_MEMORY_MAX,
                             .finder = context->finder ? context->finder : &own,
                             .error = error};
    truce_status status;

    if (expression->slots > SLOTS_ON_STACK)
        slots = truce__arena_take(context->arena, expression->slots * sizeof *slots);
    slots[EXPRESSION_SLOT_ROOT] = root;
    slots[EXPRESSION_SLOT_CURRENT] = current;
    for (uint32_t i = 0; i < expression->variables; i++)
        slots[EXPRESSION_SLOTS_FIXED + i] = values[i];
    run.slots = slots;
    *result = truce__value_missing();
    status = expression->root->evaluate(expression->root, &run, result);
    truce__field_finder_release(&own);
    if (status || context->arena->bytes < before + BYTES_OF_STEP)
        return status;
    return truce__budget_spend(context->budget,
                               (uint32_t)((context->arena->bytes - before) / BYTES_OF_STEP), error);
}
