#ifndef TRUCE_COPY_H
#define TRUCE_COPY_H

/*
 * Moving a store: all collections of one store, truce's own among them, into another, of any kinds.
 *
 * Documents are copied byte for byte, with their indexes, and compared afterwards: every document of
 * both sides is read again. What the call calls verified is the state in which `from` was in one moment, as
 * a whole, if nobody else writes to `to` meanwhile: when the call began, if `from` can take a snapshot without a maximum
 * (truce/snapshot.h; give a view of your own for one with maxima), else when its last comparison began.
 *
 * A copy that is cut off at any moment is gone on with by the next call. The record of how far it
 * came stands in `to`, one document for each collection:
 *
 *     truce_copies  {_id: "people", from: "school.truce", run, state: "copying", last, documents, at}
 *
 * It is the only collection that is not copied itself. Views, validation rules and collations are not
 * documents, and stay behind.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef enum truce_copy_mode {
    TRUCE_COPY_NEW =
        0,            /* into collections that are empty, or hold an unfinished copy of `name`. What
                           is a finished copy is compared, and nothing is written. */
    TRUCE_COPY_MERGE, /* what `to` lacks is inserted; what it holds stays */
    TRUCE_COPY_REPLACE, /* the collections become those of `from`: other documents are replaced and
                           removed */
    TRUCE_COPY_COMPARE, /* nothing is written */
} truce_copy_mode;

/* A collection that was compared, in the end: {collection, documents, hash, indexes, inserted,
 * replaced, removed, kept, missing, other, extra, same}; `hash` is a fingerprint of all documents of
 * `from`, in hexadecimal digits; `missing`, `other` and `extra` are differences that are left, `kept`
 * what `to` holds besides, `same` whether `to` has exactly these documents (with MERGE: at least). */
typedef void truce_copy_collection_function(const bson_t *collection, void *arg);

/* A difference that was left: {collection, id, difference: "missing", "other" or "extra", field?,
 * from?, to?, text?}, or {collection, index, text}. `field` is the first that differs, `text` why
 * the store refused it. Only the first `differences_max` are told. */
typedef void truce_copy_difference_function(const bson_t *difference, void *arg);

/* `done` of about `total` documents are copied, or compared. */
typedef void truce_copy_progress_function(bool comparing, int64_t done, int64_t total, void *arg);

typedef struct truce_copy_options {
    truce_copy_mode mode;
    const char *name;               /* what the record calls `from`; NULL: "" */
    const char *const *collections; /* NULL-terminated; NULL: all. NOT_FOUND: there is none such */
    bool live;                      /* commits may be open in `from`: they are copied as they are */
    bool no_indexes;                /* documents only */
    uint32_t batch;  /* documents that are read and written at a time; 0: 1,000; at most 10,000 */
    uint32_t rounds; /* how often what differs is copied again, because `from` is changed; 0: 3 */
    uint32_t differences_max;                   /* 0: 20 */
    truce_copy_collection_function *collection; /* these may be NULL */
    truce_copy_difference_function *difference;
    truce_copy_progress_function *progress;
    void *arg;
    uint64_t reserved[4]; /* zeros */
} truce_copy_options;

typedef struct truce_copy_report {
    int64_t collections, documents;               /* of `from`, when they were compared last */
    int64_t inserted, replaced, removed, indexes; /* in `to`, by this call */
    int64_t kept;                                 /* documents that `to` has besides; MERGE */
    int64_t
        differences; /* documents and indexes in which `to` is not as it should be; 0: verified */
    int64_t open;    /* commits that were open in `from` at the beginning */
    int64_t resumed_at;   /* documents that an earlier call had copied */
    uint64_t reserved[4]; /* zeros */
} truce_copy_report;

/* OK: it was compared; report->differences tells. CONFLICT: `to` holds other documents, or a copy of
 * another store, or commits are open (report->open), or another process began to copy the same
 * collection. NOT_FOUND: no such collection in `from`. INVALID: a part of a store is asked for
 * without the commits that hold documents of it. Any other: a store failed; call again. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_copy(truce_store *from, truce_store *to,
                                                    const truce_copy_options *options,
                                                    truce_copy_report *report, bson_error_t *error);

TRUCE_END_DECLS

#endif
