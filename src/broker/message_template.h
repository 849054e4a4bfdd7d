#ifndef TRUCE_BROKER_MESSAGE_TEMPLATE_H
#define TRUCE_BROKER_MESSAGE_TEMPLATE_H

/*
 * Templates: the mapping from a message to changes of documents.
 *
 *     {key: {student_id: "$body.student_id"}, seq: "$headers.seq", room: {$expr: "$body.room"}}
 *
 * A template is a document or an array. In it,
 *
 *     "$PATH"          is the value at the path of the message; if there is none, the message does
 *                      not fit the template
 *     {$expr: E}       is the value of an aggregation expression; if it has none, the field is
 *                      left out
 *     {$literal: V}    is V, unchanged
 *
 * Every other value stays as it is, also names that begin with "$", such as {$inc: {n: "$body.n"}}.
 *
 * A document with "$expr" and other fields is refused, except in a guard ("if"): there, $expr is an
 * operator of the query.
 *
 * A path begins with the name of a field of the message, also within an expression. A misspelled
 * name fits no message, so it is refused when the template is compiled.
 */
#include "base/arena.h"
#include "base/status.h"

struct template;

/* Compiles a copy of the template. `names` are the fields that a message may have, and NULL at the
 * end; NULL means that they are unknown. Fails with INVALID if an expression is wrong, or a path
 * begins with another name. */
truce_status truce__template_new(const bson_t *source, bool is_array, const char *const *names,
                                 struct template **template, bson_error_t *error);
/* Frees the template. NULL is allowed. */
void truce__template_free(struct template *template);

/* Fills `result`, which is always initialized, for a message. `arena` is scratch memory. Fails with
 * INVALID if a field is missing or an expression fails. */
truce_status truce__template_apply(const struct template *template, const bson_t *message,
                                   struct arena *arena, bson_t *result, bson_error_t *error);

#endif
