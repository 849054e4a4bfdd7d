#ifndef TRUCE_COMMIT_H
#define TRUCE_COMMIT_H

/*
 * A commit: changes to several documents, all of them or none.
 *
 * The documents may be in any collections of a store. A commit is a list of guarded changes of
 * single documents. Each read through truce_commit_read is a guard: if any writer has changed the
 * document since, the commit takes no effect and fails with TRUCE_CONFLICT. Commits are strictly
 * serializable with respect to the documents that they read in this way.
 *
 * Two fields belong to truce in every document that a commit writes:
 *
 *     _rev      ObjectId: the commit that changed the document last; compared only for equality
 *     _intent   {c: id of a commit}: a pending commit holds the document
 *
 * A third field exists in collections whose unique keys are declared (truce_unique_declare):
 *
 *     _keys     the values of the document that unique indexes contain
 *
 * The store's capabilities select the mechanism, unless options.mechanism forces one:
 *
 *     native    the store itself changes several documents in one atomic step
 *     journal   write intents and a commit document in `truce_commits`; works on any store that
 *               updates single documents atomically (after dynamodb-transactions, Percolator,
 *               and the write-intent journal of A. Hammarquist, EuroPython 2012)
 *
 * One collection may use both at the same time, in any number of processes. A plain write that
 * ignores `_intent` can break the isolation of the journal; `truce check` detects it. Such a write
 * never stops a decided commit: documents that block the commit are moved to the collection
 * `truce_displaced`.
 *
 * Threads: one thread at a time may use a commit. Ids are BSON values of any type except array,
 * regex, and undefined.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_commit truce_commit;

typedef enum truce_mechanism {
    /* Native if the store supports it, otherwise the journal. */
    TRUCE_MECHANISM_AUTO = 0,
    /* If the store does not support it, the commit fails with TRUCE_INVALID. */
    TRUCE_MECHANISM_NATIVE,
    TRUCE_MECHANISM_JOURNAL,
} truce_mechanism;

typedef struct truce_commit_options {
    truce_mechanism mechanism;
    /* The caller's idempotency key: under one key, the commit takes effect at most once, ever. */
    const char *key;
    /* Required with a key, and only then: the time at which the caller created it (milliseconds
     * since 1970), the same in every retry. It shows whether the store may have forgotten the key
     * (TRUCE_EXPIRED). If a retry gives a time that differs by a second or more, it fails with
     * TRUCE_DUPLICATE. A time before 1970-04-26T17:46:40Z (10,000,000,000 ms), which is probably in
     * seconds, and one that is more than a day ahead of the clock fail with TRUCE_INVALID. */
    int64_t key_time_ms;
    /* Every mechanism records the input in a commit document, for people. With a key, it also
     * identifies the request: a commit under the same key with another input fails with
     * TRUCE_DUPLICATE. NULL means none: the key alone then identifies the request, and a retry
     * with different changes is not detected. */
    const bson_t *input;
    /* The lease in ms: the time after which other processes undo a commit whose process shows no
     * activity. A running commit renews its lease. 0 means 10,000, or deadline_ms if that is
     * shorter, but at least 1,000. */
    uint32_t lease_ms;
    /* The maximum time in ms to wait for other commits and to retry. 0 means the deadline_ms of the
     * store, by default 30,000. */
    uint32_t deadline_ms;
    /* For truce_transact: the maximum number of runs of the function. 0 means 100. */
    uint32_t tries_max;
    /* Do not wait for the disk. */
    bool relaxed;
    /* NULL, or a flag that truce_transact, truce_commit_begin, and truce_commit_apply set. With
     * TRUCE_OK, true means that the commit took effect before, under the same key, and nothing was
     * done now. If a part of a commit with a key fails because the same commit took effect in the
     * meantime, the call returns TRUCE_OK and sets the flag. */
    bool *earlier;
    /* Must be zero. */
    uint64_t reserved[3];
} truce_commit_options;

/* ---- a function as one commit ------------------------------------------------------------- */

