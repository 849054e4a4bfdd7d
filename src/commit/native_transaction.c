#include "commit/journal_owner.h"

#include "base/assert.h"
#include "commit/commit_counters.h"
#include "commit/metadata_cache.h"
#include "commit/unique_keys.h"
#include "store/overlay/transaction_overlay.h"
#include "truce/sys/store.h"

/*
 * The native mechanism: the store changes several documents in one atomic step, so the commit is
 * one bulk that compares and changes everything. It uses the journal's fields: every write sets
 * `_rev`, and no write ignores an intent. So both mechanisms can be used on one collection at the
 * same time.
 *
 *  CN1  Every write and every require fails if the document has an intent, except those of
 *       documents that were taken first (CN7).
 *  CN2  Every known document is compared as a whole (commit_entry.c, CE1) in the same step that
 *       changes the others.
 *  CN3  A key is inserted, and then the horizon is read in the same step. The horizon is not
 *       written, so commits with keys do not conflict. No purge can come between, because a purge
 *       raises the horizon first and deletes after that. So if the insert found the record deleted,
 *       the read finds the horizon raised. If both use one snapshot and the purge came after it,
 *       the record's key still exists or conflicts in the unique index.
 *  CN4  If a value of a unique index is taken, its holder decides: a journal commit may release it,
 *       so the commit runs again (unique_keys.c, CU5).
 *  CN5  This process compares a diff. Its document is read first and compared in the same step. If
 *       it differs then, it is read and the diff is compared again. Only a different old value is a
 *       conflict.
 *  CN6  A server's validator may forbid the guard of a document that is only read, because the
 *       guard is a write there. Then nothing was changed, and the journal runs the commit, unless
 *       the caller requires this mechanism.
 *  CN7  Documents that were taken before the function ran (journal.c, CT6) are compared as held,
 *       and released, in the same step that marks the commit done, if it is still pending. After a
 *       step without a reply the owner undoes the commit, which reveals the outcome: the undo
 *       fails if the commit was done.
 *  CN8  The store checks what the commit's queries saw in the same step (commit.c, CG1).
 *  CN9  If the store compares the bytes of a known document, and its operators are repeatable, its
 *       one update is sent as given. The operators produce the same result there as here. Otherwise
 *       the difference is sent.
 *
 * After a bulk without a reply, the commit took effect if a decided commit has its key, or if one
 * of its documents has its `_rev`. Otherwise the result is TRUCE_UNKNOWN, or TRUCE_IO if the disk
 * or the network failed.
 */

/* The number of documents that a plan stores without an allocation. */
#define FEW 8

/* The bulk that applies a commit. */
struct plan {
    const truce_store *store;
    truce_write *writes;
    /* owners[i] is the number of the entry that write i belongs to, or UINT32_MAX for the commit's
     * own writes. Owned. */
    uint32_t *owners;
    uint32_t count, room;
    /* The documents that the writes borrow: the first ones in `few`, the others allocated. */
    bson_t few[FEW];
    uint32_t few_count;
    bson_t **documents;
    uint32_t documents_count, documents_room;
};

/* Returns an empty document that the plan frees. */
static bson_t *native_own(struct plan *plan)
{
    bson_t *document;

    if (plan->few_count < FEW) {
        document = &plan->few[plan->few_count++];
        bson_init(document);
        return document;
    }
    document = bson_aligned_alloc(_Alignof(bson_t), sizeof *document);
    bson_init(document);
    if (plan->documents_count == plan->documents_room) {
        plan->documents_room = plan->documents_room ? 2 * plan->documents_room : 16;
        plan->documents =
            bson_realloc(plan->documents, plan->documents_room * sizeof *plan->documents);
    }
    plan->documents[plan->documents_count++] = document;
    return document;
}

