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
    /* posted[i]: the number of transactions that caller i has posted, which makes its next id. */
    int64_t posted[BENCH_CALLERS_MAX];
    /* The number of transactions between accounts that the setup posted. */
    int64_t transactions;
};

struct ledgers_move {
    int64_t id, from, to, value;
};

/* Draws a transfer from any account to another one, or if `hot` is set, to account 0. */
struct ledgers_move ledgers_draw(struct bench_call *call, bool hot);

/* ---- truce ---- */

/* Sets side->local to the handle of all callers of the process. */
void ledgers_join(struct bench_side *side);
void ledgers_setup_truce(struct bench_side *side);
void ledgers_post(truce_ledger *ledger, const struct ledgers_move *moves, int count);
/* Checks that every entry exists and matches its hash. */
void ledgers_check_truce(struct bench_side *side);

/* ---- the peers ---- */

void ledgers_setup_sql(struct bench_side *side);
void ledgers_setup_accounts(struct bench_side *side); /* Creates only the accounts. */
int ledgers_statements(struct bench_call *call, const struct ledgers_move *move,
                       struct sql_statement *statements, struct sql_value *values);
#define LEDGERS_STATEMENTS 3 /* The maximum number of statements of an operation. */
#define LEDGERS_VALUES     12
void ledgers_check_sql(struct bench_side *side);

#endif
