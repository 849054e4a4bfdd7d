/*
 * A transfer in one step: every entry's effect under its guard, and the transfer in "done", are one commit. No mark and no fence
 * is needed, and none is touched: what others drive step by step goes on as if a plain writer had come by.
 *
 * One that is refused leaves a document, too (in "canceled"), so that the answer under this id stays what it was.
 *
 * Nearly every id is new. So where it costs nothing but the try, the first one does not look whether the transfer is there,
 * but inserts it: whatever refuses that says nothing, and the next try looks.
 */
#include "patterns/transfer/transfer_commit.h"

#include <string.h>

#include "commit/commit.h"
#include "truce/sys/store.h"

struct at_once {
    truce_transfers *transfers;
    struct transfer_plan plan;
    enum transfer_state state; /* that it enters */
    const char *reason;
    bool exists, other; /* other: with other content */
    enum transfer_state found;
    bool blind; /* nobody has looked whether it is there */
    bool
        unproved; /* an undo does not undo; unless it is there, and has changed what was looked at */
    bson_error_t why;
};

/* ---- in a commit ------------------------------------------------------------------------------ */

static truce_status commit_meet(struct at_once *once, const bson_value_t *id, const bson_t *there,
                                bson_error_t *error)
{
    char text[200];

    once->exists = true;
    once->other = !truce__transfer_same(&once->plan.document, there);
    once->found = truce__transfer_state(there);
    if (once->other)
        return truce__transfer_other(once->transfers, id, error);
    if (once->found == TRANSFER_DONE || once->found == TRANSFER_CANCELED)
        return truce__transfer_answer(once->transfers, there, error);
    return truce__fail(TRUCE_LOCKED, error, "%s is under way; `truce transfer resume` ends it",
                       truce__transfer_show(once->transfers->collection, id, text, sizeof text));
}

static truce_status add_entries(truce_commit *commit, const struct transfer_plan *plan,
                                bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < plan->count && !status; i++) {
        const struct transfer_entry *entry = &plan->entries[i];

        status =
            truce_commit_update(commit, entry->collection, &entry->id,
                                entry->has_guard ? &entry->guard : NULL, &entry->effect, error);
    }
    return status;
}

static truce_status commit_put(truce_commit *commit, const struct at_once *once,
                               bson_error_t *error)
{
    bson_t document;
    truce_status status;

    bson_copy_to(&once->plan.document, &document);
    truce__transfer_enters(once->transfers, once->state, once->reason, &document);
    status = truce_commit_insert(commit, once->transfers->collection, &document, error);
    bson_destroy(&document);
    return status;
}

/* NOT_FOUND: it is not there, and may be made. */
static truce_status commit_look(truce_commit *commit, struct at_once *once, bson_error_t *error)
{
    bson_value_t id = truce__document_id(&once->plan.document);
    bson_t there;
    truce_status status =
        truce_commit_read(commit, once->transfers->collection, &id, &there, error);

    if (!status)
        status = commit_meet(once, &id, &there, error);
    else if (status == TRUCE_NOT_FOUND && once->unproved)
        status = truce__fail(TRUCE_INVALID, error, "%s", once->why.message);
    bson_destroy(&there);
    return status;
}

/* A truce_commit_function. */
static truce_status commit_make(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct at_once *once = arg;
    truce_status status;

    once->exists = once->other = false;
    status = once->blind ? TRUCE_NOT_FOUND : commit_look(commit, once, error);
    if (status != TRUCE_NOT_FOUND || once->exists)
        return status;
    status = once->state == TRANSFER_DONE ? add_entries(commit, &once->plan, error) : TRUCE_OK;
    return status ? status : commit_put(commit, once, error);
}

/* ---- alone ------------------------------------------------------------------------------------ */

static truce_status transfer_commit_transact(struct at_once *once, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = once->transfers->mechanism,
                                    .deadline_ms = once->transfers->deadline_ms};

    return truce_transact(once->transfers->store, commit_make, once, &options, error);
}

