#ifndef TRUCE_QUERY_EXPRESSION_EXPRESSION_GROWTH_H
#define TRUCE_QUERY_EXPRESSION_EXPRESSION_GROWTH_H

/*
 * The array, the text or the document that a $reduce makes longer turn by turn:
 *
 *     in: {$concatArrays: ["$$value", ["$$this"]]}
 *     in: {$cond: [..., {$concatArrays: ["$$value", ["$$this"]]}, "$$value"]}
 *     in: {$concat: ["$$value", ", ", "$$this"]}
 *     in: {$mergeObjects: ["$$value", "$$this"]}
 *
 * What is added is written behind what is there, so that n turns cost n, not n * n. A document is a table of its
 * fields until the last turn is over; so nothing else may read it meanwhile.
 */
#include "base/buffer.h"
#include "bson/field_path.h"
#include "query/expression/expression_tree.h"

struct growth {
    struct arena arena;
    struct builder builder;   /* of an array */
    struct buffer text;       /* of a text, as a value has it */
    struct field_table table; /* of a document; keys and values in the arena */
    size_t live;              /* bytes of them */
    bool begun;               /* the value is what one of these has */
};

/* Does the body do nothing else to the variable in `slot`? */
bool truce__growth_possible(const struct expression_node *body, uint32_t slot);

/* One turn: *value is what the variable in its slot has, and becomes the body's result. What it had is
 * no longer valid. */
truce_status truce__growth_turn(struct growth *growth, const struct expression_node *body,
                                struct evaluation *run, struct value *value);
/* The value after the last turn, which lives as long as the growth. */
truce_status truce__growth_end(struct growth *growth, struct evaluation *run, struct value *value);
void truce__growth_release(struct growth *growth);

#endif
