/* Ledgers: every call on every store. Money that is asked for twice moves once, rules hold, books prove. */
#include "base/clock.h"
#include "base/random.h"
#include "tests/support/book.h"
#include "truce/sys/decorate.h"

#define OPEN(ledger, account, min)                                                                 \
    do {                                                                                           \
        bson_error_t why_ = {0};                                                                   \
        CHECK_OK(book_open(ledger, account, min, &why_), why_);                                    \
    } while (0)
#define ANY INT64_MIN

/* A server may have its own idea of a unique index over two fields of one array. */
static void everywhere(setting_function *function)
{
    if (!server_under_test() || !test_excused("ledger_numbers"))
        on_every_setting(function);
}

/* bank: the outside; a and b: no overdraft; a has 1,000 */
static truce_ledger *begin(truce_store *store)
{
    truce_ledger *ledger = book_ledger(store);
    bson_error_t error = {0};

    OPEN(ledger, "bank", ANY);
    OPEN(ledger, "people:a", 0);
    OPEN(ledger, "people:b", 0);
    CHECK_OK(book_transfer(ledger, "seed", "bank", "people:a", 1000, &error), error);
    return ledger;
}

static void check_balance(truce_ledger *ledger, const char *account, int64_t balance,
                          int64_t available, int line)
{
    truce_ledger_balance there = book_balance(ledger, account);

    if (there.balance != balance || there.available != available)
        test_fail(__FILE__, line, "%s: %lld, available %lld", account, (long long)there.balance,
                  (long long)there.available);
}
#define BALANCE(account, balance, available)                                                       \
    check_balance(ledger, account, balance, available, __LINE__)

static bson_t *read_transaction(truce_store *store, const char *id)
{
    bson_t filter = BSON_INITIALIZER, found;
    bson_error_t error = {0};
    bson_t *copy;

    BSON_APPEND_UTF8(&filter, "_id", id);
    CHECK_OK(truce_find_one(store, "tx", &filter, NULL, &found, &error), error);
    copy = bson_copy(&found);
    bson_destroy(&found);
    bson_destroy(&filter);
    return copy;
}

/* ---- posting -------------------------------------------------------------------------------- */

static void post_again(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store), *other = book_ledger(store);
    truce_ledger_result result;
    bson_error_t error = {0};

    (void)setting;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(book_post(i == 1 ? other : ledger, NULL, "t1", TRUCE_LEDGER_TRANSFER, "people:a",
                           "people:b", 300, &result, &error),
                 error);
        CHECK_INT(result.exists, ==, i > 0);
        CHECK(result.booked_ms > 0);
    }
    BALANCE("people:a", 700, 700);
    BALANCE("people:b", 300, 300);
    BALANCE("bank", -1000, -1000);
    CHECK_STATUS(TRUCE_DUPLICATE, book_transfer(other, "t1", "people:a", "people:b", 301, &error),
                 error);
    CHECK_STATUS(TRUCE_DUPLICATE, book_transfer(ledger, "t1", "people:a", "bank", 300, &error),
                 error);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 book_post(ledger, NULL, "t1", TRUCE_LEDGER_PENDING, "people:a", "people:b", 300,
                           NULL, &error),
                 error);
    /* it exists, though it could not be posted any more */
    CHECK_OK(book_transfer(ledger, "t2", "people:a", "people:b", 700, &error), error);
    CHECK_OK(book_post(other, NULL, "t1", TRUCE_LEDGER_TRANSFER, "people:a", "people:b", 300,
                       &result, &error),
             error);
    CHECK(result.exists);
    CHECK_INT(book_count(store, "{'kind': 'transfer'}"), ==, 3);
    BOOK_CHECK(ledger);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(the_same_id_moves_money_once_and_other_content_is_refused)
{
    everywhere(post_again);
}

static void refuse(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_value_t id = text_id("x");
    bson_error_t error = {0};
    const struct {
        truce_status status;
        truce_ledger_entry entries[3];
        uint32_t count;
        const char *why;
    } cases[] = {
        {TRUCE_INVALID,
         {{"people:a", -5, NULL}, {"people:b", 4, NULL}},
         2,
         "sum to zero, but to -1"},
        {TRUCE_INVALID, {{"people:a", -5, NULL}, {"usd", 5, NULL}}, 2, "does not balance"},
        {TRUCE_INVALID, {{"people:a", 0, NULL}}, 1, "not 0"},
        {TRUCE_INVALID, {{"people::a", -5, NULL}, {"people:b", 5, NULL}}, 2, "is empty"},
        {TRUCE_INVALID, {{NULL, -5, NULL}, {"people:b", 5, NULL}}, 2, "has a name"},
        {TRUCE_INVALID, {{NULL, 0, NULL}}, 0, "has entries"},
        {TRUCE_INVALID, {{"people:b", -5, NULL}, {"in", 5, NULL}}, 2, "debits only"},
        {TRUCE_INVALID, {{"out", -5, NULL}, {"people:b", 5, NULL}}, 2, "credits only"},
        {TRUCE_NOT_FOUND,
         {{"people:a", -5, NULL}, {"people:c", 5, NULL}},
         2,
         "people:c is not open"},
        {TRUCE_LIMIT, {{"people:b", -1, NULL}, {"people:a", 1, NULL}}, 2, "-0.01 EUR"},
        {TRUCE_LIMIT,
         {{"bank", -5001, NULL}, {"full", 5001, NULL}},
         2,
         "50.01 EUR, more than 50.00"},
        {TRUCE_LIMIT,
         {{"bank", INT64_MIN, NULL}, {"bank2", INT64_MAX, NULL}, {"bank2", 1, NULL}},
         3,
         "64 bits"},
    };

    (void)setting;
    CHECK_OK(truce_ledger_currency(ledger, "USD", 2, &error), error);
    CHECK_OK(truce_ledger_open(ledger, NULL,
                               &(truce_ledger_account){.account = "usd", .currency = "USD"},
                               &error),
             error);
    CHECK_OK(truce_ledger_open(
                 ledger, NULL,
                 &(truce_ledger_account){.account = "in", .currency = "EUR", .debit_only = true},
                 &error),
             error);
    CHECK_OK(truce_ledger_open(
                 ledger, NULL,
                 &(truce_ledger_account){.account = "out", .currency = "EUR", .credit_only = true},
                 &error),
             error);
    CHECK_OK(
        truce_ledger_open(ledger, NULL,
                          &(truce_ledger_account){
                              .account = "full", .currency = "EUR", .has_max = true, .max = 5000},
                          &error),
        error);
    OPEN(ledger, "bank2", ANY);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        truce_ledger_transaction transaction = {
            .id = &id, .entries = cases[i].entries, .count = cases[i].count};
        truce_status status = truce_ledger_post(ledger, NULL, &transaction, NULL, &error);

        CHECK_STATUS(cases[i].status, status, error);
        if (!strstr(error.message, cases[i].why))
            test_fail(__FILE__, __LINE__, "case %zu: %s", i, error.message);
    }
    CHECK_INT(book_count(store, "{'_id': 'x'}"), ==, 0);
    BALANCE("people:a", 1000, 1000);
    BALANCE("bank", -1000, -1000);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(what_breaks_a_rule_is_refused_by_its_reason_and_nothing_is_booked)
{
    everywhere(refuse);
}

