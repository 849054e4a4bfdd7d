#ifndef TRUCE_STORE_OVERLAY_OVERLAY_PARTS_H
#define TRUCE_STORE_OVERLAY_OVERLAY_PARTS_H

/* The internals that the files of overlay/ share. */
#include "base/fingerprint.h"
#include "query/index/index.h"
#include "store/overlay/transaction_overlay.h"

/* A document that is or was in the scratch. */
struct entry {
    /* The next entry of the bucket. */
    struct entry *next;
    /* The key of the document's _id. */
    struct buffer key;
    /* The document in the view, or NULL if the view does not have it. */
    bson_t *base;
    /* The number of the write that added the entry. The commit sets it to UINT64_MAX if the scratch
     * has the document. */
    uint64_t since;
    /* The size of the document in the scratch in bytes, or 0 if it was removed. */
    uint32_t size;
    /* Whether a statement changed the document and bypassed the validator. The commit then bypasses
     * it, too. */
    bool unvalidated;
    /* Whether a statement replaced the whole document. The commit then replaces it, too. */
    bool replaced;
};

/* A find in the view, which a commit repeats to check that its result is the same. */
struct read {
    struct read *next;
    /* The filter, and the sort or NULL if no order is required. */
    bson_t *filter, *sort;
    /* The limit, and the number of documents that were returned. */
    int64_t limit, count;
    /* The fingerprint of these documents. */
    struct fingerprint sum;
    /* Whether the view returned all matches. */
    bool ended;
};

struct collection_part {
    struct collection_part *next;
    char *name;
    /* The recorded reads of the collection. */
    struct read *reads;
    uint32_t reads_count;
    /* Whether there were too many reads to record, or a read of a part of an index. Then nothing in
     * the collection may change. */
    bool whole;
    /* Whether the transaction has created the collection, which the view does not have. */
    bool made;
    /* Whether `unique` and `validator` are known, and the scratch has the indexes. */
    bool prepared;
    /* The unique indexes, without the one of _id. */
    struct index_spec *unique;
    uint32_t unique_count;
    bson_t validator;
    /* The hash table of the entries: lists of entries that share a bucket. */
    struct entry **buckets;
    uint32_t entries, buckets_count;
};

struct overlay {
    /* Must be the first field. */
    truce_store base;
    /* The store below, its snapshot, and the memory store with the written documents. */
    truce_store *store, *view, *scratch;
    struct overlay_options options;
    /* The collections that the transaction has read or written. */
    struct collection_part *parts;
    /* The number of writes that have begun. */
    uint64_t writes;
    /* The number of entries, and the bytes of their documents in the view and in the scratch. */
    size_t bytes, documents;
    /* The number of these bytes that are counted in options.total. */
    size_t counted;
    /* Whether the transaction cannot be committed, because an undo failed. */
    bool broken;
};

static inline struct overlay *overlay_of(truce_store *base)
{
    return (struct overlay *)base;
}

/* Functions of transaction_overlay.c. */
struct collection_part *truce__overlay_part(struct overlay *overlay, const char *collection);
/* Reads the indexes and the validator of the collection, and creates the indexes in the scratch. */
truce_status truce__overlay_prepare(struct overlay *overlay, struct collection_part *part,
                                    bson_error_t *error);
/* Creates an index in the scratch, for a prepared part. */
truce_status truce__overlay_keep_index(struct overlay *overlay, struct collection_part *part,
                                       const bson_t *definition, bson_error_t *error);
/* Finds the entry of a document, by its _id. Returns NULL if the part has no such entry. */
struct entry *truce__overlay_entry(const struct collection_part *part, const bson_t *document);
struct entry *truce__overlay_add(struct overlay *overlay, struct collection_part *part,
                                 const bson_t *document, const bson_t *base);
/* Builds {_id: ...} with the _id of the document. */
void truce__overlay_id(const bson_t *document, bson_t *filter);

truce_status truce__overlay_bulk(truce_store *base, const truce_write *writes, size_t count,
                                 const truce_bulk_options *options, truce_write_outcome *outcomes,
                                 bson_error_t *error);
truce_status truce__overlay_modify(truce_store *base, const char *collection, const bson_t *filter,
                                   const bson_t *update, const truce_modify_options *options,
                                   bson_t *document, truce_write_result *result,
                                   bson_error_t *error);

/* Functions of the table (overlay_write.c). */
truce_status truce__overlay_create(truce_store *base, const char *name, bson_error_t *error);
truce_status truce__overlay_validate(truce_store *base, const char *name, const bson_t *validator,
                                     bson_error_t *error);
truce_status truce__overlay_list(truce_store *base, const truce_list_options *options,
                                 bson_t *collections, bson_error_t *error);
truce_status truce__overlay_index_create(truce_store *base, const char *name, const bson_t *index,
                                         bson_error_t *error);
truce_status truce__overlay_index_list(truce_store *base, const char *name, bson_t *indexes,
                                       bson_error_t *error);
/* The collections and indexes that the commit creates. */
struct makings {
    truce_making *all;
    /* For each collection, its indexes. */
    bson_t *indexes;
    size_t count;
};
truce_status truce__overlay_makings(struct overlay *overlay, struct makings *makings,
                                    bson_error_t *error);
void truce__overlay_makings_release(struct makings *makings);

#endif
