#include "bench/workloads/ledgers.h"

#include <inttypes.h>
#include <string.h>

struct ledgers_move ledgers_draw(struct bench_call *call, bool hot)
{
    struct ledgers *state = call->side->state;
    int64_t from = hot ? 1 + (int64_t)bench_random((uint64_t)LEDGERS_ACCOUNTS - 1)
                       : (int64_t)bench_random((uint64_t)LEDGERS_ACCOUNTS);
    int64_t to =
        hot ? 0
            : (from + 1 + (int64_t)bench_random((uint64_t)LEDGERS_ACCOUNTS - 1)) % LEDGERS_ACCOUNTS;

    return (struct ledgers_move){.id = (++state->posted[call->caller]) * BENCH_CALLERS_MAX +
                                       call->caller,
                                 .from = from,
                                 .to = to,
                                 .value = 1};
}

/* ---- truce ----------------------------------------------------------------------------------- */

static void ledgers_name_of(int64_t account, char name[40])
{
    if (account < 0)
        snprintf(name, 40, "external:bank");
    else
        snprintf(name, 40, "customers:%" PRId64, account);
}

void ledgers_join(struct bench_side *side)
{
    const truce_ledger_options options = {.collection = "book"};

    side->local = truce_ledger_new(side->connections[0], &options);
}

struct posting {
    truce_ledger_transaction transaction;
    truce_ledger_entry entries[2];
    bson_value_t id;
    char names[2][40];
};

static void ledgers_fill(struct posting *posting, const struct ledgers_move *move)
{
    ledgers_name_of(move->from, posting->names[0]);
    ledgers_name_of(move->to, posting->names[1]);
    posting->id = (bson_value_t){.value_type = BSON_TYPE_INT64, .value.v_int64 = move->id};
    posting->entries[0] = (truce_ledger_entry){posting->names[0], -move->value, NULL};
    posting->entries[1] = (truce_ledger_entry){posting->names[1], move->value, NULL};
    posting->transaction =
        (truce_ledger_transaction){.id = &posting->id, .entries = posting->entries, .count = 2};
}

void ledgers_post(truce_ledger *ledger, const struct ledgers_move *moves, int count)
{
    struct posting *postings = bson_malloc0((size_t)count * sizeof *postings);
    truce_ledger_transaction *all = bson_malloc0((size_t)count * sizeof *all);
    truce_ledger_result *results = bson_malloc0((size_t)count * sizeof *results);
    bson_error_t error;

    for (int i = 0; i < count; i++) {
        ledgers_fill(&postings[i], &moves[i]);
        all[i] = postings[i].transaction;
    }
    if (count == 1)
        BENCH_MUST(truce_ledger_post(ledger, NULL, all, results, &error), error);
    else
        BENCH_MUST(truce_ledger_post_many(ledger, all, (size_t)count, results, &error), error);
    for (int i = 0; i < count; i++) {
        BENCH_MUST(results[i].status, results[i].error);
        BENCH_CHECK(!results[i].exists);
    }
    bson_free(postings);
    bson_free(all);
    bson_free(results);
}

static void ledgers_open_account(truce_ledger *ledger, int64_t account)
{
    char name[40];
    truce_ledger_account rules = {.account = name, .currency = "EUR", .has_min = account >= 0};
    bson_error_t error;

    ledgers_name_of(account, name);
    BENCH_MUST(truce_ledger_open(ledger, NULL, &rules, &error), error);
}

void ledgers_setup_truce(struct bench_side *side)
{
    struct ledgers_move moves[1000];
    truce_ledger *ledger;
    bson_error_t error;

    ledgers_join(side);
    ledger = side->local;
    BENCH_MUST(truce_ledger_currency(ledger, "EUR", 2, &error), error);
    for (int64_t account = -1; account < LEDGERS_ACCOUNTS; account++)
        ledgers_open_account(ledger, account);
    for (int64_t i = 0; i < LEDGERS_ACCOUNTS; i++)
        moves[i] = (struct ledgers_move){-1 - i, -1, i, LEDGERS_MONEY};
    ledgers_post(ledger, moves, (int)LEDGERS_ACCOUNTS);
}

static void ledgers_report_finding(const bson_t *finding, void *arg)
{
    bson_iter_t iter;

    (void)arg;
    if (bson_iter_init_find(&iter, finding, "text"))
        fprintf(stderr, "%s\n", bson_iter_utf8(&iter, NULL));
}

void ledgers_check_truce(struct bench_side *side)
{
    const struct ledgers *state = side->state;
    truce_ledger_report report;
    bson_error_t error;

    BENCH_MUST(
        truce_ledger_verify(side->local, NULL, NULL, ledgers_report_finding, NULL, &report, &error),
        error);
    BENCH_CHECK(report.findings == 0);
    BENCH_CHECK(report.accounts == LEDGERS_ACCOUNTS + 1);
    BENCH_CHECK(report.entries ==
                1 + 3 * LEDGERS_ACCOUNTS + 2 * (side->operations + state->transactions));
}

/* ---- the peers ------------------------------------------------------------------------------- */

/* The account's row changes repeatedly, so its page has free space, and no index contains a
 * changing column. */
