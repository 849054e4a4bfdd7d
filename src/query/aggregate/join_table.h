#ifndef TRUCE_QUERY_AGGREGATE_JOIN_TABLE_H
#define TRUCE_QUERY_AGGREGATE_JOIN_TABLE_H

/*
 * Documents in memory, found by the values at one path: what a $lookup makes of a collection that
 * has no index there, so as not to look at all of it for every document.
 */
#include "query/aggregate/stage.h"

struct join_table;

/* Reads `foreign` to its end. `*table` is NULL, with TRUCE_OK, where there can be none: the documents
 * have more than `memory_max` bytes, or one of them cannot be indexed by the path. No part of the
 * path is a number: it could name an element or a field. */
truce_status truce__join_table_new(struct stream *foreign, const char *path, size_t memory_max,
                                   struct join_table **table, bson_error_t *error);
size_t truce__join_table_bytes(const struct join_table *table);
void truce__join_table_free(struct join_table *table); /* NULL is allowed */

/* The documents in which the path equals one of `values` (a list), in the order in which they came:
 * those of them that `filter` matches, which says just that. The stream borrows the table. */
truce_status truce__join_table_find(const struct stage_run *run, const struct join_table *table,
                                    const bson_t *values, const bson_t *filter,
                                    struct stream **stream, bson_error_t *error);

#endif
