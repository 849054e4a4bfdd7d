/*
 * A two-phase transfer: it moves a value from one document's balance to another's, if the balance
 * covers it, under the caller's id, and keeps a document about it. Between any two, or always to
 * one hot document.
 *
 *     truce        truce_transfer_start: in one step, or ("steps") by the steps that any store can
 *                  do
 *     truce        ("commit") the same three writes in a truce_transact, by hand
 *     postgresql   BEGIN, the insert, both updates in the order of ids, COMMIT, by libpq's pipeline
 *                  mode
 *     sqlite       BEGIN IMMEDIATE, the insert, both updates, COMMIT
 */
#include "bench/documents.h"
#include "bench/workloads/ledgers.h"

struct way {
    bool hot, by_hand;
    truce_mechanism mechanism;
};

static const struct way any_two = {0}, one_hot = {.hot = true},
                        steps = {.mechanism = TRUCE_MECHANISM_JOURNAL}, by_hand = {.by_hand = true},
                        by_hand_hot = {.hot = true, .by_hand = true};

static struct ledgers_move transfer_draw(struct bench_call *call)
{
    return ledgers_draw(call, ((const struct way *)call->side->form->arg)->hot);
}

/* ---- truce ----------------------------------------------------------------------------------- */

static void transfer_join(struct bench_side *side)
{
    const struct way *way = side->form->arg;
    const truce_transfer_options options = {.collection = "transfers",
                                            .accounts = "accounts",
                                            .mechanism = way->mechanism,
                                            .keep_ms = -1};

    if (!way->by_hand)
        side->local = truce_transfers_new(side->connections[0], &options);
}

static void transfer_setup_truce(struct bench_side *side)
{
    const truce_write_options relaxed = {.relaxed = true};

    for (int64_t id = 0; id < LEDGERS_ACCOUNTS; id++) {
        bson_t *document = BCON_NEW("_id", BCON_INT64(id), "balance", BCON_INT64(LEDGERS_MONEY));
        bson_error_t error;

        BENCH_MUST(truce_insert(side->connections[0], "accounts", document, &relaxed, &error),
                   error);
        bson_destroy(document);
    }
}

static int64_t transfer_truce(struct bench_call *call)
{
    struct ledgers_move move = transfer_draw(call);
    bson_value_t id = document_id(move.id), from = document_id(move.from),
                 to = document_id(move.to), value = document_id(move.value);
    truce_transfer transfer = {.id = &id, .source = &from, .destination = &to, .value = &value};
    bson_error_t error;

    BENCH_MUST(truce_transfer_start(call->side->local, NULL, &transfer, NULL, &error), error);
    return 1;
}

static truce_status transfer_add_to(truce_commit *commit, int64_t id, int64_t value,
                                    bson_error_t *error)
{
    bson_value_t which = document_id(id);
    bson_t *guard = value < 0 ? BCON_NEW("balance", "{", "$gte", BCON_INT64(-value), "}") : NULL,
           *update = BCON_NEW("$inc", "{", "balance", BCON_INT64(value), "}");
    truce_status status = TRUCE_OK;

    if (guard)
        status = truce_commit_require(commit, "accounts", &which, guard, error);
    if (!status)
        status = truce_commit_update(commit, "accounts", &which, NULL, update, error);
    bson_destroy(update);
    if (guard)
        bson_destroy(guard);
    return status;
}

static truce_status move_by_hand(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct ledgers_move *move = arg;
    bson_t *document =
        BCON_NEW("_id", BCON_INT64(move->id), "source", BCON_INT64(move->from), "destination",
                 BCON_INT64(move->to), "value", BCON_INT64(move->value), "state", "done");
    truce_status status = truce_commit_insert(commit, "transfers", document, error);

    if (!status)
        status = transfer_add_to(commit, move->from, -move->value, error);
    if (!status)
        status = transfer_add_to(commit, move->to, move->value, error);
    bson_destroy(document);
    return status;
}

static int64_t truce_by_hand(struct bench_call *call)
{
    const truce_commit_options options = {.tries_max = 100000};
    struct ledgers_move move = transfer_draw(call);
    bson_error_t error;

    BENCH_MUST(truce_transact(call->connection, move_by_hand, &move, &options, &error), error);
    return 1;
}

