#ifndef TRUCE_STORE_OVERLAY_TRANSACTION_OVERLAY_H
#define TRUCE_STORE_OVERLAY_TRANSACTION_OVERLAY_H

/*
 * A transaction is a store that shows a snapshot of another store, with its own writes over it.
 * They are committed all at once, or never.
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
 *      document (none: it did not exist). It is no longer shown from the view.
 *   4. The commit writes documents that differ from their entry, and requires that the store still
 *      has the entry's bytes. So no write of another client is overwritten unnoticed.
 *   5. All that the transaction learned from the view is in its list of reads: each find with the
 *      documents that it returned. For a collection with many reads, it records only that. A
 *      serializable commit with writes checks all of them (engine/documents/read_validation.c): it
 *      is as if the transaction had run at the time of its commit.
 *   6. A transaction without writes needs no checks: in the order of commits, it has the place of
 *      its view.
 *   7. A write reports its own faults (a unique key that is taken, a validator), as far as the view
 *      and the transaction's writes show them. A key that another client took since then is a
 *      conflict. The commit reports it, or the write, if the changed document no longer equals the
 *      view's.
 *   8. A failed atomic bulk leaves the transaction as it was before (overlay_write.c). So commits
 *      of truce, which are such bulks, run within it, once each: a conflict is one of the whole
 *      transaction.
 *   9. Collections and indexes that it makes are new and empty when they are made, and also at the
 *      commit (overlay_write.c).
 *
 * An overlay without a store is a view over another view. It shows some documents differently
 * (truce__overlay_show) and cannot be written (commit/consistent_snapshot.c).
 *
 * If any other call fails, the transaction can only be closed, because a statement may be half
 * done. One thread at a time uses it and its cursors.
 *
 * Optimistic commits: Kung and Robinson, On Optimistic Methods for Concurrency Control, 1981.
 */
#include <stdatomic.h>

#include "store/store.h"
#include "truce/sys/store.h"

/* The limit that several transactions share. */
struct overlay_total {
    atomic_size_t bytes; /* Their uncommitted bytes. */
    size_t bytes_max;
};

struct overlay_options {
    /* Borrowed: the overlay shows this view, and cannot be committed. NULL means that it opens a
     * snapshot of the store. */
    truce_store *view;
    /* Snapshot isolation: reads are not checked; only writes conflict. */
    bool snapshot;
    /* The limits: bytes of documents, before and after, and their number. 0:
     * TRUCE_TRANSACTION_BYTES_MAX, TRUCE_TRANSACTION_DOCUMENTS_MAX */
    size_t bytes_max, documents_max;
    /* Borrowed; NULL means no shared limit. */
    struct overlay_total *total;
};

/* Opens a transaction. The store is borrowed until the overlay is closed (truce_store_close). Fails
 * with INVALID if it has no TRUCE_CAN_CHECK. */
truce_status truce__overlay_open(truce_store *store, const struct overlay_options *options,
                                 truce_store **overlay, bson_error_t *error);

/* Shows `shown` (NULL means nothing) instead of the view's document `stored`, once for each _id. */
truce_status truce__overlay_show(truce_store *overlay, const char *collection, const bson_t *stored,
                                 const bson_t *shown, bson_error_t *error);

/* Commits. After OK, everything is on disk, or will be with `relaxed`. After CONFLICT (code 112),
 * nothing was written; run the transaction again. `more` has writes to add if the transaction
 * writes anything. Afterwards the overlay can only be closed. */
truce_status truce__overlay_commit(truce_store *overlay, const truce_write *more, size_t count,
                                   const truce_bulk_options *options, bson_error_t *error);

/* Returns the reads so far, to be checked with a bulk that is not the overlay's own commit. The
 * caller frees `all`, which borrows from the overlay. */
void truce__overlay_checks(truce_store *overlay, struct truce_read_checks *checks);

#endif
