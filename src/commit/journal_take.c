#include "commit/journal_owner.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "commit/metadata_cache.h"

/*
 * Documents first. A commit whose function reads, thinks and writes is a conflict whenever somebody was
 * faster; one of many documents, beside many short ones, would never get through. So after some lost tries
 * the documents of the last one are taken by the journal's own steps, and then the function runs:
 *
 *     commit document | prepare each, in order | function | (prepare what is new) | requires | decide ...
 *
 *   T1  The steps and their order are the journal's (journal.c): to it this is a commit whose base is what
 *       came back from the prepares, as that of a blind change is. What the function leaves as it was is a
 *       hold. So it needs no luck: a prepare compares nothing that was read before.
 *   T2  Who holds documents waits for nobody: what the function wants besides is read, and prepared,
 *       only if it is free; else the try ends, what it held is given back, and the next one takes that
 *       document, too, in the order that is the same for everybody. So two that take first cannot wait
 *       for each other, and each try that fails has found a document that it did not know of. The same holds for
 *       calls that the function makes apart from its commit: a ledger that reads a balance for itself, a set operation,
 *       a commit within the function. If such a call encounters another pending commit, it fails with LOCKED at once,
 *       and the function runs again.
 *   T3  Not everything can be taken first: values of unique indexes are reserved by the prepare, which
 *       does not know them here. Where a collection has declared keys, or the journal refuses what the
 *       store's own step could do, the commit goes on as before. Documents that are missing are not taken,
 *       so one that others insert and remove all the time can cost any number of tries.
 *   T4  A plain writer may change what is held while the function runs: each document is looked at once
 *       more before the decision.
 *   T5  A document that is gone is not taken, and the others are: its prepare was answered, so it took
 *       nothing and cannot land any more. The function reads that it is missing.
 *   T6  Where the store changes several documents in one step, and the caller does not insist on the journal, the
 *       end is one such step (native.c, N7): it compares what is held, so no plain write is lost.
 *   T7  Elsewhere a commit of one document, which nobody will ask for, ends with one write that compares what is held
 *       (fast.c, F6): it needs no decision, and no plain write is lost to it.
 *   T8  The function looks at documents by other ways than its commit, too: several at a time, a balance, a
 *       tree. What its own commit holds is no answer to wait for: it is read as it stands, without the
 *       intent. Nobody but a plain writer can change it until the function has ended, and what it changed is
 *       found by T4. Once the commit is applied its intents are like those of any other commit. A write that the
 *       function makes apart from its commit cannot change what its commit holds: it fails with LOCKED at once.
 */

static _Thread_local truce_commit *at_work; /* the innermost; each knows the one around it */

truce_commit *truce__journal_work_set(truce_commit *commit)
{
    truce_commit *before = at_work;

    at_work = commit;
    return before;
}

bool truce__journal_work_yields(void)
{
    bool holds = false;

    for (truce_commit *commit = at_work; commit; commit = commit->around) {
        commit->yielded = commit->yielded || commit->worker.holding;
        holds = holds || commit->worker.holding;
    }
    return holds;
}

bool truce__journal_work_owns(const bson_oid_t *id)
{
    for (const truce_commit *commit = at_work; commit; commit = commit->around) {
        if (commit->owner && bson_oid_equal(&commit->id, id))
            return true;
    }
    return false;
}

/* T8 */
bool truce__journal_at_work(const bson_t *document)
{
    bson_oid_t id;

    return at_work && truce__intent_commit(document, &id) && truce__journal_work_owns(&id);
}

static int take_compare_entries(const void *a, const void *b)
{
    return truce__entry_compare(*(struct entry *const *)a, *(struct entry *const *)b);
}

/* Only which documents they were is left of the entries; those that were missing are left out. */
static truce_status forget_all_but_names(truce_commit *commit, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t count = 0;

    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *old = commit->entries[i];
        bool keyed = false;

        if (!status)
            status = truce__memo_keyed(commit->store, old->collection, &keyed, error);
        commit->untakeable = commit->untakeable || keyed; /* T3 */
        if (!old->known || old->token.found) {
            commit->entries[count] = truce__entry_new(old->collection, &old->id);
            commit->entries[count]->hold = true;
            commit->entries[count]->keys = -1;
            count++;
        }
        truce__entry_free(old);
    }
    commit->count = count;
    if (count)
        qsort(commit->entries, count, sizeof *commit->entries, take_compare_entries);
    return status;
}

/* T1 */
static truce_status journal_take_take_one(struct owner *owner, struct entry *entry,
                                          bson_error_t *error)
{
    truce_status status;

    entry->must_exist = true; /* for the prepare */
    status = truce__owner_prepare(owner, entry, error);
    entry->must_exist = false;
    entry->known = entry->read = !status;
    return status;
}

/* T5 */
static void take_drop(truce_commit *commit, uint32_t at)
{
    truce__entry_free(commit->entries[at]);
    commit->count--;
    memmove(commit->entries + at, commit->entries + at + 1,
            (commit->count - at) * sizeof *commit->entries);
}

static truce_status journal_take_take_all(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;

    for (uint32_t i = 0; i < commit->count;) {
        truce_status status = journal_take_take_one(owner, commit->entries[i], error);

        if (status == TRUCE_NOT_FOUND)
            take_drop(commit, i);
        else if (status)
            return status;
        else
            i++;
    }
    return TRUCE_OK;
}

truce_status truce__journal_take(truce_commit *commit, bool *already, bson_error_t *error)
{
    struct owner *owner;
    truce_status status = forget_all_but_names(commit, error);

    if (!status)
        status = truce__memo_commits(commit->store, error);
    if (status)
        return status;
    if (!commit->count || commit->untakeable)
        return truce__fail(TRUCE_CONFLICT, error, "its documents cannot be taken first");
    owner = bson_aligned_alloc0(_Alignof(struct owner), sizeof *owner);
    owner->commit = commit;
    owner->worker = &commit->worker;
    bson_init(&owner->post);
    bson_init(&owner->held);
    commit->owner = owner;
    status = truce__owner_open(owner, already, error);
    if (!status && !*already)
        status = journal_take_take_all(owner, error);
    commit->worker.holding = !status && !*already;
    if (*already)
        truce__journal_let_go(commit);
    else if (status)
        truce__journal_drop(commit, "it did not get its documents");
    return status;
}

void truce__journal_let_go(truce_commit *commit)
{
    bson_destroy(&commit->owner->post);
    bson_destroy(&commit->owner->held);
    bson_free(commit->owner);
    commit->owner = NULL;
    commit->worker.holding = false;
}

void truce__journal_drop(truce_commit *commit, const char *why)
{
    if (!commit->owner)
        return;
    truce__owner_give_up(commit->owner, why);
    truce__journal_let_go(commit);
}
