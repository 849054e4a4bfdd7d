#ifndef TRUCE_COMMIT_COMMIT_H
#define TRUCE_COMMIT_COMMIT_H

/* The internals of a commit, as its mechanisms (single_document.c, native_transaction.c, journal.c)
 * use them. */
#include "base/hash_table.h"
#include "commit/journal.h"
#include "commit/per_key_lock.h"

struct answer;
struct owner;

/* A commit while it is collected, and during its tries. */
struct truce_commit {
    truce_store *store;
    /* The options. The strings and the input are copies, which the commit owns. */
    truce_commit_options options;
    struct worker worker;
    /* The _id of the commit document. Each attempt of the journal makes a new one. */
    bson_oid_t id;
    /* One entry for each document. truce_commit_apply sorts them (truce__entry_compare). */
    struct entry **entries;
    uint32_t count, room;
    /* The numbers of the entries by their hashes. A lookup uses the table only if it has all
     * entries. */
    struct hash_table entry_numbers;
    /* The commit was applied, so nothing can be added any more. */
    bool applied;
    /* The result of truce_commit_apply. */
    truce_status outcome;
    /* The status of the first call that failed, or OK. After a failure, the commit cannot take
     * effect, and each later call fails with this status and with `why`. */
    truce_status failed;
    bson_error_t why;
    /* The number of searches that did not find the holder of a refused unique value. */
    uint32_t searched;
    /* The attempt of the journal that took documents before the function ran (journal.c, CT1), or
     * NULL. The commit owns it. */
    struct owner *owner;
    /* While the function runs: the commit whose function called this function, or NULL. */
    truce_commit *around;
    /* The store refused to guard a document that is only read (native_transaction.c, CN6). */
    bool unguarded;
    /* The next try must not take its documents before the function runs (journal.c, CT3). */
    bool untakeable;
    /* The commit takes numbers of a sequence. Other callers of the sequence ignore intents, so the
     * journal refuses the commit. */
    bool numbered;
    /* True while a pattern adds documents of one of its own collections, which other commits may
     * not change. */
    bool inside;
    /* Another commit took effect under the same key before. */
    bool earlier;
    /* The result to store under the key, or NULL. */
    bson_t *result;
    /* An array of the ids that were generated for inserts without an id. */
    bson_t inserted;
    /* The journal prepares documents one by one, because a bulk did not prepare all (journal.c,
     * CK3). */
    bool apart;
    /* The diffs of the commit cannot be made again, so a different old value is a final
     * conflict. */
    bool fixed;
    /* A change of the commit would conflict with a stored document in each further run, too. */
    bool conflicts;

    /* The transaction that the queries of this try read, with what they read, or NULL before the
     * first query. The commit owns it. */
    truce_store *query_overlay;
    /* The first open cursor of the queries, or NULL. */
    struct answer *answers;

    /* The per-key locks while truce_transact runs the commit, or NULL. `lock` is the one that the
     * commit holds (per_key_lock.h). */
    struct key_locks *locks;
    struct key_lock lock;
    /* The last try lost on a document whose lock has the number `lost_stripe`. */
    bool lost;
    uint32_t lost_stripe;
    /* The function called something apart from the commit, and the call failed with LOCKED instead
     * of waiting (journal.c, CT2). */
    bool yielded;
    /* A durable write followed every read of this try, so no further wait for the disk is necessary
     * (per_key_lock.c, CP6). */
    bool settled;
};

/* Does what truce_commit_begin does, without a lookup of the key. */
truce_status truce__commit_new(truce_store *store, const truce_commit_options *options,
                               truce_commit **made, bson_error_t *error);

/* Does what truce_commit_apply does. The caller, truce_transact, looks up the key. */
truce_status truce__commit_apply(truce_commit *commit, bson_error_t *error);

/* Does what truce_transact does. If `waits` is false, the commit joins no wait queue and reads
 * nothing that is not durable. Use it for a function that compares what it reads with something its
 * caller read before. A longer wait only makes a difference more likely. */
truce_status truce__transact(truce_store *store, truce_commit_function *function, void *arg,
                             const truce_commit_options *options, bool waits, bson_error_t *error);

/* Returns whether a write of this try may become durable later, after the per-key locks are
 * released. */
static inline bool truce__commit_is_early(const truce_commit *commit)
{
    return commit->lock.held && commit->worker.early;
}

/* Returns whether the document, which the commit has read, has a `_rev` or gets one. Otherwise the
 * last write of the whole document was that of another program. */
bool truce__commit_marks(truce_commit *commit, const char *collection, const bson_value_t *id);

static inline void truce__commit_lost(truce_commit *commit, const struct entry *entry)
{
    commit->lost = true;
    commit->lost_stripe = truce__key_lock_stripe(entry);
}

/* Forgets the queries of a try and what they saw. */
void truce__commit_queries_forget(truce_commit *commit);

/* Returns whether the commit takes this document (by an intent or a stub). Otherwise it only reads
 * it. */
