#ifndef TRUCE_COPY_H
#define TRUCE_COPY_H

/*
 * Copies of a store.
 *
 * A copy contains all collections, including truce's own. The stores may be of any kinds.
 *
 * Documents are copied byte for byte with their indexes and validators. Then both sides are read
 * again and compared. If no other client writes to `to` in the meantime, the verified copy is one
 * consistent state of `from`. If `from` supports a snapshot without limits (truce/snapshot.h), it
 * is the state at the start of the call. Otherwise it is the state at the start of the last
 * comparison. For a snapshot with limits, pass a view of your own as `from`.
 *
 * If a copy is interrupted, the next call resumes it. The collection `truce_copies` of `to` records
 * the progress, one document for each collection:
 *
 *     {_id: "people", from: "school.truce", run, state: "copying", last, documents, at}
 *
 * `truce_copies` is the only collection that is not copied. Views, users of a MongoDB server,
 * collations, and capped sizes are not copied. An index or a validator that `to` cannot create is
 * reported as a difference.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

/* The treatment of documents that `to` already contains. */
typedef enum truce_copy_mode {
    /* Copy into collections that are empty or contain an unfinished copy of `name`. A finished copy
     * is only compared. */
    TRUCE_COPY_NEW = 0,
    /* Insert the documents that `to` lacks. Documents that it contains stay. */
    TRUCE_COPY_MERGE,
    /* Make the collections equal to those of `from`: other documents are replaced and removed. */
    TRUCE_COPY_REPLACE,
    /* Write nothing. */
    TRUCE_COPY_COMPARE,
} truce_copy_mode;

/*
 * Receives a collection after its last comparison: {collection, documents, hash, indexes, inserted,
 * replaced, removed, kept, missing, other, extra, same}.
 *
 *     hash                    a fingerprint of all documents of `from`, in hexadecimal digits
 *     missing, other, extra   the remaining differences
 *     kept                    documents that only `to` contains
 *     same                    `to` has exactly these documents (TRUCE_COPY_MERGE: at least these)
 */
typedef void truce_copy_collection_function(const bson_t *collection, void *arg);

/* Receives a remaining difference: {collection, id, difference: "missing", "other" or "extra",
 * field?, from?, to?, text?}, or {collection, index, text}. `field` is the first field that
 * differs; `text` is the reason why the store refused the document. Only the first
 * `differences_max` are reported. */
typedef void truce_copy_difference_function(const bson_t *difference, void *arg);

/* Receives the progress: `done` of about `total` documents were copied, or compared. */
typedef void truce_copy_progress_function(bool comparing, int64_t done, int64_t total, void *arg);

typedef struct truce_copy_options {
    truce_copy_mode mode;
    /* The name of `from` in the record. NULL means "". */
    const char *name;
    /* The names of the collections, followed by NULL. NULL means all collections. If one does not
     * exist, the call fails with TRUCE_NOT_FOUND. */
    const char *const *collections;
    /* Allow pending commits in `from`. They are copied as they are. */
    bool live;
    /* Copy only documents. */
    bool no_indexes;
    /* Documents that are read and written at a time. 0 means 1,000. At most 10,000. */
    uint32_t batch;
    /* The maximum number of rounds. The first copies and compares everything; each further one
     * copies the collections that differ again, because `from` changes during the copy. 0 means
     * 3. */
    uint32_t rounds;
    /* The maximum number of differences that are reported. 0 means 20. */
    uint32_t differences_max;
    /* The functions may be NULL. */
    truce_copy_collection_function *collection;
    truce_copy_difference_function *difference;
    truce_copy_progress_function *progress;
    void *arg;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_copy_options;

typedef struct truce_copy_report {
    /* Collections and documents of `from`, as counted by the last comparison. */
    int64_t collections, documents;
    /* The changes of `to` by this call: documents inserted, replaced, and removed, and indexes
     * created. */
    int64_t inserted, replaced, removed, indexes;
    /* For TRUCE_COPY_MERGE: documents that only `to` contains. */
    int64_t kept;
    /* Documents and indexes of `to` that differ. 0 means that the copy is verified. */
    int64_t differences;
    /* Commits in `from` that were pending, or committed but not complete, when the call began. Not
     * counted by a call that may write nothing. */
    int64_t open;
    /* Documents that an earlier, interrupted call had copied. */
    int64_t resumed_at;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_copy_report;

/*
 * Copies the store. TRUCE_OK means that the stores were compared; report->differences is the
 * result.
 *
 *     TRUCE_CONFLICT    `to` contains other documents or a copy of another store; or commits are
 *                       pending (report->open); or another process copies the same collection
 *     TRUCE_NOT_FOUND   `from` has no such collection
 *     TRUCE_INVALID     the call selects a part of a store without the commits that hold its
 *                       documents
 *     any other         a store failed; call again
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_copy(truce_store *from, truce_store *to,
                                                    const truce_copy_options *options,
                                                    truce_copy_report *report, bson_error_t *error);

TRUCE_END_DECLS

#endif