/*
 * Reads and changes documents through `commit`. On a conflict the function runs again from the
 * start, so it must have no other effects. Any status except TRUCE_OK abandons the commit and
 * becomes the result of truce_transact. TRUCE_CONFLICT requests another run. If the function has
 * itself applied its commit successfully, any such status becomes TRUCE_INVALID.
 *
 * In a file, the function may read documents that are not on disk yet; they are when truce_transact
 * returns. The deadline of the commit also limits the calls that the function makes to the store in
 * its thread. A function returns TRUCE_REFUSED to refuse by its own decision, for example because
 * the balance is too low. It sets the error message itself; the default is "the function of the
 * commit returned TRUCE_REFUSED without a message". If the function ignores the status of a call
 * and returns TRUCE_OK, the commit takes effect with its other changes.
 */
typedef truce_status truce_commit_function(truce_commit *commit, void *arg, bson_error_t *error);

/*
 * Runs `function` as one commit. TRUCE_OK means that it took effect (with a key, now or earlier).
 *
 *     TRUCE_NOT_FOUND  a document that is changed or required does not exist
 *     TRUCE_REFUSED    a document exists and does not match its guard, or the function refused
 *     TRUCE_CONFLICT   tries_max was reached
 *     TRUCE_LOCKED     the deadline passed while another commit held a document
 *     TRUCE_TIMEOUT    the deadline passed while other commits won every retry, or truce_interrupt
 *                      ended the call: the commit has no effect
 *     TRUCE_UNKNOWN    the store did not reply and the outcome is unknown; with a key, call again
 *                      with the same key
 *     TRUCE_DUPLICATE  the key was used for another commit, or a unique key exists
 *     TRUCE_EXPIRED    the key is too old for the store to know whether it was used
 *     TRUCE_INVALID    a change cannot be applied to its document
 *
 * Any other status is the one that `function` returned, for example TRUCE_LIMIT of a ledger.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_transact(truce_store *store,
                                                        truce_commit_function *function, void *arg,
                                                        const truce_commit_options *options,
                                                        bson_error_t *error);

/* ---- a commit step by step ---------------------------------------------------------------- */

/*
 * Begins a commit. Options are copied. The store must outlive the commit.
 *
 * With a key, the call looks for an earlier commit under the key and waits for a pending one; its
 * statuses are those of truce_transact. If the earlier commit took effect, *options->earlier is
 * true, and truce_commit_apply does nothing and returns TRUCE_OK. Adding parts is then unnecessary,
 * and may fail because the earlier commit took their ids.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_begin(truce_store *store,
                                                            const truce_commit_options *options,
                                                            truce_commit **commit,
                                                            bson_error_t *error);
/* Frees the commit and abandons it if it was not applied; before that, nothing was written. NULL is
 * allowed. */
TRUCE_EXPORT void truce_commit_free(truce_commit *commit);

/*
 * Reads a document, including this commit's own changes, and guards it until the commit. If the
 * document does not exist, the call fails with TRUCE_NOT_FOUND, `document` is empty, and its
 * absence is guarded. If another commit holds the document, the call waits for it until the
 * deadline, then fails with TRUCE_LOCKED.
 *
 * If the commit's blind changes cannot be applied to the document, the call fails with
 * TRUCE_NOT_FOUND, TRUCE_REFUSED (a guard), or the status of the change. The commit has then
 * failed: every later call returns the same status.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_read(truce_commit *commit,
                                                           const char *collection,
                                                           const bson_value_t *id, bson_t *document,
                                                           bson_error_t *error);

/*
 * Runs a guarded query. The cursor returns the documents that match, as truce_find does, including
 * this commit's changes so far. All queries of a commit read one snapshot. The result is guarded
 * until the commit: if a document comes to match, ceases to match, or changes, the commit is a
 * conflict. A decision such as "this room is free at that time" therefore still holds when the
 * commit takes effect.
 *
 * Let the filter match only what the commit needs, through an index: then conflicts are rare and
 * the validation is fast. If the journal holds any document of the collection, the call waits for
 * it (TRUCE_LOCKED). The cursor is valid until the end of this run of the commit. The caller closes
 * it.
 *
 *     TRUCE_INVALID    the store does not support it: only `file:` does, in this process, and
 *                      not with TRUCE_MECHANISM_JOURNAL
 *     TRUCE_CONFLICT   the function must run again, as after any conflict
 *     TRUCE_LIMIT      the visible changes of this commit exceed the size of a transaction
 *
 * The validation of reads follows Kung and Robinson, On Optimistic Methods for Concurrency Control,
 * 1981.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_commit_find(truce_commit *commit, const char *collection, const bson_t *filter,
                  const truce_find_options *options, truce_cursor **cursor, bson_error_t *error);

/* Requires that the document exists (TRUCE_NOT_FOUND) and matches `guard` (TRUCE_REFUSED) at the
 * commit. NULL means that it only has to exist. The document is not changed. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_require(truce_commit *commit,
                                                              const char *collection,
                                                              const bson_value_t *id,
                                                              const bson_t *guard,
                                                              bson_error_t *error);
/* Requires that the document does not exist at the commit. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_require_missing(truce_commit *commit,
                                                                      const char *collection,
                                                                      const bson_value_t *id,
                                                                      bson_error_t *error);

/* Requires a document like truce_commit_require, and locks it: no other write changes it between
 * the check and the decision. Use it for fences, for example the lease epoch of a job. It costs two
 * more writes in the journal. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_hold(truce_commit *commit,
                                                           const char *collection,
                                                           const bson_value_t *id,
                                                           const bson_t *guard,
                                                           bson_error_t *error);

/* Adds an insert to the commit. A document without an _id gets an ObjectId. If the _id exists,
 * truce_commit_apply fails with TRUCE_DUPLICATE. If this commit has read that the document is
 * missing, it fails with TRUCE_CONFLICT instead; the next run finds the document. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_insert(truce_commit *commit,
                                                             const char *collection,
                                                             const bson_t *document,
                                                             bson_error_t *error);

/* Returns the _ids that were generated for inserts without one, as an array in the order of the
 * inserts. The commit owns it. A commit document records them as `inserted`
 * (truce_commit_record). */
