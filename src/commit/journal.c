#include "commit/commit.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/limits.h"
#include "commit/counters.h"
#include "commit/memo.h"
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
 *      there. It applies its changes in memory to what came back, so nothing can fail later;
 *   3. looks at everything that it only requires, after all prepares, a missing one first;
 *   4. decides: pending -> committed with the changes resolved to values, one write: the commit
 * point;
 *   5. releases each document: values in, `_rev: C`, intent out; a remove happens here, not before;
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
 *   J7  After the decision nothing can fail: changes were applied in memory, sizes and index keys
 *       checked, uniquely indexed values reserved by the stub, or in `_keys` (unique.c).
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

struct owner {
    truce_commit *commit;
    struct worker *worker;
    bool again;    /* abandon this id and start again under a fresh one */
    bool inserted; /* the commit document was sent */
    bson_t post;   /* array */
    bson_t held;   /* not empty: a document of held_in has a key that we want, and an intent (U5) */
    const char *held_in;
};

/* ---- step 1 --------------------------------------------------------------------------------- */

static void append_lease(const truce_commit *commit, bson_t *document)
{
    bson_t lease;

    bson_append_document_begin(document, "lease", 5, &lease);
    BSON_APPEND_INT32(&lease, "ms", (int32_t)commit->options.lease_ms);
    BSON_APPEND_INT64(&lease, "until", truce__clock_wall_ms() + commit->options.lease_ms);
    bson_append_document_end(document, &lease);
}

static void append_target(bson_t *array, uint32_t index, const struct entry *entry, bson_t *element)
{
    char key[16];

    bson_append_document_begin(array, key, snprintf(key, sizeof key, "%u", index), element);
    BSON_APPEND_UTF8(element, "ns", entry->collection);
    BSON_APPEND_VALUE(element, "id", &entry->id);
}

static void append_targets(const truce_commit *commit, const char *name, bool taken,
                           bson_t *document)
{
    bson_t list, element;
    uint32_t index = 0;

    bson_append_array_begin(document, name, -1, &list);
    for (uint32_t i = 0; i < commit->count; i++) {
        if (truce__commit_takes(commit->entries[i]) != taken)
            continue;
        append_target(&list, index++, commit->entries[i], &element);
        if (taken && commit->entries[i]->keyed)
            BSON_APPEND_BOOL(&element, "keyed", true);
        bson_append_document_end(&list, &element);
    }
    bson_append_array_end(document, &list);
}

static truce_status find_commit(struct owner *owner, bson_t *document, bson_error_t *error)
{
    truce_status status;
    bson_t filter = BSON_INITIALIZER;

    BSON_APPEND_OID(&filter, "_id", &owner->commit->id);
    for (;;) {
        status = truce_find_one(owner->commit->store, COMMITS, &filter, NULL, document, error);
        if (!truce__unanswered(status) || truce__worker_wait(owner->worker, "the store", NULL))
            break;
        bson_destroy(document);
    }
    bson_destroy(&filter);
    return status;
}

/* J1: an insert without an answer. There: go on. Not there: a fresh id. */
static truce_status look_for_insert(struct owner *owner, bson_error_t *error)
{
    bson_t document;
    truce_status status = find_commit(owner, &document, error);

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
    append_targets(commit, "writes", true, &document);
    append_targets(commit, "requires", false, &document);
    owner->inserted = true;
    status = truce_insert(commit->store, COMMITS, &document, &options, error);
    bson_destroy(&document);
    if (truce__unanswered(status))
        return look_for_insert(owner, error);
    if (status)
        owner->inserted = false;
    return status;
}

/* The commit document, the key and its horizon. */
static truce_status open_commit(struct owner *owner, bool *already, bson_error_t *error)
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

/* ---- step 2 --------------------------------------------------------------------------------- */

/* What came back from the prepare is the base of a blind entry, and must be that of a known one. */
static truce_status taken(struct owner *owner, struct entry *entry, const bson_t *document,
                          bson_error_t *error)
{
    truce_status status;

    entry->prepared = true;
    status = entry->known ? truce__commit_same(entry, document, error)
                          : truce__entry_take(entry, document, error);
    return status ? status : truce__unique_check(owner->commit->store, entry, error);
}

