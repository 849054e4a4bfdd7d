/*
 * Posts money from one account to another, under the caller's id: one transaction at a time, or a
 * thousand. The accounts are any two, or one of them is always the hot account.
 *
 *     truce        truce_ledger_post, truce_ledger_post_many
 *     postgresql   one statement that locks both accounts, changes them and inserts the
 *                  transaction; a thousand of them as one transaction in libpq's pipeline, which
 *                  holds the accounts' table (else two of them would lock the same accounts in two
 *                  orders)
 *     sqlite       BEGIN IMMEDIATE, UPDATE, UPDATE, INSERT, COMMIT; or a thousand between BEGIN and
 *                  COMMIT
 */
#include "bench/workloads/ledgers.h"

#define BATCH 1000

static const bool any = false, hot = true;

static bool is_hot(const struct bench_call *call)
{
    return *(const bool *)call->side->form->arg;
}

/* ---- one by one ------------------------------------------------------------------------------ */

static int64_t ledger_truce(struct bench_call *call)
{
    struct ledgers_move move = ledgers_draw(call, is_hot(call));

    ledgers_post(call->side->local, &move, 1);
    return 1;
}

static int64_t ledger_postgres(struct bench_call *call)
{
    struct ledgers_move move = ledgers_draw(call, is_hot(call));
    struct sql_statement statements[LEDGERS_STATEMENTS];
    struct sql_value values[LEDGERS_VALUES];

    BENCH_CHECK(ledgers_statements(call, &move, statements, values) == 1);
    BENCH_CHECK(sql_run(call->connection, statements[0]) == 1);
    return 1;
}

static int64_t ledger_sqlite(struct bench_call *call)
{
    struct ledgers_move move = ledgers_draw(call, is_hot(call));
    struct sql_statement statements[LEDGERS_STATEMENTS];
    struct sql_value values[LEDGERS_VALUES];
    int count = ledgers_statements(call, &move, statements, values);

    sql_run(call->connection, SQL("BEGIN IMMEDIATE"));
    for (int i = 0; i < count; i++)
        BENCH_CHECK(sql_run(call->connection, statements[i]) == 1);
    sql_run(call->connection, SQL("COMMIT"));
    return 1;
}

/* ---- a thousand at a time -------------------------------------------------------------------- */

static int64_t truce_bulk_post(struct bench_call *call)
{
    struct ledgers_move moves[BATCH];

    for (int i = 0; i < BATCH; i++)
        moves[i] = ledgers_draw(call, false);
    ledgers_post(call->side->local, moves, BATCH);
    return BATCH;
}

static int64_t sql_bulk(struct bench_call *call)
{
    static const char lock[] = "LOCK TABLE accounts IN EXCLUSIVE MODE";
    bool postgres = call->side->target->kind == &target_postgres;
    struct sql_statement *statements =
        bson_malloc((BATCH * LEDGERS_STATEMENTS + 3) * sizeof *statements);
    struct sql_value *values = bson_malloc((size_t)BATCH * LEDGERS_VALUES * sizeof *values);
    int count = 0;

    statements[count++] = SQL("BEGIN");
    if (postgres)
        statements[count++] = (struct sql_statement){lock, NULL, 0};
    else
        statements[0] = SQL("BEGIN IMMEDIATE");
    for (int i = 0; i < BATCH; i++) {
        struct ledgers_move move = ledgers_draw(call, false);

        count += ledgers_statements(call, &move, statements + count,
                                    values + (size_t)i * LEDGERS_VALUES);
    }
    statements[count++] = SQL("COMMIT");
    sql_start_all(call->connection, statements, count);
    sql_finish(call->connection);
    bson_free(values);
    bson_free(statements);
    return BATCH;
}

/* ---- the lines ------------------------------------------------------------------------------- */

const struct bench_workload workload_ledger_transfer = {
    .name = "ledger_transfer",
    .title = "money goes from any account to another, in a ledger",
    .unit = "transfers",
    .state_size = sizeof(struct ledgers),
    .aim = 1.5,
    .forms = {
        {"truce", NULL, ledgers_setup_truce, ledger_truce, ledgers_check_truce, &any, ledgers_join},
        {"postgresql", NULL, ledgers_setup_sql, ledger_postgres, ledgers_check_sql, &any},
        {"sqlite", NULL, ledgers_setup_sql, ledger_sqlite, ledgers_check_sql, &any},
    }};

const struct bench_workload workload_ledger_hot = {
    .name = "ledger_hot",
    .title = "the same, all of it to one hot account",
    .unit = "transfers",
    .state_size = sizeof(struct ledgers),
    .aim = 10,
    .forms = {
        {"truce", NULL, ledgers_setup_truce, ledger_truce, ledgers_check_truce, &hot, ledgers_join},
        {"postgresql", NULL, ledgers_setup_sql, ledger_postgres, ledgers_check_sql, &hot},
        {"sqlite", NULL, ledgers_setup_sql, ledger_sqlite, ledgers_check_sql, &hot},
    }};

const struct bench_workload workload_ledger_bulk = {
    .name = "ledger_bulk",
    .title = "the same of any two accounts, a thousand at a time",
    .unit = "transfers",
    .state_size = sizeof(struct ledgers),
    .aim_rate = 200000,
    .forms = {
        {"truce", NULL, ledgers_setup_truce, truce_bulk_post, ledgers_check_truce, &any,
         ledgers_join},
        {"postgresql", NULL, ledgers_setup_sql, sql_bulk, ledgers_check_sql, &any},
        {"sqlite", NULL, ledgers_setup_sql, sql_bulk, ledgers_check_sql, &any},
    }};
