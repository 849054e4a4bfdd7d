#ifndef TRUCE_STORE_DECORATORS_DATABASE_H
#define TRUCE_STORE_DECORATORS_DATABASE_H

/*
 * A database view: one database of a store that holds several, as a store by itself.
 *
 *     view of "shop"                     store
 *     students          <------->        @shop.students
 *     truce_queue       <------->        @shop.truce_queue
 *
 * Patterns and commits run on a view with plain names, so each of their documents, and each name that they know (a
 * queue, a sequence, a key), belongs to one database. Nothing above a view knows the form of places.
 *
 * Invariants:
 *  1. Each collection name that goes in is mapped (store/namespace_map.h): of a call, of each write of a bulk, of what a bulk
 *     checks, of the stages of a pipeline. A collection of another database is reached only by a stage that names its
 *     database.
 *  2. A list of collections has those of the database alone, without the server's own (system.views), which no call of a
 *     store may name. Lists and errors have plain names.
 *  3. A view has the capabilities of its store and keeps nothing but what the layers above keep of a store
 *     (truce_memo). Two views of one database are equal.
 *  4. A snapshot of a view is a view of a snapshot.
 */
#include "store/namespace_map.h"
#include "truce/sys/store.h"

/* Makes the view of `database` in `store`, whose own database is `own` (store/namespace_map.h). The store stays the
 * caller's and has to outlive the view. */
truce_store *truce__database_open(truce_store *store, const char *own, const char *database);

/* The same; the view takes over the store and closes it with itself. */
truce_store *truce__database_wrap(truce_store *store, const char *own, const char *database);

/* The name of the store's own database, as a server kept it with truce__own_database_keep; OWN_DATABASE: it kept none. */
truce_status truce__own_database(truce_store *store, char name[DATABASE_NAME_MAX + 1],
                                 bson_error_t *error);
truce_status truce__own_database_keep(truce_store *store, const char *name, bson_error_t *error);

/* Returns the store that the view is of; `store` itself if it is no view. */
truce_store *truce__database_holder(truce_store *store);

/* Calls for a view of each database that has a collection in `store`, its own first, until one fails. `name` is "" for
 * the own one, which is `store` itself if it has no other databases. If the databases cannot be listed, calls for the
 * own one alone, and returns that failure. */
typedef truce_status database_function(void *arg, truce_store *view, const char *name,
                                       bson_error_t *error);
truce_status truce__each_database(truce_store *store, database_function *function, void *arg,
                                  bson_error_t *error);

#endif
