/* Ledgers: every call on every store. A repeated request moves money once, and rules hold. */
#include "tests/support/ledger_rig.h"

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
         "its amounts in EUR sum to -0.01 instead of zero"},
        {TRUCE_INVALID, {{"people:a", -5, NULL}, {"usd", 5, NULL}}, 2, "does not balance"},
        {TRUCE_INVALID, {{"people:a", 0, NULL}}, 1, " is 0"},
        {TRUCE_INVALID, {{"people::a", -5, NULL}, {"people:b", 5, NULL}}, 2, "is empty"},
        {TRUCE_INVALID,
         {{NULL, -5, NULL}, {"people:b", 5, NULL}},
         2,
         "name of the account is missing"},
        {TRUCE_INVALID, {{NULL, 0, NULL}}, 0, "has no entries"},
        {TRUCE_INVALID, {{"people:b", -5, NULL}, {"in", 5, NULL}}, 2, "accepts no credits"},
        {TRUCE_INVALID, {{"out", -5, NULL}, {"people:b", 5, NULL}}, 2, "accepts no debits"},
        {TRUCE_NOT_FOUND,
         {{"people:a", -5, NULL}, {"people:c", 5, NULL}},
         2,
         "people:c\" is not open"},
        {TRUCE_LIMIT, {{"people:b", -1, NULL}, {"people:a", 1, NULL}}, 2, "-0.01 EUR"},
        {TRUCE_LIMIT,
         {{"bank", -5001, NULL}, {"full", 5001, NULL}},
         2,
         "50.01 EUR, maximum is 50.00"},
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

TEST(refuses_a_transaction_that_breaks_a_rule_with_the_reason)
{
    everywhere(refuse);
}

static truce_status post_unknown(truce_commit *commit, void *ledger, bson_error_t *error)
{
    return book_post(ledger, commit, "x", TRUCE_LEDGER_TRANSFER, "bank", "people:a", 1, NULL,
                     error);
}

static void misspelled(truce_store *store, const struct setting *setting)
{
    static const char *const says = "the ledger \"txx\" does not exist: expected \"tx\"";
    truce_ledger *ledger = begin(store),
                 *unknown = truce_ledger_new(store, &(truce_ledger_options){.collection = "txx"});
    /* A server without transactions has the journal only. */
    truce_commit_options options = {.mechanism = store->capabilities & TRUCE_CAN_ATOMIC_BULK
                                                     ? setting->mechanism
                                                     : TRUCE_MECHANISM_AUTO};
    truce_ledger_balance balance;
    bson_error_t error = {0};

    for (int i = 0; i < 2; i++) { /* the first call does not create it */
        CHECK_STATUS(TRUCE_NOT_FOUND, post_unknown(NULL, unknown, &error), error);
        test_check_text(says, error.message, __FILE__, __LINE__);
    }
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_transact(store, post_unknown, unknown, &options, &error),
                 error);
    test_check_text(says, error.message, __FILE__, __LINE__);
    CHECK_STATUS(
        TRUCE_NOT_FOUND,
        truce_ledger_rules(unknown, NULL, &(truce_ledger_account){.account = "bank"}, &error),
        error);
    test_check_text(says, error.message, __FILE__, __LINE__);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_ledger_balance_of(unknown, "bank", NULL, &balance, &error),
                 error);
    test_check_text(says, error.message, __FILE__, __LINE__);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_ledger_balance_of(ledger, "bonk", NULL, &balance, &error),
                 error);
    test_check_text("account \"bonk\" is not open in \"tx\"", error.message, __FILE__, __LINE__);
    CHECK_INT(count_json(store, "truce_ledgers", "{}"), ==, 1);
    truce_ledger_free(unknown);
    truce_ledger_free(ledger);
}

TEST(names_the_ledgers_that_exist_if_one_is_misspelled)
{
    everywhere(misspelled);
}

