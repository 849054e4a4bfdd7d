/*
 * Commits from the caller's side: entries are collected, one for each document, and then one of
 * three mechanisms applies them.
 *
 *     one document, no key, input, or query            single_document.c     one guarded write
 *     the store changes several documents atomically   native_transaction.c  one bulk
 *     anything else                                    journal.c             intents and a commit
 *                                                                            document
 *
 * A blind change of one document is also a bulk if the store compares documents itself. A document
 * that is too large for a comparison goes to the journal. Each mechanism makes one attempt. It
 * returns OK, CONFLICT (another writer was faster, and the function must run again on the new
 * documents), or a final status.
 */
#include "commit/commit.h"

#include <string.h>

#include "base/assert.h"
#include "base/deadline.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/reserved_fields.h"
#include "bson/array.h"
#include "commit/commit_counters.h"
#include "commit/compared_changes.h"
#include "commit/metadata_cache.h"
#include "commit/unique_keys.h"
#include "query/input_check.h"
#include "query/update/update.h"
#include "store/maintenance.h"
#include "store/overlay/transaction_overlay.h"
#include "store/snapshot_view.h"
#include "store/store.h"
#include "truce/changes.h"

/* ---- begin and end -------------------------------------------------------------------------- */

/* Returns the default lease. A caller with a short deadline gets a short lease, so that others do
 * not wait for long if the caller dies. */
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
    if (!status)
        status = truce__store_not_inherited(store, error);
    if (status)
        return status;
    if (options && options->mechanism == TRUCE_MECHANISM_NATIVE &&
        !(store->capabilities & TRUCE_CAN_ATOMIC_BULK))
        return truce__fail(TRUCE_INVALID, error,
                           "a %s: store has no transactions for TRUCE_MECHANISM_NATIVE: use "
                           "TRUCE_MECHANISM_AUTO, or TRUCE_MECHANISM_JOURNAL",
                           store->ops->scheme);
    if (options && (unsigned)options->mechanism > TRUCE_MECHANISM_JOURNAL)
        return truce__fail(TRUCE_INVALID, error,
                           "unknown `mechanism` %d of a commit: expected a truce_mechanism",
                           (int)options->mechanism);
    if (options)
        status = truce__commit_key_check(options->key, options->key_time_ms, error);
    if (!status && options && options->input)
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
    truce__commit_report_earlier(*made, !status && (*made)->earlier);
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
    truce__hash_release(&commit->entry_numbers);
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

/* Returns the error of an earlier read, as every later call does. */
static truce_status commit_failed(const truce_commit *commit, bson_error_t *error)
{
    if (error)
        *error = commit->why;
    return commit->failed;
}

/* Makes every later call return this error. */
static truce_status commit_fail(truce_commit *commit, truce_status status, const bson_error_t *why,
                                bson_error_t *error)
{
    commit->why = *why;
    commit->failed = status;
    return commit_failed(commit, error);
}

/* Checks that documents of this collection can be part of the commit now. */
static truce_status commit_open_for(const truce_commit *commit, const char *collection,
                                    bson_error_t *error)
{
    const struct reserved *reserved = collection ? truce__reserved(collection) : NULL;

    if (commit->applied)
        return truce__fail(TRUCE_INVALID, error,
                           "the commit was already applied: begin another commit for more changes");
    if (commit->failed)
        return commit_failed(commit, error);
    if (!collection || !collection[0])
        return truce__fail(TRUCE_INVALID, error, "the collection name is missing");
    /* Commits of another database are stored there, where its readers look for them. */
    if (collection[0] == '@')
        return truce__fail(
            TRUCE_INVALID, error,
            "the collection \"%s\" belongs to another database: a commit changes documents of one "
            "database",
            collection);
    if (reserved && reserved->outside_commits && !commit->inside)
        return truce__fail(TRUCE_INVALID, error, "the collection \"%s\" is reserved for truce",
                           collection);
    return TRUCE_OK;
}

/* A commit with fewer entries than this compares them one by one and uses no hash table. */
#define COMMIT_NUMBERS_LEAST 16

static void commit_fill_entry_numbers(truce_commit *commit)
{
    truce__hash_release(&commit->entry_numbers);
    for (uint32_t i = 0; i < commit->count; i++)
        truce__hash_add(&commit->entry_numbers, truce__entry_hash(commit->entries[i]), i);
}

/* Returns the entry of the same document, or NULL if the commit has none. */
static struct entry *commit_find_entry(truce_commit *commit, const struct entry *wanted)
{
    struct hash_probe probe;