/* Adds a write for entry `owner` to the plan. The returned pointer is valid until the next call. */
static truce_write *native_add(struct plan *plan, uint32_t owner, const char *collection,
                               truce_write_kind kind)
{
    truce_write *write;

    if (plan->count == plan->room) {
        plan->room = plan->room ? 2 * plan->room : 16;
        plan->writes = bson_realloc(plan->writes, plan->room * sizeof *plan->writes);
        plan->owners = bson_realloc(plan->owners, plan->room * sizeof *plan->owners);
    }
    plan->owners[plan->count] = owner;
    write = &plan->writes[plan->count++];
    *write = (truce_write){.kind = kind, .collection = collection};
    return write;
}

static void release_plan(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->few_count; i++)
        bson_destroy(&plan->few[i]);
    for (uint32_t i = 0; i < plan->documents_count; i++) {
        bson_destroy(plan->documents[i]);
        /* The document was initialized in allocated memory, so bson_destroy does not free the
         * struct. */
        bson_free(plan->documents[i]);
    }
    bson_free(plan->documents);
    bson_free(plan->writes);
    bson_free(plan->owners);
}

static bson_t *own_copy(struct plan *plan, bson_t *made)
{
    bson_t *document = native_own(plan);
    bool stolen = bson_steal(document, made);

    truce_assert(stolen);
    return document;
}

/* Compares the base in the write (CN2). */
static void native_compare_base(struct plan *plan, const struct entry *entry, truce_write *write)
{
    bson_t made;

    write->exact = truce__filter_base(plan->store, entry, &made);
    write->filter = own_copy(plan, &made);
}

/* Adds a document that was taken first (CN7). */
static void plan_held(struct plan *plan, uint32_t at, const truce_commit *commit,
                      const struct entry *entry)
{
    truce_write *write = native_add(plan, at, entry->collection, TRUCE_WRITE_UPDATE);
    bson_t *held, made, none;
    bool replacement;

    truce__owner_held(commit, entry, &made);
    held = own_copy(plan, &made);
    write->exact = truce__filter_whole(plan->store, &entry->id, held, &made);
    write->filter = own_copy(plan, &made);
    if (truce__entry_net(entry) == NET_REMOVE) {
        write->kind = TRUCE_WRITE_REMOVE;
        return;
    }
    if (truce__entry_net(entry) == NET_UPDATE) {
        truce__entry_update_over(held, entry, &commit->id, &made, &replacement);
    } else {
        bson_init(&made);
        bson_append_document_begin(&made, "$unset", 6, &none);
        BSON_APPEND_BOOL(&none, "_intent", true);
        bson_append_document_end(&made, &none);
    }
    write->document = own_copy(plan, &made);
}

/* Makes the operators with `_rev: rev` in their $set. */
static bson_t *operators_with_rev(struct plan *plan, const bson_t *operators, const bson_oid_t *rev)
{
    bson_t *update = native_own(plan), set;
    bson_iter_t iter;
    bool appended = false;

    truce_assert(bson_iter_init(&iter, operators));
    while (bson_iter_next(&iter)) {
        if (strcmp(bson_iter_key(&iter), "$set") != 0) {
            bson_append_iter(update, NULL, 0, &iter);
            continue;
        }
        const uint8_t *bytes;
        uint32_t length;
        bson_t old;

        bson_iter_document(&iter, &length, &bytes);
        truce_assert(bson_init_static(&old, bytes, length));
        bson_append_document_begin(update, "$set", 4, &set);
        bson_concat(&set, &old);
        BSON_APPEND_OID(&set, "_rev", rev);
        bson_append_document_end(update, &set);
        appended = true;
    }
    if (!appended) {
        bson_append_document_begin(update, "$set", 4, &set);
        BSON_APPEND_OID(&set, "_rev", rev);
        bson_append_document_end(update, &set);
    }
    return update;
}

/* Returns whether the operators give the same result whenever they are applied to the same
 * document. */
static bool is_repeatable(const bson_t *operators)
{
    static const char *const all[] = {"$inc", "$set", "$unset", "$mul", "$min", "$max", "$push"};
    struct fields fields = truce__fields(truce__value_document(operators));

    while (truce__fields_next(&fields)) {
        size_t i = 0;

        while (i < sizeof all / sizeof *all && strcmp(all[i], fields.key) != 0)
            i++;
        if (i == sizeof all / sizeof *all)
            return false;
    }
    return true;
}

