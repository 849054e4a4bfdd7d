#ifndef TRUCE_QUERY_EXPRESSION_EXPRESSION_GROWTH_H
#define TRUCE_QUERY_EXPRESSION_EXPRESSION_GROWTH_H

/*
 * Appends to the array, string, or document that a $reduce makes longer in each turn:
 *
 *     in: {$concatArrays: ["$$value", ["$$this"]]}
 *     in: {$cond: [..., {$concatArrays: ["$$value", ["$$this"]]}, "$$value"]}
 *     in: {$concat: ["$$value", ", ", "$$this"]}
 *     in: {$mergeObjects: ["$$value", "$$this"]}
 *
 * New content is appended in place, so that n turns cost O(n) and not O(n * n). A document is a
 * table of its fields until the last turn is over. No other part of the body may read it before
 * that.
 */
#include "base/buffer.h"
#include "bson/field_path.h"
#include "query/expression/expression_tree.h"

struct growth {
    struct arena arena;
    /* of an array */
    struct builder builder;
    /* of a string, as a value stores it */
    struct buffer text;
    /* of a document; keys and values are in the arena */
    struct field_table table;
    /* the bytes of its current values */
    size_t live;
    /* the value is in one of the members above */
    bool begun;
};

/* Returns whether the body does nothing else with the variable in `slot`. */
bool truce__growth_possible(const struct expression_node *body, uint32_t slot);

/* Runs one turn: *value is the content of the variable and becomes the body's result. The old
 * content is no longer valid. */
truce_status truce__growth_turn(struct growth *growth, const struct expression_node *body,
                                struct evaluation *run, struct value *value);
/* Returns the value after the last turn. It lives as long as the growth. */
truce_status truce__growth_end(struct growth *growth, struct evaluation *run, struct value *value);
void truce__growth_release(struct growth *growth);

#endif
