/*
 * Numbers as documents, for sharded ledgers: only the index of _id is unique there. A transaction
 * is a commit of its document and of
 *
 *     {_id: {account, seqId}, tx}     for each number that it takes
 *     {_id: {resolves}, tx}           for the transaction that it settles, voids, or reverses
 *
 * in the collection `slots`. The transaction whose document is stored there has the number, or
 * settles the other transaction (LG1 and LG6 of ledger.c). Everything else works as with the index.
 * Accounts are read by their transactions, so the stub of a transaction shows its changes, and a
 * reader of the account resolves its commit first. A number whose transaction is not stored yet
 * makes the commit a CONFLICT, and the next read finds the transaction.
 *
 *     posts of one process   one commit for many, planned one after the other, without refused ones
 *     a commit that fails    its posts again, one by one, so that each gets its own reason
 *
 * The model is models/ledger_slots.cpp. Only truce may write to such a ledger: documents that other
 * programs insert take no number.
 */
#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "commit/commit.h"
#include "patterns/ledger/ledger_post.h"

/* ---- documents of numbers -------------------------------------------------------------------- */

static void slots_append_id(const char *account, int64_t number, bson_t *id)
{
    bson_t inner;

    bson_append_document_begin(id, "_id", 3, &inner);
    BSON_APPEND_UTF8(&inner, "account", account);
    BSON_APPEND_INT64(&inner, "seqId", number);
    bson_append_document_end(id, &inner);
}

static truce_status slots_insert_one(truce_commit *commit, const truce_ledger *ledger,
                                     const bson_t *key, const bson_value_t *tx, bson_error_t *error)
{
    bson_t *slot = bson_copy(key);
    truce_status status;

    BSON_APPEND_VALUE(slot, "tx", tx);
    status = truce__commit_insert_keyed(commit, ledger->slots, key, slot, error);
    bson_destroy(slot);
    return status;
}

/* Inserts the document of each number that the transaction uses. */
static truce_status slots_insert_numbers(truce_commit *commit, const truce_ledger *ledger,
                                         const bson_t *document, const bson_value_t *tx,
                                         bson_error_t *error)
{
    struct ledger_change change;
    truce_status status = TRUCE_OK;

    for (struct fields at = truce__ledger_changes(document); !status && truce__fields_next(&at);) {
        bson_t key = BSON_INITIALIZER;

        if (!truce__ledger_change(at.value, &change))
            continue;
        slots_append_id(change.account, change.number, &key);
        status = slots_insert_one(commit, ledger, &key, tx, error);
        bson_destroy(&key);
    }
    return status;
}

/* Inserts the document that makes `resolves` unique, if the transaction has the field. */
static truce_status slots_insert_resolved(truce_commit *commit, const truce_ledger *ledger,
                                          const bson_t *document, const bson_value_t *tx,
                                          bson_error_t *error)
{
    bson_value_t of = truce__ledger_value(document, "resolves");
    bson_t key = BSON_INITIALIZER, inner;
    truce_status status = TRUCE_OK;

    if (of.value_type != BSON_TYPE_EOD) {
        bson_append_document_begin(&key, "_id", 3, &inner);
        BSON_APPEND_VALUE(&inner, "resolves", &of);
        bson_append_document_end(&key, &inner);
        status = slots_insert_one(commit, ledger, &key, tx, error);
    }
    bson_destroy(&key);
    return status;
}

/* Refuses a transaction that does not fit into the commit as a whole, before any part of it is
 * written. */
static truce_status slots_check_room(const truce_commit *commit, const bson_t *document,
                                     bson_error_t *error)
{
    /* The document of the transaction, and the one that makes `resolves` unique. */
    uint32_t needed = commit->count + 2;

    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);)
        needed++;
    return needed <= TRUCE_COMMIT_DOCUMENTS_MAX
               ? TRUCE_OK
               : truce__fail(
                     TRUCE_LIMIT, error,
                     "the commit would have %u documents, and the maximum is %d: a ledger with "
                     "--slots allows %d entries in a commit without other changes",
                     needed, TRUCE_COMMIT_DOCUMENTS_MAX, LEDGER_SLOTS_ENTRIES_MAX);
}

