#ifndef TRUCE_COMMIT_PLACE_H
#define TRUCE_COMMIT_PLACE_H

/*
 * Where the commit stands that holds a document. In a store that a server shares out among databases, clients of one keep
 * their commits in that database, and programs that use the store itself keep theirs in its own `truce_commits`: so a
 * commit that is missing in one of the two is looked for in the other, before anybody takes it for undone and purged (J2).
 */
#include "commit/journal.h"

struct commit_place {
    truce_store *store;     /* where the commit is, and ... */
    const char *collection; /* ... what the document's is called there; borrowed */
    truce_store *database;  /* of its own; NULL: it is the store itself */
};

/* The commit of the store itself; initialised in any case. */
truce_status truce__commit_find(truce_store *store, const bson_oid_t *id, bson_t *commit,
                                bson_error_t *error);

/* Finds the commit (initialised in any case). NOT_FOUND: it is nowhere; the place is the store itself. */
truce_status truce__commit_place(truce_store *store, const char *collection, const bson_oid_t *id,
                                 struct commit_place *place, bson_t *commit, bson_error_t *error);
void truce__commit_place_leave(struct commit_place *place);

#endif