/* No reported sum leaves 64 bits: neither the available amount nor the amount after a void. */
static void at_the_limits(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_error_t error = {0};

    (void)setting;
    OPEN(ledger, "low", ANY);
    OPEN(ledger, "high", ANY);
    CHECK_OK(book_transfer(ledger, "most", "low", "high", INT64_MAX, &error), error);
    CHECK_STATUS(TRUCE_LIMIT, book_transfer(ledger, "m", "bank", "high", 1, &error), error);
    CHECK_STATUS(
        TRUCE_LIMIT,
        book_post(ledger, NULL, "in", TRUCE_LEDGER_PENDING, "bank", "high", 1, NULL, &error),
        error);
    CHECK_OK(book_post(ledger, NULL, "out", TRUCE_LEDGER_PENDING, "low", "bank", 1, NULL, &error),
             error);
    CHECK_STATUS(
        TRUCE_LIMIT,
        book_post(ledger, NULL, "out2", TRUCE_LEDGER_PENDING, "low", "bank", 1, NULL, &error),
        error);
    BALANCE("low", -INT64_MAX, INT64_MIN);
    BALANCE("high", INT64_MAX, INT64_MAX);
    CHECK_OK(book_resolve(ledger, NULL, "back", TRUCE_LEDGER_REVERSE, "most", &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "in time", TRUCE_LEDGER_SETTLE, "out", &error), error);
    BALANCE("low", -1, -1);
    BALANCE("high", 0, 0);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

static truce_status post_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const void *const *given = arg;

    return truce_ledger_post((truce_ledger *)given[0], commit, given[1], NULL, error);
}

