#ifndef TRUCE_STORE_MEMORY_MEMORY_H
#define TRUCE_STORE_MEMORY_MEMORY_H

/* The parts of the memory store (memory.c has the whole picture). Functions that take a collection
 * want the store's mutex held. */
#include <pthread.h>
#include <stdatomic.h>

#include "query/index/index_set.h"
#include "query/index/index_span.h"
#include "query/match/match.h"
#include "query/sort/sort.h"
#include "query/update/update.h"
#include "store/store.h"

/* A document as it was stored: never changed, shared by the collection and by cursors. */
struct memory_document {
    atomic_uint references;
    int64_t
        record; /* its number in the collection, from the insertion on; 0: it never stood there */
    bson_t *bson;
    uint32_t keys_count; /* indexes of the collection when it was stored */
    struct field_keys *keys;
};

struct memory_ids {
    struct memory_document **slots;
    size_t room; /* a power of two; 0: it has none */
};

struct memory_collection {
    char *name;
    struct memory_document **documents; /* in the order of insertion */
    size_t count, room;
    struct memory_ids ids;
    int64_t records;             /* that were given a number */
    struct index_spec **indexes; /* _id's first */
    uint32_t indexes_count;
    struct match *validator; /* NULL: none */
    uint64_t changed;        /* the store's sequence number at the last write */
};

struct memory_store {
    truce_store base;
    pthread_mutex_t mutex;
    pthread_cond_t written;
    struct memory_collection **collections; /* in the order of names */
    size_t count;
    uint64_t sequence; /* of writes */
    uint64_t
        dropped; /* the sequence number when a collection or an index last went away, or all its documents */
};

/* ---- collections ---- */

struct memory_collection *truce__memory_find(struct memory_store *store, const char *name);
struct memory_collection *truce__memory_find_or_create(struct memory_store *store,
                                                       const char *name);
void truce__memory_drop(struct memory_store *store, struct memory_collection *collection);
/* Marks the collection as written to and wakes who waits for it. */
void truce__memory_written(struct memory_store *store, struct memory_collection *collection);

/* ---- documents with their keys ---- */

struct memory_document *truce__memory_document_hold(struct memory_document *document);
void truce__memory_document_release(struct memory_document *document);

/* A document with the keys of all the collection's indexes. */
truce_status truce__memory_document_new(const struct memory_collection *collection,
                                        const bson_t *bson, struct memory_document **document,
                                        bson_error_t *error);

/* DUPLICATE if a unique index of the collection has one of the document's keys already, from
 * another document than number `except` (SIZE_MAX: none is left out). */
truce_status truce__memory_check_unique(const struct memory_collection *collection,
                                        const struct memory_document *document, size_t except,
                                        struct budget *budget, bson_error_t *error);

/* The collection takes over the caller's reference (insert, replace), or gives its own (remove). What is new gets a number,
 * what replaces another has the other's. */
void truce__memory_insert(struct memory_collection *collection, size_t position,
                          struct memory_document *document);
struct memory_document *truce__memory_replace(struct memory_collection *collection, size_t position,
                                              struct memory_document *document);
struct memory_document *truce__memory_remove(struct memory_collection *collection, size_t position);

/* ---- documents by their _id ---- */

/* Where the documents stand that the filter can match, ascending, to be freed; false: it may be any. */
bool truce__memory_ids_of(const struct memory_collection *collection, const struct match *match,
                          size_t **positions, size_t *count);

/* ---- memory_read.c ---- */

/* What a filter found. */
struct memory_match {
    size_t position; /* in the collection, while the mutex is held */
    struct memory_document *document;
    struct match_result found;
};

struct memory_matches {
    struct memory_match *items;
    size_t count, room;
};

struct memory_query {
    const struct match *match;
    const bson_t *sort, *hint;
    const bson_t *min, *max; /* of the hint's index (index_span.h) */
    int64_t skip, limit;
    struct query_context *context;
};

/* All matches in order; each holds a reference to its document. `matches` is initialised here. */
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
truce_status truce__memory_read_many(truce_store *base, truce_look *looks, size_t count,
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
