/*
 * Posts without a commit: they are planned one after the other in memory, and sent as one ordered
 * bulk.
 *
 * The remembered state of an account is right after its number. A post therefore begins with the
 * insert itself: one round trip, and on a server a second one, which reads whether the remembered
 * numbers are still there (below). If a number is taken, the post reads the account.
 *
 *     plan --(refused by a remembered state)--> read, plan again
 *       |  --(refused by a state that was read)--> when the earlier ones are posted: does it exist?
 *       |                                          if not, it is refused
 *       v
 *     send --(taken at n)--> those before n are posted. n: it exists, `of` is settled, or a number
 *       |                    is taken: read again. Those after n were not reached: plan again
 *       v  --(no reply)----> all may be stored: plan again under the same ids, which find
 *       |                    themselves (LG7 of ledger.c)
 *     posted
 *
 * A request that is refused after planned ones is refused if all of these take effect: then it was
 * checked against the stored state. If one of them does not take effect, the request is planned
 * again, with all following ones. A request waits until the planned ones have taken effect if it
 * settles or reverses a transaction, or if expired amounts may help it. In the meantime, nothing is
 * planned after it.
 */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "bson/array.h"
#include "patterns/ledger/ledger_post.h"
#include "store/store.h"

/* ---- results --------------------------------------------------------------------------------- */

/* Sets the result of a request. A request that was found among the posted ones and then refused
 * keeps nothing of what was found. */
static void ledger_batch_settle(struct ledger_request *request, truce_status status,
                                const bson_error_t *error)
{
    request->settled = true;
    *request->result = (truce_ledger_result){.status = status};
    if (status && error)
        request->result->error = *error;
}

void truce__ledger_settle_posted(struct ledger_request *request, const bson_t *document,
                                 bool exists)
{
    ledger_batch_settle(request, TRUCE_OK, NULL);
    request->result->exists = exists;
    request->result->booked_ms = truce__ledger_date(document, "ts");
}

/* ---- a batch --------------------------------------------------------------------------------- */

/* A refusal of request `at`. It becomes final when the first `position` documents of the batch are
 * posted. */
struct refusal {
    uint32_t at, position;
    truce_status status;
    bson_error_t why;
};

struct ledger_batch {
    truce_ledger *ledger;
    struct ledger_request **requests;
    uint32_t count;
    struct ledger_plan plan;
    /* The next plan reads every account. */
    bool fresh;
    /* How often in a row a number was taken, and how often in a row no transaction had that
     * number. */
    int taken, free;
    /* All ids of the batch were looked up. */
    bool sought;
    /* expired[i]: expired amounts were released for request i. Owned. */
    bool *expired;
    struct refusal *refusals;
    uint32_t refusals_count, refusals_room;
    /* The planned documents, and for each the index of its request. Both arrays are owned, and
     * `planned` of their elements are valid. */
    bson_t **documents;
    uint32_t *owners;
    uint32_t planned;
    /* The sum of the sizes of the planned documents. */
    size_t bytes;
};

/* A batch is full when its documents have this size. */
#define ROUND_BYTES (16 * 1024 * 1024)

/* Reads the transaction with the id of the request. `document` is always initialized. */
static truce_status ledger_batch_look_up(struct ledger_batch *batch,
                                         const struct ledger_request *request, bson_t *document,
                                         bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER;
    bson_iter_t iter;
    truce_status status;

    truce__ledger_request_id(request, &holder);
    truce_assert(bson_iter_init_find(&iter, &holder, "_id"));
    status =
        truce__ledger_transaction(&batch->plan.reader, bson_iter_value(&iter), document, error);
    bson_destroy(&holder);
    return status;
}

/* Settles a request that was posted before, with the same content or another. */
static void ledger_batch_settle_found(struct ledger_request *request, const bson_t *document,
                                      bson_error_t *error)
{
    truce_status same = truce__ledger_same(request, document, error);

    if (same)
        ledger_batch_settle(request, same, error);
    else
        truce__ledger_settle_posted(request, document, !request->sent);
}

