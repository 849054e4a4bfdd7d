#ifndef TRUCE_QUERY_EXPRESSION_EXPRESSION_H
#define TRUCE_QUERY_EXPRESSION_EXPRESSION_H

/*
 * Aggregation expressions: compiled once, then evaluated for many documents, also from several
 * threads at once. Errors have MongoDB's codes. Constants are computed at compilation, so an error
 * in them comes from truce__expression_new. An evaluation that needs more memory than
 * TRUCE_STAGE_MEMORY_MAX fails with TRUCE_LIMIT (146).
 */
#include "bson/value.h"
#include "query/evaluation_context.h"

struct expression;

/* Compiles a copy of `source`. `variables` (NULL-terminated, or NULL if none exists) names the
 * variables that are defined besides $$ROOT, $$CURRENT, $$NOW, $$REMOVE, and $$CLUSTER_TIME, in the
 * order of evaluate's `values`. */
truce_status truce__expression_new(struct value source, const char *const *variables,
                                   struct expression **expression, bson_error_t *error);
void truce__expression_free(struct expression *expression);

/* Resets the bound on the work that this thread may spend on constants at compilation. Called at
 * the start of each call. */
void truce__expression_fold_again(void);

/* Evaluates for the document `root`. The result lives in context->arena, in `root`, or in the
 * expression; VALUE_MISSING is a result. context->random is needed only for $rand. `error` is
 * untouched on TRUCE_OK. */
truce_status truce__expression_evaluate(const struct expression *expression, struct value root,
                                        const struct value *values, struct query_context *context,
                                        struct value *result, bson_error_t *error);

/* Evaluates with $$CURRENT, where paths start, set to a value within the document: for $redact. */
truce_status truce__expression_evaluate_within(const struct expression *expression,
                                               struct value root, struct value current,
                                               const struct value *values,
                                               struct query_context *context, struct value *result,
                                               bson_error_t *error);

/* Defines the variables of a command: expressions that this thread compiles later have the fields
 * of `values` (borrowed) as constants, after their own variables. NULL means no variables. With
 * `alone`, fields of documents are refused (4890500). */
void truce__let_begin(const bson_t *values, bool alone);
/* Sets only whether fields of documents are refused. Returns the previous setting. */
bool truce__let_alone(bool alone);

/* Sets the value of $$CLUSTER_TIME for expressions that this thread compiles later. With 0, the
 * variable is not available (10071200). */
void truce__cluster_time_begin(uint64_t time);

/* Evaluates {name: expression} to {name: value}, in order. `values` is always initialized. Codes
 * 4890500, 16866, 16867, 16868. Ends the definitions of truce__let_begin. */
truce_status truce__let_evaluate(const bson_t *let, struct query_context *context, bson_t *values,
                                 bson_error_t *error);

/* Checks the name of a variable of the user (16866, 16867, 16868). */
truce_status truce__expression_variable_check(const char *name, size_t length, bson_error_t *error);

/* Returns whether the value is the same for each document, and if so, sets *value. Evaluates
 * nothing. */
bool truce__expression_constant_value(const struct expression *expression, struct value *value);

/* Returns the first field of a path that reads the document (ROOT or CURRENT) and begins with a
 * field that is not in `names` (NULL-terminated), or NULL if there is no such path. */
const char *truce__expression_other_field(const struct expression *expression,
                                          const char *const *names);

#endif
