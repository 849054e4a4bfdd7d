#ifndef TRUCE_COMMIT_JOURNAL_H
#define TRUCE_COMMIT_JOURNAL_H

/*
 * The write-intent journal's documents and steps. The essay and the invariants are in journal.c.
 *
 * A commit document, in the collection `truce_commits`:
 *
 *     {_id: C, key?, key_time?, state, lease: {owner, ms, until}, input?, created,
 *      writes: [{ns, id, keyed?}],                                what it may hold
 *      post:   [{ns, id, op, changes?, document?, pre?, was}],    from the decision on
 *      overwritten?: [{ns, id}]}                                  plain writes that it ran over
 *
 *     `_intent` in a document: {c: C, new?: true, keys?: how many elements `_keys` had before}
 *
 *     op "set"     changes: [{p: path, v: value (absent: unset), ...}] (journal_release.c)
 *        "whole"   document: all of it                "insert"  the same, over a stub
 *        "remove"  the document goes                  "hold"    only the intent goes
 *        "free"    the stub goes
 */
#include "commit/entry.h"
#include "store/reserved.h"
#include "truce/sys/store.h"

struct random;

/* Who works on the journal: an owner, or anybody who meets an intent. */
struct worker {
    truce_store *store;
    int64_t deadline_ns; /* monotonic: waiting ends with TRUCE_LOCKED */
    bool relaxed;
    bool holding; /* documents were taken already: nobody is waited for, whom they might wait for */
    bool early;  /* what it reads need not be on the disk: who asked for it waits before he tells */
    bool latest; /* its reads of documents by their _id are linearizable */
    bool watching;
    bson_oid_t watched; /* the pending commit that is waited for */
    uint32_t waits;     /* in a row */
    uint32_t did,
        ended; /* how many intents and stubs its steps took away; commits brought to done */
};

void truce__worker_init(struct worker *worker, truce_store *store, uint32_t deadline_ms);

/* Whether a step that is neither the decision nor the last needs not wait for the disk: J9. */
bool truce__worker_relaxed_step(const struct worker *worker);

/* ---- single steps, each one guarded write ---- */

/* pending -> aborted, key given back; `why` is kept in it. *changed: it was pending. */
truce_status truce__journal_abort(struct worker *worker, const bson_oid_t *commit, const char *why,
                                  bool *changed, bson_error_t *error);
/* Of one's own pending commit: its lease begins anew. *pending false: it is not any more. */
truce_status truce__journal_renew(struct worker *worker, const bson_oid_t *commit,
                                  uint32_t lease_ms, bool *pending, bson_error_t *error);
/* Takes this commit's intent, or its stub, off a document, and of `_keys` all but the first `keys`
 * elements (`_intent.keys`; -1: nothing was reserved). No match is OK. */
truce_status truce__journal_strip(struct worker *worker, const char *collection,
                                  const bson_value_t *id, const bson_oid_t *commit, int32_t keys,
                                  bson_error_t *error);
/* The same, of what is known to be a stub. */
truce_status truce__journal_strip_stub(struct worker *worker, const char *collection,
                                       const bson_value_t *id, const bson_oid_t *commit,
                                       bson_error_t *error);
/* Brings one entry of a decided commit's `post` into its document. No match is OK.
 * `seen` (NULL: not known): the document as it stood, with the intent. What a plain writer has changed there
 * under the intent is merged, kept beside or noted in the commit first. LOCKED: a unique index refuses it, because a plain
 * writer took a reserved value. */
truce_status truce__journal_release(struct worker *worker, const bson_oid_t *commit,
                                    const bson_t *post, const bson_t *seen, bson_error_t *error);
/* The document (with this commit's intent) as the release of that entry will leave it; `after` is
 * always initialised; empty: it goes. */
void truce__journal_after(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
                          bson_t *after);
/* Releases every entry of a decided commit (its document), then marks it done. */
truce_status truce__journal_finish(struct worker *worker, const bson_t *commit,
                                   bson_error_t *error);
/* The last step alone: committed -> done. Only when every entry is released (J5). */
truce_status truce__journal_done(struct worker *worker, const bson_oid_t *commit,
                                 bson_error_t *error);