/* Looks for the request's document. Returns NOT_FOUND if it was not posted before, and OK if the
 * request is settled. */
static truce_status ledger_batch_find_posted(struct ledger_batch *batch,
                                             struct ledger_request *request, bson_error_t *error)
{
    bson_t document;
    truce_status status;

    if (request->verb == LEDGER_OPEN || request->verb == LEDGER_RULES)
        /* The plan will find whether the rules are the same, so nothing is looked up. */
        return TRUCE_NOT_FOUND;
    status = ledger_batch_look_up(batch, request, &document, error);
    if (!status)
        ledger_batch_settle_found(request, &document, error);
    bson_destroy(&document);
    return status;
}

const bson_value_t *truce__ledger_of(const struct ledger_request *request)
{
    return request->verb == LEDGER_EXPIRE ? request->of
           : request->verb == LEDGER_POST ? request->transaction->of
                                          : NULL;
}

truce_status truce__ledger_report_settled(const bson_t *document, bson_error_t *error)
{
    char text[200];
    bson_t id = BSON_INITIALIZER;
    bson_value_t by = truce__ledger_value(document, "_id");

    BSON_APPEND_VALUE(&id, "_id", &by);
    (void)truce__fail(TRUCE_DUPLICATE, error,
                      "the transaction was already settled, voided, or reversed by %s",
                      truce__value_show(truce__value_field(truce__value_document(&id), "_id", 3),
                                        text, sizeof text));
    bson_destroy(&id);
    return TRUCE_DUPLICATE;
}

/* Looks for the transaction that settled `of` (LG6). Returns NOT_FOUND if none did, and OK if the
 * request is settled as a DUPLICATE. */
static truce_status ledger_batch_find_settled(struct ledger_batch *batch,
                                              struct ledger_request *request, bson_error_t *error)
{
    const bson_value_t *of = truce__ledger_of(request);
    bson_t document;
    truce_status status;

    if (!of)
        return TRUCE_NOT_FOUND;
    status = truce__ledger_settled(&batch->plan.reader, of, &document, error);
    if (!status)
        ledger_batch_settle(request, truce__ledger_report_settled(&document, error), error);
    bson_destroy(&document);
    return status;
}

/* ---- planning a batch ------------------------------------------------------------------------ */

static void ledger_batch_keep(struct ledger_batch *batch, uint32_t owner, const bson_t *document)
{
    batch->documents[batch->planned] = bson_copy(document);
    batch->owners[batch->planned++] = owner;
    batch->bytes += document->len;
}

/* Releases expired amounts for a request that found too little available. Returns true if something
 * was released. */
static bool ledger_batch_expire_for(struct ledger_batch *batch, uint32_t at)
{
    const struct ledger_request *request = batch->requests[at];

    if (batch->expired[at] || request->verb != LEDGER_POST)
        return false;
    batch->expired[at] = true;
    return truce__ledger_expire_for(batch->ledger, request);
}

/* Settles a refused request, unless it was posted, or its `of` settled, before. */
static truce_status ledger_batch_settle_refused(struct ledger_batch *batch, uint32_t at,
                                                truce_status status, const bson_error_t *why,
                                                bson_error_t *error)
{
    struct ledger_request *request = batch->requests[at];
    truce_status found = ledger_batch_find_posted(batch, request, error);

    if (found == TRUCE_NOT_FOUND)
        found = ledger_batch_find_settled(batch, request, error);
    if (found != TRUCE_NOT_FOUND)
        return found;
    ledger_batch_settle(request, status, why);
    return TRUCE_OK;
}

static void ledger_batch_keep_refusal(struct ledger_batch *batch, uint32_t at, truce_status status,
                                      const bson_error_t *why)
{
    if (batch->refusals_count == batch->refusals_room) {
        batch->refusals_room = batch->refusals_room ? 2 * batch->refusals_room : 8;
        batch->refusals =
            bson_realloc(batch->refusals, batch->refusals_room * sizeof *batch->refusals);
    }
    batch->refusals[batch->refusals_count++] =
        (struct refusal){.at = at, .position = batch->planned, .status = status, .why = *why};
}

