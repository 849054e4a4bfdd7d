/* Ledgers: many transactions in one call, some of them refused: the results are those of single
 * calls. */
#include "base/random.h"
#include "tests/support/ledger_rig.h"

#define BULK_MAX 40

struct bulk {
    truce_ledger_transaction transactions[BULK_MAX];
    truce_ledger_entry entries[BULK_MAX][2];
    truce_ledger_result results[BULK_MAX];
    bson_value_t ids[BULK_MAX], ofs[BULK_MAX];
    char names[BULK_MAX][20];
    int count;
};

static void add(struct bulk *bulk, const char *id, truce_ledger_kind kind, const char *from,
                const char *to, int64_t amount, const char *of)
{
    int i = bulk->count++;

    snprintf(bulk->names[i], sizeof bulk->names[i], "%s", id);
    bulk->ids[i] = text_id(bulk->names[i]);
    bulk->entries[i][0] = (truce_ledger_entry){from, -amount, NULL};
    bulk->entries[i][1] = (truce_ledger_entry){to, amount, NULL};
    bulk->transactions[i] = (truce_ledger_transaction){.id = &bulk->ids[i], .kind = kind};
    if (of) {
        bulk->ofs[i] = text_id(of);
        bulk->transactions[i].of = &bulk->ofs[i];
    } else {
        bulk->transactions[i].entries = bulk->entries[i];
        bulk->transactions[i].count = 2;
    }
}

static void post_bulk(truce_ledger *ledger, struct bulk *bulk)
{
    bson_error_t error = {0};

    CHECK_OK(truce_ledger_post_many(ledger, bulk->transactions, (size_t)bulk->count, bulk->results,
                                    &error),
             error);
}

static void result_is(const struct bulk *bulk, int i, truce_status status, bool exists, int line)
{
    const truce_ledger_result *result = &bulk->results[i];

    if (result->status != status || result->exists != exists)
        test_fail(__FILE__, line, "%d, %s: %s, exists %d (%s)", i, bulk->names[i],
                  truce_status_name(result->status), result->exists,
                  result->status ? result->error.message : "");
}
#define RESULT(bulk, i, status, exists) result_is(bulk, i, status, exists, __LINE__)

/* ---- random bulks --------------------------------------------------------------------------- */

#define ACCOUNTS 5
#define IDS      25

struct model {
    int64_t balance[ACCOUNTS];
    struct {
        int from, to;
        int64_t amount;
        bool posted;
    } made[IDS];
};

static const char *const names[ACCOUNTS] = {"bank", "m:a", "m:b", "m:c", "m:d"};

static void foresee(struct model *model, int id, int from, int to, int64_t amount,
                    truce_status *status, bool *exists)
{
    *status = TRUCE_OK;
    *exists = model->made[id].posted;
    if (*exists) {
        if (model->made[id].from == from && model->made[id].to == to &&
            model->made[id].amount == amount)
            return;
        *exists = false;
        *status = TRUCE_DUPLICATE;
    } else if (from && model->balance[from] < amount) {
        *status = TRUCE_LIMIT;
    } else {
        model->made[id].posted = true;
        model->made[id].from = from;
        model->made[id].to = to;
        model->made[id].amount = amount;
        model->balance[from] -= amount;
        model->balance[to] += amount;
    }
}

/* Makes few ids, so that they repeat, in the same bulk too. */
static void random_bulk(truce_ledger *ledger, struct model *model, int round, struct random *random)
{
    struct bulk bulk = {0};
    truce_status wanted[BULK_MAX];
    bool exists[BULK_MAX];
    int count = 1 + (int)truce__random_below(random, BULK_MAX);

    for (int i = 0; i < count; i++) {
        int from = (int)truce__random_below(random, ACCOUNTS),
            to = (from + 1 + (int)truce__random_below(random, ACCOUNTS - 1)) % ACCOUNTS,
            number = (int)truce__random_below(random, IDS);
        int64_t amount = 1 + (int64_t)truce__random_below(random, 50);
        char id[20];

        if (model->made[number].posted && truce__random_below(random, 2)) {
            from = model->made[number].from;
            to = model->made[number].to;
            amount = model->made[number].amount;
        }
        snprintf(id, sizeof id, "r%d.%d", round, number);
        add(&bulk, id, TRUCE_LEDGER_TRANSFER, names[from], names[to], amount, NULL);
        foresee(model, number, from, to, amount, &wanted[i], &exists[i]);
    }
    post_bulk(ledger, &bulk);
    for (int i = 0; i < count; i++)
        RESULT(&bulk, i, wanted[i], exists[i]);
}

static void random_bulks(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledgers[] = {book_ledger(store), book_ledger(store)};
    struct model model = {0};
    struct random random;
    long rounds = test_scale("TRUCE_LEDGER_BULKS", 6);

    (void)setting;
    truce__random_seed(&random, test_seed());
    OPEN(ledgers[0], names[0], ANY);
    for (int i = 1; i < ACCOUNTS; i++)
        OPEN(ledgers[0], names[i], 0);
    for (int round = 0; round < rounds && !test_failures(); round++) {
        memset(model.made, 0, sizeof model.made);
        for (int i = 0; i < 2 && !test_failures(); i++)
            random_bulk(ledgers[truce__random_below(&random, 2)], &model, round, &random);
    }
    for (int i = 0; i < ACCOUNTS; i++)
        CHECK_INT(book_balance(ledgers[i % 2], names[i]).balance, ==, model.balance[i]);
    BOOK_CHECK(ledgers[0]);
    truce_ledger_free(ledgers[0]);
    truce_ledger_free(ledgers[1]);
}

