#ifndef TRUCE_COMMIT_H
#define TRUCE_COMMIT_H

/*
 * A commit: changes to several documents, of any collections, that take effect all or none.
 *
 * A commit is a list of guarded changes of single documents. What it read through truce_commit_read
 * is a guard by itself: if a document is no longer as it was read, whoever changed it, the commit takes
 * no effect and answers TRUCE_CONFLICT. Commits are strictly serializable for what is read through them.
 *
 * Two fields belong to truce in every document that a commit writes:
 *
 *     _rev      ObjectId: which commit changed the document last; compared only for equality
 *     _intent   {c: id of a commit}: the document is held by a commit that is under way
 *
 * and a third one in collections whose keys are declared (truce_unique_declare):
 *
 *     _keys     the values of the document that unique indexes hold
 *
 * How it is done is chosen by what the store can do (options.mechanism forces one):
 *
 *     native    the store changes several documents in one atomic step by itself
 *     journal   write intents and a commit document in `truce_commits`: works on any store that
 *               updates single documents atomically (after dynamodb-transactions, Percolator
 *               and the write-intent journal of A. Hammarquist, EuroPython 2012)
 *
 * Both may be used on one collection at the same time, and by any number of processes. A plain
 * write that ignores `_intent` can break the journal's isolation; `truce check` finds it. It never
 * stops a decided commit: what stands in its way is moved to the collection `truce_displaced`.
 *
 * Threads: one commit belongs to one thread at a time. Ids are BSON values of any type but array,
 * regex and undefined.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_commit truce_commit;

typedef enum truce_mechanism {
    TRUCE_MECHANISM_AUTO = 0, /* native where the store can, else the journal */
    TRUCE_MECHANISM_NATIVE,   /* TRUCE_INVALID where the store cannot */
    TRUCE_MECHANISM_JOURNAL,
} truce_mechanism;

typedef struct truce_commit_options {
    truce_mechanism mechanism;
    const char *key; /* the caller's idempotency key: the commit happens once for ever under it */
    int64_t key_time_ms; /* with a key: when the caller first made it (ms since 1970), the same in
                            every retry */
    /* Kept in a commit document by every mechanism, for people; with a key, what identifies the request: a commit under the
     * same key with another input is DUPLICATE. NULL: none. */
    const bson_t *input;
    uint32_t
        lease_ms; /* how long others wait for a silent commit before they undo it; one that is at
                          work renews it; 0: 10,000, or the deadline where that is shorter, but 1,000 at
                          least */
    uint32_t deadline_ms; /* how long to wait for others' commits, and to go on trying; 0: 30,000 */
    uint32_t tries_max;   /* truce_transact: how often the function runs; 0: 100 */
    bool relaxed;         /* do not wait for the disk */
    /* NULL, or set by truce_transact, truce_commit_begin and truce_commit_apply: with OK, whether the commit took effect
     * before, under the same key, and nothing was done now. A commit under a key that fails in any part, because the
     * same commit took effect in the meantime, returns OK with `earlier`. */
    bool *earlier;
    uint64_t reserved[3]; /* zeros */
} truce_commit_options;

/* ---- run a function as one commit ---------------------------------------------------------- */

/* Reads and changes through `commit`. Runs again, from the start, on a conflict, so it must have no
 * other effects. Any status but TRUCE_OK abandons the commit and is the answer of truce_transact
 * (TRUCE_CONFLICT: run me again; INVALID if it had applied its commit by itself, with success).
 * What it reads on a file need not be on the disk yet; it is when truce_transact returns.
 * What the function itself asks of the store in its thread ends by the deadline, too.
 * TRUCE_REFUSED is for a function that says no by itself: too little is on the account. Its sentence is the
 * function's own; without one there is "the function refused". */
typedef truce_status truce_commit_function(truce_commit *commit, void *arg, bson_error_t *error);

/* OK: it took effect (with a key: now or earlier). CONFLICT: tries_max was reached. LOCKED or
 * TIMEOUT: the deadline passed, while others held a document, or were faster each time. UNKNOWN: the store did not answer and the outcome cannot be told;
 * with a key, ask again with the same key. DUPLICATE: the key was used for another commit, or a
 * unique key is taken. EXPIRED: the key is too old to tell. INVALID: a change cannot be applied to
 * its document. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_transact(truce_store *store,
                                                        truce_commit_function *function, void *arg,
                                                        const truce_commit_options *options,
                                                        bson_error_t *error);

/* ---- or step by step ----------------------------------------------------------------------- */

