#ifndef TRUCE_STORE_NAMESPACE_MAP_H
#define TRUCE_STORE_NAMESPACE_MAP_H

/*
 * The namespace map stores the collections of several databases in one store. The name of a
 * collection in the store is its stored name:
 *
 *     database "test", the store's own      students            -> students
 *     any other database, "school"          students            -> @school.students
 *     the views of any database             system.views        -> @test.system.views
 *
 * So a store that a program opens without a database is the same as its own database on a server.
 * Collections that truce reserves are mapped like all others: the jobs of school are in
 * @school.truce_queue. A database name has no dot, so the map is reversible. In the own database, a
 * collection name must not begin with @.
 */
#include <stdbool.h>
#include <string.h>

#include <bson/bson.h>

#include "base/limits.h"
#include "base/status.h"

/* The bytes of the name of a database, as in MongoDB. */
#define DATABASE_NAME_MAX 63
/* The size of the name of a collection in the store, with the zero byte. */
#define STORED_NAME_MAX (TRUCE_STORED_NAME_MAX + 1)
/* The views of a database (view_cache.h). */
#define VIEWS_COLLECTION "system.views"

/* Returns whether the database is one of those in which MongoDB has its own data. */
static inline bool truce__database_is_system(const char *database)
{
    return !strcmp(database, "admin") || !strcmp(database, "config") || !strcmp(database, "local");
}

/* Returns whether the collection is one of the server's own. */
static inline bool truce__name_is_system(const char *collection)
{
    return !strncmp(collection, "system.", 7);
}

/* Fails with the code if the string contains a zero byte, because it would name something else than
 * its part before the zero. */
truce_status truce__text_check(const bson_iter_t *text, uint32_t code, bson_error_t *error);

/* Checks the name of a database. Fails with CODE_INVALID_NAMESPACE, as MongoDB does. */
truce_status truce__database_name_check(const char *name, bson_error_t *error);

/* Computes the stored name of a collection. `own` is the name of the store's own database. */
truce_status truce__stored_name_of(const char *own, const char *database, const char *collection,
                                   char stored_name[STORED_NAME_MAX], bson_error_t *error);

/* Returns the name that the collection has in the database, borrowed from `stored_name`. Returns
 * NULL if the collection belongs to another database. */
const char *truce__stored_name_plain(const char *own, const char *database,
                                     const char *stored_name);

/* Returns the database of a stored name. */
void truce__stored_name_database(const char *own, const char *stored_name,
                                 char database[DATABASE_NAME_MAX + 1]);

/* Decides for each collection that a pipeline names, besides its input, whether the pipeline may
 * read it or, with `writes`, write to it. Any status but OK refuses the pipeline. */
struct name_guard {
    truce_status (*allow)(void *arg, const char *database, const char *collection, bool writes,
                          bson_error_t *error);
    void *arg;
};

/* Maps the names of the collections that a pipeline's stages read and write ($lookup, $graphLookup,
 * $unionWith, $out, $merge, also within $facet) to stored names. Another database may be named
 * where MongoDB allows it. If `guard` is NULL, all collections are allowed. Always initializes
 * `result`. */
truce_status truce__map_pipeline(const char *own, const char *database, const bson_t *pipeline,
                                 const struct name_guard *guard, bson_t *result,
                                 bson_error_t *error);

#endif
