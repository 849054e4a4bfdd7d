#ifndef TRUCE_STORE_DECORATORS_DATABASE_H
#define TRUCE_STORE_DECORATORS_DATABASE_H

/*
 * One database of a store that holds several as a store by itself: what is `students` in it is `@school.students` in the store.
 * So what clients of a server's database have written is looked after as they would do it. It reads and writes documents
 * and indexes; what names other collections than the one it is about (pipelines, renames, snapshots) is INVALID.
 */
#include "truce/sys/store.h"

/* The database of a place of `store` (truce__place_within). The store stays the caller's, and has to outlive it. */
truce_store *truce__database_open(truce_store *store, const char *collection);

/* The store whose database this is; itself, if it is none. */
truce_store *truce__database_holder(truce_store *store);

#endif
