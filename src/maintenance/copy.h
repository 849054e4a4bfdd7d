#ifndef TRUCE_MAINTENANCE_COPY_H
#define TRUCE_MAINTENANCE_COPY_H

/* The data and functions that the files of the copy share. The contract is in truce/copy.h, the
 * essay in copy.c. */
#include "base/fingerprint.h"
#include "bson/value.h"
#include "store/reserved_names.h"
#include "truce/copy.h"

enum copy_rights {
    COPY_NOTHING,    /* Only compare. */
    COPY_INSERTS,    /* Insert missing documents. */
    COPY_EVERYTHING, /* Also replace and remove documents. */
};

/* The state of one collection. */
struct copy_part {
    char *collection;
    enum copy_rights rights;
    /* `to` has no document of it yet, so no lookup is needed. */
    bool fresh;
    /* May be NULL. */
    bson_t *validator;
    /* The change feed stores earlier versions of its documents. */
    bool images;
    /* {last: _id}: the copy resumes after it; empty at the beginning. */
    bson_t *last;
    /* Approximate number of documents. */
    int64_t expected;
    /* Documents that an earlier call copied. */
    int64_t before;
    int64_t inserted, replaced, removed, indexes;
    /* Results of the last comparison: */
    /* The number of documents of `from`, and of those that `to` has, equal or not. */
    int64_t documents, found;
    int64_t kept, missing, other, extra;
    /* The fingerprints of these documents on both sides. */
    struct fingerprint from_sum, to_sum;
};

/* The first findings, and the number of all. */
struct copy_notes {
    bson_t **items; /* Up to differences_max. */
    int64_t count;
};

struct copy {
    truce_store *from, *to;
    truce_copy_options options; /* With the defaults. */
    truce_copy_report *report;
    bson_oid_t run; /* Identifies this call. */
    struct copy_part *parts;
    size_t count;
    int64_t done, total; /* For the progress. */
    bool comparing;
    struct copy_notes differences, refusals, indexes;
};

/* ---- records ---- */

/* Records that everything up to the _id is copied. Fails with CONFLICT if another run has taken
 * over the collection. */
truce_status truce__copy_record_save(struct copy *copy, struct copy_part *part, struct value id,
                                     bson_error_t *error);
/* Builds the filter of the documents after `part->last`. */
void truce__copy_behind(const struct copy_part *part, bson_t *filter);

/* ---- documents (copy_pass.c) ---- */

/* Reads the collection once. Writes what its rights allow, or compares. */
truce_status truce__copy_pass(struct copy *copy, struct copy_part *part, bool write,
                              bson_error_t *error);

/* ---- indexes ---- */

/* ---- differences ---- */

/* Counts and notes a difference between two documents; either may be NULL. */
void truce__copy_differs(struct copy *copy, struct copy_part *part, const bson_t *from,
                         const bson_t *to);
/* Notes that a store refused the document. */
void truce__copy_refused(struct copy *copy, const struct copy_part *part, const bson_t *document,
                         const bson_error_t *why);

#endif
