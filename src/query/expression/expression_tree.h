#ifndef TRUCE_QUERY_EXPRESSION_EXPRESSION_TREE_H
#define TRUCE_QUERY_EXPRESSION_EXPRESSION_TREE_H

/*
 * The compiled form of an expression, shared by the files expression*.c and nobody else.
 *
 *     {$add: ["$a.b", {$multiply: [2, 3]}]}
 *
 *         node $add ── node field path (slot of CURRENT; a, b)
 *                   └─ node constant 6
 *
 * A node evaluates itself: `node->evaluate`. Nodes are made in the compiler's arena and never
 * change afterwards, so a tree is evaluated from several threads at once; what one evaluation needs
 * (variables, scratch) stands in its `struct evaluation`.
 *
 * An operator is a line in a table (one table for each file). There are three kinds:
 *   - `apply`: its operands are evaluated first, at most EXPRESSION_OPERANDS_FIXED of them;
 *   - `evaluate`: evaluates its operands itself (any number, lazily, or in a loop);
 *   - with `compile`: its argument is not a list of operands; it makes its node itself.
 * An operator with named arguments ({$map: {input, as, in}}) has `arguments`; its operands stand in
 * the order of that list, NULL where one is not given.
 */
#include "bson/builder.h"
#include "bson/value_set.h"
#include "query/expression/expression.h"

#define EXPRESSION_OPERANDS_FIXED 4
#define EXPRESSION_NAMED_MAX      10
#define EXPRESSION_DEPTH_MAX      200 /* of the source */

struct expression_node;

/* The array that was asked for an element last, and, once it is asked again, all its elements. */
struct evaluation_list {
    const uint8_t *data; /* of the array; NULL: none */
    struct value *items; /* or NULL */
    uint32_t count;
};

/* The array that was asked last whether a value is in it, and, once it is asked again, its set. */
struct evaluation_among {
    const uint8_t *data; /* NULL: none */
    struct value_set *set;
};

enum { EXPRESSION_SLOT_ROOT, EXPRESSION_SLOT_CURRENT, EXPRESSION_SLOTS_FIXED };

struct evaluation {
    struct query_context *context;
    struct arena *arena; /* where results go: context->arena, or scratch in a $reduce */
    size_t bytes_max;    /* of that arena */
    struct value *slots; /* the variables */
    struct evaluation_list list;
    struct evaluation_among among;
    struct field_finder *finder; /* in ROOT and CURRENT; NULL: there are none */
    bson_error_t *error;
};

typedef truce_status expression_evaluate_function(const struct expression_node *node,
                                                  struct evaluation *run, struct value *result);
typedef truce_status expression_apply_function(const struct expression_node *node,
                                               struct evaluation *run, const struct value *operands,
                                               struct value *result);

struct expression_node {
    expression_evaluate_function *evaluate;
    const struct expression_operator *operator; /* NULL: constant, path, object, array */
    struct expression_node **operands;
    uint32_t count;
    uint32_t slot;      /* field path: of its variable; $map and its kin: of theirs */
    struct value value; /* of a constant */
    const void *extra;  /* private to the operator */
};

struct expression_key {
    const char *name; /* with a NUL behind it */
    uint32_t length;
};

struct expression_scope;

/* What is freed with an expression: a compiled regular expression, for example. */
struct expression_owned {
    struct expression_thing {
        void *thing;
        void (*release)(void *thing);
    } * things;
    uint32_t count, room;
};

struct expression_compiler {
    struct arena *arena;
    struct expression_owned *owned;
    /* the tables of operators; NULL ends the list. expression.c has the list, so that the files of
     * the operators do not depend on each other */
    const struct expression_operator *const *operators;
    const struct expression_scope *scope; /* the variables in sight, innermost first */
    uint32_t slots;                       /* used so far */
    uint32_t depth;
    uint32_t fold_steps; /* that are left for folding this expression, whatever others took */
    bson_error_t *error;
};

struct expression_scope {
    const struct expression_scope *outer;
    const char *name;
    size_t name_length;
    uint32_t slot;
};

