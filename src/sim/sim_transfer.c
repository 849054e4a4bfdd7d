#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "sim/sim_run.h"

/*
 * Two-phase transfers in the simulator: three accounts with 100 each. Callers start transfers,
 * alone and in commits, and start, resume, or cancel the same transfer. After every write that
 * reaches the store:
 *
 *     the first account is never below zero
 *
 * At the end, unfinished transfers are resumed. Then every transfer has ended and agrees with the
 * results of its calls. The accounts agree with the completed transfers, and no mark is left.
 */

/* The number of accounts, and the balance of each at the start. */
#define ACCOUNTS 3
#define EACH     100
/* The ids of the two transfers that several calls start begin here. Other ids are the numbers of
 * the calls. */
#define SHARED     500
#define COLLECTION "moves"

static const struct transfer_call {
    enum { START, IN_COMMIT, CANCEL, RESUME } verb;
    /* The id of the transfer, or 0 if the id is the number of the call. */
    int shared, from, to, value;
} transfer_calls[] = {
    {START, 0, 1, 2, 30},      {START, 0, 2, 3, 70},          {START, 0, 3, 1, 25},
    {START, 0, 2, 1, 80},      {START, SHARED, 1, 3, 60},     {START, SHARED + 1, 2, 1, 40},
    {CANCEL, SHARED, 0, 0, 0}, {CANCEL, SHARED + 1, 0, 0, 0}, {RESUME, SHARED, 0, 0, 0},
    {IN_COMMIT, 0, 1, 2, 45},
};

static bson_value_t transfer_number(int n)
{
    return (bson_value_t){.value_type = BSON_TYPE_INT32, .value = {.v_int32 = n}};
}

static truce_transfers *transfers_on(truce_store *store)
{
    return truce_transfers_new(store, &(truce_transfer_options){.collection = COLLECTION,
                                                                .accounts = "accounts",
                                                                .keep_ms = -1,
                                                                .deadline_ms = DEADLINE_MS});
}

static void begin_transfers(struct run *run)
{
    bson_error_t error;

    for (int account = 2; account <= ACCOUNTS; account++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(account), "balance", BCON_INT32(EACH));

        truce_assert(!truce_insert(run->inner, "accounts", document, NULL, &error));
        bson_destroy(document);
    }
}

/* ---- calling --------------------------------------------------------------------------------- */

struct request {
    truce_transfers *transfers;
    truce_transfer transfer;
};

static truce_status start_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct request *request = arg;

    return truce_transfer_start(request->transfers, commit, &request->transfer, NULL, error);
}

