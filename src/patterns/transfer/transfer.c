/*
 * Two-phase transfers: the handle, the stored layout, the calls, and the rules of all files.
 *
 * T is the transfer's id. A mark is T in the field `marks` of a document: the effect of T's entry
 * is made there. A fence is a counter in each document.
 *
 *     pending -> committed -> applied -> done             forward
 *     pending -> canceling -> canceled                    back
 *
 *     1. Read the fences of all documents, then insert the transfer as pending. If it exists
 *        already, read it.
 *     2. Each entry before the decision:
 *        {_id, guard, fence as read, marks: no T} -> effect, push T
 *     3. {T, pending} -> committed
 *     4. Each entry after the decision:
 *        {_id, fence as read, marks: no T} -> effect, push T
 *     5. {T, committed} -> applied; from here on no process makes an entry
 *     6. Each document:  {_id, marks: T} -> pull T, fence + 1;       then {T, applied} -> done
 *     Back: {T, pending} -> canceling; each document of an entry before the decision:
 *           {_id, marks: T} -> undo, pull T, fence + 1, or {_id, marks: no T} -> fence + 1,
 *           until one of the two matches; then {T, canceling} -> canceled
 *
 * If a write of step 2 or 4 matches nothing, the document shows why. The mark exists: the effect
 * was made. The fence moved: start again from step 1, with a read of T afterwards. The guard fails,
 * or the document is missing: go back, or report it if T is decided. Otherwise a commit held the
 * document in the meantime, and the write is sent again. A transfer without entries after the
 * decision goes from pending to applied.
 *
 * Invariants (models/transfer.cpp is the model; its mutants omit these rules one by one):
 *
 * TF1. An effect and its mark are one write, which requires that the mark is absent. So an effect
 *     is made at most once while the mark exists.
 * TF2. That write compares a fence that was read BEFORE the transfer was seen in the state that
 *     allows it (inserted, read, or decided by this caller). A write that removes a mark, or
 *     prevents it, raises the fence. So a late write of a paused process finds another fence.
 * TF3. On the way forward, marks are removed only in "applied", when no process makes entries any
 *     more, and not while another process may still credit.
 * TF4. On the way back, a document without the mark is fenced before "canceled", by a write that
 *     checks the mark once more.
 * TF5. Credits come after the decision. They cannot be taken back, so they can be spent.
 * TF6. A write that changes the state compares the state before.
 * TF7. Every write requires that the document has no intent of a commit, and writes a new _rev. So
 *     commits that read the document notice it, and a held document is waited for.
 *
 * A crash leaves a transfer between two states, and any caller continues from there. Correctness
 * does not depend on clocks; the sweep waits only to avoid needless work. An ended transfer is
 * removed after keep_ms. That time is long because an insert of the same id that was sent before
 * and takes effect later would start the transfer again.
 *
 * In one step: if the store has native commits, the transfer is one commit, which inserts T as
 * "done".
 *
 * Documents of MongoDB's recipe have no entries: all of theirs come before the decision, because
 * the recipe makes both in "pending". They have no fence either; a missing fence counts as a fence.
 *
 * Deliberately not done: a transfer's writes do not maintain unique values (`_keys`), like plain
 * writes.
 *
 *     transfer_plan.c         from a request to its document and entries; reads of the documents
 *     transfer_protocol.c     the single writes and their order
 *     transfer_maintenance.c  the sweep and the check
 */
#include "patterns/transfer/transfer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "bson/field_name_escape.h"
#include "commit/commit.h"
#include "commit/metadata_cache.h"
#include "query/input_check.h"
#include "store/repeatable_call.h"
#include "store/reserved_names.h"
#include "store/snapshot_view.h"
#include "store/store.h"
#include "truce/sys/store.h"

/* ---- in one step ----------------------------------------------------------------------------- */