/* It was told by an entry, and not by the store or by what stood there. */
static bool commit_is_refusal(const struct at_once *once, truce_status status)
{
    return !once->exists && !once->unproved &&
           (status == TRUCE_NOT_FOUND || status == TRUCE_INVALID || status == TRUCE_LIMIT ||
            status == TRUCE_DUPLICATE);
}

static truce_status commit_keep_refusal(struct at_once *once, const char *reason,
                                        bson_error_t *error)
{
    bson_value_t id = truce__document_id(&once->plan.document);
    char text[200];
    truce_status status;

    once->state = TRANSFER_CANCELED;
    once->reason = reason;
    status = transfer_commit_transact(once, error);
    return status || once->exists ? status
                                  : truce__fail(TRUCE_REFUSED, error, "%s is canceled: %s",
                                                truce__transfer_show(once->transfers->collection,
                                                                     &id, text, sizeof text),
                                                reason);
}

/* REFUSED: it cannot be made of what stands there now; INVALID: an undo does not undo. */
static truce_status commit_prove(struct at_once *once, bool credits, bson_error_t *error)
{
    struct transfer_look *looks = bson_malloc0(once->plan.count * sizeof *looks);
    truce_status status = truce__transfer_look(once->transfers, &once->plan, looks, error);

    if (!status)
        status = truce__transfer_prove(&once->plan, looks, credits, error);
    truce__transfer_looks_release(looks, once->plan.count);
    bson_free(looks);
    return status;
}

/* What an operator refused does not name its document. */
static void name_refusal(struct at_once *once, truce_status status, bson_error_t *why)
{
    bson_error_t named;

    if (status != TRUCE_NOT_FOUND && commit_prove(once, true, &named) == TRUCE_REFUSED)
        *why = named;
}

/* Where the store itself compares, a try that was for nothing is no round trip. */
static bool may_be_blind(const struct at_once *once)
{
    uint32_t can = once->transfers->store->capabilities,
             needed = TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_COMPARE;

    return !once->unproved && once->transfers->mechanism != TRUCE_MECHANISM_JOURNAL &&
           !(can & TRUCE_IS_TRANSACTION) && (can & needed) == needed;
}

static truce_status make_alone(struct at_once *once, bson_error_t *error)
{
    bson_value_t id = truce__document_id(&once->plan.document);
    bson_error_t why = {0};
    truce_status status;
    bool exists;

    once->blind = may_be_blind(once);
    status = transfer_commit_transact(once, &why);
    if (once->blind && commit_is_refusal(once, status)) {
        once->blind = false;
        status = transfer_commit_transact(once, &why);
    }
    if (status == TRUCE_LOCKED && once->exists && !once->other)
        return truce__transfer_drive(once->transfers, &id, NULL, &exists, error);
    if (commit_is_refusal(once, status)) {
        name_refusal(once, status, &why);
        return commit_keep_refusal(once, why.message, error);
    }
    if (status && error)
        *error = why;
    return status;
}

truce_status truce__transfer_at_once(truce_transfers *transfers, truce_commit *commit,
                                     bson_t *document, bool *exists, bson_error_t *error)
{
    struct at_once once = {.transfers = transfers, .state = TRANSFER_DONE};
    truce_status status = truce__transfer_plan(transfers, document, &once.plan, error);

    if (!status && commit && commit->store != transfers->store)
        status = truce__fail(TRUCE_INVALID, error,
                             "transfer book %s and the commit are of different stores",
                             transfers->collection);
    if (!status && truce__transfer_needs_proof(&once.plan))
        once.unproved = commit_prove(&once, false, &once.why) == TRUCE_INVALID;
    if (!status)
        status = commit ? commit_make(commit, &once, error) : make_alone(&once, error);
    *exists = once.exists;
    truce__transfer_plan_release(&once.plan);
    return status;
}
