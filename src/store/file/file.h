#ifndef TRUCE_STORE_FILE_FILE_H
#define TRUCE_STORE_FILE_FILE_H

/* The internals of the file: store, for tests and for maintenance. */
#include "engine/documents/open_documents.h"

/* Returns the engine of an open file: store. */
struct engine *truce__file_engine(truce_store *store);
/* Does what truce__file_engine does, for any store. Returns NULL if the store is of another
 * kind. */
struct engine *truce__file_engine_or_null(truce_store *store);

#endif
