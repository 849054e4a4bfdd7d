/*
 * The journal of write intents: a commit over several documents on a store that changes one
 * document at a time. This file is the owner's side: the process that runs the commit.
 * journal_release.c has the steps that any process may do, and complete_commit.c handles intents of
 * other commits. The steps are model-checked, so keep each guard and their order.
 *
 *   commit       -(insert)-> pending -(decide)-> committed -(all released)-> done -> purged
 *                               \--(abort, by any process)--> aborted -> purged
 *
 *   document      free -(prepare)-> held {_intent: {c: C}} -(release or strip)-> free
 *                 none -(prepare)-> stub {_id, _intent: {c: C, new: true}} -> filled, or removed
 *
 * The owner:
 *
 *   1. inserts the commit document before it touches any document;
 *   2. prepares every document that it writes or holds, in the order of (collection, _id). One
 *      find-and-modify compares guard and revision and sets the intent. An insert puts a stub
 *      there. Documents that were read may be prepared together by one bulk (CK1). The owner
 *      applies its changes in memory to the returned documents, so nothing can fail later;
 *   3. reads everything that it only requires, after all prepares, a missing document first;
 *   4. decides: one write changes pending to committed and adds the changes as values. This write
 *      is the commit point;
 *   5. releases each document: sets the values and `_rev: C`, and removes the intent. A remove
 *      happens here, not before. All releases may be one bulk;
 *   6. marks the commit done when every release got a reply, or leaves that to the next holder of
 *      its per-key lock (CK6);
 *   7. if anything fails before step 4, aborts the commit first, and then strips the documents that
 *      it held.
 *
 * Invariants. Two more groups are below: CK1 to CK6 for bulks, and CT1 to CT8 for documents that
 * are taken before the function runs. Other files define CH (complete_commit.c), CI
 * (schema_validators.c), and CU (unique_keys.c).
 *
 *  CJ1  An insert or a prepare that got no reply is not sent again under the same commit id,
 *       because the first may take effect at any later time. The owner reads the document. If the
 *       write took effect, the owner continues; otherwise it abandons this id and starts again with
 *       a new one. Decide, release, abort, and done may be repeated freely.
 *  CJ2  The commit document is inserted before the first intent. If the commit document of an
 *       intent is missing, the commit was aborted and purged, so the intent is stripped.
 *  CJ3  Only a pending commit is decided or aborted: both compare the state in the write itself.
 *  CJ4  An intent is removed only by a strip (commit aborted or missing), by a release (committed
 *       or done), or by the write that ends a commit whose documents were taken first (CT6, CT7).
 *       Each of these writes compares the commit's id in the intent.
 *  CJ5  `done` means that no document has the intent any more. Only then may a commit be purged.
 *  CJ6  Required documents are read after the prepares and compared by revision. So at the
 *       decision, every document that the commit depends on was as it was read, in one consistent
 *       state. A missing document has no revision. So at most one missing document is only read,
 *       and it is read first; the others are held by stubs.
 *  CJ7  Nothing can fail after the decision, except through plain writers (unique_keys.c) and new
 *       validators (CI3). Changes were applied in memory; sizes, index keys, and the validator were
 *       checked (schema_validators.c). Stubs or `_keys` reserve uniquely indexed values.
 *  CJ8  If a decide got no reply, a missing commit proves nothing: the outcome is TRUCE_UNKNOWN.
 *  CJ9  If a power cut removes only the last writes (TRUCE_CAN_KEEP_ORDER), only the decision and
 *       `done` wait for the disk. Everything before them is on disk then too. The state after the
 *       cut is a state that existed earlier. This does not hold if documents have separate logs, as
 *       on the shards of a cluster: a purge could survive while a release is lost.
 *
 * A crash leaves one of these states. After 1, another process aborts the pending commit once its
 * lease has expired. After 2 and 3, it aborts the commit, too, and then strips its intents. After
 * 4, the next process that encounters an intent releases it. After 5, the sweeper marks the commit
 * done.
 *
 * Not done: another process never continues a pending commit, because its function would have to
 * run there. Plain writers that ignore intents are not stopped: `was` in the commit reveals them at
 * the release.
 */
#include "commit/journal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/object_id.h"
#include "base/process_name.h"
#include "bson/array.h"
#include "commit/commit_counters.h"
#include "commit/journal_owner.h"
#include "commit/journal_release.h"
#include "commit/metadata_cache.h"
#include "commit/schema_validators.h"
#include "commit/unique_keys.h"
#include "store/store.h"

/* The number of times that the owner sends the releases one by one if they get no reply. After
 * that, the sweep or the next process that encounters an intent sends the rest. */
#define RELEASE_TRIES 3

/* ---- step 1 --------------------------------------------------------------------------------- */

/* Begins or renews the lease, and returns its new end, which is later than the last one. */
static int64_t owner_lease(struct owner *owner)
{
    int64_t until_ms = truce__clock_wall_ms() + owner->commit->options.lease_ms;

    /* Invariant CH3 of complete_commit.c: each renewal must change the end of the lease. */
    if (until_ms <= owner->until_ms)
        until_ms = owner->until_ms + 1;
    owner->until_ms = until_ms;
    return until_ms;
}

static void append_lease(struct owner *owner, bson_t *document)
{
    char *name = truce__process_name();
    bson_t lease;

    bson_append_document_begin(document, "lease", 5, &lease);
    BSON_APPEND_UTF8(&lease, "owner", name);
    BSON_APPEND_INT32(&lease, "ms", (int32_t)owner->commit->options.lease_ms);
    BSON_APPEND_INT64(&lease, "until", owner_lease(owner));
    bson_append_document_end(document, &lease);
    bson_free(name);
}

static void owner_target(struct array *list, const struct entry *entry, bson_t *element)
{
    truce__array_open_document(list, element);
    BSON_APPEND_UTF8(element, "ns", entry->collection);
    BSON_APPEND_VALUE(element, "id", &entry->id);
}

