#ifndef TRUCE_ENGINE_DOCUMENTS_BULK_CHECK_H
#define TRUCE_ENGINE_DOCUMENTS_BULK_CHECK_H

/* Is what was read in a view still so? Inside the write transaction. */
#include "engine/documents/query.h"

/* CONFLICT (112): it is not, or it would take too long to say. */
truce_status truce__bulk_check(const struct truce_read_checks *checks, const struct engine *view,
                               struct writer *writer, struct query_context *context,
                               bson_error_t *error);

#endif
