#include "commit/journal_owner.h"

#include "base/assert.h"
#include "commit/commit_counters.h"
#include "commit/unique_keys.h"
#include "truce/sys/store.h"

/*
 * The fast path: a commit of one document, with no other requirements and no key, is one guarded
 * write. The commit reads the document first, even for a blind change, because after a write
 * without a reply only the revision shows whether the write took effect:
 *
 *     {_id, guards, all as read, _intent: absent} -> change, _rev: new
 *
 *     no reply, then:    _rev is ours    it took effect
 *                        all as read     it did not: send it again; if both take effect, the second
 *                                        finds another _rev and does nothing (CF1)
 *                        otherwise       TRUCE_UNKNOWN: it may have taken effect, and another write
 *                                        may have changed the document since
 *
 *  CF1  A repeated send is harmless because the write compares what was read, including the
 *       revision.
 *  CF2  An insert has no revision to compare. If it gets no reply and is not found, it may still
 *       take effect. A second one might take effect after another client removed the first. So it
 *       is never sent again.
 *  CF3  `_intent: absent` avoids conflicts with journal commits: the write waits for their
 *       documents.
 *  CF4  After a send without a reply, "found nothing" proves nothing either; only the revision
 *       does.
 *  CF5  The same holds for a unique value that is taken: the first send may take effect when the
 *       value is released.
 *  CF6  The document may have been taken before the function ran (journal.c, CT7). Then the write
 *       compares the held document and removes the intent. A second write marks the commit done. If
 *       that is lost, the sweep aborts the commit, which changes nothing.
 *
 * A blind change that lost a race reads again and continues; a known one is a conflict.
 */

/* Makes the write. `now` is the stored document, for an update. */
static truce_write make_write(const struct entry *entry, const bson_t *now, const bson_oid_t *rev,
                              bson_t *filter, bson_t *document)
{
    truce_write write = {.collection = entry->collection, .filter = filter, .document = document};
    bool replacement;

    switch (truce__entry_net(entry)) {
    case NET_INSERT:
        write.kind = TRUCE_WRITE_INSERT;
        bson_destroy(document);
        truce__entry_document(entry, rev, document);
        break;
    case NET_REMOVE:
        write.kind = TRUCE_WRITE_REMOVE;
        break;
    default:
        write.kind = TRUCE_WRITE_UPDATE;
        bson_destroy(document);
        truce__entry_update_over(now, entry, rev, document, &replacement);
    }
    return write;
}

/* Makes the document as it must be stored: as read, or as held (CF6). */
static void single_read_current(const truce_commit *commit, const struct entry *entry, bson_t *now)
{
    if (commit->owner)
        truce__owner_held(commit, entry, now);
    else
        bson_copy_to(&entry->base, now);
}

static const bson_t *compare_with(const truce_commit *commit, const struct entry *entry,
                                  const bson_t *now, bson_t *filter)
{
    if (!commit->owner)
        return truce__filter_base(commit->store, entry, filter);
    return truce__filter_held(commit->store, &entry->id, now, &commit->id, filter);
}

/* Takes the entry (truce__entry_take), with `_keys` in `after` where the collection has declared
 * keys. */
static truce_status single_take(truce_commit *commit, struct entry *entry, const bson_t *document,
                                bson_error_t *error)
{
    truce_status status = truce__entry_take(entry, document, error);

    return !status && entry->keyed ? truce__shadow_set(commit->store, entry, error) : status;
}