    for (uint32_t i = 0; commit->count < COMMIT_NUMBERS_LEAST && i < commit->count; i++)
        if (truce__entry_compare(commit->entries[i], wanted) == 0)
            return commit->entries[i];
    if (commit->count < COMMIT_NUMBERS_LEAST)
        return NULL;
    if (commit->entry_numbers.count != commit->count)
        commit_fill_entry_numbers(commit);
    probe = truce__hash_probe(&commit->entry_numbers, truce__entry_hash(wanted));
    while (truce__hash_next(&probe))
        if (truce__entry_compare(commit->entries[probe.number], wanted) == 0)
            return commit->entries[probe.number];
    return NULL;
}

/* Returns the entry of a document, and adds it if the commit has none. */
static truce_status commit_entry(truce_commit *commit, const char *collection,
                                 const bson_value_t *id, struct entry **found, bson_error_t *error)
{
    struct entry wanted = {.collection = (char *)collection};
    truce_status status = commit_open_for(commit, collection, error);

    if (status)
        return status;
    if (!id)
        return truce__fail(TRUCE_INVALID, error, "the _id of a document of \"%s\" is missing",
                           collection);
    if (!id_allowed(id))
        return truce__fail(
            TRUCE_INVALID, error,
            "the _id of a document of \"%s\" is an array, a regex, or undefined: expected any "
            "other type",
            collection);
    status = truce__check_value(id, "_id", error);
    if (status)
        return status;
    wanted.id = *id;
    *found = commit_find_entry(commit, &wanted);
    if (*found)
        return TRUCE_OK;
    if (commit->count == TRUCE_COMMIT_DOCUMENTS_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the commit has more than %d documents, which is the maximum: split it",
                           TRUCE_COMMIT_DOCUMENTS_MAX);
    if (commit->count == commit->room) {
        commit->room = commit->room ? 2 * commit->room : 8;
        commit->entries = bson_realloc(commit->entries, commit->room * sizeof(struct entry *));
    }
    *found = truce__entry_new(collection, id);
    if (commit->entry_numbers.count && commit->entry_numbers.count == commit->count)
        truce__hash_add(&commit->entry_numbers, truce__entry_hash(*found), commit->count);
    commit->entries[commit->count++] = *found;
    return TRUCE_OK;
}

bool truce__commit_marks(truce_commit *commit, const char *collection, const bson_value_t *id)
{
    const struct entry wanted = {.collection = (char *)collection, .id = *id};
    const struct entry *entry = commit_find_entry(commit, &wanted);

    return entry && (entry->token.has_rev || entry->changes_count > 0);
}

/* Waits for the lock if another commit holds it (per_key_lock.c). */
static void join_wait_queue(truce_commit *commit, uint32_t stripe)
{
    if (truce__key_lock_busy(commit->locks, stripe))
        truce__key_lock_acquire(&commit->lock, commit->locks, stripe, commit->worker.deadline_ns);
}

static bool commit_may_queue_up(const truce_commit *commit)
{
    return commit->locks && !commit->lock.held && !commit->owner;
}

void truce__commit_queue_up(truce_commit *commit, const char *collection)
{
    if (commit_may_queue_up(commit))
        join_wait_queue(commit, truce__key_lock_stripe_of_keys(collection));
}

/* Stores the document that was just read (NULL if it is missing) as the base of the entry. If the
 * collected changes do not apply to the document, the whole commit fails. */
static truce_status commit_learn(truce_commit *commit, struct entry *entry, const bson_t *document,
                                 bson_error_t *error)
{
    bson_error_t why;
    truce_status status = truce__entry_know(entry, document, true, &why);

    return status ? commit_fail(commit, status, &why, error) : TRUCE_OK;
}

/* Reads the entry's document unless the entry has its base already. */
static truce_status commit_know(truce_commit *commit, struct entry *entry, bson_error_t *error)
{
    truce_status status;
    int64_t before_ns;
    bson_error_t why;
    bson_t document;

    if (entry->known)
        return TRUCE_OK;
    if (commit_may_queue_up(commit))
        join_wait_queue(commit, truce__key_lock_stripe(entry));
    before_ns = truce__deadline_set(commit->worker.deadline_ns);
    status = truce__journal_read(&commit->worker, entry->collection, &entry->id, &document, &why);
    truce__deadline_set(before_ns);
    if (!status || status == TRUCE_NOT_FOUND)
        status = commit_learn(commit, entry, status ? NULL : &document, &why);
    bson_destroy(&document);
    if (status && error)
        *error = why;
    return status;
}

truce_status truce__commit_know_missing(truce_commit *commit, const char *collection,
                                        const bson_value_t *id, bson_error_t *error)
{
    struct entry *entry;
    truce_status status = commit_entry(commit, collection, id, &entry, error);

    return status || entry->known ? status : commit_learn(commit, entry, NULL, error);
}

