#include "commit/journal_owner.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/limits.h"
#include "commit/counters.h"
#include "commit/metadata_cache.h"
#include "commit/shadow.h"
#include "commit/unique.h"

/*
 * The write-intent journal: a commit over several documents on a store that updates one document at
 * a time. Its steps were model-checked; a guard or an order that looks superfluous is not.
 *
 *   commit       -(insert)-> pending -(decide)-> committed -(all released)-> done -> purged
 *                               \--(abort, by anybody)--> aborted -> purged
 *
 *   document      free -(prepare)-> held {_intent: {c: C}} -(release or strip)-> free
 *                 none -(prepare)-> stub {_id, _intent: {c: C, new: true}} -> filled, or gone
 *
 * The owner:
 *   1. inserts the commit document, before it touches any document;
 *   2. prepares every document that it writes or holds, in the order of (collection, _id): one
 *      find-and-modify that compares guard and revision and sets the intent; an insert puts a stub
 *      there; documents that were read may be taken together, by one bulk (journal_joined.c). It
 *      applies its changes in memory to what came back, so nothing can fail later;
 *   3. looks at everything that it only requires, after all prepares, a missing one first;
 *   4. decides: pending -> committed with the changes resolved to values, one write: the commit
 * point;
 *   5. releases each document: values in, `_rev: C`, intent out; a remove happens here, not before
 *      (journal_release.c), and all may be one bulk;
 *   6. marks the commit done when every release was answered.
 * Anything wrong before 4: it aborts the commit, THEN strips what it held.
 *
 * Invariants:
 *
 *   J1  (rule Z) No insert and no prepare is sent again under one commit id after one that was not
 *       answered: it may land at any later time. The owner looks: there, it goes on; not there, it
 *       abandons this id and starts again under a fresh one. Decide, release, abort and done repeat
 *       freely.
 *   J2  Before any document carries an intent, the commit document exists. So a missing commit
 *       means aborted and purged: strip.
 *   J3  Only a pending commit is decided or aborted: both compare the state in the write itself.
 *   J4  An intent is removed only by strip (commit aborted or missing) or release (committed or
 *       done), and both compare the commit's id in the intent.
 *   J5  `done` means that no document holds the intent any more; only then may a commit be purged.
 *   J6  Requires are looked at after the prepares, and by revision: at the decision every document
 *       that the commit depends on was as it was read, at one moment. A document that is missing
 *       has no revision, so at most one missing one is looked at, and first; others are held by
 *       stubs.
 *   J7  After the decision nothing can fail: changes were applied in memory, sizes, index keys and the
 *       validator checked (validated.c), uniquely indexed values reserved by the stub, or in `_keys`
 *       (unique.c).
 *   J8  After a decide without an answer, a missing commit tells nothing: TRUCE_UNKNOWN.
 *   J9  Where a power cut takes the end of what was written and nothing else (TRUCE_CAN_KEEP_ORDER),
 *       only the decision and `done` wait for the disk, and bring everything before them to it: what
 *       the cut leaves is what it would have left earlier. Not so where documents have logs of their
 *       own, as on the shards of a cluster: a purge could stay where a release was lost.
 *
 * A crash leaves: after 1 a pending commit that somebody aborts when its lease is over; after 2 and
 * 3 intents whose commit is pending: aborted, then stripped; after 4 a committed one: whoever meets
 * it releases; after 5 one that the sweeper marks done.
 *
 * Not done: a pending commit is never taken over by another process: its function would have to run
 * there. Plain writers that ignore intents are not stopped: `was` in the commit finds them at the
 * release.
 */

#define RELEASE_TRIES 3

/* ---- step 1 --------------------------------------------------------------------------------- */

static void append_lease(const truce_commit *commit, bson_t *document)
{
    bson_t lease;

    bson_append_document_begin(document, "lease", 5, &lease);
    BSON_APPEND_INT32(&lease, "ms", (int32_t)commit->options.lease_ms);
    BSON_APPEND_INT64(&lease, "until", truce__clock_wall_ms() + commit->options.lease_ms);
    bson_append_document_end(document, &lease);
}

static void journal_append_targets(const truce_commit *commit, const char *name, bool taken,
                                   bson_t *document)
{
    bson_t list, element;
    uint32_t index = 0;

    bson_append_array_begin(document, name, -1, &list);
    for (uint32_t i = 0; i < commit->count; i++) {
        if (truce__commit_takes(commit->entries[i]) != taken)
            continue;
        truce__owner_target(&list, index++, commit->entries[i], &element);
        if (taken && commit->entries[i]->keyed)
            BSON_APPEND_BOOL(&element, "keyed", true);
        bson_append_document_end(&list, &element);
    }
    bson_append_array_end(document, &list);
}

truce_status truce__owner_find(struct owner *owner, bson_t *document, bson_error_t *error)
{
    for (;;) {
        truce_status status =
            truce__commit_find(owner->commit->store, &owner->commit->id, document, error);

        if (!truce__unanswered(status) || truce__worker_wait(owner->worker, "the store", NULL))
            return status;
        bson_destroy(document);
    }
}

