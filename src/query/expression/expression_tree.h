#ifndef TRUCE_QUERY_EXPRESSION_EXPRESSION_TREE_H
#define TRUCE_QUERY_EXPRESSION_EXPRESSION_TREE_H

/*
 * The compiled form of an expression, which only the files of this folder share.
 *
 *     {$add: ["$a.b", {$multiply: [2, 3]}]}
 *
 *         node $add ── node field path (slot of CURRENT; a, b)
 *                   └─ node constant 6
 *
 * A node evaluates itself: `node->evaluate`. Nodes live in the compiler's arena and never change
 * after compilation, so several threads can evaluate a tree at once. The data of one evaluation
 * (variables, scratch memory) is in its `struct evaluation`.
 *
 * An operator is a line in a table (one table for each file). There are three kinds:
 *   - `apply`: its operands are evaluated first, at most EXPRESSION_OPERANDS_FIXED of them;
 *   - `evaluate`: evaluates its operands itself (any number, lazily, or in a loop);
 *   - with `compile`: its argument is not a list of operands; it makes its node itself.
 * An operator with named arguments ({$map: {input, as, in}}) has `arguments`. Its operands are in
 * the order of that list; an argument that was not given is NULL.
 */
#include "bson/builder.h"
#include "bson/value_set.h"
#include "query/expression/expression.h"

#define EXPRESSION_OPERANDS_FIXED 4
#define EXPRESSION_NAMED_MAX      10
/* The maximum nesting of the source. */
#define EXPRESSION_DEPTH_MAX 200

struct expression_node;

/* The array whose element was read last. When it is read again, all its elements are listed. */
struct evaluation_list {
    /* The bytes of the array, or NULL if no array was read. */
    const uint8_t *data;
    /* The elements, or NULL before the array is read again. */
    struct value *items;
    uint32_t count;
};

/* The array that was last searched for a value. When it is searched again, a set of its values is
 * made. */
struct evaluation_among {
    /* The bytes of the array, or NULL if no array was searched. */
    const uint8_t *data;
    struct value_set *set;
};

enum { EXPRESSION_SLOT_ROOT, EXPRESSION_SLOT_CURRENT, EXPRESSION_SLOTS_FIXED };

struct evaluation {
    struct query_context *context;
    /* The arena of results: context->arena, or scratch memory in a $reduce. */
    struct arena *arena;
    /* The size that the arena must not exceed. */
    size_t bytes_max;
    /* The values of the variables, by slot. */
    struct value *slots;
    struct evaluation_list list;
    struct evaluation_among among;
    /* The finder of the fields of ROOT and CURRENT, or NULL. */
    struct field_finder *finder;
    bson_error_t *error;
};

typedef truce_status expression_evaluate_function(const struct expression_node *node,
                                                  struct evaluation *run, struct value *result);
typedef truce_status expression_apply_function(const struct expression_node *node,
                                               struct evaluation *run, const struct value *operands,
                                               struct value *result);

struct expression_node {
    expression_evaluate_function *evaluate;
    /* The operator, or NULL for a constant, a path, an object, or an array. */
    const struct expression_operator *operator;
    struct expression_node **operands;
    uint32_t count;
    /* The variable of a field path, or the first variable of $map and similar operators. */
    uint32_t slot;
    /* The value of a constant. */
    struct value value;
    /* Data that is private to the operator. */
    const void *extra;
};

struct expression_key {
    /* The name, NUL-terminated. */
    const char *name;
    uint32_t length;
};

struct expression_scope;

/* Memory that is freed with an expression: a compiled regular expression, for example. */
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
    /* The tables of operators; NULL ends the list. expression.c has the list, so that the files of
     * the operators do not depend on each other. */
    const struct expression_operator *const *operators;
    /* The visible variables, the innermost first. */
    const struct expression_scope *scope;
    /* The number of slots in use. */
    uint32_t slots;
    uint32_t depth;
    /* The steps that remain for folding this expression. They are in addition to those of the
     * thread. */
    uint32_t fold_steps;
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
    /* MongoDB's code for an argument that is not a document. 0 means that such an argument is a
     * list of operands. */
    uint32_t not_document;
    /* MongoDB's code for a field that is not in the list. */
    uint32_t unknown;
    struct {
        const char *name;
        /* MongoDB's code if the argument is absent, or 0 if it is optional. */
        uint32_t missing;
    } list[EXPRESSION_NAMED_MAX];
};

enum {
    /* The operator is not folded, even if all operands are constants ($rand, $zip). */
    EXPRESSION_UNFOLDED = 1,
    /* The code for a wrong number of operands is 28667 instead of 16020. */
    EXPRESSION_RANGED = 2,
};

/* The value of operands_max that means no maximum. */
#define EXPRESSION_ANY 0xffffu

struct expression_operator {
    /* The name with its `$`. NULL ends a table. */
    const char *name;
    uint16_t operands_min, operands_max;
    uint32_t flags;
    expression_apply_function *apply;
    expression_evaluate_function *evaluate;
    expression_compile_function *compile;
    const struct expression_arguments *arguments;
    /* Copied into the node. It says how the operator differs from similar ones. */
    const void *extra;
    /* Runs after the operands are compiled. Checks and prepares constants, for example a regular
     * expression. */
    truce_status (*prepare)(struct expression_compiler *compiler, struct expression_node *node);
};