static void many_entries(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    static truce_ledger_entry entries[1001];
    bson_value_t id = text_id("wide");
    truce_ledger_transaction transaction = {.id = &id, .entries = entries, .count = 1001};
    char names[10][20];
    bson_error_t error = {0};

    (void)setting;
    for (int i = 0; i < 10; i++) {
        snprintf(names[i], sizeof names[i], "wide:%d", i);
        OPEN(ledger, names[i], ANY);
    }
    for (int i = 0; i < 1001; i++)
        entries[i] =
            (truce_ledger_entry){names[i % 10], i % 10 < 5 ? -i / 10 - 1 : i / 10 + 1, NULL};
    CHECK_STATUS(TRUCE_LIMIT, truce_ledger_post(ledger, NULL, &transaction, NULL, &error), error);
    transaction.count = 100;
    CHECK_OK(truce_ledger_post(ledger, NULL, &transaction, NULL, &error), error);
    CHECK_INT(book_balance(ledger, "wide:3").number, ==, 11);
    CHECK_INT(book_balance(ledger, "wide:7").balance, ==, 55);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(a_transaction_has_any_number_of_entries_also_of_one_account)
{
    everywhere(many_entries);
}

static void in_bulk(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store), *other = book_ledger(store);
    static const struct {
        const char *id, *from, *to;
        int64_t amount;
        truce_status status;
        bool exists;
    } cases[] = {
        {"m0", "people:a", "people:b", 600, TRUCE_OK, false},
        {"m1", "people:a", "people:b", 6000, TRUCE_LIMIT, false},
        {"m2", "people:b", "people:a", 100, TRUCE_OK, false},
        {"seed", "bank", "people:a", 1000, TRUCE_OK, true},
        {"m3", "people:a", "people:b", 500, TRUCE_OK, false},
        {"m0", "people:a", "people:b", 600, TRUCE_OK, true},
        {"m0", "people:a", "people:b", 601, TRUCE_DUPLICATE, false},
        {"m4", "people:a", "nobody", 1, TRUCE_NOT_FOUND, false},
        {"m5", "people:b", "people:a", 1000, TRUCE_OK, false},
        {"m6", "people:b", "people:a", 6000, TRUCE_LIMIT, false},
    };
    enum { COUNT = sizeof cases / sizeof *cases };
    truce_ledger_transaction transactions[COUNT];
    truce_ledger_entry entries[COUNT][2];
    truce_ledger_result results[COUNT];
    bson_value_t ids[COUNT];
    bson_error_t error = {0};

    (void)setting;
    for (int i = 0; i < COUNT; i++) {
        ids[i] = text_id(cases[i].id);
        entries[i][0] = (truce_ledger_entry){cases[i].from, -cases[i].amount, NULL};
        entries[i][1] = (truce_ledger_entry){cases[i].to, cases[i].amount, NULL};
        transactions[i] =
            (truce_ledger_transaction){.id = &ids[i], .entries = entries[i], .count = 2};
    }
    /* what this handle remembers is old by then */
    CHECK_OK(book_transfer(other, "o1", "people:a", "bank", 10, &error), error);
    CHECK_OK(book_transfer(other, "o2", "bank", "people:a", 10, &error), error);
    for (int round = 0; round < 2; round++) {
        CHECK_OK(truce_ledger_post_many(ledger, transactions, COUNT, results, &error), error);
        for (int i = 0; i < COUNT; i++) {
            bool exists = cases[i].exists || (round && !cases[i].status);

            if (results[i].status != cases[i].status || results[i].exists != exists)
                test_fail(__FILE__, __LINE__, "round %d, %d: %s, exists %d (%s)", round, i,
                          truce_status_name(results[i].status), results[i].exists,
                          results[i].status ? results[i].error.message : "");
        }
        BALANCE("people:a", 1000, 1000);
        BALANCE("people:b", 0, 0);
    }
    BOOK_CHECK(ledger);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(many_at_a_time_have_a_result_each)
{
    everywhere(in_bulk);
}

/* ---- pending -------------------------------------------------------------------------------- */

static void pending(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_value_t part_id = text_id("s2"), p2 = text_id("p2");
    truce_ledger_entry part[] = {{"people:b", 150, NULL}, {"people:a", -150, "fee"}};
    truce_ledger_entry more[] = {{"people:b", 500, NULL}, {"people:a", -500, NULL}};
    truce_ledger_transaction settle = {
        .id = &part_id, .kind = TRUCE_LEDGER_SETTLE, .of = &p2, .entries = more, .count = 2};
    bson_error_t error = {0};

    (void)setting;
    for (int i = 0; i < 2; i++)
        CHECK_OK(book_post(ledger, NULL, "p1", TRUCE_LEDGER_PENDING, "people:a", "people:b", 700,
                           NULL, &error),
                 error);
    BALANCE("people:a", 1000, 300);
    BALANCE("people:b", 0, 0);
    CHECK_INT(book_balance(ledger, "people:a").out, ==, 700);
    CHECK_INT(book_balance(ledger, "people:b").in, ==, 700);
    CHECK_STATUS(TRUCE_LIMIT, book_transfer(ledger, "t", "people:a", "bank", 301, &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "s1", TRUCE_LEDGER_SETTLE, "p1", &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "s1", TRUCE_LEDGER_SETTLE, "p1", &error), error);
    BALANCE("people:a", 300, 300);
    BALANCE("people:b", 700, 700);
    CHECK_STATUS(TRUCE_DUPLICATE, book_resolve(ledger, NULL, "v1", TRUCE_LEDGER_VOID, "p1", &error),
                 error);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 book_resolve(ledger, NULL, "s9", TRUCE_LEDGER_SETTLE, "p1", &error), error);
    /* a part */
    CHECK_OK(book_post(ledger, NULL, "p2", TRUCE_LEDGER_PENDING, "people:a", "people:b", 200, NULL,
                       &error),
             error);
    CHECK_STATUS(TRUCE_INVALID, truce_ledger_post(ledger, NULL, &settle, NULL, &error), error);
    settle.entries = part;
    for (int i = 0; i < 2; i++)
        CHECK_OK(truce_ledger_post(ledger, NULL, &settle, NULL, &error), error);
    BALANCE("people:a", 150, 150);
    BALANCE("people:b", 850, 850);
    /* given up */
    CHECK_OK(book_post(ledger, NULL, "p3", TRUCE_LEDGER_PENDING, "people:a", "people:b", 100, NULL,
                       &error),
             error);
    BALANCE("people:a", 150, 50);
    CHECK_OK(book_resolve(ledger, NULL, "v3", TRUCE_LEDGER_VOID, "p3", &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "v3", TRUCE_LEDGER_VOID, "p3", &error), error);
    BALANCE("people:a", 150, 150);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 book_resolve(ledger, NULL, "s3", TRUCE_LEDGER_SETTLE, "p3", &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND,
                 book_resolve(ledger, NULL, "s4", TRUCE_LEDGER_SETTLE, "p4", &error), error);
    CHECK_STATUS(TRUCE_INVALID,
                 book_resolve(ledger, NULL, "s5", TRUCE_LEDGER_SETTLE, "seed", &error), error);
    CHECK_INT(book_count(store, "{'open': {'$exists': true}}"), ==, 0);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(what_is_pending_is_reserved_until_it_is_settled_in_whole_or_part_or_given_up)
{
    everywhere(pending);
}

static truce_status post_until(truce_ledger *ledger, const char *name, int64_t amount,
                               int64_t expires_ms, bson_error_t *error)
{
    bson_value_t id = text_id(name);
    truce_ledger_entry entries[] = {{"people:a", -amount, NULL}, {"people:b", amount, NULL}};
    truce_ledger_transaction transaction = {.id = &id,
                                            .kind = TRUCE_LEDGER_PENDING,
                                            .entries = entries,
                                            .count = 2,
                                            .expires_ms = expires_ms};

    return truce_ledger_post(ledger, NULL, &transaction, NULL, error);
}

static bool count_documents(const bson_t *document, void *arg)
{
    (void)document;
    ++*(int *)arg;
    return true;
}

static void expiry(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    int64_t past_ms = truce__clock_wall_ms() - 1000;
    truce_sweep_report report;
    bson_error_t error = {0};
    int open = 0;

    (void)setting;
    CHECK_OK(post_until(ledger, "p1", 700, past_ms, &error), error);
    CHECK_OK(post_until(ledger, "p2", 100, past_ms + 100000000, &error), error);
    CHECK_OK(truce_ledger_pending(ledger, "people:a", count_documents, &open, &error), error);
    CHECK_INT(open, ==, 2);
    BALANCE("people:a", 1000, 200);
    CHECK_STATUS(TRUCE_EXPIRED, book_resolve(ledger, NULL, "s1", TRUCE_LEDGER_SETTLE, "p1", &error),
                 error);
    /* who needs the money gives up what is overdue */
    CHECK_OK(book_transfer(ledger, "t1", "people:a", "bank", 900, &error), error);
    BALANCE("people:a", 100, 0);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 book_resolve(ledger, NULL, "s1", TRUCE_LEDGER_SETTLE, "p1", &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "v2", TRUCE_LEDGER_VOID, "p2", &error), error);
    /* or the sweep does */
    CHECK_OK(post_until(ledger, "p3", 50, past_ms, &error), error);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    BALANCE("people:a", 100, 100);
    CHECK_STATUS(TRUCE_DUPLICATE, book_resolve(ledger, NULL, "v3", TRUCE_LEDGER_VOID, "p3", &error),
                 error);
    open = 0;
    CHECK_OK(truce_ledger_pending(ledger, NULL, count_documents, &open, &error), error);
    CHECK_INT(open, ==, 0);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.expired, ==, 0);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(what_is_pending_past_its_time_is_free_again)
{
    everywhere(expiry);
}

