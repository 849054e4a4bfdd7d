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
 *       v  --(no answer)---> all may be stored: plan again under the same ids, which find
 *       |                    themselves (L7)
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
static void round_settle(struct ledger_request *request, truce_status status,
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
    round_settle(request, TRUCE_OK, NULL);
    request->result->exists = exists;
    request->result->booked_ms = truce__ledger_date(document, "ts");
}

/* ---- a round --------------------------------------------------------------------------------- */

/* A refusal; it is final if the first `place` documents of the round are posted. */
struct refusal {
    uint32_t at, place;
    truce_status status;
    bson_error_t why;
};

struct round {
    truce_ledger *ledger;
    struct ledger_request **requests;
    uint32_t count;
    struct ledger_plan plan;
    /* The next plan reads every account. */
    bool fresh;
    /* How often in a row a number was taken. */
    int taken;
    /* All ids were looked up. */
    bool sought;
    /* For each request: expired amounts were released for it. */
    bool *expired;
    struct refusal *refusals;
    uint32_t refusals_count, refusals_room;
    bson_t **documents;
    uint32_t *owners;
    uint32_t planned;
    /* The size of the documents. */
    size_t bytes;
};

#define ROUND_BYTES (16 * 1024 * 1024)

static truce_status round_look_up(struct round *round, const struct ledger_request *request,
                                  bson_t *document, bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER;
    bson_iter_t iter;
    truce_status status;

    truce__ledger_request_id(request, &holder);
    truce_assert(bson_iter_init_find(&iter, &holder, "_id"));
    status =
        truce__ledger_transaction(&round->plan.reader, bson_iter_value(&iter), document, error);
    bson_destroy(&holder);
    return status;
}

/* Settles a request that was posted before, with the same content or another. */
static void round_settle_found(struct ledger_request *request, const bson_t *document,
                               bson_error_t *error)
{
    truce_status same = truce__ledger_same(request, document, error);

    if (same)
        round_settle(request, same, error);
    else
        truce__ledger_settle_posted(request, document, !request->sent);
}

/* Looks for the request's document. NOT_FOUND: it was not posted before. OK: the request is
 * settled. */
static truce_status round_find_posted(struct round *round, struct ledger_request *request,
                                      bson_error_t *error)
{
    bson_t document;
    truce_status status;

    if (request->verb == LEDGER_OPEN || request->verb == LEDGER_RULES)
        return TRUCE_NOT_FOUND; /* the plan shows whether the rules are the same */
    status = round_look_up(round, request, &document, error);
    if (!status)
        round_settle_found(request, &document, error);
    bson_destroy(&document);
    return status;
}

const bson_value_t *truce__ledger_of(const struct ledger_request *request)
{
    return request->verb == LEDGER_EXPIRE ? request->of
           : request->verb == LEDGER_POST ? request->transaction->of
                                          : NULL;
}

truce_status truce__ledger_tell_settled(const bson_t *document, bson_error_t *error)
{
    char text[200];
    bson_t id = BSON_INITIALIZER;
    bson_value_t by = truce__ledger_value(document, "_id");

    BSON_APPEND_VALUE(&id, "_id", &by);
    (void)truce__fail(TRUCE_DUPLICATE, error, "it was already settled, voided, or reversed by %s",
                      truce__value_show(truce__value_field(truce__value_document(&id), "_id", 3),
                                        text, sizeof text));
    bson_destroy(&id);
    return TRUCE_DUPLICATE;
}

/* Looks for the transaction that settled `of` (L6). NOT_FOUND: none did. OK: the request is settled
 * as a DUPLICATE. */
static truce_status round_find_settled(struct round *round, struct ledger_request *request,
                                       bson_error_t *error)
{
    const bson_value_t *of = truce__ledger_of(request);
    bson_t document;
    truce_status status;

    if (!of)
        return TRUCE_NOT_FOUND;
    status = truce__ledger_settled(&round->plan.reader, of, &document, error);
    if (!status)
        round_settle(request, truce__ledger_tell_settled(&document, error), error);
    bson_destroy(&document);
    return status;
}