static const char *const tables[] = {
    "CREATE TABLE accounts(id bigint PRIMARY KEY, number bigint NOT NULL,"
    " balance bigint NOT NULL CHECK (balance >= 0 OR id = -1))",
    " WITH (fillfactor = 50)",
    "CREATE TABLE transactions(id bigint PRIMARY KEY, booked bigint NOT NULL,"
    " debit bigint NOT NULL, debit_number bigint NOT NULL, debit_balance bigint NOT NULL,"
    " credit bigint NOT NULL, credit_number bigint NOT NULL, credit_balance bigint NOT NULL,"
    " value bigint NOT NULL)",
    "CREATE UNIQUE INDEX debits ON transactions(debit, debit_number)",
    "CREATE UNIQUE INDEX credits ON transactions(credit, credit_number)"};

static bool is_postgres(const struct bench_side *side)
{
    return !strcmp(side->target->kind->name, "postgresql");
}

void ledgers_setup_accounts(struct bench_side *side)
{
    struct sql *sql = side->connections[0];
    char accounts[300];

    snprintf(accounts, sizeof accounts, "%s%s", tables[0], is_postgres(side) ? tables[1] : "");
    sql_execute(sql, accounts);
    sql_execute(sql, "BEGIN");
    for (int64_t account = -1; account < LEDGERS_ACCOUNTS; account++)
        sql_run(sql,
                SQL("INSERT INTO accounts(id, number, balance) VALUES ($1, 1, $2)", NUMBER(account),
                    NUMBER(account < 0 ? -LEDGERS_MONEY * LEDGERS_ACCOUNTS : LEDGERS_MONEY)));
    sql_execute(sql, "COMMIT");
    sql_execute(sql, is_postgres(side) ? "VACUUM ANALYZE accounts" : "ANALYZE");
}

void ledgers_setup_sql(struct bench_side *side)
{
    ledgers_setup_accounts(side);
    for (int i = 2; i < 5; i++)
        sql_execute(side->connections[0], tables[i]);
}

/* PostgreSQL: one statement, which locks both accounts in the order of their ids. */
static const char postgres_move[] =
    "WITH locked AS MATERIALIZED (SELECT id FROM accounts WHERE id IN ($2, $3) ORDER BY id"
    "  FOR UPDATE),"
    " moved AS (UPDATE accounts SET number = number + 1,"
    "  balance = balance + CASE WHEN accounts.id = $2 THEN -$4 ELSE $4 END"
    "  FROM locked WHERE accounts.id = locked.id"
    "  RETURNING accounts.id, accounts.number, accounts.balance)"
    " INSERT INTO transactions SELECT $1, extract(epoch FROM now()) * 1000, d.id, d.number,"
    "  d.balance, c.id, c.number, c.balance, $4 FROM moved d, moved c WHERE d.id = $2 AND c.id = $3";

static const char
    sqlite_debit[] =
        "UPDATE accounts SET number = number + 1, balance = balance - $1 WHERE id = $2",
    sqlite_credit[] =
        "UPDATE accounts SET number = number + 1, balance = balance + $1 WHERE id = $2",
    sqlite_insert[] = "INSERT INTO transactions SELECT $1, unixepoch() * 1000, d.id, d.number,"
                      " d.balance, c.id, c.number, c.balance, $2 FROM accounts d, accounts c"
                      " WHERE d.id = $3 AND c.id = $4";

int ledgers_statements(struct bench_call *call, const struct ledgers_move *move,
                       struct sql_statement *statements, struct sql_value *values)
{
    if (is_postgres(call->side)) {
        const struct sql_value all[] = {NUMBER(move->id), NUMBER(move->from), NUMBER(move->to),
                                        NUMBER(move->value)};

        memcpy(values, all, sizeof all);
        statements[0] = (struct sql_statement){postgres_move, values, 4};
        return 1;
    }
    const struct sql_value all[] = {NUMBER(move->value), NUMBER(move->from), NUMBER(move->value),
                                    NUMBER(move->to),    NUMBER(move->id),   NUMBER(move->value),
                                    NUMBER(move->from),  NUMBER(move->to)};

    memcpy(values, all, sizeof all);
    statements[0] = (struct sql_statement){sqlite_debit, values, 2};
    statements[1] = (struct sql_statement){sqlite_credit, values + 2, 2};
    statements[2] = (struct sql_statement){sqlite_insert, values + 4, 4};
    return 3;
}

void ledgers_check_sql(struct bench_side *side)
{
    const struct ledgers *state = side->state;
    struct sql *sql = side->connections[0];
    int64_t transactions = side->operations + state->transactions;

    BENCH_CHECK(sql_get(sql, SQL("SELECT count(*) FROM transactions")) == transactions);
    BENCH_CHECK(sql_get(sql, SQL("SELECT count(*) FROM accounts")) == LEDGERS_ACCOUNTS + 1);
    BENCH_CHECK(sql_get(sql, SQL("SELECT CAST(sum(balance) AS bigint) FROM accounts")) == 0);
    BENCH_CHECK(sql_get(sql, SQL("SELECT CAST(sum(number) AS bigint) FROM accounts")) ==
                LEDGERS_ACCOUNTS + 1 + 2 * transactions);
}
