#include "commit/commit.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/deadline.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "commit/counters.h"
#include "commit/metadata_cache.h"
#include "commit/shadow.h"
#include "query/incoming.h"
#include "query/update/update.h"

/*
 * Commits from the caller's side: entries are gathered and folded to one for each document, then
 * one of three ways is taken.
 *
 *     one document in all, no key, no query            fast.c     one guarded write
 *     the store changes several documents atomically   native.c   one bulk
 *     anything else                                    journal.c  intents and a commit document
 *
 * Each way is one attempt: it answers OK, CONFLICT (somebody else was faster: the function runs
 * again on what is there now), or something final.
 */

/* ---- begin and end -------------------------------------------------------------------------- */

/* Who has little time himself keeps others waiting for no longer, if he dies. */
static uint32_t default_lease(uint32_t deadline_ms)
{
    if (!deadline_ms || deadline_ms >= COMMIT_LEASE_MS)
        return COMMIT_LEASE_MS;
    return deadline_ms > COMMIT_LEASE_MS_LEAST ? deadline_ms : COMMIT_LEASE_MS_LEAST;
}

truce_status truce__commit_new(truce_store *store, const truce_commit_options *options,
                               truce_commit **made, bson_error_t *error)
{
    truce_commit *commit;
    truce_status status = ROOM_CHECK(options, "truce_commit_options", error);

    *made = NULL;
    if (status)
        return status;
    if (options && options->mechanism == TRUCE_MECHANISM_NATIVE &&
        !(store->capabilities & TRUCE_CAN_ATOMIC_BULK))
        return truce__fail(
            TRUCE_INVALID, error,
            "this store cannot change several documents in one step by itself; leave "
            "the mechanism to truce");
    if (options && options->key && (!options->key[0] || options->key_time_ms <= 0))
        return truce__fail(TRUCE_INVALID, error,
                           "an idempotency key is not empty, and comes with the time at which it "
                           "was first made (key_time_ms)");
    if (options && options->input)
        status = truce__document_check(options->input, "input", error);
    if (status)
        return status;
    commit = bson_malloc0(sizeof *commit);
    commit->store = store;
    if (options)
        commit->options = *options;
    if (commit->options.key)
        commit->options.key = bson_strdup(commit->options.key);
    if (commit->options.input)
        commit->options.input = bson_copy(commit->options.input);
    if (!commit->options.lease_ms)
        commit->options.lease_ms = default_lease(commit->options.deadline_ms);
    if (commit->options.lease_ms > COMMIT_LEASE_MS_MAX)
        commit->options.lease_ms = COMMIT_LEASE_MS_MAX;
    truce__worker_init(&commit->worker, store, commit->options.deadline_ms);
    commit->worker.relaxed = commit->options.relaxed;
    bson_init(&commit->inserted);
    truce__id_new(&commit->id);
    *made = commit;
    return TRUCE_OK;
}

truce_status truce_commit_begin(truce_store *store, const truce_commit_options *options,
                                truce_commit **made, bson_error_t *error)
{
    RETURN_IF_NULL(made, error);

    truce_status status = truce__commit_new(store, options, made, error);

    if (status || !(*made)->options.key)
        return status;
    status = truce__commit_key_holder(*made, error);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    truce__commit_tell_earlier(*made, !status && (*made)->earlier);
    if (status) {
        truce_commit_free(*made);
        *made = NULL;
    }
    return status;
}

void truce__commit_entries_free(truce_commit *commit)
{
    for (uint32_t i = 0; i < commit->count; i++)
        truce__entry_free(commit->entries[i]);
    commit->count = 0;
}

void truce_commit_free(truce_commit *commit)
{
    if (!commit)
        return;
    truce__journal_drop(commit, "it was abandoned");
    truce__commit_queries_forget(commit);
    truce__commit_entries_free(commit);
    bson_free(commit->entries);
    bson_free((char *)commit->options.key);
    bson_destroy((bson_t *)commit->options.input);
    bson_destroy(commit->result);
    bson_destroy(&commit->inserted);
    bson_free(commit);
}

const bson_oid_t *truce_commit_id(const truce_commit *commit)
{
    return &commit->id;
}

/* ---- entries -------------------------------------------------------------------------------- */

static bool id_allowed(const bson_value_t *id)
{
    return id->value_type != BSON_TYPE_EOD && id->value_type != BSON_TYPE_ARRAY &&
           id->value_type != BSON_TYPE_REGEX && id->value_type != BSON_TYPE_UNDEFINED;
}

truce_status truce__commit_failed(const truce_commit *commit, bson_error_t *error)
{
    if (error)
        *error = commit->why;
    return commit->failed;
}