truce_status truce_commit_read(truce_commit *commit, const char *collection, const bson_value_t *id,
                               bson_t *document, bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    struct entry *entry;
    truce_status status = commit_entry(commit, collection, id, &entry, error);

    if (!status)
        status = commit_know(commit, entry, error);
    if (status) {
        bson_init(document);
        return status;
    }
    bson_copy_to(&entry->after, document);
    return entry->after_found ? TRUCE_OK : truce__entry_missing(entry, error);
}

truce_status truce_commit_require(truce_commit *commit, const char *collection,
                                  const bson_value_t *id, const bson_t *guard, bson_error_t *error)
{
    struct entry *entry;
    truce_status status = commit_entry(commit, collection, id, &entry, error);

    if (!status)
        status = commit_know(commit, entry, error);
    if (!status && !entry->token.found)
        status = truce__entry_missing(entry, error);
    return status ? status : truce__entry_guard(entry, guard, error);
}

truce_status truce_commit_require_missing(truce_commit *commit, const char *collection,
                                          const bson_value_t *id, bson_error_t *error)
{
    struct entry *entry;
    truce_status status = commit_entry(commit, collection, id, &entry, error);
    char text[300];

    if (!status)
        status = commit_know(commit, entry, error);
    if (!status && entry->token.found)
        status = truce__fail(TRUCE_DUPLICATE, error,
                             "%s exists, but the commit requires that it does not",
                             truce__entry_show(entry, text, sizeof text));
    return status;
}

truce_status truce_commit_hold(truce_commit *commit, const char *collection, const bson_value_t *id,
                               const bson_t *guard, bson_error_t *error)
{
    truce_status status = truce_commit_require(commit, collection, id, guard, error);
    struct entry *entry;

    if (!status)
        status = commit_entry(commit, collection, id, &entry, error);
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
    truce_status status = commit_entry(commit, collection, id, &entry, error);

    if (!status)
        status = truce__entry_guard(entry, guard, error);
    return status ? status : truce__entry_change(entry, kind, document, compiled, error);
}

/* Adds a change to the entry of a document. `guard` and `document` are as in truce_commit_update.
 * The caller has checked the document (truce__check_required); this function checks the guard. */