/* Inserts a transaction in the commit, with the documents of its numbers. */
static truce_status slots_insert_all(truce_commit *commit, const truce_ledger *ledger,
                                     const bson_t *document, bson_error_t *error)
{
    bson_value_t tx = truce__ledger_value(document, "_id");
    bson_t key = BSON_INITIALIZER,
           *shows = BCON_NEW("changes.account", BCON_INT32(1), "changes.seqId", BCON_INT32(1),
                             "resolves", BCON_INT32(1));
    truce_status status;

    BSON_APPEND_VALUE(&key, "_id", &tx);
    status = truce__commit_insert_shown(commit, ledger->collection, &key, shows, document, error);
    if (!status)
        status = slots_insert_numbers(commit, ledger, document, &tx, error);
    if (!status)
        status = slots_insert_resolved(commit, ledger, document, &tx, error);
    bson_destroy(shows);
    bson_destroy(&key);
    return status;
}

truce_status truce__ledger_insert_slots(truce_commit *commit, const truce_ledger *ledger,
                                        const bson_t *document, bson_error_t *error)
{
    truce_status status = slots_check_room(commit, document, error);
    bson_error_t why = {0};

    if (status)
        return status;
    status = slots_insert_all(commit, ledger, document, &why);
    if (status && error)
        *error = why;
    /* Makes the whole commit fail. Otherwise a caller that continues with it could book a part of
     * the transaction. */
    if (status && !commit->failed) {
        commit->failed = status;
        commit->why = why;
    }
    return status;
}

/* ---- reading the documents of numbers -------------------------------------------------------- */

void truce__ledger_slot_append(const char *account, int64_t number, bson_t *ids, uint32_t *count)
{
    char text[16];
    const char *key;
    bson_t id;

    bson_uint32_to_string((*count)++, &key, text, sizeof text);
    BSON_APPEND_DOCUMENT_BEGIN(ids, key, &id);
    BSON_APPEND_UTF8(&id, "account", account);
    BSON_APPEND_INT64(&id, "seqId", number);
    bson_append_document_end(ids, &id);
}

static int slots_compare_id(const bson_t *document, const char *account, int64_t number)
{
    bson_t id;
    int order = -1;

    if (truce__value_subdocument(document, "_id", &id)) {
        int64_t own = truce__field_number(&id, "seqId");

        order = strcmp(truce__field_text(&id, "account"), account);
        order = order ? order : (own > number) - (own < number);
    }
    return order;
}

static int slots_compare(const void *a, const void *b)
{
    bson_t id;

    if (!truce__value_subdocument(*(bson_t *const *)b, "_id", &id))
        return 1;
    return slots_compare_id(*(bson_t *const *)a, truce__field_text(&id, "account"),
                            truce__field_number(&id, "seqId"));
}

truce_status truce__ledger_fetch_slots(struct ledger_reader *reader, const bson_t *ids,
                                       struct ledger_documents *documents, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", "{", "$in", BCON_ARRAY(ids), "}");
    truce_status status =
        truce__ledger_fetch_in(reader, reader->ledger->slots, filter, documents, error);

    if (documents->count)
        qsort(documents->items, documents->count, sizeof *documents->items, slots_compare);
    bson_destroy(filter);
    return status;
}