/* Makes one call of the table, and stores its status for the check at the end. */
static truce_status call_transfer(struct client *client, int number_of_call, int txn,
                                  bson_error_t *error)
{
    const struct transfer_call *call = &transfer_calls[number_of_call];
    const truce_commit_options options = {.lease_ms = LEASE_MS, .deadline_ms = DEADLINE_MS};
    const bson_value_t id = transfer_number(call->shared ? call->shared : txn),
                       from = transfer_number(call->from), to = transfer_number(call->to),
                       value = transfer_number(call->value);
    struct request request = {
        .transfers = transfers_on(&client->store),
        .transfer = {.id = &id, .source = &from, .destination = &to, .value = &value}};
    truce_status status;

    if (call->verb == START)
        status = start_in(NULL, &request, error);
    else if (call->verb == IN_COMMIT)
        status = truce_transact(&client->store, start_in, &request, &options, error);
    else if (call->verb == CANCEL)
        status = truce_transfer_cancel(request.transfers, &id, error);
    else
        status = truce_transfer_resume(request.transfers, &id, error);
    client->run->patterns.about[txn] = status;
    truce_transfers_free(request.transfers);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void observe_account(struct run *run, const bson_t *document)
{
    if (truce__field_number(document, "balance") < 0)
        truce__sim_fail(run, "an account is overdrawn", document);
}

/* Reads the state of a transfer. The state is "" if the transfer does not exist. */
static void transfer_read_state(struct run *run, truce_transfers *transfers, int n, char state[16])
{
    const bson_value_t id = transfer_number(n);
    bson_error_t error;
    bson_t document;
    truce_status status = truce_transfer_get(transfers, &id, &document, &error);

    truce_assert(!status || status == TRUCE_NOT_FOUND);
    snprintf(state, 16, "%s", status ? "" : truce__field_text(&document, "state"));
    if (!status && strcmp(state, "done") != 0 && strcmp(state, "canceled") != 0)
        truce__sim_fail(run, "a transfer does not end", &document);
    bson_destroy(&document);
}

static void transfer_end_all(struct run *run, truce_transfers *transfers)
{
    for (int t = 0; t < run->history.txns_count; t++) {
        const struct transfer_call *call = &transfer_calls[run->history.txns[t].script->call];
        const bson_value_t id = transfer_number(call->shared ? call->shared : t);
        bson_error_t error;
        truce_status status = truce_transfer_resume(transfers, &id, &error);

        if (status && status != TRUCE_NOT_FOUND && status != TRUCE_REFUSED)
            truce__sim_fail(run, "a transfer cannot be resumed", &(bson_t)BSON_INITIALIZER);
    }
}

/* Checks that the result of a call stays true. */
static void sim_check_returned(struct run *run, const struct transfer_call *call, int txn,
                               const char *state)
{
    truce_status returned = (truce_status)run->patterns.about[txn];
    const char *expected = NULL;
    bson_t *about = BCON_NEW("call", BCON_INT32(txn), "returned",
                             BCON_UTF8(truce_status_name(returned)), "state", BCON_UTF8(state));

    if (call->verb == CANCEL)
        expected = !returned ? "canceled" : returned == TRUCE_REFUSED ? "done" : NULL;
    else if (call->verb == IN_COMMIT)
        expected = !returned ? "done" : "";
    else
        expected = !returned ? "done" : returned == TRUCE_REFUSED ? "canceled" : NULL;
    if (run->patterns.calls[txn].known && expected && strcmp(expected, state) != 0)
        truce__sim_fail(run, "a transfer contradicts the result of its call", about);
    bson_destroy(about);
}

/* Checks that each account has the expected balance and no mark. */
static void sim_check_accounts(struct run *run, const int64_t balances[ACCOUNTS + 1])
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    bson_error_t error;

    truce_assert(!truce_find(run->inner, "accounts", NULL, NULL, &cursor, &error));
    while (!truce_cursor_next(cursor, &document, &error) && document) {
        struct value marks =
            truce__value_field(truce__value_document(document), "pendingTransactions", 19);
        struct fields fields;

        if (truce__field_number(document, "balance") !=
            balances[truce__field_number(document, "_id")])
            truce__sim_fail(run, "the sum of the accounts changed", document);
        if (marks.type == BSON_TYPE_ARRAY) {
            fields = truce__fields(marks);
            if (truce__fields_next(&fields))
                truce__sim_fail(run, "a mark is left", document);
        }
    }
    truce_cursor_close(cursor);
}

/* Ends all transfers, compares their states with the results of the calls, and computes the
 * balances from the completed ones. A shared transfer counts once. */
static void sim_check_transfers(struct run *run, const bson_t *document)
{
    truce_transfers *transfers = transfers_on(run->inner);
    int64_t balances[ACCOUNTS + 1] = {0, EACH, EACH, EACH};
    bool counted[2] = {false, false};

    (void)document;
    transfer_end_all(run, transfers);
    for (int t = 0; t < run->history.txns_count; t++) {
        const struct transfer_call *call = &transfer_calls[run->history.txns[t].script->call];
        char state[16];

        transfer_read_state(run, transfers, call->shared ? call->shared : t, state);
        sim_check_returned(run, call, t, state);
        if (strcmp(state, "done") != 0 || !call->from ||
            (call->shared && counted[call->shared - SHARED]))
            continue;
        if (call->shared)
            counted[call->shared - SHARED] = true;
        balances[call->from] -= call->value;
        balances[call->to] += call->value;
    }
    sim_check_accounts(run, balances);
    truce_transfers_free(transfers);
}

const struct sim_pattern truce__sim_transfer = {
    .collection = "accounts",
    .document = "{\"_id\": 1, \"balance\": 100}",
    .calls = sizeof transfer_calls / sizeof *transfer_calls,
    .positions = 1,
    .begin = begin_transfers,
    .call = call_transfer,
    .observe = observe_account,
    .check = sim_check_transfers,
};