/* Strips every document that an aborted commit may hold. */
truce_status truce__journal_clean(struct worker *worker, const bson_t *commit, bson_error_t *error);

/* ---- on_conflict others ---- */

/* Reads the document of a commit, which is always initialised. NOT_FOUND: the commit was undone and purged (J2). */
truce_status truce__commit_find(truce_store *store, const bson_oid_t *id, bson_t *commit,
                                bson_error_t *error);

/* `document` has no intent. */
bool truce__intent_absent(const bson_t *document);
/* The same as a part of a filter: appends it. */
static inline void truce__intent_append_absent(bson_t *filter)
{
    BCON_APPEND(filter, "_intent", "{", "$exists", BCON_BOOL(false), "}");
}
/* The commit that holds it; false: `_intent` is not of truce's making. */
bool truce__intent_commit(const bson_t *document, bson_oid_t *commit);

/* `document`, just read, is held by a commit: help, undo, or wait a moment. OK: look again.
 * LOCKED: the deadline passed. */
truce_status truce__intent_meet(struct worker *worker, const char *collection,
                                const bson_t *document, bson_error_t *error);

/* Of a pending commit (its document as just read), as far as we can tell (help.c, H3). */
bool truce__journal_lease_over(struct worker *worker, const bson_oid_t *id, const bson_t *commit);

/* A pending commit that stands in the way (its document as just read): aborts it if its lease is
 * over, else waits a moment. OK: look again. */
truce_status truce__commit_suspect(struct worker *worker, const bson_oid_t *id,
                                   const bson_t *commit, bson_error_t *error);

/* `document` is held by a commit whose function this thread runs (journal.c, T8). */
bool truce__journal_at_work(const bson_t *document);
/* This thread runs the function of the commit with this id, which took its documents first. */
bool truce__journal_work_owns(const bson_oid_t *id);
/* Returns whether this thread runs the function of a commit that took its documents first. The thread must not wait for
 * another commit then (T2), and the function runs again if it fails with LOCKED. */
bool truce__journal_work_yields(void);
/* The document, which has an intent, becomes what it was in the view's moment, or before this thread's own commit took it
 * (complete_commit.c). NOT_FOUND: nothing; it is empty then. */
truce_status truce__intent_see(truce_store *store, const char *collection, bson_t *document,
                               bson_error_t *error);

/* Reads one document; met intents are resolved first. NOT_FOUND: none (document is empty). */
truce_status truce__journal_read(struct worker *worker, const char *collection,
                                 const bson_value_t *id, bson_t *document, bson_error_t *error);
/* The same for who only looks: what this thread's own commit took first is read as it stands (T8). */
truce_status truce__journal_look(struct worker *worker, const char *collection,
                                 const bson_value_t *id, bson_t *document, bson_error_t *error);

/* Sleeps a moment, longer each time in a row, with jitter. TRUCE_LOCKED once the deadline passed;
 * `what` is waited for. */
truce_status truce__worker_wait(struct worker *worker, const char *what, bson_error_t *error);

/* IO of a store in one file (TRUCE_CAN_KEEP_ORDER): its disk is full or has failed. Nothing lands later as from
 * a network, and to go on trying is for the caller, who is to hear of it. */
static inline bool truce__disk_refused(const truce_store *store, truce_status status)
{
    return status == TRUCE_IO && (store->capabilities & TRUCE_CAN_KEEP_ORDER);
}

/* The state of a commit document: "pending" ...; NULL: none there */
const char *truce__commit_state(const bson_t *commit);

/* Of a document without its intent: whether a plain writer changed it under us. `reserved`: without
 * `_keys` too, which the prepare changed. */
int64_t truce__journal_hash(const bson_t *document, bool reserved);

/* {ns, id} out of an element of writes or post; both borrowed. False: not of truce's making. */
bool truce__journal_target(const bson_t *element, const char **collection, bson_value_t *id);

/* CORRUPT: the entry of the commit's `post` is not as truce writes them, and nothing may be done by it. */
truce_status truce__journal_post_check(const bson_oid_t *commit, const bson_t *post,
                                       bson_error_t *error);

#endif
