#ifndef TRUCE_QUERY_PROJECT_PROJECT_TREE_H
#define TRUCE_QUERY_PROJECT_PROJECT_TREE_H

/*
 * The compiled form of a projection: a tree of names. Only project_parse.c and project.c use it;
 * the first makes it, the second walks it along with a document.
 *
 *     {"a.b": 1, c: {$slice: 2}, n: {$add: ["$x", 1]}}
 *
 *     root ── _id  include          (added: an inclusion shows `_id` by default)
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
    /* The name, NUL-terminated. */
    const char *name;
    uint32_t length;
    enum project_kind kind;
    /* The path ends in ".$" here or below. */
    bool positional;
    union {
        struct project_node *node;
        struct expression *expression;
        /* The condition {field: {$elemMatch: ...}}, compiled for the document. */
        struct match *match;
        struct {
            int64_t skip, limit;
            /* The form was [skip, limit]. Otherwise a negative `limit` counts from the end. */
            bool has_skip;
        } slice;
    } as;
};

struct project_node {
    /* The branches, in the order of the projection. */
    struct project_branch *branches;
    uint32_t count, room;
    /* The branches by name. Made at the end of the compilation. */
    const struct project_branch **sorted;
    /* The names of the branches, in their order. Used only while parsing. */
    struct field_table names;
    /* A branch of this node, or of a node below, is computed. */
    bool computed;
};

struct project {
    struct arena memory;
    bson_t *source;
    const struct match *match;
    /* The variables that expressions may use. Used only while parsing. */
    const char *const *variables;
    /* The projection belongs to a $project stage, which refuses the operators of find. */
    bool stage;
    bool inclusion;
    bool positional;
    struct project_node root;
};

truce_status truce__project_parse(struct project *project, bson_error_t *error);
const struct project_branch *truce__project_find(const struct project_node *node, const char *name,
                                                 uint32_t length);

#endif
