#ifndef TRUCE_STORE_OVERLAY_TRANSACTION_OVERLAY_H
#define TRUCE_STORE_OVERLAY_TRANSACTION_OVERLAY_H

/*
 * A transaction is a store that shows a snapshot of another store together with its own writes. The
 * writes are committed all at once, or never.
 *
 *     reads    the view's documents, except those in the scratch, which are read from there
 *     writes   copy the affected documents into the scratch, and change them there
 *     commit   one atomic bulk of the store: checks the reads, makes new collections, and writes
 *              the differences
 *
 * The view is a snapshot (truce/snapshot.h). The scratch is a memory: store with the indexes of the
 * collections. It has the documents that were written, and those that a write read.
 *
 * Invariants:
 *
 *   1. Until the commit, no other client sees anything of the transaction or waits for it.
 *   2. Every read shows the view's snapshot, with the transaction's own writes before the read.
 *   3. A document that is or was in the scratch has one entry, with the bytes of the view's
 *      document, or without bytes if the view has no such document. The view's document is no
 *      longer shown.
 *   4. The commit writes documents that differ from their entry, and requires that the store still
 *      has the entry's bytes. So no write of another client is overwritten unnoticed.
 *   5. Everything that the transaction has read from the view is in its list of reads: each find
 *      with the documents that it returned. For a collection with many reads, the list records only
 *      that there were many. A serializable commit with writes checks all of them
 *      (engine/documents/read_validation.c): it is as if the transaction had run at the time of its
 *      commit.
 *   6. A transaction without writes needs no checks: it is ordered among the commits where its view
 *      began.
 *   7. A write reports its own faults (a duplicate key, a violated validator), as far as the view
 *      and the transaction's writes show them. A key that another client has inserted since then is
 *      a conflict. The commit reports it, or the write, if the changed document no longer equals
 *      the view's.
 *   8. A failed atomic bulk leaves the transaction as it was before (overlay_write.c). Commits
 *      of truce are such bulks, so they can run within the transaction. Each of them runs once,
 *      because a conflict is a conflict of the whole transaction.
 *   9. Collections and indexes that the transaction makes are new and empty when they are made, and
 *      also at the commit (overlay_write.c).
 *
 * An overlay without a store is a view over another view. It shows some documents differently
 * (truce__overlay_show) and cannot be written (commit/consistent_snapshot.c).
 *
 * If a call other than an atomic bulk fails, the transaction can only be closed, because a
 * statement may be half done. One thread at a time uses it and its cursors.
 *
 * Optimistic commits: Kung and Robinson, On Optimistic Methods for Concurrency Control, 1981.
 */
#include <stdatomic.h>

#include "store/store.h"
#include "truce/sys/store.h"

/* The limit that several transactions share. */
struct overlay_total {
    /* The number of uncommitted bytes of these transactions. */
    atomic_size_t bytes;
    size_t bytes_max;
};

struct overlay_options {
    /* The view that the overlay shows, borrowed. Such an overlay cannot be committed. NULL means
     * that the overlay opens a snapshot of the store. */
    truce_store *view;
    /* Whether the isolation is snapshot isolation: reads are not checked, so only writes
     * conflict. */
    bool snapshot;
    /* The maximum bytes of documents, before and after their changes, and the maximum number of
     * documents. 0 means TRUCE_TRANSACTION_BYTES_MAX and TRUCE_TRANSACTION_DOCUMENTS_MAX. */
    size_t bytes_max, documents_max;
    /* The limit that is shared with other transactions, borrowed, or NULL. */
    struct overlay_total *total;
};

/* Opens a transaction. The store is borrowed until the overlay is closed (truce_store_close). Fails
 * with INVALID if the store has no TRUCE_CAN_CHECK. */
truce_status truce__overlay_open(truce_store *store, const struct overlay_options *options,
                                 truce_store **overlay, bson_error_t *error);

/* Shows the document `shown`, or no document if it is NULL, instead of the view's document
 * `stored`. Called at most once for each _id. */
truce_status truce__overlay_show(truce_store *overlay, const char *collection, const bson_t *stored,
                                 const bson_t *shown, bson_error_t *error);

/* Commits. After OK, everything is on disk, or will be if the store is relaxed. After CONFLICT
 * (code 112), nothing was written; run the transaction again. `more` has writes to add if the
 * transaction writes anything. Afterwards the overlay can only be closed. */
truce_status truce__overlay_commit(truce_store *overlay, const truce_write *more, size_t count,
                                   const truce_bulk_options *options, bson_error_t *error);

/* Returns the reads so far, to be checked with a bulk that is not the overlay's own commit. The
 * caller frees `all`, which borrows from the overlay. */
void truce__overlay_checks(truce_store *overlay, struct truce_read_checks *checks);

#endif