static bool ledger_batch_is_of(const bson_t *document, const struct ledger_request *request)
{
    bson_t holder = BSON_INITIALIZER;
    bool same;

    truce__ledger_request_id(request, &holder);
    same = truce__value_equal(truce__value_field(truce__value_document(document), "_id", 3),
                              truce__value_field(truce__value_document(&holder), "_id", 3));
    bson_destroy(&holder);
    return same;
}

/* Settles a refusal. A document that was posted later in the batch under the same id does not
 * count. */
static truce_status ledger_batch_settle_refusal(struct ledger_batch *batch,
                                                const struct refusal *refusal, uint32_t posted,
                                                bson_error_t *error)
{
    struct ledger_request *request = batch->requests[refusal->at];
    bson_t document;
    bool behind = false;
    truce_status status = ledger_batch_look_up(batch, request, &document, error);

    for (uint32_t i = refusal->position; !status && !behind && i < posted; i++)
        behind = ledger_batch_is_of(batch->documents[i], request);
    if (status == TRUCE_NOT_FOUND || behind) {
        ledger_batch_settle(request, refusal->status, &refusal->why);
        status = TRUCE_OK;
    } else if (!status) {
        ledger_batch_settle_found(request, &document, error);
    }
    bson_destroy(&document);
    return status;
}

static truce_status ledger_batch_settle_refusals(struct ledger_batch *batch, uint32_t posted,
                                                 bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < batch->refusals_count; i++) {
        if (batch->refusals[i].position <= posted)
            status = ledger_batch_settle_refusal(batch, &batch->refusals[i], posted, error);
    }
    return status;
}

/* Returns true if the request depends on nothing but its entries. */
static bool ledger_batch_is_plain(const struct ledger_request *request)
{
    return request->verb == LEDGER_POST && !request->transaction->of;
}

/* Settles a refused request, or keeps the refusal until the documents planned before it are posted.
 * Sets *stop if the batch plans no more requests, because the refusal depends on them or on a fresh
 * read. */
static truce_status ledger_batch_refused(struct ledger_batch *batch, uint32_t at,
                                         truce_status status, bool stale, bool *stop,
                                         bson_error_t *error)
{
    struct ledger_request *request = batch->requests[at];
    bson_error_t why = *error;
    bool overdue;

    if (stale) {
        batch->fresh = true;
        *stop = true;
        return TRUCE_OK;
    }
    if (status == TRUCE_IO || status == TRUCE_UNKNOWN || status == TRUCE_TIMEOUT)
        return status;
    overdue = status == TRUCE_LIMIT && ledger_batch_is_plain(request) &&
              truce__ledger_plan_pending(&batch->plan, request);
    if (batch->planned && (overdue || !ledger_batch_is_plain(request))) {
        *stop = true; /* The requests that were planned before are posted first. */
        return TRUCE_OK;
    }
    if (batch->planned) {
        ledger_batch_keep_refusal(batch, at, status, &why);
        return TRUCE_OK;
    }
    if (status == TRUCE_LIMIT && ledger_batch_expire_for(batch, at)) {
        batch->fresh = true;
        *stop = true;
        return TRUCE_OK;
    }
    return ledger_batch_settle_refused(batch, at, status, &why, error);
}

/* Plans a request. A remembered state alone refuses nothing. */
static truce_status ledger_batch_plan_one(struct ledger_batch *batch,
                                          const struct ledger_request *request, bson_t *document,
                                          bool *stale, bson_error_t *error)
{
    truce_status status = truce__ledger_plan(&batch->plan, request, document, stale, error);

    if (!status || !*stale || !ledger_batch_is_plain(request))
        return status;
    *stale = false;
    status = truce__ledger_plan_refresh(&batch->plan, request, error);
    if (status)
        return status;
    bson_destroy(document);
    return truce__ledger_plan(&batch->plan, request, document, stale, error);
}

