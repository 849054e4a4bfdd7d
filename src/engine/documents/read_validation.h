#ifndef TRUCE_ENGINE_DOCUMENTS_READ_VALIDATION_H
#define TRUCE_ENGINE_DOCUMENTS_READ_VALIDATION_H

/* Optimistic validation of what a transaction has read. */
#include "engine/engine.h"
#include "engine/writer.h"
#include "truce/sys/store.h"

struct query_context;

/* Checks the reads inside the write transaction. Fails with CONFLICT (112) if a read is not valid,
 * or if checking would take too long. */
truce_status truce__read_validate(const struct truce_read_checks *checks, const struct engine *view,
                                  struct writer *writer, struct query_context *context,
                                  bson_error_t *error);

#endif
