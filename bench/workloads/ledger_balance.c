/*
 * Reads the balance of an account with ten thousand entries, or a million. The cost does not grow
 * with their number.
 *
 *     truce        truce_ledger_balance_of, by a handle that stays open, or ("new") by a new one
 *                  each time, which knows no number of the account; both look up the last number
 *     postgresql   the row of the account, which its writers maintain
 *     sqlite       the same
 *
 * TRUCE_BENCH_LEDGER_ENTRIES replaces the million: 10,000,000 take some minutes to write, and some
 * to verify.
 */
#include "bench/bench.h"
#include "bench/documents.h"
#include "bench/workloads/ledgers.h"

#define BATCH 1000

static const int64_t thousands = 10000, million = 1000000;

static int64_t wanted(const struct bench_side *side)
{
    int64_t entries = *(const int64_t *)side->form->arg;

    if (entries == million)
        entries = bench_scale("TRUCE_BENCH_LEDGER_ENTRIES", million);
    return bench_small ? entries / 100 + 1000 : entries;
}

static void balance_setup_truce(struct bench_side *side)
{
    struct ledgers *state = side->state;
    struct ledgers_move moves[BATCH];

    ledgers_setup_truce(side);
    while (state->transactions < wanted(side)) {
        for (int i = 0; i < BATCH; i++)
            moves[i] = (struct ledgers_move){++state->transactions,
                                             1 + (int64_t)bench_random(LEDGERS_ACCOUNTS - 1), 0, 1};
        ledgers_post(side->local, moves, BATCH);
    }
}

static void balance_must_be(const struct bench_call *call, int64_t balance)
{
    BENCH_CHECK(balance == LEDGERS_MONEY + ((struct ledgers *)call->side->state)->transactions);
}

static int64_t balance_truce(struct bench_call *call)
{
    truce_ledger_balance balance;
    bson_error_t error;

    BENCH_MUST(truce_ledger_balance_of(call->side->local, "customers:0", NULL, &balance, &error),
               error);
    balance_must_be(call, balance.balance);
    return 1;
}

static int64_t truce_new(struct bench_call *call)
{
    truce_ledger *ledger =
        truce_ledger_new(call->connection, &(truce_ledger_options){.collection = "book"});
    truce_ledger_balance balance;
    bson_error_t error;

    BENCH_MUST(truce_ledger_balance_of(ledger, "customers:0", NULL, &balance, &error), error);
    balance_must_be(call, balance.balance);
    truce_ledger_free(ledger);
    return 1;
}

/* Creates as many rows as a ledger would have. */
static void balance_setup_sql(struct bench_side *side)
{
    struct ledgers *state = side->state;
    struct sql *sql = side->connections[0];
    int64_t count = state->transactions = wanted(side);

    ledgers_setup_sql(side);
    sql_run(sql, SQL("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"
                     " INSERT INTO transactions SELECT i, 0, 1, i + 1, 0, 0, i + 1, i, 1 FROM n",
                     NUMBER(count)));
    sql_run(sql,
            SQL("UPDATE accounts SET number = number + $1, balance = balance + $2 WHERE id = 0",
                NUMBER(count), NUMBER(count)));
    sql_run(sql,
            SQL("UPDATE accounts SET number = number + $1, balance = balance - $2 WHERE id = 1",
                NUMBER(count), NUMBER(count)));
    sql_execute(sql, side->target->kind == &target_postgres ? "VACUUM ANALYZE" : "ANALYZE");
}

static int64_t balance_sql(struct bench_call *call)
{
    balance_must_be(call,
                    sql_get(call->connection, SQL("SELECT balance FROM accounts WHERE id = 0")));
    return 1;
}

/* Checks that the balance is unchanged, because the workload writes nothing. */
static void balance_check_truce(struct bench_side *side)
{
    side->operations = 0;
    ledgers_check_truce(side);
}

static void balance_check_sql(struct bench_side *side)
{
    side->operations = 0;
    ledgers_check_sql(side);
}

const struct bench_workload workload_ledger_balance = {
    .name = "ledger_balance",
    .title = "the balance of an account with a million entries",
    .unit = "balances",
    .state_size = sizeof(struct ledgers),
    .reads = true,
    .forms = {
        {"truce", NULL, balance_setup_truce, balance_truce, balance_check_truce, &million,
         ledgers_join},
        {"truce", "new", balance_setup_truce, truce_new, balance_check_truce, &million,
         ledgers_join},
        {"truce", "10^4", balance_setup_truce, balance_truce, balance_check_truce, &thousands,
         ledgers_join},
        {"truce", "10^4, new", balance_setup_truce, truce_new, balance_check_truce, &thousands,
         ledgers_join},
        {"postgresql", NULL, balance_setup_sql, balance_sql, balance_check_sql, &million},
        {"sqlite", NULL, balance_setup_sql, balance_sql, balance_check_sql, &million},
    }};
