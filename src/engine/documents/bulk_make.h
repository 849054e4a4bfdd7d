#ifndef TRUCE_ENGINE_DOCUMENTS_BULK_MAKE_H
#define TRUCE_ENGINE_DOCUMENTS_BULK_MAKE_H

#include "engine/engine.h"

/* Makes the collections of the checks (truce/sys/store.h), before the first write of their bulk, inside its savepoint. CONFLICT
 * (code 112): one is there. */
truce_status truce__bulk_make(const struct truce_read_checks *checks, struct writer *writer,
                              bson_error_t *error);

#endif
