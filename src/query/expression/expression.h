#ifndef TRUCE_QUERY_EXPRESSION_EXPRESSION_H
#define TRUCE_QUERY_EXPRESSION_EXPRESSION_H

/*
 * Aggregation expressions: compiled once, evaluated for many documents, from several threads at
 * once if need be. Errors have MongoDB's codes; constants are computed while compiling, so an error
 * in them comes from truce__expression_new. TRUCE_LIMIT (146) when one evaluation takes more than
 * TRUCE_STAGE_MEMORY_MAX.
 */
#include "bson/value.h"
#include "query/context.h"

struct expression;

/* `source` is copied. Variables that may be used besides $$ROOT, $$CURRENT, $$NOW and $$REMOVE are
 * named by `variables` (NULL-terminated; NULL: none), in the order of evaluate's `values`. */
truce_status truce__expression_new(struct value source, const char *const *variables,
                                   struct expression **expression, bson_error_t *error);
void truce__expression_free(struct expression *expression);

/* What constants a thread may compute while compiling is bounded; from here on it is anew: another call. */
void truce__expression_fold_anew(void);

/* The result lives in context->arena, in `root` or in the expression; VALUE_MISSING is a result. Of
 * the context, `random` is needed for $rand only. `error` is untouched on TRUCE_OK. */
truce_status truce__expression_evaluate(const struct expression *expression, struct value root,
                                        const struct value *values, struct query_context *context,
                                        struct value *result, bson_error_t *error);

/* The same with $$CURRENT, which paths start from, set to something within the document: $redact.
 */
truce_status truce__expression_evaluate_within(const struct expression *expression,
                                               struct value root, struct value current,
                                               const struct value *values,
                                               struct query_context *context, struct value *result,
                                               bson_error_t *error);

/* The variables of a command: what this thread compiles from here on has the fields of `values` (borrowed) as constants,
 * behind the variables of its own; NULL: none. `alone`: fields of documents are refused (4890500). */
void truce__let_begin(const bson_t *values, bool alone);
/* Only that they are refused; what was so before. */
bool truce__let_alone(bool alone);

/* What this thread compiles from here on has this timestamp as $$CLUSTER_TIME; 0: the variable is not available (10071200). */
void truce__cluster_time_begin(uint64_t time);

/* {name: expression} as {name: value}, one behind the other; `values` is initialised in any case. 4890500, 16866, 16867,
 * 16868. Ends what was begun. */
truce_status truce__let_evaluate(const bson_t *let, struct query_context *context, bson_t *values,
                                 bson_error_t *error);

/* A variable that the user names: checks the name (16866, 16867, 16868). */
truce_status truce__expression_variable_check(const char *name, size_t length, bson_error_t *error);

/* True if it is the same for every document (then without evaluating it). */
bool truce__expression_constant_value(const struct expression *expression, struct value *value);

#endif
