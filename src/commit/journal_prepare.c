#include "commit/journal_owner.h"

#include "base/assert.h"
#include "base/id.h"
#include "base/limits.h"
#include "commit/metadata_cache.h"
#include "commit/shadow.h"
#include "commit/unique.h"
#include "commit/validated.h"
#include "store/store.h"

/*
 * Step 2 of the journal: taking documents. One find-and-modify sets the intent, or the insert of a stub puts
 * one there; what is in the way is met, and what came back is the base of the changes.
 */

#define REVISION_BYTES 18 /* the field `_rev` */

truce_status truce__owner_can_be(const struct owner *owner, const struct entry *entry,
                                 bson_error_t *error)
{
    uint32_t size = entry->after.len + (bson_has_field(&entry->after, "_rev") ? 0 : REVISION_BYTES);
    truce_status status = TRUCE_OK;
    char text[300];

    if (truce__entry_net(entry) == NET_INSERT || truce__entry_net(entry) == NET_UPDATE) {
        if (size > TRUCE_DOCUMENT_BYTES_MAX)
            return truce__fail(
                TRUCE_LIMIT, error, "%s would have %u bytes with its revision, at most %d fit",
                truce__entry_show(entry, text, sizeof text), size, TRUCE_DOCUMENT_BYTES_MAX);
        status = truce__document_check(&entry->after, "document", error);
    }
    if (!status)
        status = truce__unique_check(owner->commit->store, entry, error);
    return status ? status
                  : truce__validator_lets(owner->commit->store, entry, &owner->commit->id, error);
}

/* What came back from the prepare is the base of a blind entry, and must be that of a known one. */
static truce_status prepare_taken(struct owner *owner, struct entry *entry, const bson_t *document,
                                  bson_error_t *error)
{
    truce_status status;

    entry->prepared = true;
    status = entry->known ? truce__commit_same(entry, document, error)
                          : truce__entry_take(entry, document, error);
    return status ? status : truce__owner_can_be(owner, entry, error);
}

/* Reads the document as it is, with its intent if it has one. */
truce_status truce__owner_peek(struct owner *owner, const struct entry *entry, bson_t *document,
                               bson_error_t *error)
{
    truce_status status;
    bson_t filter;

    truce__filter_id(&entry->id, &filter);
    for (;;) {
        /* latest: what was read only must be as it was when the decision is written, and no write compares it (J6);
         * after a prepare without an answer, an intent that is missing abandons the id (J1) */
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

/* J1: a prepare without an answer. */
static truce_status look_for_prepare(struct owner *owner, struct entry *entry, bson_error_t *error)
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
        status = truce__commit_conflict(entry, "was not taken: the store did not answer", error);
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
            status = truce__commit_conflict(entry, "was changed by a plain write", error);
    } else if (!status || status == TRUCE_NOT_FOUND) {
        status = truce__commit_conflict(entry, "is not held any more", error);
    }
    bson_destroy(&now);
    bson_destroy(&document);
    return status;
}

/* The prepare found nothing to take. OK: try again. */
static truce_status why_not(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    bson_t document;
    truce_status status = truce__owner_peek(owner, entry, &document, error);
    const bson_t *found = status ? NULL : &document;

    if (!status && !truce__intent_absent(&document)) {
        truce_assert(!prepare_is_ours(owner, &document));
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
static bson_t *journal_prepare_prepare_update(const struct owner *owner, struct entry *entry)
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
    bson_t *update = journal_prepare_prepare_update(owner, entry);
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
    truce_status status = truce__owner_peek(owner, entry, &document, &ignored);

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

truce_status truce__owner_prepare(struct owner *owner, struct entry *entry, bson_error_t *error)
{
    truce_status status = truce__memo_intents(owner->commit->store, entry->collection, error);

    if (status)
        return status;
    owner->worker->waits = 0;
    if (entry->known && !entry->token.found)
        return prepare_stub(owner, entry, error);
    status = prepare_document(owner, entry, error);
    if (status == TRUCE_CONFLICT)
        truce__commit_lost(owner->commit, entry);
    return !status && entry->reserved ? look_for_key(owner, entry, error) : status;
}
