#ifndef TRUCE_ENGINE_DOCUMENTS_INDEX_BUILD_H
#define TRUCE_ENGINE_DOCUMENTS_INDEX_BUILD_H

/* Building an index on live data (the operation itself is truce__engine_index_create). */
#include "engine/engine.h"

/* Removes what builders that died have left: indexes that are not ready and that nobody builds. */
truce_status truce__index_build_sweep(struct engine *engine, bson_error_t *error);

#endif
