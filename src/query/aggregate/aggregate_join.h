#ifndef TRUCE_QUERY_AGGREGATE_AGGREGATE_JOIN_H
#define TRUCE_QUERY_AGGREGATE_AGGREGATE_JOIN_H

/*
 * Documents in memory, found by the values at one path: what a $lookup makes of a collection that
 * has no index there, so as not to look at all of it for every document.
 */
#include "query/aggregate/stage.h"

struct join_table;

void truce__join_table_free(struct join_table *table); /* NULL is allowed */

/*
 * The documents of another collection in which a path equals one of some values: what $lookup asks for each document, and
 * $graphLookup for each depth.
 *
 * A collection without an index at the path is read into a table (aggregate_join.h) when it is asked for the third time, and
 * from then on the documents are found there.
 */

struct join_values {
    bson_t list;
    uint32_t count;
};
#define JOIN_VALUES_NONE                                                                           \
    {                                                                                              \
        .list = BSON_INITIALIZER                                                                   \
    }

void truce__join_add(struct join_values *values, struct value value);
/* All values at the path: through arrays, and the elements of one at its end. */
void truce__join_collect(struct join_values *values, struct value document,
                         const struct path *path);

/* Compiled. Zero-initialise; release frees. */
struct join_on {
    char *from, *path; /* of the collection; in its documents */
    bool is_numbered;  /* some part of the path is a number: it could name an element or a field */
};

truce_status truce__join_on_path(struct join_on *on, struct value path, bson_error_t *error);
void truce__join_on_release(struct join_on *on);

/* Of one run. Zero-initialise; release frees, when no stream of it is open any more. */
struct join_finder {
    uint64_t finds;           /* so far */
    struct join_table *table; /* NULL: none, or not yet */
};

truce_status truce__join_find(struct join_finder *finder, const struct join_on *on,
                              const struct stage_run *run, const struct join_values *values,
                              struct stream **found, bson_error_t *error);
size_t truce__join_finder_bytes(const struct join_finder *finder);
void truce__join_finder_release(struct join_finder *finder);

#endif