truce_status truce__commit_fail(truce_commit *commit, truce_status status, const bson_error_t *why,
                                bson_error_t *error)
{
    commit->why = *why;
    commit->failed = status;
    return truce__commit_failed(commit, error);
}

truce_status truce__commit_open_for(const truce_commit *commit, const char *collection,
                                    bson_error_t *error)
{
    const struct reserved *reserved = collection ? truce__reserved(collection) : NULL;

    if (commit->applied)
        return truce__fail(TRUCE_INVALID, error, "this commit was applied already");
    if (commit->failed)
        return truce__commit_failed(commit, error);
    if (!collection || !collection[0])
        return truce__fail(TRUCE_INVALID, error, "a collection has a name");
    if (collection[0] ==
        '@') /* its commits are in that database, where its readers look for them */
        return truce__fail(TRUCE_INVALID, error,
                           "the collection \"%s\" is of another database: open the store with that "
                           "database (truce_store_options)",
                           collection);
    if (reserved && reserved->outside_commits)
        return truce__fail(TRUCE_INVALID, error, "the collection \"%s\" is truce's own",
                           collection);
    return TRUCE_OK;
}

truce_status truce__commit_entry(truce_commit *commit, const char *collection,
                                 const bson_value_t *id, struct entry **found, bson_error_t *error)
{
    struct entry *entry;
    truce_status status = truce__commit_open_for(commit, collection, error);

    if (status)
        return status;
    if (!id || !id_allowed(id))
        return truce__fail(TRUCE_INVALID, error,
                           "an _id is a value of any type but array, regex and undefined");
    status = truce__check_value(id, "_id", error);
    if (status)
        return status;
    entry = truce__entry_new(collection, id);
    for (uint32_t i = 0; i < commit->count; i++) {
        if (truce__entry_compare(commit->entries[i], entry) == 0) {
            truce__entry_free(entry);
            *found = commit->entries[i];
            return TRUCE_OK;
        }
    }
    if (commit->count == TRUCE_COMMIT_DOCUMENTS_MAX) {
        truce__entry_free(entry);
        return truce__fail(TRUCE_LIMIT, error, "a commit has at most %d documents",
                           TRUCE_COMMIT_DOCUMENTS_MAX);
    }
    if (commit->count == commit->room) {
        commit->room = commit->room ? 2 * commit->room : 8;
        commit->entries = bson_realloc(commit->entries, commit->room * sizeof(struct entry *));
    }
    commit->entries[commit->count++] = entry;
    *found = entry;
    return TRUCE_OK;
}

/* Where others stand in line for the document, so does who comes new (per_key_lock.c). */
static void queue_up(truce_commit *commit, const struct entry *entry)
{
    uint32_t place;

    if (!commit->turns || commit->turn.held || commit->owner)
        return;
    place = truce__turn_place(entry);
    if (truce__turn_busy(commit->turns, place))
        truce__turn_take(&commit->turn, commit->turns, place, commit->worker.deadline_ns);
}

truce_status truce__commit_know(truce_commit *commit, struct entry *entry, bson_error_t *error)
{
    truce_status status;
    int64_t before_ns;
    bson_error_t why;
    bson_t document;

    if (entry->known)
        return TRUCE_OK;
    queue_up(commit, entry);
    before_ns = truce__deadline_set(commit->worker.deadline_ns);
    status = truce__journal_read(&commit->worker, entry->collection, &entry->id, &document, &why);
    truce__deadline_set(before_ns);
    if (!status || status == TRUCE_NOT_FOUND) {
        status = truce__entry_know(entry, status ? NULL : &document, true, &why);
        if (status)
            status = truce__commit_fail(commit, status, &why, NULL);
    }
    bson_destroy(&document);
    if (status && error)
        *error = why;
    return status;
}

truce_status truce_commit_read(truce_commit *commit, const char *collection, const bson_value_t *id,
                               bson_t *document, bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    struct entry *entry;
    truce_status status = truce__commit_entry(commit, collection, id, &entry, error);
    char text[300];

    if (!status)
        status = truce__commit_know(commit, entry, error);
    if (status) {
        bson_init(document);
        return status;
    }
    bson_copy_to(&entry->after, document);
    return entry->after_found ? TRUCE_OK
                              : truce__fail(TRUCE_NOT_FOUND, error, "%s does not exist",
                                            truce__entry_show(entry, text, sizeof text));
}

