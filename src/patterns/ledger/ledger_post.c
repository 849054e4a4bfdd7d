/*
 * Posting: alone, many, in commits.
 *
 * Together. Posts of several threads wait until the one before has travelled, then one of them, the leader, takes all of
 * them along (ledger_round.c). So a hot account costs one write for all who wait, not a retry for each.
 */
#include <string.h>

#include "base/room.h"
#include "patterns/ledger/ledger_post.h"

/* ---- together ------------------------------------------------------------------------------- */

struct ledger_waiting {
    struct ledger_request *request;
    struct ledger_waiting *next;
    bool done;
};

/* Under the mutex, which is given up meanwhile. */
static void lead(truce_ledger *ledger)
{
    struct ledger_waiting *group[LEDGER_BULK];
    struct ledger_request *requests[LEDGER_BULK];
    uint32_t count = 0;
    bson_error_t ignored; /* each request has its own */

    ledger->leading = true;
    while (ledger->first && count < LEDGER_BULK) {
        group[count] = ledger->first;
        requests[count++] = ledger->first->request;
        ledger->first = ledger->first->next;
    }
    if (!ledger->first)
        ledger->last = NULL;
    pthread_mutex_unlock(&ledger->mutex);
    (void)!truce__ledger_run(ledger, requests, count, &ignored);
    pthread_mutex_lock(&ledger->mutex);
    for (uint32_t i = 0; i < count; i++)
        group[i]->done = true;
    ledger->leading = false;
    pthread_cond_broadcast(&ledger->changed);
}

static void post_together(truce_ledger *ledger, struct ledger_request *request)
{
    struct ledger_waiting waiting = {.request = request};

    pthread_mutex_lock(&ledger->mutex);
    if (ledger->last)
        ledger->last->next = &waiting;
    else
        ledger->first = &waiting;
    ledger->last = &waiting;
    while (!waiting.done) {
        if (ledger->leading)
            pthread_cond_wait(&ledger->changed, &ledger->mutex);
        else
            lead(ledger);
    }
    pthread_mutex_unlock(&ledger->mutex);
}

truce_status truce__ledger_post_all(truce_ledger *ledger, struct ledger_request *requests,
                                    size_t count, bson_error_t *error)
{
    struct ledger_request *group[LEDGER_BULK];
    truce_status status = truce__ledger_ready(ledger, error);

    pthread_mutex_lock(&ledger->mutex);
    while (ledger->leading)
        pthread_cond_wait(&ledger->changed, &ledger->mutex);
    ledger->leading = true;
    pthread_mutex_unlock(&ledger->mutex);
    for (size_t at = 0; !status && at < count;) {
        uint32_t size = 0;

        while (size < LEDGER_BULK && at < count)
            group[size++] = &requests[at++];
        status = truce__ledger_run(ledger, group, size, error);
    }
    pthread_mutex_lock(&ledger->mutex);
    ledger->leading = false;
    pthread_cond_broadcast(&ledger->changed);
    pthread_mutex_unlock(&ledger->mutex);
    return status;
}

/* ---- calls ---------------------------------------------------------------------------------- */

truce_status truce__ledger_post_one(truce_ledger *ledger, truce_commit *commit,
                                    struct ledger_request *request, bson_error_t *error)
{
    truce_ledger_result result = {0};
    truce_status status = truce__ledger_ready(ledger, error);

    if (!request->result)
        request->result = &result;
    *request->result = (truce_ledger_result){0};
    if (!status && commit) {
        status = truce__ledger_post_in(ledger, commit, request, error);
    } else if (!status) {
        post_together(ledger, request);
        status = request->result->status;
        if (status && error)
            *error = request->result->error;
    }
    request->result->status = status;
    return status;
}

truce_status truce_ledger_post(truce_ledger *ledger, truce_commit *commit,
                               const truce_ledger_transaction *transaction,
                               truce_ledger_result *result, bson_error_t *error)
{
    struct ledger_request request = {.transaction = transaction, .result = result};
    truce_status status = ROOM_CHECK(transaction, "truce_ledger_transaction", error);

    return status ? status : truce__ledger_post_one(ledger, commit, &request, error);
}

