#ifndef TRUCE_STORE_COLLECTION_USE_H
#define TRUCE_STORE_COLLECTION_USE_H

/* Refuses to rename a collection that a pattern names in its records. The pattern would not find
 * the collection under another name: reads would find nothing, and the next write would begin an
 * empty collection. */
#include "truce/store.h"

/* Refuses to rename or to replace a collection of the store that truce reserves or that a pattern
 * uses. If X and X.revisions, or X and X.guards, have documents, both are used. Fails with INVALID,
 * and codes InvalidNamespace (73) or IllegalOperation (20). */
truce_status truce__collection_check_unused(truce_store *store, const char *collection,
                                            bson_error_t *error);

#endif