/* J1: an insert without an answer. There: go on. Not there: a fresh id. */
static truce_status look_for_insert(struct owner *owner, bson_error_t *error)
{
    bson_t document;
    truce_status status = truce__owner_find(owner, &document, error);

    bson_destroy(&document);
    if (status == TRUCE_NOT_FOUND) {
        owner->again = true;
        owner->inserted = false;
        return truce__fail(TRUCE_CONFLICT, error,
                           "the commit was abandoned: the store did not answer");
    }
    return status;
}

static truce_status insert_commit(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    truce_write_options options = {.relaxed = truce__worker_relaxed_step(owner->worker)};
    truce_status status;
    bson_t document;

    truce__commit_begin_document(commit, "pending", &document);
    append_lease(commit, &document);
    journal_append_targets(commit, "writes", true, &document);
    journal_append_targets(commit, "requires", false, &document);
    owner->inserted = true;
    owner->renewed_ns = truce__clock_monotonic_ns();
    status = truce_insert(commit->store, COMMITS, &document, &options, error);
    bson_destroy(&document);
    if (truce__unanswered(status))
        return look_for_insert(owner, error);
    if (status)
        owner->inserted = false;
    return status;
}

truce_status truce__owner_open(struct owner *owner, bool *already, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    truce_status status = insert_commit(owner, error);

    *already = false;
    if (status == TRUCE_DUPLICATE && commit->options.key) {
        status = truce__commit_key_holder(commit, error);
        *already = !status;
        if (status == TRUCE_NOT_FOUND) { /* it was given back */
            owner->again = true;
            status = truce__fail(TRUCE_CONFLICT, error, "the key was taken for a moment");
        }
        return status;
    }
    if (status || !commit->options.key)
        return status;
    status = truce__commit_key_expired(commit, error);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- steps 5 to 7 --------------------------------------------------------------------------- */

void truce__owner_held(const truce_commit *commit, const struct entry *entry, bson_t *held)
{
    bson_t intent;

    bson_copy_to(&entry->base, held);
    bson_append_document_begin(held, "_intent", 7, &intent);
    BSON_APPEND_OID(&intent, "c", &commit->id);
    bson_append_document_end(held, &intent);
}

/* `element` of post is the entry's. */
static truce_status release_entry(struct owner *owner, const struct entry *entry,
                                  const bson_iter_t *element)
{
    const uint8_t *bytes;
    uint32_t length;
    bson_t post, held;
    bool known = !entry->stub && !entry->reserved;
    truce_status status;

    if (known)
        truce__owner_held(owner->commit, entry, &held);
    bson_iter_document(element, &length, &bytes);
    truce_assert(bson_init_static(&post, bytes, length));
    status = truce__journal_release(owner->worker, &owner->commit->id, &post, known ? &held : NULL,
                                    NULL);
    if (known)
        bson_destroy(&held);
    return status;
}

static truce_status journal_release_entries(struct owner *owner)
{
    truce_commit *commit = owner->commit;
    truce_status first = TRUCE_OK;
    bson_iter_t element;

    truce_assert(bson_iter_init(&element, &owner->post));
    for (uint32_t i = 0; i < commit->count; i++) {
        truce_status status;

        if (!truce__commit_takes(commit->entries[i]))
            continue;
        truce_assert(bson_iter_next(&element));
        status = release_entry(owner, commit->entries[i], &element);
        first = first ? first : status;
    }
    return first ? first : truce__journal_done(owner->worker, &commit->id, NULL);
}

/* Never fails: what is not answered is left to whoever comes (J4, J5). */
static void release_all(struct owner *owner)
{
    if (truce__owner_release_joined(owner) &&
        !truce__journal_done(owner->worker, &owner->commit->id, NULL))
        return;
    for (int i = 0; i < RELEASE_TRIES; i++) {
        if (!truce__unanswered(journal_release_entries(owner)))
            break;
    }
}

void truce__owner_give_up(struct owner *owner, const char *why)
{
    truce_commit *commit = owner->commit;
    bool changed = false;

    if (!owner->inserted)
        return;
    if (truce__journal_abort(owner->worker, &commit->id, why, &changed, NULL))
        return;
    if (!changed) { /* not pending any more: only an abort by somebody else lets us strip */
        bson_t document;
        const char *state;
        truce_status status = truce__owner_find(owner, &document, NULL);
        bool aborted;

        state = status ? NULL : truce__commit_state(&document);
        aborted = status == TRUCE_NOT_FOUND || (state && !strcmp(state, "aborted"));
        bson_destroy(&document);
        if (!aborted)
            return;
    }
    if (truce__owner_strip_joined(owner))
        return;
    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (entry->sent)
            (void)truce__journal_strip(owner->worker, entry->collection, &entry->id, &commit->id,
                                       entry->keys, NULL); /* left to whoever meets it */
    }
}