truce_status truce_commit_require(truce_commit *commit, const char *collection,
                                  const bson_value_t *id, const bson_t *guard, bson_error_t *error)
{
    struct entry *entry;
    truce_status status = truce__commit_entry(commit, collection, id, &entry, error);
    char text[300];

    if (!status)
        status = truce__commit_know(commit, entry, error);
    if (!status && !entry->token.found)
        status = truce__fail(TRUCE_NOT_FOUND, error, "%s does not exist",
                             truce__entry_show(entry, text, sizeof text));
    return status ? status : truce__entry_guard(entry, guard, error);
}

truce_status truce_commit_require_missing(truce_commit *commit, const char *collection,
                                          const bson_value_t *id, bson_error_t *error)
{
    struct entry *entry;
    truce_status status = truce__commit_entry(commit, collection, id, &entry, error);
    char text[300];

    if (!status)
        status = truce__commit_know(commit, entry, error);
    if (!status && entry->token.found)
        status = truce__fail(TRUCE_DUPLICATE, error, "%s exists",
                             truce__entry_show(entry, text, sizeof text));
    return status;
}

truce_status truce_commit_hold(truce_commit *commit, const char *collection, const bson_value_t *id,
                               const bson_t *guard, bson_error_t *error)
{
    truce_status status = truce_commit_require(commit, collection, id, guard, error);
    struct entry *entry;

    if (!status)
        status = truce__commit_entry(commit, collection, id, &entry, error);
    if (!status)
        entry->hold = true;
    return status;
}

static truce_status commit_change(truce_commit *commit, const char *collection,
                                  const bson_value_t *id, const bson_t *guard,
                                  enum change_kind kind, const bson_t *document,
                                  const struct update *compiled, bson_error_t *error)
{
    struct entry *entry;
    truce_status status = truce__commit_entry(commit, collection, id, &entry, error);

    if (!status)
        status = truce__entry_guard(entry, guard, error);
    return status ? status : truce__entry_change(entry, kind, document, compiled, error);
}

truce_status truce__commit_change(truce_commit *commit, const char *collection,
                                  const bson_value_t *id, const bson_t *guard,
                                  enum change_kind kind, const bson_t *document,
                                  bson_error_t *error)
{
    return commit_change(commit, collection, id, guard, kind, document, NULL, error);
}

static truce_status insert_under(truce_commit *commit, const char *collection,
                                 const bson_value_t *id, const bson_t *document,
                                 bson_error_t *error)
{
    return truce__commit_change(commit, collection, id, NULL, CHANGE_INSERT, document, error);
}

/* Makes the _id that the document does not have. */
static truce_status commit_insert_new(truce_commit *commit, const char *collection,
                                      const bson_t *document, bson_error_t *error)
{
    bson_value_t id = {.value_type = BSON_TYPE_OID};
    bson_t whole = BSON_INITIALIZER;
    char number[12];
    truce_status status;

    truce__id_new(&id.value.v_oid);
    BSON_APPEND_VALUE(&whole, "_id", &id);
    bson_concat(&whole, document);
    status = insert_under(commit, collection, &id, &whole, error);
    bson_destroy(&whole);
    if (status)
        return status;
    snprintf(number, sizeof number, "%u", bson_count_keys(&commit->inserted));
    BSON_APPEND_VALUE(&commit->inserted, number, &id);
    return TRUCE_OK;
}

truce_status truce_commit_insert(truce_commit *commit, const char *collection,
                                 const bson_t *document, bson_error_t *error)
{
    bson_iter_t iter;
    truce_status status = truce__check_required(document, "document", error);

    if (status)
        return status;
    return bson_iter_init_find(&iter, document, "_id")
               ? insert_under(commit, collection, bson_iter_value(&iter), document, error)
               : commit_insert_new(commit, collection, document, error);
}

const bson_t *truce_commit_inserted(const truce_commit *commit)
{
    return &commit->inserted;
}

/* `_rev`, `_intent`, or a path into one of them */
static bool commit_is_ours(const char *path)
{
    size_t length = strcspn(path, ".");

    return (length == 4 && !memcmp(path, "_rev", 4)) ||
           (length == 7 && !memcmp(path, "_intent", 7));
}

/* Of one field of an operator: what it changes, and for $rename what it becomes. */
static truce_status commit_check_field(const char *operator, const bson_iter_t * field,
                                       bson_error_t *error)
{
    const char *name = bson_iter_key(field);

    if (!commit_is_ours(name) && !strcmp(operator, "$rename") && BSON_ITER_HOLDS_UTF8(field))
        name = bson_iter_utf8(field, NULL);
    if (!commit_is_ours(name))
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "the field \"%.100s\" belongs to truce: a commit cannot change it", name);
}