/*
 * A transfer in one step: every entry's effect under its guard, and the transfer in "done", are one
 * commit. It needs no mark and no fence and changes none; for transfers that are driven step by
 * step it looks like a plain writer.
 *
 * A refused transfer leaves a document, too (in "canceled"), so that the result under this id stays
 * the same.
 *
 * Almost every id is new. So if a failed attempt is cheap, the first one inserts the transfer
 * without checking whether it exists. If that is refused for any reason, the next attempt checks.
 */

struct at_once {
    truce_transfers *transfers;
    struct transfer_plan plan;
    /* The state in which the transfer is inserted: done, or canceled with `reason`. */
    enum transfer_state state;
    const char *reason;
    /* A transfer with this id exists, in the state `found`. `other`: its content differs. */
    bool exists, other;
    enum transfer_state found;
    /* This attempt has not read whether the transfer exists. */
    bool blind;
    /* The check found, for the reason `why`, that an undo does not revert its effect. That proves
     * nothing if the transfer exists and has changed the documents. */
    bool unproved;
    bson_error_t why;
};

/* ---- in a commit ----------------------------------------------------------------------------- */

/* Reports the transfer that is stored under the id: its result if it has ended, DUPLICATE if its
 * content differs, and LOCKED if it is in progress. */
static truce_status commit_check_existing(struct at_once *once, const bson_value_t *id,
                                          const bson_t *there, bson_error_t *error)
{
    char text[200];

    once->exists = true;
    once->other = !truce__transfer_same(&once->plan.document, there);
    once->found = truce__transfer_state(there);
    if (once->other)
        return truce__transfer_other(once->transfers, id, error);
    if (once->found == TRANSFER_DONE || once->found == TRANSFER_CANCELED)
        return truce__transfer_answer(once->transfers, there, error);
    return truce__fail(TRUCE_LOCKED, error,
                       "%s is in progress; `truce transfer resume` completes it",
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

static truce_status transfer_insert_in_commit(truce_commit *commit, const struct at_once *once,
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

/* Looks for the transfer in a commit, and reports it if it exists. Returns TRUCE_NOT_FOUND if the
 * transfer does not exist and may be created. Returns TRUCE_INVALID if it does not exist and an
 * undo does not revert its effect. */
static truce_status transfer_check_commit(truce_commit *commit, struct at_once *once,
                                          bson_error_t *error)
{
    bson_value_t id = truce__document_id(&once->plan.document);
    bson_t there;
    truce_status status =
        truce_commit_read(commit, once->transfers->collection, &id, &there, error);

    if (!status)
        status = commit_check_existing(once, &id, &there, error);
    else if (status == TRUCE_NOT_FOUND && once->unproved)
        status = truce__fail(TRUCE_INVALID, error, "%s", once->why.message);
    bson_destroy(&there);
    return status;
}

/* Makes the transfer in a commit (a truce_commit_function). */
static truce_status commit_make(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct at_once *once = arg;
    truce_status status;

    once->exists = once->other = false;
    status = once->blind ? TRUCE_NOT_FOUND : transfer_check_commit(commit, once, error);
    if (status != TRUCE_NOT_FOUND || once->exists)
        return status;
    status = once->state == TRANSFER_DONE ? add_entries(commit, &once->plan, error) : TRUCE_OK;
    return status ? status : transfer_insert_in_commit(commit, once, error);
}

/* ---- alone ----------------------------------------------------------------------------------- */

static truce_status transfer_commit_transact(struct at_once *once, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = once->transfers->mechanism,
                                    .deadline_ms = once->transfers->deadline_ms};

    return truce_transact(once->transfers->store, commit_make, once, &options, error);
}

/* Returns whether an entry caused the refusal, not the store or an existing transfer. */
static bool commit_is_refusal(const struct at_once *once, truce_status status)
{
    return !once->exists && !once->unproved &&
           (status == TRUCE_NOT_FOUND || status == TRUCE_REFUSED || status == TRUCE_INVALID ||
            status == TRUCE_LIMIT || status == TRUCE_DUPLICATE);
}

/* Stores the refused transfer as canceled, so that the id keeps its result, and fails with REFUSED.
 * If it exists by now, reports that one. */
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

/* Checks that the transfer is possible. Returns TRUCE_REFUSED if the transfer is impossible with
 * the stored documents, and TRUCE_INVALID if an undo does not revert its effect. */
static truce_status commit_prove(struct at_once *once, bool credits, bson_error_t *error)
{
    struct transfer_document *documents = bson_malloc0(once->plan.count * sizeof *documents);
    truce_status status =
        truce__transfer_read_documents(once->transfers, &once->plan, documents, error);

    if (!status)
        status = truce__transfer_prove(&once->plan, documents, credits, error);
    truce__transfer_documents_release(documents, once->plan.count);
    bson_free(documents);
    return status;
}

/* Adds the document to an error of an operator, which does not name it. */
static void name_refusal(struct at_once *once, truce_status status, bson_error_t *why)
{
    bson_error_t named;

    if (status != TRUCE_NOT_FOUND && status != TRUCE_REFUSED &&
        commit_prove(once, true, &named) == TRUCE_REFUSED)
        *why = named;
}

/* Returns whether the first attempt writes without a read. If the store itself compares, a failed
 * attempt costs no round trip. */
static bool may_be_blind(const struct at_once *once)
{
    uint32_t can = once->transfers->store->capabilities,
             needed = TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_COMPARE;

    return !once->unproved && once->transfers->mechanism != TRUCE_MECHANISM_JOURNAL &&
           !(can & TRUCE_IS_TRANSACTION) && (can & needed) == needed;
}

/* Makes the transfer in a commit of its own: first without a read if that is cheap, then with one.
 * Completes an existing transfer that is in progress, and stores a refusal. */
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

/* Makes the transfer as a part of `commit`, or as a commit of its own if `commit` is NULL. Takes
 * over the document. */
static truce_status transfer_at_once(truce_transfers *transfers, truce_commit *commit,
                                     bson_t *document, bool *exists, bson_error_t *error)
{
    struct at_once once = {.transfers = transfers, .state = TRANSFER_DONE};
    truce_status status = truce__transfer_plan(transfers, document, &once.plan, error);

    if (!status && commit && commit->store != transfers->store)
        status = truce__fail(TRUCE_INVALID, error,
                             "transfer book %s and the commit belong to different stores",
                             transfers->collection);
    if (!status && truce__transfer_needs_proof(&once.plan))
        once.unproved = commit_prove(&once, false, &once.why) == TRUCE_INVALID;
    if (!status)
        status = commit ? commit_make(commit, &once, error) : make_alone(&once, error);
    *exists = once.exists;
    truce__transfer_plan_release(&once.plan);
    return status;
}

/* ---- the handle ------------------------------------------------------------------------------ */

/* Makes every call with the handle fail with this message. The first message counts. */
TRUCE_PRINTF(2, 3)
static void transfer_refuse(truce_transfers *transfers, const char *format, ...)
{
    char message[sizeof transfers->refusal.message];
    va_list arguments;

    if (transfers->refused)
        return;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    (void)truce__fail(TRUCE_INVALID, &transfers->refusal, "%s", message);
    transfers->refused = true;
}

static bool plain_field(const char *field)
{
    return !field || (field[0] && field[0] != '$' && field[0] != '_' && !strchr(field, '.') &&
                      strlen(field) <= TRANSFER_NAME_MAX);
}

/* Checks the options of a transfer book. */
static void transfer_check_options(truce_transfers *transfers,
                                   const truce_transfer_options *options)
{
    const char *marks = options->marks ? options->marks : "pendingTransactions",
               *fence = options->fence ? options->fence : "pendingFence",
               *field = options->field ? options->field : "balance";

    if (truce__reserved(options->collection) ||
        (options->accounts && truce__reserved(options->accounts)))
        transfer_refuse(transfers, "a collection of transfer book \"%.100s\" is reserved for truce",
                        options->collection);
    if (!plain_field(marks) || !plain_field(fence) || !field[0] ||
        strlen(field) > TRANSFER_NAME_MAX)
        transfer_refuse(
            transfers,
            "transfer book \"%.100s\": invalid marks \"%.60s\", fence \"%.60s\", or field "
            "\"%.60s\": expected names of 1 to 100 bytes; marks and fence are top-level fields "
            "without \"$\" or \"_\" in front",
            options->collection, marks, fence, field);
    else if (!strcmp(marks, fence) || !strcmp(marks, field) || !strcmp(fence, field))
        transfer_refuse(transfers, "transfer book \"%.100s\": field, marks, and fence must differ",
                        options->collection);
    if (options->keep_ms < -1 || (options->keep_ms > 0 && options->keep_ms < 60000))
        transfer_refuse(
            transfers,
            "transfer book \"%.100s\": keep_ms is %lld: expected 60000 or more, 0 (30 days), or "
            "-1 (forever)",
            options->collection, (long long)options->keep_ms);
}

truce_transfers *truce_transfers_new(truce_store *store, const truce_transfer_options *options)
{
    truce_transfers *transfers = bson_malloc0(sizeof *transfers);
    const char *collection = options ? options->collection : NULL;

    truce_assert(store);
    transfers->store = store;
    transfers->collection = bson_strdup(collection ? collection : "");
    pthread_mutex_init(&transfers->mutex, NULL);
    transfers->refused =
        ROOM_CHECK(options, "truce_transfer_options", &transfers->refusal) != TRUCE_OK;
    if (!collection || !collection[0]) {
        transfer_refuse(transfers, "%s", "the option `collection` of the transfers is missing");
        return transfers;
    }
    transfer_check_options(transfers, options);
    transfers->deadline_ms = options->deadline_ms ? options->deadline_ms : COMMIT_DEADLINE_MS;
    transfers->mechanism = options->mechanism;
    transfers->wanted = (struct transfer_layout){
        bson_strdup(options->accounts), bson_strdup(options->field), bson_strdup(options->marks),
        bson_strdup(options->fence),    options->resume_ms,          options->keep_ms};
    return transfers;
}

static void release_layout(struct transfer_layout *layout)
{
    bson_free(layout->accounts);
    bson_free(layout->field);
    bson_free(layout->marks);
    bson_free(layout->fence);
}

void truce_transfers_free(truce_transfers *transfers)
{
    if (!transfers)
        return;
    release_layout(&transfers->wanted);
    release_layout(&transfers->layout);
    for (uint32_t i = 0; i < transfers->retired_count; i++)
        release_layout(&transfers->retired[i]);
    bson_free(transfers->retired);
    pthread_mutex_destroy(&transfers->mutex);
    bson_free(transfers->collection);
    bson_free(transfers);
}

static bool transfers_in_one_step(const truce_transfers *transfers)
{
    return transfers->mechanism != TRUCE_MECHANISM_JOURNAL &&
           transfers->store->capabilities & TRUCE_CAN_ATOMIC_BULK;
}

/* Checks the options and the id. */
static truce_status transfers_usable(const truce_transfers *transfers, const bson_value_t *id,
                                     bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER;
    truce_status status =
        truce__handle_usable(transfers->store, transfers->refused, &transfers->refusal, error);
    bool good;

    if (!status)
        status = truce__check_value(id, "id of the transfer", error);
    /* A program passes an empty id if it did not set its variable. Different transfers would then
     * have the same id. */
    if (!status && id->value_type == BSON_TYPE_UTF8 && !id->value.v_utf8.len)
        status = truce__fail(
            TRUCE_INVALID, error,
            "the id of the transfer is an empty string: set an id of your own, the same in every "
            "retry");
    if (status)
        return status;
    BSON_APPEND_VALUE(&holder, "_id", id);
    good = truce__value_identifies(
        truce__value_field(truce__value_document(&holder), "_id", strlen("_id")));
    bson_destroy(&holder);
    return good ? TRUCE_OK
                : truce__fail(TRUCE_INVALID, error,
                              "the id of a transfer must be a string, number, ObjectId, date, "
                              "bool, or binary value");
}

/* ---- the layout that is kept ----------------------------------------------------------------- */

static const char *transfer_or_else(const char *text, const char *otherwise)
{
    return text ? text : otherwise;
}

/* Appends {_id, accounts?, field, marks, fence, resume_ms, keep_ms} of a new book. */
static void append_layout(const truce_transfers *transfers, bson_t *document)
{
    const struct transfer_layout *wanted = &transfers->wanted;

    BSON_APPEND_UTF8(document, "_id", transfers->collection);
    if (wanted->accounts)
        BSON_APPEND_UTF8(document, "accounts", wanted->accounts);
    BSON_APPEND_UTF8(document, "field", transfer_or_else(wanted->field, "balance"));
    BSON_APPEND_UTF8(document, "marks", transfer_or_else(wanted->marks, "pendingTransactions"));
    BSON_APPEND_UTF8(document, "fence", transfer_or_else(wanted->fence, "pendingFence"));
    BSON_APPEND_INT64(document, "resume_ms",
                      wanted->resume_ms ? wanted->resume_ms : TRANSFER_RESUME_MS);
    BSON_APPEND_INT64(document, "keep_ms", wanted->keep_ms ? wanted->keep_ms : TRANSFER_KEEP_MS);
}

static bool transfer_another(const char *wanted, const char *kept)
{
    return wanted && strcmp(wanted, kept) != 0;
}

/* Transfers of one layout cannot be found by another, so a different layout is refused. The
 * accounts may be given later. */
static truce_status compare_layout(const truce_transfers *transfers, const bson_t *kept,
                                   bson_error_t *error)
{
    const struct transfer_layout *wanted = &transfers->wanted;
    const struct {
        const char *name, *wanted;
    } fields[] = {{"accounts", wanted->accounts},
                  {"field", wanted->field},
                  {"marks", wanted->marks},
                  {"fence", wanted->fence}};

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const char *there = truce__field_text(kept, fields[i].name);

        if (transfer_another(fields[i].wanted, there) && (i || there[0]))
            return truce__fail(
                TRUCE_INVALID, error,
                "transfer book \"%s\" was created with %s \"%s\" and cannot be opened with "
                "\"%s\"",
                transfers->collection, fields[i].name, there, fields[i].wanted);
    }
    return TRUCE_OK;
}

/* Appends {$set: ...} with the settings that differ from the stored ones and may be changed later.
 * Appends nothing if no setting differs. */
static void transfer_append_changes(const truce_transfers *transfers, const bson_t *kept,
                                    bson_t *update)
{
    const struct transfer_layout *wanted = &transfers->wanted;
    bson_t set = BSON_INITIALIZER;

    if (wanted->accounts && !truce__field_text(kept, "accounts")[0])
        BSON_APPEND_UTF8(&set, "accounts", wanted->accounts);
    if (wanted->resume_ms && wanted->resume_ms != truce__field_number(kept, "resume_ms"))
        BSON_APPEND_INT64(&set, "resume_ms", wanted->resume_ms);
    if (wanted->keep_ms && wanted->keep_ms != truce__field_number(kept, "keep_ms"))
        BSON_APPEND_INT64(&set, "keep_ms", wanted->keep_ms);
    if (!bson_empty(&set))
        BSON_APPEND_DOCUMENT(update, "$set", &set);
    bson_destroy(&set);
}

static void transfer_take_layout(const bson_t *kept, struct transfer_layout *layout)
{
    *layout = (struct transfer_layout){bson_strdup(truce__field_text(kept, "accounts")),
                                       bson_strdup(truce__field_text(kept, "field")),
                                       bson_strdup(truce__field_text(kept, "marks")),
                                       bson_strdup(truce__field_text(kept, "fence")),
                                       truce__field_number(kept, "resume_ms"),
                                       truce__field_number(kept, "keep_ms")};
}

/* Stores the book if it does not exist, and updates its settings. If nothing had to be written,
 * returns the stored layout. Otherwise sets *again, and the caller reads again. */
static truce_status transfer_define_once(truce_transfers *transfers, struct transfer_layout *layout,
                                         bool *again, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(transfers->collection)), kept,
           update = BSON_INITIALIZER;
    truce_status status = truce_find_one(transfers->store, TRANSFERS, filter, NULL, &kept, error);

    if (status == TRUCE_NOT_FOUND) {
        append_layout(transfers, &update);
        status = truce_insert(transfers->store, TRANSFERS, &update, NULL, error);
        *again = !status || status == TRUCE_DUPLICATE;
        status = *again ? TRUCE_OK : status;
    } else if (!status) {
        status = compare_layout(transfers, &kept, error);
        transfer_append_changes(transfers, &kept, &update);
        if (!status && bson_empty(&update)) {
            transfer_take_layout(&kept, layout);
            truce__metadata_rely(transfers->store, TRANSFERS, filter);
        } else if (!status)
            status = truce_update(transfers->store, TRANSFERS, filter, &update, NULL, NULL, error);
        *again = !status && !bson_empty(&update);
    }
    bson_destroy(&update);
    bson_destroy(&kept);
    bson_destroy(filter);
    return status;
}

