#ifndef TRUCE_QUERY_SCHEMA_SCHEMA_H
#define TRUCE_QUERY_SCHEMA_SCHEMA_H

/*
 * $jsonSchema: JSON Schema draft 4 as MongoDB has it: without $ref, $schema, default, definitions,
 * format, id and the type integer; with bsonType.
 */
#include "bson/value.h"

struct budget;
struct schema;

/* The schema borrows from `source`, which must outlive it. Unknown keywords are refused. */
truce_status truce__schema_new(struct value source, struct schema **schema, bson_error_t *error);
void truce__schema_free(struct schema *schema);

/* An error only where a pattern runs into its limit. */
truce_status truce__schema_test(const struct schema *schema, struct value value,
                                struct budget *budget, bool *valid, bson_error_t *error);

#endif
