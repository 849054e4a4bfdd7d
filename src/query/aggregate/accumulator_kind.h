#ifndef TRUCE_QUERY_AGGREGATE_ACCUMULATOR_KIND_H
#define TRUCE_QUERY_AGGREGATE_ACCUMULATOR_KIND_H

/* The kinds of accumulators, shared by the files accumulator*.c and nobody else. */
#include "query/aggregate/accumulator.h"
#include "query/expression/expression.h"
#include "query/sort/sort.h"

enum accumulator_form {
    FORM_EXPRESSION, /* {$sum: <expression>} */
    FORM_NOTHING,    /* {$count: {}} */
    FORM_N,          /* {$firstN: {input, n}} */
    FORM_TOP,        /* {$top: {sortBy, output}} */
    FORM_TOP_N,      /* {$topN: {n, sortBy, output}} */
};

/* Where an accumulator's memory comes from, and what it may use while it works. */
struct accumulation {
    const struct accumulator *accumulator;
    struct arena *arena;           /* of the groups */
    struct query_context *context; /* its arena is scratch */
    bson_error_t *error;
};

/* Called for what a state holds, in an order in which it can be restored. */
typedef void accumulator_visit(void *arg, struct accumulator_input input);

struct accumulator_kind {
    const char *name;
    enum accumulator_form form;
    size_t state_size;
    truce_status (*add)(struct accumulation *run, void *state,
                        const struct accumulator_input *input);
    /* the result lives in the state or in context->arena */
    truce_status (*finish)(struct accumulation *run, const void *state, struct value *result);
    /* NULL: the state is plain bytes */
    void (*each)(const void *state, accumulator_visit *visit, void *arg);
    /* adds what `each` visited; NULL: `add` does */
    truce_status (*restore)(struct accumulation *run, void *state,
                            const struct accumulator_input *input);
};

struct accumulator {
    const struct accumulator_kind *kind;
    char *name;
    size_t name_length;
    struct expression *input; /* or output; NULL for FORM_NOTHING */
    struct value constant;    /* the input, if it is the same for every document */
    bool is_constant;
    struct expression *n; /* FORM_N, FORM_TOP_N */
    struct sort sort;     /* FORM_TOP, FORM_TOP_N */
    size_t offset;        /* of its state */
};

/* The states of FORM_N and the tops begin with their n. */
struct accumulator_n {
    int64_t n;
};

/* accumulator_kinds.c, accumulator_n.c; a name of NULL ends them */
extern const struct accumulator_kind truce__accumulators_plain[];
extern const struct accumulator_kind truce__accumulators_n[];

/* A value with a place of its own in the arena, which is used again when the value is replaced. */
struct slot {
    uint8_t *bytes;
    uint32_t room;
    struct value value;
};

void truce__slot_set(struct slot *slot, struct arena *arena, struct value value);

static inline bool truce__is_nullish(struct value value)
{
    return value.type == VALUE_MISSING || value.type == BSON_TYPE_NULL ||
           value.type == BSON_TYPE_UNDEFINED;
}

#endif
