#ifndef TRUCE_STORE_FILE_FILE_H
#define TRUCE_STORE_FILE_FILE_H

/* The parts of the file: store. */
#include "engine/engine.h"

/* ---- file.c ---- */

/* Of an open file: store; for tests. */
struct engine *truce__file_engine(truce_store *store);
/* The same of any store; NULL: it is another one. */
struct engine *truce__file_engine_or_null(truce_store *store);

/* Changes of the collection are kept with its documents as they were before and after (engine/documents/feed.h), from
 * now on or no more. Of any other store: nothing. */
truce_status truce__file_keep_images(truce_store *store, const char *collection, bool images,
                                     bson_error_t *error);

/* ---- file_facts.c ---- */

/* What truce_doctor judges of the file and its surroundings. */
void truce__file_facts(struct engine *engine, bson_t *facts);

#endif