/* Reads the document as it is, with its intent if it has one. */
static truce_status peek(struct owner *owner, const struct entry *entry, bson_t *document,
                         bson_error_t *error)
{
    truce_status status;
    bson_t filter;

    truce__filter_id(&entry->id, &filter);
    for (;;) {
        status =
            truce_find_one(owner->commit->store, entry->collection, &filter, NULL, document, error);
        if (!truce__unanswered(status) || truce__worker_wait(owner->worker, "the store", NULL))
            break;
        bson_destroy(document);
    }
    bson_destroy(&filter);
    return status;
}

static bool is_ours(const struct owner *owner, const bson_t *document)
{
    bson_oid_t holder;

    return truce__intent_commit(document, &holder) && bson_oid_equal(&holder, &owner->commit->id);
}

/* J1: a prepare without an answer. */
static truce_status look_for_prepare(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    bson_t document, plain = BSON_INITIALIZER;
    truce_status status = peek(owner, entry, &document, error);

    if (!status && is_ours(owner, &document)) {
        if (entry->stub) {
            entry->prepared = true;
        } else {
            bson_destroy(&plain);
            truce__shadow_restore(&document, &plain);
            status = taken(owner, entry, &plain, error);
        }
    } else if (!status || status == TRUCE_NOT_FOUND) {
        owner->again = true;
        status = truce__commit_conflict(entry, "was not taken: the store did not answer", error);
    }
    bson_destroy(&plain);
    bson_destroy(&document);
    return status;
}

/* The prepare found nothing to take. OK: try again. */
static truce_status why_not(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    bson_t document;
    truce_status status = peek(owner, entry, &document, error);
    const bson_t *found = status ? NULL : &document;

    if (!status && !truce__intent_absent(&document)) {
        truce_assert(!is_ours(owner, &document));
        status = truce__intent_meet(owner->worker, entry->collection, &document, error);
    } else if (!status || status == TRUCE_NOT_FOUND) {
        status = entry->known ? truce__commit_same(entry, found, error)
                              : truce__commit_blame(entry, found, error);
        if (!status)
            status = truce__worker_wait(owner->worker, "a document", error);
    }
    bson_destroy(&document);
    return status;
}

/* A unique index refused a prepare. OK: try again. CONFLICT: the value is held by another commit, which
 * is waited for as soon as nothing is held here (U5). */
static truce_status key_refused(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    truce_status status = truce__unique_holder(owner->commit, entry, &owner->held, error);

    owner->held_in = entry->collection;
    return status ? status : truce__unique_nobody(owner->commit, entry, error);
}

/* {$set: {_intent, and `_keys` with what is reserved}} */
static bson_t *prepare_update(const struct owner *owner, struct entry *entry)
{
    int32_t keys = truce__shadow_reserves(entry);
    bson_t *update = bson_new(), set, intent;

    entry->reserved = keys >= 0;
    entry->keys = keys;
    bson_append_document_begin(update, "$set", 4, &set);
    bson_append_document_begin(&set, "_intent", 7, &intent);
    BSON_APPEND_OID(&intent, "c", &owner->commit->id);
    if (entry->reserved)
        BSON_APPEND_INT32(&intent, "keys", keys);
    bson_append_document_end(&set, &intent);
    if (entry->reserved)
        truce__shadow_reserve(entry, &set);
    bson_append_document_end(update, &set);
    return update;
}

static truce_status prepare_document(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    truce_modify_options options = {.relaxed = truce__worker_relaxed_step(owner->worker)};
    bson_t *update = prepare_update(owner, entry);
    truce_status status;
    bson_t filter, document;

    truce__filter_entry(entry, !entry->known, &filter);
    for (;;) {
        entry->sent = true;
        status = truce_find_and_modify(owner->commit->store, entry->collection, &filter, update,
                                       &options, &document, NULL, error);
        if (!status)
            status = taken(owner, entry, &document, error);
        else if (truce__unanswered(status))
            status = look_for_prepare(owner, entry, error);
        else if (status == TRUCE_NOT_FOUND)
            status = why_not(owner, entry, error);
        else if (status == TRUCE_DUPLICATE)
            status = key_refused(owner, entry, error);
        bson_destroy(&document);
        if (status || entry->prepared)
            break;
    }
    bson_destroy(&filter);
    bson_destroy(update);
    return status;
}

