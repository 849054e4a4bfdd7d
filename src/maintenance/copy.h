#ifndef TRUCE_MAINTENANCE_COPY_H
#define TRUCE_MAINTENANCE_COPY_H

/* What the files of copying share. The contract is in truce/copy.h; the essay in copy.c. */
#include "base/fingerprint.h"
#include "bson/value.h"
#include "store/reserved.h"
#include "truce/copy.h"

enum copy_rights {
    COPY_NOTHING,    /* compared only */
    COPY_INSERTS,    /* what is missing is inserted */
    COPY_EVERYTHING, /* and the rest replaced and removed */
};

/* One collection. */
struct copy_part {
    char *collection;
    enum copy_rights rights;
    bool fresh;        /* `to` has no document of it yet: nothing need be looked up */
    bson_t *validator; /* NULL: none */
    bool images;       /* the feed of changes keeps its documents as they were */
    bson_t *last;      /* {last: _id}: behind it the copying goes on; empty: at the beginning */
    int64_t expected;  /* documents, about */
    int64_t before;    /* documents that an earlier call copied */
    int64_t inserted, replaced, removed, indexes;
    /* of the last comparison: */
    int64_t documents, found; /* of `from`; those of them that `to` has, the same or not */
    int64_t kept, missing, other, extra;
    struct fingerprint from_sum, to_sum; /* of these documents, on the two sides */
};

/* The first of some findings, and how many there are. */
struct copy_notes {
    bson_t **items; /* up to differences_max */
    int64_t count;
};

struct copy {
    truce_store *from, *to;
    truce_copy_options options; /* with the defaults */
    truce_copy_report *report;
    bson_oid_t run; /* this call */
    struct copy_part *parts;
    size_t count;
    int64_t done, total; /* for the progress */
    bool comparing;
    struct copy_notes differences, refusals, indexes;
};

/* ---- records ---- */

/* Everything up to the _id is copied. CONFLICT: another run took the collection over. */
truce_status truce__copy_record_save(struct copy *copy, struct copy_part *part, struct value id,
                                     bson_error_t *error);
/* The filter of the documents behind `part->last`. */
void truce__copy_behind(const struct copy_part *part, bson_t *filter);

/* ---- documents (copy_pass.c) ---- */

/* Goes through the collection once; writes what its rights allow, or compares. */
truce_status truce__copy_pass(struct copy *copy, struct copy_part *part, bool write,
                              bson_error_t *error);

/* ---- indexes ---- */

/* ---- differences ---- */

/* `from` and `to` are the two documents; NULL: there is none. Counts it. */
void truce__copy_differs(struct copy *copy, struct copy_part *part, const bson_t *from,
                         const bson_t *to);
/* A store refused to take the document. */
void truce__copy_refused(struct copy *copy, const struct copy_part *part, const bson_t *document,
                         const bson_error_t *why);

#endif