truce_status truce_ledger_post_many(truce_ledger *ledger,
                                    const truce_ledger_transaction *transactions, size_t count,
                                    truce_ledger_result *results, bson_error_t *error)
{
    struct ledger_request *requests;
    truce_status status;

    memset(results, 0, count * sizeof *results);
    if (count > LEDGER_BATCH_MAX)
        return truce__fail(TRUCE_LIMIT, error, "at most %d transactions at a time",
                           LEDGER_BATCH_MAX);
    for (size_t i = 0; i < count; i++) {
        status = ROOM_CHECK(&transactions[i], "truce_ledger_transaction", error);
        if (status)
            return status;
    }
    requests = bson_malloc0((count + 1) * sizeof *requests);
    for (size_t i = 0; i < count; i++) {
        requests[i].transaction = &transactions[i];
        requests[i].result = &results[i];
    }
    status = truce__ledger_post_all(ledger, requests, count, error);
    for (size_t i = 0; status && i < count; i++) {
        if (!requests[i].settled)
            results[i].status = status;
    }
    bson_free(requests);
    return status;
}

struct linked {
    truce_ledger *ledger;
    const truce_ledger_transaction *transactions;
    size_t count, at;
};

static truce_status post_each(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct linked *linked = arg;
    truce_status status = TRUCE_OK;

    for (linked->at = 0; !status && linked->at < linked->count; linked->at += !status)
        status = truce_ledger_post(linked->ledger, commit, &linked->transactions[linked->at], NULL,
                                   error);
    return status;
}

truce_status truce_ledger_post_linked(truce_ledger *ledger,
                                      const truce_ledger_transaction *transactions, size_t count,
                                      size_t *refused_at, bson_error_t *error)
{
    struct linked linked = {.ledger = ledger, .transactions = transactions, .count = count};
    truce_commit_options options = {.deadline_ms = ledger->deadline_ms};
    truce_status status = TRUCE_OK;

    for (size_t i = 0; !status && i < count; i++)
        status = ROOM_CHECK(&transactions[i], "truce_ledger_transaction", error);
    if (!status)
        status = truce__ledger_ready(ledger, error);
    if (!status)
        status = truce_transact(ledger->store, post_each, &linked, &options, error);
    if (refused_at)
        *refused_at = linked.at;
    return status;
}

/* ---- accounts ------------------------------------------------------------------------------- */

static truce_status take_rules(truce_ledger *ledger, const truce_ledger_account *account,
                               bool opens, struct ledger_rules *rules, bson_error_t *error)
{
    truce_status status = truce__ledger_account_name(account->account, error);
    int digits;

    *rules = (struct ledger_rules){.has_min = account->has_min,
                                   .has_max = account->has_max,
                                   .debit_only = account->debit_only,
                                   .credit_only = account->credit_only,
                                   .closed = account->closed,
                                   .min = account->min,
                                   .max = account->max};
    if (!status && opens && !account->currency)
        return truce__fail(TRUCE_INVALID, error, "account %s has no currency", account->account);
    if (!status && account->currency) {
        status = truce_ledger_digits(ledger, account->currency, &digits, error);
        status = status == TRUCE_NOT_FOUND ? TRUCE_INVALID : status;
        if (!status)
            memcpy(rules->currency, account->currency, strlen(account->currency) + 1);
    }
    if (!status && rules->has_min && rules->has_max && rules->min > rules->max)
        return truce__fail(TRUCE_INVALID, error, "the least balance of %s is above the greatest",
                           account->account);
    if (!status && rules->debit_only && rules->credit_only)
        return truce__fail(TRUCE_INVALID, error, "%s cannot be for debits only and credits only",
                           account->account);
    return status;
}

static truce_status set_rules(truce_ledger *ledger, truce_commit *commit, enum ledger_verb verb,
                              const truce_ledger_account *account, bson_error_t *error)
{
    struct ledger_request request = {.verb = verb, .account = account->account};
    truce_status status = ROOM_CHECK(account, "truce_ledger_account", error);

    if (!status)
        status = truce__ledger_ready(ledger, error);
    if (!status)
        status = take_rules(ledger, account, verb == LEDGER_OPEN, &request.rules, error);
    return status ? status : truce__ledger_post_one(ledger, commit, &request, error);
}

truce_status truce_ledger_open(truce_ledger *ledger, truce_commit *commit,
                               const truce_ledger_account *account, bson_error_t *error)
{
    return set_rules(ledger, commit, LEDGER_OPEN, account, error);
}

truce_status truce_ledger_rules(truce_ledger *ledger, truce_commit *commit,
                                const truce_ledger_account *account, bson_error_t *error)
{
    return set_rules(ledger, commit, LEDGER_RULES, account, error);
}