static truce_status truce__commit_change(truce_commit *commit, const char *collection,
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

/* Inserts a document without an _id under a generated one. */
static truce_status commit_insert_new(truce_commit *commit, const char *collection,
                                      const bson_t *document, bson_error_t *error)
{
    bson_value_t id = {.value_type = BSON_TYPE_OID};
    bson_t whole = BSON_INITIALIZER;
    struct array inserted;
    truce_status status;

    truce__id_new(&id.value.v_oid);
    BSON_APPEND_VALUE(&whole, "_id", &id);
    bson_concat(&whole, document);
    status = insert_under(commit, collection, &id, &whole, error);
    bson_destroy(&whole);
    if (status)
        return status;
    truce__array_resume(&inserted, &commit->inserted);
    truce__array_add_value(&inserted, &id);
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

/* Returns whether the path is `_rev` or `_intent`, or a path below one of these two fields. */
static bool commit_is_ours(const char *path)
{
    size_t length = strcspn(path, ".");

    return (length == 4 && !memcmp(path, "_rev", 4)) ||
           (length == 7 && !memcmp(path, "_intent", 7));
}

/* Checks one field of an operator: the path that it changes, and for $rename also the new name. */
static truce_status commit_check_field(const char *operator, const bson_iter_t * field,
                                       bson_error_t *error)
{
    const char *name = bson_iter_key(field);

    if (!commit_is_ours(name) && !strcmp(operator, "$rename") && BSON_ITER_HOLDS_UTF8(field))
        name = bson_iter_utf8(field, NULL);
    if (!commit_is_ours(name))
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "the field \"%.100s\" is reserved for truce: a commit cannot change it",
                       name);
}

/* Compiles the operators, so that an error is reported at once, and refuses truce's own fields. */
static truce_status commit_compile_operators(const bson_t *update, struct update **compiled,
                                             bson_error_t *error)
{
    struct update_options options = {.borrows = true};
    bson_iter_t iter, field;
    truce_status status = truce__check_required(update, "update", error);

    if (status)
        return status;
    if (!bson_iter_init(&iter, update))
        return truce__fail(TRUCE_INVALID, error,
                           "the update is malformed: expected a document such as {$set: {a: 1}}");
    while (bson_iter_next(&iter)) {
        if (bson_iter_key(&iter)[0] != '$' || !BSON_ITER_HOLDS_DOCUMENT(&iter))
            return truce__fail(
                TRUCE_INVALID, error,
                "an update in a commit must consist of operators ($set, $inc ...), not \"%s\"; use "
                "replace for a whole document",
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
    bson_iter_t first;

    if (!status && bson_iter_init(&first, document) && bson_iter_next(&first) &&
        bson_iter_key(&first)[0] == '$')
        status = truce__fail(TRUCE_INVALID, error,
                             "a replacement is a whole document, without operators such as "
                             "\"%.40s\": use update for operators",
                             bson_iter_key(&first));
    return status ? status
                  : truce__commit_change(commit, collection, id, guard, CHANGE_REPLACE, document,
                                         error);
}

truce_status truce_commit_remove(truce_commit *commit, const char *collection,
                                 const bson_value_t *id, const bson_t *guard, bson_error_t *error)
{
    return truce__commit_change(commit, collection, id, guard, CHANGE_REMOVE, NULL, error);
}

/* ---- diffs (compared_changes.c) -------------------------------------------------------------- */

truce_status truce_commit_change(truce_commit *commit, const char *collection,
                                 const bson_value_t *id, const bson_t *diff, bson_error_t *error)
{
    truce_status status = truce__check_required(diff, "diff", error);

    if (!status)
        status = truce__changes_check(diff, error);
    if (status || bson_empty(diff))
        return status;
    return truce__commit_change(commit, collection, id, NULL, CHANGE_DIFF, diff, error);
}

/* Returns the _id that a string means; borrows the string. */
static bson_value_t commit_id_of_text(const char *text, uint32_t length)
{
    bson_value_t id = {.value_type = BSON_TYPE_UTF8};

    if (length == 24 && bson_oid_is_valid(text, length)) {
        id.value_type = BSON_TYPE_OID;
        bson_oid_init_from_string(&id.value.v_oid, text);
    } else {
        id.value.v_utf8.str = (char *)text;
        id.value.v_utf8.len = length;
    }
    return id;
}

truce_status truce_commit_changes(truce_commit *commit, const char *collection,
                                  const bson_t *changes, bson_error_t *error)
{
    struct fields fields;
    truce_status status = truce__check_required(changes, "changes", error);

    if (status)
        return status;
    fields = truce__fields(truce__value_document(changes));
    while (!status && truce__fields_next(&fields)) {
        bson_value_t id = commit_id_of_text(fields.key, fields.key_length);
        bson_t diff;

        if (fields.value.type != BSON_TYPE_DOCUMENT)
            return truce__fail(
                TRUCE_INVALID, error,
                "the changes of document \"%s\" are not a diff: expected {KEY: [OLD, NEW], ...}",
                fields.key);
        truce__value_bson(fields.value, &diff);
        status = truce_commit_change(commit, collection, &id, &diff, error);
        if (status == TRUCE_INVALID && error) {
            bson_error_t why = *error;

            (void)truce__fail(status, error, "\"%.100s\": %s", fields.key, why.message);
        }
    }
    return status;
}

void truce_commit_changes_fixed(truce_commit *commit)
{
    commit->fixed = true;
}

/* ---- documents by a unique key --------------------------------------------------------------- */

/*
 * Patterns find documents by a unique key such as {student_id: 1}, but commits know documents by
 * _id. The _id is looked up. A found document is read and guarded by its _id like any other, and
 * must still have the key.
 *
 * The absence of a key cannot be guarded by an _id; the unique index guards it. If the index
 * refuses an insert, another lookup decides: if a document with the key exists now, another writer
 * was faster (CONFLICT, and the function runs again and finds it). If no document has it, another
 * index refused the insert (DUPLICATE).
 */

static bool keyed_has_key(const bson_t *document, const bson_t *key)
{
    struct fields fields = truce__fields(truce__value_document(key));

    while (truce__fields_next(&fields)) {
        struct value there =
            truce__value_field(truce__value_document(document), fields.key, fields.key_length);

        if (there.type == VALUE_MISSING || !truce__value_equal(there, fields.value))
            return false;
    }
    return true;
}

/* Returns the commit's own entry with that key, or NULL. */
static struct entry *keyed_own_entry(const truce_commit *commit, const char *collection,
                                     const bson_t *key)
{
    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (!strcmp(entry->collection, collection) && entry->known && entry->after_found &&
            keyed_has_key(&entry->after, key))
            return entry;
    }
    return NULL;
}

/* Reads the stored document with that key, and resolves its intent first. Returns NOT_FOUND if
 * none exists. */
static truce_status keyed_find(truce_commit *commit, const char *collection, const bson_t *key,
                               bson_t *document, bson_error_t *error)
{
    struct worker *worker = &commit->worker;

    worker->waits = 0;
    for (;;) {
        truce_status status = truce_find_one(commit->store, collection, key, NULL, document, error);

        if (status == TRUCE_UNKNOWN)
            status = truce__worker_wait(worker, "the store", error);
        else if (status || truce__intent_absent(document))
            return status;
        else if (truce__is_only_read(commit->store))
            return truce__intent_see(commit->store, collection, document, error);
        else
            status = truce__intent_complete_other(worker, collection, document, error);
        if (status)
            return status;
        bson_destroy(document);
    }
}

static void keyed_id_of(const bson_t *document, bson_value_t *id)
{
    bson_iter_t iter;

    truce_assert(bson_iter_init_find(&iter, document, "_id"));
    bson_value_copy(bson_iter_value(&iter), id);
}

static void fresh_id(const bson_t *key, bson_value_t *id)
{
    if (bson_has_field(key, "_id")) {
        keyed_id_of(key, id);
        return;
    }
    id->value_type = BSON_TYPE_OID;
    truce__id_new(&id->value.v_oid);
}

truce_status truce__commit_read_keyed(truce_commit *commit, const char *collection,
                                      const bson_t *key, bson_value_t *id, bson_t *document,
                                      bson_error_t *error)
{
    struct entry *entry = keyed_own_entry(commit, collection, key);
    truce_status status;
    bson_iter_t iter;
    bson_t found;

    memset(id, 0, sizeof *id);
    if (entry) {
        bson_value_copy(&entry->id, id);
        return truce_commit_read(commit, collection, id, document, error);
    }
    status = keyed_find(commit, collection, key, &found, error);
    if (!status)
        status = truce__document_need_id(collection, &found, &iter, error);
    if (!status)
        bson_value_copy(bson_iter_value(&iter), id);
    else if (status == TRUCE_NOT_FOUND)
        fresh_id(key, id);
    bson_destroy(&found);
    if (status) {
        bson_init(document);
        return status;
    }
    status = truce_commit_read(commit, collection, id, document, error);
    if (!status && !keyed_has_key(document, key))
        status =
            truce__fail(TRUCE_CONFLICT, error,
                        "the key field of a document in \"%s\" changed concurrently", collection);
    return status;
}

truce_status truce__commit_insert_keyed(truce_commit *commit, const char *collection,
                                        const bson_t *key, const bson_t *document,
                                        bson_error_t *error)
{
    return truce__commit_insert_shown(commit, collection, key, NULL, document, error);
}

truce_status truce__commit_insert_shown(truce_commit *commit, const char *collection,
                                        const bson_t *key, const bson_t *shows,
                                        const bson_t *document, bson_error_t *error)
{
    truce_status status = truce_commit_insert(commit, collection, document, error);
    struct entry *entry;
    bson_value_t id;

    if (status)
        return status;
    keyed_id_of(document, &id);
    status = commit_entry(commit, collection, &id, &entry, error);
    bson_value_destroy(&id);
    if (!status && !entry->key)
        entry->key = bson_copy(key);
    if (!status && shows && !entry->shows)
        entry->shows = bson_copy(shows);
    return status;
}

/* Returns OK if another document has the entry's key, with or without an intent, and NOT_FOUND
 * otherwise. */
static truce_status keyed_is_there(truce_commit *commit, const struct entry *entry,
                                   bson_error_t *error)
{
    truce_status status;

    do {
        bson_t found;

        status = truce_find_one(commit->store, entry->collection, entry->key, NULL, &found, error);
        bson_destroy(&found);
    } while (status == TRUCE_UNKNOWN && !truce__worker_wait(&commit->worker, "the store", NULL));
    return status;
}

/* Handles a commit that was refused with DUPLICATE: CONFLICT if a document with such a key exists
 * now. */
static truce_status commit_keyed_duplicate(truce_commit *commit, bson_error_t *error)
{
    for (uint32_t i = 0; i < commit->count; i++) {
        const struct entry *entry = commit->entries[i];
        bson_error_t why = {0};
        truce_status status;

        if (!entry->key || truce__entry_net(entry) != NET_INSERT)
            continue;
        status = keyed_is_there(commit, entry, &why);
        if (!status) {
            commit->lost = true;
            commit->lost_stripe = truce__key_lock_stripe_of_keys(entry->collection);
            return truce__entry_conflict(entry, "was inserted by another writer under its key",
                                         error);
        }
        /* The read failed, so it is unknown which index refused the insert. */
        if (status != TRUCE_NOT_FOUND) {
            if (error)
                *error = why;
            return status;
        }
    }
    return TRUCE_DUPLICATE;
}

/* ---- queries --------------------------------------------------------------------------------- */

/*
 * Guarded queries of a commit: what truce_commit_find returned still holds when the commit takes
 * effect.
 *
 *     first query    opens a transaction (store/overlay), which shows one snapshot
 *     each query     checks that no document of the collection is held, writes the commit's own
 *                    changes there, and finds
 *     apply          the commit's own bulk checks everything that was read there
 *                    (native_transaction.c, CN8)
 *
 * The transaction is only read, never committed, because the commit has its changes itself. The
 * store checks what was read in the transaction when no other client writes
 * (engine/documents/read_validation.c).
 *
 * Invariants:
 *
 *  CG1  The documents that a cursor returned, and the fact that there were no more, are checked in
 *       the step that makes the commit's changes. So a commit with queries is as serializable as
 *       one that reads single documents; there are no phantoms.
 *  CG2  All queries of a try read one snapshot. A commit that only reads is complete with that, and
 *       nothing is checked again.
 *  CG3  A query never sees a document of its collections that the journal holds, and no commit with
 *       a query takes effect next to one. An unreleased change is in no index and would be a
 *       phantom. The absence of such documents is the first read, by the index on `_intent`, and it
 *       is checked like any other read. A query that encounters one completes its commit or waits,
 *       as every reader does, and uses a later snapshot. If there were queries before, the function
 *       runs again.
 *  CG4  A query sees the commit's own changes: the document is read (commit_know), changed, and
 *       written to the transaction without its validator, which checks it at the commit.
 *  CG5  Documents are not taken first (journal.c, CT1) for a function with queries: its own intents
 *       would violate CG3, and its conflicts come from documents that cannot be taken. So a
 *       function that queries many documents that change often may use up its tries; it should
 *       query fewer.
 *
 * A crash leaves nothing, because nothing is written before the bulk.
 */

/* ---- cursors --------------------------------------------------------------------------------- */

/* A cursor that a query of the commit returned. The caller may close it after the commit and after
 * the store. */
struct answer {
    /* Must be the first field: the caller gets a pointer to it. */
    truce_cursor base;
    /* The cursor of the transaction, or NULL after the end of the commit. */
    truce_cursor *under;
    /* The commit of the query, or NULL after the end of the commit. */
    truce_commit *commit;
    /* The next open cursor of the same commit. */
    struct answer *next;
};

static truce_status answer_next(truce_cursor *base, const bson_t **document, bson_error_t *error)
{
    struct answer *answer = (struct answer *)base;

    return answer->under ? truce_cursor_next(answer->under, document, error)
                         : truce__fail(TRUCE_INVALID, error,
                                       "the commit of the cursor has ended: read the cursor before "
                                       "you apply the commit");
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
    truce_store_close(commit->query_overlay);
    commit->query_overlay = NULL;
}

/* ---- access to queries ----------------------------------------------------------------------- */

/* Checks that the commit can guard a query: the store can check reads, and no document was acquired
 * first. */
static truce_status queries_check_support(truce_commit *commit, const char *collection,
                                          bson_error_t *error)
{
    truce_status status = commit_open_for(commit, collection, error);

    if (status)
        return status;
    if (!(commit->store->capabilities & TRUCE_CAN_CHECK))
        return truce__fail(TRUCE_INVALID, error,
                           "a store of the kind \"%s\" cannot guard a query of a commit; read the "
                           "documents by their _ids",
                           commit->store->ops->scheme);
    if (commit->options.mechanism == TRUCE_MECHANISM_JOURNAL)
        return truce__fail(TRUCE_INVALID, error,
                           "TRUCE_MECHANISM_JOURNAL cannot guard a query: use "
                           "TRUCE_MECHANISM_AUTO, or read the documents by their _ids");
    commit->untakeable = true; /* The journal cannot take documents first for this commit (CG5). */
    return commit->owner ? truce__fail(TRUCE_CONFLICT, error,
                                       "the commit has locked its documents first, but a commit "
                                       "with a query must run without these locks")
                         : TRUCE_OK;
}

/* ---- no document is held (CG3) --------------------------------------------------------------- */

/* Makes the index on `_intent`, unless the collection does not exist yet. */
static truce_status queries_make_index(truce_commit *commit, const char *collection,
                                       bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce__metadata_indexes(commit->store, collection, &indexes, error);
    bool exists = !status && !bson_empty(&indexes);

    bson_destroy(&indexes);
    return exists ? truce__metadata_ensure_intents(commit->store, collection, error) : status;
}

/* Finds a held document. Returns NOT_FOUND if no document is held. */
static truce_status find_held(const truce_commit *commit, const char *collection, bson_t *document,
                              bson_error_t *error)
{
    bson_t held = BSON_INITIALIZER;
    truce_status status;

    BCON_APPEND(&held, "_intent", "{", "$exists", BCON_BOOL(true), "}");
    status = truce_find_one(commit->query_overlay, collection, &held, NULL, document, error);
    bson_destroy(&held);
    return status;
}

static truce_status open_snapshot(truce_commit *commit, bson_error_t *error)
{
    const struct overlay_options options = {0};

    truce__commit_queries_forget(commit);
    return truce__overlay_open(commit->store, &options, &commit->query_overlay, error);
}

/* Checks whether the snapshot of the queries has a held document. Sets *free if it has none.
 * Otherwise, completes the commit that holds it, or waits for that commit. */
static truce_status queries_check_held(truce_commit *commit, const char *collection, bool *free,
                                       bson_error_t *error)
{
    bson_t document;
    truce_status status = find_held(commit, collection, &document, error);

    *free = status == TRUCE_NOT_FOUND;
    if (*free)
        status = TRUCE_OK;
    else if (!status && truce__journal_at_work(&document))
        status = truce__fail(
            TRUCE_LOCKED, error,
            "the commit whose function runs this query has locked a document of %s", collection);
    else if (!status)
        status = truce__intent_complete_other(&commit->worker, collection, &document, error);
    bson_destroy(&document);
    return status;
}

/* Opens the snapshot of the queries at the first one. Completes the commits that hold documents of
 * the collection in it; if a later query finds such a document, the try fails with CONFLICT. */
static truce_status find_snapshot(truce_commit *commit, const char *collection, bson_error_t *error)
{
    bool first = !commit->query_overlay, free = false;
    truce_status status = queries_make_index(commit, collection, error);

    commit->worker.waits = 0;
    while (!status && !free) {
        if (first)
            status = open_snapshot(commit, error);
        if (!status)
            status = queries_check_held(commit, collection, &free, error);
        if (!status && !free && !first)
            status = truce__fail(TRUCE_CONFLICT, error,
                                 "another commit had locked a document of %s", collection);
    }
    return status;
}

/* ---- the commit's own changes (CG4) ---------------------------------------------------------- */

static bool is_new_there(const struct entry *entry, const char *collection)
{
    return entry->changes_count > entry->shown && !strcmp(entry->collection, collection);
}

/* Writes the commit's change of one document. Removals come before inserts, so that two documents
 * may exchange a unique value. */
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
    status = truce_bulk(commit->query_overlay, &write, 1, NULL, &outcome, error);
    truce_write_result_release(&outcome.result);
    bson_destroy(&filter);
    return status;
}

/* Writes the commit's own changes of the collection into the overlay of the queries. */
static truce_status show_own(truce_commit *commit, const char *collection, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < commit->count && !status; i++)
        if (is_new_there(commit->entries[i], collection))
            status = commit_know(commit, commit->entries[i], error);
    for (int comes = 0; comes <= 1; comes++)
        for (uint32_t i = 0; i < commit->count && !status; i++)
            if (is_new_there(commit->entries[i], collection))
                status = write_own(commit, commit->entries[i], comes, error);
    for (uint32_t i = 0; i < commit->count && !status; i++)
        if (!strcmp(commit->entries[i]->collection, collection))
            commit->entries[i]->shown = commit->entries[i]->changes_count;
    return status;
}

