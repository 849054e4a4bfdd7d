#ifndef TRUCE_QUERY_PROJECT_ADDITION_H
#define TRUCE_QUERY_PROJECT_ADDITION_H

/* Fields that are added to a document: the stage $set ($addFields). */
#include "bson/value.h"
#include "query/context.h"

struct addition;

/* {a: <expression>, "b.c": <expression>, d: {e: <expression>}}; expressions may use `variables`
 * (NULL-terminated; NULL: none). Codes 40176, 40180, 40181, 40183, and those of field paths. */
truce_status truce__addition_new(struct value specification, const char *const *variables,
                                 struct addition **addition, bson_error_t *error);
/* Does it add this field of a document, or something within it? */
bool truce__addition_has(const struct addition *addition, const char *field, uint32_t length);
void truce__addition_free(struct addition *addition);

/* The document with the fields, in context->arena. `places` is the document itself, or one of which
 * it has lost fields: one of those that is added again comes to where it stood there. */
truce_status truce__addition_apply(const struct addition *addition, struct value document,
                                   struct value places, struct query_context *context,
                                   struct value *result, bson_error_t *error);

#endif