/* Appends the list of documents that the commit takes, or of those that it only requires. */
static void journal_append_targets(const truce_commit *commit, const char *name, bool taken,
                                   bson_t *document)
{
    struct array list;
    bson_t element;

    truce__array_begin(&list, document, name);
    for (uint32_t i = 0; i < commit->count; i++) {
        if (truce__commit_takes(commit->entries[i]) != taken)
            continue;
        owner_target(&list, commit->entries[i], &element);
        if (taken && commit->entries[i]->keyed)
            BSON_APPEND_BOOL(&element, "keyed", true);
        truce__array_close_document(&list, &element);
    }
    truce__array_end(&list, document);
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

/* Reads the commit document after its insert got no reply (CJ1). If it is missing, the commit
 * needs a new id. */
static truce_status journal_check_insert(struct owner *owner, bson_error_t *error)
{
    bson_t document;
    truce_status status = truce__owner_find(owner, &document, error);

    bson_destroy(&document);
    if (status == TRUCE_NOT_FOUND) {
        owner->again = true;
        owner->inserted = false;
        return truce__fail(TRUCE_CONFLICT, error,
                           "the commit was not recorded: the store did not reply");
    }
    return status;
}

/* Inserts the commit document (step 1). Clears `inserted` if the store refused or lacks it. */
static truce_status insert_commit(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    truce_write_options options = {.relaxed = truce__worker_relaxed_step(owner->worker)};
    truce_status status;
    bson_t document;

    truce__commit_begin_document(commit, "pending", &document);
    append_lease(owner, &document);
    journal_append_targets(commit, "writes", true, &document);
    journal_append_targets(commit, "requires", false, &document);
    owner->inserted = true;
    owner->renewed_ns = truce__clock_monotonic_ns();
    status = truce_insert(commit->store, COMMITS, &document, &options, error);
    bson_destroy(&document);
    if (truce__unanswered(status))
        return journal_check_insert(owner, error);
    if (status)
        owner->inserted = false;
    return status;
}

/* Writes the commit document (step 1), and checks the key and its horizon. Sets *already if a
 * commit with the key took effect. */
static truce_status owner_open(struct owner *owner, bool *already, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    truce_status status = insert_commit(owner, error);

    *already = false;
    if (status == TRUCE_DUPLICATE && commit->options.key) {
        status = truce__commit_key_holder(commit, error);
        *already = !status;
        /* The commit with the key was aborted, which released the key. */
        if (status == TRUCE_NOT_FOUND) {
            owner->again = true;
            status =
                truce__fail(TRUCE_CONFLICT, error, "the key \"%s\" was in use briefly: try again",
                            commit->options.key);
        }
        return status;
    }
    if (status || !commit->options.key)
        return status;
    status = truce__commit_key_expired(commit, error);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

void truce__owner_held(const truce_commit *commit, const struct entry *entry, bson_t *held)
{
    bson_t intent;

    bson_copy_to(&entry->base, held);
    bson_append_document_begin(held, "_intent", 7, &intent);
    BSON_APPEND_OID(&intent, "c", &commit->id);
    bson_append_document_end(held, &intent);
}

/* ---- step 2: prepare one by one -------------------------------------------------------------- */

#define REVISION_BYTES 18 /* The size of the field `_rev` in bytes. */

truce_status truce__owner_can_be(const struct owner *owner, const struct entry *entry,
                                 bson_error_t *error)
{
    uint32_t size = entry->after.len + (bson_has_field(&entry->after, "_rev") ? 0 : REVISION_BYTES);
    truce_status status = TRUCE_OK;
    char text[300];

    if (truce__entry_net(entry) == NET_INSERT || truce__entry_net(entry) == NET_UPDATE) {
        if (size > TRUCE_DOCUMENT_BYTES_MAX)
            return truce__fail(
                TRUCE_LIMIT, error, "%s would have %u bytes with its revision; the maximum is %d",
                truce__entry_show(entry, text, sizeof text), size, TRUCE_DOCUMENT_BYTES_MAX);
        status = truce__document_check(&entry->after, "document", error);
    }
    if (!status)
        status = truce__unique_check(owner->commit->store, entry, error);
    return status ? status
                  : truce__validator_lets(owner->commit->store, entry, &owner->commit->id, error);
}

/* Uses the document that the prepare returned: it is the base of a blind entry, and must equal the
 * base of a known one. */
static truce_status prepare_taken(struct owner *owner, struct entry *entry, const bson_t *document,
                                  bson_error_t *error)
{
    truce_status status;

    entry->prepared = true;
    status = entry->known ? truce__entry_same(entry, document, error)
                          : truce__entry_take(entry, document, error);
    return status ? status : truce__owner_can_be(owner, entry, error);
}

truce_status truce__owner_peek(struct owner *owner, const struct entry *entry, bson_t *document,
                               bson_error_t *error)
{
    truce_status status;
    bson_t filter;

    truce__filter_id(&entry->id, &filter);
    for (;;) {
        /* No write compares a document that is only read (CJ6), so the latest state is read. If
         * the intent is missing after a prepare without a reply, the id is abandoned (CJ1). */
        status = truce_find_one(owner->commit->store, entry->collection, &filter,
                                &truce__find_latest, document, error);
        if (!truce__unanswered(status) || truce__worker_wait(owner->worker, "the store", NULL))
            break;
        bson_destroy(document);
    }
    bson_destroy(&filter);
    return status;
}

static bool prepare_is_ours(const struct owner *owner, const bson_t *document)
{
    bson_oid_t holder;

    return truce__intent_commit(document, &holder) && bson_oid_equal(&holder, &owner->commit->id);
}

/* Reads the document after its prepare got no reply (CJ1). */
static truce_status journal_check_prepare(struct owner *owner, struct entry *entry,
                                          bson_error_t *error)
{
    bson_t document, plain = BSON_INITIALIZER;
    truce_status status = truce__owner_peek(owner, entry, &document, error);

    if (!status && prepare_is_ours(owner, &document)) {
        if (entry->stub) {
            entry->prepared = true;
        } else {
            bson_destroy(&plain);
            truce__shadow_restore(&document, &plain);
            status = prepare_taken(owner, entry, &plain, error);
        }
    } else if (!status || status == TRUCE_NOT_FOUND) {
        owner->again = true;
        status = truce__entry_conflict(entry, "was not locked: the store did not reply", error);
    }
    bson_destroy(&plain);
    bson_destroy(&document);
    return status;
}

truce_status truce__owner_still(struct owner *owner, const struct entry *entry, bson_error_t *error)
{
    bson_t document, now = BSON_INITIALIZER;
    truce_status status = truce__owner_peek(owner, entry, &document, error);

    if (!status && prepare_is_ours(owner, &document)) {
        bson_destroy(&now);
        truce__shadow_restore(&document, &now);
        if (!bson_equal(&now, &entry->base))
            status = truce__entry_conflict(entry, "was changed by a plain write", error);
    } else if (!status || status == TRUCE_NOT_FOUND) {
        status = truce__entry_conflict(entry, "is no longer locked", error);
    }
    bson_destroy(&now);
    bson_destroy(&document);
    return status;
}

/* Finds out why the prepare matched no document. Returns OK if the prepare should be sent again. */
static truce_status why_not(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    bson_t document;
    truce_status status = truce__owner_peek(owner, entry, &document, error);
    const bson_t *found = status ? NULL : &document;

    if (!status && !truce__intent_absent(&document)) {
        truce_assert(!prepare_is_ours(owner, &document));
        status = truce__intent_complete_other(owner->worker, entry->collection, &document, error);
    } else if (!status || status == TRUCE_NOT_FOUND) {
        status = entry->known ? truce__entry_same(entry, found, error)
                              : truce__entry_blame(entry, found, error);
        if (!status)
            status = truce__worker_wait(owner->worker, "a document", error);
    }
    bson_destroy(&document);
    return status;
}

/* Handles a prepare that a unique index refused. Returns OK if it should be sent again, and
 * CONFLICT if another commit holds the value. The commit waits for it once it holds nothing itself
 * (unique_keys.c, CU5). */
static truce_status key_refused(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    truce_status status = truce__unique_holder(owner->commit, entry, &owner->held, error);

    owner->held_in = entry->collection;
    return status ? status : truce__unique_none(owner->commit, entry, error);
}

/* Makes {$set: {_intent, `_keys` with the reserved keys}}. */
static bson_t *journal_prepare_update(const struct owner *owner, struct entry *entry)
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

/* Sets the intent in an existing document. Repeats this until it is set, or the attempt ends. */
static truce_status prepare_document(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    truce_modify_options options = {.relaxed = truce__worker_relaxed_step(owner->worker)};
    bson_t *update = journal_prepare_update(owner, entry);
    truce_status status;
    bson_t filter, document;

    truce__filter_entry(entry, !entry->known, &filter);
    for (;;) {
        entry->sent = true;
        status = truce_find_and_modify(owner->commit->store, entry->collection, &filter, update,
                                       &options, &document, NULL, error);
        if (!status)
            status = prepare_taken(owner, entry, &document, error);
        else if (truce__unanswered(status))
            status = journal_check_prepare(owner, entry, error);
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

/* Handles a stub that was refused because its _id or a uniquely indexed value exists. Returns OK if
 * the insert should be sent again. */
static truce_status stub_refused(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    bson_error_t ignored;
    bson_t document;
    truce_status status = truce__owner_peek(owner, entry, &document, &ignored);

    if (status == TRUCE_NOT_FOUND) {
        status = key_refused(owner, entry, error);
    } else if (!status && !truce__intent_absent(&document)) {
        status = truce__intent_complete_other(owner->worker, entry->collection, &document, error);
    } else if (!status) {
        status = entry->read || entry->hold ? truce__entry_conflict(entry, "was inserted", error)
                                            : truce__entry_exists(entry, error);
    }
    bson_destroy(&document);
    return status;
}

static truce_status insert_stub(struct owner *owner, struct entry *entry, const bson_t *stub,
                                bson_error_t *error)
{
    truce_bulk_options options = {.relaxed = truce__worker_relaxed_step(owner->worker)};
    truce_write write = {
        .kind = TRUCE_WRITE_INSERT, .collection = entry->collection, .document = stub};
    truce_write_outcome outcome;

    entry->sent = true;
    return truce__validator_pass(owner->commit->store, &write, &options, &outcome, error);
}

/* Inserts a stub. Repeats this until it is stored, or the attempt ends. */
static truce_status prepare_stub(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    truce_status status = truce__owner_can_be(owner, entry, error);
    bson_t stub = BSON_INITIALIZER;

    if (!status) {
        bson_destroy(&stub);
        status = truce__unique_stub(owner->commit->store, entry, &owner->commit->id, &stub, error);
    }
    entry->stub = true;
    while (!status && !entry->prepared) {
        status = insert_stub(owner, entry, &stub, error);
        if (!status)
            entry->prepared = true;
        else if (truce__unanswered(status))
            status = journal_check_prepare(owner, entry, error);
        else if (status == TRUCE_DUPLICATE)
            status = stub_refused(owner, entry, error);
    }
    bson_destroy(&stub);
    return status;
}

/* Looks for the holder of a key that was just reserved (unique_keys.c, CU4). */
static truce_status journal_find_key_holder(struct owner *owner, const struct entry *entry,
                                            bson_error_t *error)
{
    owner->held_in = entry->collection;
    return truce__unique_reserved_holder(owner->commit, entry, &owner->held, error);
}

/* Takes the entry's document, or inserts a stub (step 2). */
static truce_status owner_prepare(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    truce_status status =
        truce__metadata_ensure_intents(owner->commit->store, entry->collection, error);

    if (status)
        return status;
    owner->worker->waits = 0;
    if (entry->known && !entry->token.found)
        return prepare_stub(owner, entry, error);
    status = prepare_document(owner, entry, error);
    if (status == TRUCE_CONFLICT)
        truce__commit_lost(owner->commit, entry);
    return !status && entry->reserved ? journal_find_key_holder(owner, entry, error) : status;
}

/* ---- steps 2, 5, and 7 as one bulk each ------------------------------------------------------ */

/*
 * The prepares of all documents may be one bulk, and so may their releases and their strips. A
 * server then gets one message for each collection (and one more if stubs are inserted); a store in
 * one file does everything in one step. A commit over n documents of one collection takes five
 * messages instead of 2n + 3.
 *
 * The model is models/commit_joined.cpp. A message is executed statement by statement, concurrently
 * with other clients. It may be lost after any statement, and may take effect when no client waits
 * for it any more.
 *
 *  CK1  Only documents that were read are prepared together, and each prepare compares the whole
 *       document, because a bulk returns no documents to which the changes could be applied. If one
 *       document reserves unique values or was taken before, all are prepared one by one.
 *  CK2  All or none: the reply says how many documents were taken, not which. If some were not
 *       taken, or there was no reply, the owner abandons the id: it aborts, then strips (CJ1). So
 *       it never waits while it holds documents out of order, and two commits on the same documents
 *       do not wait for each other.
 *  CK3  The next try, with a new id, prepares one by one in the usual order. It waits for documents
 *       that are held, and reports which document differs from what was read.
 *  CK4  If a bulk of releases was not confirmed for every document, the owner releases one by one.
 *       Then it marks the commit done (CJ5).
 *  CK5  A stub bypasses a validator that is known (schema_validators.c, CI2). Otherwise the
 *       validator would refuse it, and the whole bulk with it.
 *  CK6  If another commit of this open store waits for the per-key lock of the commit, the next
 *       holder marks it done, in the message of its own decision. A holder that does not decide
 *       sends the mark before it releases the lock. The mark is left only after every release was
 *       confirmed (CJ5), and it compares the state. So it may be late, repeated, or lost.
 */

/* The writes of one bulk. */
struct steps {
    truce_write *writes;
    /* The documents that `writes` borrow, one element for each write. Owned. */
    struct step_write *made;
    uint32_t count;
};

static void steps_init(struct steps *steps, uint32_t room)
{
    *steps = (struct steps){.writes = bson_malloc0(room * sizeof *steps->writes),
                            .made = bson_malloc0(room * sizeof *steps->made)};
}

static void steps_release(struct steps *steps)
{
    for (uint32_t i = 0; i < steps->count; i++)
        truce__step_write_free(&steps->made[i]);
    bson_free(steps->made);
    bson_free(steps->writes);
}

/* Sends the steps. Sets *all to whether each of them changed its document. */
static truce_status joined_send(const struct owner *owner, const struct steps *steps, bool *all,
                                bson_error_t *error)
{
    truce_bulk_options options = {.relaxed = truce__worker_relaxed_step(owner->worker),
                                  .joined = true};
    truce_write_outcome *outcomes = bson_malloc0(steps->count * sizeof *outcomes);
    truce_status status;
    int64_t changed = 0;

    status =
        truce_bulk(owner->commit->store, steps->writes, steps->count, &options, outcomes, error);
    for (uint32_t i = 0; i < steps->count; i++) {
        changed += outcomes[i].result.matched + outcomes[i].result.inserted;
        truce_write_result_release(&outcomes[i].result);
    }
    *all = !status && changed == steps->count;
    bson_free(outcomes);
    return status;
}

/* Sorts the writes by kind. The entries are already in the order of their collections. */
static void joined_sort(struct steps *steps)
{
    static const truce_write_kind kinds[] = {TRUCE_WRITE_UPDATE, TRUCE_WRITE_REMOVE,
                                             TRUCE_WRITE_INSERT};
    uint32_t count = 0;

    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        for (uint32_t i = 0; i < steps->count; i++) {
            if (steps->made[i].write.kind == kinds[kind])
                steps->writes[count++] = steps->made[i].write;
        }
    }
    truce_assert(count == steps->count);
}

/* Returns whether the document can be prepared together with others (CK1). */
static bool can_join(const struct owner *owner, const struct entry *entry)
{
    return entry->known && !entry->prepared &&
           truce__entry_comparable(owner->commit->store, entry) &&
           truce__shadow_reserves(entry) < 0;
}

/* Returns whether step 2 can be one bulk. */
static bool owner_joins(const struct owner *owner)
{
    const truce_commit *commit = owner->commit;
    uint32_t taken = 0;

    if (commit->apart)
        return false;
    for (uint32_t i = 0; i < commit->count; i++) {
        if (!truce__commit_takes(commit->entries[i]))
            continue;
        if (!can_join(owner, commit->entries[i]))
            return false;
        taken++;
    }
    return taken > 1;
}

/* Makes a stub that bypasses the validator (CK5). */
static truce_status make_stub(const struct owner *owner, const struct entry *entry,
                              struct step_write *made, bson_error_t *error)
{
    truce_store *store = owner->commit->store;
    bson_t validator;
    truce_status status = truce__metadata_validator(store, entry->collection, &validator, error);

    made->write.options.unvalidated = !bson_empty(&validator);
    bson_destroy(&validator);
    if (status)
        return status;
    bson_destroy(&made->document);
    return truce__unique_stub(store, entry, &owner->commit->id, &made->document, error);
}

/* Adds the prepare of one document to the bulk. Checks first that the release cannot fail (CJ7). */
static truce_status add_prepare(struct owner *owner, struct entry *entry, struct steps *steps,
                                bson_error_t *error)
{
    truce_store *store = owner->commit->store;
    struct step_write *made = &steps->made[steps->count];
    truce_status status = truce__metadata_ensure_intents(store, entry->collection, error);

    if (!status)
        status = truce__owner_can_be(owner, entry, error);
    if (status)
        return status;
    steps->count++;
    entry->stub = !entry->token.found;
    truce__step_write_init(made, entry->stub ? TRUCE_WRITE_INSERT : TRUCE_WRITE_UPDATE,
                           entry->collection);
    if (entry->stub)
        return make_stub(owner, entry, made, error);
    bson_destroy(&made->filter);
    made->write.exact = truce__filter_base(store, entry, &made->filter);
    BCON_APPEND(&made->document, "$set", "{", "_intent", "{", "c", BCON_OID(&owner->commit->id),
                "}", "}");
    return TRUCE_OK;
}

static truce_status add_prepares(struct owner *owner, struct steps *steps, bson_error_t *error)
{
    const truce_commit *commit = owner->commit;
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < commit->count; i++) {
        if (truce__commit_takes(commit->entries[i]))
            status = add_prepare(owner, commit->entries[i], steps, error);
    }
    return status;
}

static void joined_mark(const struct owner *owner, bool prepared)
{
    const truce_commit *commit = owner->commit;

    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (!truce__commit_takes(entry))
            continue;
        entry->sent = true;
        entry->prepared = prepared;
    }
}

/* Compares the document with what was read. Returns CONFLICT if it differs. Otherwise returns OK,
 * and the next attempt finds the reason (CK3). */
static truce_status joined_compare(struct owner *owner, const struct entry *entry,
                                   bson_error_t *error)
{
    bson_t document;
    truce_status status = truce__owner_peek(owner, entry, &document, error);

    if (status == TRUCE_NOT_FOUND || (!status && truce__intent_absent(&document)))
        status = truce__entry_same(entry, status ? NULL : &document, error);
    bson_destroy(&document);
    if (status == TRUCE_CONFLICT)
        truce__commit_lost(owner->commit, entry);
    return status;
}

/* Finds out why not all documents were taken (CK2). If one changed, the function must run again. */
static truce_status why_not_all(struct owner *owner, truce_status status, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    bool answered = !truce__unanswered(status);

    status = TRUCE_OK;
    for (uint32_t i = 0; answered && !status && i < commit->count; i++) {
        const struct entry *entry = commit->entries[i];

        if (truce__commit_takes(entry) && !entry->stub)
            status = joined_compare(owner, entry, error);
    }
    if (status)
        return status;
    commit->apart = true;
    owner->again = true;
    return truce__fail(TRUCE_CONFLICT, error,
                       "the documents of a commit could not be locked together");
}

/* Prepares all documents by one bulk. If not all were prepared, returns CONFLICT. Sets `again`
 * unless a document differs from what was read: the next attempt, with a new id, prepares them one
 * by one. Otherwise the function must run again. */
static truce_status owner_prepare_joined(struct owner *owner, bson_error_t *error)
{
    struct steps steps;
    truce_status status;
    bool all = false;

    steps_init(&steps, owner->commit->count);
    status = add_prepares(owner, &steps, error);
    if (!status) {
        joined_sort(&steps);
        joined_mark(owner, false);
        status = joined_send(owner, &steps, &all, error);
        joined_mark(owner, all);
        if (!all)
            status = why_not_all(owner, status, error);
    }
    steps_release(&steps);
    return status;
}

static void add_release(const struct owner *owner, const struct entry *entry,
                        const bson_iter_t *element, struct steps *steps)
{
    const uint8_t *bytes;
    uint32_t length;
    bson_t post, held;

    bson_iter_document(element, &length, &bytes);
    truce_assert(bson_init_static(&post, bytes, length));
    if (!entry->stub)
        truce__owner_held(owner->commit, entry, &held);
    truce__journal_release_write(owner->commit->store, &owner->commit->id, &post,
                                 entry->stub ? NULL : &held, &steps->made[steps->count++]);
}

/* Returns whether the document can be released with others. Reserved keys need a release of their
 * own (unique_keys.c), and a document that cannot be compared must be read first. */
static bool can_release(const struct owner *owner, const struct entry *entry)
{
    return !entry->reserved && truce__entry_comparable(owner->commit->store, entry);
}

/* Releases all documents by one bulk. Returns false if that is impossible or was not confirmed. */
static bool owner_release_joined(struct owner *owner)
{
    const truce_commit *commit = owner->commit;
    bson_iter_t element;
    struct steps steps;
    bool all = true;

    steps_init(&steps, commit->count);
    truce_assert(bson_iter_init(&element, &owner->post));
    for (uint32_t i = 0; all && i < commit->count; i++) {
        const struct entry *entry = commit->entries[i];

        if (!truce__commit_takes(entry))
            continue;
        truce_assert(bson_iter_next(&element));
        all = can_release(owner, entry);
        if (all)
            add_release(owner, entry, &element, &steps);
    }
    all = all && steps.count > 1;
    if (all) {
        joined_sort(&steps);
        (void)joined_send(owner, &steps, &all, NULL);
    }
    owner->worker->did += all ? steps.count : 0;
    steps_release(&steps);
    return all;
}

static void add_strip(const truce_commit *commit, const struct entry *entry, struct steps *steps)
{
    struct step_write *made = &steps->made[steps->count++];

    if (entry->stub)
        truce__journal_strip_stub_write(entry->collection, &entry->id, &commit->id, made);
    else
        truce__journal_strip_write(entry->collection, &entry->id, &commit->id, -1, made);
}

/* Strips all documents by one bulk (step 7). Returns false if they cannot be stripped together, or
 * if the bulk failed. */
static bool owner_strip_joined(struct owner *owner)
{
    const truce_commit *commit = owner->commit;
    struct steps steps;
    bool all, can = true;

    steps_init(&steps, commit->count);
    for (uint32_t i = 0; can && i < commit->count; i++) {
        const struct entry *entry = commit->entries[i];

        can = !entry->reserved;
        if (can && entry->sent)
            add_strip(commit, entry, &steps);
    }
    can = can && steps.count > 1;
    if (can) {
        joined_sort(&steps);
        can = !joined_send(owner, &steps, &all, NULL);
    }
    steps_release(&steps);
    return can;
}

/* ---- steps 3 and 4: require and decide ------------------------------------------------------- */

static truce_status decide_check_entry(struct owner *owner, const struct entry *entry,
                                       bson_error_t *error)
{
    bson_t document;
    truce_status status = truce__owner_peek(owner, entry, &document, error);

    if (!status && !truce__intent_absent(&document))
        status = truce__entry_conflict(entry, "is locked by another commit", error);
    else if (!status || status == TRUCE_NOT_FOUND)
        status = truce__entry_same(entry, status ? NULL : &document, error);
    bson_destroy(&document);
    return status;
}

/* Reads all required documents, missing ones first (CJ6). */
static truce_status owner_requires(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    truce_status status = TRUCE_OK;

    for (int found = 0; found <= 1; found++) {
        for (uint32_t i = 0; !status && i < commit->count; i++) {
            const struct entry *entry = commit->entries[i];

            if (!truce__commit_takes(entry) && entry->token.found == (found == 1))
                status = decide_check_entry(owner, entry, error);
        }
    }
    return status;
}

/* Holds all missing required documents but one (CJ6). */
static void owner_hold_missing(truce_commit *commit)
{
    bool was_checked = false;

    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (truce__commit_takes(entry) || entry->token.found)
            continue;
        if (was_checked)
            entry->hold = true;
        was_checked = true;
    }
}