/* ---- reversal ------------------------------------------------------------------------------- */

static void reversal(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_value_t id = text_id("r2"), of = text_id("t2");
    truce_ledger_entry too_much[] = {{"people:b", -401, NULL}, {"people:a", 401, NULL}};
    truce_ledger_entry wrong_way[] = {{"people:b", 100, NULL}, {"people:a", -100, NULL}};
    truce_ledger_entry part[] = {{"people:b", -100, NULL}, {"people:a", 100, NULL}};
    truce_ledger_transaction reverse = {
        .id = &id, .kind = TRUCE_LEDGER_REVERSE, .of = &of, .entries = too_much, .count = 2};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(book_transfer(ledger, "t1", "people:a", "people:b", 300, &error), error);
    for (int i = 0; i < 2; i++)
        CHECK_OK(book_resolve(ledger, NULL, "r1", TRUCE_LEDGER_REVERSE, "t1", &error), error);
    BALANCE("people:a", 1000, 1000);
    BALANCE("people:b", 0, 0);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 book_resolve(ledger, NULL, "r1b", TRUCE_LEDGER_REVERSE, "t1", &error), error);
    CHECK_OK(book_transfer(ledger, "t2", "people:a", "people:b", 400, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_ledger_post(ledger, NULL, &reverse, NULL, &error), error);
    reverse.entries = wrong_way;
    CHECK_STATUS(TRUCE_INVALID, truce_ledger_post(ledger, NULL, &reverse, NULL, &error), error);
    reverse.entries = part;
    CHECK_OK(truce_ledger_post(ledger, NULL, &reverse, NULL, &error), error);
    BALANCE("people:a", 700, 700);
    BALANCE("people:b", 300, 300);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 book_resolve(ledger, NULL, "r2b", TRUCE_LEDGER_REVERSE, "t2", &error), error);
    /* what was spent cannot be taken back */
    CHECK_OK(book_transfer(ledger, "t3", "people:a", "people:b", 700, &error), error);
    CHECK_OK(book_transfer(ledger, "t4", "people:b", "bank", 900, &error), error);
    CHECK_STATUS(TRUCE_LIMIT, book_resolve(ledger, NULL, "r3", TRUCE_LEDGER_REVERSE, "t3", &error),
                 error);
    CHECK_STATUS(TRUCE_INVALID, book_resolve(ledger, NULL, "r4", TRUCE_LEDGER_VOID, "t3", &error),
                 error);
    /* a reversal is a transaction, and can be reversed */
    CHECK_OK(book_resolve(ledger, NULL, "r5", TRUCE_LEDGER_REVERSE, "t4", &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "r6", TRUCE_LEDGER_REVERSE, "r5", &error), error);
    BALANCE("people:b", 100, 100);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(a_transaction_is_reversed_once_in_whole_or_part)
{
    everywhere(reversal);
}

