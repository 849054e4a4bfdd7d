#ifndef TRUCE_STORE_NAMESPACE_MAP_H
#define TRUCE_STORE_NAMESPACE_MAP_H

/*
 * The namespace map: where the collections of several databases are stored in one store.
 *
 *     database "test", the store's own      students            -> students
 *     any other database, "school"          students            -> @school.students
 *     the views of any, of the own, too     system.views        -> @test.system.views
 *
 * A store that a program opens without a database and its own database on a server are therefore the same. The
 * collections that truce keeps for itself are mapped like all others: the jobs of school are in
 * @school.truce_queue. A database name has no dot, so the map is reversible. In the own database a collection
 * name that begins with @ is refused.
 */
#include <stdbool.h>
#include <string.h>

#include <bson/bson.h>

#include "base/limits.h"
#include "base/status.h"

#define DATABASE_NAME_MAX 63
#define PLACE_MAX         (TRUCE_PLACE_NAME_MAX + 1)
#define VIEWS_COLLECTION  "system.views" /* of each database: its views (views.h) */

/* Is the name of a collection one of the server's own? */
static inline bool truce__place_is_system(const char *collection)
{
    return !strncmp(collection, "system.", 7);
}

/* Refused with the code: the text has a zero byte within, and so names something else than what stands before the zero. */
truce_status truce__text_check(const bson_iter_t *text, uint32_t code, bson_error_t *error);

/* CODE_INVALID_NAMESPACE, as MongoDB. */
truce_status truce__database_name_check(const char *name, bson_error_t *error);

/* `own`: the name of the store's own database. */
truce_status truce__place_of(const char *own, const char *database, const char *collection,
                             char place[PLACE_MAX], bson_error_t *error);

/* Returns the name that the collection has in the database, borrowed from `place`; NULL: it is of another one. */
const char *truce__place_name(const char *own, const char *database, const char *place);

/* The database in which the place is. */
void truce__place_database(const char *own, const char *place,
                           char database[DATABASE_NAME_MAX + 1]);

/* Asked of each collection that a pipeline names, besides the one that it begins with; not OK: it may not be read, or (`writes`)
 * not written. */
struct place_guard {
    truce_status (*allow)(void *arg, const char *database, const char *collection, bool writes,
                          bson_error_t *error);
    void *arg;
};

/* A pipeline of one database with the names of the collections that its stages read and write ($lookup,
 * $graphLookup, $unionWith, $out, $merge, and those within $facet) turned into places; another database may be
 * named where MongoDB allows it. `guard` NULL allows all. `result` is initialised in any case. */
truce_status truce__place_pipeline(const char *own, const char *database, const bson_t *pipeline,
                                   const struct place_guard *guard, bson_t *result,
                                   bson_error_t *error);

#endif
