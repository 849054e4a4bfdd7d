#ifndef TRUCE_STORE_VIEW_H
#define TRUCE_STORE_VIEW_H

/* Views of one moment (truce/snapshot.h): what is the same for every backend. */
#include "query/index/index.h"
#include "truce/snapshot.h"
#include "truce/sys/store.h"

static inline bool truce__is_view(const truce_store *store)
{
    return store->capabilities & TRUCE_IS_VIEW;
}

/* truce_snapshot, with documents as they are stored: one that a commit holds has its intent. */
truce_status truce__store_snapshot(truce_store *store, const truce_snapshot_options *options,
                                   truce_store **view, bson_error_t *error);

/* Nothing can be written: what a commit holds is seen as it was or will be, and not resolved. */
static inline bool truce__is_only_read(const truce_store *store)
{
    return store->capabilities & (TRUCE_IS_VIEW | TRUCE_IS_READ_ONLY);
}

/* INVALID on a view: "cannot insert into people: ..."; OK on any other store. */
truce_status truce__view_guard(const truce_store *store, const char *what, const char *collection,
                               bson_error_t *error);
/* The same for a pipeline that writes. */
truce_status truce__view_guard_pipeline(const truce_store *store, const bson_t *pipeline,
                                        const char *collection, bson_error_t *error);

/* An index that is to be there: OK if it is, by the same definition; else refused. */
truce_status truce__view_index(truce_store *store, const char *collection, const bson_t *index,
                               bson_error_t *error);

/* Is it among them, by the same definition? 85, 86: another is in its way. */
truce_status truce__index_is_among(const bson_t *indexes, const bson_t *index, bool *there,
                                   bson_error_t *error);

/* Is it among them by its name, whatever has been changed of it since it was made (truce_index_modify)? */
bool truce__index_is_kept(const bson_t *indexes, const bson_t *index);

/* A copy of the one among them that the hint asks for; without fields: it asks for none. CODE_BAD_VALUE as of
 * truce__index_hint. `spec` is always initialised. */
truce_status truce__index_of_hint(const bson_t *indexes, const bson_t *hint,
                                  struct index_spec *spec, bson_error_t *error);

/* A view of now for a pipeline that reads other collections besides its input; NULL: it does not, or the store is
 * a view itself. */
truce_status truce__view_for_pipeline(truce_store *store, const bson_t *pipeline,
                                      truce_store **view, bson_error_t *error);

#endif