static void decide_append_document(bson_t *element, const struct entry *entry)
{
    bson_t document = BSON_INITIALIZER;

    bson_copy_to_excluding_noinit(&entry->after, &document, "_rev", NULL);
    BSON_APPEND_DOCUMENT(element, "document", &document);
    bson_destroy(&document);
}

static void append_update(bson_t *element, const struct entry *entry)
{
    struct diff diff;
    bool paths = truce__diff(truce__value_document(&entry->base),
                             truce__value_document(&entry->after), &diff);

    BSON_APPEND_UTF8(element, "op", paths ? "set" : "whole");
    if (paths)
        truce__changes_append(element, entry, &diff);
    else
        decide_append_document(element, entry);
    truce__diff_release(&diff);
}

/* Appends the change of one document as values: an element of `post` (journal.h). */
static void append_post(struct array *post, const struct entry *entry)
{
    enum net net = truce__entry_net(entry);
    bson_t element;

    owner_target(post, entry, &element);
    if (net == NET_INSERT) {
        BSON_APPEND_UTF8(&element, "op", "insert");
        decide_append_document(&element, entry);
    } else if (net == NET_REMOVE) {
        BSON_APPEND_UTF8(&element, "op", "remove");
    } else if (net == NET_UPDATE) {
        append_update(&element, entry);
    } else {
        BSON_APPEND_UTF8(&element, "op", entry->stub ? "free" : "hold");
    }
    if (entry->token.has_rev)
        BSON_APPEND_OID(&element, "pre", &entry->token.rev);
    if (!entry->stub)
        BSON_APPEND_INT64(&element, "was", truce__journal_hash(&entry->base, entry->reserved));
    truce__array_close_document(post, &element);
}

