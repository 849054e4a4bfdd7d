/*
 * Guarded queries of a commit: what truce_commit_find has shown is so still when the commit takes effect.
 *
 *     first query    a transaction (store/overlay) is opened, which shows one moment
 *     each query     nobody holds a document of the collection | what the commit has changed of it is written there | find
 *     apply          the commit's own bulk, with all that was read there as its checks (native.c, N8)
 *
 * The transaction is read, and never committed: the commit has its changes itself. What was read in it is what the store
 * looks at again where nobody else writes (engine/documents/bulk_check.c).
 *
 * Invariants:
 *
 *   G1  What a cursor has given, and that there was no more where it came to its end, is looked at in the step that
 *       makes the commit's changes. So a commit with queries is as serializable as one that reads single documents; there
 *       are no phantoms.
 *   G2  All queries of a try show one moment. One that only asks is done with that: nothing is looked at again.
 *   G3  A query never sees, and no commit of one takes effect beside, a document of its collections that the journal holds:
 *       what a decided commit has not released yet is in no index, and would be a phantom. That there was none is read as
 *       the first thing, by the index on `_intent`, and looked at again like all that was read. Who meets one helps or waits, as every
 *       reader does, and takes a later moment; if there were queries before, the function runs again.
 *   G4  The commit's own changes of a document are shown: it is read (truce__commit_know), so that they can be made, and
 *       written there without its validator, which looks at it at the commit.
 *   G5  Documents are not taken for a function that asks (journal_take.c): its own intents would be in the way of G3, and what
 *       it loses by is no document that could be taken. So one that asks for much, of what many change, may come to its
 *       last try; it should ask for less.
 *
 * A crash leaves nothing: until the bulk nothing was written.
 */
#include "commit/commit.h"

#include "base/deadline.h"
#include "base/null.h"
#include "commit/metadata_cache.h"
#include "store/overlay/overlay.h"

/* ---- cursors ---------------------------------------------------------------------------------- */

/* A cursor of the caller's, who may close it after the commit, and after the store. */
struct answer {
    truce_cursor base;    /* first */
    truce_cursor *under;  /* NULL: the commit has ended */
    truce_commit *commit; /* the same */
    struct answer *next;  /* of the commit's */
};

static truce_status answer_next(truce_cursor *base, const bson_t **document, bson_error_t *error)
{
    struct answer *answer = (struct answer *)base;

    return answer->under ? truce_cursor_next(answer->under, document, error)
                         : truce__fail(TRUCE_INVALID, error, "the commit of the cursor has ended");
}

static void end_answer(struct answer *answer)
{
    truce_cursor_close(answer->under);
    answer->under = NULL;
    answer->commit = NULL;
}

static void answer_close(truce_cursor *base)
{
    struct answer *answer = (struct answer *)base;

    if (answer->commit) {
        struct answer **at = &answer->commit->answers;

        while (*at != answer)
            at = &(*at)->next;
        *at = answer->next;
    }
    end_answer(answer);
    bson_free(answer);
}

static truce_cursor *make_answer(truce_commit *commit, truce_cursor *under)
{
    static const truce_cursor_ops ops = {answer_next, answer_close};
    struct answer *answer = bson_malloc0(sizeof *answer);

    answer->base.ops = &ops;
    answer->under = under;
    answer->commit = commit;
    answer->next = commit->answers;
    commit->answers = answer;
    return &answer->base;
}

void truce__commit_queries_forget(truce_commit *commit)
{
    while (commit->answers) {
        struct answer *answer = commit->answers;

        commit->answers = answer->next;
        end_answer(answer);
    }
    truce_store_close(commit->asked);
    commit->asked = NULL;
}

/* ---- who may ask ------------------------------------------------------------------------------ */

static truce_status can_ask(truce_commit *commit, const char *collection, bson_error_t *error)
{
    truce_status status = truce__commit_open_for(commit, collection, error);

    if (status)
        return status;
    if (!(commit->store->capabilities & TRUCE_CAN_CHECK))
        return truce__fail(TRUCE_INVALID, error,
                           "a store of the kind \"%s\" cannot guard a query of a commit; read the "
                           "documents by their _ids",
                           commit->store->ops->scheme);
    if (commit->options.mechanism == TRUCE_MECHANISM_JOURNAL)
        return truce__fail(TRUCE_INVALID, error,
                           "the journal cannot guard a query; leave the mechanism to truce");
    commit->untakeable = true; /* G5 */
    return commit->owner ? truce__fail(TRUCE_CONFLICT, error,
                                       "documents were taken for a commit that has queries")
                         : TRUCE_OK;
}

/* ---- nobody holds a document (G3) ------------------------------------------------------------- */

/* In a collection that is not there yet, nothing is made. */
static truce_status queries_make_index(truce_commit *commit, const char *collection,
                                       bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce__memo_indexes(commit->store, collection, &indexes, error);
    bool exists = !status && !bson_empty(&indexes);

    bson_destroy(&indexes);
    return exists ? truce__memo_intents(commit->store, collection, error) : status;
}

