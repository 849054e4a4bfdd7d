#ifndef TRUCE_QUERY_MATCH_MATCH_TREE_H
#define TRUCE_QUERY_MATCH_MATCH_TREE_H

/* What the files match*.c share. */
#include "bson/field_path.h"
#include "query/condition/regex.h"
#include "query/match/match.h"

/* What the value that is tested stands for. */
enum match_subject {
    SUBJECT_DOCUMENT, /* the document itself */
    SUBJECT_FIELD,    /* the field named by the first part of every path */
    SUBJECT_EQUAL,    /* nothing: it must equal root->operand as a whole */
};

struct match {
    bson_t *filter; /* nodes borrow from it */
    struct match_node *root;
    enum match_subject subject;
    char *identifier; /* of an array filter, or NULL */
};

/* An element of the outermost array on a condition's way; index -1: none. */
struct match_place {
    struct value array;
    int64_t index;
};

/* One test of one document. The first failure ends it. */
struct match_run {
    struct query_context *context;
    bson_error_t *error;
    truce_status status;
    struct match_place place;  /* that the conditions so far have met */
    struct match_place pinned; /* the only element of this array that conditions see */
    uint32_t forks;            /* elements that were entered both by name and by number */
    struct budget *budget;
    struct field_finder finder; /* in the document */
    uint64_t *hits;             /* of the table that is asked: a bit for each child */
};

static inline bool truce__match_sees(const struct match_run *run, struct value array, int64_t index)
{
    return run->pinned.array.data != array.data || run->pinned.index == index;
}

/* For work on so many values; false: the time of the call is over, and so is the test. */
static inline bool truce__match_spend(struct match_run *run, uint32_t steps)
{
    if (run->status == TRUCE_OK)
        run->status = truce__budget_spend(run->budget, steps, run->error);
    return run->status == TRUCE_OK;
}

/* what `extra` points to */
struct match_types {
    uint64_t mask; /* bit truce__type_bit(type) */
};

struct match_modulus {
    int64_t divisor, remainder;
};

struct match_size {
    int64_t size;
};

struct match_bits {
    bool all; /* all of the bits, or any of them ... */
    bool set; /* ... are set, or clear */
    uint32_t count;
    uint32_t positions[];
};

/* Of an AND, OR or NOR with many equalities: match_parse.c. */
struct match_table;

/* How the node is tested by its table; `test` as for its children. */
typedef bool match_node_test(const struct match_node *node, struct value value,
                             struct match_run *run);
bool truce__match_table_any(const struct match_node *node, struct value value,
                            match_node_test *test, struct match_run *run);
/* Of an AND: do the children of its groups hold? Those that are direct remain to be tested. */
bool truce__match_table_holds(const struct match_node *node, struct value value,
                              match_node_test *test, struct match_run *run);
bool truce__match_table_is_direct(const struct match_table *table, uint32_t child);
/* one element against all equalities of one path */
bool truce__match_group_test(const struct match_node *group, struct value value,
                             struct match_run *run);

/* Is it an operator that stands below a path ($gt), or in the place of one ($and)? */
bool truce__match_is_operator(const char *name);

struct match_parser {
    const char *const *variables; /* for $expr */
    bool inside_element;          /* below $elemMatch: no $expr */
    bool special_banned;          /* no $expr, no $jsonSchema: conditions of updates */
    bson_error_t *error;
};

/* one operator on one path: the element `name: value` of `siblings` */
struct match_condition {
    const char *path;
    uint32_t path_length;
    const char *name;
    struct value value;
    struct value siblings; /* the whole operator document; or missing */
};

truce_status truce__match_leaf_new(const struct match_parser *parser, enum match_kind kind,
                                   const struct match_condition *condition,
                                   struct match_node **node);

truce_status truce__match_parse_regex(struct match_parser *parser,
                                      const struct match_condition *condition,
                                      struct match_node **node);
truce_status truce__match_parse_options(struct match_parser *parser,
                                        const struct match_condition *condition,
                                        struct match_node **node);
/* a regular expression as a value */
truce_status truce__match_regex_new(struct match_parser *parser,
                                    const struct match_condition *condition,
                                    struct match_node **node);

#endif
