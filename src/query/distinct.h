#ifndef TRUCE_QUERY_DISTINCT_H
#define TRUCE_QUERY_DISTINCT_H

/* Collects the distinct values of a path over many documents. The elements of an array at the end
 * of the path count one by one. If values are equal (1 and 1.0), the first one is used. */
#include "base/budget.h"
#include "bson/dotted_path.h"
#include "bson/value.h"

struct distinct;

truce_status truce__distinct_new(const char *path, struct distinct **distinct, bson_error_t *error);
void truce__distinct_free(struct distinct *distinct);

/* Adds the values of a document. Fails with code 17217 if all values together exceed
 * TRUCE_DOCUMENT_BYTES_MAX. `budget` may be NULL. */
truce_status truce__distinct_add(struct distinct *distinct, struct value document,
                                 struct budget *budget, bson_error_t *error);

/* Makes the array of the values so far, in the order of values. The function initializes `values`;
 * the caller destroys it. */
void truce__distinct_values(const struct distinct *distinct, bson_t *values);

/* Replaces the array `values`, which may come from another server, by its sorted distinct
 * values. */
truce_status truce__distinct_sort(bson_t *values, bson_error_t *error);

#endif
