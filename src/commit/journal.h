#ifndef TRUCE_COMMIT_JOURNAL_H
#define TRUCE_COMMIT_JOURNAL_H

/*
 * The documents and steps of the journal of write intents. The essay and the invariants are in
 * journal.c.
 *
 * A commit document, in the collection `truce_commits`:
 *
 *     {_id: C, key?, key_time?, state, lease: {owner, ms, until, seen?}, input?,
 *      created, writes: [{ns, id, keyed?}],                       documents that it may hold
 *      post:   [{ns, id, op, changes?, document?, pre?, was?}],   from the decision on
 *      overwritten?: [{ns, id, by?}]}          documents whose plain writes it may have overwritten
 *
 *     `_intent` in a document: {c: C, new?: true, keys?: how many elements `_keys` had before}
 *
 *     op "set"     changes: [{p: path, v: value (absent: unset), ...}] (journal_release.c)
 *        "whole"   document: the new document         "insert"  the same, over a stub
 *        "remove"  removes the document               "hold"    removes only the intent
 *        "free"    removes the stub
 *
 *     pre: the `_rev` before the commit     was: the hash of the document before the commit
 *                                           (truce__journal_hash); absent for a stub
 */
#include "commit/commit_entry.h"
#include "store/reserved_names.h"
#include "truce/sys/store.h"

struct random;

/* A participant of the journal: the owner of a commit, or a client that encounters its intent. */
struct worker {
    truce_store *store;
    /* The deadline by the monotonic clock. A wait that reaches it ends with TRUCE_LOCKED. */
    int64_t deadline_ns;
    /* No step of the commit waits for the disk, because the caller asked for that. */
    bool relaxed;
    /* The worker has taken documents first. So it waits for no other commit, which might wait for
     * these documents. */
    bool holding;
    /* Reads may return data that is not durable yet. The caller waits for the disk before it
     * reports a result. */
    bool early;
    /* Reads of documents by _id are linearizable. */
    bool latest;
    bool watching;
    /* The pending commit that the worker waits for. Valid if `watching`. */
    bson_oid_t watched;
    /* The number of waits in a row. The next wait is longer with each of them. */
    uint32_t waits;
    /* `did` counts the intents and stubs that its steps removed, `ended` the commits that it marked
     * done. */
    uint32_t did, ended;
};

/* Initializes a worker. Its waits end after `deadline_ms`, or after the store's default if that is
 * 0, but not after the deadline of the thread. */
void truce__worker_init(struct worker *worker, truce_store *store, uint32_t deadline_ms);

/* Returns whether a step, other than the decision and the last one, may skip the wait for the disk
 * (CJ9). */
bool truce__worker_relaxed_step(const struct worker *worker);

/* ---- single steps, each one guarded write ---------------------------------------------------- */

/* Changes a pending commit to aborted, which releases its key. `why` is stored in it. `seen` is the
 * commit document whose lease had expired, or NULL if the commit is the caller's own. Sets *changed
 * if it was pending, and its lease was not renewed. */
truce_status truce__journal_abort(struct worker *worker, const bson_oid_t *commit,
                                  const bson_t *seen, const char *why, bool *changed,
                                  bson_error_t *error);
/* Renews the lease of the caller's own pending commit. *pending is false if it is no longer
 * pending. */
truce_status truce__journal_renew(struct worker *worker, const bson_oid_t *commit, int64_t until_ms,
                                  bool *pending, bson_error_t *error);
/* Removes this commit's intent or stub from a document, and from `_keys` all but the first `keys`
 * elements (`_intent.keys`, or -1 if nothing was reserved). If the intent is gone already, the
 * result is OK. */
truce_status truce__journal_strip(struct worker *worker, const char *collection,
                                  const bson_value_t *id, const bson_oid_t *commit, int32_t keys,
                                  bson_error_t *error);
/* Does what truce__journal_strip does, for a document that is known to be a stub. */
truce_status truce__journal_strip_stub(struct worker *worker, const char *collection,
                                       const bson_value_t *id, const bson_oid_t *commit,
                                       bson_error_t *error);
/* Applies one entry of a decided commit's `post` to its document, and removes the intent. If the
 * intent is gone already, the result is OK. `seen` is the stored document with the intent, or NULL
 * if it is unknown. Changes that a plain writer made under the intent are merged, kept in another
 * collection, or noted in the commit first. Returns LOCKED if the store refuses the release: a
 * plain writer took a reserved unique value, or a newer validator refuses the document and this
 * user may not bypass it. */
truce_status truce__journal_release(struct worker *worker, const bson_oid_t *commit,
                                    const bson_t *post, const bson_t *seen, bson_error_t *error);
/* Makes `after`: the document (with this commit's intent) as the release of that entry will leave
 * it. `after` is always initialized; empty: the release removes the document. */
void truce__journal_after(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
                          bson_t *after);
/* Releases every entry of a decided commit (its document), even after a failure. Marks the commit
 * done if none failed. */
truce_status truce__journal_finish(struct worker *worker, const bson_t *commit,
                                   bson_error_t *error);
/* Changes committed to done, the last step. All entries must be released (CJ5). */
truce_status truce__journal_done(struct worker *worker, const bson_oid_t *commit,
                                 bson_error_t *error);
/* Strips every document that an aborted commit may hold. */
truce_status truce__journal_clean(struct worker *worker, const bson_t *commit, bson_error_t *error);

/* ---- intents of other commits ---------------------------------------------------------------- */

