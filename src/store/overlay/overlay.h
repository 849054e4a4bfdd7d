#ifndef TRUCE_STORE_OVERLAY_OVERLAY_H
#define TRUCE_STORE_OVERLAY_OVERLAY_H

/*
 * A transaction: a store that shows one moment of another and, over it, what was written through itself; which is
 * committed all at once, or never.
 *
 *     reads    what the view shows, but for documents that stand in the scratch ... and these as they are there
 *     writes   the documents that are to be changed are brought into the scratch, and changed there
 *     commit   one atomic bulk of the store: what was read is checked, what is new is made, what differs is written
 *
 * The view is a snapshot (truce/snapshot.h). The scratch is a memory: store that has the indexes of the
 * collections and holds the documents that were written, and those that a write looked at.
 *
 * Invariants:
 *  1. Until the commit nobody else sees anything of it, and nobody waits for it.
 *  2. Every read of it is of the view's moment, with all that it has written itself until the read began.
 *  3. A document that is in the scratch, or was and was removed there, has one entry, with the bytes that stood in the
 *     view (none: it was not there); it is not shown from the view any more.
 *  4. The commit writes what differs from its entry, and demands that the entry's bytes stand in the store. So no write
 *     of anybody is overwritten unseen.
 *  5. All that it learnt from the view is in its list of reads: each find with the documents that it gave. Of a
 *     collection of which it learnt much, only that. A serializable commit that writes has all of them checked
 *     (engine/documents/bulk.c): it is as if the transaction had run in the moment of its commit.
 *  6. One that writes nothing has nothing to be checked: it stands in the order of commits where its view is.
 *  7. What a write may not be (a unique key that is taken, a validator) is told by the write, as far as the view and
 *     its own writes show it. What others took since is a conflict, told by the commit, or by the write if the
 *     document that it changes is no more as the view has it.
 *  8. An atomic bulk that fails leaves the transaction as it was before it (overlay_write.c); so commits of truce, which are
 *     such bulks, run within it, once each: a conflict is of the whole transaction.
 *  9. Collections and indexes that it makes are new and empty when they are made, and in the commit still
 *     (overlay_write.c).
 *
 * Without a store it is a view over another view, in which some documents are shown differently (truce__overlay_show);
 * nothing is written through it (commit/snapshot.c).
 *
 * After another call that fails, the transaction can only be closed: a statement may be half done. One thread at a time uses
 * it, with its cursors.
 *
 * Optimistic commits: Kung and Robinson, On Optimistic Methods for Concurrency Control, 1981.
 */
#include <stdatomic.h>

#include "store/store.h"
#include "truce/sys/store.h"

/* What several may write together. */
struct overlay_total {
    atomic_size_t bytes; /* that they write now */
    size_t bytes_max;
};

struct overlay_options {
    /* Borrowed: the overlay shows this view, and cannot be committed. NULL: it takes a snapshot of the store. */
    truce_store *view;
    bool snapshot; /* isolation: what was read is not checked; only what is written conflicts */
    /* What it may write: bytes of documents, before and after, and their number. 0: TRUCE_TRANSACTION_BYTES_MAX,
     * TRUCE_TRANSACTION_DOCUMENTS_MAX */
    size_t bytes_max, documents_max;
    struct overlay_total *total; /* borrowed; NULL: nobody writes beside it */
};

/* The store is borrowed until the overlay is closed, as a store is (truce_store_close). INVALID: it has no
 * TRUCE_CAN_CHECK. */
truce_status truce__overlay_open(truce_store *store, const struct overlay_options *options,
                                 truce_store **overlay, bson_error_t *error);

/* Shows `shown` (NULL: nothing) in place of the document `stored` of the view, once for each _id. */
truce_status truce__overlay_show(truce_store *overlay, const char *collection, const bson_t *stored,
                                 const bson_t *shown, bson_error_t *error);

/* OK: all of it is on the disk (`relaxed`: need not be). CONFLICT (code 112): nothing of it was done; run it
 * again from its beginning. `more`: writes that go with it, if it writes anything. It can only be closed afterwards. */
truce_status truce__overlay_commit(truce_store *overlay, const truce_write *more, size_t count,
                                   const truce_bulk_options *options, bson_error_t *error);

/* What was read through it until now, to be checked with a bulk that is not its own commit. The caller frees `all`, which
 * borrows from the overlay. */
void truce__overlay_checks(truce_store *overlay, struct truce_read_checks *checks);

#endif