/* Compiles the operators, so that a mistake is told at once, and looks for truce's own fields among
 * them. */
static truce_status commit_compile_operators(const bson_t *update, struct update **compiled,
                                             bson_error_t *error)
{
    struct update_options options = {.borrows = true};
    bson_iter_t iter, field;
    truce_status status = truce__check_required(update, "update", error);

    if (status)
        return status;
    if (!bson_iter_init(&iter, update))
        return truce__fail(TRUCE_INVALID, error, "the update is not a document");
    while (bson_iter_next(&iter)) {
        if (bson_iter_key(&iter)[0] != '$' || !BSON_ITER_HOLDS_DOCUMENT(&iter))
            return truce__fail(TRUCE_INVALID, error,
                               "an update in a commit is made of operators ($set, $inc ...), not "
                               "\"%s\"; use truce_commit_replace for a whole document",
                               bson_iter_key(&iter));
        if (!bson_iter_recurse(&iter, &field))
            continue;
        while (!status && bson_iter_next(&field))
            status = commit_check_field(bson_iter_key(&iter), &field, error);
        if (status)
            return status;
    }
    return truce__update_new(update, &options, compiled, error);
}

truce_status truce_commit_update(truce_commit *commit, const char *collection,
                                 const bson_value_t *id, const bson_t *guard, const bson_t *update,
                                 bson_error_t *error)
{
    struct update *compiled = NULL;
    truce_status status = commit_compile_operators(update, &compiled, error);

    if (!status)
        status =
            commit_change(commit, collection, id, guard, CHANGE_UPDATE, update, compiled, error);
    truce__update_free(compiled);
    return status;
}

truce_status truce_commit_replace(truce_commit *commit, const char *collection,
                                  const bson_value_t *id, const bson_t *guard,
                                  const bson_t *document, bson_error_t *error)
{
    truce_status status = truce__check_required(document, "document", error);

    return status ? status
                  : truce__commit_change(commit, collection, id, guard, CHANGE_REPLACE, document,
                                         error);
}

truce_status truce_commit_remove(truce_commit *commit, const char *collection,
                                 const bson_value_t *id, const bson_t *guard, bson_error_t *error)
{
    return truce__commit_change(commit, collection, id, guard, CHANGE_REMOVE, NULL, error);
}

/* ---- what the mechanisms share -------------------------------------------------------------- */

truce_status truce__commit_conflict(const struct entry *entry, const char *why, bson_error_t *error)
{
    char text[300];

    return truce__fail(TRUCE_CONFLICT, error, "%s %s", truce__entry_show(entry, text, sizeof text),
                       why);
}

truce_status truce__commit_same(const struct entry *entry, const bson_t *document,
                                bson_error_t *error)
{
    struct token token;
    truce_status status = truce__token_of(document, &token, error);

    truce_assert(entry->known);
    if (status)
        return status;
    if (token.found != entry->token.found)
        return truce__commit_conflict(entry, token.found ? "was inserted" : "was removed", error);
    if (!truce__token_same(&token, &entry->token))
        return truce__commit_conflict(entry, "was changed by another commit", error);
    if (token.found && !bson_equal(document, &entry->base))
        return truce__commit_conflict(entry, "was changed by a plain write", error);
    return TRUCE_OK;
}

truce_status truce__commit_take(truce_commit *commit, struct entry *entry, const bson_t *document,
                                bson_error_t *error)
{
    truce_status status = truce__entry_take(entry, document, error);

    return !status && entry->keyed ? truce__shadow_set(commit->store, entry, error) : status;
}

truce_status truce__commit_exists(const struct entry *entry, bson_error_t *error)
{
    char text[300];

    return truce__refuse(CODE_DUPLICATE_KEY, error, "%s exists already",
                         truce__entry_show(entry, text, sizeof text));
}

truce_status truce__commit_blame(struct entry *entry, const bson_t *document, bson_error_t *error)
{
    truce_assert(!entry->known);
    return truce__entry_take(entry, document, error);
}

/* ---- apply ---------------------------------------------------------------------------------- */

static int commit_compare_entries(const void *a, const void *b)
{
    return truce__entry_compare(*(struct entry *const *)a, *(struct entry *const *)b);
}

/* What was read is compared in the write itself, or, where it is too large for that, by the journal,
 * which takes a document before it compares. */
static bool commit_comparable(const truce_commit *commit)
{
    for (uint32_t i = 0; i < commit->count; i++) {
        if (!truce__entry_comparable(commit->store, commit->entries[i]) ||
            commit->entries[i]->reserved)
            return false;
    }
    return true;
}

