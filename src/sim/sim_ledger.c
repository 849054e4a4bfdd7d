#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "sim/sim_run.h"

/*
 * The ledger in the simulator: the external account, and two accounts that must not be overdrawn.
 * Callers post, reserve, settle, release, and reverse, alone and in commits that also change an
 * order. Others read. When a caller reads the balances of all accounts at once:
 *
 *     their sum is zero, and none is below its limit
 *
 * At the end, the verification of the ledger succeeds. An acknowledged transaction is in the
 * ledger, and a refused one is not. An order is marked if it is paid. Every balance that was read
 * is the one after the number that was returned with it.
 */

/* The initial balance of the first account. */
#define OPENED 100

enum { POST, POST_SHARED, ORDER, SETTLE, VOID, REVERSE, READ_ALL, READ_ONE };

static const struct ledger_call {
    int verb, from, to;
    int64_t value;
} ledger_calls[] = {
    {POST, 1, 2, 60},    {POST, 2, 1, 20},    {POST, 0, 1, 10}, {POST_SHARED, 1, 2, 7},
    {ORDER, 1, 2, 35},   {SETTLE, 1, 2, 40},  {VOID, 1, 2, 50}, {REVERSE, 0, 0, 0},
    {READ_ALL, 0, 0, 0}, {READ_ONE, 1, 0, 0},
};

static const char *const accounts[] = {"bank", "a", "b"};

static truce_ledger *ledger_on(truce_store *store)
{
    return truce_ledger_new(
        store, &(truce_ledger_options){.collection = "book", .deadline_ms = DEADLINE_MS});
}

/* ---- calling --------------------------------------------------------------------------------- */

static bson_value_t sim_ledger_make_text(const char *text)
{
    return (bson_value_t){.value_type = BSON_TYPE_UTF8,
                          .value = {.v_utf8 = {(char *)text, (uint32_t)strlen(text)}}};
}

static truce_status sim_ledger_post(truce_ledger *ledger, truce_commit *commit,
                                    truce_ledger_kind kind, const char *id, const char *of,
                                    const struct ledger_call *call, bson_error_t *error)
{
    const truce_ledger_entry entries[] = {{.account = accounts[call->from], .value = -call->value},
                                          {.account = accounts[call->to], .value = call->value}};
    bson_value_t id_value = sim_ledger_make_text(id),
                 of_value = of ? sim_ledger_make_text(of) : id_value;
    truce_ledger_transaction transaction = {
        .id = &id_value, .kind = kind, .of = of ? &of_value : NULL};

    if (!of) {
        transaction.entries = entries;
        transaction.count = 2;
    }
    return truce_ledger_post(ledger, commit, &transaction, NULL, error);
}

/* Creates the ledger and its accounts. In a third of the runs, the numbers are documents; later
 * clients read that from the definition. */
static void ledger_begin_ledger(struct run *run)
{
    bool slots = run->scenario->clients[0].form == TRUCE_ITEM_FORM_OPERATOR;
    truce_ledger *ledger =
        truce_ledger_new(run->inner, &(truce_ledger_options){.collection = "book",
                                                             .slots = slots ? "numbers" : NULL,
                                                             .deadline_ms = DEADLINE_MS});
    bson_error_t error;

    truce_assert(!truce_ledger_currency(ledger, "EUR", 2, &error));
    for (int i = 0; i < 3; i++) {
        truce_ledger_account account = {
            .account = accounts[i], .currency = "EUR", .has_min = i > 0};

        truce_assert(!truce_ledger_open(ledger, NULL, &account, &error));
    }
    truce_assert(!sim_ledger_post(ledger, NULL, TRUCE_LEDGER_TRANSFER, "opened", NULL,
                                  &(struct ledger_call){POST, 0, 1, OPENED}, &error));
    truce_ledger_free(ledger);
}

struct order {
    truce_ledger *ledger;
    const struct ledger_call *call;
    const char *id;
    int txn;
};

