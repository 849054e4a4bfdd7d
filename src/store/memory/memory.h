#ifndef TRUCE_STORE_MEMORY_MEMORY_H
#define TRUCE_STORE_MEMORY_MEMORY_H

/* The internals of the memory store; memory.c has the overview. Functions that take a collection
 * require the store's mutex. */
#include <pthread.h>
#include <stdatomic.h>

#include "query/index/index_set.h"
#include "query/index/index_span.h"
#include "query/match/match.h"
#include "query/sort/sort.h"
#include "query/update/update.h"
#include "store/store.h"

/* A stored document. It never changes; the collection and cursors share it. */
struct memory_document {
    atomic_uint references;
    /* The number that the collection gave the document when it was inserted, or 0 if it was never
     * inserted. */
    int64_t record;
    bson_t *bson;
    /* The number of indexes of the collection when the document was stored, and its keys in each of
     * them. */
    uint32_t keys_count;
    struct field_keys *keys;
};

struct memory_ids {
    struct memory_document **slots;
    /* The number of slots, a power of two. 0 means that there is no table. */
    size_t room;
};

struct memory_collection {
    char *name;
    /* The documents in the order of insertion. */
    struct memory_document **documents;
    size_t count, room;
    struct memory_ids ids;
    /* The number of documents that were ever inserted. */
    int64_t records;
    /* The first index is the one of _id. */
    struct index_spec **indexes;
    uint32_t indexes_count;
    /* The validator, or NULL if every document is valid. */
    struct match *validator;
    /* The value of `sequence` at the last write to this collection. */
    uint64_t changed;
};

struct memory_store {
    truce_store base;
    /* Guards the fields below, and the collections. */
    pthread_mutex_t mutex;
    /* Signaled after each write, for truce_wait. */
    pthread_cond_t written;
    /* The collections, sorted by name. */
    struct memory_collection **collections;
    size_t count;
    /* The number of writes. */
    uint64_t sequence;
    /* The value of `sequence` when a collection, an index, or all documents of a collection were
     * last removed. */
    uint64_t dropped;
};

/* ---- collections ---- */

struct memory_collection *truce__memory_find(struct memory_store *store, const char *name);
struct memory_collection *truce__memory_find_or_create(struct memory_store *store,
                                                       const char *name);
void truce__memory_drop(struct memory_store *store, struct memory_collection *collection);
/* Marks the collection as written, and wakes waiting threads. */
void truce__memory_written(struct memory_store *store, struct memory_collection *collection);

/* ---- documents with their keys --------------------------------------------------------------- */

struct memory_document *truce__memory_document_hold(struct memory_document *document);
void truce__memory_document_release(struct memory_document *document);

/* Makes a document with the keys of all the collection's indexes. */
truce_status truce__memory_document_new(const struct memory_collection *collection,
                                        const bson_t *bson, struct memory_document **document,
                                        bson_error_t *error);

/* Fails with DUPLICATE if a document other than number `except` has one of the document's keys in a
 * unique index. If `except` is SIZE_MAX, all documents are compared. */
truce_status truce__memory_check_unique(const struct memory_collection *collection,
                                        const struct memory_document *document, size_t except,
                                        struct budget *budget, bson_error_t *error);

/* Changes the list. The collection takes over the caller's reference (insert, replace), or returns
 * its own (remove). An inserted document gets a number; a replacement gets the number of the
 * replaced document. */
void truce__memory_insert(struct memory_collection *collection, size_t position,
                          struct memory_document *document);
struct memory_document *truce__memory_replace(struct memory_collection *collection, size_t position,
                                              struct memory_document *document);
struct memory_document *truce__memory_remove(struct memory_collection *collection, size_t position);

/* ---- documents by _id ------------------------------------------------------------------------ */

/* Finds the positions of the documents that the filter can match, in ascending order. The caller
 * frees them. Returns false if the filter names no _id, so that any document can match. */
bool truce__memory_ids_of(const struct memory_collection *collection, const struct match *match,
                          size_t **positions, size_t *count);

/* ---- memory_read.c ---- */

/* A document that a filter matched. */
struct memory_match {
    /* The position in the collection. Valid while the mutex is held. */
    size_t position;
    struct memory_document *document;
    struct match_result found;
};

struct memory_matches {
    struct memory_match *items;
    /* The number of items, and the number that fit into the memory. */
    size_t count, room;
};

struct memory_query {
    const struct match *match;
    const bson_t *sort, *hint;
    /* The bounds in the hint's index (index_span.h), or NULL. */
    const bson_t *min, *max;
    /* The number of matches to skip, and the maximum number to return or 0. */
    int64_t skip, limit;
    struct query_context *context;
};

/* Finds all matches in order. Each match has a reference to its document. Always initializes
 * `matches`. */
truce_status truce__memory_select(const struct memory_collection *collection,
                                  const struct memory_query *query, struct memory_matches *matches,
                                  bson_error_t *error);
void truce__memory_matches_release(struct memory_matches *matches);

truce_status truce__memory_find_documents(truce_store *base, const char *name, const bson_t *filter,
                                          const truce_find_options *options, truce_cursor **cursor,
                                          bson_error_t *error);
truce_status truce__memory_count(truce_store *base, const char *name, const bson_t *filter,
                                 const truce_count_options *options, int64_t *count,
                                 bson_error_t *error);
truce_status truce__memory_distinct(truce_store *base, const char *name, const char *path,
                                    const bson_t *filter, bson_t *values, bson_error_t *error);
truce_status truce__memory_aggregate(truce_store *base, const char *name, const bson_t *pipeline,
                                     const truce_aggregate_options *options, truce_cursor **cursor,
                                     bson_error_t *error);
truce_status truce__memory_explain(truce_store *base, const char *name, const bson_t *filter,
                                   const truce_find_options *options, bool count, bson_t *plan,
                                   bson_error_t *error);
truce_status truce__memory_read_many(truce_store *base, truce_read_request *requests, size_t count,
                                     bson_error_t *error);

/* ---- memory_write.c ---- */

truce_status truce__memory_bulk(truce_store *base, const truce_write *writes, size_t count,
                                const truce_bulk_options *options, truce_write_outcome *outcomes,
                                bson_error_t *error);
truce_status truce__memory_find_and_modify(truce_store *base, const char *name,
                                           const bson_t *filter, const bson_t *update,
                                           const truce_modify_options *options, bson_t *document,
                                           truce_write_result *result, bson_error_t *error);
truce_status truce__memory_rewrite(truce_store *base, truce_rewrite *rewrite, bson_error_t *error);

#endif
