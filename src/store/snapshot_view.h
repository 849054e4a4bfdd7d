#ifndef TRUCE_STORE_SNAPSHOT_VIEW_H
#define TRUCE_STORE_SNAPSHOT_VIEW_H

/* Views are stores that show one snapshot (truce/snapshot.h). This file has what all backends
 * share. */
#include "query/index/index.h"
#include "truce/snapshot.h"
#include "truce/sys/store.h"

static inline bool truce__is_view(const truce_store *store)
{
    return store->capabilities & TRUCE_IS_VIEW;
}

/* Does what truce_snapshot does, with documents as they are stored: a document that a commit holds
 * has its intent. */
truce_status truce__store_snapshot(truce_store *store, const truce_snapshot_options *options,
                                   truce_store **view, bson_error_t *error);

/* Returns whether nothing can be written. Then intents are not resolved: a document that a commit
 * holds is shown as it was before the commit or will be after it. */
static inline bool truce__is_only_read(const truce_store *store)
{
    return store->capabilities & (TRUCE_IS_VIEW | TRUCE_IS_READ_ONLY);
}

/* Fails with INVALID if the store is a view: "cannot insert into people: ...". Returns OK for any
 * other store. */
truce_status truce__view_guard(const truce_store *store, const char *what, const char *collection,
                               bson_error_t *error);
/* Does what truce__view_guard does, for a pipeline that writes. */
truce_status truce__view_guard_pipeline(const truce_store *store, const bson_t *pipeline,
                                        const char *collection, bson_error_t *error);

/* Ensures an index on a view: returns OK if the index exists with the same definition, otherwise
 * fails. */
truce_status truce__view_index(truce_store *store, const char *collection, const bson_t *index,
                               bson_error_t *error);

/* Sets `*there` to whether the list has an index with the same definition. Fails with code 85 or 86
 * if another index conflicts with it. */
truce_status truce__index_is_among(const bson_t *indexes, const bson_t *index, bool *there,
                                   bson_error_t *error);

/* Returns whether the list has an index of the same name and definition, even if the index was
 * modified since (truce_index_modify). */
bool truce__index_is_known(const bson_t *indexes, const bson_t *index);

/* Copies the index that the hint names. The copy has no fields if the hint names none. Fails with
 * CODE_BAD_VALUE as truce__index_hint does. `spec` is always initialized. */
truce_status truce__index_of_hint(const bson_t *indexes, const bson_t *hint,
                                  struct index_spec *spec, bson_error_t *error);

/* Opens a view for a pipeline that reads other collections besides its input. Returns NULL if the
 * pipeline reads none, or the store is a view itself. */
truce_status truce__view_for_pipeline(truce_store *store, const bson_t *pipeline,
                                      truce_store **view, bson_error_t *error);

#endif