/* ---- a query --------------------------------------------------------------------------------- */

/* Runs a query in the snapshot, with the own changes of the commit. */
static truce_status queries_open_cursor(truce_commit *commit, const char *collection,
                                        const bson_t *filter, const truce_find_options *options,
                                        truce_cursor **cursor, bson_error_t *error)
{
    bson_error_t why = {0};
    truce_cursor *under = NULL;
    truce_status status = find_snapshot(commit, collection, error);

    if (status)
        return status;
    status = show_own(commit, collection, &why);
    /* The transaction may contain only some of the commit's own changes, so the whole commit
     * fails. */
    if (status)
        return commit_fail(commit, status, &why, error);
    status = truce_find(commit->query_overlay, collection, filter, options, &under, error);
    if (!status)
        *cursor = make_answer(commit, under);
    return status;
}

truce_status truce_commit_find(truce_commit *commit, const char *collection, const bson_t *filter,
                               const truce_find_options *options, truce_cursor **cursor,
                               bson_error_t *error)
{
    RETURN_IF_NULL(cursor, error);

    truce_status status = queries_check_support(commit, collection, error);
    int64_t before_ns;

    *cursor = NULL;
    if (status)
        return status;
    before_ns = truce__deadline_set(commit->worker.deadline_ns);
    status = queries_open_cursor(commit, collection, filter, options, cursor, error);
    truce__deadline_set(before_ns);
    return status;
}