/* Posts them one by one, in a commit, and among others that are posted anyway. */
static void refuses(truce_store *store, const struct setting *setting)
{
    truce_ledger *ledger = begin(store);
    bson_value_t good = text_id("good"), seed = text_id("seed"),
                 none = {.value_type = BSON_TYPE_EOD};
    truce_ledger_entry entries[] = {{"people:a", -5, NULL}, {"people:b", 5, NULL}};
    const truce_ledger_transaction wrong[] = {
        {.id = NULL, .entries = entries, .count = 2},
        {.id = &none, .entries = entries, .count = 2},
        {.id = &seed, .entries = NULL, .count = 2},
        {.id = &seed, .kind = (truce_ledger_kind)99, .entries = entries, .count = 2},
        {.id = &seed, .kind = TRUCE_LEDGER_SETTLE},
        {.id = NULL, .kind = TRUCE_LEDGER_VOID, .of = &seed},
    };
    truce_ledger_transaction all[7];
    truce_ledger_result results[7];
    bson_error_t error = {0};

    (void)setting;
    memcpy(all, wrong, sizeof wrong);
    all[6] = (truce_ledger_transaction){.id = &good, .entries = entries, .count = 2};
    for (int i = 0; i < 6; i++) {
        const void *given[] = {ledger, &wrong[i]};

        CHECK_STATUS(TRUCE_INVALID, truce_ledger_post(ledger, NULL, &wrong[i], NULL, &error),
                     error);
        CHECK(error.message[0]);
        CHECK_STATUS(TRUCE_INVALID, truce_transact(store, post_in, given, NULL, &error), error);
    }
    CHECK_OK(truce_ledger_post_many(ledger, all, 7, results, &error), error);
    for (int i = 0; i < 6; i++)
        CHECK(results[i].status == TRUCE_INVALID && results[i].error.message[0]);
    CHECK_INT(results[6].status, ==, TRUCE_OK);
    BALANCE("people:a", 995, 995);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(refuses_an_invalid_transaction_before_it_reads)
{
    everywhere(refuses);
}

TEST(amounts_at_the_limits_of_64_bits_are_exact_or_refused)
{
    everywhere(at_the_limits);
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
    /* the cache of this handle is outdated by then */
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
    /* the cache of the other handle has the old rules */
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

TEST(a_ledger_names_the_missing_option)
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

/* ---- several entries of one account --------------------------------------------------------- */

struct lowest {
    int64_t balance, available, greatest;
};

static bool note_lowest(const truce_ledger_line *line, void *arg)
{
    struct lowest *lowest = arg;

    lowest->balance = line->balance < lowest->balance ? line->balance : lowest->balance;
    lowest->available = line->available < lowest->available ? line->available : lowest->available;
    lowest->greatest = line->balance > lowest->greatest ? line->balance : lowest->greatest;
    return true;
}

/* Each of them leaves a balance, and no balance breaks a rule. The account has a balance, a part
 * of it pending, a minimum of 0, and a maximum of 10. */
static void several_entries(truce_store *store, const struct setting *setting)
{
    static const struct {
        int64_t have, pending, values[4];
        bool posted;
    } cases[] = {
        {0, 0, {-5, 5}, false},    {0, 0, {5, -5}, true},     {5, 0, {-5, 5}, true},
        {5, 1, {-5, 5}, false},    {5, 1, {-4, 4}, true},     {9, 0, {5, -5}, false},
        {9, 0, {-5, 5}, true},     {9, 0, {1, 1, -2}, false}, {9, 0, {1, -1, 1}, true},
        {0, 0, {3, -4, 2}, false}, {4, 4, {-1, 1}, false},    {4, 4, {1, -1}, true},
    };
    truce_ledger *ledger = begin(store);
    bson_error_t error = {0};
    bson_value_t id;

    (void)setting;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[20], other[20], post[20];
        struct lowest lowest = {0};
        truce_ledger_entry entries[5] = {{NULL}};
        truce_ledger_transaction transaction = {.id = &id, .entries = entries};
        truce_ledger_account rules = {
            .account = name, .currency = "EUR", .has_min = true, .has_max = true, .max = 10};
        truce_status status;
        int64_t sum = 0;

        snprintf(name, sizeof name, "case:%zu", i);
        snprintf(post, sizeof post, "have %zu", i);
        CHECK_OK(truce_ledger_open(ledger, NULL, &rules, &error), error);
        if (cases[i].have)
            CHECK_OK(book_transfer(ledger, post, "bank", name, cases[i].have, &error), error);
        snprintf(post, sizeof post, "pending %zu", i);
        if (cases[i].pending)
            CHECK_OK(book_post(ledger, NULL, post, TRUCE_LEDGER_PENDING, name, "bank",
                               cases[i].pending, NULL, &error),
                     error);
        for (int n = 0; n < 4 && cases[i].values[n]; n++) {
            entries[transaction.count++] = (truce_ledger_entry){name, cases[i].values[n], NULL};
            sum += cases[i].values[n];
        }
        if (sum)
            entries[transaction.count++] = (truce_ledger_entry){"bank", -sum, NULL};
        snprintf(post, sizeof post, "post %zu", i);
        id = text_id(post);
        status = truce_ledger_post(ledger, NULL, &transaction, NULL, &error);
        if (status != (cases[i].posted ? TRUCE_OK : TRUCE_LIMIT))
            test_fail(__FILE__, __LINE__, "case %zu: %s %s", i, truce_status_name(status),
                      error.message);
        snprintf(other, sizeof other, "back %zu", i);
        if (cases[i].posted)
            CHECK_OK(book_resolve(ledger, NULL, other, TRUCE_LEDGER_REVERSE, post, &error), error);
        CHECK_OK(truce_ledger_statement(ledger, name, NULL, note_lowest, &lowest, &error), error);
        if (lowest.balance < 0 || lowest.available < 0 || lowest.greatest > 10)
            test_fail(__FILE__, __LINE__, "case %zu: %lld, available %lld, %lld", i,
                      (long long)lowest.balance, (long long)lowest.available,
                      (long long)lowest.greatest);
    }
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

TEST(no_entry_of_several_of_one_account_breaks_its_rules)
{
    everywhere(several_entries);
}