/* Plans the requests that are not settled, in order, until the batch is full or a request needs the
 * earlier ones to be stored first. */
static truce_status ledger_batch_plan(struct ledger_batch *batch, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool stop = false;

    batch->planned = 0;
    batch->bytes = 0;
    batch->refusals_count = 0;
    batch->plan.fresh = batch->fresh;
    batch->fresh = false;
    for (uint32_t i = 0; !status && !stop && i < batch->count && batch->bytes < ROUND_BYTES; i++) {
        bson_error_t why = {0};
        bson_t document;
        bool stale;

        if (batch->requests[i]->settled)
            continue;
        status = ledger_batch_plan_one(batch, batch->requests[i], &document, &stale, &why);
        if (status)
            status = ledger_batch_refused(batch, i, status, stale, &stop, &why);
        else if (!bson_empty(&document))
            ledger_batch_keep(batch, i, &document);
        else if (stale)
            batch->fresh = stop = true;
        else
            truce__ledger_settle_posted(batch->requests[i], &document, true);
        if (status && error)
            *error = why;
        bson_destroy(&document);
    }
    return status;
}

/* ---- sending a batch ------------------------------------------------------------------------- */

static void ledger_batch_settle_posted(struct ledger_batch *batch, uint32_t position)
{
    struct ledger_request *request = batch->requests[batch->owners[position]];

    truce__ledger_settle_posted(request, batch->documents[position], false);
    if (truce__ledger_settles(request))
        truce__ledger_close_pending(batch->ledger, truce__ledger_settles(request));
}

static void ledger_batch_remember(struct ledger_batch *batch)
{
    struct ledger_runs runs = {.reader = &batch->plan.reader};

    for (uint32_t i = 0; i < batch->plan.book.room; i++) {
        const struct ledger_known *known = batch->plan.book.slots[i];

        if (known && known->loaded)
            truce__ledger_remember_posted(&batch->plan.reader, known, &runs);
    }
    truce__ledger_runs_store(&runs, &batch->plan.book);
}

/* Looks up all ids. If one transaction was posted before, usually the others were, too: a repeated
 * import need not find them one by one. */
static truce_status ledger_batch_find_all_posted(struct ledger_batch *batch, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (batch->sought)
        return TRUCE_OK;
    batch->sought = true;
    for (uint32_t i = 0; !status && i < batch->count; i++) {
        if (batch->requests[i]->settled)
            continue;
        status = ledger_batch_find_posted(batch, batch->requests[i], error);
        status = status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    }
    return status;
}

/* Each time that this many attempts in a row found a number taken, documents of other programs are
 * imported. */
#define TAKEN_OFTEN 5

/* Imports the uncommitted documents of other programs, and all others that have later numbers of
 * the request's accounts. A document that a read of the account does not show may hold the number
 * that the batch tries to use. */
static truce_status ledger_batch_take_up(struct ledger_batch *batch,
                                         const struct ledger_request *request, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < request->transaction->count; i++) {
        struct ledger_takeup takeup = {.account = request->transaction->entries[i].account,
                                       .thorough = true};

        status = truce__ledger_take_up(&batch->plan.reader, &takeup, error);
    }
    return status;
}

/* After this many refusals in a row whose number no transaction has, the server is at fault. A
 * single one may be a transaction that had not reached the majority of a replica set, and was
 * lost. */
#define FREE_MOST 3

/* Appends the condition that a transaction has the change's number. A single change of another
 * program may be a document instead of an array. */
static void ledger_batch_append_number(struct array *either, const struct ledger_change *change)
{
    bson_t *of_array =
               BCON_NEW("changes", "{", "$elemMatch", "{", "account", BCON_UTF8(change->account),
                        "seqId", BCON_INT64(change->number), "}", "}"),
           *alone = BCON_NEW("changes.account", BCON_UTF8(change->account), "changes.seqId",
                             BCON_INT64(change->number), "changes.0", "{", "$exists",
                             BCON_BOOL(false), "}");

    truce__array_add_document(either, of_array);
    truce__array_add_document(either, alone);
    bson_destroy(alone);
    bson_destroy(of_array);
}