/* Sends the write once. Sets *took if it changed the document. */
static truce_status single_send(truce_commit *commit, const struct entry *entry,
                                const bson_oid_t *rev, bool *took, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document = BSON_INITIALIZER, now;
    truce_bulk_options options = {.relaxed = commit->options.relaxed,
                                  .early = truce__commit_is_early(commit)};
    truce_write_outcome outcome;
    const bson_t *exact = NULL;
    truce_write write;
    truce_status status;

    single_read_current(commit, entry, &now);
    if (entry->token.found) {
        bson_destroy(&filter);
        exact = compare_with(commit, entry, &now, &filter);
    }
    write = make_write(entry, &now, rev, &filter, &document);
    write.exact = exact;
    status = truce_bulk(commit->store, &write, 1, &options, &outcome, error);
    commit->settled = !status && !options.early;
    *took =
        !status && (outcome.result.matched || outcome.result.inserted || outcome.result.removed);
    truce_write_result_release(&outcome.result);
    bson_destroy(&now);
    bson_destroy(&document);
    bson_destroy(&filter);
    return status;
}

enum write_effect { WRITE_APPLIED, WRITE_NOT_APPLIED, WRITE_UNKNOWN };

/* Finds out what became of a write without a reply. */
static truce_status single_check(truce_commit *commit, const struct entry *entry,
                                 const bson_oid_t *rev, enum write_effect *effect,
                                 bson_error_t *error)
{
    struct token token;
    bson_t document, now;
    truce_status status = commit->owner ? truce__owner_peek(commit->owner, entry, &document, error)
                                        : truce__journal_read(&commit->worker, entry->collection,
                                                              &entry->id, &document, error);

    *effect = WRITE_UNKNOWN;
    single_read_current(commit, entry, &now);
    if (!status || status == TRUCE_NOT_FOUND)
        status = truce__token_of(status ? NULL : &document, &token, error);
    if (!status && token.has_rev && bson_oid_equal(&token.rev, rev))
        *effect = WRITE_APPLIED;
    else if (!status && token.found && entry->token.found && bson_equal(&document, &now))
        /* The write did not take effect, so it is sent again (CF1). An insert is never sent again
         * (CF2). */
        *effect = WRITE_NOT_APPLIED;
    bson_destroy(&now);
    bson_destroy(&document);
    return status;
}

static truce_status single_unknown(const struct entry *entry, bson_error_t *error)
{
    char text[300];

    return truce__fail(
        TRUCE_UNKNOWN, error,
        "the outcome of a write of %s is unknown: the store did not reply, and the stored "
        "document does not show the outcome",
        truce__entry_show(entry, text, sizeof text));
}

/* Reports that the disk or the network failed each time, with the reason. */
static truce_status single_failed(const bson_error_t *why, bson_error_t *error)
{
    if (error)
        *error = *why;
    return TRUCE_IO;
}

/* Sends the entry's write until its outcome is certain. *took is false if another writer was
 * faster. After a send without a reply, a later "found nothing" proves nothing: the first send
 * may have taken effect, and another writer may have changed the document since (CF4). */
static truce_status write_certainly(truce_commit *commit, struct entry *entry, bool *took,
                                    bson_error_t *error)
{
    bool unanswered = false, silent = false;
    bson_error_t why = {0};

    for (;;) {
        enum write_effect effect = WRITE_UNKNOWN;
        truce_status status = single_send(commit, entry, &commit->id, took, error);

        if (!truce__unanswered(status) && (*took || !unanswered))
            return status;
        unanswered = true;
        silent = silent || status != TRUCE_IO;
        if (status == TRUCE_IO && error)
            why = *error;
        if (single_check(commit, entry, &commit->id, &effect, error) || effect == WRITE_UNKNOWN)
            return silent ? single_unknown(entry, error) : single_failed(&why, error);
        if (effect == WRITE_NOT_APPLIED && status == TRUCE_DUPLICATE)
            return single_unknown(entry, error); /* CF5 */
        if (effect == WRITE_APPLIED) {
            *took = true;
            return TRUCE_OK;
        }
        if (truce__disk_refused(commit->store, status) ||
            truce__worker_wait(&commit->worker, "the store", error))
            return silent ? single_unknown(entry, error) : single_failed(&why, error);
    }
}

/* Reads the document after a write that found nothing: a conflict for a known entry, a new base for
 * a blind one. */
