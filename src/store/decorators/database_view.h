#ifndef TRUCE_STORE_DECORATORS_DATABASE_VIEW_H
#define TRUCE_STORE_DECORATORS_DATABASE_VIEW_H

/*
 * A database view shows one database of a store with several as a store of its own.
 *
 *     view of "shop"                     store
 *     students          <------->        @shop.students
 *     truce_queue       <------->        @shop.truce_queue
 *
 * Patterns and commits run on a view with plain names. So each of their documents and names (a
 * queue, a sequence, a key) belongs to one database. The layers above a view do not know about
 * stored names.
 *
 * Invariants:
 *
 *   1. Each collection name in a call is mapped (store/namespace_map.h): the call's own, those of
 *      each write and check of a bulk, and those in the stages of a pipeline. Only a stage that
 *      names another database reaches its collections.
 *   2. A list of collections has those of the database, without the server's own (system.views),
 *      which calls must not name. Lists and errors have plain names.
 *   3. A view has the capabilities of its store and stores nothing, except for the metadata cache
 *      of the layers above (truce_store_cache). Two views of one database are equal.
 *   4. A snapshot of a view is a view of a snapshot.
 */
#include "store/namespace_map.h"
#include "truce/sys/store.h"

/* Creates the view of `database` in `store`, whose own database is `own` (store/namespace_map.h).
 * The caller keeps the store, which must outlive the view. */
truce_store *truce__database_open(truce_store *store, const char *own, const char *database);

/* Does what truce__database_open does, but the view takes over the store and closes it. */
truce_store *truce__database_wrap(truce_store *store, const char *own, const char *database);

/* Returns the name of the store's own database: the name in its URI, or the one that a server
 * stored with truce__own_database_keep, or OWN_DATABASE. */
truce_status truce__own_database(truce_store *store, char name[DATABASE_NAME_MAX + 1],
                                 bson_error_t *error);
truce_status truce__own_database_keep(truce_store *store, const char *name, bson_error_t *error);

/* Returns the store of a view, or `store` itself if it is not a view. */
truce_store *truce__database_holder(truce_store *store);
/* Returns the database of a view, or NULL if the store is not a view. The view owns the name. */
const char *truce__database_name(const truce_store *store);

/* Calls the function for a view of each database that has a collection in `store`, the own database
 * first, until a call fails. `name` is "" for the own database, which is `store` itself if it has
 * no other databases. If the databases cannot be listed, the function is called for the own
 * database only, and that failure is returned. */
typedef truce_status database_function(void *arg, truce_store *view, const char *name,
                                       bson_error_t *error);
truce_status truce__each_database(truce_store *store, database_function *function, void *arg,
                                  bson_error_t *error);

#endif