/* Fails if the server refuses numbers that no transaction has. Some servers combine the fields of a
 * unique index from different elements of an array. */
static truce_status ledger_batch_check_server(struct ledger_batch *batch, const bson_t *document,
                                              bson_error_t *error)
{
    struct fields changes = truce__ledger_changes(document);
    bson_t filter = BSON_INITIALIZER, list = BSON_INITIALIZER, found;
    struct array either = {.to = &list};
    struct ledger_change change, first = {.account = NULL};
    truce_status status = TRUCE_NOT_FOUND;

    while (truce__fields_next(&changes)) {
        if (!truce__ledger_change(changes.value, &change))
            continue;
        first = first.account ? first : change;
        ledger_batch_append_number(&either, &change);
    }
    BSON_APPEND_ARRAY(&filter, "$or", &list);
    if (first.account)
        status = truce_find_one(batch->ledger->store, batch->ledger->collection, &filter, NULL,
                                &found, error);
    if (first.account)
        bson_destroy(&found);
    bson_destroy(&filter);
    bson_destroy(&list);
    if (status != TRUCE_NOT_FOUND)
        return status;
    if (++batch->free < FREE_MOST)
        return TRUCE_OK;
    return truce__fail(
        TRUCE_INVALID, error,
        "the server refuses number %lld of account \"%.100s\", which no transaction has: its "
        "unique indexes combine elements of arrays. Begin a ledger whose numbers are documents: "
        "`truce ledger currency LEDGER CODE DIGITS --slots COLLECTION`",
        (long long)first.number, first.account);
}

/* Handles a refused insert: the transaction was posted before, `of` was settled before, or another
 * client was faster to use one of its numbers. */
static truce_status ledger_batch_taken(struct ledger_batch *batch, uint32_t position,
                                       bson_error_t *error)
{
    struct ledger_request *request = batch->requests[batch->owners[position]];
    truce_status status = ledger_batch_find_posted(batch, request, error);

    if (!status)
        return ledger_batch_find_all_posted(batch, error);
    if (status == TRUCE_NOT_FOUND)
        status = ledger_batch_find_settled(batch, request, error);
    if (status != TRUCE_NOT_FOUND)
        return status;
    /* Another transaction has one of the numbers, so the accounts must be read. */
    batch->fresh = true;
    if (++batch->taken % TAKEN_OFTEN == 0) {
        status =
            ledger_batch_is_plain(request) ? ledger_batch_take_up(batch, request, error) : TRUCE_OK;
        if (!status)
            status = ledger_batch_check_server(batch, batch->documents[position], error);
        if (status)
            return status;
    }
    return truce__worker_wait(&batch->plan.reader.worker, "a number of an account", error);
}

/* Handles the first insert of a batch that failed. Returns OK if the batch can continue with a new
 * plan. */
static truce_status ledger_batch_failed(struct ledger_batch *batch, uint32_t position,
                                        truce_status status, bson_error_t *error)
{
    struct ledger_request *request = batch->requests[batch->owners[position]];

    batch->fresh = true;
    if (truce__unanswered(status)) {
        for (uint32_t i = position; i < batch->planned; i++)
            batch->requests[batch->owners[i]]->sent = true;
    }
    switch (status) {
    case TRUCE_DUPLICATE:
        return ledger_batch_taken(batch, position, error);
    case TRUCE_UNKNOWN:
    case TRUCE_CONFLICT:
        return truce__worker_wait(&batch->plan.reader.worker, "the store", NULL) ? status
                                                                                 : TRUCE_OK;
    case TRUCE_INVALID:
    case TRUCE_LIMIT:
        ledger_batch_settle(request, status, error);
        return TRUCE_OK;
    default:
        return status;
    }
}

