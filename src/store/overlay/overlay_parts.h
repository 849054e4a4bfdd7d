#ifndef TRUCE_STORE_OVERLAY_OVERLAY_PARTS_H
#define TRUCE_STORE_OVERLAY_OVERLAY_PARTS_H

/* What the files of overlay/ share. */
#include "base/fingerprint.h"
#include "query/index/index.h"
#include "store/overlay/overlay.h"

/* A document that the scratch has, or had. */
struct entry {
    struct entry *next; /* of the same bucket */
    struct buffer key;  /* of its _id */
    bson_t *base;       /* in the view; NULL: it was not there */
    uint64_t since;     /* number of the write that brought it */
    uint32_t size;      /* in the scratch */
    bool unvalidated; /* a statement changed it past the validator; the commit lets it pass, too */
    bool replaced;    /* one meant all of it, and so does the commit */
};

/* A find in the view. */
struct read {
    struct read *next;
    bson_t *filter, *sort; /* sort NULL: none */
    int64_t limit, count;
    struct fingerprint sum;
    bool ended; /* the view had no more */
};

struct collection_part {
    struct collection_part *next;
    char *name;
    /* what was read of it */
    struct read *reads;
    uint32_t reads_count;
    bool whole; /* too much: nothing of it may change */
    /* what was written to it */
    bool made;                 /* here: the view has it not */
    bool prepared;             /* what follows is known, and the scratch has the indexes */
    struct index_spec *unique; /* those besides _id's */
    uint32_t unique_count;
    bson_t validator;
    struct entry **buckets;
    uint32_t entries, buckets_count;
};

struct overlay {
    truce_store base; /* first */
    truce_store *store, *view, *scratch;
    struct overlay_options options;
    struct collection_part *parts;
    uint64_t writes;         /* that were begun */
    size_t bytes, documents; /* of all entries */
    size_t told;             /* of these bytes, in options.total */
    bool spoiled;            /* it has what it must not have, and cannot be committed */
};

static inline struct overlay *overlay_of(truce_store *base)
{
    return (struct overlay *)base;
}

/* overlay.c */
struct collection_part *truce__overlay_part(struct overlay *overlay, const char *collection);
/* The indexes and the validator of the collection, and the former in the scratch. */
truce_status truce__overlay_prepare(struct overlay *overlay, struct collection_part *part,
                                    bson_error_t *error);
/* Makes an index in the scratch, of a part that is prepared. */
truce_status truce__overlay_keep_index(struct overlay *overlay, struct collection_part *part,
                                       const bson_t *definition, bson_error_t *error);
/* `document` has the _id. NULL: there is none. */
struct entry *truce__overlay_entry(const struct collection_part *part, const bson_t *document);
struct entry *truce__overlay_add(struct overlay *overlay, struct collection_part *part,
                                 const bson_t *document, const bson_t *base);
/* {_id: that of the document} */
void truce__overlay_id(const bson_t *document, bson_t *filter);

/* overlay_write.c */
truce_status truce__overlay_bulk(truce_store *base, const truce_write *writes, size_t count,
                                 const truce_bulk_options *options, truce_write_outcome *outcomes,
                                 bson_error_t *error);
truce_status truce__overlay_modify(truce_store *base, const char *collection, const bson_t *filter,
                                   const bson_t *update, const truce_modify_options *options,
                                   bson_t *document, truce_write_result *result,
                                   bson_error_t *error);

/* overlay_write.c: of the table of functions */
truce_status truce__overlay_create(truce_store *base, const char *name, bson_error_t *error);
truce_status truce__overlay_validate(truce_store *base, const char *name, const bson_t *validator,
                                     bson_error_t *error);
truce_status truce__overlay_list(truce_store *base, const truce_list_options *options,
                                 bson_t *collections, bson_error_t *error);
truce_status truce__overlay_index_create(truce_store *base, const char *name, const bson_t *index,
                                         bson_error_t *error);
truce_status truce__overlay_index_list(truce_store *base, const char *name, bson_t *indexes,
                                       bson_error_t *error);
/* What is made by the commit. */
struct makings {
    truce_making *all;
    bson_t *indexes; /* one for each */
    size_t count;
};
truce_status truce__overlay_makings(struct overlay *overlay, struct makings *makings,
                                    bson_error_t *error);
void truce__overlay_makings_release(struct makings *makings);

#endif
