#ifndef TRUCE_QUERY_MATCH_MATCH_H
#define TRUCE_QUERY_MATCH_MATCH_H

/*
 * Filters: compiled once, tested against many documents. The compiled form is a tree that the
 * planner of engine/ reads; only match_parse.c makes it.
 *
 *     {a: 1, "b.c": {$gt: 5, $ne: 7}}      AND -+- EQ  a    1
 *                                               +- GT  b.c  5
 *                                               +- NOT --- EQ b.c 7
 *
 * The tree is flat where it can be: no AND directly below an AND, no AND, OR or NOR of nothing, no
 * AND of one; $in of one value is EQ; $ne is NOT over EQ, $nin NOT over IN, {$exists: false} NOT
 * over EXISTS; $all is AND, over EQ and REGEX or over $elemMatch.
 */
#include "bson/path.h"
#include "bson/value.h"
#include "query/context.h"

enum match_kind {
    MATCH_AND,
    MATCH_OR,
    MATCH_NOR,
    MATCH_NOT,  /* over children; NOT has one */
    MATCH_TRUE, /* TRUE, FALSE: no path, no operand */
    MATCH_FALSE,
    MATCH_EQ, /* EQ to GTE: path, operand; EQ null matches missing and undefined too */
    MATCH_LT,
    MATCH_LTE,
    MATCH_GT,
    MATCH_GTE,
    MATCH_IN,     /* path; operands in the order of values, none twice; children: its regexes */
    MATCH_EXISTS, /* path */
    MATCH_TYPE,   /* path, operand as given */
    MATCH_REGEX,  /* path, operand (a regex, or the string given to $regex) */
    MATCH_MOD,    /* path, operand as given */
    MATCH_SIZE,
    MATCH_BITS,
    MATCH_ELEM_OBJECT, /* $elemMatch over documents: path; children, paths relative to the element
                        */
    MATCH_ELEM_VALUE, /* $elemMatch over values: path; children on the element itself, path empty */
    MATCH_EXPR,       /* $expr, operand as given */
    MATCH_SCHEMA,     /* $jsonSchema, operand as given */
    MATCH_GROUP,      /* private to match_parse.c: in no tree */
};

struct match_node {
    enum match_kind kind;
    struct path path;       /* leaves and $elemMatch */
    struct value operand;   /* borrowed from the compiled filter's own copy */
    struct value *operands; /* MATCH_IN */
    uint32_t operands_count;
    struct match_node **children;
    uint32_t children_count;
    void *extra; /* what the kind needs beyond that; private to match_*.c */
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

/* The text that every text matched by a MATCH_REGEX begins with ("^abc.*" has "abc"), for index
 * bounds; false if there is none. `*whole`: all texts with that beginning match. A MATCH_REGEX also
 * matches symbols like texts, and values that are the same regular expression. */
bool truce__match_regex_prefix(const struct match_node *node, const char **prefix, size_t *length,
                               bool *whole);

struct match_result {
    bool matched;
    /* The element of the outermost array on the way that matched, for the positional operators; -1:
     * none. Conditions inside $or, $nor and $not do not count; rule 5 of match.c chooses among
     * several. */
    int64_t array_index;
};

/* An error only where evaluating can fail: $expr, and a regex that runs into its limit. `context`
 * may be NULL if there is no $expr. `document` may be any value if `match` was made by
 * truce__match_value_new or truce__match_elements_new. */
truce_status truce__match_test(const struct match *match, struct value document,
                               struct query_context *context, struct match_result *result,
                               bson_error_t *error);

/* The same for a condition on one value, as $pull has: {$gte: 5} tests the value itself (if it is
 * an array: one of its elements, or the whole), {x: 1} the fields of the value, which must be a
 * document to match. */
truce_status truce__match_value_new(struct value condition, struct match **match,
                                    bson_error_t *error);

/* An array filter: {"i.x": 1, "i.y": {$gt: 2}}, all of whose paths begin with one identifier, which
 * stands for the value that is tested. `identifier` is borrowed from `match`. Refuses a filter
 * without an identifier or with two (9). */
truce_status truce__match_elements_new(const bson_t *filter, struct match **match,
                                       const char **identifier, bson_error_t *error);

/* The equalities that a filter implies ({a: 1, $and: [{b: 2}]} gives a and b): what an upsert
 * starts with, and what a find by `_id` is. Calls back for each; a false answer ends the walk. */
typedef bool match_equality_function(const struct path *path, struct value value, void *arg);
void truce__match_equalities(const struct match *match, match_equality_function *function,
                             void *arg);

#endif