/* ---- drops that the store does not report ---------------------------------------------------- */

/*
 * A remembered state is worthless if another client dropped or emptied the collection in the
 * meantime: the posts of the batch would follow numbers that do not exist. A store of this machine
 * reports the drop. On other stores, the batch reads the numbers that it began with after its
 * inserts, in one message. If one is missing, the inserts are taken back, everything is forgotten,
 * and the requests are planned again. A drop after this read takes the inserts with it.
 */

/* The maximum number of accounts whose numbers one message reads. */
#define CONFIRM_ACCOUNTS 500

/* Reads the numbers that the accounts from slot *at on began with. */
static truce_status ledger_batch_confirm_some(struct ledger_batch *batch, uint32_t *at, bool *gone,
                                              bson_error_t *error)
{
    struct ledger_known *confirmed[CONFIRM_ACCOUNTS];
    struct ledger_documents found = {0};
    bson_t filter = BSON_INITIALIZER, list = BSON_INITIALIZER;
    struct array either = {.to = &list};
    truce_status status = TRUCE_OK;
    uint32_t count = 0;

    for (; *at < batch->plan.book.room && count < CONFIRM_ACCOUNTS; (*at)++) {
        struct ledger_known *known = batch->plan.book.slots[*at];
        bson_t *one;

        if (!known || !known->loaded || !known->root)
            continue;
        one = BCON_NEW("changes", "{", "$elemMatch", "{", "account", BCON_UTF8(known->account),
                       "seqId", BCON_INT64(known->root), "}", "}");
        truce__array_add_document(&either, one);
        bson_destroy(one);
        confirmed[count++] = known;
    }
    BSON_APPEND_ARRAY(&filter, "$or", &list);
    if (count)
        status = truce__ledger_fetch_filter(&batch->plan.reader, &filter, NULL, 0, &found, error);
    for (uint32_t i = 0; !status && i < count; i++)
        *gone |= !truce__ledger_numbered(&found, confirmed[i]->account, confirmed[i]->root);
    truce__ledger_documents_release(&found);
    bson_destroy(&filter);
    bson_destroy(&list);
    return status;
}

static truce_status ledger_batch_confirm_all(struct ledger_batch *batch, bool *gone,
                                             bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t at = 0;

    *gone = false;
    while (!status && !*gone && at < batch->plan.book.room)
        status = ledger_batch_confirm_some(batch, &at, gone, error);
    return status;
}

/* Removes the document of batch->documents[position] if it is stored as it was inserted. If
 * `really` is false, sends the same write, but with a filter that matches nothing. */
static truce_status ledger_batch_take_back(struct ledger_batch *batch, uint32_t position,
                                           bool really, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    bson_iter_t at;
    truce_status status;

    for (int i = 0; i < 2; i++)
        if (bson_iter_init_find(&at, batch->documents[position], i ? "changes" : "_id"))
            BSON_APPEND_VALUE(&filter, i ? "changes" : "_id", bson_iter_value(&at));
    if (!really)
        BSON_APPEND_UTF8(&filter, "proc", "none");
    do
        status = truce_remove(batch->ledger->store, batch->ledger->collection, &filter, NULL, NULL,
                              error);
    while (truce__unanswered(status) &&
           !truce__worker_wait(&batch->plan.reader.worker, "the store", NULL));
    bson_destroy(&filter);
    return status;
}

/* Checks after the insert of a batch that the collection was not dropped or emptied before it, on a
 * store that does not report drops. `posted` is the number of documents that were inserted. Sets
 * *gone if it was; the documents of the batch are then removed again. */
