#ifndef TRUCE_QUERY_PROJECT_SHOWN_H
#define TRUCE_QUERY_PROJECT_SHOWN_H

/* The result of a find for one document, if not the document itself: a projection, the key in the
 * index that the find uses, or the number of the record. */
#include "query/index/index_span.h"
#include "query/project/project.h"

struct shown_wanted {
    /* NULL or {}: none */
    const bson_t *projection;
    /* as in truce__project_new */
    const struct match *match;
    /* only the key of `index` is shown */
    bool key;
    /* the index of the hint; NULL: none */
    const struct index_spec *index;
    const bson_t *min, *max;
    bool record_id;
};

struct shown;

/* Copies everything but the match. `*shown` NULL: documents are shown as they are. The errors are
 * those of projections and spans. */
truce_status truce__shown_new(const struct shown_wanted *wanted, struct shown **shown,
                              bson_error_t *error);
void truce__shown_free(struct shown *shown);

/* Makes the result for one document. `found` is as in truce__project_apply, `record` the number of
 * the record. `result` is always initialised; the caller destroys it. */
truce_status truce__shown_make(struct shown *shown, struct value document,
                               const struct match_result *found, int64_t record,
                               struct query_context *context, bson_t *result, bson_error_t *error);

#endif
