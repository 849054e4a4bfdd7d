#ifndef TRUCE_STORE_MONGODB_MONGO_SHARDS_H
#define TRUCE_STORE_MONGODB_MONGO_SHARDS_H

/* The shard keys of a cluster's collections. */
#include "store/mongodb/mongo.h"

struct mongo_shards *truce__mongo_shards_new(void);
/* NULL is allowed. */
void truce__mongo_shards_free(struct mongo_shards *shards);

/* `aimed`, always initialised: the filter with the values of the shard key, where it needs them (*changed) and
 * does not name them. NOT_FOUND: no document matches. */
truce_status truce__mongo_aim(struct mongo_store *store, const char *collection,
                              const bson_t *filter, const truce_modify_options *options,
                              bson_t *aimed, bool *changed, bson_error_t *error);
/* The collection's shard key is read again when it is needed next. */
void truce__mongo_shards_forget(struct mongo_store *store, const char *collection);

/* INVALID: one of the writes would make a document where its collection's shard key does not let it be kept. */
truce_status truce__mongo_shards_check(struct mongo_store *store, mongoc_client_t *client,
                                       const truce_write *writes, size_t count,
                                       bson_error_t *error);

#endif