/* The stub was refused: its _id or a uniquely indexed value is taken. OK: try again. */
static truce_status who_has_it(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    bson_error_t ignored;
    bson_t document;
    truce_status status = peek(owner, entry, &document, &ignored);

    if (status == TRUCE_NOT_FOUND) {
        status = key_refused(owner, entry, error);
    } else if (!status && !truce__intent_absent(&document)) {
        status = truce__intent_meet(owner->worker, entry->collection, &document, error);
    } else if (!status) {
        status = entry->read || entry->hold ? truce__commit_conflict(entry, "was inserted", error)
                                            : truce__commit_exists(entry, error);
    }
    bson_destroy(&document);
    return status;
}

static truce_status prepare_stub(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    truce_write_options options = {.relaxed = truce__worker_relaxed_step(owner->worker)};
    truce_status status = truce__unique_check(owner->commit->store, entry, error);
    bson_t stub = BSON_INITIALIZER;

    if (!status) {
        bson_destroy(&stub);
        status = truce__unique_stub(owner->commit->store, entry, &owner->commit->id, &stub, error);
    }
    entry->stub = true;
    while (!status && !entry->prepared) {
        entry->sent = true;
        status = truce_insert(owner->commit->store, entry->collection, &stub, &options, error);
        if (!status)
            entry->prepared = true;
        else if (truce__unanswered(status))
            status = look_for_prepare(owner, entry, error);
        else if (status == TRUCE_DUPLICATE)
            status = who_has_it(owner, entry, error);
    }
    bson_destroy(&stub);
    return status;
}

/* U4 */
static truce_status look_for_key(struct owner *owner, const struct entry *entry,
                                 bson_error_t *error)
{
    owner->held_in = entry->collection;
    return truce__unique_look(owner->commit, entry, &owner->held, error);
}

static truce_status prepare(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    truce_status status = truce__memo_intents(owner->commit->store, entry->collection, error);

    if (status)
        return status;
    owner->worker->waits = 0;
    if (entry->known && !entry->token.found)
        return prepare_stub(owner, entry, error);
    status = prepare_document(owner, entry, error);
    return !status && entry->reserved ? look_for_key(owner, entry, error) : status;
}

/* ---- step 3 --------------------------------------------------------------------------------- */

static truce_status look(struct owner *owner, const struct entry *entry, bson_error_t *error)
{
    bson_t document;
    truce_status status = peek(owner, entry, &document, error);

    if (!status && !truce__intent_absent(&document))
        status = truce__commit_conflict(entry, "is held by another commit", error);
    else if (!status || status == TRUCE_NOT_FOUND)
        status = truce__commit_same(entry, status ? NULL : &document, error);
    bson_destroy(&document);
    return status;
}

/* J6 */
static truce_status look_at_requires(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    truce_status status = TRUCE_OK;

    for (int found = 0; found <= 1; found++) {
        for (uint32_t i = 0; !status && i < commit->count; i++) {
            const struct entry *entry = commit->entries[i];

            if (!truce__commit_takes(entry) && entry->token.found == (found == 1))
                status = look(owner, entry, error);
        }
    }
    return status;
}

/* J6: all missing requires but one are held. */
static void hold_missing(truce_commit *commit)
{
    bool looked_at = false;

    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (truce__commit_takes(entry) || entry->token.found)
            continue;
        if (looked_at)
            entry->hold = true;
        looked_at = true;
    }
}

/* ---- step 4 --------------------------------------------------------------------------------- */

static void append_changes(bson_t *element, const bson_t *write)
{
    bson_iter_t iter, field;
    bson_t changes, change;
    uint32_t index = 0;
    char key[16];

    bson_append_array_begin(element, "changes", 7, &changes);
    truce_assert(bson_iter_init(&iter, write));
    while (bson_iter_next(&iter)) {
        bool set = !strcmp(bson_iter_key(&iter), "$set");

        truce_assert(bson_iter_recurse(&iter, &field));
        while (bson_iter_next(&field)) {
            if (!strcmp(bson_iter_key(&field), "_rev"))
                continue;
            bson_append_document_begin(&changes, key, snprintf(key, sizeof key, "%u", index++),
                                       &change);
            BSON_APPEND_UTF8(&change, "p", bson_iter_key(&field));
            if (set)
                bson_append_iter(&change, "v", 1, &field);
            bson_append_document_end(&changes, &change);
        }
    }
    bson_append_array_end(element, &changes);
}