/* Options are copied. The store must outlive the commit. With a key, it looks for an earlier commit under the key, and
 * waits for a pending one (statuses as truce_transact): if that took effect, *options->earlier is true, and
 * truce_commit_apply does nothing and returns TRUCE_OK. Parts need not be added then; they may fail, because the
 * earlier commit took their ids. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_begin(truce_store *store,
                                                            const truce_commit_options *options,
                                                            truce_commit **commit,
                                                            bson_error_t *error);
/* Abandons what was not applied; nothing was written before apply. NULL is allowed. */
TRUCE_EXPORT void truce_commit_free(truce_commit *commit);

/* The document as it is, with this commit's own changes; read, it is guarded until the commit.
 * NOT_FOUND (an empty `document`): that there is none is guarded likewise. A document held by
 * another commit is waited for, until the deadline (TRUCE_LOCKED). If the commit's blind changes cannot
 * be made of the document (NOT_FOUND, or the status of the change), the commit is at its end: every
 * later call answers the same. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_read(truce_commit *commit,
                                                           const char *collection,
                                                           const bson_value_t *id, bson_t *document,
                                                           bson_error_t *error);

/* A guarded query: the documents that match, as truce_find gives them, with what this commit has changed until now; all
 * queries of a commit show one moment. What the cursor has given is guarded until the commit: if a document came to match,
 * does not any more, or is another one by then, the commit is a CONFLICT, so what a function has decided from "nobody has
 * this room at that time" is so still when it takes effect. Make it match what it needs and no more, by an index: then others
 * are seldom in its way, and it is quickly asked again. A document that the journal holds, anywhere in the collection, is
 * waited for (TRUCE_LOCKED). The cursor ends with the try of the commit, and is closed by the caller.
 *
 * INVALID: the store cannot: only `file:` can, in this process, and not by TRUCE_MECHANISM_JOURNAL. CONFLICT: the function is to run
 * again, as after a conflict. LIMIT: what is shown of the commit's own changes is more than a transaction may write.
 * Validation of reads: Kung and Robinson, On Optimistic Methods for Concurrency Control, 1981. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_commit_find(truce_commit *commit, const char *collection, const bson_t *filter,
                  const truce_find_options *options, truce_cursor **cursor, bson_error_t *error);

/* The document must exist and match `guard` (NULL: just exist) at the commit; it is not changed. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_require(truce_commit *commit,
                                                              const char *collection,
                                                              const bson_value_t *id,
                                                              const bson_t *guard,
                                                              bson_error_t *error);
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_require_missing(truce_commit *commit,
                                                                      const char *collection,
                                                                      const bson_value_t *id,
                                                                      bson_error_t *error);

/* A require that also locks: nobody changes the document between the look and the decision. For
 * fences: the lease epoch of a job, for example. Two writes more in the journal. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_hold(truce_commit *commit,
                                                           const char *collection,
                                                           const bson_value_t *id,
                                                           const bson_t *guard,
                                                           bson_error_t *error);

/* A document without an _id gets an ObjectId. DUPLICATE at apply: it exists. (CONFLICT if this commit read that there was
 * none: it runs again, and finds it.) */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_insert(truce_commit *commit,
                                                             const char *collection,
                                                             const bson_t *document,
                                                             bson_error_t *error);

/* The _ids that were made for inserts without one, in the order of the inserts: an array, which the commit owns. A commit
 * document keeps them as `inserted` (truce_commit_record). */
TRUCE_EXPORT const bson_t *truce_commit_inserted(const truce_commit *commit);

/* `update`: MongoDB update operators. `guard`: a filter that the document must match besides (NULL:
 * none). Not read before: a blind change, of whatever stands there then. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_commit_update(truce_commit *commit, const char *collection, const bson_value_t *id,
                    const bson_t *guard, const bson_t *update, bson_error_t *error);
/* The whole document but its _id. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_commit_replace(truce_commit *commit, const char *collection, const bson_value_t *id,
                     const bson_t *guard, const bson_t *document, bson_error_t *error);
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_remove(truce_commit *commit,
                                                             const char *collection,
                                                             const bson_value_t *id,
                                                             const bson_t *guard,
                                                             bson_error_t *error);

/* Makes it so, once; afterwards the commit can only be asked and freed. Statuses as truce_transact.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_apply(truce_commit *commit,
                                                            bson_error_t *error);

/* What the commit leaves for whoever comes with its key again, or asks for it: the number of an order, for
 * example. The last one that is given counts; a function that runs again gives it again. INVALID:
 * the commit has no key. LIMIT: more than 64 KiB. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_leave(truce_commit *commit,
                                                            const bson_t *result,
                                                            bson_error_t *error);

/* What the commit under this key left (empty: nothing); `result` is always initialised. NOT_FOUND: no
 * commit under it took effect, or it was purged. LOCKED: one is under way. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_result(truce_store *store, const char *key,
                                                             bson_t *result, bson_error_t *error);

/* The commit under this key as it is kept: {_id, key, key_time, state, input?, result?, inserted?, created, ...}, where
 * state is "pending", "committed" or "done". NOT_FOUND: there is none, it was undone, or was purged. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_record(truce_store *store, const char *key,
                                                             bson_t *document, bson_error_t *error);

typedef struct truce_commit_list_options {
    const char *state; /* "pending", "committed", "done" or "aborted"; NULL: any */
    const char
        *key_prefix; /* those whose key begins with this; NULL: all, also those without a key */
    int64_t limit;   /* 0: no limit */
    uint64_t reserved[4]; /* zeros */
} truce_commit_list_options;