static truce_status ledger_batch_confirm(struct ledger_batch *batch, uint32_t posted, bool *gone,
                                         bson_error_t *error)
{
    truce_status status;

    *gone = false;
    if (!posted || truce__store_sees_drops(batch->ledger->store))
        return TRUCE_OK;
    status = ledger_batch_confirm_all(batch, gone, error);
    if (status || !*gone)
        return status;
    /* The read may have reached a deposed primary. A write reaches the current one. */
    status = ledger_batch_take_back(batch, 0, false, error);
    if (!status)
        status = ledger_batch_confirm_all(batch, gone, error);
    if (status || !*gone)
        return status;
    for (uint32_t i = posted; !status && i-- > 0;)
        status = ledger_batch_take_back(batch, i, true, error);
    truce__ledger_forget(batch->ledger);
    return status;
}

/* Inserts the planned documents by one ordered bulk, and settles the requests that were posted or
 * refused. */
static truce_status ledger_batch_send(struct ledger_batch *batch, bson_error_t *error)
{
    truce_write *writes = bson_malloc0(batch->planned * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(batch->planned * sizeof *outcomes);
    truce_bulk_options options = {0};
    truce_status status;
    truce_status confirmed;
    uint32_t position = 0, posted = 0;
    bool gone;

    for (uint32_t i = 0; i < batch->planned; i++)
        writes[i] = (truce_write){.kind = TRUCE_WRITE_INSERT,
                                  .collection = batch->ledger->collection,
                                  .document = batch->documents[i]};
    status = truce_bulk(batch->ledger->store, writes, batch->planned, &options, outcomes, error);
    while (posted < batch->planned && !outcomes[posted].status &&
           (!status || outcomes[posted].result.inserted))
        posted++;
    confirmed = ledger_batch_confirm(batch, posted, &gone, error);
    if (confirmed || gone)
        status = confirmed;
    else
        while (position < posted)
            ledger_batch_settle_posted(batch, position++);
    if (position)
        batch->taken = batch->free = 0;
    if (gone && !status)
        batch->fresh = true;
    else if (!status)
        ledger_batch_remember(batch);
    else if (position < batch->planned)
        status = ledger_batch_failed(batch, position, status, error);
    if (!status)
        status = ledger_batch_settle_refusals(batch, position, error);
    for (uint32_t i = 0; i < batch->planned; i++)
        truce_write_result_release(&outcomes[i].result);
    bson_free(outcomes);
    bson_free(writes);
    return status;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static bool ledger_batch_all_settled(const struct ledger_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        if (!batch->requests[i]->settled)
            return false;
    }
    return true;
}

static truce_status ledger_batch_run(struct ledger_batch *batch, bson_error_t *error)
{
    truce_status status = ledger_batch_plan(batch, error);

    if (!status && batch->planned)
        status = ledger_batch_send(batch, error);
    for (uint32_t i = 0; i < batch->planned; i++)
        bson_destroy(batch->documents[i]);
    batch->planned = 0;
    truce__ledger_table_clear(&batch->plan.book);
    return status;
}

truce_status truce__ledger_run(truce_ledger *ledger, struct ledger_request **requests,
                               uint32_t count, bson_error_t *error)
{
    struct ledger_batch batch = {.ledger = ledger, .requests = requests, .count = count};
    bson_error_t why = {0};
    truce_status status = TRUCE_OK;

    if (ledger->slots)
        return truce__ledger_run_slots(ledger, requests, count, error);
    batch.expired = bson_malloc0(count * sizeof *batch.expired);
    batch.documents = bson_malloc0(count * sizeof *batch.documents);
    batch.owners = bson_malloc0(count * sizeof *batch.owners);
    truce__ledger_plan_begin(&batch.plan, ledger, NULL);
    while (!status && !ledger_batch_all_settled(&batch))
        status = ledger_batch_run(&batch, &why);
    for (uint32_t i = 0; status && i < count; i++) {
        if (!requests[i]->settled)
            ledger_batch_settle(requests[i], status, &why);
    }
    if (status && error)
        *error = why;
    truce__ledger_plan_release(&batch.plan);
    bson_free(batch.refusals);
    bson_free(batch.owners);
    bson_free(batch.documents);
    bson_free(batch.expired);
    return status;
}
