#ifndef TRUCE_COMMIT_METADATA_CACHE_H
#define TRUCE_COMMIT_METADATA_CACHE_H

/* The metadata cache: what this process knows about a store's indexes and validators, so that a
 * commit need not ask the store. */
#include "truce/sys/store.h"

/* Ensures the sparse index on `_intent`, once for each store and collection. */
truce_status truce__metadata_ensure_intents(truce_store *store, const char *collection,
                                            bson_error_t *error);

/* Ensures the commit collection with the unique sparse index on `key`, and the horizon. */
truce_status truce__metadata_ensure_commits(truce_store *store, bson_error_t *error);

/* Returns the definitions of the collection's indexes (an array), at most a few seconds old.
 * `indexes` is always initialized; the caller destroys it. */
truce_status truce__metadata_indexes(truce_store *store, const char *collection, bson_t *indexes,
                                     bson_error_t *error);

/* Returns the collection's validator (sys/store.h): the current one, or a server's as of a few
 * seconds ago. {}: none, or unknown. `validator` is always initialized. */
truce_status truce__metadata_validator(truce_store *store, const char *collection,
                                       bson_t *validator, bson_error_t *error);

/* Returns the per-key locks of the commits of this store. */
struct key_locks;
struct key_locks *truce__metadata_key_locks(truce_store *store);

/* Sets *keyed: whether the collection has a unique index on `_keys` (unique.c). At most a few
 * seconds old. */
truce_status truce__metadata_keyed(truce_store *store, const char *collection, bool *keyed,
                                   bson_error_t *error);

/* Returns since when (monotonic, ns) this process has seen the thing of that kind and id in this
 * state (lease_watch.h). The watch lasts from call to call. */
int64_t truce__metadata_watch(truce_store *store, const char *kind, const void *id, size_t size,
                              uint64_t state);

/* Returns whether the process knows that the collection has what `of` needs. If not, ensure it, and
 * call truce__metadata_learn with the structure that this call returns. */
bool truce__metadata_known(truce_store *store, const char *of, const char *collection,
                           uint64_t *structure);
void truce__metadata_learn(truce_store *store, const char *of, const char *collection,
                           uint64_t structure);

/* Forgets the list of the collection's indexes; the next use reads it again. */
void truce__metadata_forget(truce_store *store, const char *collection);

#endif
