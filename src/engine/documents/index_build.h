#ifndef TRUCE_ENGINE_DOCUMENTS_INDEX_BUILD_H
#define TRUCE_ENGINE_DOCUMENTS_INDEX_BUILD_H

/* Builds an index on live data (the operation itself is truce__engine_index_create). */
#include "engine/documents/open_documents.h"

/* Drops the unfinished indexes of dead builders. deadline_ms limits the wait for the write lock; 0
 * means the default of the engine. */
truce_status truce__index_build_sweep(struct engine *engine, uint32_t deadline_ms,
                                      bson_error_t *error);

#endif
