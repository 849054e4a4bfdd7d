#ifndef TRUCE_QUERY_MATCH_MATCH_TREE_H
#define TRUCE_QUERY_MATCH_MATCH_TREE_H

/* The compiled form of a filter, which only the files of this folder share. */
#include "bson/field_path.h"
#include "query/condition/regex.h"
#include "query/match/match.h"

/* The meaning of the tested value. */
enum match_subject {
    /* The tested value is the document. */
    SUBJECT_DOCUMENT,
    /* The tested value is the field that the first part of each path names. */
    SUBJECT_FIELD,
    /* The conditions have no path: the tested value must equal root->operand as a whole. */
    SUBJECT_EQUAL,
};

struct match {
    /* The copy of the filter, from which the nodes borrow. */
    bson_t *filter;
    struct match_node *root;
    enum match_subject subject;
    /* The identifier of an array filter, or NULL. */
    char *identifier;
};

/* An element of the outermost array on a condition's path. An index of -1 means that the path led
 * through no array. */
struct match_position {
    struct value array;
    int64_t index;
};

/* One test of one document. The first error ends it. */
struct match_run {
    struct query_context *context;
    bson_error_t *error;
    truce_status status;
    /* The position at which the conditions so far have matched. */
    struct match_position position;
    /* Conditions see only this element of the array. */
    struct match_position pinned;
    /* The number of elements that were entered both by name and by number. */
    uint32_t forks;
    struct budget *budget;
    /* The finder of the document's fields. */
    struct field_finder finder;
    /* The hits in the table that is tested: a bit for each child. */
    uint64_t *hits;
};

static inline bool truce__match_sees(const struct match_run *run, struct value array, int64_t index)
{
    return run->pinned.array.data != array.data || run->pinned.index == index;
}

/* Spends the given number of steps. Returns false if the time of the call has expired; the test
 * ends then. */
static inline bool truce__match_spend(struct match_run *run, uint32_t steps)
{
    if (run->status == TRUCE_OK)
        run->status = truce__budget_spend(run->budget, steps, run->error);
    return run->status == TRUCE_OK;
}

/* The types to which `extra` points. */
struct match_types {
    /* The bits truce__type_bit(type) of the types. */
    uint64_t mask;
};

struct match_modulus {
    int64_t divisor, remainder;
};

struct match_size {
    int64_t size;
};

struct match_bits {
    /* True if all of the bits are tested, false if any bit is enough. */
    bool all;
    /* True if the bits must be set, false if they must be clear. */
    bool set;
    uint32_t count;
    uint32_t positions[];
};

/* A table for an AND, OR, or NOR with many equalities (match.c). */
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
    /* The variables that $expr may use, or NULL. */
    const char *const *variables;
    /* The parser is below an $elemMatch, where $expr is refused. */
    bool inside_element;
    /* The filter is a condition of an update, where $expr and $jsonSchema are refused. */
    bool special_banned;
    bson_error_t *error;
};

/* One operator on one path: the element `name: value` of `siblings`. */
struct match_condition {
    const char *path;
    uint32_t path_length;
    const char *name;
    struct value value;
    /* The whole document of operators, or missing. */
    struct value siblings;
};

#endif
