#ifndef TRUCE_QUERY_AGGREGATE_AGGREGATE_LOOKUP_H
#define TRUCE_QUERY_AGGREGATE_AGGREGATE_LOOKUP_H

/*
 * Finding the documents of another collection in which a path equals one of some values: for
 * $lookup once per document, for $graphLookup once per depth.
 *
 * A collection without an index at the path is read into a table in memory at the third query. The
 * table then serves this and all later queries.
 */
#include "query/aggregate/stage.h"

struct join_table;

/* A set of values to look up. */
struct join_values {
    bson_t list;
    uint32_t count;
};
#define JOIN_VALUES_NONE                                                                           \
    {                                                                                              \
        .list = BSON_INITIALIZER                                                                   \
    }

void truce__join_add(struct join_values *values, struct value value);
/* Collects all values at the path: through arrays, and also the elements of an array at its end. */
void truce__join_collect(struct join_values *values, struct value document,
                         const struct path *path);

/* The compiled form of a join. The caller zeroes the struct, and releases it. */
struct join_on {
    /* `from` is the collection, and `path` the path in its documents. */
    char *from, *path;
    /* Some part of the path is a number, which could name an element or a field. */
    bool is_numbered;
};

truce_status truce__join_on_path(struct join_on *on, struct value path, bson_error_t *error);
void truce__join_on_release(struct join_on *on);

/* The state of one run. The caller zeroes the struct, and releases it after all of its streams are
 * closed. */
struct join_finder {
    /* The number of queries so far. */
    uint64_t finds;
    /* The table of the collection, or NULL if none was made. */
    struct join_table *table;
};

truce_status truce__join_find(struct join_finder *finder, const struct join_on *on,
                              const struct stage_run *run, const struct join_values *values,
                              struct stream **found, bson_error_t *error);
size_t truce__join_finder_bytes(const struct join_finder *finder);
void truce__join_finder_release(struct join_finder *finder);

#endif