static inline bool truce__commit_takes(const struct entry *entry)
{
    return entry->hold || truce__entry_writes(entry);
}

/* The three mechanisms. Each function makes one attempt, and returns CONFLICT if the caller's
 * function must run again. Every other status is final. */
truce_status truce__commit_fast(truce_commit *commit, bson_error_t *error);
/* Does what truce__commit_fast does, for a commit of one document that was taken before the
 * function ran. */
truce_status truce__commit_fast_held(truce_commit *commit, bson_error_t *error);
truce_status truce__commit_native(truce_commit *commit, bson_error_t *error);
truce_status truce__commit_journal(truce_commit *commit, bson_error_t *error);

/* Takes the documents of the last try before the function runs again (journal.c, CT1). Returns
 * CONFLICT without documents, or if they cannot be taken first; any other failure is that of a
 * prepare. After a failure, the commit holds no document. Sets *already if the key says that the
 * commit took effect. */
truce_status truce__journal_take(truce_commit *commit, bool *already, bson_error_t *error);
/* Sets the commit whose function this thread runs after this call (journal.c, CT8). NULL means that
 * it runs none. Returns the previous one. */
truce_commit *truce__journal_work_set(truce_commit *commit);
/* Aborts the commit and releases the documents that were taken first. Does nothing if there are
 * none. */
void truce__journal_drop(truce_commit *commit, const char *why);
/* Frees the owner of a finished commit whose documents were taken first. */
void truce__journal_release_entries(truce_commit *commit);

/* Does what a read of the document by the commit does, without a message: the caller has just read,
 * for this try, that no such document exists. */
truce_status truce__commit_know_missing(truce_commit *commit, const char *collection,
                                        const bson_value_t *id, bson_error_t *error);

/* ---- documents by a unique key (commit.c) ---- */

/* Does what truce_commit_read does, for the document whose fields equal those of `key`, which are
 * under a unique index. Also finds the commit's own inserts. `id` is the document's _id, or if the
 * result is NOT_FOUND, the _id for the insert. The caller destroys `id`, which is always
 * initialized. */
truce_status truce__commit_read_keyed(truce_commit *commit, const char *collection,
                                      const bson_t *key, bson_value_t *id, bson_t *document,
                                      bson_error_t *error);

/* Inserts a document that truce__commit_read_keyed did not find. If another writer inserts one with
 * the same key, the commit fails with CONFLICT. */
truce_status truce__commit_insert_keyed(truce_commit *commit, const char *collection,
                                        const bson_t *key, const bson_t *document,
                                        bson_error_t *error);

/* Waits for other commits of this open store, as long as some of them lose on keys of the
 * collection. Call it before reading the documents from which the next key is made. */
void truce__commit_queue_up(truce_commit *commit, const char *collection);

/* Does what truce__commit_insert_keyed does. The stub has the fields `shows` ({path: 1}) too, so
 * that a query by them encounters the stub. */
truce_status truce__commit_insert_shown(truce_commit *commit, const char *collection,
                                        const bson_t *key, const bson_t *shows,
                                        const bson_t *document, bson_error_t *error);

/* Checks a key, and the time at which the caller made it. A key of NULL means that none exists,
 * and no time either. */
truce_status truce__commit_key_check(const char *key, int64_t time_ms, bson_error_t *error);
/* Finds the commit that used the caller's key. Returns OK if it took effect, and nothing is left to
 * do. Returns NOT_FOUND if the key is unused. Returns DUPLICATE if it was used with another input
 * or time. Returns EXPIRED if the key is not after the horizon. Returns LOCKED if a pending commit
 * with the key does not end. */
truce_status truce__commit_key_holder(truce_commit *commit, bson_error_t *error);
/* Returns NOT_FOUND if the key may be used, and EXPIRED if its time is not after the horizon. */
truce_status truce__commit_key_expired(truce_commit *commit, bson_error_t *error);
/* Returns the status of a commit that failed, by what is stored under its key. Returns OK if the
 * same commit took effect, and DUPLICATE if that commit had another input or time. Otherwise
 * returns `failure`. */
truce_status truce__commit_key_decides(truce_commit *commit, truce_status failure,
                                       bson_error_t *error);

static inline void truce__commit_report_earlier(const truce_commit *commit, bool earlier)
{
    if (commit->options.earlier)
        *commit->options.earlier = earlier;
}

/* Returns whether the commit has a document of its own, for its key or its input. */
static inline bool truce__commit_has_document(const truce_commit *commit)
{
    return commit->options.key || commit->options.input;
}

/* Begins a commit document: {_id, key?, key_time?, state, input?, created ...}. */
void truce__commit_begin_document(const truce_commit *commit, const char *state, bson_t *document);

/* Appends `result` and `inserted`, as far as the commit has them, to its commit document or to an
 * update of it. */
void truce__commit_append_left(const truce_commit *commit, bson_t *document);

void truce__commit_entries_free(truce_commit *commit);

#endif