/* Reads the plain writers' field and writes it back. */
static truce_status sim_ledger_pay_order(truce_commit *commit, void *arg, bson_error_t *error)
{
    const bson_value_t id = {.value_type = BSON_TYPE_INT32, .value = {.v_int32 = 1}};
    const struct order *order = arg;
    bson_t *update = BCON_NEW("$push", "{", "paid", BCON_INT32(order->txn), "}"), read;
    truce_status status = truce_commit_read(commit, "orders", &id, &read, error);

    if (!status)
        BCON_APPEND(update, "$set", "{", "p", BCON_INT64(truce__field_number(&read, "p")), "}");
    if (!status)
        status = truce_commit_update(commit, "orders", &id, NULL, update, error);
    if (!status)
        status = sim_ledger_post(order->ledger, commit, TRUCE_LEDGER_TRANSFER, order->id, NULL,
                                 order->call, error);
    bson_destroy(&read);
    bson_destroy(update);
    return status;
}

struct cut {
    struct run *run;
    int64_t sum;
};

static bool sim_ledger_visit(const truce_ledger_account *account,
                             const truce_ledger_balance *balance, void *arg)
{
    struct cut *cut = arg;
    bson_t *read = BCON_NEW("account", BCON_UTF8(account->account), "balance",
                            BCON_INT64(balance->balance), "number", BCON_INT64(balance->number));

    cut->sum += balance->balance;
    if (account->has_min && balance->available < account->min)
        truce__sim_fail(cut->run, "an account is overdrawn", read);
    bson_destroy(read);
    return true;
}

static truce_status ledger_read_all(struct run *run, truce_ledger *ledger, bson_error_t *error)
{
    struct cut cut = {run, 0};
    truce_status status = truce_ledger_balances(ledger, NULL, sim_ledger_visit, &cut, error);
    bson_t *sum = BCON_NEW("sum", BCON_INT64(cut.sum));

    if (!status && cut.sum)
        truce__sim_fail(run, "the balances of one read do not add up to zero", sum);
    bson_destroy(sum);
    return status;
}

/* Encodes the number and the balance, for the check at the end. */
static int64_t sim_ledger_encode_balance(const truce_ledger_balance *balance)
{
    return balance->number * 1000000 + balance->balance;
}

/* Makes one call of the table. Several clients use the id "shared", so a post may find it posted
 * and a reversal may find it reversed. */
static truce_status ledger_send(struct client *client, truce_ledger *ledger, int txn,
                                const struct ledger_call *call, bson_error_t *error)
{
    const truce_commit_options options = {.lease_ms = LEASE_MS, .deadline_ms = DEADLINE_MS};
    char id[16], first[16];
    truce_ledger_balance balance;
    truce_status status;

    snprintf(id, sizeof id, "t%d", txn);
    snprintf(first, sizeof first, "p%d", txn);
    switch (call->verb) {
    case POST_SHARED:
        return sim_ledger_post(ledger, NULL, TRUCE_LEDGER_TRANSFER, "shared", NULL, call, error);
    case ORDER:
        return truce_transact(&client->store, sim_ledger_pay_order,
                              &(struct order){ledger, call, id, txn}, &options, error);
    case SETTLE:
    case VOID:
        status = sim_ledger_post(ledger, NULL, TRUCE_LEDGER_PENDING, first, NULL, call, error);
        return status
                   ? status
                   : sim_ledger_post(ledger, NULL,
                                     call->verb == VOID ? TRUCE_LEDGER_VOID : TRUCE_LEDGER_SETTLE,
                                     id, first, call, error);
    case REVERSE:
        return sim_ledger_post(ledger, NULL, TRUCE_LEDGER_REVERSE, id, "shared", call, error);
    case READ_ALL:
        return ledger_read_all(client->run, ledger, error);
    case READ_ONE:
        status = truce_ledger_balance_of(ledger, accounts[call->from], NULL, &balance, error);
        client->run->patterns.about[txn] = status ? 0 : sim_ledger_encode_balance(&balance);
        return status;
    default:
        return sim_ledger_post(ledger, NULL, TRUCE_LEDGER_TRANSFER, id, NULL, call, error);
    }
}