static truce_status single_read_again(truce_commit *commit, struct entry *entry,
                                      bson_error_t *error)
{
    bson_t document;
    truce_status status =
        truce__journal_read(&commit->worker, entry->collection, &entry->id, &document, error);
    const bson_t *found = status ? NULL : &document;

    if (!status || status == TRUCE_NOT_FOUND)
        status = entry->known ? truce__entry_same(entry, found, error)
                              : single_take(commit, entry, found, error);
    if (status == TRUCE_CONFLICT)
        truce__commit_lost(commit, entry);
    bson_destroy(&document);
    return status;
}

/* Handles a refusal: the _id or a uniquely indexed value is taken, by a document or by the
 * reservation of a commit that may still be undone. Returns OK if the write should be sent
 * again. */
static truce_status single_refused(truce_commit *commit, struct entry *entry, bson_error_t *error)
{
    bson_t document;
    truce_status status;

    status = truce__journal_read(&commit->worker, entry->collection, &entry->id, &document, error);
    bson_destroy(&document);
    if (!status && truce__entry_net(entry) == NET_INSERT)
        return entry->read ? truce__entry_conflict(entry, "was inserted", error)
                           : truce__entry_exists(entry, error);
    return status && status != TRUCE_NOT_FOUND ? status
                                               : truce__unique_refused(commit, entry, error);
}

truce_status truce__commit_fast(truce_commit *commit, bson_error_t *error)
{
    struct entry *entry = commit->entries[0];
    truce_status status = entry->known ? TRUCE_OK : single_read_again(commit, entry, error);
    bool took = false;

    if (!status && !truce__entry_comparable(commit->store, entry))
        return truce__commit_journal(commit, error);
    COUNT(fast);
    while (!status) {
        status = write_certainly(commit, entry, &took, error);
        if (status == TRUCE_DUPLICATE) {
            status = single_refused(commit, entry, error);
            continue;
        }
        if (status || took)
            return status;
        status = single_read_again(commit, entry, error);
        if (!status)
            status = truce__worker_wait(&commit->worker, "the document", error);
    }
    return status;
}

/* ---- a document that was taken first (CF6) --------------------------------------------------- */

/* Marks the commit done. If this write is lost, the sweep aborts the commit after its lease. That
 * changes nothing, because no document has its intent, and no client reads its state. */
static void single_mark_done(truce_commit *commit)
{
    truce_write_options options = {.relaxed = true};
    bson_t *filter = bson_new(), *update;

    BSON_APPEND_OID(filter, "_id", &commit->id);
    BSON_APPEND_UTF8(filter, "state", "pending");
    update = BCON_NEW("$set", "{", "state", BCON_UTF8("done"), "}");
    (void)!truce_update(commit->store, COMMITS, filter, update, &options, NULL, NULL);
    bson_destroy(update);
    bson_destroy(filter);
}

static truce_status write_held(truce_commit *commit, struct entry *entry, bson_error_t *error)
{
    bool took = false;
    truce_status status = truce__owner_can_be(commit->owner, entry, error);

    if (!status)
        status = write_certainly(commit, entry, &took, error);
    if (status || took)
        return status;
    status = truce__owner_still(commit->owner, entry, error);
    return status ? status
                  : truce__entry_conflict(entry, "was changed and restored after it was locked",
                                          error);
}

truce_status truce__commit_fast_held(truce_commit *commit, bson_error_t *error)
{
    struct entry *entry = commit->entries[0];
    bson_error_t why = {0};
    truce_status status;

    if (truce__entry_net(entry) == NET_NOTHING) {
        truce__journal_drop(commit, "it changed nothing");
        return TRUCE_OK;
    }
    COUNT(fast);
    status = write_held(commit, entry, &why);
    if (status)
        truce__owner_give_up(commit->owner, why.message);
    else
        single_mark_done(commit);
    truce__journal_release_entries(commit);
    if (status && error)
        *error = why;
    return status;
}
