#ifndef TRUCE_TRANSFER_H
#define TRUCE_TRANSFER_H

/*
 * Two-phase transfers: changes of several documents that need no read, and hold no document while they are under
 * way. The documents are those of the recipe in MongoDB's manual (Perform Two Phase Commits):
 *
 *     {_id: 17, source: "A", destination: "B", value: 100, state: "done", lastModified: Date,
 *      entries: [{ns, id, when: "before", guard, effect, undo}, {ns, id, when: "after", effect}]}
 *
 *     {_id: "A", balance: 900, pendingTransactions: [], pendingFence: 1}
 *
 *     pending -> committed -> applied -> done          pending -> canceling -> canceled
 *
 * An entry is made before the decision, and can refuse (a debit: its guard), or after it, and cannot (a
 * credit). What was made before is undone if the transfer is canceled, so nobody ever spends what is taken back.
 * Each write of a document leaves a mark in `pendingTransactions`, so it is made once; and the marks alone are
 * not enough, whatever the recipe says: `pendingFence` makes what comes late do nothing (docs/transfer.md has
 * the steps by which the recipe creates money).
 *
 * Whoever dies half-way leaves it to the next one: the same call again, or `truce sweep`.
 *
 * Where the store changes several documents in one step (and in a commit) a transfer is made so: it begins in
 * "done". Effects should commute ($inc, $push of things that differ): others may change a document between an effect
 * and its undo. What needs to be read first is a commit's work (truce/commit.h).
 *
 * Threads: a handle may be used from any number of threads.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_transfers truce_transfers;

typedef struct truce_transfer_options {
    const char *collection; /* of the transfers; must be said */
    /* The layout is kept in the store by the first call that writes; what is NULL is what is kept there, and another
     * one than is kept there is refused. */
    const char
        *accounts;      /* the collection of source and destination; NULL: transfers have entries */
    const char *field;  /* what a value is moved out of, and into; NULL: "balance" */
    const char *marks;  /* NULL: "pendingTransactions" */
    const char *fence;  /* NULL: "pendingFence" */
    uint32_t resume_ms; /* the sweep goes on with what stood still for so long; 0: 1,800,000 */
    int64_t keep_ms;    /* what has ended is kept for so long: 0: 30 days; -1: for ever. At least
                             a minute: after it the same id would be a new transfer */
    uint32_t deadline_ms;      /* of a call; 0: 30,000 */
    truce_mechanism mechanism; /* AUTO: in one step where the store can; JOURNAL: step by step */
    uint64_t reserved[4];      /* zeros */
} truce_transfer_options;

/* Never NULL; what is wrong with the options is refused by every call, by name. The options are copied; the
 * store must outlive the handle. */
TRUCE_EXPORT truce_transfers *truce_transfers_new(truce_store *store,
                                                  const truce_transfer_options *options);
TRUCE_EXPORT void truce_transfers_free(truce_transfers *transfers);

typedef struct truce_transfer_entry {
    const char *collection;
    const bson_value_t *id; /* a document stands in a transfer once, and must be there */
    bool after;             /* made after the decision: it has neither guard nor undo */
    const bson_t *guard;    /* a filter that the document must match; NULL: none */
    const bson_t *effect;   /* update operators */
    const bson_t
        *undo; /* what takes the effect back; NULL: made here, of an effect that is $inc alone */
    uint64_t reserved[4]; /* zeros */
} truce_transfer_entry;

typedef struct truce_transfer {
    const bson_value_t *id; /* the caller's: a text, number, ObjectId, date, bool or binary */
    /* either */
    const truce_transfer_entry *entries; /* at most 100 */
    uint32_t count;
    /* or: `value` (a number above zero) from one document of `accounts` to another */
    const bson_value_t *source, *destination, *value;
    bool overdraft;       /* the source need not have it */
    const bson_t *meta;   /* kept with it; NULL: none */
    uint64_t reserved[4]; /* zeros */
} truce_transfer;

typedef struct truce_transfer_result {
    bool exists; /* it was started before */
    uint64_t reserved[4];
} truce_transfer_result;

/* `commit` NULL: alone, to its end; started before and not ended, it goes on. `result` may be NULL.
 *
 * OK: it is done. REFUSED: it is canceled: a guard did not match, a document is not there, an effect cannot be made,
 * or somebody canceled it; the sentence says which. It stays so under this id. DUPLICATE: the id was used with other
 * content. INVALID: bad entries (an undo that does not undo, a document twice). LOCKED, TIMEOUT, UNKNOWN, IO: it may be
 * half-way; the same call again, or the sweep, goes on.
 *
 * In a commit nothing is kept of one that is refused: its guards end the commit (NOT_FOUND). LOCKED: it is under
 * way outside of this commit. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_transfer_start(truce_transfers *transfers,
                                                              truce_commit *commit,
                                                              const truce_transfer *transfer,
                                                              truce_transfer_result *result,
                                                              bson_error_t *error);

/* Goes on with one that has not ended, to its end. Statuses as of the start; NOT_FOUND: there is none. Transfers that
 * the manual's recipe left, too (without `entries`): stop the code that makes them first. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_transfer_resume(truce_transfers *transfers,
                                                               const bson_value_t *id,
                                                               bson_error_t *error);

/* Takes back what was made of one that is not decided. OK: it is canceled, now or before. REFUSED: it is decided, or done;
 * a transfer back is another transfer. NOT_FOUND: there is none. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_transfer_cancel(truce_transfers *transfers,
                                                               const bson_value_t *id,
                                                               bson_error_t *error);

/* The transfer as it stands; `document` is always initialised. NOT_FOUND: there is none, or it was removed after
 * keep_ms. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_transfer_get(truce_transfers *transfers,
                                                            const bson_value_t *id,
                                                            bson_t *document, bson_error_t *error);

TRUCE_END_DECLS

#endif
