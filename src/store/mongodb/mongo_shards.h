#ifndef TRUCE_STORE_MONGODB_MONGO_SHARDS_H
#define TRUCE_STORE_MONGODB_MONGO_SHARDS_H

/* The shard keys of a cluster's collections. */
#include "store/mongodb/mongo.h"

struct mongo_shards *truce__mongo_shards_new(void);
/* NULL is allowed. */
void truce__mongo_shards_free(struct mongo_shards *shards);

/* Makes `aimed`, always initialized: the filter with the values of the shard key, if they are
 * required and missing; then sets `*changed`. Returns NOT_FOUND if no document matches. */
truce_status truce__mongo_aim(struct mongo_store *store, const char *collection,
                              const bson_t *filter, const truce_modify_options *options,
                              bson_t *aimed, bool *changed, bson_error_t *error);
/* Forgets the collection's shard key; the next use reads it again. */
void truce__mongo_shards_forget(struct mongo_store *store, const char *collection);

/* Fails with INVALID if a write would make a document that its collection's shard key does not
 * allow. */
truce_status truce__mongo_shards_check(struct mongo_store *store, mongoc_client_t *client,
                                       const truce_write *writes, size_t count,
                                       bson_error_t *error);

#endif
