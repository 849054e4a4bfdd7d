#ifndef TRUCE_TRANSFER_H
#define TRUCE_TRANSFER_H

/*
 * Two-phase transfers: changes of documents that are never held.
 *
 * A transfer changes documents without reading them first. Its documents are those of the recipe in
 * MongoDB's manual (Perform Two Phase Commits):
 *
 *     {_id: 17, source: "A", destination: "B", value: 100, state: "done", lastModified: Date,
 *      entries: [{ns, id, when: "before", guard, effect, undo}, {ns, id, when: "after", effect}]}
 *
 *     {_id: "A", balance: 900, pendingTransactions: [], pendingFence: 1}
 *
 *     pending -> committed -> applied -> done          pending -> canceling -> canceled
 *
 * An entry that executes before the decision can refuse it by its guard, for example a debit. An
 * entry that executes after the decision cannot refuse, for example a credit. If the transfer is
 * canceled, the entries that were executed before the decision are undone. Therefore no other
 * transfer can spend an amount that is taken back.
 *
 * Each write of a document leaves a mark in `pendingTransactions`, so it executes once. Contrary to
 * the recipe, the marks alone are not enough: `pendingFence` makes late writes ineffective.
 * docs/transfer.md shows the steps by which the recipe creates money.
 *
 * If a process dies in the middle of a transfer, the same call again or `truce sweep` continues it.
 *
 * If the store changes several documents in one step, and in a commit, a transfer executes in one
 * step: its first state is "done". Effects should commute ($inc, $push of distinct values), because
 * other writers may change a document between an effect and its undo. If a change must read first,
 * use a commit (truce/commit.h).
 *
 * Threads: any number of threads may use a handle.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_transfers truce_transfers;

typedef struct truce_transfer_options {
    /* The collection of the transfers; required. */
    const char *collection;
    /* The collection of source and destination. NULL means that transfers have entries. The first
     * call that writes records `accounts`, `field`, `marks`, and `fence` in the store. NULL then
     * selects the recorded value, and a different value is refused. */
    const char *accounts;
    /* The field that a value is moved from and to. NULL means "balance". */
    const char *field;
    /* The array of a document's pending transfers. NULL means "pendingTransactions". */
    const char *marks;
    /* The field of the fence. NULL means "pendingFence". */
    const char *fence;
    /* The recovery pass continues a transfer that made no progress for this time. 0 means
     * 1,800,000. */
    uint32_t resume_ms;
    /* The time for which an ended transfer is kept. 0 means 30 days. -1 means forever. At least one
     * minute: after it, the same id would be a new transfer. */
    int64_t keep_ms;
    /* The deadline of a call. 0 means 30,000. */
    uint32_t deadline_ms;
    /* AUTO: in one step if the store supports it. JOURNAL: step by step. */
    truce_mechanism mechanism;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_transfer_options;

/* Returns a handle, never NULL. If the options are wrong, every call fails and names the fault. The
 * options are copied; the store must outlive the handle. */
TRUCE_EXPORT truce_transfers *truce_transfers_new(truce_store *store,
                                                  const truce_transfer_options *options);
/* Frees the handle. */
TRUCE_EXPORT void truce_transfers_free(truce_transfers *transfers);

typedef struct truce_transfer_entry {
    const char *collection;
    /* The document; it must exist, and a transfer contains it at most once. */
    const bson_value_t *id;
    /* The entry executes after the decision; it has neither guard nor undo. */
    bool after;
    /* A filter that the document must match. NULL means none. */
    const bson_t *guard;
    /* Update operators. */
    const bson_t *effect;
    /* The update that reverses the effect. NULL means the reverse of the effect, which must consist
     * of $inc only. */
    const bson_t *undo;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_transfer_entry;

typedef struct truce_transfer {
    /* The caller's id: a string, number, ObjectId, date, bool, or binary. */
    const bson_value_t *id;
    /* Set `entries` (at most 100), or `source`, `destination`, and `value`. */
    const truce_transfer_entry *entries;
    uint32_t count;
    /* Moves `value`, a number above zero, from one document of `accounts` to another. */
    const bson_value_t *source, *destination, *value;
    /* Allows the source to become negative. */
    bool overdraft;
    /* Metadata that is stored with the transfer. NULL means none. */
    const bson_t *meta;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_transfer;

typedef struct truce_transfer_result {
    /* The transfer was started before. */
    bool exists;
    uint64_t reserved[4];
} truce_transfer_result;

/*
 * Executes a transfer to its end, in a commit of its own if `commit` is NULL. Continues a transfer
 * that was started before and has not ended. `result` may be NULL. TRUCE_OK means that the
 * transfer is done.
 *
 *     TRUCE_REFUSED     the transfer is canceled, for good under this id: a guard did not match, a
 *                       document does not exist, an effect is impossible, or another call canceled
 *                       it; the message names the reason
 *     TRUCE_DUPLICATE   the id was used with different content
 *     TRUCE_INVALID     the entries are wrong: an undo does not reverse its effect, or a document
 *                       occurs twice
 *     TRUCE_LOCKED, TRUCE_TIMEOUT, TRUCE_UNKNOWN, TRUCE_IO
 *                       the transfer may be incomplete; the same call again, or the recovery pass,
 *                       continues it
 *
 * In a commit, a refused transfer is not recorded: its guards end the commit with TRUCE_REFUSED, a
 * missing document with TRUCE_NOT_FOUND. If the transfer is in progress outside this commit, the
 * call fails with TRUCE_LOCKED.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_transfer_start(truce_transfers *transfers,
                                                              truce_commit *commit,
                                                              const truce_transfer *transfer,
                                                              truce_transfer_result *result,
                                                              bson_error_t *error);

/* Continues a transfer that has not ended, until it ends. Statuses are those of
 * truce_transfer_start. If the transfer does not exist, the call fails with TRUCE_NOT_FOUND. It
 * also continues transfers of the manual's recipe (without `entries`): first stop the program that
 * creates them. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_transfer_resume(truce_transfers *transfers,
                                                               const bson_value_t *id,
                                                               bson_error_t *error);

/* Undoes a transfer that is not decided. TRUCE_OK means that the transfer is canceled, now or
 * before. If it is decided or done, the call fails with TRUCE_REFUSED; to reverse it, start another
 * transfer. If it does not exist, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_transfer_cancel(truce_transfers *transfers,
                                                               const bson_value_t *id,
                                                               bson_error_t *error);

/* Returns the current document of a transfer; `document` is always initialized. If the transfer
 * does not exist, or was removed after keep_ms, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_transfer_get(truce_transfers *transfers,
                                                            const bson_value_t *id,
                                                            bson_t *document, bson_error_t *error);

TRUCE_END_DECLS

#endif
