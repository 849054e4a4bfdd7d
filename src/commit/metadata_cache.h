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

/* Forgets that the commit collection exists. The next call of truce__metadata_ensure_commits checks
 * it again. */
void truce__metadata_forget_commits(truce_store *store);

/* Returns the definitions of the collection's indexes (an array), at most a few seconds old.
 * `indexes` is always initialized; the caller destroys it. */
truce_status truce__metadata_indexes(truce_store *store, const char *collection, bson_t *indexes,
                                     bson_error_t *error);

/* Returns the collection's validator (sys/store.h): the current one, or a server's as of a few
 * seconds ago. It is {} if the collection has none, or if it is unknown. `validator` is always
 * initialized. */
truce_status truce__metadata_validator(truce_store *store, const char *collection,
                                       bson_t *validator, bson_error_t *error);

/* Returns the per-key locks of the commits of this store. */
struct key_locks;
struct key_locks *truce__metadata_key_locks(truce_store *store);

/* Sets *keyed to whether the collection has a unique index on `_keys` (unique_keys.c). The result
 * may be a few seconds old. */
truce_status truce__metadata_keyed(truce_store *store, const char *collection, bool *keyed,
                                   bson_error_t *error);

/* Returns since when (monotonic, ns) this process has seen the thing of that kind and id in this
 * state (lease_watch.h). The watch lasts from call to call. */
int64_t truce__metadata_watch(truce_store *store, const char *kind, const void *id, size_t size,
                              uint64_t state);

/* A lease of a document, as it was just read. */
struct watched_lease {
    const char *kind;
    const void *id;
    /* The length of the id in bytes. */
    size_t size;
    /* A number that changes with each renewal, and with each holder. */
    uint64_t state;
    /* The end of the lease as the last renewal set it. Stored observations name it. */
    int64_t end;
    /* The time without a renewal after which the lease has expired. */
    int64_t length_ms;
    /* The document that stores observations of the lease (lease_watch.h), or NULL. */
    const bson_t *fields;
};

/* Returns whether the lease has expired: no process that observed the lease with this clock has
 * seen a renewal for the length of the lease. The wall clock is not used. */
bool truce__metadata_lease_over(truce_store *store, const struct watched_lease *lease);

/* Returns whether the process knows that the collection has what `of` needs. If not, ensure it, and
 * call truce__metadata_learn with the structure that this call returns. */
bool truce__metadata_known(truce_store *store, const char *of, const char *collection,
                           uint64_t *structure);
/* Notes that the collection has what `of` needs, unless the structure has changed since
 * truce__metadata_known returned it. `of` must be a constant. */
void truce__metadata_learn(truce_store *store, const char *of, const char *collection,
                           uint64_t structure);

/* Returns a number that changes as that of truce__store_structure, and also if a document that
 * truce__metadata_rely has named was removed. A store that reports only its own changes notices
 * this within a second. */
uint64_t truce__metadata_structure(truce_store *store);
/* Notes that cached facts are true only as long as a document exists: the one with the _id of
 * `document`. */
void truce__metadata_rely(truce_store *store, const char *collection, const bson_t *document);

/* Forgets the list of the collection's indexes; the next use reads it again. */
void truce__metadata_forget(truce_store *store, const char *collection);

#endif