/* Returns whether the update is sent as given (CN9). */
static bool goes_as_given(const struct plan *plan, const struct entry *entry)
{
    return plan->store->capabilities & TRUCE_CAN_COMPARE && entry->changes_count == 1 &&
           entry->changes[0].kind == CHANGE_UPDATE && !entry->keyed &&
           is_repeatable(entry->changes[0].document);
}

static bson_t *known_update(struct plan *plan, const struct entry *entry, const bson_oid_t *rev)
{
    bool replacement;
    bson_t made;

    if (goes_as_given(plan, entry))
        return operators_with_rev(plan, entry->changes[0].document, rev);
    truce__entry_update(entry, rev, &made, &replacement);
    return own_copy(plan, &made);
}

/* Adds the write, or the comparison, of an entry whose base is known. */
static void plan_known(struct plan *plan, uint32_t owner, const struct entry *entry,
                       const bson_oid_t *rev)
{
    truce_write *write;
    bson_t made;

    switch (truce__entry_net(entry)) {
    case NET_INSERT:
        truce__entry_document(entry, rev, &made);
        write = native_add(plan, owner, entry->collection, TRUCE_WRITE_INSERT);
        write->document = own_copy(plan, &made);
        return;
    case NET_REMOVE:
        write = native_add(plan, owner, entry->collection, TRUCE_WRITE_REMOVE);
        native_compare_base(plan, entry, write);
        return;
    case NET_UPDATE:
        write = native_add(plan, owner, entry->collection, TRUCE_WRITE_UPDATE);
        write->document = known_update(plan, entry, rev);
        native_compare_base(plan, entry, write);
        return;
    case NET_NOTHING:
        break;
    }
    if (entry->token.found) {
        write = native_add(plan, owner, entry->collection, TRUCE_WRITE_REQUIRE);
        native_compare_base(plan, entry, write);
    } else {
        truce__filter_id(&entry->id, &made);
        write = native_add(plan, owner, entry->collection, TRUCE_WRITE_REQUIRE_MISSING);
        write->filter = own_copy(plan, &made);
    }
}

static bson_t *whole_with_rev(struct plan *plan, const bson_t *document, const bson_oid_t *rev)
{
    bson_t *whole = native_own(plan);

    truce__document_append_without(document, (const char *const[]){"_rev", "_intent", NULL}, whole);
    BSON_APPEND_OID(whole, "_rev", rev);
    return whole;
}

/* Adds a blind entry. Its changes are sent as given; the store applies them to the stored
 * document. */
static void plan_blind(struct plan *plan, uint32_t owner, const struct entry *entry,
                       const bson_oid_t *rev)
{
    for (uint32_t i = 0; i < entry->changes_count; i++) {
        const struct change *change = &entry->changes[i];
        truce_write *write = native_add(plan, owner, entry->collection, TRUCE_WRITE_UPDATE);
        bson_t made;

        truce_assert(change->kind != CHANGE_DIFF);
        if (i == 0) {
            truce__filter_entry(entry, true, &made);
            write->filter = own_copy(plan, &made);
        } else {
            truce__filter_id(&entry->id, &made);
            write->filter = own_copy(plan, &made);
        }
        if (change->kind == CHANGE_UPDATE) {
            write->document = operators_with_rev(plan, change->document, rev);
        } else if (change->kind == CHANGE_REMOVE) {
            write->kind = TRUCE_WRITE_REMOVE;
        } else {
            if (change->kind == CHANGE_INSERT)
                write->kind = TRUCE_WRITE_INSERT;
            write->document = whole_with_rev(plan, change->document, rev);
        }
    }
}