/* NOT_FOUND: nobody does. */
static truce_status find_held(const truce_commit *commit, const char *collection, bson_t *document,
                              bson_error_t *error)
{
    bson_t held = BSON_INITIALIZER;
    truce_status status;

    BCON_APPEND(&held, "_intent", "{", "$exists", BCON_BOOL(true), "}");
    status = truce_find_one(commit->asked, collection, &held, NULL, document, error);
    bson_destroy(&held);
    return status;
}

static truce_status open_moment(truce_commit *commit, bson_error_t *error)
{
    const struct overlay_options options = {0};

    truce__commit_queries_forget(commit);
    return truce__overlay_open(commit->store, &options, &commit->asked, error);
}

/* *free: nobody holds one in the moment of the queries; otherwise who holds one was helped or waited for. */
static truce_status queries_look_for_held(truce_commit *commit, const char *collection, bool *free,
                                          bson_error_t *error)
{
    bson_t document;
    truce_status status = find_held(commit, collection, &document, error);

    *free = status == TRUCE_NOT_FOUND;
    if (*free)
        status = TRUCE_OK;
    else if (!status && truce__journal_at_work(&document))
        status = truce__fail(TRUCE_LOCKED, error,
                             "a document of %s is held by the commit within whose function this "
                             "one asks",
                             collection);
    else if (!status)
        status = truce__intent_meet(&commit->worker, collection, &document, error);
    bson_destroy(&document);
    return status;
}

static truce_status find_moment(truce_commit *commit, const char *collection, bson_error_t *error)
{
    bool first = !commit->asked, free = false;
    truce_status status = queries_make_index(commit, collection, error);

    commit->worker.waits = 0;
    while (!status && !free) {
        if (first)
            status = open_moment(commit, error);
        if (!status)
            status = queries_look_for_held(commit, collection, &free, error);
        if (!status && !free && !first)
            status = truce__fail(TRUCE_CONFLICT, error, "a document of %s was held by a commit",
                                 collection);
    }
    return status;
}

/* ---- what the commit has changed (G4) --------------------------------------------------------- */

static bool is_new_there(const struct entry *entry, const char *collection)
{
    return entry->changes_count > entry->shown && !strcmp(entry->collection, collection);
}

/* Its documents go before any comes, so that two may trade a unique value. */
static truce_status write_own(truce_commit *commit, struct entry *entry, bool comes,
                              bson_error_t *error)
{
    bson_t filter;
    truce_write write = {.kind = comes ? TRUCE_WRITE_INSERT : TRUCE_WRITE_REMOVE,
                         .collection = entry->collection,
                         .filter = comes ? NULL : &filter,
                         .document = comes ? &entry->after : NULL,
                         .options.unvalidated = true};
    truce_write_outcome outcome;
    truce_status status;

    if (comes && !entry->after_found)
        return TRUCE_OK;
    truce__filter_id(&entry->id, &filter);
    status = truce_bulk(commit->asked, &write, 1, NULL, &outcome, error);
    truce_write_result_release(&outcome.result);
    bson_destroy(&filter);
    return status;
}

static truce_status show_own(truce_commit *commit, const char *collection, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < commit->count && !status; i++)
        if (is_new_there(commit->entries[i], collection))
            status = truce__commit_know(commit, commit->entries[i], error);
    for (int comes = 0; comes <= 1; comes++)
        for (uint32_t i = 0; i < commit->count && !status; i++)
            if (is_new_there(commit->entries[i], collection))
                status = write_own(commit, commit->entries[i], comes, error);
    for (uint32_t i = 0; i < commit->count && !status; i++)
        if (!strcmp(commit->entries[i]->collection, collection))
            commit->entries[i]->shown = commit->entries[i]->changes_count;
    return status;
}

/* ---- a query ---------------------------------------------------------------------------------- */

static truce_status queries_ask(truce_commit *commit, const char *collection, const bson_t *filter,
                                const truce_find_options *options, truce_cursor **cursor,
                                bson_error_t *error)
{
    bson_error_t why = {0};
    truce_cursor *under = NULL;
    truce_status status = find_moment(commit, collection, error);

    if (status)
        return status;
    status = show_own(commit, collection, &why);
    if (status) /* half of it may be shown */
        return truce__commit_fail(commit, status, &why, error);
    status = truce_find(commit->asked, collection, filter, options, &under, error);
    if (!status)
        *cursor = make_answer(commit, under);
    return status;
}

truce_status truce_commit_find(truce_commit *commit, const char *collection, const bson_t *filter,
                               const truce_find_options *options, truce_cursor **cursor,
                               bson_error_t *error)
{
    RETURN_IF_NULL(cursor, error);

    truce_status status = can_ask(commit, collection, error);
    int64_t before_ns;

    *cursor = NULL;
    if (status)
        return status;
    before_ns = truce__deadline_set(commit->worker.deadline_ns);
    status = queries_ask(commit, collection, filter, options, cursor, error);
    truce__deadline_set(before_ns);
    return status;
}
