#ifndef TRUCE_COMMIT_METADATA_CACHE_H
#define TRUCE_COMMIT_METADATA_CACHE_H

/* What this process knows of a store's indexes, so that it need not ask before every commit. */
#include "truce/sys/store.h"

/* Makes sure of the sparse index on `_intent`, once for each store and collection. */
truce_status truce__memo_intents(truce_store *store, const char *collection, bson_error_t *error);

/* Makes sure of the commit collection: the unique sparse index on `key` and the horizon. */
truce_status truce__memo_commits(truce_store *store, bson_error_t *error);

/* The definitions of the collection's indexes (an array), not older than a few seconds.
 * `indexes` is always initialised; the caller destroys it. */
truce_status truce__memo_indexes(truce_store *store, const char *collection, bson_t *indexes,
                                 bson_error_t *error);

/* The collection's validator (sys/store.h): as it stands, or as a server had it some seconds ago. {}: none, or not
 * known. `validator` is always initialised. */
truce_status truce__memo_validator(truce_store *store, const char *collection, bson_t *validator,
                                   bson_error_t *error);

/* The turns of the commits of this store. */
struct turns;
struct turns *truce__memo_turns(truce_store *store);

/* *keyed: the collection has a unique index on `_keys` (unique.c); not older than a few seconds */
truce_status truce__memo_keyed(truce_store *store, const char *collection, bool *keyed,
                               bson_error_t *error);

/* Returns since when (monotonic, ns) this process has seen the thing of that kind and id in this state (lease_watch.h).
 * The answer is remembered from one call to the next. */
int64_t truce__memo_watch(truce_store *store, const char *kind, const void *id, size_t size,
                          uint64_t state);

/* Does the process know that the collection has what `of` needs? If not, make sure of it and call truce__memo_learn with
 * the structure that is given here. */
bool truce__memo_known(truce_store *store, const char *of, const char *collection,
                       uint64_t *structure);
void truce__memo_learn(truce_store *store, const char *of, const char *collection,
                       uint64_t structure);

/* The list of the collection's indexes is asked for again when it is needed next. */
void truce__memo_forget(truce_store *store, const char *collection);

#endif