TRUCE_EXPORT const bson_t *truce_commit_inserted(const truce_commit *commit);

/* Adds an update to the commit. `update` contains MongoDB's update operators. `guard` is a filter
 * that the document must also match (NULL means none). If it does not, the commit fails with
 * TRUCE_REFUSED; if the document does not exist, with TRUCE_NOT_FOUND. If the commit has not read
 * the document before, the update is a blind change of the document that exists at the commit. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_commit_update(truce_commit *commit, const char *collection, const bson_value_t *id,
                    const bson_t *guard, const bson_t *update, bson_error_t *error);
/* Replaces the whole document except its _id. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_commit_replace(truce_commit *commit, const char *collection, const bson_value_t *id,
                     const bson_t *guard, const bson_t *document, bson_error_t *error);
/* Adds the removal of a document to the commit. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_remove(truce_commit *commit,
                                                             const char *collection,
                                                             const bson_value_t *id,
                                                             const bson_t *guard,
                                                             bson_error_t *error);

/* Applies the commit, once. Afterwards only the functions that query its result and
 * truce_commit_free may be called. The statuses are those of truce_transact. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_apply(truce_commit *commit,
                                                            bson_error_t *error);

/* Attaches a result to the commit, for example an order number, for later calls with the same key.
 * The last result counts; a function that runs again attaches it again. If the commit has no key,
 * the call fails with TRUCE_INVALID. If the result is larger than 64 KiB, it fails with
 * TRUCE_LIMIT. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_set_result(truce_commit *commit,
                                                                 const bson_t *result,
                                                                 bson_error_t *error);

/* Returns the result that the commit under this key has attached; it is empty if there was no
 * result. `result` is always initialized. If no commit under the key took effect, or it was purged,
 * the call fails with TRUCE_NOT_FOUND. If one is pending, it fails with TRUCE_LOCKED. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_result(truce_store *store, const char *key,
                                                             bson_t *result, bson_error_t *error);

/* Returns the recorded commit under this key: {_id, key, key_time, state, input?, result?,
 * inserted?, created, ...}. The state is "pending", "committed", or "done". If no commit exists, or
 * it was undone or purged, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_record(truce_store *store, const char *key,
                                                             bson_t *document, bson_error_t *error);

typedef struct truce_commit_list_options {
    /* "pending", "committed", "done", or "aborted". NULL means any. */
    const char *state;
    /* Only commits whose key begins with this. NULL means all, also those without a key. */
    const char *key_prefix;
    /* The maximum number of commits. 0 means no limit. */
    int64_t limit;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_commit_list_options;

