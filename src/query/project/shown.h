#ifndef TRUCE_QUERY_PROJECT_SHOWN_H
#define TRUCE_QUERY_PROJECT_SHOWN_H

/*
 * What a find shows of a document that it has found, if not the document as it is: a projection of it, the key by which its
 * index has it, the number of its record.
 */
#include "query/index/index_span.h"
#include "query/project/project.h"

struct shown_wanted {
    const bson_t *projection;       /* NULL or {}: none */
    const struct match *match;      /* as of truce__project_new */
    bool key;                       /* the key and nothing else; of ... */
    const struct index_spec *index; /* ... the index of the hint; NULL: there is none */
    const bson_t *min, *max;
    bool record_id;
};

struct shown;

/* Copies what it is given but the match. `*shown` NULL: documents as they are. The errors are those of projections and spans. */
truce_status truce__shown_new(const struct shown_wanted *wanted, struct shown **shown,
                              bson_error_t *error);
void truce__shown_free(struct shown *shown);

/* `found` as of truce__project_apply; `record`: the number. `result` is always initialised; the caller destroys it. */
truce_status truce__shown_make(struct shown *shown, struct value document,
                               const struct match_result *found, int64_t record,
                               struct query_context *context, bson_t *result, bson_error_t *error);

#endif