static truce_status call_ledger(struct client *client, int call, int txn, bson_error_t *error)
{
    truce_ledger *ledger = ledger_on(&client->store);
    truce_status status = ledger_send(client, ledger, txn, &ledger_calls[call], error);

    truce_ledger_free(ledger);
    /* Another client has reversed the transaction, which is allowed. */
    return status == TRUCE_DUPLICATE ? TRUCE_CONFLICT : status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int times_paid(const bson_t *order, int txn)
{
    struct value list = truce__value_field(truce__value_document(order), "paid", 4);
    int times = 0;

    for (struct fields fields = truce__fields(list); truce__fields_next(&fields);)
        times += truce__value_int32(fields.value) == txn;
    return times;
}

static void observe_order(struct run *run, const bson_t *document)
{
    for (int txn = 0; txn < run->history.txns_count; txn++) {
        if (times_paid(document, txn) > 1)
            truce__sim_fail(run, "an order is paid twice", document);
    }
}

static bool is_booked(struct run *run, const char *id)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id), "proc", BCON_UTF8("COMMITTED"));
    bson_error_t error;
    int64_t count = 0;

    truce_assert(!truce_count(run->inner, "book", filter, NULL, &count, &error));
    bson_destroy(filter);
    return count == 1;
}

static void sim_check_reading(struct run *run, truce_ledger *ledger, const char *account,
                              int64_t read)
{
    truce_ledger_balance balance;
    bson_t *about = BCON_NEW("account", BCON_UTF8(account), "read", BCON_INT64(read));
    bson_error_t error;

    if (truce_ledger_balance_of(ledger, account,
                                &(truce_ledger_moment){.number = (read + 500000) / 1000000},
                                &balance, &error) ||
        sim_ledger_encode_balance(&balance) != read)
        truce__sim_fail(run, "a balance was read that never existed", about);
    bson_destroy(about);
}

/* Checks the result of one call against the ledger. An acknowledged transaction is booked, and a
 * refused one is not. An order is paid if and only if its transaction is booked. */
static void ledger_check_post(struct run *run, const bson_t *order, truce_ledger *ledger, int txn)
{
    const struct sim_patterns *patterns = &run->patterns;
    const struct ledger_call *call = &ledger_calls[run->history.txns[txn].script->call];
    bool known = patterns->calls[txn].known, in = patterns->calls[txn].in, booked;
    char id[16];

    snprintf(id, sizeof id, "t%d", txn);
    if (call->verb == READ_ONE && known && in)
        sim_check_reading(run, ledger, accounts[call->from], patterns->about[txn]);
    if (call->verb == READ_ALL || call->verb == READ_ONE)
        return;
    booked = is_booked(run, call->verb == POST_SHARED ? "shared" : id);
    if (known && in && !booked)
        truce__sim_fail(run, "a transaction is lost", order);
    if (known && !in && booked && call->verb != POST_SHARED)
        truce__sim_fail(run, "a refused transaction is in the ledger", order);
    if (call->verb == ORDER && times_paid(order, txn) != booked)
        truce__sim_fail(run, "an order and its payment are not consistent", order);
}

static void ledger_report_one_finding(const bson_t *finding, void *arg)
{
    truce__sim_fail(arg, "the verification of the ledger failed", finding);
}

static void sim_check_ledger(struct run *run, const bson_t *document)
{
    truce_ledger *ledger = ledger_on(run->inner);
    truce_ledger_report report;
    bson_error_t error;

    /* Reading the ledger completes unfinished commits. */
    truce_assert(!ledger_read_all(run, ledger, &error));
    truce_assert(
        !truce_ledger_verify(ledger, NULL, NULL, ledger_report_one_finding, run, &report, &error));
    for (int t = 0; t < run->history.txns_count; t++) {
        if (run->patterns.calls[t].begun)
            ledger_check_post(run, document, ledger, t);
    }
    truce_ledger_free(ledger);
}

const struct sim_pattern truce__sim_ledger = {
    .collection = "orders",
    .document = "{\"_id\": 1, \"paid\": []}",
    .calls = sizeof ledger_calls / sizeof *ledger_calls,
    .positions = 1,
    .begin = ledger_begin_ledger,
    .call = call_ledger,
    .observe = observe_order,
    .check = sim_check_ledger,
};