TEST(partially_refused_bulks_equal_those_of_a_model)
{
    everywhere(random_bulks);
}

/* ---- caches ---------------------------------------------------------------------------------- */

/* The other handle posts transactions that this one does not know. */
static void unknown(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store), *other = book_ledger(store);
    struct bulk bulk = {0};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(book_transfer(other, "o1", "bank", "people:a", 1000, &error), error);
    add(&bulk, "t1", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 600, NULL);
    add(&bulk, "t2", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 600, NULL);
    add(&bulk, "t3", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 801, NULL);
    add(&bulk, "t4", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 800, NULL);
    post_bulk(ledger, &bulk);
    RESULT(&bulk, 0, TRUCE_OK, false);
    RESULT(&bulk, 1, TRUCE_OK, false); /* refused, if the cache were right */
    RESULT(&bulk, 2, TRUCE_LIMIT, false);
    RESULT(&bulk, 3, TRUCE_OK, false);
    BALANCE("people:a", 0, 0);
    /* no plan precedes it: the cache refuses nothing */
    CHECK_OK(book_transfer(other, "o2", "bank", "people:a", 50, &error), error);
    CHECK_OK(book_transfer(other, "o3", "bank", "people:b", 50, &error), error);
    bulk = (struct bulk){0};
    add(&bulk, "u1", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 50, NULL);
    add(&bulk, "u2", TRUCE_LEDGER_TRANSFER, "people:b", "bank", 50, NULL);
    post_bulk(ledger, &bulk);
    RESULT(&bulk, 0, TRUCE_OK, false);
    RESULT(&bulk, 1, TRUCE_OK, false);
    /* it does not refuse a reversal either */
    CHECK_OK(book_transfer(other, "o4", "bank", "people:a", 50, &error), error);
    bulk = (struct bulk){0};
    add(&bulk, "v1", TRUCE_LEDGER_REVERSE, NULL, NULL, 0, "o4");
    post_bulk(ledger, &bulk);
    RESULT(&bulk, 0, TRUCE_OK, false);
    BALANCE("people:a", 0, 0);
    BOOK_CHECK(ledger);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(checks_a_bulk_against_stored_data_not_the_cache)
{
    everywhere(unknown);
}

/* A bulk with a transaction that was posted before. An earlier transaction of the bulk is
 * refused first and then made under the same id. */
static void refused_then_made(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store), *other = book_ledger(store);
    struct bulk bulk = {0};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(book_transfer(other, "o1", "bank", "people:b", 10, &error), error);
    add(&bulk, "t1", TRUCE_LEDGER_TRANSFER, "bank", "people:b", 10, NULL);
    add(&bulk, "x", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 1050, NULL);
    add(&bulk, "t2", TRUCE_LEDGER_TRANSFER, "bank", "people:a", 1000, NULL);
    add(&bulk, "x", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 1050, NULL);
    add(&bulk, "o1", TRUCE_LEDGER_TRANSFER, "bank", "people:b", 10, NULL);
    post_bulk(ledger, &bulk);
    RESULT(&bulk, 0, TRUCE_OK, false);
    RESULT(&bulk, 1, TRUCE_LIMIT, false);
    CHECK_INT(bulk.results[1].booked_ms, ==, 0);
    RESULT(&bulk, 2, TRUCE_OK, false);
    RESULT(&bulk, 3, TRUCE_OK, false);
    RESULT(&bulk, 4, TRUCE_OK, true);
    BOOK_CHECK(ledger);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(reports_a_transaction_as_new_if_the_bulk_first_refused_it)
{
    everywhere(refused_then_made);
}

/* ---- voids and reversals --------------------------------------------------------------------- */

static void mixed(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    struct bulk bulk = {0};

    (void)setting;
    add(&bulk, "p", TRUCE_LEDGER_PENDING, "people:a", "people:b", 900, NULL);
    add(&bulk, "t1", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 200, NULL);
    add(&bulk, "v", TRUCE_LEDGER_VOID, NULL, NULL, 0, "p");
    add(&bulk, "t2", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 200, NULL);
    add(&bulk, "r", TRUCE_LEDGER_REVERSE, NULL, NULL, 0, "t1"); /* was not posted */
    add(&bulk, "s", TRUCE_LEDGER_REVERSE, NULL, NULL, 0, "t2");
    add(&bulk, "t3", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 1000, NULL);
    add(&bulk, "t4", TRUCE_LEDGER_TRANSFER, "people:a", "bank", 1, NULL);
    post_bulk(ledger, &bulk);
    RESULT(&bulk, 0, TRUCE_OK, false);
    RESULT(&bulk, 1, TRUCE_LIMIT, false);
    RESULT(&bulk, 2, TRUCE_OK, false);
    RESULT(&bulk, 3, TRUCE_OK, false);
    RESULT(&bulk, 4, TRUCE_NOT_FOUND, false);
    RESULT(&bulk, 5, TRUCE_OK, false);
    RESULT(&bulk, 6, TRUCE_OK, false);
    RESULT(&bulk, 7, TRUCE_LIMIT, false);
    BALANCE("people:a", 0, 0);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(releases_a_voided_amount_for_the_rest_of_the_bulk)
{
    everywhere(mixed);
}