static void append_document(bson_t *element, const struct entry *entry)
{
    bson_t document = BSON_INITIALIZER;

    bson_copy_to_excluding_noinit(&entry->after, &document, "_rev", NULL);
    BSON_APPEND_DOCUMENT(element, "document", &document);
    bson_destroy(&document);
}

static void append_update(bson_t *element, const struct entry *entry, const bson_oid_t *rev)
{
    bool replacement;
    bson_t write;

    truce__commit_write(entry, rev, &write, &replacement);
    BSON_APPEND_UTF8(element, "op", replacement ? "whole" : "set");
    if (replacement)
        append_document(element, entry);
    else
        append_changes(element, &write);
    bson_destroy(&write);
}

static void append_post(bson_t *post, uint32_t index, const struct entry *entry,
                        const bson_oid_t *rev)
{
    enum net net = truce__entry_net(entry);
    bson_t element;

    append_target(post, index, entry, &element);
    if (net == NET_INSERT) {
        BSON_APPEND_UTF8(&element, "op", "insert");
        append_document(&element, entry);
    } else if (net == NET_REMOVE) {
        BSON_APPEND_UTF8(&element, "op", "remove");
    } else if (net == NET_UPDATE) {
        append_update(&element, entry, rev);
    } else {
        BSON_APPEND_UTF8(&element, "op", entry->stub ? "free" : "hold");
    }
    if (entry->token.has_rev)
        BSON_APPEND_OID(&element, "pre", &entry->token.rev);
    if (!entry->stub)
        BSON_APPEND_INT64(&element, "was", truce__journal_hash(&entry->base, entry->reserved));
    bson_append_document_end(post, &element);
}

static truce_status make_post(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    uint32_t index = 0;

    bson_reinit(&owner->post);
    for (uint32_t i = 0; i < commit->count; i++) {
        if (truce__commit_takes(commit->entries[i]))
            append_post(&owner->post, index++, commit->entries[i], &commit->id);
    }
    if (owner->post.len > TRUCE_DOCUMENT_BYTES_MAX / 2)
        return truce__fail(TRUCE_LIMIT, error,
                           "the changes of one journal commit come to more than %d bytes",
                           TRUCE_DOCUMENT_BYTES_MAX / 2);
    return TRUCE_OK;
}

static truce_status send_decide(struct owner *owner, bool *decided, bson_error_t *error)
{
    truce_write_options options = {.relaxed = owner->commit->options.relaxed};
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, set;
    truce_write_result result = {0};
    truce_status status;

    BSON_APPEND_OID(&filter, "_id", &owner->commit->id);
    BSON_APPEND_UTF8(&filter, "state", "pending");
    bson_append_document_begin(&update, "$set", 4, &set);
    BSON_APPEND_UTF8(&set, "state", "committed");
    BSON_APPEND_ARRAY(&set, "post", &owner->post);
    bson_append_document_end(&update, &set);
    status =
        truce_update(owner->commit->store, COMMITS, &filter, &update, &options, &result, error);
    *decided = !status && result.matched > 0;
    truce_write_result_release(&result);
    bson_destroy(&update);
    bson_destroy(&filter);
    return status;
}

static truce_status undecided(truce_status status, const struct owner *owner, bson_error_t *error)
{
    char hex[25];

    bson_oid_to_string(&owner->commit->id, hex);
    if (status == TRUCE_UNKNOWN)
        return truce__fail(status, error,
                           "the store did not answer the decision of commit %s, and it cannot be "
                           "found out now",
                           hex);
    return truce__fail(status, error, "commit %s was undone by somebody else: its lease was over",
                       hex);
}