/* Resolves the changes to values. */
static truce_status owner_post(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    struct array post = {.to = &owner->post};

    bson_reinit(&owner->post);
    for (uint32_t i = 0; i < commit->count; i++) {
        if (truce__commit_takes(commit->entries[i]))
            append_post(&post, commit->entries[i]);
    }
    if (owner->post.len > TRUCE_DOCUMENT_BYTES_MAX / 2)
        return truce__fail(TRUCE_LIMIT, error, "the changes of a journal commit exceed %d bytes",
                           TRUCE_DOCUMENT_BYTES_MAX / 2);
    return TRUCE_OK;
}

static void decide_write(const struct owner *owner, struct step_write *made)
{
    bson_t set;

    truce__step_write_init(made, TRUCE_WRITE_UPDATE, COMMITS);
    BSON_APPEND_OID(&made->filter, "_id", &owner->commit->id);
    BSON_APPEND_UTF8(&made->filter, "state", "pending");
    bson_append_document_begin(&made->document, "$set", 4, &set);
    BSON_APPEND_UTF8(&set, "state", "committed");
    BSON_APPEND_ARRAY(&set, "post", &owner->post);
    truce__commit_append_left(owner->commit, &set);
    bson_append_document_end(&made->document, &set);
}

/* Sends the decision, with the mark of the commit that held the lock before (CK6). *decided is
 * false if one of the two matched nothing: the server does not report which. */