/* Adds the commit document with the key, and the check of the horizon (CN3). */
static void plan_record(struct plan *plan, const truce_commit *commit)
{
    truce_write *write;
    bson_t made, *filter;

    truce__commit_begin_document(commit, "done", &made);
    write = native_add(plan, UINT32_MAX, COMMITS, TRUCE_WRITE_INSERT);
    truce__commit_append_left(commit, &made);
    write->document = own_copy(plan, &made);
    if (!commit->options.key)
        return;
    filter = native_own(plan);
    BCON_APPEND(filter, "_id", BCON_UTF8("horizon"), "time", "{", "$lt",
                BCON_INT64(commit->options.key_time_ms), "}");
    write = native_add(plan, UINT32_MAX, COMMITS, TRUCE_WRITE_REQUIRE_IN_SNAPSHOT);
    write->filter = filter;
}

/* Adds the write that marks a commit done (CN7). */
static void plan_done(struct plan *plan, const truce_commit *commit)
{
    truce_write *write = native_add(plan, UINT32_MAX, COMMITS, TRUCE_WRITE_UPDATE);
    bson_t *filter = native_own(plan), *update = native_own(plan), set;

    BSON_APPEND_OID(filter, "_id", &commit->id);
    BSON_APPEND_UTF8(filter, "state", "pending");
    write->filter = filter;
    bson_append_document_begin(update, "$set", 4, &set);
    BSON_APPEND_UTF8(&set, "state", "done");
    truce__commit_append_left(commit, &set);
    bson_append_document_end(update, &set);
    write->document = update;
}

/* The order of the writes. Unique indexes see one write after the other, so writes that release a
 * value come first. */
enum write_order { WRITE_REMOVE, WRITE_CHANGE, WRITE_INSERT, WRITE_ORDERS };

static enum write_order write_order_of(const struct entry *entry)
{
    enum change_kind last =
        entry->changes_count ? entry->changes[entry->changes_count - 1].kind : CHANGE_UPDATE;

    if (entry->known)
        return truce__entry_net(entry) == NET_REMOVE   ? WRITE_REMOVE
               : truce__entry_net(entry) == NET_INSERT ? WRITE_INSERT
                                                       : WRITE_CHANGE;
    return last == CHANGE_REMOVE ? WRITE_REMOVE : WRITE_CHANGE;
}

/* Returns whether this process read the base of a blind entry for its diffs (CN5). */
static bool native_has_diff_base(const struct entry *entry)
{
    return !entry->known && truce__entry_has_diff(entry);
}

/* Makes the writes of the bulk: the commit document first, then the entries, of which removes come
 * first and inserts last. */
static void native_make_plan(const truce_commit *commit, struct plan *plan)
{
    if (commit->owner)
        plan_done(plan, commit);
    else if (truce__commit_has_document(commit))
        plan_record(plan, commit);
    for (enum write_order order = WRITE_REMOVE; order < WRITE_ORDERS; order++) {
        for (uint32_t i = 0; i < commit->count; i++) {
            if (write_order_of(commit->entries[i]) != order)
                continue;
            if (commit->entries[i]->prepared)
                plan_held(plan, i, commit, commit->entries[i]);
            else if (commit->entries[i]->known || native_has_diff_base(commit->entries[i]))
                plan_known(plan, i, commit->entries[i], &commit->id);
            else
                plan_blind(plan, i, commit->entries[i], &commit->id);
        }
    }
}

/* Reads the entry's document. Compares it with a known base, and returns CONFLICT if it differs; a
 * blind entry gets it as its base. Returns OK if nothing prevents the write now. `duplicate` is
 * true if an index refused the write. */
static truce_status native_read_again(truce_commit *commit, struct entry *entry, bool duplicate,
                                      bson_error_t *error)
{
    truce_status status;
    bson_t document;
    const bson_t *found;

    status = truce__journal_read(&commit->worker, entry->collection, &entry->id, &document, error);
    found = status ? NULL : &document;
    if (!status && duplicate && entry->known && !entry->read && !entry->token.found)
        status = truce__entry_exists(entry, error);
    else if (!status || status == TRUCE_NOT_FOUND)
        status = entry->known ? truce__entry_same(entry, found, error)
                              : truce__entry_blame(entry, found, error);
    if (!status && duplicate)
        status = truce__unique_refused(commit, entry, error);
    if (status == TRUCE_CONFLICT)
        truce__commit_lost(commit, entry);
    bson_destroy(&document);
    return status;
}