/* ---- rules ---------------------------------------------------------------------------------- */

static void rules(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store), *other = book_ledger(store);
    truce_ledger_account overdraft = {.account = "people:a", .has_min = true, .min = -500};
    truce_ledger_account closed = {.account = "people:a", .closed = true};
    truce_ledger_account again = {
        .account = "people:a", .currency = "EUR", .has_min = true, .min = -500};
    bson_error_t error = {0};
    truce_ledger_balance balance;

    (void)setting;
    CHECK_STATUS(TRUCE_LIMIT, book_transfer(other, "t1", "people:a", "bank", 1001, &error), error);
    CHECK_OK(truce_ledger_rules(ledger, NULL, &overdraft, &error), error);
    balance = book_balance(ledger, "people:a");
    CHECK_OK(truce_ledger_rules(ledger, NULL, &overdraft, &error), error);
    CHECK_INT(book_balance(ledger, "people:a").number, ==, balance.number);
    /* the other handle remembers the old rules */
    CHECK_OK(book_transfer(other, "t1", "people:a", "bank", 1400, &error), error);
    CHECK_STATUS(TRUCE_LIMIT, book_transfer(other, "t2", "people:a", "bank", 101, &error), error);
    CHECK_OK(
        book_post(other, NULL, "p1", TRUCE_LEDGER_PENDING, "people:a", "bank", 100, NULL, &error),
        error);
    CHECK_STATUS(TRUCE_INVALID, truce_ledger_rules(ledger, NULL, &closed, &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "v1", TRUCE_LEDGER_VOID, "p1", &error), error);
    CHECK_OK(truce_ledger_open(ledger, NULL, &again, &error), error);
    again.min = 0;
    CHECK_STATUS(TRUCE_DUPLICATE, truce_ledger_open(ledger, NULL, &again, &error), error);
    CHECK_OK(truce_ledger_rules(ledger, NULL, &closed, &error), error);
    CHECK_STATUS(TRUCE_INVALID, book_transfer(other, "t3", "bank", "people:a", 1, &error), error);
    CHECK_STATUS(
        TRUCE_NOT_FOUND,
        truce_ledger_rules(ledger, NULL, &(truce_ledger_account){.account = "none"}, &error),
        error);
    CHECK_STATUS(TRUCE_INVALID,
                 truce_ledger_open(ledger, NULL,
                                   &(truce_ledger_account){.account = "x", .currency = "XYZ"},
                                   &error),
                 error);
    CHECK_STATUS(TRUCE_DUPLICATE, truce_ledger_currency(ledger, "EUR", 3, &error), error);
    BALANCE("people:a", -400, -400);
    BOOK_CHECK(ledger);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(rules_hold_from_their_number_on_for_every_handle)
{
    everywhere(rules);
}

TEST(a_ledger_says_which_option_is_missing)
{
    truce_store *store = NULL;
    truce_ledger *ledger;
    truce_ledger_balance balance;
    bson_error_t error = {0};

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    ledger = truce_ledger_new(store, NULL);
    CHECK_STATUS(TRUCE_INVALID, truce_ledger_balance_of(ledger, "a", NULL, &balance, &error),
                 error);
    CHECK(strstr(error.message, "`collection`"));
    truce_ledger_free(ledger);
    ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "truce_commits"});
    CHECK_STATUS(TRUCE_INVALID, book_transfer(ledger, "x", "a", "b", 1, &error), error);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* ---- in a commit ---------------------------------------------------------------------------- */

struct order {
    truce_ledger *ledger, *other;
    int runs;
    int64_t amount;
    truce_status second;
};

static truce_status pay(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct order *order = arg;
    bson_t *paid = BCON_NEW("$set", "{", "paid", BCON_BOOL(true), "}");
    bson_value_t id = text_id("o1");
    truce_status status = book_post(order->ledger, commit, "pay 1", TRUCE_LEDGER_TRANSFER,
                                    "people:a", "people:b", order->amount, NULL, error);

    if (!status)
        status = book_post(order->ledger, commit, "pay 2", TRUCE_LEDGER_TRANSFER, "people:b",
                           "bank", order->amount, NULL, error);
    if (!status)
        status = truce_commit_update(commit, "orders", &id, NULL, paid, error);
    bson_destroy(paid);
    /* somebody else takes the numbers between the look and the commit */
    if (!status && order->runs++ == 0 && order->other)
        CHECK_OK(book_transfer(order->other, "between", "people:a", "bank", 100, error), *error);
    return status;
}

