/*
 * Posting: one transaction, many, and posts in commits.
 *
 * Posts of several threads are combined. They wait until the batch in flight has arrived. Then one
 * of them, the leader, takes all of them along, bulks included (ledger_batch.c). A hot account
 * therefore costs one write for all waiting posts, not a retry for each.
 *
 *     waiting     a b c d e f      a leader takes, in their order, the posts that have no account
 *     in flight   [a c] [f]        in common with a batch in flight or an earlier waiting post
 *
 * Threads whose batch has arrived mostly post again at once. Without a pause, the first of them
 * would lead a batch of its own, and the others would follow together. A leader therefore waits
 * until half as many posts wait as the arrived batch and the queue had together, for a tenth of a
 * millisecond at most.
 *
 * Batches that have no account in common are in flight at the same time: one is planned while
 * another waits for the disk. Accounts are compared by a hash of their names (lanes); two accounts
 * with the same hash wait for each other needlessly. All of this serves speed only: posts that take
 * the same numbers conflict at the index.
 */
#include "patterns/ledger/ledger_post.h"

#include <string.h>

#include "base/clock.h"
#include "base/futex.h"
#include "base/null.h"
#include "base/reserved_fields.h"

/* ---- combined posts -------------------------------------------------------------------------- */

/* A waiting thread checks its state again after this time. */
#define NAP_NS INT64_C(1000000000)
/* The maximum time for which a leader waits for the expected posts. */
#define GATHER_NS INT64_C(100000)

/* WAITING: the post is in the queue. LEADS: its thread was woken to lead the next batch. IN_BATCH:
 * the post is in a batch in flight. DONE: the result is set, and the thread may return. */
enum waiting_state { WAITING, LEADS, IN_BATCH, DONE };

/* The call of a thread that waits for its post. */
struct ledger_waiting {
    struct ledger_request *requests;
    size_t count;
    struct ledger_waiting *next;
    /* A value of waiting_state, and the futex of the thread. Changed with the mutex held, except to
     * DONE. */
    atomic_uint state;
    /* The status of all requests that have none of their own. Set before DONE. */
    truce_status status;
    bson_error_t error;
};

/* ---- lanes ----------------------------------------------------------------------------------- */

/* Returns the n-th account of a request, or NULL if there are no more. */
static const char *post_account_of(const struct ledger_request *request, uint32_t n)
{
    if (request->verb == LEDGER_POST)
        return n < request->transaction->count ? request->transaction->entries[n].account : NULL;
    return n ? NULL : request->account;
}

/* Returns true if the accounts of a post are known only after a read. */
static bool post_is_blind(const struct ledger_waiting *one)
{
    for (size_t i = 0; i < one->count; i++) {
        if (truce__ledger_of(&one->requests[i]))
            return true;
    }
    return false;
}

static uint32_t post_lane(const char *account)
{
    return (uint32_t)truce__ledger_hash(account) % LEDGER_LANES;
}

static bool post_conflicts(const struct ledger_waiting *one, const uint32_t lanes[LEDGER_LANES])
{
    const char *account;

    for (size_t i = 0; i < one->count; i++) {
        for (uint32_t n = 0; (account = post_account_of(&one->requests[i], n)); n++) {
            if (lanes[post_lane(account)])
                return true;
        }
    }
    return false;
}