/* Reads the documents of blind diffs (CN5). */
static truce_status native_read_diff_bases(truce_commit *commit, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < commit->count; i++) {
        if (native_has_diff_base(commit->entries[i]))
            status = native_read_again(commit, commit->entries[i], false, error);
    }
    return status;
}

/* Reports that a held document differs from what was taken (CN7). */
static truce_status not_as_taken(truce_commit *commit, struct entry *entry, bson_error_t *error)
{
    truce_status status = truce__owner_still(commit->owner, entry, error);

    return status ? status
                  : truce__entry_conflict(entry, "was changed and restored after it was locked",
                                          error);
}

/* Returns whether the conflict is final. Either a query check failed, which the store reports with
 * the first write (CN8), or the commit is part of a transaction. The snapshot of a transaction
 * never shows the writes of other clients. */
static bool native_conflict_is_final(const truce_commit *commit, const truce_write_outcome *outcome)
{
    bool within = commit->store->capabilities & TRUCE_IS_TRANSACTION;

    return (commit->query_overlay || within) && outcome->status == TRUCE_CONFLICT &&
           outcome->error.code == CODE_WRITE_CONFLICT;
}

/* Handles a refused bulk. Returns OK with *again set if the plan was corrected and can be sent
 * again. */
static truce_status native_refused(truce_commit *commit, const struct plan *plan,
                                   const truce_write_outcome *outcomes, truce_status status,
                                   bool *again, bson_error_t *error)
{
    struct entry *entry = NULL;
    uint32_t at = 0;

    while (at < plan->count && !outcomes[at].error.message[0])
        at++;
    if (at == plan->count || native_conflict_is_final(commit, &outcomes[at]))
        return status;
    if (plan->owners[at] == UINT32_MAX && commit->owner)
        return truce__fail(
            TRUCE_CONFLICT, error,
            "the commit was rolled back by another process, because its lease had expired: "
            "nothing was written, and you can repeat it");
    /* The key was used before, or is not after the horizon. */
    if (plan->owners[at] == UINT32_MAX && commit->options.key) {
        status = truce__commit_key_holder(commit, error);
        if (status != TRUCE_NOT_FOUND)
            return status;
        /* Another client may also have removed the horizon. The next try creates it again. */
        truce__metadata_forget_commits(commit->store);
        return truce__fail(TRUCE_CONFLICT, error, "the key \"%s\" was in use briefly; try again",
                           commit->options.key);
    }
    if (plan->owners[at] == UINT32_MAX)
        return status;
    entry = commit->entries[plan->owners[at]];
    commit->unguarded = plan->writes[at].kind == TRUCE_WRITE_REQUIRE &&
                        outcomes[at].error.domain == TRUCE_ERROR_SERVER &&
                        outcomes[at].error.code == CODE_DOCUMENT_VALIDATION_FAILURE;
    if (outcomes[at].status != TRUCE_CONFLICT && outcomes[at].status != TRUCE_NOT_FOUND &&
        outcomes[at].status != TRUCE_DUPLICATE)
        return status;
    if (commit->owner && outcomes[at].status == TRUCE_DUPLICATE)
        /* The next try takes no documents first, and looks for the holder of the value. */
        return status;
    if (entry->prepared)
        return not_as_taken(commit, entry, error);
    status = native_read_again(commit, entry, outcomes[at].status == TRUCE_DUPLICATE, error);
    /* Nothing that the caller read has changed, so the bulk is sent again. */
    *again = !status && !entry->known && !commit->owner;
    return status || *again ? status
                            : truce__entry_conflict(entry, "was locked by another commit", error);
}