static void in_a_commit(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store), *other = book_ledger(store);
    truce_commit_options options = {.mechanism = setting->mechanism, .deadline_ms = 20000};
    struct order order = {.ledger = ledger, .other = other, .amount = 400};
    bson_error_t error = {0};

    if (setting->mechanism == TRUCE_MECHANISM_NATIVE &&
        !(store->capabilities & TRUCE_CAN_ATOMIC_BULK)) {
        truce_ledger_free(other);
        truce_ledger_free(ledger);
        return;
    }
    insert_json(store, "orders", "{'_id': 'o1'}");
    CHECK_OK(truce_transact(store, pay, &order, &options, &error), error);
    CHECK_INT(order.runs, ==, 2);
    BALANCE("people:a", 500, 500);
    BALANCE("people:b", 0, 0);
    BALANCE("bank", -500, -500);
    /* posted before: nothing happens */
    order.other = NULL;
    CHECK_OK(truce_transact(store, pay, &order, &options, &error), error);
    BALANCE("people:a", 500, 500);
    /* refused: nothing of it */
    CHECK_OK(book_transfer(other, "again", "bank", "people:a", 100, &error), error);
    order.amount = 9999;
    CHECK_STATUS(TRUCE_DUPLICATE, truce_transact(store, pay, &order, &options, &error), error);
    CHECK_OK(book_transfer(ledger, "after", "people:a", "people:b", 50, &error), error);
    BALANCE("people:a", 550, 550);
    BOOK_CHECK(ledger);
    BOOK_CHECK(other);
    truce_ledger_free(other);
    truce_ledger_free(ledger);
}

TEST(money_moves_in_a_commit_with_anything_else)
{
    everywhere(in_a_commit);
}

static truce_status reserve_and_settle(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct order *order = arg;
    truce_status status = book_post(order->ledger, commit, "p1", TRUCE_LEDGER_PENDING, "people:a",
                                    "people:b", 100, NULL, error);

    if (!status)
        status = book_resolve(order->ledger, commit, "s1", TRUCE_LEDGER_SETTLE, "p1", error);
    if (!status)
        order->second = book_resolve(order->ledger, commit, "s2", TRUCE_LEDGER_VOID, "p1", error);
    if (!status)
        status =
            truce_ledger_open(order->ledger, commit,
                              &(truce_ledger_account){.account = "new", .currency = "EUR"}, error);
    if (!status)
        status = book_post(order->ledger, commit, "t9", TRUCE_LEDGER_TRANSFER, "people:a", "new", 7,
                           NULL, error);
    return status;
}

