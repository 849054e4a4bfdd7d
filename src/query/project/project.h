#ifndef TRUCE_QUERY_PROJECT_PROJECT_H
#define TRUCE_QUERY_PROJECT_PROJECT_H

/* Projections of find and of find-and-modify (as in MongoDB 4.4 and later, with expressions). */
#include "query/match/match.h"

struct project;

/* Compiles a copy of `projection`, which has been checked (truce__document_check). Refuses with
 * MongoDB's codes (31249 to 31254 and others, those of paths and expressions). Several threads may
 * apply the projection at once. `match` is the query whose positional element `a.$` shows (may be
 * NULL). It is borrowed as long as the projection lives. */
truce_status truce__project_new(const bson_t *projection, const struct match *match,
                                struct project **project, bson_error_t *error);
/* Compiles the projection of a stage $project, which has no $slice for arrays, no $elemMatch, and
 * no positional path. Expressions may use `variables` (NULL-terminated, or NULL), whose values are
 * in context->variables. */
truce_status truce__project_new_stage(const bson_t *projection, const char *const *variables,
                                      struct project **project, bson_error_t *error);
bool truce__project_is_exclusion(const struct project *project);
/* Returns whether the projection leaves this field of each document unchanged, also if it is
 * missing. */
bool truce__project_keeps(const struct project *project, const char *field, uint32_t length);
void truce__project_free(struct project *project);

/* Applies a projection. `found` is the result of testing the query. If it is NULL, the query is
 * tested again if the projection needs it. `result` is always initialized; the caller destroys it.
 * Errors are those of expressions, and 51246 and 51247 if a positional path has no element to
 * show. */
truce_status truce__project_apply(const struct project *project, struct value document,
                                  const struct match_result *found, struct query_context *context,
                                  bson_t *result, bson_error_t *error);

/* Applies a projection without a positional path. The result is in context->arena. */
truce_status truce__project_show(const struct project *project, struct value document,
                                 struct query_context *context, struct value *result,
                                 bson_error_t *error);

#endif