static truce_status send_decide(struct owner *owner, bool *decided, bson_error_t *error)
{
    struct key_lock *lock = &owner->commit->lock;
    truce_bulk_options options = {.relaxed = owner->commit->options.relaxed, .joined = true};
    uint32_t count = lock->owes ? 2 : 1;
    struct step_write made[2];
    truce_write writes[2];
    truce_write_outcome outcomes[2];
    truce_status status;

    decide_write(owner, &made[0]);
    if (count == 2)
        truce__journal_done_write(&lock->left, &made[1]);
    for (uint32_t i = 0; i < count; i++)
        writes[i] = made[i].write;
    status = truce_bulk(owner->commit->store, writes, count, &options, outcomes, error);
    *decided = !status && outcomes[0].result.matched > 0;
    lock->owes = lock->owes && status;
    for (uint32_t i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        truce__step_write_free(&made[i]);
    }
    return status;
}

/* Fails with UNKNOWN, or with the status of a commit that another process has aborted. */
static truce_status journal_fail_undecided(truce_status status, const struct owner *owner,
                                           bson_error_t *error)
{
    char hex[25];

    bson_oid_to_string(&owner->commit->id, hex);
    if (status == TRUCE_UNKNOWN)
        return truce__fail(
            status, error,
            "the outcome of commit %s is unknown, because the store did not reply: query it "
            "(truce commit show) before you repeat it",
            hex);
    return truce__fail(
        status, error,
        "commit %s was rolled back by another process, because its lease had expired: nothing was "
        "written, and you can repeat it",
        hex);
}