static void transfer_check_truce(struct bench_side *side)
{
    truce_store *store = side->connections[0];
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;
    bson_iter_t iter;
    int64_t count = 0, accounts = 0, money = 0;

    BENCH_MUST(truce_count(store, "transfers", NULL, NULL, &count, &error), error);
    BENCH_CHECK(count == side->operations);
    BENCH_MUST(truce_find(store, "accounts", NULL, NULL, &cursor, &error), error);
    for (;;) {
        BENCH_MUST(truce_cursor_next(cursor, &document, &error), error);
        if (!document)
            break;
        BENCH_CHECK(bson_iter_init_find(&iter, document, "balance"));
        money += bson_iter_as_int64(&iter);
        accounts++;
        BENCH_CHECK(!bson_iter_init_find(&iter, document, "pendingTransactions") ||
                    (bson_iter_recurse(&iter, &iter) && !bson_iter_next(&iter)));
    }
    truce_cursor_close(cursor);
    BENCH_CHECK(accounts == LEDGERS_ACCOUNTS && money == LEDGERS_ACCOUNTS * LEDGERS_MONEY);
}

/* ---- the peers ------------------------------------------------------------------------------- */

static void transfer_setup_sql(struct bench_side *side)
{
    struct sql *sql = side->connections[0];

    ledgers_setup_accounts(side);
    sql_execute(sql, "CREATE TABLE transfers(id bigint PRIMARY KEY, source bigint NOT NULL,"
                     " destination bigint NOT NULL, value bigint NOT NULL, state text NOT NULL)");
}

static int64_t transfer_sql(struct bench_call *call)
{
    static const char insert[] = "INSERT INTO transfers VALUES ($1, $2, $3, $4, 'done')",
                      update[] = "UPDATE accounts SET balance = balance + $1 WHERE id = $2";
    struct ledgers_move move = transfer_draw(call);
    bool first = move.from < move.to;
    int64_t one = first ? move.from : move.to, other = first ? move.to : move.from,
            value = first ? -move.value : move.value;
    struct sql_statement all[] = {
        SQL("BEGIN"),
        SQL(insert, NUMBER(move.id), NUMBER(move.from), NUMBER(move.to), NUMBER(move.value)),
        SQL(update, NUMBER(value), NUMBER(one)), SQL(update, NUMBER(-value), NUMBER(other)),
        SQL("COMMIT")};

    if (call->side->target->kind == &target_sqlite)
        all[0] = SQL("BEGIN IMMEDIATE");
    sql_start_all(call->connection, all, 5);
    sql_finish(call->connection);
    return 1;
}

static void transfer_check_sql(struct bench_side *side)
{
    struct sql *sql = side->connections[0];

    BENCH_CHECK(sql_get(sql, SQL("SELECT count(*) FROM transfers")) == side->operations);
    BENCH_CHECK(sql_get(sql, SQL("SELECT count(*) FROM accounts")) == LEDGERS_ACCOUNTS + 1);
    BENCH_CHECK(sql_get(sql, SQL("SELECT CAST(sum(balance) AS bigint) FROM accounts")) == 0);
}

const struct bench_workload workload_transfer = {
    .name = "transfer",
    .title = "a value moves from any document to another, by a two-phase transfer",
    .unit = "transfers",
    .state_size = sizeof(struct ledgers),
    .aim = 1,
    .forms = {
        {"truce", NULL, transfer_setup_truce, transfer_truce, transfer_check_truce, &any_two,
         transfer_join},
        {"truce", "commit", transfer_setup_truce, truce_by_hand, transfer_check_truce, &by_hand,
         transfer_join},
        {"truce", "steps", transfer_setup_truce, transfer_truce, transfer_check_truce, &steps,
         transfer_join},
        {"postgresql", NULL, transfer_setup_sql, transfer_sql, transfer_check_sql, &any_two},
        {"sqlite", NULL, transfer_setup_sql, transfer_sql, transfer_check_sql, &any_two},
    }};

const struct bench_workload workload_transfer_hot = {
    .name = "transfer_hot",
    .title = "the same, all of them to one hot document",
    .unit = "transfers",
    .state_size = sizeof(struct ledgers),
    .aim = 5,
    .forms = {
        {"truce", NULL, transfer_setup_truce, transfer_truce, transfer_check_truce, &one_hot,
         transfer_join},
        {"truce", "commit", transfer_setup_truce, truce_by_hand, transfer_check_truce, &by_hand_hot,
         transfer_join},
        {"postgresql", NULL, transfer_setup_sql, transfer_sql, transfer_check_sql, &one_hot},
        {"sqlite", NULL, transfer_setup_sql, transfer_sql, transfer_check_sql, &one_hot},
    }};