static void chain_in_a_commit(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    truce_commit_options options = {.mechanism = setting->mechanism, .deadline_ms = 20000};
    struct order order = {.ledger = ledger};
    bson_error_t error = {0};

    if (setting->mechanism == TRUCE_MECHANISM_NATIVE &&
        !(store->capabilities & TRUCE_CAN_ATOMIC_BULK)) {
        truce_ledger_free(ledger);
        return;
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(truce_transact(store, reserve_and_settle, &order, &options, &error), error);
        CHECK_INT(order.second, ==, TRUCE_DUPLICATE);
    }
    BALANCE("people:a", 893, 893);
    BALANCE("people:b", 100, 100);
    BALANCE("new", 7, 7);
    CHECK_INT(book_count(store, "{'open': {'$exists': true}}"), ==, 0);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(posts_of_one_commit_stand_on_each_other)
{
    everywhere(chain_in_a_commit);
}

static void linked(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_value_t ids[] = {text_id("l1"), text_id("l2"), text_id("l3")};
    truce_ledger_entry entries[][2] = {{{"people:a", -600, NULL}, {"people:b", 600, NULL}},
                                       {{"people:b", -500, NULL}, {"bank", 500, NULL}},
                                       {{"people:a", -500, NULL}, {"bank", 500, NULL}}};
    truce_ledger_transaction transactions[3];
    bson_error_t error = {0};
    size_t at = 99;

    (void)setting;
    for (int i = 0; i < 3; i++)
        transactions[i] =
            (truce_ledger_transaction){.id = &ids[i], .entries = entries[i], .count = 2};
    CHECK_STATUS(TRUCE_LIMIT, truce_ledger_post_linked(ledger, transactions, 3, &at, &error),
                 error);
    CHECK_INT(at, ==, 2);
    BALANCE("people:a", 1000, 1000);
    BALANCE("people:b", 0, 0);
    CHECK_OK(truce_ledger_post_linked(ledger, transactions, 2, &at, &error), error);
    BALANCE("people:a", 400, 400);
    BALANCE("people:b", 100, 100);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(linked_transactions_are_all_posted_or_none)
{
    everywhere(linked);
}

/* ---- reading -------------------------------------------------------------------------------- */

static void moments(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    int64_t times[12], day_ms = 86400000;
    truce_ledger_balance balance;
    bson_error_t error = {0};
    char id[20];

    (void)setting;
    for (int i = 0; i < 10; i++) {
        truce_ledger_result result;

        snprintf(id, sizeof id, "t%d", i);
        truce__clock_sleep_ms(2);
        CHECK_OK(book_post(ledger, NULL, id, TRUCE_LEDGER_TRANSFER, "people:a", "people:b", 1,
                           &result, &error),
                 error);
        times[i] = result.booked_ms;
    }
    for (int i = 0; i < 10; i++) {
        CHECK_OK(truce_ledger_balance_of(ledger, "people:b",
                                         &(truce_ledger_moment){.number = i + 2}, &balance, &error),
                 error);
        CHECK_INT(balance.balance, ==, i + 1);
        CHECK_OK(truce_ledger_balance_of(ledger, "people:b",
                                         &(truce_ledger_moment){.booked_ms = times[i]}, &balance,
                                         &error),
                 error);
        CHECK_INT(balance.balance, ==, i + 1);
        CHECK_INT(balance.number, ==, i + 2);
    }
    CHECK_OK(truce_ledger_balance_of(ledger, "people:b", &(truce_ledger_moment){.booked_ms = 1},
                                     &balance, &error),
             error);
    CHECK_INT(balance.balance, ==, 0);
    CHECK_STATUS(TRUCE_NOT_FOUND,
                 truce_ledger_balance_of(ledger, "people:b", &(truce_ledger_moment){.number = 99},
                                         &balance, &error),
                 error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_ledger_balance_of(ledger, "none", NULL, &balance, &error),
                 error);
    /* value dates: yesterday and tomorrow */
    for (int i = -1; i <= 1; i += 2) {
        bson_value_t name = text_id(i < 0 ? "old" : "new");
        truce_ledger_entry entries[] = {{"people:a", -100 * (i + 2), NULL},
                                        {"people:b", 100 * (i + 2), NULL}};
        truce_ledger_transaction transaction = {
            .id = &name, .entries = entries, .count = 2, .effective_ms = times[9] + i * day_ms};

        CHECK_OK(truce_ledger_post(ledger, NULL, &transaction, NULL, &error), error);
    }
    {
        const struct {
            int64_t at_ms, balance;
        } cases[] = {{times[9] - 2 * day_ms, 0},
                     {times[9] - day_ms, 100},
                     {times[4], 105},
                     {times[9] + day_ms / 2, 110},
                     {times[9] + day_ms, 410}};

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            CHECK_OK(truce_ledger_balance_of(ledger, "people:b",
                                             &(truce_ledger_moment){.effective_ms = cases[i].at_ms},
                                             &balance, &error),
                     error);
            CHECK_INT(balance.balance, ==, cases[i].balance);
        }
    }
    BALANCE("people:b", 410, 410);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(a_balance_is_that_of_a_number_of_a_time_or_of_a_value_date)
{
    everywhere(moments);
}

struct lines {
    int64_t numbers[300], balances[300];
    int count;
};

static bool keep_line(const truce_ledger_line *line, void *arg)
{
    struct lines *lines = arg;

    lines->numbers[lines->count] = line->number;
    lines->balances[lines->count++] = line->balance;
    return true;
}

static void pages(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    static struct lines whole, paged;
    truce_ledger_page page = {.limit = 7};
    bson_error_t error = {0};
    int64_t last;
    char id[20];

    (void)setting;
    whole.count = paged.count = 0;
    for (int i = 0; i < 30; i++) {
        snprintf(id, sizeof id, "t%d", i);
        CHECK_OK(book_transfer(ledger, id, "people:a", "people:b", i + 1, &error), error);
    }
    last = book_balance(ledger, "people:b").number;
    CHECK_INT(last, ==, 31);
    CHECK_OK(truce_ledger_statement(ledger, "people:b", NULL, keep_line, &whole, &error), error);
    page.last = last;
    for (int i = 0; i < 10; i++) {
        CHECK_OK(truce_ledger_statement(ledger, "people:b", &page, keep_line, &paged, &error),
                 error);
        page.after = paged.count ? paged.numbers[paged.count - 1] : 0;
        snprintf(id, sizeof id, "u%d", i);
        CHECK_OK(book_transfer(ledger, id, "people:b", "people:a", 1, &error), error);
    }
    CHECK_INT(whole.count, ==, 31);
    CHECK_INT(paged.count, ==, 31);
    for (int i = 0; i < 31; i++) {
        CHECK_INT(whole.numbers[i], ==, i + 1);
        CHECK_INT(paged.numbers[i], ==, i + 1);
        CHECK_INT(whole.balances[i], ==, i * (i + 1) / 2);
        CHECK_INT(paged.balances[i], ==, whole.balances[i]);
    }
    truce_ledger_free(ledger);
}

TEST(pages_of_a_statement_stand_while_writes_go_on)
{
    everywhere(pages);
}

/* ---- the description's own documents -------------------------------------------------------- */

static truce_status post_foreign(truce_store *store, const char *json)
{
    bson_t *document = test_bson(json);
    bson_error_t error = {0};
    truce_status status = truce_insert(store, "tx", document, NULL, &error);

    bson_destroy(document);
    return status;
}

static int64_t find_number(truce_store *store, const char *filter_json, const char *projection_json,
                           const char *sort_json, const char *path)
{
    bson_t *filter = test_bson(filter_json), *projection = test_bson(projection_json),
           *sort = test_bson(sort_json), found;
    truce_find_options options = {.projection = projection, .sort = sort, .limit = 1};
    bson_error_t error = {0};
    bson_iter_t iter, at;
    int64_t number = -1;

    CHECK_OK(truce_find_one(store, "tx", filter, &options, &found, &error), error);
    if (bson_iter_init(&iter, &found) && bson_iter_find_descendant(&iter, path, &at))
        number = bson_iter_as_int64(&at);
    bson_destroy(&found);
    bson_destroy(filter);
    bson_destroy(projection);
    bson_destroy(sort);
    return number;
}

static void as_described(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_t *index =
        test_bson("{'key': {'changes.account': 1, 'changes.seqId': 1}, 'unique': true}");
    bson_t *stages = test_bson(
        "[{'$match': {'changes.account': 'people:b', 'changes.seqId': {'$gt': 1}, 'state': "
        "'VALID'}}, {'$unwind': '$changes'}, {'$match': {'changes.account': 'people:b'}},"
        " {'$group': {'_id': 'total', 'total': {'$sum': '$changes.value'}}}]");
    truce_sweep_report report;
    truce_cursor *cursor = NULL;
    const bson_t *total = NULL;
    bson_error_t error = {0};
    bson_t *document;

    (void)setting;
    CHECK_OK(truce_index_create(store, "tx", index, &error), error);
    CHECK_OK(book_transfer(ledger, "t1", "people:a", "people:b", 100, &error), error);
    document = read_transaction(store, "t1");
    CHECK_TEXT("COMMITTED", bson_has_field(document, "proc") ? "COMMITTED" : "");
    bson_destroy(document);
    /* what others insert as the description has it */
    CHECK_OK(post_foreign(store,
                          "{'_id': 'f1', 'ts': {'$timestamp': {'t': 1, 'i': 1}}, 'proc': "
                          "'UNCOMMITTED', 'state': 'VALID', 'changes': [{'account': 'people:a', "
                          "'type': 'withdraw', 'value': -50.0, 'seqId': 4, 'cachedBal': null},"
                          "{'account': 'people:b', 'type': 'deposit', 'value': 50, 'seqId': 3, "
                          "'cachedBal': null}]}"),
             error);
    CHECK_OK(post_foreign(store,
                          "{'_id': 'f2', 'proc': 'UNCOMMITTED', 'state': 'CANCELLED', 'changes': "
                          "[{'account': 'people:b', 'value': -9, 'seqId': 4, 'cachedBal': null},"
                          "{'account': 'people:a', 'value': 9, 'seqId': 5, 'cachedBal': null}]}"),
             error);
    CHECK_INT(post_foreign(store, "{'_id': 'f3', 'proc': 'UNCOMMITTED', 'state': 'VALID', "
                                  "'changes': [{'account': 'people:b', 'value': 1, 'seqId': 4}]}"),
              ==, TRUCE_DUPLICATE);
    BALANCE("people:b", 150, 150);
    BALANCE("people:a", 850, 850);
    CHECK_INT(book_count(store, "{'proc': 'UNCOMMITTED'}"), ==, 2);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.finished, ==, 2);
    CHECK_INT(book_count(store, "{'proc': 'UNCOMMITTED'}"), ==, 0);
    CHECK_OK(book_transfer(ledger, "t2", "people:b", "people:a", 30, &error), error);
    BALANCE("people:b", 120, 120);
    /* its queries; of one change only if $elemMatch says so: its own filter is met by two changes, too */
    CHECK_INT(book_count(store, "{'changes.account': 'people:b', 'changes.seqId': {'$gt': 4}}"), ==,
              2);
    CHECK_INT(find_number(store,
                          "{'changes': {'$elemMatch': {'account': 'people:b', "
                          "'seqId': {'$gt': 4}}}}",
                          "{'changes.$': 1}", "{'changes.seqId': 1}", "changes.0.cachedBal"),
              ==, 120);
    CHECK_OK(truce_aggregate(store, "tx", stages, NULL, &cursor, &error), error);
    CHECK_OK(truce_cursor_next(cursor, &total, &error), error);
    if (CHECK(total != NULL)) {
        bson_iter_t iter;

        CHECK(bson_iter_init_find(&iter, total, "total"));
        CHECK_INT(bson_iter_as_int64(&iter), ==, 120);
    }
    truce_cursor_close(cursor);
    bson_destroy(stages);
    bson_destroy(index);
    truce_ledger_free(ledger);
}

TEST(documents_index_and_queries_of_the_description_work)
{
    everywhere(as_described);
}

TEST(the_sort_of_the_description_finds_a_number_that_is_taken_for_ever)
{
    truce_store *store = NULL;
    truce_ledger *ledger;
    bson_error_t error = {0};
    char id[20];

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    ledger = begin(store);
    CHECK_OK(book_transfer(ledger, "first", "bank", "people:b", 1, &error), error);
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof id, "t%d", i);
        CHECK_OK(book_transfer(ledger, id, "people:a", "bank", 1, &error), error);
    }
    CHECK_OK(book_transfer(ledger, "small", "people:b", "people:a", 1, &error), error);
    /* sorted by the greatest number of ANY account: b's last is 3, "first" has bank's 3 and b's 2 */
    OPEN(ledger, "rare", ANY);
    CHECK_OK(book_transfer(ledger, "high", "bank", "rare", 5, &error), error);
    CHECK_OK(book_transfer(ledger, "low", "rare", "people:b", 2, &error), error);
    CHECK_INT(book_balance(ledger, "rare").number, ==, 3);
    {
        bson_t *filter = test_bson("{'changes.account': 'rare'}"),
               *sort = test_bson("{'changes.seqId': -1}"), found;
        truce_find_options options = {.sort = sort, .limit = 1};
        bson_iter_t iter;

        CHECK_OK(truce_find_one(store, "tx", filter, &options, &found, &error), error);
        CHECK(bson_iter_init_find(&iter, &found, "_id"));
        CHECK_TEXT("high", bson_iter_utf8(&iter, NULL)); /* rare's number 2, and 3 is taken */
        bson_destroy(&found);
        bson_destroy(filter);
        bson_destroy(sort);
    }
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* ---- proof ---------------------------------------------------------------------------------- */