typedef truce_status expression_compile_function(struct expression_compiler *compiler,
                                                 const struct expression_operator *operator,
                                                 struct value argument,
                                                 struct expression_node **node);

struct expression_arguments {
    uint32_t not_document; /* MongoDB's code when the argument is not a document; 0: then the
                              operands are a list */
    uint32_t unknown;      /* and when it has a field that is not in the list */
    struct {
        const char *name;
        uint32_t missing; /* the code when it is not given; 0: it is optional */
    } list[EXPRESSION_NAMED_MAX];
};

enum {
    EXPRESSION_UNFOLDED = 1, /* stays as it is though all operands are constants: $rand, $zip */
    EXPRESSION_RANGED = 2,   /* wrong number of operands is 28667 instead of 16020 */
};

#define EXPRESSION_ANY 0xffffu /* operands_max: no maximum */

struct expression_operator {
    const char *name; /* with its `$`; NULL ends a table */
    uint16_t operands_min, operands_max;
    uint32_t flags;
    expression_apply_function *apply;
    expression_evaluate_function *evaluate;
    expression_compile_function *compile;
    const struct expression_arguments *arguments;
    const void *extra; /* copied into the node: what kin operators differ in */
    /* after the operands are compiled: checks and prepares constants (a regex) */
    truce_status (*prepare)(struct expression_compiler *compiler, struct expression_node *node);
};

/* the tables, one for each file */
extern const struct expression_operator truce__expressions_logic[];
extern const struct expression_operator truce__expressions_compare[];
extern const struct expression_operator truce__expressions_arith[];
extern const struct expression_operator truce__expressions_math[];
extern const struct expression_operator truce__expressions_trig[];
extern const struct expression_operator truce__expressions_bits[];
extern const struct expression_operator truce__expressions_accumulate[];
extern const struct expression_operator truce__expressions_array[];
extern const struct expression_operator truce__expressions_order[];
extern const struct expression_operator truce__expressions_loop[];
extern const struct expression_operator truce__expressions_set[];
extern const struct expression_operator truce__expressions_object[];
extern const struct expression_operator truce__expressions_string[];
extern const struct expression_operator truce__expressions_substring[];
extern const struct expression_operator truce__expressions_regex[];
extern const struct expression_operator truce__expressions_date[];
extern const struct expression_operator truce__expressions_date_text[];
extern const struct expression_operator truce__expressions_date_math[];
extern const struct expression_operator truce__expressions_convert[];
extern const struct expression_operator truce__expressions_refused[];

/* -- compiling -------------------------------------------------------------------------------- */

truce_status truce__expression_compile(struct expression_compiler *compiler, struct value source,
                                       struct expression_node **node);

struct expression_node *truce__expression_node(struct expression_compiler *compiler,
                                               const struct expression_operator *operator,
                                               uint32_t operands);
struct expression_node *truce__expression_constant(struct expression_compiler *compiler,
                                                   struct value value);
bool truce__expression_is_constant_node(const struct expression_node *node);

/* Replaces a node whose operands are all constants by its value, unless it is UNFOLDED. */
truce_status truce__expression_fold(struct expression_compiler *compiler,
                                    struct expression_node **node);

/* A string: "$path", "$$variable", or a constant. */
truce_status truce__expression_compile_text(struct expression_compiler *compiler,
                                            struct value source, struct expression_node **node);
/* The name, if the node is nothing but one field of the variable in its slot; else NULL. */
const struct expression_key *truce__expression_single_field(const struct expression_node *node);
/* Is the node nothing but the variable in the slot? */
bool truce__expression_is_variable(const struct expression_node *node, uint32_t slot);
/* A field's name as it may stand in a path or an object: not empty, no `$` before it. */
truce_status truce__expression_field_check(const char *name, size_t length, bson_error_t *error);

/* The operands by the operator's list of named arguments; node->operands are filled. */
truce_status truce__expression_compile_named(struct expression_compiler *compiler,
                                             const struct expression_operator *operator,
                                             struct value argument, struct expression_node **node);

