#ifndef TRUCE_QUERY_PROJECT_PROJECT_TREE_H
#define TRUCE_QUERY_PROJECT_PROJECT_TREE_H

/*
 * The compiled form of a projection: a tree of names. Private to query/project*.c; project_parse.c
 * makes it, project.c walks it along with a document.
 *
 *     {"a.b": 1, c: {$slice: 2}, n: {$add: ["$x", 1]}}
 *
 *     root ── _id  include          (added: an inclusion shows `_id` unless told otherwise)
 *         ├── a    node ── b  include
 *         ├── c    slice 2
 *         └── n    computed
 */
#include "base/arena.h"
#include "bson/field_path.h"
#include "query/expression/expression.h"
#include "query/project/project.h"

enum project_kind {
    PROJECT_NODE,
    PROJECT_INCLUDE,
    PROJECT_EXCLUDE,
    PROJECT_SLICE,
    PROJECT_COMPUTED,
    PROJECT_ELEM_MATCH,
};

struct project_node;

struct project_branch {
    const char *name; /* NUL-terminated */
    uint32_t length;
    enum project_kind kind;
    bool positional; /* the path ends in ".$" here or below */
    union {
        struct project_node *node;
        struct expression *expression;
        struct match *match; /* {field: {$elemMatch: ...}} over the document */
        struct {
            int64_t skip, limit;
            bool has_skip;
        } slice;
    } as;
};

struct project_node {
    struct project_branch *branches; /* in the order of the projection */
    uint32_t count, room;
    const struct project_branch **sorted; /* by name; made at the end */
    struct field_table names;             /* of the branches, in their order; while parsing */
    bool computed;                        /* some branch at or below it is computed */
};

struct project {
    struct arena memory;
    bson_t *source;
    const struct match *match;
    const char *const *variables; /* that expressions may use; while parsing only */
    bool stage;                   /* $project: nothing that is find's alone */
    bool inclusion;
    bool positional;
    struct project_node root;
};

truce_status truce__project_parse(struct project *project, bson_error_t *error);
const struct project_branch *truce__project_find(const struct project_node *node, const char *name,
                                                 uint32_t length);

#endif
