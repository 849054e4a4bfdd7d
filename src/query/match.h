#ifndef TRUCE_QUERY_MATCH_H
#define TRUCE_QUERY_MATCH_H

/*
 * Filters: compiled once, tested against many documents. The compiled form is a tree that the
 * planner of engine/ reads; only match.c makes it.
 */
#include "query/context.h"
#include "query/path.h"
#include "query/value.h"

enum match_kind {
    MATCH_AND,
    MATCH_OR,
    MATCH_NOR,
    MATCH_NOT, /* over children; NOT has one */
    MATCH_TRUE,
    MATCH_FALSE, /* no path, no operand */
    MATCH_EQ,
    MATCH_LT,
    MATCH_LTE,
    MATCH_GT,
    MATCH_GTE, /* path, operand ($ne is NOT over EQ) */
    MATCH_IN,  /* path, operands sorted by value, regexes apart */
    MATCH_EXISTS,
    MATCH_TYPE,
    MATCH_REGEX,
    MATCH_MOD,
    MATCH_SIZE,
    MATCH_BITS,
    MATCH_ALL_ELEMENTS, /* $all of $elemMatch; $all of values is AND of EQ */
    MATCH_ELEM_OBJECT,  /* $elemMatch over documents: children on the element */
    MATCH_ELEM_VALUE,   /* $elemMatch over values: children on "" */
    MATCH_EXPR,
    MATCH_SCHEMA,
};

struct match_node {
    enum match_kind kind;
    struct path path;             /* leaves and $elemMatch; relative inside $elemMatch */
    struct value operand;         /* borrowed from the compiled filter's own copy */
    const struct value *operands; /* MATCH_IN */
    uint32_t operands_count;
    struct match_node **children;
    uint32_t children_count;
    void *extra; /* regex, schema, expression ...; private to match.c */
};

struct match;

/* Compiles its own copy of `filter` (NULL: matches everything). `error` names path and operator.
 * The match may be tested from several threads at once. */
truce_status truce__match_new(const bson_t *filter, struct match **match, bson_error_t *error);
/* The same inside of a $lookup: $expr may name `variables` (NULL-terminated), whose values stand in
 * context->variables when the match is tested. */
truce_status truce__match_new_with_variables(const bson_t *filter, const char *const *variables,
                                             struct match **match, bson_error_t *error);
void truce__match_free(struct match *match);

const struct match_node *truce__match_root(const struct match *match);
const bson_t *truce__match_filter(const struct match *match);

struct match_result {
    bool matched;
    int64_t
        array_index; /* of the array element that matched, for the positional operators; -1: none */
};

/* An error only where evaluating can fail ($expr). `context` may be NULL if there is no $expr. */
truce_status truce__match_test(const struct match *match, struct value document,
                               struct query_context *context, struct match_result *result,
                               bson_error_t *error);

/* The same for a condition on one value, as $pull, arrayFilters and $elemMatch projections have:
 * `{$gte: 5}` tests the value itself, `{x: 1}` the fields of the value. */
truce_status truce__match_value_new(struct value condition, struct match **match,
                                    bson_error_t *error);

/* The equalities that a filter implies ({a: 1, $and: [{b: 2}]} gives a and b): what an upsert
 * starts with, and what a find by `_id` is. Calls back for each; a false answer ends the walk. */
typedef bool match_equality_function(const struct path *path, struct value value, void *arg);
void truce__match_equalities(const struct match *match, match_equality_function *function,
                             void *arg);

#endif