/* Puts it in sight until the caller restores compiler->scope; `scope` is the caller's. */
void truce__expression_scope_enter(struct expression_compiler *compiler,
                                   struct expression_scope *scope, const char *name, size_t length);

/* What is to be freed with the expression (a compiled regex). */
void truce__expression_own(struct expression_compiler *compiler, void *thing,
                           void (*release)(void *thing));

/* -- evaluating ------------------------------------------------------------------------------- */

/* `node` may be NULL (an argument that is not given): missing. */
static inline truce_status truce__expression_run(const struct expression_node *node,
                                                 struct evaluation *run, struct value *result)
{
    if (!node) {
        *result = truce__value_missing();
        return TRUCE_OK;
    }
    if (truce__budget_spend(run->context->budget, 1, run->error))
        return TRUCE_TIMEOUT;
    return node->evaluate(node, run, result);
}

/* `size` bytes of the arena, NULL and an error when the bound is reached. For what grows with the
 * user's data; small fixed sizes are taken directly. */
void *truce__evaluation_take(struct evaluation *run, size_t size);
/* Refuses when the arena is full or the time is over: asked in every loop over user data. */
truce_status truce__evaluation_check(struct evaluation *run);
/* The same, for work on so many bytes or values at once. */
static inline truce_status truce__evaluation_spend(struct evaluation *run, size_t steps)
{
    return truce__budget_spend(run->context->budget,
                               steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX, run->error);
}

/* A field of a document: the variable in `slot`, or within it. Spends what it takes. */
truce_status truce__evaluation_field(struct evaluation *run, uint32_t slot, struct value document,
                                     const struct expression_key *name, struct value *result);

/* The elements of an array as a list in the arena; NULL only when the bound is reached. */
truce_status truce__evaluation_items(struct evaluation *run, struct value array,
                                     struct value **items, uint32_t *count);
truce_status truce__evaluation_array(struct evaluation *run, const struct value *items,
                                     uint32_t count, struct value *result);
uint32_t truce__array_count(struct value array);

void truce__evaluation_build(struct evaluation *run, struct builder *builder, uint8_t type);

/* Stable merge sort; `scratch` has room for `count` values. NULL: the order of values. */
typedef int values_order(struct value a, struct value b, const void *arg);
void truce__values_sort(struct value *items, uint32_t count, struct value *scratch,
                        values_order *order, const void *arg);
/* the number of an equal item in an ascending list; `count` if there is none */
uint32_t truce__values_search(const struct value *items, uint32_t count, struct value item);

/* What string operators take for a string: also numbers and dates; "" for null. Else 16007. */
truce_status truce__evaluation_text(const struct expression_node *node, struct evaluation *run,
                                    struct value value, const char **text, uint32_t *length);
/* A date, a timestamp or an ObjectId as milliseconds since 1970. */
bool truce__value_to_date(struct value value, int64_t *date_ms);
/* An evaluated "timezone": nullish gives *given false; not a string is refused with `code`. */
struct date_zone;
truce_status truce__evaluation_zone(const struct expression_node *node, struct evaluation *run,
                                    struct value value, uint32_t code, struct date_zone *zone,
                                    bool *given);

/* For a step that may fail and has an alternative: without leaving a sentence behind. */
static inline bson_error_t *truce__evaluation_hush(struct evaluation *run)
{
    bson_error_t *error = run->error;

    run->error = NULL;
    return error;
}

/* "$name" of the operator, for messages */
static inline const char *truce__expression_name(const struct expression_node *node)
{
    return node->operator->name;
}

/* missing, null or undefined */
static inline bool truce__value_is_nullish(struct value value)
{
    return value.type == VALUE_MISSING || value.type == BSON_TYPE_NULL ||
           value.type == BSON_TYPE_UNDEFINED;
}

/* null, and OK: what most operators answer for an operand that is missing or null */
static inline truce_status truce__evaluation_null(struct value *result)
{
    *result = truce__value_null();
    return TRUCE_OK;
}

/* The number as an int32 if it has exactly that integral value (3, 3.0, NumberDecimal("3")). */
bool truce__value_to_int32(struct value value, int32_t *result);

#endif
