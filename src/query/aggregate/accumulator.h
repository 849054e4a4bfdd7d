#ifndef TRUCE_QUERY_AGGREGATE_ACCUMULATOR_H
#define TRUCE_QUERY_AGGREGATE_ACCUMULATOR_H

/*
 * Accumulators: {total: {$sum: "$n"}, all: {$push: "$x"}}, as in $group and $bucketAuto.
 *
 * A list of accumulators is compiled once. Each group has one block of state for the whole list:
 * `state_size` zeroed bytes. Further memory comes from an arena that all groups share. Values are
 * not freed one by one, and no pointer from outside points into a state.
 *
 *     inputs of a document (evaluated)  ──add──>  state  ──finish──>  {total: 7, all: [...]}
 *
 * A state can be saved and loaded again, for groups that do not fit into memory.
 */
#include "base/buffer.h"
#include "bson/builder.h"
#include "query/evaluation_context.h"

struct accumulator;

struct accumulators {
    struct accumulator *items;
    uint32_t count;
    size_t state_size;
};

/* The input of one accumulator from one document: a value and, for $top and its variants, a sort
 * key. */
struct accumulator_input {
    struct value value;
    /* A sort key: `data` and `size` are its bytes, and `type` is unused. */
    struct value key;
};

/* Parses one field of a $group, `name: {$sum: ...}`. Errors have MongoDB's codes: 40234 to 40238,
 * 15952, 5787900 ... */
truce_status truce__accumulators_add_field(struct accumulators *list, const char *name,
                                           size_t length, struct value specification,
                                           const char *const *variables, bson_error_t *error);
void truce__accumulators_release(struct accumulators *list);

/* Prepares a zeroed state. `id` is the id of the group, on which an `n` may depend. */
truce_status truce__accumulators_begin(const struct accumulators *list, void *states,
                                       struct value id, struct query_context *context,
                                       bson_error_t *error);
/* Evaluates the `count` inputs of a document. They live as long as the document and context->arena.
 * `keys` is scratch memory. */
truce_status truce__accumulators_evaluate(const struct accumulators *list, struct value document,
                                          struct query_context *context, struct buffer *keys,
                                          struct accumulator_input *inputs, bson_error_t *error);
/* Evaluates and adds a document's inputs, one accumulator after the other. The group must be
 * known. */
truce_status truce__accumulators_take(const struct accumulators *list, void *states,
                                      struct value document, struct arena *arena,
                                      struct query_context *context, struct buffer *keys,
                                      bson_error_t *error);
truce_status truce__accumulators_add(const struct accumulators *list, void *states,
                                     const struct accumulator_input *inputs, struct arena *arena,
                                     struct query_context *context, bson_error_t *error);
/* Appends the fields of the result to a document under construction. */
truce_status truce__accumulators_finish(const struct accumulators *list, const void *states,
                                        struct query_context *context, struct builder *builder,
                                        bson_error_t *error);

/* These functions save inputs and states as bytes. `load` adds them to a state that has begun, and
 * moves *at forward. */
void truce__accumulators_save_inputs(const struct accumulators *list,
                                     const struct accumulator_input *inputs, struct buffer *bytes);
void truce__accumulators_load_inputs(const struct accumulators *list,
                                     struct accumulator_input *inputs, const uint8_t **at);
void truce__accumulators_save(const struct accumulators *list, const void *states,
                              struct buffer *bytes);
truce_status truce__accumulators_load(const struct accumulators *list, void *states,
                                      const uint8_t **at, struct arena *arena,
                                      struct query_context *context, bson_error_t *error);

/* Saves a value as bytes: type 1, size 4, data. */
void truce__value_save(struct value value, struct buffer *bytes);
struct value truce__value_load(const uint8_t **at);

#endif
