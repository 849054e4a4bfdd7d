#ifndef TRUCE_STORE_OVERLAY_OVERLAY_PARTS_H
#define TRUCE_STORE_OVERLAY_OVERLAY_PARTS_H

/* The internals that the files of overlay/ share. */
#include "base/fingerprint.h"
#include "query/index/index.h"
#include "store/overlay/transaction_overlay.h"

/* A document that is or was in the scratch. */
struct entry {
    /* In the same bucket. */
    struct entry *next;
    /* The key of its _id. */
    struct buffer key;
    /* In the view, or NULL if it is missing. */
    bson_t *base;
    /* The number of the write that added it. */
    uint64_t since;
    /* In the scratch. */
    uint32_t size;
    /* A statement changed it with a bypass of the validator; the commit bypasses it too. */
    bool unvalidated;
    /* A statement replaced the whole document; the commit does so too. */
    bool replaced;
};

/* A find in the view. */
struct read {
    struct read *next;
    bson_t *filter, *sort; /* `sort` is NULL if there is no order. */
    int64_t limit, count;
    struct fingerprint sum;
    bool ended; /* The view returned all. */
};

struct collection_part {
    struct collection_part *next;
    char *name;
    /* Recorded reads. */
    struct read *reads;
    uint32_t reads_count;
    /* Too many: nothing in the collection may change. */
    bool whole;
    /* Writes. `made`: the transaction made the collection; the view does not have it. */
    bool made;
    /* The following fields are known, and the scratch has the indexes. */
    bool prepared;
    /* Without _id's. */
    struct index_spec *unique;
    uint32_t unique_count;
    bson_t validator;
    struct entry **buckets;
    uint32_t entries, buckets_count;
};

struct overlay {
    truce_store base; /* Must be the first field. */
    truce_store *store, *view, *scratch;
    struct overlay_options options;
    struct collection_part *parts;
    uint64_t writes;         /* Begun so far. */
    size_t bytes, documents; /* The sums over all entries. */
    size_t counted;          /* The part of the bytes that is counted in options.total. */
    bool broken;             /* It cannot be committed, because an undo failed. */
};

static inline struct overlay *overlay_of(truce_store *base)
{
    return (struct overlay *)base;
}

/* transaction_overlay.c */
struct collection_part *truce__overlay_part(struct overlay *overlay, const char *collection);
/* Reads the indexes and the validator of the collection, and makes the indexes in the scratch. */
truce_status truce__overlay_prepare(struct overlay *overlay, struct collection_part *part,
                                    bson_error_t *error);
/* Makes an index in the scratch, for a prepared part. */
truce_status truce__overlay_keep_index(struct overlay *overlay, struct collection_part *part,
                                       const bson_t *definition, bson_error_t *error);
/* Finds the entry of a document, by its _id. Returns NULL if the part has no such entry. */
struct entry *truce__overlay_entry(const struct collection_part *part, const bson_t *document);
struct entry *truce__overlay_add(struct overlay *overlay, struct collection_part *part,
                                 const bson_t *document, const bson_t *base);
/* Makes {_id: that of the document}. */
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
/* Collections and indexes for the commit to make. */
struct makings {
    truce_making *all;
    bson_t *indexes; /* One for each. */
    size_t count;
};
truce_status truce__overlay_makings(struct overlay *overlay, struct makings *makings,
                                    bson_error_t *error);
void truce__overlay_makings_release(struct makings *makings);

#endif