/* Writes the decision. Returns OK if the commit is decided, CONFLICT if another process aborted it,
 * and UNKNOWN as CJ8 describes or if the commit is pending at the deadline. Any other failure of
 * the first send is returned as it is. */
static truce_status owner_decide(struct owner *owner, bson_error_t *error)
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
            return unanswered ? journal_fail_undecided(TRUCE_UNKNOWN, owner, error) : status;
        unanswered = unanswered || status;
        status = truce__owner_find(owner, &document, error);
        state = status ? NULL : truce__commit_state(&document);
        decided = state && (!strcmp(state, "committed") || !strcmp(state, "done"));
        bool pending = state && !strcmp(state, "pending");
        bool aborted = state && !strcmp(state, "aborted");
        bson_destroy(&document);
        if (decided)
            return TRUCE_OK;
        if (aborted || (status == TRUCE_NOT_FOUND && !unanswered))
            return journal_fail_undecided(TRUCE_CONFLICT, owner, error);
        if (!pending || truce__worker_wait(owner->worker, "the store", NULL))
            return journal_fail_undecided(TRUCE_UNKNOWN, owner, error);
    }
}

/* ---- steps 5 to 7, and the run of an attempt ------------------------------------------------- */

/* Releases the document of an entry. `element` is the entry's element of `post`. */
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

