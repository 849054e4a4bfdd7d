/*
 * Posts in a commit. The commit reads the id, which guards its absence. The accounts are read
 * again, on a server by the same message (ledger_account_head.c), and the transactions that the
 * commit itself has inserted are added. The insert belongs to the commit. If another process takes
 * a number, the commit is a CONFLICT, and the function runs again.
 */
#include <string.h>

#include "base/assert.h"
#include "commit/commit.h"
#include "patterns/ledger/ledger_post.h"

/* Fails with DUPLICATE, naming the transaction that settled `of`. Returns NOT_FOUND if neither the
 * store nor the commit settles it. */
static truce_status commit_find_settled(struct ledger_plan *plan, const bson_value_t *of,
                                        bson_error_t *error)
{
    bson_t document, one = BSON_INITIALIZER;
    truce_status status = TRUCE_NOT_FOUND;

    BSON_APPEND_VALUE(&one, "v", of);
    for (uint32_t i = 0; i < plan->commit->count && status; i++) {
        const struct entry *entry = plan->commit->entries[i];
        struct value there;

        if (strcmp(entry->collection, plan->ledger->collection) != 0 || !entry->after_found)
            continue;
        there = truce__value_field(truce__value_document(&entry->after), "resolves", 8);
        if (there.type != VALUE_MISSING &&
            truce__value_equal(there, truce__value_field(truce__value_document(&one), "v", 1)))
            status = truce__ledger_report_settled(&entry->after, error);
        if (status == TRUCE_DUPLICATE)
            break;
    }
    bson_destroy(&one);
    if (status != TRUCE_NOT_FOUND)
        return status;
    status = truce__ledger_settled(&plan->reader, of, &document, error);
    if (!status)
        status = truce__ledger_report_settled(&document, error);
    bson_destroy(&document);
    return status;
}

/* Appends the guard: a document that takes one of the numbers, or settles the same transaction,
 * makes the commit a CONFLICT. */
static void commit_guard_of(const bson_t *document, bson_t *guard)
{
    bson_value_t of = truce__ledger_value(document, "resolves");
    struct ledger_change change;
    bson_t any, one, changes, element;
    uint32_t index = 0;
    char buffer[16];
    const char *key;
    size_t length;

    bson_append_array_begin(guard, "$or", 3, &any);
    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);) {
        if (!truce__ledger_change(at.value, &change))
            continue;
        length = bson_uint32_to_string(index++, &key, buffer, sizeof buffer);
        bson_append_document_begin(&any, key, (int)length, &one);
        bson_append_document_begin(&one, "changes", 7, &changes);
        bson_append_document_begin(&changes, "$elemMatch", 10, &element);
        BSON_APPEND_UTF8(&element, "account", change.account);
        BSON_APPEND_INT64(&element, "seqId", change.number);
        bson_append_document_end(&changes, &element);
        bson_append_document_end(&one, &changes);
        bson_append_document_end(&any, &one);
    }
    if (of.value_type != BSON_TYPE_EOD) {
        length = bson_uint32_to_string(index, &key, buffer, sizeof buffer);
        bson_append_document_begin(&any, key, (int)length, &one);
        BSON_APPEND_VALUE(&one, "resolves", &of);
        bson_append_document_end(&any, &one);
    }
    bson_append_array_end(guard, &any);
}

/* Settles a request whose transaction the store or the commit already has. Returns NOT_FOUND if it
 * was not posted before. */
static truce_status commit_find_posted(struct ledger_plan *plan, struct ledger_request *request,
                                       bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER, document;
    bson_iter_t iter;
    truce_status status;

    if (request->verb == LEDGER_RULES)
        return TRUCE_NOT_FOUND;
    truce__ledger_request_id(request, &holder);
    truce_assert(bson_iter_init_find(&iter, &holder, "_id"));
    status = truce_commit_read(plan->commit, plan->ledger->collection, bson_iter_value(&iter),
                               &document, error);
    if (!status && request->verb == LEDGER_POST) {
        status = truce__ledger_same(request, &document, error);
        if (!status)
            truce__ledger_settle_posted(request, &document, !request->sent);
    } else if (!status) {
        /* The document decides nothing: the plan compares the rules of an account that is open, and
         * the search for a settlement finds a release that was booked. */
        status = TRUCE_NOT_FOUND;
    }
    bson_destroy(&document);
    bson_destroy(&holder);
    return status;
}

static truce_status commit_close_pending(struct ledger_plan *plan, const bson_value_t *id,
                                         bson_error_t *error)
{
    bson_t *update = BCON_NEW("$unset", "{", "open", BCON_UTF8(""), "}");
    truce_status status =
        truce_commit_update(plan->commit, plan->ledger->collection, id, NULL, update, error);

    bson_destroy(update);
    return status;
}

