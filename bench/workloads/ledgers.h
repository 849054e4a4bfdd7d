#ifndef TRUCE_BENCH_LEDGERS_H
#define TRUCE_BENCH_LEDGERS_H

/*
 * Books, the same on every target: accounts 0 .. LEDGERS_ACCOUNTS-1, none of which may be
 * overdrawn, each with the same money from the external account (-1).
 *
 *     truce        truce_ledger_post: a document with both entries, their numbers, balances and
 *                  hashes
 *     postgresql   a row of both accounts with number and balance, and one of the transaction that
 *                  has both
 *     sqlite       entries, each with its number and the balance after it; no hashes
 */
#include "bench/harness.h"
#include "bench/sql.h"

#define LEDGERS_ACCOUNTS (bench_small ? INT64_C(40) : INT64_C(1000))
#define LEDGERS_MONEY    INT64_C(1000000000) /* The first balance of each account. */

/* The state that the callers of a side share, and that the checks use. */
struct ledgers {
    int64_t posted[BENCH_CALLERS_MAX]; /* by the caller; the next id */
    int64_t transactions;              /* that the setup posted between accounts */
};

struct ledgers_move {
    int64_t id, from, to, value;
};

/* From any account to another, or (`hot`) to account 0. */
struct ledgers_move ledgers_draw(struct bench_call *call, bool hot);

/* ---- truce ---- */

/* side->local: the handle, for all callers of a process. */
void ledgers_join(struct bench_side *side);
void ledgers_setup_truce(struct bench_side *side);
void ledgers_post(truce_ledger *ledger, const struct ledgers_move *moves, int count);
/* Checks that every entry exists and matches its hash. */
void ledgers_check_truce(struct bench_side *side);

/* ---- the peers ---- */

void ledgers_setup_sql(struct bench_side *side);
void ledgers_setup_accounts(struct bench_side *side); /* nothing else */
int ledgers_statements(struct bench_call *call, const struct ledgers_move *move,
                       struct sql_statement *statements, struct sql_value *values);
#define LEDGERS_STATEMENTS 3 /* The maximum of statements of an operation. */
#define LEDGERS_VALUES     12
void ledgers_check_sql(struct bench_side *side);

#endif
