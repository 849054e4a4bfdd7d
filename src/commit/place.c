#include "commit/place.h"

#include "store/decorators/database.h"

truce_status truce__commit_find(truce_store *store, const bson_oid_t *id, bson_t *commit,
                                bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_OID(&filter, "_id", id);
    status = truce_find_one(store, COMMITS, &filter, NULL, commit, error);
    bson_destroy(&filter);
    return status;
}

truce_status truce__commit_place(truce_store *store, const char *collection, const bson_oid_t *id,
                                 struct commit_place *place, bson_t *commit, bson_error_t *error)
{
    const char *within = truce__place_within(collection);
    truce_status status = truce__commit_find(store, id, commit, error);

    *place = (struct commit_place){.store = store, .collection = collection};
    if (status != TRUCE_NOT_FOUND || !within)
        return status;
    bson_destroy(commit);
    place->database = truce__database_open(store, collection);
    status = truce__commit_find(place->database, id, commit, error);
    if (!status) {
        place->store = place->database;
        place->collection = within;
    }
    return status;
}

void truce__commit_place_leave(struct commit_place *place)
{
    if (place->database)
        truce_store_close(place->database);
}