/* Inserts the document, with the guard that makes the commit a CONFLICT if another process was
 * faster. */
static truce_status commit_insert(struct ledger_plan *plan, const bson_t *document,
                                  bson_error_t *error)
{
    bson_t guard = BSON_INITIALIZER;
    truce_status status;

    if (plan->ledger->slots) {
        bson_destroy(&guard);
        return truce__ledger_insert_slots(plan->commit, plan->ledger, document, error);
    }
    commit_guard_of(document, &guard);
    status =
        truce__commit_insert_keyed(plan->commit, plan->ledger->collection, &guard, document, error);
    bson_destroy(&guard);
    return status;
}

truce_status truce__ledger_post_planned(struct ledger_plan *plan, struct ledger_request *request,
                                        bson_error_t *error)
{
    bson_t document;
    bool absent = false, stale;
    truce_status status = truce__ledger_plan_together(plan, request, &absent, error);
    const bson_value_t *of = truce__ledger_of(request);

    if (!status && absent)
        status = truce__commit_know_missing(plan->commit, plan->ledger->collection,
                                            request->transaction->id, error);
    if (!status)
        status = commit_find_posted(plan, request, error);
    if (status == TRUCE_NOT_FOUND && of)
        status = commit_find_settled(plan, of, error);
    if (status != TRUCE_NOT_FOUND)
        return status;
    status = truce__ledger_plan(plan, request, &document, &stale, error);
    if (!status && bson_empty(&document)) {
        truce__ledger_settle_posted(request, &document, true);
    } else if (!status) {
        status = commit_insert(plan, &document, error);
        if (!status && truce__ledger_settles(request))
            status = commit_close_pending(plan, truce__ledger_settles(request), error);
        if (!status)
            truce__ledger_settle_posted(request, &document, false);
    }
    bson_destroy(&document);
    return status;
}

/* ---- several posts --------------------------------------------------------------------------- */

/* Returns whether the commit itself has inserted transactions, from this entry on. */
static bool commit_has_other_transactions(const truce_ledger *ledger, const truce_commit *commit,
                                          uint32_t from)
{
    for (uint32_t i = from; i < commit->count; i++) {
        const struct entry *entry = commit->entries[i];

        if (entry->known && !entry->token.found && entry->after_found &&
            !strcmp(entry->collection, ledger->collection))
            return true;
    }
    return false;
}

static struct ledger_plan_cache *plan_cache_new(truce_ledger *ledger, truce_commit *commit)
{
    struct ledger_plan_cache *kept = bson_malloc0(sizeof *kept);

    truce__ledger_plan_begin(&kept->plan, ledger, commit);
    kept->plan.alone = !commit_has_other_transactions(ledger, commit, 0);
    kept->of = commit->id;
    return kept;
}

/* Replaces the plan that the handle keeps, and returns the previous one. */
static struct ledger_plan_cache *plan_cache_exchange(truce_ledger *ledger,
                                                     struct ledger_plan_cache *kept)
{
    struct ledger_plan_cache *before;

    pthread_mutex_lock(&ledger->mutex);
    before = ledger->kept;
    ledger->kept = kept;
    pthread_mutex_unlock(&ledger->mutex);
    return before;
}

/* Takes the plan of this try from the handle. Begins a new one if anything else has added a
 * transaction to the commit. If documents were taken before the function ran, the entries are in no
 * order, so all of them are checked for such transactions, not only the later ones. */
static struct ledger_plan_cache *plan_cache_take(truce_ledger *ledger, truce_commit *commit)
{
    struct ledger_plan_cache *kept = plan_cache_exchange(ledger, NULL);

    if (kept && bson_oid_equal(&kept->of, &commit->id) &&
        !commit_has_other_transactions(ledger, commit, commit->owner ? 0 : kept->seen))
        return kept;
    truce__ledger_plan_cache_free(kept);
    return plan_cache_new(ledger, commit);
}

truce_status truce__ledger_post_in(truce_ledger *ledger, truce_commit *commit,
                                   struct ledger_request *request, bson_error_t *error)
{
    struct ledger_plan_cache *kept;
    truce_status status;

    if (commit->store != ledger->store)
        return truce__fail(TRUCE_INVALID, error,
                           "ledger \"%s\" and the commit belong to different stores",
                           ledger->collection);
    kept = plan_cache_take(ledger, commit);
    status = truce__ledger_post_planned(&kept->plan, request, error);
    kept->seen = commit->count;
    truce__ledger_plan_cache_free(status ? kept : plan_cache_exchange(ledger, kept));
    return status;
}
