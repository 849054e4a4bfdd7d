#ifndef TRUCE_QUERY_SCHEMA_SCHEMA_H
#define TRUCE_QUERY_SCHEMA_SCHEMA_H

/* $jsonSchema: JSON Schema draft 4 as in MongoDB: without $ref, $schema, default, definitions,
 * format, id, and the type integer; with bsonType. */
#include "bson/value.h"

struct budget;
struct schema;

/* Compiles a schema, which borrows from `source`. Unknown keywords are refused. */
truce_status truce__schema_new(struct value source, struct schema **schema, bson_error_t *error);
void truce__schema_free(struct schema *schema);

/* Tests a value. Fails only if a pattern exceeds its limit or the time has expired. */
truce_status truce__schema_test(const struct schema *schema, struct value value,
                                struct budget *budget, bool *valid, bson_error_t *error);

#endif
