#include "query/expression/expression.h"

#include "base/assert.h"
#include "base/limits.h"
#include "bson/field_path.h"
#include "query/expression/expression_tree.h"

/*
 * An expression from compilation to result. expression_compile.c makes the tree of nodes,
 * expression_path.c the variables and field paths in it; the operators stand in the other
 * expression_*.c, a table in each.
 *
 * A variable is a slot: $let, $map and their kin take the next free number while compiling, so that
 * evaluating looks no name up. Slot 0 is ROOT, slot 1 CURRENT, then the caller's variables, then
 * those inside. "$a.b" is "$$CURRENT.a.b".
 *
 *     evaluation      slots: | ROOT | CURRENT | caller's ... | $let, $map ... |
 *
 * Constants are folded while compiling, as MongoDB does, and therefore {$divide: [1, 0]} is an
 * error of the compilation even if no document is ever evaluated. One that takes long is not folded.
 *
 * Invariants
 *  1. A node and everything it points to lives in the expression's arena or in its copy of the
 *     source, and does not change once truce__expression_new has returned.
 *  2. A result points into the document, the compiled expression or the evaluation's arena.
 *  3. Every loop over user data asks truce__evaluation_check or appends to a builder: the arena
 *     never takes more than TRUCE_STAGE_MEMORY_MAX by more than one small value. A loop that runs
 *     others, or goes over the same data again, asks: it ends when the time of the call is over.
 *  4. The recursion of compiling and of evaluating is bounded by EXPRESSION_DEPTH_MAX; values made
 * by a loop are bounded in depth ($reduce), so that comparing them is bounded too.
 */

#define SLOTS_ON_STACK 16
#define OWNED_GROWTH   4
#define FOLD_STEPS_OWN 256
#define BYTES_OF_STEP  64 /* that a result takes */

enum { SLOT_ROOT, SLOT_CURRENT, SLOTS_FIXED };

struct owned {
    void *thing;
    void (*release)(void *thing);
};

struct expression {
    struct arena arena;
    struct expression_node *root;
    const struct expression_key *field; /* that is all of it: "$a"; or NULL */
    uint32_t slots;
    uint32_t variables; /* of the caller */
    struct owned *owned;
    uint32_t owned_count, owned_room;
};

/* -- evaluating ------------------------------------------------------------------------------- */

static truce_status expression_out_of_memory(struct evaluation *run)
{
    return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, run->error,
                         "evaluating an expression takes more than %zu bytes of memory",
                         run->bytes_max);
}

truce_status truce__evaluation_check(struct evaluation *run)
{
    return run->arena->bytes > run->bytes_max ? expression_out_of_memory(run)
                                              : truce__evaluation_spend(run, 1);
}

void *truce__evaluation_take(struct evaluation *run, size_t size)
{
    if (run->arena->bytes + size > run->bytes_max) {
        (void)expression_out_of_memory(run); /* the sentence; the caller answers TRUCE_LIMIT */
        return NULL;
    }
    return truce__arena_take(run->arena, size ? size : 1);
}

void truce__evaluation_build(struct evaluation *run, struct builder *builder, uint8_t type)
{
    truce__builder_begin(builder, run->arena, run->bytes_max, type);
}

truce_status truce__evaluation_field(struct evaluation *run, uint32_t slot, struct value document,
                                     const struct expression_key *name, struct value *result)
{
    /* what other variables hold may have gone when a $reduce goes on */
    struct field_finder *finder = slot < SLOTS_FIXED ? run->finder : NULL;
    uint32_t steps = 0;

    if (document.size < FIELD_FINDER_BYTES) {
        *result = truce__value_field(document, name->name, name->length);
        return TRUCE_OK;
    }
    *result = truce__field_finder_find(finder, document, name->name, name->length, &steps);
    return steps ? truce__evaluation_spend(run, steps) : TRUCE_OK;
}

uint32_t truce__array_count(struct value array)
{
    struct fields fields = truce__fields(array);
    uint32_t count = 0;

    while (truce__fields_next(&fields))
        count++;
    return count;
}

truce_status truce__evaluation_items(struct evaluation *run, struct value array,
                                     struct value **items, uint32_t *count)
{
    struct fields fields = truce__fields(array);
    uint32_t i = 0;

    truce_assert(truce__value_is_container(array));
    *count = truce__array_count(array);
    *items = truce__evaluation_take(run, *count * sizeof **items);
    if (!*items)
        return TRUCE_LIMIT;
    while (truce__fields_next(&fields))
        (*items)[i++] = fields.value;
    truce_assert(i == *count);
    return TRUCE_OK;
}

truce_status truce__evaluation_array(struct evaluation *run, const struct value *items,
                                     uint32_t count, struct value *result)
{
    struct builder builder;

    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    for (uint32_t i = 0; i < count; i++)
        truce__builder_element(&builder, items[i]);
    return truce__builder_finish(&builder, result, run->error);
}

void truce__expression_own(struct expression_compiler *compiler, void *thing,
                           void (*release)(void *thing))
{
    struct expression *owner = compiler->owner;

    if (owner->owned_count == owner->owned_room) {
        owner->owned_room += OWNED_GROWTH + owner->owned_room;
        owner->owned = bson_realloc(owner->owned, owner->owned_room * sizeof *owner->owned);
    }
    owner->owned[owner->owned_count++] = (struct owned){thing, release};
}

/* -- the interface ---------------------------------------------------------------------------- */

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
    struct expression_compiler compiler = {
        .arena = &made->arena, .owner = made, .fold_steps = FOLD_STEPS_OWN, .error = error};
    truce_status status;

    enter_variables(&compiler, variables);
    made->variables = compiler.slots - SLOTS_FIXED;
    status =
        truce__expression_compile(&compiler, truce__value_copy(&made->arena, source), &made->root);
    made->slots = compiler.slots;
    if (!status && made->root->slot < SLOTS_FIXED)
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
    for (uint32_t i = 0; i < expression->owned_count; i++)
        expression->owned[i].release(expression->owned[i].thing);
    bson_free(expression->owned);
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

/* Apart from the way of all small documents, which calls nothing but the look for the field. */
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
    slots[SLOT_ROOT] = root;
    slots[SLOT_CURRENT] = current;
    for (uint32_t i = 0; i < expression->variables; i++)
        slots[SLOTS_FIXED + i] = values[i];
    run.slots = slots;
    *result = truce__value_missing();
    status = expression->root->evaluate(expression->root, &run, result);
    truce__field_finder_release(&own);
    if (status || context->arena->bytes < before + BYTES_OF_STEP)
        return status;
    return truce__budget_spend(context->budget,
                               (uint32_t)((context->arena->bytes - before) / BYTES_OF_STEP), error);
}