/* ---- apply ---------------------------------------------------------------------------------- */

static int commit_compare_entries(const void *a, const void *b)
{
    return truce__entry_compare(*(struct entry *const *)a, *(struct entry *const *)b);
}

/* Returns whether the write itself can compare what was read. The journal takes a document that is
 * too large for that before it compares the document. */
static bool commit_comparable(const truce_commit *commit)
{
    for (uint32_t i = 0; i < commit->count; i++) {
        if (!truce__entry_comparable(commit->store, commit->entries[i]) ||
            commit->entries[i]->reserved)
            return false;
    }
    return true;
}

static bool commit_is_native(const truce_commit *commit)
{
    return commit->options.mechanism != TRUCE_MECHANISM_JOURNAL &&
           (commit->store->capabilities & TRUCE_CAN_ATOMIC_BULK) && commit_comparable(commit);
}

/* Sets `_keys` of the entries. The fast path can apply a blind change to a document with declared
 * keys; the other mechanisms must know the keys before they take the document. */
static truce_status prepare_keys(truce_commit *commit, bool fast, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (!truce__entry_writes(entry))
            continue;
        status = truce__metadata_keyed(commit->store, entry->collection, &entry->keyed, error);
        if (!status && entry->keyed && !fast)
            status = commit_know(commit, entry, error);
        if (!status && entry->keyed && entry->known)
            status = truce__shadow_set(commit->store, entry, error);
    }
    return status;
}