/* OK: decided. CONFLICT: somebody aborted it. UNKNOWN: J8. */
static truce_status decide(struct owner *owner, bson_error_t *error)
{
    bool unanswered = false;

    for (;;) {
        bool decided;
        truce_status status = send_decide(owner, &decided, error);
        const char *state;
        bson_t document;

        if (decided)
            return TRUCE_OK;
        if (status && !truce__unanswered(status))
            return unanswered ? undecided(TRUCE_UNKNOWN, owner, error) : status;
        unanswered = unanswered || status;
        status = find_commit(owner, &document, error);
        state = status ? NULL : truce__commit_state(&document);
        decided = state && (!strcmp(state, "committed") || !strcmp(state, "done"));
        bool pending = state && !strcmp(state, "pending");
        bool aborted = state && !strcmp(state, "aborted");
        bson_destroy(&document);
        if (decided)
            return TRUCE_OK;
        if (aborted || (status == TRUCE_NOT_FOUND && !unanswered))
            return undecided(TRUCE_CONFLICT, owner, error);
        if (!pending || truce__worker_wait(owner->worker, "the store", NULL))
            return undecided(TRUCE_UNKNOWN, owner, error);
    }
}

/* ---- steps 5 to 7 --------------------------------------------------------------------------- */

/* Never fails: what is not answered is left to whoever comes (J4, J5). */
static void release_all(struct owner *owner)
{
    bson_t commit = BSON_INITIALIZER;

    BSON_APPEND_OID(&commit, "_id", &owner->commit->id);
    BSON_APPEND_ARRAY(&commit, "post", &owner->post);
    for (int i = 0; i < RELEASE_TRIES; i++) {
        if (!truce__unanswered(truce__journal_finish(owner->worker, &commit, NULL)))
            break;
    }
    bson_destroy(&commit);
}

/* Step 7. What cannot be done now is left to whoever comes. */
static void give_up(struct owner *owner)
{
    truce_commit *commit = owner->commit;
    bool changed = false;

    if (!owner->inserted)
        return;
    if (truce__journal_abort(owner->worker, &commit->id, &changed, NULL))
        return;
    if (!changed) { /* not pending any more: only an abort by somebody else lets us strip */
        bson_t document;
        const char *state;
        truce_status status = find_commit(owner, &document, NULL);
        bool aborted;

        state = status ? NULL : truce__commit_state(&document);
        aborted = status == TRUCE_NOT_FOUND || (state && !strcmp(state, "aborted"));
        bson_destroy(&document);
        if (!aborted)
            return;
    }
    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (entry->sent)
            (void)truce__journal_strip(owner->worker, entry->collection, &entry->id, &commit->id,
                                       entry->keys, NULL); /* left to whoever meets it */
    }
}

static truce_status run(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    bool already = false;
    truce_status status = open_commit(owner, &already, error);

    if (already)
        return TRUCE_OK;
    for (uint32_t i = 0; !status && i < commit->count; i++) {
        if (truce__commit_takes(commit->entries[i]))
            status = prepare(owner, commit->entries[i], error);
    }
    if (!status)
        status = look_at_requires(owner, error);
    if (!status)
        status = make_post(owner, error);
    if (!status) {
        status = decide(owner, error);
        if (!status)
            release_all(owner);
        if (!status || status == TRUCE_UNKNOWN)
            return status;
    }
    give_up(owner);
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
static truce_status attempt(truce_commit *commit, bool *again, bson_error_t *error)
{
    struct owner owner = {.commit = commit,
                          .worker = &commit->worker,
                          .post = BSON_INITIALIZER,
                          .held = BSON_INITIALIZER};
    truce_status status = run(&owner, error), waited = TRUCE_OK;

    *again = status && owner.again;
    if (status == TRUCE_CONFLICT && !bson_empty(&owner.held)) /* nothing is held here now */
        waited = truce__unique_wait(commit, owner.held_in, &owner.held, error);
    if (waited)
        status = waited;
    bson_destroy(&owner.held);
    bson_destroy(&owner.post);
    return status;
}

truce_status truce__commit_journal(truce_commit *commit, bson_error_t *error)
{
    truce_status status = truce__memo_commits(commit->store, error);

    if (status)
        return status;
    hold_missing(commit);
    for (;;) {
        bool again;

        start_attempt(commit);
        status = attempt(commit, &again, error);
        if (!again || truce__worker_wait(&commit->worker, "the store", NULL))
            return status;
        truce__id_new(&commit->id);
    }
}