/* Marks the commit done (step 6), or leaves the mark to the next holder of the lock (CK6). */
static truce_status journal_mark_done(struct owner *owner)
{
    truce_commit *commit = owner->commit;
    bool left = truce__key_lock_leave(&commit->lock, &commit->id);

    /* Invariant CK6: no other commit can write the mark, so this one does. */
    if (!left)
        return truce__journal_done(owner->worker, &commit->id, NULL);
    return TRUCE_OK;
}

/* Releases the documents one by one, even after a failure. Marks the commit done if none failed. */
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
    return first ? first : journal_mark_done(owner);
}

/* Releases all documents. It never fails: unconfirmed releases are left to the next process that
 * encounters an intent (CJ4, CJ5). */
static void release_all(struct owner *owner)
{
    if (owner_release_joined(owner) && !journal_mark_done(owner))
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
    if (truce__journal_abort(owner->worker, &commit->id, NULL, why, &changed, NULL))
        return;
    /* The commit is no longer pending. It is stripped only if another process has aborted it. */
    if (!changed) {
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
    if (owner_strip_joined(owner))
        return;
    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (entry->sent)
            (void)truce__journal_strip(owner->worker, entry->collection, &entry->id, &commit->id,
                                       entry->keys, NULL);
    }
}

/* Renews the lease between two steps, once a third of it has passed, so that other processes see
 * that the owner is alive. The lease is not renewed during a wait for other commits, so two owners
 * that wait for each other do not wait forever. */
static truce_status journal_renew_lease(struct owner *owner, bson_error_t *error)
{
    uint32_t lease_ms = owner->commit->options.lease_ms;
    int64_t now_ns = truce__clock_monotonic_ns();
    bool pending;
    truce_status status;

    if (now_ns - owner->renewed_ns < (int64_t)lease_ms * 1000000 / 3)
        return TRUCE_OK;
    status = truce__journal_renew(owner->worker, &owner->commit->id, owner_lease(owner), &pending,
                                  error);
    if (!status && !pending)
        return journal_fail_undecided(TRUCE_CONFLICT, owner, error);
    if (truce__unanswered(status))
        /* The reply to the renewal was lost. `renewed_ns` stays, so the next step renews again. */
        return TRUCE_OK;
    owner->renewed_ns = now_ns;
    return status;
}

/* Takes the document of one entry (step 2), unless it was taken before the function ran. */
static truce_status commit_journal_take(struct owner *owner, struct entry *entry,
                                        bson_error_t *error)
{
    truce_status status;

    if (!entry->prepared)
        return owner_prepare(owner, entry, error);
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
        status = journal_renew_lease(owner, error);
        if (!status)
            status = commit_journal_take(owner, commit->entries[i], error);
    }
    return status;
}

/* Runs steps 2 to 4, up to the decision. */
static truce_status journal_take_all(struct owner *owner, bson_error_t *error)
{
    truce_status status = journal_renew_lease(owner, error);

    if (!status)
        status = owner_joins(owner) ? owner_prepare_joined(owner, error)
                                    : journal_take_each(owner, error);
    if (!status)
        status = journal_renew_lease(owner, error);
    if (!status)
        status = owner_requires(owner, error);
    return status ? status : owner_post(owner, error);
}

/* Runs an attempt to its end. Its commit document was inserted. */
static truce_status bring_through(struct owner *owner, bson_error_t *error)
{
    bson_error_t why = {0};
    truce_status status = journal_take_all(owner, &why);

    if (!status) {
        status = owner_decide(owner, &why);
        if (!status)
            release_all(owner);
    }
    if (status && status != TRUCE_UNKNOWN)
        truce__owner_give_up(owner, why.message);
    if (status && error)
        *error = why;
    return status;
}

