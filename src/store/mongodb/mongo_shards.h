#ifndef TRUCE_STORE_MONGODB_MONGO_SHARDS_H
#define TRUCE_STORE_MONGODB_MONGO_SHARDS_H

/* The shard keys of a cluster's collections. */
#include "store/mongodb/mongo.h"

struct mongo_shards *truce__mongo_shards_new(void);
/* Frees the shard keys. NULL is allowed. */
void truce__mongo_shards_free(struct mongo_shards *shards);

/* Builds `aimed`, the filter with the values of the shard key if they are required and missing.
 * Sets `*changed` if it differs from the filter. Returns NOT_FOUND if no document matches. Always
 * initializes `aimed`. */
truce_status truce__mongo_aim(struct mongo_store *store, const char *collection,
                              const bson_t *filter, const truce_modify_options *options,
                              bson_t *aimed, bool *changed, bson_error_t *error);
/* Forgets the collection's shard key; the next use reads it again. */
void truce__mongo_shards_forget(struct mongo_store *store, const char *collection);

/* Fails with INVALID if the shard key of the collection does not allow the document that a write
 * creates. */
truce_status truce__mongo_shards_check(struct mongo_store *store, mongoc_client_t *client,
                                       const truce_write *writes, size_t count,
                                       bson_error_t *error);

#endif