struct first {
    char rule[20], account[40];
    int64_t number;
    int count;
};

static void keep_first(const bson_t *finding, void *arg)
{
    struct first *first = arg;
    bson_iter_t iter;

    if (first->count++)
        return;
    if (bson_iter_init_find(&iter, finding, "rule"))
        snprintf(first->rule, sizeof first->rule, "%s", bson_iter_utf8(&iter, NULL));
    if (bson_iter_init_find(&iter, finding, "account"))
        snprintf(first->account, sizeof first->account, "%s", bson_iter_utf8(&iter, NULL));
    if (bson_iter_init_find(&iter, finding, "number"))
        first->number = bson_iter_as_int64(&iter);
}

static void tampering(truce_store *store, const struct setting *setting)
{
    static const struct {
        const char *filter, *update, *rule;
        int64_t number;
    } cases[] = {
        {"{'_id': 't3'}", "{'$set': {'changes.0.value': {'$numberLong': '-9'}}}", "sum", 6},
        {"{'_id': 't3'}", "{'$set': {'meta': {'by': 'me'}}}", "hash", 6},
        {"{'_id': 't3'}", "{'$set': {'changes.0.cachedBal': {'$numberLong': '7'}}}", "balance", 6},
        {"{'_id': 't3'}",
         "{'$set': {'changes.0.account': 'people:b', 'changes.0.seqId': {"
         "'$numberLong': '99'}}}",
         "missing", 6},
        {"{'_id': 't4'}", "{'$set': {'ts': {'$date': '2020-01-01T00:00:00Z'}}}", "time", 7},
        {"{'_id': 't2'}", "{'$set': {'state': 'CANCELLED'}}", "balance", 5},
        {"{'_id': 't2'}", "{'$set': {'changes.0.type': 'gift'}}", "hash", 5},
        {"{'_id': 't2'}", "{'$unset': {'changes.0.hash': ''}}", "hash", 5},
    };
    truce_ledger *ledger = begin(store);
    truce_ledger_report report;
    bson_error_t error = {0};
    bson_t seal;
    char id[20];

    (void)setting;
    for (int i = 0; i < 6; i++) {
        snprintf(id, sizeof id, "t%d", i);
        CHECK_OK(book_transfer(ledger, id, "people:a", "people:b", 1, &error), error);
    }
    CHECK_OK(truce_ledger_seal(ledger, &seal, &error), error);
    CHECK_OK(truce_ledger_verify(ledger, NULL, &seal, book_tell, NULL, &report, &error), error);
    CHECK_INT(report.findings, ==, 0);
    CHECK_INT(report.accounts, ==, 3);
    CHECK_INT(report.entries, ==, 3 + 2 + 12);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bson_t *filter = test_bson(cases[i].filter), *update = test_bson(cases[i].update), before;
        struct first first = {0};

        CHECK_OK(truce_find_one(store, "tx", filter, NULL, &before, &error), error);
        CHECK_OK(truce_update(store, "tx", filter, update, NULL, NULL, &error), error);
        CHECK_OK(truce_ledger_verify(ledger, "people:a", NULL, keep_first, &first, &report, &error),
                 error);
        if (strcmp(first.rule, cases[i].rule) || first.number != cases[i].number ||
            first.count != 1)
            test_fail(__FILE__, __LINE__, "case %zu: %s at %lld, %d findings", i, first.rule,
                      (long long)first.number, first.count);
        CHECK_OK(truce_update(store, "tx", filter, &before, NULL, NULL, &error), error);
        bson_destroy(&before);
        bson_destroy(filter);
        bson_destroy(update);
    }
    BOOK_CHECK(ledger);
    CHECK_OK(book_transfer(ledger, "later", "people:a", "people:b", 1, &error), error);
    CHECK_OK(truce_ledger_verify(ledger, NULL, &seal, book_tell, NULL, &report, &error), error);
    CHECK_INT(report.findings, ==, 0);
    bson_destroy(&seal);
    truce_ledger_free(ledger);
}

