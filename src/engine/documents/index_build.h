#ifndef TRUCE_ENGINE_DOCUMENTS_INDEX_BUILD_H
#define TRUCE_ENGINE_DOCUMENTS_INDEX_BUILD_H

/* Building an index on live data (the operation itself is truce__engine_index_create). */
#include "engine/documents/document_store.h"

/* Removes what builders that died have left: indexes that are not ready and that nobody builds.
 * deadline_ms: for its turn to write; 0: the engine's own. */
truce_status truce__index_build_sweep(struct engine *engine, uint32_t deadline_ms,
                                      bson_error_t *error);

#endif
