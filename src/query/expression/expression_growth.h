#ifndef TRUCE_QUERY_EXPRESSION_EXPRESSION_GROWTH_H
#define TRUCE_QUERY_EXPRESSION_EXPRESSION_GROWTH_H

/*
 * The array that a $reduce makes longer turn by turn:
 *
 *     in: {$concatArrays: ["$$value", ["$$this"]]}
 *     in: {$cond: [..., {$concatArrays: ["$$value", ["$$this"]]}, "$$value"]}
 *
 * What is added is written behind what is there, so that n turns cost n, not n * n.
 */
#include "query/expression/expression_tree.h"

struct growth {
    struct arena arena;
    struct builder builder;
    bool begun; /* the value is what the builder has */
};

/* Does the body do nothing else to the variable in `slot`? */
bool truce__growth_possible(const struct expression_node *body, uint32_t slot);

/* One turn: *value is what the variable in its slot has, and becomes the body's result. What it had is
 * no longer valid. */
truce_status truce__growth_turn(struct growth *growth, const struct expression_node *body,
                                struct evaluation *run, struct value *value);
void truce__growth_release(struct growth *growth);

#endif