static bool native(const truce_commit *commit)
{
    return commit->options.mechanism != TRUCE_MECHANISM_JOURNAL &&
           (commit->store->capabilities & TRUCE_CAN_ATOMIC_BULK) && commit_comparable(commit);
}

/* Only the fast path takes a blind change of a document with declared keys as it is: the others must
 * know the keys before they take the document. */
static truce_status prepare_keys(truce_commit *commit, bool fast, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (!truce__entry_writes(entry))
            continue;
        status = truce__memo_keyed(commit->store, entry->collection, &entry->keyed, error);
        if (!status && entry->keyed && !fast)
            status = truce__commit_know(commit, entry, error);
        if (!status && entry->keyed && entry->known)
            status = truce__shadow_set(commit->store, entry, error);
    }
    return status;
}

/* A blind change of one document by the store's own step: nothing was read, so nothing can be lost, and no
 * race with others has to be won. Not on a server, where that step is a transaction. */
static bool in_one_step(const truce_commit *commit)
{
    const struct entry *entry = commit->entries[0];

    return native(commit) && (commit->store->capabilities & TRUCE_CAN_COMPARE) && !entry->known &&
           !entry->keyed && entry->changes_count > 0 && !truce__entry_has_diff(entry);
}

/* Or by the journal, where the store can change these documents and cannot guard them (N6). What was taken
 * before is given back if it came to nothing. */
static truce_status natively(truce_commit *commit, bson_error_t *error)
{
    bson_error_t why = {0};
    truce_status status = truce__commit_native(commit, &why);

    if (status && commit->unguarded && commit->options.mechanism == TRUCE_MECHANISM_AUTO)
        return truce__commit_journal(commit, error);
    if (commit->owner && status)
        truce__journal_drop(commit, why.message);
    else if (commit->owner)
        truce__journal_let_go(commit);
    if (status && error)
        *error = why;
    return status;
}

static bool is_all_that_was_taken(const truce_commit *commit)
{
    return commit->owner && commit->count == 1 && commit->entries[0]->prepared &&
           !truce__commit_is_kept(commit) && commit_comparable(commit);
}

static truce_status apply_once(truce_commit *commit, bson_error_t *error)
{
    bool fast = commit->count == 1 && !truce__commit_is_kept(commit) && commit_comparable(commit) &&
                !commit->owner && !commit->asked;
    truce_status status = prepare_keys(commit, fast, error);

    if (status)
        return status;
    if (fast && in_one_step(commit))
        return truce__commit_native(commit, error);
    if (fast) {
        if (truce__entry_writes(commit->entries[0]))
            return truce__commit_fast(commit, error);
        return TRUCE_OK; /* one look at one document is consistent by itself */
    }
    if (native(commit))
        return natively(commit, error);
    return is_all_that_was_taken(commit) ? truce__commit_fast_held(commit, error)
                                         : truce__commit_journal(commit, error);
}

static truce_status commit_commit_apply(truce_commit *commit, bson_error_t *error)
{
    truce_status status;

    if (commit->earlier)
        return TRUCE_OK;
    if (commit->failed)
        return truce__commit_failed(commit, error);
    if (!commit->count && !commit->options.key)
        return TRUCE_OK;
    if (commit->count)
        qsort(commit->entries, commit->count, sizeof(struct entry *), commit_compare_entries);
    commit->worker.waits = 0;
    status = apply_once(commit, error);
    if (status == TRUCE_DUPLICATE)
        status = truce__commit_keyed_duplicate(commit, error);
    if (!status)
        COUNT(committed);
    else if (status == TRUCE_CONFLICT)
        COUNT(conflicts);
    else if (status == TRUCE_UNKNOWN)
        COUNT(unknown);
    return status;
}

truce_status truce__commit_apply(truce_commit *commit, bson_error_t *error)
{
    int64_t before_ns;
    bson_error_t why;

    if (commit->applied)
        return truce__fail(TRUCE_INVALID, error, "this commit was applied already");
    commit->applied = true;
    before_ns = truce__deadline_set(commit->worker.deadline_ns);
    commit->outcome = commit_commit_apply(commit, &why);
    truce__commit_queries_forget(commit);
    truce__deadline_set(before_ns);
    if (commit->outcome && error)
        *error = why;
    return commit->outcome;
}

truce_status truce_commit_apply(truce_commit *commit, bson_error_t *error)
{
    bool again = commit->applied;
    truce_status status = truce__commit_apply(commit, error);

    if (again)
        return status;
    commit->outcome = truce__commit_key_decides(commit, status, error);
    truce__commit_tell_earlier(commit, !commit->outcome && commit->earlier);
    return commit->outcome;
}