/* ---- planning a round ------------------------------------------------------------------------ */

static void round_keep(struct round *round, uint32_t owner, const bson_t *document)
{
    round->documents[round->planned] = bson_copy(document);
    round->owners[round->planned++] = owner;
    round->bytes += document->len;
}

/* Releases expired amounts for a request that found too little available. Returns true if something
 * was released. */
static bool round_expire_for(struct round *round, uint32_t at)
{
    const struct ledger_request *request = round->requests[at];

    if (round->expired[at] || request->verb != LEDGER_POST)
        return false;
    round->expired[at] = true;
    return truce__ledger_expire_for(round->ledger, request);
}

/* Settles a refused request, unless it was posted, or its `of` settled, before. */
static truce_status round_settle_refused(struct round *round, uint32_t at, truce_status status,
                                         const bson_error_t *why, bson_error_t *error)
{
    struct ledger_request *request = round->requests[at];
    truce_status found = round_find_posted(round, request, error);

    if (found == TRUCE_NOT_FOUND)
        found = round_find_settled(round, request, error);
    if (found != TRUCE_NOT_FOUND)
        return found;
    round_settle(request, status, why);
    return TRUCE_OK;
}

static void round_keep_refusal(struct round *round, uint32_t at, truce_status status,
                               const bson_error_t *why)
{
    if (round->refusals_count == round->refusals_room) {
        round->refusals_room = round->refusals_room ? 2 * round->refusals_room : 8;
        round->refusals =
            bson_realloc(round->refusals, round->refusals_room * sizeof *round->refusals);
    }
    round->refusals[round->refusals_count++] =
        (struct refusal){.at = at, .place = round->planned, .status = status, .why = *why};
}

static bool round_is_of(const bson_t *document, const struct ledger_request *request)
{
    bson_t holder = BSON_INITIALIZER;
    bool same;

    truce__ledger_request_id(request, &holder);
    same = truce__value_equal(truce__value_field(truce__value_document(document), "_id", 3),
                              truce__value_field(truce__value_document(&holder), "_id", 3));
    bson_destroy(&holder);
    return same;
}

/* Settles a refusal. A document that was posted later in the round under the same id does not
 * count. */
static truce_status round_settle_refusal(struct round *round, const struct refusal *refusal,
                                         uint32_t posted, bson_error_t *error)
{
    struct ledger_request *request = round->requests[refusal->at];
    bson_t document;
    bool behind = false;
    truce_status status = round_look_up(round, request, &document, error);

    for (uint32_t i = refusal->place; !status && !behind && i < posted; i++)
        behind = round_is_of(round->documents[i], request);
    if (status == TRUCE_NOT_FOUND || behind) {
        round_settle(request, refusal->status, &refusal->why);
        status = TRUCE_OK;
    } else if (!status) {
        round_settle_found(request, &document, error);
    }
    bson_destroy(&document);
    return status;
}

static truce_status round_settle_refusals(struct round *round, uint32_t posted, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < round->refusals_count; i++) {
        if (round->refusals[i].place <= posted)
            status = round_settle_refusal(round, &round->refusals[i], posted, error);
    }
    return status;
}

/* Returns true if the request depends on nothing but its entries. */
static bool round_is_plain(const struct ledger_request *request)
{
    return request->verb == LEDGER_POST && !request->transaction->of;
}

/* *stop: the round plans no more requests. */
static truce_status round_refused(struct round *round, uint32_t at, truce_status status, bool stale,
                                  bool *stop, bson_error_t *error)
{
    struct ledger_request *request = round->requests[at];
    bson_error_t why = *error;
    bool overdue;

    if (stale) {
        round->fresh = true;
        *stop = true;
        return TRUCE_OK;
    }
    if (status == TRUCE_IO || status == TRUCE_UNKNOWN || status == TRUCE_TIMEOUT)
        return status;
    overdue = status == TRUCE_LIMIT && round_is_plain(request) &&
              truce__ledger_plan_pending(&round->plan, request);
    if (round->planned && (overdue || !round_is_plain(request))) {
        *stop = true; /* the earlier ones first */
        return TRUCE_OK;
    }
    if (round->planned) {
        round_keep_refusal(round, at, status, &why);
        return TRUCE_OK;
    }
    if (status == TRUCE_LIMIT && round_expire_for(round, at)) {
        round->fresh = true;
        *stop = true;
        return TRUCE_OK;
    }
    return round_settle_refused(round, at, status, &why, error);
}