/* Finds out what became of a bulk without a reply. */
static truce_status native_check(truce_commit *commit, bson_error_t *error)
{
    if (commit->options.key) {
        truce_status status = truce__commit_key_holder(commit, error);

        if (!status)
            return TRUCE_OK;
    }
    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *entry = commit->entries[i];
        struct token token = {0};
        bson_t document;
        truce_status status;

        if (!truce__entry_writes(entry))
            continue;
        status =
            truce__journal_read(&commit->worker, entry->collection, &entry->id, &document, error);
        if (!status)
            status = truce__token_of(&document, &token, error);
        bson_destroy(&document);
        if (!status && token.has_rev && bson_oid_equal(&token.rev, &commit->id))
            return TRUCE_OK;
    }
    return truce__fail(
        TRUCE_UNKNOWN, error,
        "the outcome of the commit is unknown: the store did not reply, and the documents do not "
        "show the outcome");
}

/* Finds out what became of a bulk that ended with `failure`. If the outcome is unknown and the
 * failure was IO, returns IO with its reason, so that the caller learns what to repair. */
static truce_status diagnose_failure(truce_commit *commit, truce_status failure,
                                     bson_error_t *error)
{
    bson_error_t why = {0}, checked = {0};
    truce_status status;

    if (error)
        why = *error;
    status = native_check(commit, &checked);
    if (status == TRUCE_UNKNOWN && failure == TRUCE_IO) {
        status = failure;
        checked = why;
    }
    if (status && error)
        *error = checked;
    return status;
}

/* Finds out what became of a commit with documents that were taken first (CN7). If it is neither
 * pending nor done, the outcome is unknown. */
static truce_status diagnose_taken(truce_commit *commit, truce_status failure, bson_error_t *error)
{
    bson_error_t why = error ? *error : (bson_error_t){0};
    const char *state;
    bson_t document;
    truce_status status;

    truce__owner_give_up(commit->owner, why.message);
    status = truce__owner_find(commit->owner, &document, error);
    state = status ? NULL : truce__commit_state(&document);
    if (state && !strcmp(state, "done"))
        status = TRUCE_OK;
    else if (failure == TRUCE_IO)
        status = failure;
    else if (state && !strcmp(state, "aborted"))
        status = TRUCE_CONFLICT;
    else
        status = TRUCE_UNKNOWN;
    bson_destroy(&document);
    if (status && error)
        *error = why;
    return status;
}

/* Sends the commit as one atomic bulk. Sets *again if another attempt may succeed. */
static truce_status native_send(truce_commit *commit, bool *again, bson_error_t *error)
{
    truce_bulk_options options = {.atomic = true,
                                  .relaxed = commit->options.relaxed,
                                  .early = truce__commit_is_early(commit)};
    truce_write_outcome *outcomes = NULL;
    truce_status status = TRUCE_OK;
    struct plan plan = {.store = commit->store};
    struct truce_read_checks checks = {0};

    native_make_plan(commit, &plan);
    if (commit->query_overlay) {
        truce__overlay_checks(commit->query_overlay, &checks);
        options.checks = &checks;
    }
    if (plan.count > 0) {
        outcomes = bson_malloc0(plan.count * sizeof *outcomes);
        status = truce_bulk(commit->store, plan.writes, plan.count, &options, outcomes, error);
        commit->settled = !status && !options.early;
        if (truce__unanswered(status) && commit->owner)
            status = diagnose_taken(commit, status, error);
        else if (truce__unanswered(status))
            status = diagnose_failure(commit, status, error);
        else if (status)
            status = native_refused(commit, &plan, outcomes, status, again, error);
        for (uint32_t i = 0; i < plan.count; i++)
            truce_write_result_release(&outcomes[i].result);
    }
    bson_free(outcomes);
    bson_free((void *)checks.all);
    release_plan(&plan);
    return status;
}

truce_status truce__commit_native(truce_commit *commit, bson_error_t *error)
{
    truce_status status = truce__commit_has_document(commit)
                              ? truce__metadata_ensure_commits(commit->store, error)
                              : TRUCE_OK;

    COUNT(native);
    if (!status)
        status = native_read_diff_bases(commit, error);
    commit->worker.waits = 0;
    while (!status) {
        bool again = false;

        status = native_send(commit, &again, error);
        if (status || !again)
            break;
        status = truce__worker_wait(&commit->worker, "the documents", error);
    }
    return status;
}
