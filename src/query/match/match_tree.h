#ifndef TRUCE_QUERY_MATCH_MATCH_TREE_H
#define TRUCE_QUERY_MATCH_MATCH_TREE_H

/* The compiled form of a filter, which only the files of this folder share. */
#include "bson/field_path.h"
#include "query/condition/regex.h"
#include "query/match/match.h"

/* The meaning of the tested value. */
enum match_subject {
    /* The document itself. */
    SUBJECT_DOCUMENT,
    /* The field named by the first part of each path. */
    SUBJECT_FIELD,
    /* No path: the value must equal root->operand as a whole. */
    SUBJECT_EQUAL,
};

struct match {
    /* Nodes borrow from it. */
    bson_t *filter;
    struct match_node *root;
    enum match_subject subject;
    /* The identifier of an array filter, or NULL. */
    char *identifier;
};

/* An element of the outermost array on a condition's path; index -1: none. */
struct match_place {
    struct value array;
    int64_t index;
};

/* One test of one document. The first error ends it. */
struct match_run {
    struct query_context *context;
    bson_error_t *error;
    truce_status status;
    /* Where the conditions so far matched. */
    struct match_place place;
    /* Conditions see only this element of the array. */
    struct match_place pinned;
    /* The number of elements that were entered both by name and by number. */
    uint32_t forks;
    struct budget *budget;
    /* For the document. */
    struct field_finder finder;
    /* The hits in the table that is tested: a bit for each child. */
    uint64_t *hits;
};

static inline bool truce__match_sees(const struct match_run *run, struct value array, int64_t index)
{
    return run->pinned.array.data != array.data || run->pinned.index == index;
}

/* Spends the steps of work on so many values. Returns false if the time of the call has expired;
 * the test ends then. */
static inline bool truce__match_spend(struct match_run *run, uint32_t steps)
{
    if (run->status == TRUCE_OK)
        run->status = truce__budget_spend(run->budget, steps, run->error);
    return run->status == TRUCE_OK;
}

/* The types to which `extra` points. */
struct match_types {
    /* Bit truce__type_bit(type). */
    uint64_t mask;
};

struct match_modulus {
    int64_t divisor, remainder;
};

struct match_size {
    int64_t size;
};

struct match_bits {
    /* All of the bits are tested, or any of them. */
    bool all;
    /* The bits must be set, or clear. */
    bool set;
    uint32_t count;
    uint32_t positions[];
};

/* The table of an AND, OR, or NOR with many equalities (match.c). */
struct match_table;
/* Returns NULL if there are too few equalities. `node` must have its final children. */
struct match_table *truce__match_table_new(const struct match_node *node);
void truce__match_table_free(struct match_table *table);

/* Tests a child of a node with a table. */
typedef bool match_node_test(const struct match_node *node, struct value value,
                             struct match_run *run);

/* Returns whether the name is an operator below a path ($gt) or in the place of a path ($and). */
bool truce__match_is_operator(const char *name);

struct match_parser {
    /* For $expr. */
    const char *const *variables;
    /* Below $elemMatch: $expr is refused. */
    bool inside_element;
    /* $expr and $jsonSchema are refused: conditions of updates */
    bool special_banned;
    bson_error_t *error;
};

/* One operator on one path: the element `name: value` of `siblings`. */
struct match_condition {
    const char *path;
    uint32_t path_length;
    const char *name;
    struct value value;
    /* The whole operator document; or missing. */
    struct value siblings;
};

#endif