/* Plans a request. A remembered state alone refuses nothing. */
static truce_status round_plan_one(struct round *round, const struct ledger_request *request,
                                   bson_t *document, bool *stale, bson_error_t *error)
{
    truce_status status = truce__ledger_plan(&round->plan, request, document, stale, error);

    if (!status || !*stale || !round_is_plain(request))
        return status;
    *stale = false;
    status = truce__ledger_plan_refresh(&round->plan, request, error);
    if (status)
        return status;
    bson_destroy(document);
    return truce__ledger_plan(&round->plan, request, document, stale, error);
}

static truce_status round_plan(struct round *round, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool stop = false;

    round->planned = 0;
    round->bytes = 0;
    round->refusals_count = 0;
    round->plan.fresh = round->fresh;
    round->fresh = false;
    for (uint32_t i = 0; !status && !stop && i < round->count && round->bytes < ROUND_BYTES; i++) {
        bson_error_t why = {0};
        bson_t document;
        bool stale;

        if (round->requests[i]->settled)
            continue;
        status = round_plan_one(round, round->requests[i], &document, &stale, &why);
        if (status)
            status = round_refused(round, i, status, stale, &stop, &why);
        else if (!bson_empty(&document))
            round_keep(round, i, &document);
        else if (stale)
            round->fresh = stop = true;
        else
            truce__ledger_settle_posted(round->requests[i], &document, true);
        if (status && error)
            *error = why;
        bson_destroy(&document);
    }
    return status;
}

/* ---- sending a round ------------------------------------------------------------------------- */

static void round_settle_posted(struct round *round, uint32_t place)
{
    struct ledger_request *request = round->requests[round->owners[place]];

    truce__ledger_settle_posted(request, round->documents[place], false);
    if (truce__ledger_settles(request))
        truce__ledger_close_pending(round->ledger, truce__ledger_settles(request));
}

static void round_remember(struct round *round)
{
    for (uint32_t i = 0; i < round->plan.book.room; i++) {
        const struct ledger_known *known = round->plan.book.slots[i];

        if (known && known->loaded)
            truce__ledger_remember(&round->plan.reader, known->account, &known->state);
    }
}

/* Looks up all ids. If one transaction was posted before, usually the others were, too: a repeated
 * import need not find them one by one. */
static truce_status round_find_all_posted(struct round *round, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (round->sought)
        return TRUCE_OK;
    round->sought = true;
    for (uint32_t i = 0; !status && i < round->count; i++) {
        if (round->requests[i]->settled)
            continue;
        status = round_find_posted(round, round->requests[i], error);
        status = status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    }
    return status;
}

#define TAKEN_OFTEN 5

/* Takes up documents of other programs thoroughly: a document that a read of the account does not
 * show may hold a number that is taken again and again. */
static truce_status round_take_up(struct round *round, const struct ledger_request *request,
                                  bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < request->transaction->count; i++) {
        struct ledger_takeup takeup = {.account = request->transaction->entries[i].account,
                                       .thorough = true};

        status = truce__ledger_take_up(&round->plan.reader, &takeup, error);
    }
    return status;
}

static truce_status round_taken(struct round *round, uint32_t place, bson_error_t *error)
{
    struct ledger_request *request = round->requests[round->owners[place]];
    truce_status status = round_find_posted(round, request, error);

    if (!status)
        return round_find_all_posted(round, error);
    if (status == TRUCE_NOT_FOUND)
        status = round_find_settled(round, request, error);
    if (status != TRUCE_NOT_FOUND)
        return status;
    round->fresh = true; /* one of its numbers is taken */
    if (++round->taken % TAKEN_OFTEN == 0 && round_is_plain(request)) {
        status = round_take_up(round, request, error);
        if (status)
            return status;
    }
    return truce__worker_wait(&round->plan.reader.worker, "a number of an account", error);
}