/* Returns whether a blind change of one document can be one step of the store. Nothing was read, so
 * no update can be lost, and the step cannot lose a race. On a server, such a step would be a
 * transaction. */
static bool in_one_step(const truce_commit *commit)
{
    const struct entry *entry = commit->entries[0];

    return commit_is_native(commit) && (commit->store->capabilities & TRUCE_CAN_COMPARE) &&
           !entry->known && !entry->keyed && entry->changes_count > 0 &&
           !truce__entry_has_diff(entry);
}

/* Commits by the store's own step, or by the journal if the store can change these documents but
 * not guard them (native_transaction.c, CN6). On failure, documents that were taken before are
 * released. */
static truce_status commit_run_native(truce_commit *commit, bson_error_t *error)
{
    bson_error_t why = {0};
    truce_status status = truce__commit_native(commit, &why);

    if (status && commit->unguarded && commit->options.mechanism == TRUCE_MECHANISM_AUTO)
        return truce__commit_journal(commit, error);
    if (commit->owner && status)
        truce__journal_drop(commit, why.message);
    else if (commit->owner)
        truce__journal_release_entries(commit);
    if (status && error)
        *error = why;
    return status;
}

static bool is_all_that_was_taken(const truce_commit *commit)
{
    return commit->owner && commit->count == 1 && commit->entries[0]->prepared &&
           !truce__commit_has_document(commit) && commit_comparable(commit);
}

