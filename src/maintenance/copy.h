#ifndef TRUCE_MAINTENANCE_COPY_H
#define TRUCE_MAINTENANCE_COPY_H

/* The data and functions that the files of the copy share. The contract is in truce/copy.h, the
 * essay in copy.c. */
#include "base/fingerprint.h"
#include "bson/value.h"
#include "store/reserved_names.h"
#include "truce/copy.h"

enum copy_rights {
    COPY_NOTHING,    /* only compare */
    COPY_INSERTS,    /* insert missing documents */
    COPY_EVERYTHING, /* also replace and remove documents */
};

/* The state of one collection. */
struct copy_part {
    char *collection;
    enum copy_rights rights;
    bool fresh;        /* `to` has no document of it yet, so no lookup is needed. */
    bson_t *validator; /* may be NULL. */
    bool images;       /* the change feed stores earlier versions of its documents. */
    bson_t *last;      /* {last: _id}: the copy resumes after it; empty at the beginning. */
    int64_t expected;  /* approximate number of documents. */
    int64_t before;    /* documents that an earlier call copied. */
    int64_t inserted, replaced, removed, indexes;
    /* results of the last comparison: */
    /* The number of documents of `from`, and of those that `to` has, equal or not. */
    int64_t documents, found;
    int64_t kept, missing, other, extra;
    struct fingerprint from_sum, to_sum; /* The fingerprints of these documents on both sides. */
};

/* The first findings, and the number of all. */
struct copy_notes {
    bson_t **items; /* up to differences_max */
    int64_t count;
};

struct copy {
    truce_store *from, *to;
    truce_copy_options options; /* with the defaults */
    truce_copy_report *report;
    bson_oid_t run; /* identifies this call */
    struct copy_part *parts;
    size_t count;
    int64_t done, total; /* for the progress */
    bool comparing;
    struct copy_notes differences, refusals, indexes;
};

/* ---- records ---- */

/* Records that everything up to the _id is copied. CONFLICT: another run has taken over the
 * collection. */
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
