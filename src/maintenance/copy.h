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

/* ---- records (copy_record.c) ---- */

/* NOT_FOUND: there is none; `record` is always initialised. */
truce_status truce__copy_record_read(struct copy *copy, const char *collection, bson_t *record,
                                     bson_error_t *error);
/* This run takes the collection over. */
truce_status truce__copy_record_begin(struct copy *copy, const struct copy_part *part,
                                      bson_error_t *error);
/* Everything up to the _id is copied. CONFLICT: another run took the collection over. */
truce_status truce__copy_record_save(struct copy *copy, struct copy_part *part, struct value id,
                                     bson_error_t *error);
/* All that this run began is copied and was compared. */
truce_status truce__copy_record_finish(struct copy *copy, bson_error_t *error);
/* The filter of the documents behind `part->last`. */
void truce__copy_behind(const struct copy_part *part, bson_t *filter);

/* ---- documents (copy_pass.c) ---- */

/* Goes through the collection once; writes what its rights allow, or compares. */
truce_status truce__copy_pass(struct copy *copy, struct copy_part *part, bool write,
                              bson_error_t *error);

/* ---- indexes (copy_index.c) ---- */

/* Makes the collection and its indexes, those that expire documents or the others. */
truce_status truce__copy_indexes(struct copy *copy, struct copy_part *part, bool expiring,
                                 bson_error_t *error);
/* And its validator and other options, last of all. */
truce_status truce__copy_options(struct copy *copy, const struct copy_part *part,
                                 bson_error_t *error);
truce_status truce__copy_indexes_compare(struct copy *copy, struct copy_part *part,
                                         bson_error_t *error);

/* ---- differences (copy_report.c) ---- */

/* `from` and `to` are the two documents; NULL: there is none. Counts it. */
void truce__copy_differs(struct copy *copy, struct copy_part *part, const bson_t *from,
                         const bson_t *to);
void truce__copy_index_differs(struct copy *copy, const struct copy_part *part, const char *index,
                               const char *text);
/* A store refused to take the document. */
void truce__copy_refused(struct copy *copy, const struct copy_part *part, const bson_t *document,
                         const bson_error_t *why);
int64_t truce__copy_different(const struct copy_part *part);
void truce__copy_notes_clear(struct copy *copy, struct copy_notes *notes);
/* Tells the options' functions of all collections and of the differences that are left. */
void truce__copy_tell(struct copy *copy);

#endif
