#ifndef TRUCE_STORE_COLLECTION_USE_H
#define TRUCE_STORE_COLLECTION_USE_H

/* The patterns that name a collection in their records. They would not find it under another name:
 * reads would find nothing, and the next write would begin an empty collection. */
#include "truce/store.h"

/* Refuses to rename or to replace a collection of the store that truce reserves or that a pattern
 * uses. If X and X.revisions, or X and X.guards, have documents, both are used. Fails with INVALID,
 * and codes InvalidNamespace (73) or IllegalOperation (20). */
truce_status truce__collection_check_unused(truce_store *store, const char *collection,
                                            bson_error_t *error);

#endif