static truce_status round_failed(struct round *round, uint32_t place, truce_status status,
                                 bson_error_t *error)
{
    struct ledger_request *request = round->requests[round->owners[place]];

    round->fresh = true;
    if (truce__unanswered(status)) {
        for (uint32_t i = place; i < round->planned; i++)
            round->requests[round->owners[i]]->sent = true;
    }
    switch (status) {
    case TRUCE_DUPLICATE:
        return round_taken(round, place, error);
    case TRUCE_UNKNOWN:
    case TRUCE_CONFLICT:
        return truce__worker_wait(&round->plan.reader.worker, "the store", NULL) ? status
                                                                                 : TRUCE_OK;
    case TRUCE_INVALID:
    case TRUCE_LIMIT:
        round_settle(request, status, error);
        return TRUCE_OK;
    default:
        return status;
    }
}

/* ---- drops that the store does not report ---------------------------------------------------- */

/*
 * A remembered state is worthless if another client dropped or emptied the collection in the
 * meantime: the posts of the round would follow numbers that do not exist. A store of this machine
 * reports the drop. On other stores, the round reads the numbers that it began with after its
 * inserts, in one message. If one is missing, the inserts are taken back, everything is forgotten,
 * and the requests are planned again. A drop after this read takes the inserts with it.
 */

#define CONFIRM_ACCOUNTS 500

/* Reads the numbers that the accounts from slot *at on began with. */
static truce_status round_confirm_some(struct round *round, uint32_t *at, bool *gone,
                                       bson_error_t *error)
{
    struct ledger_known *asked[CONFIRM_ACCOUNTS];
    struct ledger_documents found = {0};
    bson_t filter = BSON_INITIALIZER, list = BSON_INITIALIZER;
    struct array either = {.to = &list};
    truce_status status = TRUCE_OK;
    uint32_t count = 0;

    for (; *at < round->plan.book.room && count < CONFIRM_ACCOUNTS; (*at)++) {
        struct ledger_known *known = round->plan.book.slots[*at];
        bson_t *one;

        if (!known || !known->loaded || !known->root)
            continue;
        one = BCON_NEW("changes", "{", "$elemMatch", "{", "account", BCON_UTF8(known->account),
                       "seqId", BCON_INT64(known->root), "}", "}");
        truce__array_add_document(&either, one);
        bson_destroy(one);
        asked[count++] = known;
    }
    BSON_APPEND_ARRAY(&filter, "$or", &list);
    if (count)
        status = truce__ledger_fetch_filter(&round->plan.reader, &filter, NULL, 0, &found, error);
    for (uint32_t i = 0; !status && i < count; i++)
        *gone |= !truce__ledger_numbered(&found, asked[i]->account, asked[i]->root);
    truce__ledger_documents_release(&found);
    bson_destroy(&filter);
    bson_destroy(&list);
    return status;
}

static truce_status round_confirm_all(struct round *round, bool *gone, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t at = 0;

    *gone = false;
    while (!status && !*gone && at < round->plan.book.room)
        status = round_confirm_some(round, &at, gone, error);
    return status;
}

/* Removes the document at the place, as it was inserted. Not `really`: the same write, but it
 * matches nothing. */
static truce_status round_take_back(struct round *round, uint32_t place, bool really,
                                    bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    bson_iter_t at;
    truce_status status;

    for (int i = 0; i < 2; i++)
        if (bson_iter_init_find(&at, round->documents[place], i ? "changes" : "_id"))
            BSON_APPEND_VALUE(&filter, i ? "changes" : "_id", bson_iter_value(&at));
    if (!really)
        BSON_APPEND_UTF8(&filter, "proc", "none");
    do
        status = truce_remove(round->ledger->store, round->ledger->collection, &filter, NULL, NULL,
                              error);
    while (truce__unanswered(status) &&
           !truce__worker_wait(&round->plan.reader.worker, "the store", NULL));
    bson_destroy(&filter);
    return status;
}

