#ifndef TRUCE_QUERY_PROJECT_FIND_RESULT_H
#define TRUCE_QUERY_PROJECT_FIND_RESULT_H

/* The result of a find for one document, if not the document itself: a projection, the key in the
 * index that the find uses, or the number of the record. */
#include "query/index/index_span.h"
#include "query/project/project.h"

struct find_result_options {
    /* The projection. NULL or {} means none. */
    const bson_t *projection;
    /* The query, as in truce__project_new. */
    const struct match *match;
    /* Show only the key in `index`. */
    bool key;
    /* The index of the hint, or NULL without a hint. */
    const struct index_spec *index;
    const bson_t *min, *max;
    bool record_id;
};

struct find_result;

/* Copies everything but the match. Sets `*find` to NULL if documents are shown as they are. The
 * errors are those of projections and spans. */
truce_status truce__find_result_new(const struct find_result_options *options,
                                    struct find_result **find, bson_error_t *error);
void truce__find_result_free(struct find_result *find);

/* Makes the result for one document. `found` is as in truce__project_apply, `record` the number of
 * the record. `result` is always initialized; the caller destroys it. */
truce_status truce__find_result_make(struct find_result *find, struct value document,
                                     const struct match_result *found, int64_t record,
                                     struct query_context *context, bson_t *result,
                                     bson_error_t *error);

#endif