/* Between two steps, once a third of the lease is over: who meets us sees that we are at work. Not while we
 * wait for others, so nobody waits for ever for two who wait for each other. */
static truce_status renew(struct owner *owner, bson_error_t *error)
{
    uint32_t lease_ms = owner->commit->options.lease_ms;
    int64_t now_ns = truce__clock_monotonic_ns();
    bool pending;
    truce_status status;

    if (now_ns - owner->renewed_ns < (int64_t)lease_ms * 1000000 / 3)
        return TRUCE_OK;
    status = truce__journal_renew(owner->worker, &owner->commit->id, lease_ms, &pending, error);
    if (!status && !pending)
        return truce__fail(TRUCE_CONFLICT, error,
                           "the commit was undone by somebody else: its lease was over");
    if (truce__unanswered(status))
        return TRUCE_OK; /* it may land, or not: the next step renews again */
    owner->renewed_ns = now_ns;
    return status;
}

/* Step 2, unless the document was taken before the function ran. */
static truce_status commit_journal_take(struct owner *owner, struct entry *entry,
                                        bson_error_t *error)
{
    truce_status status;

    if (!entry->prepared)
        return truce__owner_prepare(owner, entry, error);
    status = truce__owner_can_be(owner, entry, error);
    return status ? status : truce__owner_still(owner, entry, error);
}

static truce_status journal_take_each(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < commit->count; i++) {
        if (!truce__commit_takes(commit->entries[i]))
            continue;
        status = renew(owner, error);
        if (!status)
            status = commit_journal_take(owner, commit->entries[i], error);
    }
    return status;
}

/* Steps 2 to 4, up to the decision. */
static truce_status journal_take_all(struct owner *owner, bson_error_t *error)
{
    truce_status status = renew(owner, error);

    if (!status)
        status = truce__owner_joins(owner) ? truce__owner_prepare_joined(owner, error)
                                           : journal_take_each(owner, error);
    if (!status)
        status = renew(owner, error);
    if (!status)
        status = truce__owner_requires(owner, error);
    return status ? status : truce__owner_post(owner, error);
}

/* From an open commit document to the end. */
static truce_status bring_through(struct owner *owner, bson_error_t *error)
{
    bson_error_t why = {0};
    truce_status status = journal_take_all(owner, &why);

    if (!status) {
        status = truce__owner_decide(owner, &why);
        if (!status)
            release_all(owner);
    }
    if (status && status != TRUCE_UNKNOWN)
        truce__owner_give_up(owner, why.message);
    if (status && error)
        *error = why;
    return status;
}

static truce_status journal_run(struct owner *owner, bson_error_t *error)
{
    bool already = false;
    bson_error_t why = {0};
    truce_status status = truce__owner_open(owner, &already, &why);

    if (already)
        return TRUCE_OK;
    if (!status)
        return bring_through(owner, error);
    truce__owner_give_up(owner, why.message);
    if (error)
        *error = why;
    return status;
}

static void start_attempt(truce_commit *commit)
{
    for (uint32_t i = 0; i < commit->count; i++) {
        commit->entries[i]->sent = false;
        commit->entries[i]->prepared = false;
        commit->entries[i]->stub = false;
        commit->entries[i]->reserved = false;
        commit->entries[i]->keys = -1;
    }
}

/* One attempt. *again: it was abandoned, and is to be made under a fresh id. */
static truce_status journal_attempt(truce_commit *commit, bool *again, bson_error_t *error)
{
    struct owner owner = {.commit = commit,
                          .worker = &commit->worker,
                          .post = BSON_INITIALIZER,
                          .held = BSON_INITIALIZER};
    truce_status status = journal_run(&owner, error), waited = TRUCE_OK;

    *again = status && owner.again;
    if (status == TRUCE_CONFLICT && !bson_empty(&owner.held)) /* nothing is held here now */
        waited = truce__unique_wait(commit, owner.held_in, &owner.held, error);
    if (waited)
        status = waited;
    bson_destroy(&owner.held);
    bson_destroy(&owner.post);
    return status;
}

/* Its documents were taken before its function ran. */
static truce_status finish_taken(truce_commit *commit, bson_error_t *error)
{
    truce_status status;

    status = bring_through(commit->owner, error);
    truce__journal_let_go(commit);
    return status;
}

truce_status truce__commit_journal(truce_commit *commit, bson_error_t *error)
{
    truce_status status = truce__memo_commits(commit->store, error);

    if (status)
        return status;
    truce__owner_hold_missing(commit);
    commit->apart = false;
    if (commit->owner)
        return finish_taken(commit, error);
    for (;;) {
        bool again;

        start_attempt(commit);
        status = journal_attempt(commit, &again, error);
        if (!again || truce__worker_wait(&commit->worker, "the store", NULL))
            return status;
        truce__id_new(&commit->id);
    }
}