/* The tables, one for each file. */
extern const struct expression_operator truce__expressions_logic[];
extern const struct expression_operator truce__expressions_math[];
extern const struct expression_operator truce__expressions_array[];
extern const struct expression_operator truce__expressions_loop[];
extern const struct expression_operator truce__expressions_object[];
extern const struct expression_operator truce__expressions_string[];
extern const struct expression_operator truce__expressions_regex[];
extern const struct expression_operator truce__expressions_date[];
extern const struct expression_operator truce__expressions_convert[];

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

/* Returns the error for an argument that the operator does not have; it lists those that it has. */
truce_status truce__expression_unknown_argument(const struct expression_operator *operator,
                                                const char * name, bson_error_t *error);

/* Compiles a string: "$path", "$$variable", or a constant. */
truce_status truce__expression_compile_text(struct expression_compiler *compiler,
                                            struct value source, struct expression_node **node);
/* Returns the name if the node reads only one field of the variable in its slot; else NULL. */
const struct expression_key *truce__expression_single_field(const struct expression_node *node);
/* Returns the first name of the path of the node, which begins at the variable in its slot, or NULL
 * if the node is not a path. */
const struct expression_key *truce__expression_first_field(const struct expression_node *node);
/* Returns whether the node is only the variable in the slot. */
bool truce__expression_is_variable(const struct expression_node *node, uint32_t slot);
/* Checks the name of a field in a path or an object: not empty, and without a leading `$`. */
truce_status truce__expression_field_check(const char *name, size_t length, bson_error_t *error);

/* Compiles the operands by the operator's list of named arguments, and fills node->operands. */
truce_status truce__expression_compile_named(struct expression_compiler *compiler,
                                             const struct expression_operator *operator,
                                             struct value argument, struct expression_node **node);

/* Makes a variable visible until the caller restores compiler->scope. `scope` belongs to the
 * caller. */
void truce__expression_scope_enter(struct expression_compiler *compiler,
                                   struct expression_scope *scope, const char *name, size_t length);

/* Registers memory that is freed with the expression (a compiled regex). */
void truce__expression_own(struct expression_compiler *compiler, void *thing,
                           void (*release)(void *thing));

/* -- evaluating ------------------------------------------------------------------------------- */

/* Evaluates a node. NULL, an argument that is not given, evaluates to a missing value. */
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

/* Returns `size` bytes of the arena, or NULL and an error at the limit. For memory that grows with
 * the user's data; small fixed sizes come from the arena directly. */
void *truce__evaluation_take(struct evaluation *run, size_t size);
/* Fails if the arena is full or the time has expired. Each loop over user data calls it. */
truce_status truce__evaluation_check(struct evaluation *run);
/* Checks the time limit during work on `steps` bytes or values. */
static inline truce_status truce__evaluation_spend(struct evaluation *run, size_t steps)
{
    return truce__budget_spend(run->context->budget,
                               steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX, run->error);
}

/* Returns a field of a document, which is the variable in `slot` or within it. Spends the steps
 * that it takes. */
truce_status truce__evaluation_field(struct evaluation *run, uint32_t slot, struct value document,
                                     const struct expression_key *name, struct value *result);

/* Returns the elements of an array as a list in the arena; NULL only at the memory limit. */
truce_status truce__evaluation_items(struct evaluation *run, struct value array,
                                     struct value **items, uint32_t *count);
truce_status truce__evaluation_array(struct evaluation *run, const struct value *items,
                                     uint32_t count, struct value *result);
uint32_t truce__array_count(struct value array);

void truce__evaluation_build(struct evaluation *run, struct builder *builder, uint8_t type);

/* Returns a date, a timestamp, or an ObjectId as milliseconds since 1970. */
bool truce__value_to_date(struct value value, int64_t *date_ms);

/* Suppresses the error of a step that may fail and has an alternative. Returns the pointer to
 * restore. */
static inline bson_error_t *truce__evaluation_hush(struct evaluation *run)
{
    bson_error_t *error = run->error;

    run->error = NULL;
    return error;
}

/* Returns the operator's name with its `$`, for messages. */
static inline const char *truce__expression_name(const struct expression_node *node)
{
    return node->operator->name;
}

/* Returns whether the value is missing, null, or undefined. */
static inline bool truce__value_is_nullish(struct value value)
{
    return value.type == VALUE_MISSING || value.type == BSON_TYPE_NULL ||
           value.type == BSON_TYPE_UNDEFINED;
}

/* Sets null and returns TRUCE_OK: the result of most operators for a missing or null operand. */
static inline truce_status truce__evaluation_null(struct value *result)
{
    *result = truce__value_null();
    return TRUCE_OK;
}

/* Converts a number with an exact int32 value (3, 3.0, NumberDecimal("3")). */
bool truce__value_to_int32(struct value value, int32_t *result);
/* Reads an operand as an int32. Fails with `code` if the value is not a number, and with `code` + 1
 * if it is not an int32. `what` names the operand in the message. */
truce_status truce__evaluation_int32(const struct expression_node *node, struct evaluation *run,
                                     struct value value, const char *what, uint32_t code,
                                     int32_t *result);
/* Reads a bound of $indexOfArray and similar operators: a non-negative int32. */
truce_status truce__evaluation_bound(const struct expression_node *node, struct evaluation *run,
                                     struct value value, int32_t *bound);

#endif