/* Reads the document of a commit, which is always initialized. Returns NOT_FOUND if the commit was
 * undone and purged (CJ2). */
truce_status truce__commit_find(truce_store *store, const bson_oid_t *id, bson_t *commit,
                                bson_error_t *error);

/* Returns whether `document` has no intent. */
bool truce__intent_absent(const bson_t *document);
/* Appends the filter for documents without an intent. */
static inline void truce__intent_append_absent(bson_t *filter)
{
    BCON_APPEND(filter, "_intent", "{", "$exists", BCON_BOOL(false), "}");
}
/* Reads the commit that holds the document. Returns false if `_intent` was not written by truce. */
bool truce__intent_commit(const bson_t *document, bson_oid_t *commit);

/* Resolves the intent of `document`, which was just read: completes its commit, undoes it, or waits
 * briefly. Returns OK if the caller should read the document again. Returns LOCKED if the deadline
 * passed or the thread must not wait (CT2), and CONFLICT if the worker holds documents. Returns
 * INVALID if truce did not write the intent. */
truce_status truce__intent_complete_other(struct worker *worker, const char *collection,
                                          const bson_t *document, bson_error_t *error);

/* Returns whether the lease of a pending commit (its document as just read) has expired: this
 * process has seen no renewal for the length of the lease (complete_commit.c, CH3). */
bool truce__journal_lease_over(struct worker *worker, const bson_oid_t *id, const bson_t *commit);
/* Returns whether the owner of the commit is probably dead, by the wall clock of this process. This
 * is only a hint that it is worthwhile to watch the lease. */
bool truce__journal_lease_doubtful(const bson_t *commit);
/* Stores in a pending commit when its lease was seen, for later processes, if its owner is probably
 * dead. A failure is ignored: the next process stores it. */
void truce__journal_lease_observe(struct worker *worker, const bson_oid_t *id,
                                  const bson_t *commit);

/* Handles a pending commit that blocks the caller (its document as just read): aborts it if its
 * lease has expired, and waits briefly otherwise. Returns OK if the caller should read the document
 * again. Returns CONFLICT or LOCKED if the caller must not wait (journal.c, CT2, CT8), and LOCKED
 * at the deadline. */
truce_status truce__commit_suspect(struct worker *worker, const bson_oid_t *id,
                                   const bson_t *commit, bson_error_t *error);

/* Returns whether `document` is held by a commit whose function this thread runs (journal.c,
 * CT8). */
bool truce__journal_at_work(const bson_t *document);
/* Returns whether this thread runs the function of the commit with this id, which took its
 * documents first. */
bool truce__journal_work_owns(const bson_oid_t *id);
/* Returns whether this thread runs the function of a commit that took its documents first. The
 * thread must not wait for another commit then (CT2). The call also marks these commits: their
 * function runs again if it fails with LOCKED. */
bool truce__journal_work_yields(void);
/* Replaces the document, which has an intent, by its state in the snapshot of the view, or by its
 * state before this thread's own commit took it (complete_commit.c). Returns NOT_FOUND if it did
 * not exist; the document is empty then. */
truce_status truce__intent_see(truce_store *store, const char *collection, bson_t *document,
                               bson_error_t *error);

/* Reads one document, and resolves its intent first. Returns NOT_FOUND if there is no such
 * document; `document` is then empty. */
truce_status truce__journal_read(struct worker *worker, const char *collection,
                                 const bson_value_t *id, bson_t *document, bson_error_t *error);
/* Does what truce__journal_read does, for a read without a guard. A document that this thread's own
 * commit took first is returned as stored (CT8). */
truce_status truce__journal_read_unguarded(struct worker *worker, const char *collection,
                                           const bson_value_t *id, bson_t *document,
                                           bson_error_t *error);

/* Sleeps for a random time that grows with each wait in a row. Returns TRUCE_LOCKED if the deadline
 * passed. `what` names what the worker waits for. */
truce_status truce__worker_wait(struct worker *worker, const char *what, bson_error_t *error);
/* Waits before an idempotent call that ended with `status` is repeated. Returns false if a repeat
 * cannot succeed, or if the deadline has passed. */
bool truce__worker_repeats(struct worker *worker, truce_status status, const char *what);

/* Returns whether a store in one file (TRUCE_CAN_KEEP_ORDER) failed with IO: its disk is full or
 * broken. Unlike a message on a network, the write cannot take effect later. The caller gets the
 * error and decides whether to retry. */
static inline bool truce__disk_refused(const truce_store *store, truce_status status)
{
    return status == TRUCE_IO && (store->capabilities & TRUCE_CAN_KEEP_ORDER);
}

/* Returns the state of a commit document: "pending" ..., or NULL if none exists. */
const char *truce__commit_state(const bson_t *commit);

/* Hashes a document without its intent, to detect changes of plain writers under the intent.
 * If `reserved`, omits `_keys` as well, which the prepare changed. Commit documents store the
 * hash. */
int64_t truce__journal_hash(const bson_t *document, bool reserved);

/* Reads {ns, id} of an element of `writes` or `post`; both are borrowed. Returns false if truce did
 * not write the element. */
bool truce__journal_target(const bson_t *element, const char **collection, bson_value_t *id);

/* Fails with CORRUPT if truce did not write this entry of the commit's `post`. It must not be
 * applied then. */
truce_status truce__journal_post_check(const bson_oid_t *commit, const bson_t *post,
                                       bson_error_t *error);

#endif
