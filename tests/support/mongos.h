#ifndef TRUCE_TESTS_SUPPORT_MONGOS_H
#define TRUCE_TESTS_SUPPORT_MONGOS_H

/*
 * A cluster for tests: a file behind a server, and a router before it that refuses like a mongos:
 *
 *   - a find-and-modify whose query does not give the shard key's values;
 *   - an update or a removal of one document that gives neither these nor its _id;
 *   - an upsert without the shard key's values;
 *   - a unique index that does not begin with the shard key's fields.
 *
 * Its shard keys are stored in config.collections.
 */
#include "tests/support/fake.h"
#include "truce/store.h"

struct mongos_layout {
    const char *collection, *key; /* {"student_id": 1}; NULL: the end of the list */
};

struct mongos;

struct mongos *mongos_start(void);
/* Opens the cluster of an empty database with these layouts, which are borrowed. Every client of
 * the one before must be gone. */
const char *mongos_uri(struct mongos *mongos, const struct mongos_layout *layouts);
/* Returns how many requests were refused. */
int mongos_refused(const struct mongos *mongos);
/* Every client must be gone before this call. */
void mongos_stop(struct mongos *mongos);

#endif
