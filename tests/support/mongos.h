#ifndef TRUCE_TESTS_SUPPORT_MONGOS_H
#define TRUCE_TESTS_SUPPORT_MONGOS_H

/*
 * A cluster for tests: a file behind a server, and a router before it that refuses like a mongos:
 *
 *   - a find-and-modify whose query does not give the shard key's values;
 *   - an update or a removal of one document that gives neither these nor its _id;
 *   - an upsert without the shard key's values;
 *   - a unique index that begins neither with the shard key's fields nor with _id.
 *
 * Its shard keys are stored in config.collections.
 */
#include "tests/support/fake.h"
#include "truce/store.h"

struct mongos_layout {
    /* A collection and its shard key as JSON, for example {"student_id": 1}. A NULL collection ends
     * the list. */
    const char *collection, *key;
};

struct mongos;

struct mongos *mongos_start(void);
/* Switches to a new, empty database with these layouts, which are borrowed, and returns its URI at
 * the router. All clients of the last call must be closed before. */
const char *mongos_uri(struct mongos *mongos, const struct mongos_layout *layouts);
/* Returns the number of refused requests. */
int mongos_refused(const struct mongos *mongos);
/* Stops the cluster. All clients must be closed before. */
void mongos_stop(struct mongos *mongos);

#endif