/* The commits that are kept, newest first, each as truce_commit_record gives it: those of the journal, and those that
 * had a key or an input. An aborted one says `why`. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_list(truce_store *store,
                                                           const truce_commit_list_options *options,
                                                           truce_cursor **cursor,
                                                           bson_error_t *error);

/* The id under which the journal knows it, and the _rev that it leaves. */
TRUCE_EXPORT const bson_oid_t *truce_commit_id(const truce_commit *commit);

/* ---- an atomic look at several documents --------------------------------------------------- */

typedef struct truce_read_many_options {
    uint32_t deadline_ms; /* 0: 30,000 */
    uint32_t
        lease_ms; /* where the store gives no snapshot, a look at several documents that are missing
                          holds them for a moment: for so long at most, if this process dies in it; 0:
                          1,000 */
    uint64_t reserved[4]; /* zeros */
} truce_read_many_options;

/* All of one moment, and nothing of a commit that later fails. Does not stop writers. LOCKED: it
 * did not get a quiet look before the deadline. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_read_many(truce_store *store, truce_look *looks,
                                                         size_t count,
                                                         const truce_read_many_options *options,
                                                         bson_error_t *error);

/* ---- unique indexes -------------------------------------------------------------------------- */

/*
 * The journal can insert and remove documents with uniquely indexed values as they are. To CHANGE
 * such a value it must hold the old and the new one until the decision, and needs a place for the
 * second. The user declares it, by a unique sparse index on the field `_keys` beside the unique
 * indexes that are there. From then on every commit, by any mechanism, keeps in `_keys` of each
 * document that it writes what the unique indexes hold of it:
 *
 *     {_id: 7, mail: "ada@x.org", _keys: [{i: "mail_1", v: ["ada@x.org"]}]}
 *
 * Without the declaration the journal refuses such a change by the index's name (INVALID). Refused
 * in any case: that one commit lets two documents exchange values, or one take what another gives
 * up; give it up in one commit, and take it in a later one. (A native commit can do the second, if
 * the one is inserted or the other removed.) A blind change of a document with declared keys reads it first, so
 * it can meet a CONFLICT.
 *
 * A plain write that leaves `_keys` alone is safe while no commit holds the value: the value's own
 * index refuses it as ever. One that takes a value which a commit has reserved, in the moment before
 * its release, blocks that release; `truce check` names it (rule `blocked`).
 */
typedef struct truce_unique_options {
    uint32_t settle_ms; /* how long to wait, once the index is new, until every process that commits
                           has seen it; 0: 6,000 */
    uint64_t reserved[4]; /* zeros */
} truce_unique_options;

typedef struct truce_unique_report {
    int64_t documents, converted; /* looked at; given their `_keys` */
    bool made;                    /* the index was not there before */
    uint64_t reserved[4];         /* zeros */
} truce_unique_report;

/* Makes the index and gives every document its `_keys`. May be called again at any time, for what
 * plain writers inserted since or for a new unique index. Change unique values through the journal
 * only after it has returned. INVALID: the collection has no unique index besides `_id`, or the one
 * on `_keys` is not unique and sparse. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_unique_declare(truce_store *store,
                                                              const char *collection,
                                                              const truce_unique_options *options,
                                                              truce_unique_report *report,
                                                              bson_error_t *error);

/* ---- what happened so far, in this process -------------------------------------------------- */

typedef struct truce_commit_counters {
    uint64_t committed, conflicts, aborted, reruns, helps, waits, unknown, fast, native;
    uint64_t reserved[4]; /* zeros */
} truce_commit_counters;

TRUCE_EXPORT void truce_commit_count(truce_commit_counters *counters);

TRUCE_END_DECLS

#endif
