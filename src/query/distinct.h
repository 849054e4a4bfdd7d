#ifndef TRUCE_QUERY_DISTINCT_H
#define TRUCE_QUERY_DISTINCT_H

/* The distinct values of a path over many documents: the elements of an array at its end count one
 * by one, each value is kept as it was first seen. */
#include "base/budget.h"
#include "bson/path.h"
#include "bson/value.h"

struct distinct;

truce_status truce__distinct_new(const char *path, struct distinct **distinct, bson_error_t *error);
void truce__distinct_free(struct distinct *distinct);

/* Code 17217: the values together are beyond TRUCE_DOCUMENT_BYTES_MAX. `budget` may be NULL. */
truce_status truce__distinct_add(struct distinct *distinct, struct value document,
                                 struct budget *budget, bson_error_t *error);

/* The array of the values so far; initialised here, the caller destroys it. */
void truce__distinct_values(const struct distinct *distinct, bson_t *values);

#endif