/* Chooses the mechanism and applies the commit. */
static truce_status apply_once(truce_commit *commit, bson_error_t *error)
{
    bool fast = commit->count == 1 && !truce__commit_has_document(commit) &&
                commit_comparable(commit) && !commit->owner && !commit->query_overlay;
    truce_status status = prepare_keys(commit, fast, error);

    if (status)
        return status;
    if (fast && in_one_step(commit))
        return truce__commit_native(commit, error);
    if (fast) {
        if (truce__entry_writes(commit->entries[0]))
            return truce__commit_fast(commit, error);
        /* Nothing is written, and a single document that was read is consistent without a check. */
        return TRUCE_OK;
    }
    if (commit_is_native(commit))
        return commit_run_native(commit, error);
    return is_all_that_was_taken(commit) ? truce__commit_fast_held(commit, error)
                                         : truce__commit_journal(commit, error);
}

/* Applies the collected changes once, or returns the failure that the commit already has, and
 * counts the outcome. */
static truce_status commit_apply(truce_commit *commit, bson_error_t *error)
{
    truce_status status;

    if (commit->earlier)
        return TRUCE_OK;
    if (commit->failed)
        return commit_failed(commit, error);
    if (!commit->count && !commit->options.key)
        return TRUCE_OK;
    truce__hash_release(&commit->entry_numbers);
    if (commit->count)
        qsort(commit->entries, commit->count, sizeof(struct entry *), commit_compare_entries);
    commit->worker.waits = 0;
    status = apply_once(commit, error);
    if (status == TRUCE_DUPLICATE)
        status = commit_keyed_duplicate(commit, error);
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
        return truce__fail(TRUCE_INVALID, error,
                           "the commit was already applied: begin another commit for more changes");
    commit->applied = true;
    before_ns = truce__deadline_set(commit->worker.deadline_ns);
    commit->outcome = commit_apply(commit, &why);
    truce__commit_queries_forget(commit);
    truce__deadline_set(before_ns);
    if (commit->outcome && error)
        *error = why;
    return commit->outcome;
}

truce_status truce_commit_apply(truce_commit *commit, bson_error_t *error)
{
    bool again = commit->applied;
    truce_status status = truce__store_not_inherited(commit->store, error);

    if (status)
        return status;
    status = truce__commit_apply(commit, error);
    if (again)
        return status;
    commit->outcome = truce__commit_key_decides(commit, status, error);
    truce__commit_report_earlier(commit, !commit->outcome && commit->earlier);
    return commit->outcome;
}
