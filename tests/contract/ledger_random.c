/* Ledgers: random books against a model in memory. */
#include "base/random.h"
#include "tests/support/ledger_rig.h"

/* ---- random books --------------------------------------------------------------------------- */

#define ACCOUNTS 4
#define PENDINGS 400

struct model {
    int64_t balance[ACCOUNTS], out[ACCOUNTS], in[ACCOUNTS];
    struct {
        int from, to;
        int64_t amount;
        bool open, posted, reversed;
    } made[PENDINGS];
};

static const char *const names[ACCOUNTS] = {"bank", "m:a", "m:b", "m:c"};

static bool affords(const struct model *model, int account, int64_t amount)
{
    return account == 0 || model->balance[account] - model->out[account] - amount >= 0;
}

static void move(struct model *model, int from, int to, int64_t amount)
{
    model->balance[from] -= amount;
    model->balance[to] += amount;
}

static void reserve(struct model *model, int from, int to, int64_t amount)
{
    model->out[from] += amount;
    model->in[to] += amount;
}

static void random_step(truce_ledger *ledger, struct model *model, int i, struct random *random)
{
    int from = (int)truce__random_below(random, ACCOUNTS),
        to = (from + 1 + (int)truce__random_below(random, ACCOUNTS - 1)) % ACCOUNTS,
        other = i ? (int)truce__random_below(random, (uint64_t)i) : 0;
    int64_t amount = 1 + (int64_t)truce__random_below(random, 60);
    truce_ledger_kind kind = (truce_ledger_kind)truce__random_below(random, 5);
    truce_status wanted = TRUCE_OK, status;
    char id[20], of[20];
    bson_error_t error = {0};

    snprintf(id, sizeof id, "t%d", i);
    snprintf(of, sizeof of, "t%d", other);
    model->made[i].from = from;
    model->made[i].to = to;
    model->made[i].amount = amount;
    if (kind == TRUCE_LEDGER_TRANSFER || kind == TRUCE_LEDGER_PENDING || !i) {
        kind = kind == TRUCE_LEDGER_PENDING ? kind : TRUCE_LEDGER_TRANSFER;
        wanted = affords(model, from, amount) ? TRUCE_OK : TRUCE_LIMIT;
        status = book_post(ledger, NULL, id, kind, names[from], names[to], amount, NULL, &error);
        if (!wanted && kind == TRUCE_LEDGER_PENDING)
            reserve(model, from, to, amount);
        else if (!wanted)
            move(model, from, to, amount);
        model->made[i].open = !wanted && kind == TRUCE_LEDGER_PENDING;
        model->made[i].posted = !wanted && kind == TRUCE_LEDGER_TRANSFER;
        CHECK_STATUS(wanted, status, error);
        return;
    }
    from = model->made[other].from;
    to = model->made[other].to;
    amount = model->made[other].amount;
    status = book_resolve(ledger, NULL, id, kind, of, &error);
    if (kind == TRUCE_LEDGER_REVERSE && model->made[other].posted && !model->made[other].reversed &&
        affords(model, to, amount)) {
        CHECK_OK(status, error);
        move(model, to, from, amount);
        model->made[other].reversed = true;
        model->made[i].from = to;
        model->made[i].to = from;
        model->made[i].amount = amount;
        model->made[i].posted = true;
    } else if (kind != TRUCE_LEDGER_REVERSE && model->made[other].open) {
        CHECK_OK(status, error);
        reserve(model, from, to, -amount);
        model->made[other].open = false;
        if (kind == TRUCE_LEDGER_SETTLE) {
            move(model, from, to, amount);
            model->made[i].from = from;
            model->made[i].to = to;
            model->made[i].amount = amount;
            model->made[i].posted = true;
        }
    } else {
        CHECK(status == TRUCE_INVALID || status == TRUCE_DUPLICATE || status == TRUCE_NOT_FOUND ||
              status == TRUCE_LIMIT);
    }
}

static void random_book(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledgers[] = {book_ledger(store), book_ledger(store)};
    struct model model = {0};
    struct random random;
    long steps = test_scale("TRUCE_LEDGER_STEPS", 120);

    (void)setting;
    truce__random_seed(&random, test_seed());
    OPEN(ledgers[0], names[0], ANY);
    for (int i = 1; i < ACCOUNTS; i++)
        OPEN(ledgers[0], names[i], 0);
    for (int i = 0; i < steps && i < PENDINGS && !test_failures(); i++)
        random_step(ledgers[truce__random_below(&random, 2)], &model, i, &random);
    for (int i = 0; i < ACCOUNTS; i++) {
        truce_ledger_balance balance = book_balance(ledgers[i % 2], names[i]);

        CHECK_INT(balance.balance, ==, model.balance[i]);
        CHECK_INT(balance.out, ==, model.out[i]);
        CHECK_INT(balance.in, ==, model.in[i]);
    }
    BOOK_CHECK(ledgers[0]);
    truce_ledger_free(ledgers[0]);
    truce_ledger_free(ledgers[1]);
}

TEST(random_books_equal_those_of_a_model)
{
    everywhere(random_book);
}
