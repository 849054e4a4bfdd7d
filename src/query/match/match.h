#ifndef TRUCE_QUERY_MATCH_MATCH_H
#define TRUCE_QUERY_MATCH_MATCH_H

/*
 * Filters: compiled once, tested against many documents. The compiled form is a tree that the
 * planner in engine/ reads. Only match_parse.c makes it.
 *
 *     {a: 1, "b.c": {$gt: 5, $ne: 7}}      AND -+- EQ  a    1
 *                                               +- GT  b.c  5
 *                                               +- NOT --- EQ b.c 7
 *
 * The tree is as flat as possible: it has no AND directly below an AND, no AND, OR, or NOR without
 * children, and no AND with one child. $in with one value becomes EQ, $ne NOT over EQ, $nin NOT
 * over IN, and {$exists: false} NOT over EXISTS. $all becomes AND over EQ and REGEX, or over
 * $elemMatch.
 */
#include "bson/dotted_path.h"
#include "bson/value.h"
#include "query/evaluation_context.h"

enum match_kind {
    MATCH_AND,
    MATCH_OR,
    MATCH_NOR,
    /* The kinds from AND to NOT have children. NOT has one child. */
    MATCH_NOT,
    /* TRUE and FALSE have neither a path nor an operand. */
    MATCH_TRUE,
    MATCH_FALSE,
    /* The kinds from EQ to GTE have a path and an operand. EQ null also matches missing and
     * undefined. */
    MATCH_EQ,
    MATCH_LT,
    MATCH_LTE,
    MATCH_GT,
    MATCH_GTE,
    /* IN has a path, and operands in the order of values, without duplicates. Its children are its
     * regular expressions. */
    MATCH_IN,
    /* EXISTS has a path. */
    MATCH_EXISTS,
    /* TYPE has a path, and the operand as given. */
    MATCH_TYPE,
    /* REGEX has a path, and as operand a regular expression or the string of $regex. */
    MATCH_REGEX,
    /* MOD, SIZE, and BITS have a path, and the operand as given. */
    MATCH_MOD,
    MATCH_SIZE,
    MATCH_BITS,
    /* $elemMatch over documents has a path, and children with paths relative to the element. */
    MATCH_ELEM_OBJECT,
    /* $elemMatch over values has a path, and children that test the element itself, with an empty
     * path. */
    MATCH_ELEM_VALUE,
    /* $expr has the operand as given. */
    MATCH_EXPR,
    /* $jsonSchema has the operand as given. */
    MATCH_SCHEMA,
    /* A group of equalities (match.c). No tree contains such a node. */
    MATCH_GROUP,
};

struct match_node {
    enum match_kind kind;
    /* The path of a leaf or of $elemMatch. */
    struct path path;
    /* The operand, borrowed from the copy of the filter in struct match. */
    struct value operand;
    /* The operands of MATCH_IN. */
    struct value *operands;
    uint32_t operands_count;
    struct match_node **children;
    uint32_t children_count;
    /* Further data of the kind; private to the files of this folder. */
    void *extra;
};

struct match;

/* Compiles a copy of `filter` (NULL matches every document). `error` names path and
 * operator. Several threads may test with the result at once. */
truce_status truce__match_new(const bson_t *filter, struct match **match, bson_error_t *error);
/* Compiles a filter inside of a $lookup: $expr may use `variables` (NULL-terminated). Their values
 * must be in context->variables when the filter is tested. */
truce_status truce__match_new_with_variables(const bson_t *filter, const char *const *variables,
                                             struct match **match, bson_error_t *error);
void truce__match_free(struct match *match);

const struct match_node *truce__match_root(const struct match *match);
const bson_t *truce__match_filter(const struct match *match);

/* Returns the prefix of all strings that a MATCH_REGEX matches ("^abc.*" has "abc"), for index
 * bounds. Returns false if it has none. Sets `*whole` if all strings with this prefix match. A
 * MATCH_REGEX also matches symbols like strings, and values that are the same regular
 * expression. */
bool truce__match_regex_prefix(const struct match_node *node, const char **prefix, size_t *length,
                               bool *whole);

struct match_result {
    bool matched;
    /* The element of the outermost array on the path that matched, for the positional operators, or
     * -1 if the path led through no array. Conditions inside $or, $nor, and $not do not count. Rule
     * 5 of match.c chooses among several. */
    int64_t array_index;
};

/* Tests a document. Fails only if an $expr fails, a regex exceeds its limit, or the time has
 * expired. `context` may be NULL if there is no $expr. `document` may be any value if `match` was
 * made by truce__match_value_new or truce__match_elements_new. */
truce_status truce__match_test(const struct match *match, struct value document,
                               struct query_context *context, struct match_result *result,
                               bson_error_t *error);

/* Compiles a condition on one value, as $pull has it. {$gte: 5} tests the value itself; if the
 * value is an array, one of its elements or the whole. {x: 1} tests the fields of the value, which
 * must be a document to match. */
truce_status truce__match_value_new(struct value condition, struct match **match,
                                    bson_error_t *error);

/* Compiles an array filter: {"i.x": 1, "i.y": {$gt: 2}}. All of its paths begin with one
 * identifier, which is a name for the tested value. `identifier` is borrowed from `match`. A
 * filter with no identifier or with two is refused (9). */
truce_status truce__match_elements_new(const bson_t *filter, struct match **match,
                                       const char **identifier, bson_error_t *error);

/* Reports the equalities that a filter implies ({a: 1, $and: [{b: 2}]} implies a and b): an
 * upsert starts with them, and they show a find by `_id`. The walk ends when the function
 * returns false. */
typedef bool match_equality_function(const struct path *path, struct value value, void *arg);
void truce__match_equalities(const struct match *match, match_equality_function *function,
                             void *arg);

#endif
