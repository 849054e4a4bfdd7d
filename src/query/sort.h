#ifndef TRUCE_QUERY_SORT_H
#define TRUCE_QUERY_SORT_H

/* Sorting: the order of a sort specification, and a sorter with a limit. */
#include "query/context.h"
#include "query/path.h"
#include "query/value.h"

struct sort_field {
    struct path path;
    bool descending;
};

struct sort {
    uint32_t count;
    struct sort_field *fields;
};

/* Refuses what MongoDB refuses (values but 1, -1 and {$meta}); `$natural` is for the caller. */
truce_status truce__sort_parse(const bson_t *specification, struct sort *sort, bson_error_t *error);
void truce__sort_release(struct sort *sort);

/* A document's key: encoded (query/keys.h) so that memcmp of two keys is the order. An array sorts
 * by its least element ascending and its greatest descending. Appends to `key`. */
struct buffer;
truce_status truce__sort_key(const struct sort *sort, struct value document, struct buffer *key,
                             bson_error_t *error);

#endif