const bson_t *truce__ledger_slot(const struct ledger_documents *documents, const char *account,
                                 int64_t number)
{
    uint32_t low = 0, high = documents->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (slots_compare_id(documents->items[middle], account, number) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < documents->count && !slots_compare_id(documents->items[low], account, number)
               ? documents->items[low]
               : NULL;
}

/* ---- posts without a commit of the caller ---------------------------------------------------- */

/* The maximum number of documents in the commit of a batch, and their estimated maximum size. */
#define BATCH_DOCUMENTS (TRUCE_COMMIT_DOCUMENTS_MAX / 2)
#define BATCH_BYTES     (4 * 1024 * 1024)

/* Requests that are posted together in one commit. */
struct batch {
    truce_ledger *ledger;
    struct ledger_request **requests;
    uint32_t count;
    /* expired[i]: expired amounts were released for request i. */
    const bool *expired;
    /* The number of requests that the last run of the function handled. */
    uint32_t done;
};

/* Returns true for a status that belongs to the request, not to the store or the commit. */
static bool slots_is_refusal(truce_status status)
{
    return status == TRUCE_LIMIT || status == TRUCE_INVALID || status == TRUCE_NOT_FOUND ||
           status == TRUCE_DUPLICATE || status == TRUCE_EXPIRED;
}

static void slots_settle(struct ledger_request *request, truce_status status,
                         const bson_error_t *why)
{
    request->settled = true;
    *request->result = (truce_ledger_result){.status = status};
    if (status)
        request->result->error = *why;
}

/* Posts a batch (a truce_commit_function). The commit may run it again, and then it begins from the
 * start. */
static truce_status slots_post_batch(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct batch *batch = arg;
    struct ledger_plan plan;
    truce_status status = TRUCE_OK;

    truce__ledger_plan_begin(&plan, batch->ledger, commit);
    /* If amounts have expired, their release is booked before the post, not discounted. */
    plan.discounts = false;
    for (batch->done = 0; batch->done < batch->count; batch->done++) {
        struct ledger_request *request = batch->requests[batch->done];
        bson_error_t why = {0};

        *request->result = (truce_ledger_result){0};
        request->settled = false;
        status = truce__ledger_post_planned(&plan, request, &why);
        if (status == TRUCE_LIMIT && request->verb == LEDGER_POST && !batch->expired[batch->done] &&
            !commit->failed) {
            /* The earlier requests are committed first. Then expired amounts are released, which
             * may free enough. */
            status = TRUCE_OK;
            break;
        }
        if (slots_is_refusal(status) && !commit->failed) {
            slots_settle(request, status, &why);
            status = TRUCE_OK;
        }
        if (status && error)
            *error = why;
        if (status)
            break;
    }
    truce__ledger_plan_release(&plan);
    return status;
}

/* Returns the maximum number of documents that the commit of a request has, or 0 if that is unknown
 * before a read. */
static uint32_t slots_documents(const struct ledger_request *request)
{
    if (truce__ledger_of(request))
        return 0;
    return request->verb == LEDGER_POST ? request->transaction->count + 3 : 4;
}

static uint32_t slots_size_of(const struct ledger_request *request)
{
    return request->verb == LEDGER_POST && request->transaction->meta
               ? request->transaction->meta->len
               : 0;
}

/* Returns how many of the first requests form a batch. */
static uint32_t slots_batch(struct ledger_request **requests, uint32_t count)
{
    uint32_t taken = 0;
    uint64_t documents = 0, bytes = 0;

    while (taken < count) {
        uint32_t more = slots_documents(requests[taken]);

        documents += more;
        bytes += (uint64_t)more * 400 + slots_size_of(requests[taken]);
        if (taken && (!more || documents > BATCH_DOCUMENTS || bytes > BATCH_BYTES))
            break;
        taken++;
        if (!more)
            break;
    }
    return taken;
}

/* Commits a batch. Returns OK if batch->done requests are settled; the next one, if there is one,
 * reached a LIMIT. */
static truce_status slots_commit_batch(struct batch *batch, bson_error_t *error)
{
    struct worker worker;
    truce_commit_options options = {.deadline_ms = batch->ledger->deadline_ms};
    truce_status status;

    truce__worker_init(&worker, batch->ledger->store, batch->ledger->deadline_ms);
    for (;;) {
        status = truce_transact(batch->ledger->store, slots_post_batch, batch, &options, error);
        if (truce__unanswered(status)) {
            for (uint32_t i = 0; i < batch->count; i++)
                batch->requests[i]->sent = true;
        }
        if (!truce__repeatable(status) || truce__worker_wait(&worker, "the store", NULL))
            break;
    }
    for (uint32_t i = status ? 0 : batch->done; i < batch->count; i++)
        batch->requests[i]->settled = false;
    return status;
}

truce_status truce__ledger_run_slots(truce_ledger *ledger, struct ledger_request **requests,
                                     uint32_t count, bson_error_t *error)
{
    bool *expired = bson_malloc0(count * sizeof *expired);
    truce_status status = TRUCE_OK;
    /* `alone`: the requests before this index are posted one by one, because their batch was
     * refused. */
    uint32_t at = 0, alone = 0;
    bson_error_t why = {0};

    while (!status && at < count) {
        struct batch batch = {.ledger = ledger,
                              .requests = requests + at,
                              .count = at < alone ? 1 : slots_batch(requests + at, count - at),
                              .expired = expired + at};

        status = slots_commit_batch(&batch, &why);
        if (slots_is_refusal(status) && batch.count > 1) {
            alone = at + batch.count;
            status = TRUCE_OK;
            continue;
        }
        if (slots_is_refusal(status)) {
            slots_settle(requests[at], status, &why);
            batch.done = 1;
            status = TRUCE_OK;
        }
        if (status)
            break;
        at += batch.done;
        if (batch.done < batch.count) {
            expired[at] = true;
            (void)truce__ledger_expire_for(ledger, requests[at]);
        }
    }
    for (uint32_t i = at; status && i < count; i++)
        slots_settle(requests[i], status, &why);
    if (status && error)
        *error = why;
    bson_free(expired);
    return status;
}