static void post_enter(const struct ledger_waiting *one, uint32_t by, uint32_t lanes[LEDGER_LANES])
{
    const char *account;

    for (size_t i = 0; i < one->count; i++) {
        for (uint32_t n = 0; (account = post_account_of(&one->requests[i], n)); n++)
            lanes[post_lane(account)] += by;
    }
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Takes the posts that can start now. `left` has the lanes of earlier posts that cannot. */
static struct ledger_waiting *post_take_group(truce_ledger *ledger, size_t *count)
{
    struct ledger_waiting *group = NULL, **end = &group, **at = &ledger->first, *last = NULL;

    *count = 0;
    while (*at) {
        struct ledger_waiting *one = *at;
        bool blind = post_is_blind(one);

        if (*count && *count + one->count > LEDGER_BATCH_TRANSACTIONS_MAX)
            break;
        if (blind ? ledger->leaders || last
                  : post_conflicts(one, ledger->lanes) || post_conflicts(one, ledger->left)) {
            if (blind)
                break;
            post_enter(one, 1, ledger->left);
            last = one;
            at = &one->next;
            continue;
        }
        *at = one->next;
        one->next = NULL;
        atomic_store(&one->state, IN_BATCH);
        *end = one;
        end = &one->next;
        ledger->waiting--;
        *count += one->count;
    }
    if (!*at)
        ledger->last = last;
    for (struct ledger_waiting *one = ledger->first; one != *at; one = one->next)
        post_enter(one, (uint32_t)-1, ledger->left);
    for (struct ledger_waiting *one = group; one; one = one->next)
        post_enter(one, 1, ledger->lanes);
    return group;
}

/* Sets the state, and wakes the thread. After DONE, the thread may free the struct at any time. */
static void post_wake(struct ledger_waiting *one, enum waiting_state state)
{
    atomic_store(&one->state, state);
    truce__futex_wake(&one->state, 1);
}

/* Wakes the threads of a batch. The caller does not hold the mutex, so no woken thread waits for
 * it. */
static void post_wake_group(struct ledger_waiting *group, truce_status status,
                            const bson_error_t *error)
{
    struct ledger_waiting *next;

    for (struct ledger_waiting *one = group; one; one = next) {
        next = one->next;
        one->status = status;
        one->error = *error;
        post_wake(one, DONE);
    }
}

/* Posts all requests of a group in one batch. The caller does not hold the mutex. */
static truce_status post_run_group(truce_ledger *ledger, const struct ledger_waiting *group,
                                   size_t count, bson_error_t *error)
{
    struct ledger_request **requests = bson_malloc(count * sizeof *requests);
    truce_status status;
    size_t at = 0;

    for (const struct ledger_waiting *one = group; one; one = one->next) {
        for (size_t i = 0; i < one->count; i++)
            requests[at++] = &one->requests[i];
    }
    status = truce__ledger_run(ledger, requests, (uint32_t)count, error);
    bson_free(requests);
    return status;
}

/* Waits for the expected posts. The caller holds the mutex; it is released during the wait. No
 * other thread leads in the meantime, and later posts join. */
static void post_gather(truce_ledger *ledger)
{
    int64_t until = truce__clock_monotonic_ns() + GATHER_NS;

    ledger->gathering = true;
    while (ledger->waiting < ledger->expected) {
        unsigned seen = atomic_load(&ledger->came);
        int64_t left = until - truce__clock_monotonic_ns();

        if (left <= 0) {
            /* The expected posts did not come in time, so the next leader does not wait. */
            ledger->expected = 0;
            break;
        }
        pthread_mutex_unlock(&ledger->mutex);
        truce__futex_wait(&ledger->came, seen, left);
        pthread_mutex_lock(&ledger->mutex);
    }
    ledger->gathering = false;
}

/* Sets how many posts the next leader waits for: half of those in the batch that has arrived and in
 * the queue. Waits for none if the batch contained bulks. */
static void post_expect(truce_ledger *ledger, const struct ledger_waiting *group, size_t count)
{
    uint32_t arrived = 0;

    for (const struct ledger_waiting *one = group; one; one = one->next)
        arrived++;
    ledger->expected = count == arrived ? (arrived + ledger->waiting) / 2 : 0;
}

/* Leads a batch. The caller holds the mutex; it is released in the meantime. A post that cannot
 * start now is woken when a batch has arrived. */
static void post_lead(truce_ledger *ledger)
{
    struct ledger_waiting *group = NULL;
    bson_error_t error = {0};
    truce_status status;
    size_t count;

    if (ledger->leaders == LEDGER_LEADERS || ledger->gathering)
        return;
    if (ledger->waiting < ledger->expected)
        post_gather(ledger);
    group = post_take_group(ledger, &count);
    if (!group)
        return;
    ledger->leaders++;
    pthread_mutex_unlock(&ledger->mutex);
    status = post_run_group(ledger, group, count, &error);
    pthread_mutex_lock(&ledger->mutex);
    ledger->leaders--;
    for (const struct ledger_waiting *one = group; one; one = one->next)
        post_enter(one, (uint32_t)-1, ledger->lanes);
    post_expect(ledger, group, count);
    if (ledger->first)
        post_wake(ledger->first, LEADS);
    pthread_mutex_unlock(&ledger->mutex);
    post_wake_group(group, status, &error);
    pthread_mutex_lock(&ledger->mutex);
}

static void post_lead_if_woken(truce_ledger *ledger, struct ledger_waiting *waiting)
{
    pthread_mutex_lock(&ledger->mutex);
    if (atomic_load(&waiting->state) == LEADS) {
        atomic_store(&waiting->state, WAITING);
        post_lead(ledger);
    }
    pthread_mutex_unlock(&ledger->mutex);
}

/* Posts with other threads. Returns OK if each request got a status of its own, and the failure of
 * the batch otherwise. */
static truce_status post_together(truce_ledger *ledger, struct ledger_request *requests,
                                  size_t count, bson_error_t *error)
{
    struct ledger_waiting waiting = {.requests = requests, .count = count, .state = WAITING};
    unsigned state;

    pthread_mutex_lock(&ledger->mutex);
    if (ledger->last)
        ledger->last->next = &waiting;
    else
        ledger->first = &waiting;
    ledger->last = &waiting;
    ledger->waiting++;
    atomic_fetch_add(&ledger->came, 1);
    if (ledger->gathering && ledger->waiting == ledger->expected)
        truce__futex_wake(&ledger->came, 1);
    post_lead(ledger);
    pthread_mutex_unlock(&ledger->mutex);
    while ((state = atomic_load(&waiting.state)) != DONE) {
        if (state == LEADS)
            post_lead_if_woken(ledger, &waiting);
        else
            truce__futex_wait(&waiting.state, state, NAP_NS);
    }
    if (waiting.status && error)
        *error = waiting.error;
    return waiting.status;
}

truce_status truce__ledger_post_all(truce_ledger *ledger, struct ledger_request *requests,
                                    size_t count, bson_error_t *error)
{
    truce_status status = truce__ledger_ready(ledger, false, error);

    return status || !count ? status : post_together(ledger, requests, count, error);
}

/* ---- calls ----------------------------------------------------------------------------------- */

truce_status truce__ledger_post_one(truce_ledger *ledger, truce_commit *commit,
                                    struct ledger_request *request, bson_error_t *error)
{
    truce_ledger_result result = {0};
    truce_status status = truce__ledger_ready(ledger, request->verb == LEDGER_OPEN, error);

    if (!request->result)
        request->result = &result;
    *request->result = (truce_ledger_result){0};
    if (!status && request->verb == LEDGER_POST)
        status = truce__ledger_check_given(request->transaction, &request->result->error);
    if (status && request->result->error.message[0] && error)
        *error = request->result->error;
    if (!status && commit) {
        status = truce__ledger_post_in(ledger, commit, request, error);
    } else if (!status) {
        /* The status of the request is in its result. */
        (void)!post_together(ledger, request, 1, NULL);
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
    RETURN_IF_NULL(transaction, error);

    struct ledger_request request = {.transaction = transaction, .result = result};
    truce_status status = ROOM_CHECK(transaction, "truce_ledger_transaction", error);

    return status ? status : truce__ledger_post_one(ledger, commit, &request, error);
}

/* Posts the transactions that are valid by themselves. Each gets a status of its own in `results`;
 * the call fails only if the batch or the options do. */
static truce_status post_several(truce_ledger *ledger, const truce_ledger_transaction *transactions,
                                 size_t count, bool history, truce_ledger_result *results,
                                 bson_error_t *error)
{
    struct ledger_request *requests;
    size_t checked = 0;
    truce_status status;

    memset(results, 0, count * sizeof *results);
    if (count > LEDGER_BATCH_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "cannot post %zu transactions at once: the maximum is %d", count,
                           LEDGER_BATCH_MAX);
    for (size_t i = 0; i < count; i++) {
        status = ROOM_CHECK(&transactions[i], "truce_ledger_transaction", error);
        if (status)
            return status;
    }
    requests = bson_malloc0((count + 1) * sizeof *requests);
    for (size_t i = 0; i < count; i++) {
        results[i].status = truce__ledger_check_given(&transactions[i], &results[i].error);
        if (!results[i].status)
            requests[checked++] = (struct ledger_request){
                .transaction = &transactions[i], .history = history, .result = &results[i]};
    }
    status = truce__ledger_post_all(ledger, requests, checked, error);
    for (size_t i = 0; status && i < checked; i++) {
        if (!requests[i].settled)
            requests[i].result->status = status;
    }
    bson_free(requests);
    return status;
}

truce_status truce_ledger_post_many(truce_ledger *ledger,
                                    const truce_ledger_transaction *transactions, size_t count,
                                    truce_ledger_result *results, bson_error_t *error)
{
    if (count)
        RETURN_IF_NULL(transactions, error);
    if (count)
        RETURN_IF_NULL(results, error);

    return post_several(ledger, transactions, count, false, results, error);
}

truce_status truce__ledger_post_history(truce_ledger *ledger,
                                        const truce_ledger_transaction *transactions, size_t count,
                                        truce_ledger_result *results, bson_error_t *error)
{
    return post_several(ledger, transactions, count, true, results, error);
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
    if (count)
        RETURN_IF_NULL(transactions, error);

    struct linked linked = {.ledger = ledger, .transactions = transactions, .count = count};
    truce_commit_options options = {.deadline_ms = ledger->deadline_ms};
    truce_status status = TRUCE_OK;

    for (size_t i = 0; !status && i < count; i++)
        status = ROOM_CHECK(&transactions[i], "truce_ledger_transaction", error);
    if (!status)
        status = truce__ledger_ready(ledger, false, error);
    if (!status)
        status = truce_transact(ledger->store, post_each, &linked, &options, error);
    if (refused_at)
        *refused_at = linked.at;
    return status;
}

/* ---- accounts -------------------------------------------------------------------------------- */

/* Checks the rules of an account and copies them into `rules`. */
static truce_status post_read_rules(truce_ledger *ledger, const truce_ledger_account *account,
                                    bool opens, struct ledger_rules *rules, bson_error_t *error)
{
    truce_status status = truce__ledger_account_name(account->account, error);
    const char *unset = account->min && !account->has_min   ? "min"
                        : account->max && !account->has_max ? "max"
                                                            : NULL;
    int digits;

    *rules = (struct ledger_rules){.has_min = account->has_min,
                                   .has_max = account->has_max,
                                   .debit_only = account->debit_only,
                                   .credit_only = account->credit_only,
                                   .closed = account->closed,
                                   .min = account->min,
                                   .max = account->max};
    if (!status && unset)
        return truce__fail(TRUCE_INVALID, error,
                           "account \"%s\" has a value in `%s`, but `has_%s` is false: set it, too",
                           account->account, unset, unset);
    if (!status && opens && !account->currency)
        return truce__fail(TRUCE_INVALID, error, "the currency of account \"%s\" is missing",
                           account->account);
    if (!status && account->currency) {
        status = truce_ledger_digits(ledger, account->currency, &digits, error);
        status = status == TRUCE_NOT_FOUND ? TRUCE_INVALID : status;
        if (!status)
            memcpy(rules->currency, account->currency, strlen(account->currency) + 1);
    }
    if (!status && rules->has_min && rules->has_max && rules->min > rules->max)
        return truce__fail(TRUCE_INVALID, error,
                           "the minimum %lld of account \"%s\" is greater than its maximum %lld",
                           (long long)rules->min, account->account, (long long)rules->max);
    if (!status && rules->debit_only && rules->credit_only)
        return truce__fail(
            TRUCE_INVALID, error,
            "account \"%s\" cannot be both debit only and credit only: it would accept no "
            "entries",
            account->account);
    return status;
}

/* Opens an account or sets its rules. Only the opening of an account may create the ledger. */
static truce_status post_set_rules(truce_ledger *ledger, truce_commit *commit,
                                   enum ledger_verb verb, const truce_ledger_account *account,
                                   bson_error_t *error)
{
    struct ledger_request request = {.verb = verb, .account = account->account};
    truce_status status = ROOM_CHECK(account, "truce_ledger_account", error);

    if (!status)
        status = truce__ledger_begin_again(ledger, error);
    if (!status)
        status = truce__ledger_ready(ledger, verb == LEDGER_OPEN, error);
    if (!status)
        status = post_read_rules(ledger, account, verb == LEDGER_OPEN, &request.rules, error);
    return status ? status : truce__ledger_post_one(ledger, commit, &request, error);
}

truce_status truce_ledger_open(truce_ledger *ledger, truce_commit *commit,
                               const truce_ledger_account *account, bson_error_t *error)
{
    RETURN_IF_NULL(account, error);

    return post_set_rules(ledger, commit, LEDGER_OPEN, account, error);
}

truce_status truce_ledger_rules(truce_ledger *ledger, truce_commit *commit,
                                const truce_ledger_account *account, bson_error_t *error)
{
    RETURN_IF_NULL(account, error);

    return post_set_rules(ledger, commit, LEDGER_RULES, account, error);
}

/* ---- expired transactions (ledger_expiry.c) -------------------------------------------------- */

const bson_value_t *truce__ledger_settles(const struct ledger_request *request)
{
    if (request->verb == LEDGER_EXPIRE)
        return request->of;
    return request->verb == LEDGER_POST && (request->transaction->kind == TRUCE_LEDGER_SETTLE ||
                                            request->transaction->kind == TRUCE_LEDGER_VOID)
               ? request->transaction->of
               : NULL;
}

static truce_status expire_run_alone(truce_ledger *ledger, struct ledger_request **requests,
                                     uint32_t count, bson_error_t *error)
{
    return truce__ledger_post_all(ledger, requests[0], count, error);
}

truce_status truce__ledger_expire(truce_ledger *ledger, const char *account, int64_t limit,
                                  int64_t *expired, bson_error_t *error)
{
    return truce__ledger_expire_by(ledger, account, limit, expire_run_alone, expired, error);
}

/* Books the release of expired amounts on the accounts of a request. The accounts of a reversal are
 * those of another transaction, so the release is then booked for all accounts. */
bool truce__ledger_expire_for(truce_ledger *ledger, const struct ledger_request *request)
{
    const truce_ledger_transaction *given = request->transaction;
    int64_t expired = 0, total = 0;
    bson_error_t ignored;

    for (uint32_t i = 0; i < given->count; i++) {
        if (given->entries[i].account &&
            !truce__ledger_expire_by(ledger, given->entries[i].account, LEDGER_BULK,
                                     truce__ledger_run, &expired, &ignored))
            total += expired;
    }
    if (!given->count &&
        !truce__ledger_expire_by(ledger, NULL, LEDGER_BULK, truce__ledger_run, &expired, &ignored))
        total += expired;
    return total > 0;
}