/* Lists the recorded commits, newest first, in the form of truce_commit_record: those of the
 * journal, and those that had a key or an input. An aborted commit has a field `why`. The caller
 * closes the cursor. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_list(truce_store *store,
                                                           const truce_commit_list_options *options,
                                                           truce_cursor **cursor,
                                                           bson_error_t *error);

/* Returns the id of the commit in the journal, which is also the `_rev` that it writes. The commit
 * owns it. */
TRUCE_EXPORT const bson_oid_t *truce_commit_id(const truce_commit *commit);

/* ---- atomic reads of several documents ---------------------------------------------------- */

typedef struct truce_read_many_options {
    /* The deadline of the call. 0 means the deadline_ms of the store, but at most 30,000. */
    uint32_t deadline_ms;
    /* On a store without snapshots, a read of several documents of which some are missing holds
     * these briefly. If this process dies during the read, they are held for at most this time. 0
     * means 1,000. */
    uint32_t lease_ms;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_read_many_options;

/* Reads several documents from one snapshot, without any changes of a commit that later fails. It
 * does not block writers. If it finds no consistent state before the deadline, it fails with
 * TRUCE_LOCKED. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_read_many(truce_store *store,
                                                         truce_read_request *requests, size_t count,
                                                         const truce_read_many_options *options,
                                                         bson_error_t *error);

/* ---- unique indexes ----------------------------------------------------------------------- */

/*
 * Unique values in the journal.
 *
 * The journal can insert and remove documents with uniquely indexed values without preparation. To
 * change such a value, it must reserve the old and the new value until the decision, and needs a
 * field for the second one. To provide it, create a unique sparse index on the field `_keys` in
 * addition to the existing unique indexes. After that, every commit, by any mechanism, maintains in
 * `_keys` the unique values of each document that it writes:
 *
 *     {_id: 7, mail: "ada@x.org", _keys: [{i: "mail_1", v: ["ada@x.org"]}]}
 *
 * Without this declaration, the journal refuses the change with TRUCE_INVALID and names the index.
 * One commit can never let two documents exchange values, or let one document take a value that
 * another gives up. Give the value up in one commit, and take it in a later one. A native commit
 * supports the second case if one document is inserted or the other removed. A blind change of a
 * document with declared keys reads the document first, so it can fail with TRUCE_CONFLICT.
 *
 * A plain write that leaves `_keys` alone is safe while no commit holds the value: the index of the
 * value refuses a duplicate as usual. A plain write may take a value that a commit has reserved,
 * just before its release. Then it blocks that release, and `truce check` reports it (rule
 * `blocked`).
 */
typedef struct truce_unique_options {
    /* The time to wait after the index is created until every process that commits has seen it. 0
     * means 6,000. */
    uint32_t settle_ms;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_unique_options;

typedef struct truce_unique_report {
    /* Documents examined, and documents that received their `_keys`. */
    int64_t documents, converted;
    /* The index did not exist before. */
    bool made;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_unique_report;

/* Creates the index and writes the `_keys` of every document. Call it again at any time, for
 * documents that plain writers have inserted since, or for a new unique index. Change unique values
 * through the journal only after this call has returned. If the collection has no unique index
 * except that of `_id`, or the index on `_keys` is not unique and sparse, the call fails with
 * TRUCE_INVALID. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_unique_declare(truce_store *store,
                                                              const char *collection,
                                                              const truce_unique_options *options,
                                                              truce_unique_report *report,
                                                              bson_error_t *error);

/* ---- counters of this process ------------------------------------------------------------- */

typedef struct truce_commit_counters {
    /* Commits that took effect, that lost a conflict, and that were undone. */
    uint64_t committed, conflicts, aborted;
    /* Runs of a function after its first run. */
    uint64_t reruns;
    /* Commits of other clients that this process completed. */
    uint64_t completions;
    /* Times that a call waited for another commit. */
    uint64_t waits;
    /* Commits that ended with TRUCE_UNKNOWN. */
    uint64_t unknown;
    /* Commits of one document in one write. */
    uint64_t fast;
    /* Commits by TRUCE_MECHANISM_NATIVE. */
    uint64_t native;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_commit_counters;

/* Returns the counters of all commits of this process. */
TRUCE_EXPORT void truce_commit_count(truce_commit_counters *counters);

TRUCE_END_DECLS

#endif
