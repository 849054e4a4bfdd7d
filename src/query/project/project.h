#ifndef TRUCE_QUERY_PROJECT_PROJECT_H
#define TRUCE_QUERY_PROJECT_PROJECT_H

/* Projections of find and find-and-modify (MongoDB 4.4 and later: expressions allowed). */
#include "query/match/match.h"

struct project;

/* Compiles its own copy of `projection`, which has been checked (truce__document_check). Refuses
 * with MongoDB's codes (31249 to 31254 and their neighbours, those of paths and expressions). May
 * be applied from several threads at once.
 *
 * `match` is the query whose positional element `a.$` shows (may be NULL); borrowed while the
 * projection lives. */
truce_status truce__project_new(const bson_t *projection, const struct match *match,
                                struct project **project, bson_error_t *error);
/* The same for the stage $project, which has no $slice of its own, no $elemMatch and no positional
 * path; expressions may use `variables` (NULL-terminated; NULL: none), whose values stand in
 * context->variables. */
truce_status truce__project_new_stage(const bson_t *projection, const char *const *variables,
                                      struct project **project, bson_error_t *error);
bool truce__project_is_exclusion(const struct project *project);
/* Does it show this field of a document as it is, whatever it is, also if it is missing? */
bool truce__project_keeps(const struct project *project, const char *field, uint32_t length);
void truce__project_free(struct project *project);

/* `found` is what testing the query gave; NULL: it is tested again if the projection wants it.
 * `result` is always initialised; the caller destroys it. Errors are those of expressions, and
 * 51246 and 51247 where the positional path has no element to show. */
truce_status truce__project_apply(const struct project *project, struct value document,
                                  const struct match_result *found, struct query_context *context,
                                  bson_t *result, bson_error_t *error);

/* The same, in context->arena, for a projection that has no positional path. */
truce_status truce__project_show(const struct project *project, struct value document,
                                 struct query_context *context, struct value *result,
                                 bson_error_t *error);

#endif