static truce_status transfer_define(truce_transfers *transfers, struct transfer_layout *layout,
                                    bson_error_t *error)
{
    struct worker worker;
    truce_status status;
    bool again;
    int round = 0;

    truce__worker_init(&worker, transfers->store, transfers->deadline_ms);
    do {
        again = false;
        status = transfer_define_once(transfers, layout, &again, error);
    } while ((again || truce__store_repeatable(transfers->store, status)) &&
             (round++ < 3 || !truce__worker_wait(&worker, "the store", NULL)));
    return status || !again
               ? status
               : truce__fail(TRUCE_CONFLICT, error, "transfer book \"%s\" changes constantly",
                             transfers->collection);
}

truce_status truce__transfers_layout(truce_transfers *transfers, const bson_t *book,
                                     bson_error_t *error)
{
    if (transfers->refused || !plain_field(truce__field_text(book, "marks")) ||
        !plain_field(truce__field_text(book, "fence")))
        return truce__fail(TRUCE_INVALID, error, "\"%s\" is not a valid book of transfers",
                           transfers->collection);
    release_layout(&transfers->layout);
    transfer_take_layout(book, &transfers->layout);
    return TRUCE_OK;
}

static truce_status transfer_make_indexes(const truce_transfers *transfers, bson_error_t *error)
{
    bson_t *states =
               BCON_NEW("key", "{", "state", BCON_INT32(1), "lastModified", BCON_INT32(1), "}"),
           *ends = BCON_NEW("key", "{", "expires", BCON_INT32(1), "}", "sparse", BCON_BOOL(true));
    truce_status status =
        truce__index_ensure(transfers->store, transfers->collection, states, error);

    if (!status)
        status = truce__index_ensure(transfers->store, transfers->collection, ends, error);
    bson_destroy(ends);
    bson_destroy(states);
    return status;
}