TEST(the_first_entry_that_was_tampered_with_is_named)
{
    everywhere(tampering);
}

TEST(a_book_that_was_written_anew_is_not_the_one_that_was_sealed)
{
    truce_store *store = NULL, *forged = NULL;
    truce_ledger *ledger, *forgery;
    truce_ledger_report report;
    struct first first = {0};
    bson_error_t error = {0};
    bson_t seal, damaged;

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &forged, &error), error));
    ledger = begin(store);
    forgery = begin(forged);
    CHECK_OK(book_transfer(ledger, "t", "people:a", "people:b", 10, &error), error);
    CHECK_OK(book_transfer(forgery, "t", "people:a", "people:b", 11, &error), error);
    BOOK_CHECK(forgery);
    CHECK_OK(truce_ledger_seal(ledger, &seal, &error), error);
    CHECK_OK(truce_ledger_verify(forgery, NULL, &seal, keep_first, &first, &report, &error), error);
    CHECK_TEXT("seal", first.rule);
    CHECK_INT(report.findings, >=, 2); /* of the accounts that differ */
    bson_init(&damaged);
    bson_copy_to_excluding_noinit(&seal, &damaged, "time", NULL);
    CHECK_STATUS(TRUCE_INVALID,
                 truce_ledger_verify(ledger, NULL, &damaged, NULL, NULL, &report, &error), error);
    bson_destroy(&damaged);
    bson_destroy(&seal);
    truce_ledger_free(forgery);
    truce_ledger_free(ledger);
    truce_store_close(forged);
    truce_store_close(store);
}

static void count_rule(const bson_t *finding, void *arg)
{
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, finding, "rule") &&
        !strncmp(bson_iter_utf8(&iter, NULL), "ledger-", 7))
        ++*(int *)arg;
}

static void checked(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_t *filter = test_bson("{'_id': 'seed'}"),
           *update = test_bson("{'$set': {'changes.1.value': {'$numberLong': '1001'}}}");
    truce_check_report report;
    bson_error_t error = {0};
    int found = 0;

    (void)setting;
    CHECK_OK(truce_check(store, NULL, count_rule, &found, &report, &error), error);
    CHECK_INT(found, ==, 0);
    CHECK_OK(truce_update(store, "tx", filter, update, NULL, NULL, &error), error);
    CHECK_OK(truce_check(store, NULL, count_rule, &found, &report, &error), error);
    CHECK_INT(found, ==, 2);
    bson_destroy(filter);
    bson_destroy(update);
    truce_ledger_free(ledger);
}

TEST(the_check_proves_every_book)
{
    everywhere(checked);
}

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

TEST(random_books_are_those_of_a_model)
{
    everywhere(random_book);
}

/* ---- amounts -------------------------------------------------------------------------------- */

TEST(amounts_are_read_and_shown_by_the_digits_of_the_currency)
{
    static const struct {
        const char *text;
        int digits;
        truce_status status;
        int64_t value;
        const char *shown;
    } cases[] = {
        {"12.50", 2, TRUCE_OK, 1250, "12.50"},
        {"12.5", 2, TRUCE_OK, 1250, "12.50"},
        {"-0.07", 2, TRUCE_OK, -7, "-0.07"},
        {"+3", 2, TRUCE_OK, 300, "3.00"},
        {".5", 1, TRUCE_OK, 5, "0.5"},
        {"7", 0, TRUCE_OK, 7, "7"},
        {"92233720368547758.07", 2, TRUCE_OK, INT64_MAX, "92233720368547758.07"},
        {"-92233720368547758.08", 2, TRUCE_OK, INT64_MIN, "-92233720368547758.08"},
        {"92233720368547758.08", 2, TRUCE_LIMIT, 0, NULL},
        {"0.000000000000000001", 18, TRUCE_OK, 1, "0.000000000000000001"},
        {"12.505", 2, TRUCE_INVALID, 0, NULL},
        {"1.", 2, TRUCE_OK, 100, "1.00"},
        {"7.0", 0, TRUCE_INVALID, 0, NULL},
        {"", 2, TRUCE_INVALID, 0, NULL},
        {"-", 2, TRUCE_INVALID, 0, NULL},
        {".", 2, TRUCE_INVALID, 0, NULL},
        {"1,000", 2, TRUCE_INVALID, 0, NULL},
        {"1e3", 2, TRUCE_INVALID, 0, NULL},
        {" 1", 2, TRUCE_INVALID, 0, NULL},
        {"99999999999999999999", 2, TRUCE_LIMIT, 0, NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[TRUCE_LEDGER_AMOUNT];
        bson_error_t error = {0};
        int64_t value;

        CHECK_STATUS(cases[i].status,
                     truce_ledger_read(cases[i].text, cases[i].digits, &value, &error), error);
        if (cases[i].status)
            continue;
        CHECK_INT(value, ==, cases[i].value);
        CHECK_TEXT(cases[i].shown, truce_ledger_show(value, cases[i].digits, text));
    }
}