/* *gone: the collection was dropped or emptied, and nothing of the round is stored. */
static truce_status round_confirm(struct round *round, uint32_t posted, bool *gone,
                                  bson_error_t *error)
{
    truce_status status;

    *gone = false;
    if (!posted || truce__store_sees_drops(round->ledger->store))
        return TRUCE_OK;
    status = round_confirm_all(round, gone, error);
    if (status || !*gone)
        return status;
    /* The read may have reached a deposed primary. A write reaches the current one. */
    status = round_take_back(round, 0, false, error);
    if (!status)
        status = round_confirm_all(round, gone, error);
    if (status || !*gone)
        return status;
    for (uint32_t i = posted; !status && i-- > 0;)
        status = round_take_back(round, i, true, error);
    truce__ledger_forget(round->ledger);
    return status;
}

static truce_status round_send(struct round *round, bson_error_t *error)
{
    truce_write *writes = bson_malloc0(round->planned * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(round->planned * sizeof *outcomes);
    truce_bulk_options options = {0};
    truce_status status;
    truce_status confirmed;
    uint32_t place = 0, posted = 0;
    bool gone;

    for (uint32_t i = 0; i < round->planned; i++)
        writes[i] = (truce_write){.kind = TRUCE_WRITE_INSERT,
                                  .collection = round->ledger->collection,
                                  .document = round->documents[i]};
    status = truce_bulk(round->ledger->store, writes, round->planned, &options, outcomes, error);
    while (posted < round->planned && !outcomes[posted].status &&
           (!status || outcomes[posted].result.inserted))
        posted++;
    confirmed = round_confirm(round, posted, &gone, error);
    if (confirmed || gone)
        status = confirmed;
    else
        while (place < posted)
            round_settle_posted(round, place++);
    if (place)
        round->taken = 0;
    if (gone && !status)
        round->fresh = true;
    else if (!status)
        round_remember(round);
    else if (place < round->planned)
        status = round_failed(round, place, status, error);
    if (!status)
        status = round_settle_refusals(round, place, error);
    for (uint32_t i = 0; i < round->planned; i++)
        truce_write_result_release(&outcomes[i].result);
    bson_free(outcomes);
    bson_free(writes);
    return status;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static bool round_all_settled(const struct round *round)
{
    for (uint32_t i = 0; i < round->count; i++) {
        if (!round->requests[i]->settled)
            return false;
    }
    return true;
}

static truce_status round_run(struct round *round, bson_error_t *error)
{
    truce_status status = round_plan(round, error);

    if (!status && round->planned)
        status = round_send(round, error);
    for (uint32_t i = 0; i < round->planned; i++)
        bson_destroy(round->documents[i]);
    round->planned = 0;
    truce__ledger_table_clear(&round->plan.book);
    return status;
}

truce_status truce__ledger_run(truce_ledger *ledger, struct ledger_request **requests,
                               uint32_t count, bson_error_t *error)
{
    struct round round = {.ledger = ledger, .requests = requests, .count = count};
    bson_error_t why = {0};
    truce_status status = TRUCE_OK;

    if (ledger->slots)
        return truce__ledger_run_slots(ledger, requests, count, error);
    round.expired = bson_malloc0(count * sizeof *round.expired);
    round.documents = bson_malloc0(count * sizeof *round.documents);
    round.owners = bson_malloc0(count * sizeof *round.owners);
    truce__ledger_plan_begin(&round.plan, ledger, NULL);
    while (!status && !round_all_settled(&round))
        status = round_run(&round, &why);
    for (uint32_t i = 0; status && i < count; i++) {
        if (!requests[i]->settled)
            round_settle(requests[i], status, &why);
    }
    if (status && error)
        *error = why;
    truce__ledger_plan_release(&round.plan);
    bson_free(round.refusals);
    bson_free(round.owners);
    bson_free(round.documents);
    bson_free(round.expired);
    return status;
}