static bool same_layout(const struct transfer_layout *a, const struct transfer_layout *b)
{
    return a->accounts && !strcmp(a->accounts, b->accounts) && !strcmp(a->field, b->field) &&
           !strcmp(a->marks, b->marks) && !strcmp(a->fence, b->fence) &&
           a->resume_ms == b->resume_ms && a->keep_ms == b->keep_ms;
}

/* Replaces the current layout by `layout` if they differ: at the first call, if the settings were
 * changed, or if the book was dropped and created again. Keeps the old layout, because other
 * threads may still read it. The caller holds the mutex, and releases what remains in *layout. */
static void set_layout(truce_transfers *transfers, struct transfer_layout *layout)
{
    uint32_t count = transfers->retired_count;

    if (!same_layout(&transfers->layout, layout)) {
        transfers->retired =
            bson_realloc(transfers->retired, (count + 1) * sizeof *transfers->retired);
        transfers->retired[count] = transfers->layout;
        transfers->retired_count++;
        transfers->layout = *layout;
        *layout = (struct transfer_layout){0};
    }
}

/* Prepares the layout and the indexes. Every call that writes begins with it. */
static truce_status transfers_ready(truce_transfers *transfers, bson_error_t *error)
{
    uint64_t structure = truce__metadata_structure(transfers->store) + 1;
    struct transfer_layout layout = {0};
    truce_status status;
    bool ready;

    pthread_mutex_lock(&transfers->mutex);
    ready = transfers->structure == structure;
    pthread_mutex_unlock(&transfers->mutex);
    if (ready)
        return TRUCE_OK;
    status = truce__view_guard(transfers->store, "write", transfers->collection, error);
    if (!status)
        status = transfer_make_indexes(transfers, error);
    if (!status)
        status = transfer_define(transfers, &layout, error);
    pthread_mutex_lock(&transfers->mutex);
    if (!status && transfers->structure != structure) {
        set_layout(transfers, &layout);
        transfers->structure = structure;
    }
    pthread_mutex_unlock(&transfers->mutex);
    release_layout(&layout);
    return status;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static truce_status transfer_begin_call(truce_transfers *transfers, const bson_value_t *id,
                                        bson_error_t *error)
{
    truce_status status = transfers_usable(transfers, id, error);

    return status ? status : transfers_ready(transfers, error);
}

static truce_status transfer_check_room(const truce_transfer *transfer, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(transfer, "truce_transfer", error);

    for (uint32_t i = 0; !status && i < transfer->count; i++)
        status = ROOM_CHECK(&transfer->entries[i], "truce_transfer_entry", error);
    return status;
}

truce_status truce_transfer_start(truce_transfers *transfers, truce_commit *commit,
                                  const truce_transfer *transfer, truce_transfer_result *result,
                                  bson_error_t *error)
{
    RETURN_IF_NULL(transfer, error);

    DEADLINE_SCOPE(transfers->deadline_ms);
    truce_transfer_result unused;
    bson_t document;
    truce_status status = transfer_check_room(transfer, error);

    if (!result)
        result = &unused;
    *result = (truce_transfer_result){0};
    if (!status)
        status = transfer_begin_call(transfers, transfer->id, error);
    if (status)
        return status;
    status = truce__transfer_build(transfers, transfer, &document, error);
    if (status)
        bson_destroy(&document);
    else if (commit || transfers_in_one_step(transfers))
        status = transfer_at_once(transfers, commit, &document, &result->exists, error);
    else
        status = truce__transfer_drive(transfers, transfer->id, &document, &result->exists, error);
    return status;
}

truce_status truce_transfer_resume(truce_transfers *transfers, const bson_value_t *id,
                                   bson_error_t *error)
{
    DEADLINE_SCOPE(transfers->deadline_ms);
    truce_status status = transfer_begin_call(transfers, id, error);
    bool exists;

    return status ? status : truce__transfer_drive(transfers, id, NULL, &exists, error);
}

truce_status truce_transfer_cancel(truce_transfers *transfers, const bson_value_t *id,
                                   bson_error_t *error)
{
    DEADLINE_SCOPE(transfers->deadline_ms);
    truce_status status = transfer_begin_call(transfers, id, error);

    return status ? status : truce__transfer_undo(transfers, id, error);
}

truce_status truce_transfer_get(truce_transfers *transfers, const bson_value_t *id,
                                bson_t *document, bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    DEADLINE_SCOPE(transfers->deadline_ms);
    truce_status status = transfers_usable(transfers, id, error);
    struct worker worker;

    bson_init(document);
    if (status)
        return status;
    truce__worker_init(&worker, transfers->store, transfers->deadline_ms);
    bson_destroy(document);
    status = truce__journal_read_unguarded(&worker, transfers->collection, id, document, error);
    truce__names_restore_own(document);
    return status;
}
