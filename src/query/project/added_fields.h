#ifndef TRUCE_QUERY_PROJECT_ADDED_FIELDS_H
#define TRUCE_QUERY_PROJECT_ADDED_FIELDS_H

/* Fields that are added to a document: the stage $set ($addFields). */
#include "bson/value.h"
#include "query/evaluation_context.h"

struct addition;

/* Compiles {a: <expression>, "b.c": <expression>, d: {e: <expression>}}. Expressions may use
 * `variables` (NULL-terminated, or NULL). Codes 40176, 40180, 40181, 40183, and those of field
 * paths. */
truce_status truce__addition_new(struct value specification, const char *const *variables,
                                 struct addition **addition, bson_error_t *error);
/* Returns whether the addition sets this field of a document, or a field within it. */
bool truce__addition_has(const struct addition *addition, const char *field, uint32_t length);
void truce__addition_free(struct addition *addition);

/* Returns the document with the added fields, in context->arena. `existing` is the document itself,
 * or an earlier form of it with more fields: a field that is removed there and added here gets its
 * old place. */
truce_status truce__addition_apply(const struct addition *addition, struct value document,
                                   struct value existing, struct query_context *context,
                                   struct value *result, bson_error_t *error);

#endif
