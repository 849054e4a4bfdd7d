#ifndef TRUCE_MAINTENANCE_COPY_H
#define TRUCE_MAINTENANCE_COPY_H

/* The data and functions that the files of the copy share. The contract is in truce/copy.h, the
 * essay in copy.c. */
#include "base/fingerprint.h"
#include "bson/value.h"
#include "store/reserved_names.h"
#include "truce/copy.h"

enum copy_rights {
    /* The collection is only compared. */
    COPY_NOTHING,
    /* Missing documents are inserted. */
    COPY_INSERTS,
    /* Missing documents are inserted, and others are replaced or removed. */
    COPY_EVERYTHING,
};

/* The state of one collection. */
struct copy_part {
    char *collection;
    enum copy_rights rights;
    /* `to` has no document of the collection yet, so no lookup is needed. */
    bool fresh;
    /* The validator of the collection, or NULL. */
    bson_t *validator;
    /* Whether the change feed stores earlier versions of the documents. */
    bool images;
    /* {last: _id} if the copy resumes after this _id, or {} at the beginning. */
    bson_t *last;
    /* The approximate number of documents. */
    int64_t expected;
    /* The number of documents that an earlier call has copied. */
    int64_t before;
    /* The numbers of documents and indexes that this call has written. */
    int64_t inserted, replaced, removed, indexes;
    /* Results of the last comparison: the number of documents of `from`, and the number of them
     * that `to` has, equal or not. */
    int64_t documents, found;
    /* The number of documents that only `to` has, which a merge keeps; and the numbers of
     * differences of each kind. */
    int64_t kept, missing, other, extra;
    /* The fingerprints of the compared documents on both sides. */
    struct fingerprint from_sum, to_sum;
};

/* The first notes of a kind, and the number of all. */
struct copy_notes {
    /* The notes, at most options.differences_max. */
    bson_t **items;
    int64_t count;
};

struct copy {
    truce_store *from, *to;
    /* The options, with the defaults filled in. */
    truce_copy_options options;
    truce_copy_report *report;
    /* Identifies this call in the records of progress. */
    bson_oid_t run;
    struct copy_part *parts;
    size_t count;
    /* For reports of progress: the number of documents that were processed, and the number of
     * all. */
    int64_t done, total;
    /* Whether the progress is that of a comparison. */
    bool comparing;
    struct copy_notes differences, refusals, indexes;
};

/* ---- records ---- */

/* Records that all documents up to the _id are copied. Fails with CONFLICT if another run copies
 * the collection now. */
truce_status truce__copy_record_save(struct copy *copy, struct copy_part *part, struct value id,
                                     bson_error_t *error);
/* Builds the filter of the documents after `part->last`. */
void truce__copy_append_rest(const struct copy_part *part, bson_t *filter);

/* ---- documents (copy_pass.c) ---- */

/* Reads the collection once. With `write`, changes `to` as part->rights allows; otherwise
 * compares. */
truce_status truce__copy_pass(struct copy *copy, struct copy_part *part, bool write,
                              bson_error_t *error);

/* ---- differences ---- */

/* Counts and notes a difference between two documents. One of them is NULL if the document exists
 * on one side only. */
void truce__copy_differs(struct copy *copy, struct copy_part *part, const bson_t *from,
                         const bson_t *to);
/* Notes that a store refused the document. */
void truce__copy_refused(struct copy *copy, const struct copy_part *part, const bson_t *document,
                         const bson_error_t *why);

#endif
