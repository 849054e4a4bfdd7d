#ifndef TRUCE_ENGINE_CACHE_SIZE_H
#define TRUCE_ENGINE_CACHE_SIZE_H

/* How much memory an open file takes for what it has read. */
#include "base/status.h"

/* `asked_mb`: of the options; 0: of the environment, or a part of the machine's memory (limits.h). INVALID: it is out of bounds,
 * or TRUCE_CACHE_MB is no number. */
truce_status truce__cache_size(uint32_t asked_mb, uint64_t *bytes, bson_error_t *error);

#endif