/* Inserts the commit document, and runs the attempt unless the key shows that it took effect. */
static truce_status journal_run(struct owner *owner, bson_error_t *error)
{
    bool already = false;
    bson_error_t why = {0};
    truce_status status = owner_open(owner, &already, &why);

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

/* Makes one attempt. Sets *again if the attempt was abandoned and a new one needs a new id. */
static truce_status journal_attempt(truce_commit *commit, bool *again, bson_error_t *error)
{
    struct owner owner = {.commit = commit,
                          .worker = &commit->worker,
                          .post = BSON_INITIALIZER,
                          .held = BSON_INITIALIZER};
    truce_status status = journal_run(&owner, error), waited = TRUCE_OK;

    *again = status && owner.again;
    /* The attempt was undone and holds no document, so the commit may wait for the holder. */
    if (status == TRUCE_CONFLICT && !bson_empty(&owner.held))
        waited = truce__unique_wait(commit, owner.held_in, &owner.held, error);
    if (waited)
        status = waited;
    bson_destroy(&owner.held);
    bson_destroy(&owner.post);
    return status;
}

/* Finishes a commit whose documents were taken before its function ran. */
static truce_status finish_taken(truce_commit *commit, bson_error_t *error)
{
    truce_status status;

    status = bring_through(commit->owner, error);
    truce__journal_release_entries(commit);
    return status;
}

truce_status truce__commit_journal(truce_commit *commit, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (commit->numbered)
        return truce__fail(TRUCE_INVALID, error,
                           "a commit of the journal cannot take numbers of a sequence: take them "
                           "before the commit, or use a store with transactions");
    status = truce__metadata_ensure_commits(commit->store, error);
    if (status)
        return status;
    owner_hold_missing(commit);
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

/* ---- taking documents before the function runs ----------------------------------------------- */

/*
 * A commit whose function reads, computes, and writes fails with CONFLICT whenever another writer
 * is faster. A commit of many documents would never succeed next to many short ones. So after some
 * failed tries, the journal's steps take the documents of the last try first, and then the function
 * runs:
 *
 *     commit document | prepare each, in order | function | (prepare more) | requires | decide
 *
 *  CT1  The steps and their order are the journal's. The base of the commit is what the prepares
 *       returned, as for a blind change. A document that the function does not change is a hold.
 *       The prepares cannot lose a race, because they compare nothing that was read before.
 *  CT2  A commit that holds documents does not wait for other commits. Any other document that the
 *       function uses is read and prepared only if it is free. Otherwise the try ends and releases
 *       its documents, and the next try takes that document too, in the order that all commits
 *       share. So two such commits cannot wait for each other, and each failed try has found a
 *       document that it did not know. The same holds for calls that the function makes apart from
 *       its commit: a read of a balance, a set operation, a commit within the function. If such a
 *       call encounters another pending commit, it fails with LOCKED at once, and the function runs
 *       again.
 *  CT3  Some documents cannot be taken first. A prepare reserves values of unique indexes, which
 *       are unknown at that time. If a collection has declared keys, or the journal refuses what
 *       the store's own step can do, the commit runs as before. Missing documents are not taken, so
 *       a document that is inserted and removed all the time can cost any number of tries.
 *  CT4  A plain writer may change a held document while the function runs, so each document is read
 *       once more before the decision.
 *  CT5  A document that is gone is not taken, and the others are. Its prepare got a reply, so it
 *       took nothing and cannot take effect later. The function finds no document.
 *  CT6  If the store changes several documents in one step, the commit ends with one such step
 *       (native_transaction.c, CN7), unless the caller requires the journal. It compares the held
 *       documents, so no plain write is lost.
 *  CT7  Elsewhere, a commit of one document without a key ends with one write that compares the
 *       held document (single_document.c, CF6). It needs no decision, and no plain write is lost.
 *  CT8  The function may also read documents by calls apart from its commit: several at once, a
 *       balance, a tree. Such a call does not wait for documents that the function's own commit
 *       holds; it reads them as stored, without the intent. Only a plain writer can change them
 *       before the function ends, and CT4 finds that. Once the commit is applied, its intents are
 *       like those of any other commit. A write apart from the commit cannot change a document that
 *       the commit holds: it fails with LOCKED at once.
 */

/* The innermost commit whose function this thread runs; `around` links to the enclosing ones. */
static _Thread_local truce_commit *at_work;

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

bool truce__journal_at_work(const bson_t *document)
{
    bson_oid_t id;

    return at_work && truce__intent_commit(document, &id) && truce__journal_work_owns(&id);
}

static int take_compare_entries(const void *a, const void *b)
{
    return truce__entry_compare(*(struct entry *const *)a, *(struct entry *const *)b);
}

/* Reduces each entry to the name of its document, as a hold. Drops the entries of missing
 * documents. */
static truce_status forget_all_but_names(truce_commit *commit, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t count = 0;

    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *old = commit->entries[i];
        bool keyed = false;

        if (!status)
            status = truce__metadata_keyed(commit->store, old->collection, &keyed, error);
        commit->untakeable = commit->untakeable || keyed; /* CT3 */
        if (!old->known || old->token.found) {
            commit->entries[count] = truce__entry_new(old->collection, &old->id);
            commit->entries[count]->hold = true;
            commit->entries[count]->keys = -1;
            count++;
        }
        truce__entry_free(old);
    }
    commit->count = count;
    truce__hash_release(&commit->entry_numbers);
    if (count)
        qsort(commit->entries, count, sizeof *commit->entries, take_compare_entries);
    return status;
}

static truce_status journal_take_document(struct owner *owner, struct entry *entry,
                                          bson_error_t *error)
{
    truce_status status;

    entry->must_exist = true; /* The prepare must find a document, and inserts no stub. */
    status = owner_prepare(owner, entry, error);
    entry->must_exist = false;
    entry->known = entry->read = !status;
    return status;
}

/* Removes an entry whose document is gone (CT5). */
static void take_drop(truce_commit *commit, uint32_t at)
{
    truce__entry_free(commit->entries[at]);
    commit->count--;
    memmove(commit->entries + at, commit->entries + at + 1,
            (commit->count - at) * sizeof *commit->entries);
}

/* Takes the documents in their order. A missing one is dropped (CT5); any other failure ends it. */
static truce_status journal_take_documents(struct owner *owner, bson_error_t *error)
{
    truce_commit *commit = owner->commit;

    for (uint32_t i = 0; i < commit->count;) {
        truce_status status = journal_take_document(owner, commit->entries[i], error);

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
        status = truce__metadata_ensure_commits(commit->store, error);
    if (status)
        return status;
    if (!commit->count || commit->untakeable)
        return truce__fail(TRUCE_CONFLICT, error,
                           "the documents of the commit cannot be locked first");
    owner = bson_aligned_alloc0(_Alignof(struct owner), sizeof *owner);
    owner->commit = commit;
    owner->worker = &commit->worker;
    bson_init(&owner->post);
    bson_init(&owner->held);
    commit->owner = owner;
    status = owner_open(owner, already, error);
    if (!status && !*already)
        status = journal_take_documents(owner, error);
    commit->worker.holding = !status && !*already;
    if (*already)
        truce__journal_release_entries(commit);
    else if (status)
        truce__journal_drop(commit, "its documents could not be taken");
    return status;
}

void truce__journal_release_entries(truce_commit *commit)
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
    truce__journal_release_entries(commit);
}
