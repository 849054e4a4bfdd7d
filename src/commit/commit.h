#ifndef TRUCE_COMMIT_COMMIT_H
#define TRUCE_COMMIT_COMMIT_H

/* A commit as its mechanisms see it. */
#include "commit/journal.h"
#include "commit/per_key_lock.h"

struct answer;
struct owner;

struct truce_commit {
    truce_store *store;
    truce_commit_options options; /* key and input are copies */
    struct worker worker;
    bson_oid_t id; /* changes with each attempt of the journal */
    struct entry **entries;
    uint32_t count, room;
    bool applied;         /* apply was called: nothing can be added any more */
    truce_status outcome; /* what apply answered */
    truce_status failed;  /* not OK: it can take no effect any more, because: */
    bson_error_t why;
    uint32_t searched;    /* so often nobody was found who has a unique value that was refused */
    struct owner *owner;  /* of documents that were taken before the function runs (journal.c) */
    truce_commit *around; /* whose function this one's was called by, while it runs */
    bool unguarded;  /* the store could not guard a document that is only read (native.c, N6) */
    bool untakeable; /* the journal cannot do what the function does */
    bool earlier;    /* its key says that it took effect before */
    bson_t *result;  /* what it leaves under its key; NULL: nothing */
    bson_t inserted; /* an array: the ids that were made for inserts without one */
    bool apart;      /* the journal takes its documents one by one (journal.c, K3) */
    bool fixed;      /* nobody can make its diffs again: a stale one is the end */

    /* its queries (commit.c) */
    truce_store *asked;     /* what they look at, with what they saw; NULL: there were none */
    struct answer *answers; /* their cursors that are open */

    /* while truce_transact tries (transact.c) */
    struct turns *turns; /* NULL: it does not */
    struct commit_turn turn;
    bool lost; /* the last try, on a document of this place */
    uint32_t lost_at;
    /* A call of its function, apart from it, did not wait for another commit (journal.c, T2). */
    bool yielded;
    bool settled; /* a write that waited for the disk came behind all that was read */
};

/* truce_commit_begin, without a look for the key. */
truce_status truce__commit_new(truce_store *store, const truce_commit_options *options,
                               truce_commit **made, bson_error_t *error);

/* truce_commit_apply, where truce_transact looks for the key. */
truce_status truce__commit_apply(truce_commit *commit, bson_error_t *error);

/* truce_transact; `waits` false: in no line, and nothing is read early. For a function that compares what it reads with
 * what its caller read before: the longer it waits the surer that is another one, and the caller wants to know soon. */
truce_status truce__transact(truce_store *store, truce_commit_function *function, void *arg,
                             const truce_commit_options *options, bool waits, bson_error_t *error);

/* A write of this try waits for the disk later, when others may have the turn. */
static inline bool truce__commit_is_early(const truce_commit *commit)
{
    return commit->turn.held && commit->worker.early;
}

static inline void truce__commit_lost(truce_commit *commit, const struct entry *entry)
{
    commit->lost = true;
    commit->lost_at = truce__turn_place(entry);
}

/* The queries of a try and what they saw are over (commit.c). */
void truce__commit_queries_forget(truce_commit *commit);

/* Does the commit take this document (intent or stub), or only look at it? */
static inline bool truce__commit_takes(const struct entry *entry)
{
    return entry->hold || truce__entry_writes(entry);
}

/* One attempt each. CONFLICT: run the function again; all other statuses are final. */
truce_status truce__commit_fast(truce_commit *commit, bson_error_t *error);
/* Of the only document, which was taken before the function ran. */
truce_status truce__commit_fast_held(truce_commit *commit, bson_error_t *error);
truce_status truce__commit_native(truce_commit *commit, bson_error_t *error);
truce_status truce__commit_journal(truce_commit *commit, bson_error_t *error);

/* Takes the documents of the last try, before the function runs again (journal.c). CONFLICT: not this
 * time. *already: the key says that the commit took effect. */
truce_status truce__journal_take(truce_commit *commit, bool *already, bson_error_t *error);
/* Whose function this thread runs from now on (T8); NULL: nobody's. Answers whose it was. */
truce_commit *truce__journal_work_set(truce_commit *commit);
/* Undoes what was taken; nothing, if nothing was. */
void truce__journal_drop(truce_commit *commit, const char *why);
/* After the end of a commit whose documents were taken. */
void truce__journal_let_go(truce_commit *commit);

/* ---- documents by a unique key (commit.c) ---- */

/* truce_commit_read of the document whose fields are those of `key`, which stand under a unique
 * index; the commit's own inserts are found, too. `id` (always initialised; the caller destroys it)
 * is its _id; NOT_FOUND: the one to insert it under. */
truce_status truce__commit_read_keyed(truce_commit *commit, const char *collection,
                                      const bson_t *key, bson_value_t *id, bson_t *document,
                                      bson_error_t *error);

/* Inserts what truce__commit_read_keyed did not find. If somebody else inserts one of that key, the
 * commit is a CONFLICT. */
truce_status truce__commit_insert_keyed(truce_commit *commit, const char *collection,
                                        const bson_t *key, const bson_t *document,
                                        bson_error_t *error);

/* The same. Its stub has these fields, too ({path: 1}): who looks for documents by them meets it. */
truce_status truce__commit_insert_shown(truce_commit *commit, const char *collection,
                                        const bson_t *key, const bson_t *shows,
                                        const bson_t *document, bson_error_t *error);

/* The caller's key: who has it? OK: its commit took effect, there is nothing to do. NOT_FOUND:
 * nobody. DUPLICATE: another input. EXPIRED: at or below the horizon. LOCKED: a pending commit does
 * not end. */
truce_status truce__commit_key_holder(truce_commit *commit, bson_error_t *error);
truce_status truce__commit_key_expired(truce_commit *commit, bson_error_t *error);
/* Returns the status of a commit that failed: OK if a commit under its key took effect, DUPLICATE if that one had
 * another input, else `failure`. */
truce_status truce__commit_key_decides(truce_commit *commit, truce_status failure,
                                       bson_error_t *error);

static inline void truce__commit_tell_earlier(const truce_commit *commit, bool earlier)
{
    if (commit->options.earlier)
        *commit->options.earlier = earlier;
}

/* It has a document of its own, for its key or its input. */
static inline bool truce__commit_is_kept(const truce_commit *commit)
{
    return commit->options.key || commit->options.input;
}

/* {_id, key?, key_time?, state, input?, created ...}: what every commit document begins with */
void truce__commit_begin_document(const truce_commit *commit, const char *state, bson_t *document);

/* Appends `result` and `inserted`, as far as the commit has them, to its commit document or to an update of it. */
void truce__commit_append_left(const truce_commit *commit, bson_t *document);

void truce__commit_entries_free(truce_commit *commit);

#endif
