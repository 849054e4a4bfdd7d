#ifndef TRUCE_STORE_FILE_FILE_H
#define TRUCE_STORE_FILE_FILE_H

/* The parts of the file: store. */
#include "engine/documents/document_store.h"

/* ---- file.c ---- */

/* Of an open file: store; for tests. */
struct engine *truce__file_engine(truce_store *store);
/* The same of any store; NULL: it is another one. */
struct engine *truce__file_engine_or_null(truce_store *store);

/* ---- file.c ---- */

#endif
