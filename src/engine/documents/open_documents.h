#ifndef TRUCE_ENGINE_DOCUMENTS_OPEN_DOCUMENTS_H
#define TRUCE_ENGINE_DOCUMENTS_OPEN_DOCUMENTS_H

/*
 * The embedded store: collections of documents in one file, for any number of threads and
 * processes. The functions have the contracts of the store's table of functions
 * (truce/sys/store.h), whose wrappers have checked the arguments. `options` is never NULL.
 */
#include "engine/engine.h"

/* Opens the file as truce_store_open does. `*engine` is NULL on failure. Closed by
 * truce__engine_close. */
truce_status truce__engine_open(const char *path, const truce_store_options *options,
                                struct engine **engine, bson_error_t *error);

/* ---- reading (document_reads.c, explain.c) --------------------------------------------------- */

truce_status truce__engine_find(struct engine *engine, const char *collection, const bson_t *filter,
                                const truce_find_options *options, truce_cursor **cursor,
                                bson_error_t *error);
/* Finds in the order of options->sort if an index gives it (`*sorted`), otherwise as without a
 * sort. */
truce_status truce__engine_find_if_sorted(struct engine *engine, const char *collection,
                                          const bson_t *filter, const truce_find_options *options,
                                          truce_cursor **cursor, bool *sorted, bson_error_t *error);
/* Passes the documents that the cursor has left to `take`, up to its first status other than OK.
 * Documents of batches that were not read yet are passed without a copy, while their snapshot is
 * open. `take` must not call the engine. The cursor comes from truce__engine_find, without skip and
 * projection; afterwards it is at its end. */
truce_status truce__engine_each(truce_cursor *cursor, document_take *take, void *arg,
                                bson_error_t *error);
truce_status truce__engine_count(struct engine *engine, const char *collection,
                                 const bson_t *filter, const truce_find_options *options,
                                 int64_t *count, bson_error_t *error);
truce_status truce__engine_distinct(struct engine *engine, const char *collection, const char *path,
                                    const bson_t *filter, bson_t *values, bson_error_t *error);
truce_status truce__engine_explain(struct engine *engine, const char *collection,
                                   const bson_t *filter, const truce_find_options *options,
                                   bool count, bson_t *plan, bson_error_t *error);
truce_status truce__engine_read_many(struct engine *engine, truce_read_request *requests,
                                     size_t count, bson_error_t *error);

/* Returns when everything that was found `early` is durable. Returns at once for a view, and for a
 * store with the option `relaxed`. */
truce_status truce__engine_settle(struct engine *engine, bson_error_t *error);

/* ---- writing (bulk_write.c, find_and_modify.c, rewrite.c) ------------------------------------ */

truce_status truce__engine_bulk(struct engine *engine, const truce_write *writes, size_t count,
                                const truce_bulk_options *options, truce_write_outcome *outcomes,
                                bson_error_t *error);
/* Does the same if what options->checks have found in the view is still valid. If `view` is NULL,
 * checks nothing. */
truce_status truce__engine_checked_bulk(struct engine *engine, const struct engine *view,
                                        const truce_write *writes, size_t count,
                                        const truce_bulk_options *options,
                                        truce_write_outcome *outcomes, bson_error_t *error);
truce_status truce__engine_find_and_modify(struct engine *engine, const char *collection,
                                           const bson_t *filter, const bson_t *update,
                                           const truce_modify_options *options, bson_t *document,
                                           truce_write_result *result, bson_error_t *error);

truce_status truce__engine_rewrite(struct engine *engine, truce_rewrite *rewrite,
                                   bson_error_t *error);

/* ---- collections and indexes (collections.c, index_build.c) --------------------------------- */

truce_status truce__engine_index_create(struct engine *engine, const char *collection,
                                        const bson_t *index, bson_error_t *error);
truce_status truce__engine_index_drop(struct engine *engine, const char *collection,
                                      const char *name, bson_error_t *error);
truce_status truce__engine_index_modify(struct engine *engine, const char *collection,
                                        const char *name, const bson_t *changes,
                                        bson_error_t *error);
truce_status truce__engine_index_list(struct engine *engine, const char *collection,
                                      bson_t *indexes, bson_error_t *error);
/* Gives the file an id if it has none: the id of its feed, if it has one. */
truce_status truce__engine_identify(struct engine *engine, bson_error_t *error);
/* The options that a collection is created with or changed to. */
struct collection_options {
    /* The validator, or NULL to leave it unchanged. {} removes it. The call fails with INVALID if
     * it is not a valid filter. */
    const bson_t *validator;
    /* Whether the feed stores the documents before and after a change (change_feed.h), or NULL to
     * leave this unchanged. */
    const bool *images;
    /* An index that is changed as well, or NULL. */
    const char *index;
    /* The changes of that index (truce_index_modify). */
    const bson_t *changes;
};

truce_status truce__engine_collection_create(struct engine *engine, const char *collection,
                                             const struct collection_options *options,
                                             bson_error_t *error);
truce_status truce__engine_collection_modify(struct engine *engine, const char *collection,
                                             const struct collection_options *options,
                                             bson_error_t *error);
truce_status truce__engine_collection_drop(struct engine *engine, const char *collection,
                                           bson_error_t *error);
truce_status truce__engine_collection_rename(struct engine *engine, const char *from,
                                             const char *to, bool drop_target, bson_error_t *error);
/* Returns the validator, or {} if the collection has none. A validator that is returned is durable.
 * `validator` is always initialized. */
truce_status truce__engine_validator(struct engine *engine, const char *collection,
                                     bson_t *validator, bson_error_t *error);
truce_status truce__engine_collection_list(struct engine *engine, const truce_list_options *options,
                                           bson_t *collections, bson_error_t *error);
/* ---- compaction (compaction.c) -------------------------------------------------------------- */

/* Compacts as truce_compact does. The report is zeroed by the caller. */
truce_status truce__engine_compact(struct engine *engine, const truce_compact_options *options,
                                   truce_compact_report *report, bson_error_t *error);

/* ---- checking (integrity_check.c) ------------------------------------------------------------ */

/* Checks the invariants of indexed_documents.c and catalog.c in one snapshot. Fails with CORRUPT
 * and the first violation. Returns in `*documents` and `*entries` how many were checked (NULL is
 * allowed). */
truce_status truce__engine_check(struct engine *engine, int64_t *documents, int64_t *entries,
                                 bson_error_t *error);

#endif
