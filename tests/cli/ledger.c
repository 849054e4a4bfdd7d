/* truce ledger: its output and its exit codes. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/server.h"
#include "tests/support/book.h"
#include "tests/support/command.h"
#include "tests/support/early_clock.h"
#include "tests/support/test.h"

static char store[300]; /* of the running test */

static void check(int line, const struct command *c, int code, const char *out, const char *err)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    if (out)
        test_check_text(out, c->out, __FILE__, line);
    if (err ? !strstr(c->err, err) : *c->err != '\0')
        test_fail(__FILE__, line, "standard error is \"%s\", not \"%s\"", c->err, err ? err : "");
}
#define ANSWERS(code, out, err, ...)                                                               \
    check(__LINE__, command_run(TRUCE_CLI, store, NULL, "ledger", __VA_ARGS__, NULL), code, out,   \
          err)

static void begin(void)
{
    snprintf(store, sizeof store, "%s/shop.truce", test_directory());
    ANSWERS(0, "", NULL, "currency", "book", "EUR", "2");
    ANSWERS(0, "", NULL, "open", "book", "bank", "--currency", "EUR");
    ANSWERS(0, "", NULL, "open", "book", "people:ada", "--currency", "EUR", "--min", "0");
    ANSWERS(0, "posted\n", NULL, "post", "book", "bank", "people:ada", "100.5", "--id", "1");
}

/* A misspelled name is not an empty ledger. */
TEST(refuses_to_read_a_ledger_that_does_not_exist)
{
#define NO_BOK "the ledger \"bok\" does not exist"
    begin();
    ANSWERS(0, "", NULL, "currency", "zoo", "EUR", "2");
    ANSWERS(1, "", NO_BOK ": expected \"book\", \"zoo\"", "verify", "bok");
    ANSWERS(1, "", NO_BOK ": expected \"book\", \"zoo\"", "balance", "bok", "bank");
    ANSWERS(1, "", NO_BOK, "report", "bok");
    ANSWERS(1, "", NO_BOK, "search", "bok");
    ANSWERS(1, "", NO_BOK, "accounts", "bok");
    ANSWERS(1, "", NO_BOK, "pending", "bok");
    ANSWERS(1, "", NO_BOK, "statement", "bok", "bank");
    ANSWERS(1, "", NO_BOK, "seal", "bok");
    ANSWERS(1, "", NO_BOK, "export", "bok", "--form", "ndjson");
    ANSWERS(1, "", NO_BOK, "open", "bok", "bank", "--currency", "EUR");
    /* a ledger with a currency and without an account is one */
    ANSWERS(0, "0 entries of 0 accounts, 0 findings\n", NULL, "verify", "zoo");
    ANSWERS(0, "", NULL, "search", "zoo");
    ANSWERS(0, "", NULL, "accounts", "zoo");
}

/* No earlier command has created the store. */
TEST(names_the_first_steps_in_a_new_folder)
{
    snprintf(store, sizeof store, "%s/new.truce", test_directory());
    ANSWERS(1, "", "first declare the currency: truce ledger currency book EUR DIGITS", "open",
            "book", "ada", "--currency", "EUR");
    ANSWERS(1, "", "the ledger \"book\" does not exist", "post", "book", "ada", "ben", "5", "--id",
            "1");
    CHECK(access(store, F_OK) != 0);
    ANSWERS(0, "", NULL, "currency", "book", "EUR", "2");
    ANSWERS(1, "", "first declare the currency: truce ledger currency book USD DIGITS", "open",
            "book", "ada", "--currency", "USD");
}

TEST(amounts_have_the_digits_of_their_currency)
{
    begin();
    ANSWERS(0, "100.50 EUR\n", NULL, "balance", "book", "people:ada");
    ANSWERS(0,
            "{\"balance\": \"100.50\", \"currency\": \"EUR\", \"available\": \"100.50\", \"out\": "
            "\"0.00\", \"in\": \"0.00\", \"number\": 2}\n",
            NULL, "balance", "book", "people:ada", "--json");
    ANSWERS(2, "", "too many digits", "post", "book", "bank", "people:ada", "1.005", "--id", "2");
    ANSWERS(2, "", "more than 0", "post", "book", "bank", "people:ada", "-5", "--id", "2");
    ANSWERS(2, "", "FROM and TO are the same account, bank", "post", "book", "bank", "bank", "5",
            "--id", "2");
    ANSWERS(2, "", "--id ID is missing", "post", "book", "bank", "people:ada", "5");
    ANSWERS(2, "", "the id of the transaction is an empty string", "post", "book", "bank",
            "people:ada", "5", "--id", "");
    ANSWERS(2, "", "--effective needs a time", "post", "book", "bank", "people:ada", "5", "--id",
            "2", "--effective", "soon");
    /* a day and a month in an order that depends on the country */
    ANSWERS(2, "", "--effective needs a time", "post", "book", "bank", "people:ada", "5", "--id",
            "2", "--effective", "01/02/2026");
    ANSWERS(2, "", "--effective needs a time", "post", "book", "bank", "people:ada", "5", "--id",
            "2", "--effective", "2026-01");
    ANSWERS(1, "", "account \"nowhere\" is not open in \"book\"", "post", "book", "nowhere",
            "people:ada", "5", "--id", "2");
    ANSWERS(0,
            "account     balance         available       currency  is\n"
            "bank               -100.50         -100.50  EUR       open\n"
            "people:ada          100.50          100.50  EUR       open\n"
            "people              100.50          100.50  EUR       sum\n",
            NULL, "accounts", "book");
}

TEST(an_amount_is_split_over_several_accounts_in_one_transaction)
{
    begin();
    ANSWERS(0, "", NULL, "open", "book", "shop:sales", "--currency", "EUR", "--min", "0");
    ANSWERS(0, "", NULL, "open", "book", "shop:a=b", "--currency", "EUR", "--min", "0");
    ANSWERS(0, "posted\n", NULL, "post", "book", "people:ada", "shop:sales", "10", "--also",
            "shop:a=b=1.90", "--also", "bank=0.05", "--id", "order");
    ANSWERS(0, "exists\n", NULL, "post", "book", "people:ada", "shop:sales", "10", "--also",
            "shop:a=b=1.90", "--also", "bank=0.05", "--id", "order");
    ANSWERS(0, "88.55 EUR\n", NULL, "balance", "book", "people:ada");
    ANSWERS(0, "1.90 EUR\n", NULL, "balance", "book", "shop:a=b");
    ANSWERS(1, "", "minimum is 0.00", "post", "book", "people:ada", "shop:sales", "88", "--also",
            "bank=1", "--id", "more");
    ANSWERS(2, "", "expected ACCOUNT=AMOUNT", "post", "book", "people:ada", "shop:sales", "1",
            "--also", "bank", "--id", "more");
    ANSWERS(2, "", "more than 0", "post", "book", "people:ada", "shop:sales", "1", "--also",
            "bank=-1", "--id", "more");
    ANSWERS(2, "", "too many digits", "post", "book", "people:ada", "shop:sales", "1", "--also",
            "bank=0.001", "--id", "more");
    ANSWERS(2, "", "64 bits", "post", "book", "people:ada", "shop:sales", "92233720368547758.07",
            "--also", "bank=92233720368547758.07", "--id", "more");
    ANSWERS(1, "", "account \"nowhere\" is not open", "post", "book", "people:ada", "shop:sales",
            "1", "--also", "nowhere=1", "--id", "more");
    ANSWERS(0, "88.55 EUR\n", NULL, "balance", "book", "people:ada");
}

TEST(posts_several_payers_and_currencies_as_entries)
{
    begin();
    ANSWERS(0, "", NULL, "currency", "book", "JPY", "0");
    ANSWERS(0, "", NULL, "open", "book", "shop", "--currency", "EUR", "--min", "0");
    ANSWERS(0, "", NULL, "open", "book", "yen", "--currency", "JPY");
    ANSWERS(0, "", NULL, "open", "book", "yen:bank", "--currency", "JPY");
    for (int i = 0; i < 2; i++)
        ANSWERS(0, i ? "exists\n" : "posted\n", NULL, "post", "book", "--entry", "people:ada=-10",
                "--entry", "bank=-0.5", "--entry", "shop=10.50", "--entry", "yen=-7", "--entry",
                "yen:bank=7", "--id", "2");
    ANSWERS(1, "", "other content: the entries differ, or have another order", "post", "book",
            "--entry", "people:ada=-10", "--entry", "bank=10", "--id", "2");
    ANSWERS(0, "10.50 EUR\n", NULL, "balance", "book", "shop");
    ANSWERS(0, "-7 JPY\n", NULL, "balance", "book", "yen");
    ANSWERS(2, "", "its amounts in EUR sum to -0.50 instead of zero", "post", "book", "--entry",
            "people:ada=-1", "--entry", "shop=0.5", "--id", "3");
    ANSWERS(2, "", "is not a valid amount", "post", "book", "--entry", "yen=-0.5", "--entry",
            "yen:bank=0.5", "--id", "3");
    ANSWERS(2, "", "expected ACCOUNT=AMOUNT", "post", "book", "--entry", "=1", "--id", "3");
    ANSWERS(1, "", "account \"nowhere\" is not open in \"book\"", "post", "book", "--entry",
            "nowhere=1", "--id", "3");
    ANSWERS(2, "", "the amount of account \"shop\" is 0", "post", "book", "--entry", "shop=0",
            "--id", "3");
    ANSWERS(2, "", "give FROM TO AMOUNT, or --entry", "post", "book", "--id", "3");
    ANSWERS(2, "", "give FROM TO AMOUNT, or --entry", "post", "book", "shop", "bank", "--id", "3");
    ANSWERS(2, "", "give FROM TO AMOUNT, or --entry", "post", "book", "shop", "bank", "1",
            "--entry", "shop=1", "--id", "3");
    ANSWERS(2, "", "--also needs FROM TO AMOUNT", "post", "book", "--entry", "shop=1", "--also",
            "bank=1", "--id", "3");
}

TEST(a_part_is_settled_or_reversed_by_its_entries)
{
    begin();
    ANSWERS(0, "", NULL, "open", "book", "tax", "--currency", "EUR");
    ANSWERS(0, "posted\n", NULL, "post", "book", "people:ada", "bank", "40", "--id", "p",
            "--pending");
    ANSWERS(2, "", "the entry of -41.00 EUR for account \"people:ada\" exceeds the amount",
            "settle", "book", "p", "--entry", "people:ada=-41", "--entry", "bank=41", "--id", "s");
    ANSWERS(2, "", "account \"tax\" has no entry in transaction", "settle", "book", "p", "--entry",
            "people:ada=-15", "--entry", "tax=15", "--id", "s");
    ANSWERS(0, "posted\n", NULL, "settle", "book", "p", "--entry", "people:ada=-15", "--entry",
            "bank=15", "--id", "s");
    ANSWERS(0, "85.50 EUR\n", NULL, "balance", "book", "people:ada");
    ANSWERS(2, "", "account \"tax\" has no entry in transaction", "reverse", "book", "s", "--entry",
            "people:ada=5", "--entry", "tax=-5", "--id", "r");
    ANSWERS(0, "posted\n", NULL, "reverse", "book", "s", "--entry", "people:ada=5", "--entry",
            "bank=-5", "--id", "r");
    ANSWERS(0, "90.50 EUR\n", NULL, "balance", "book", "people:ada");
    ANSWERS(1, "", "reversed by \"r\"", "reverse", "book", "s", "--id", "r2");
}

TEST(transactions_are_searched_by_their_metadata)
{
    begin();
    ANSWERS(0, "posted\n", NULL, "post", "book", "bank", "people:ada", "1", "--id", "2", "--meta",
            "{order: 17, shop: {town: 'Bonn'}}");
    ANSWERS(0, "posted\n", NULL, "post", "book", "bank", "people:ada", "2", "--id", "3", "--meta",
            "{order: 18}", "--effective", "2024-01-31");
    ANSWERS(0, NULL, NULL, "search", "book", "{order: 18}", "--json");
    CHECK(strstr(command_run(TRUCE_CLI, store, NULL, "ledger", "search", "book", "{order: 18}",
                             "--json", NULL)
                     ->out,
                 "\"effective\": {\"$date\": \"2024-01-31T00:00:00Z\"}, \"kind\": \"transfer\", "
                 "\"entries\": [{\"account\": \"bank\", \"amount\": \"-2.00\", \"currency\": "
                 "\"EUR\"}, {\"account\": \"people:ada\", \"amount\": \"2.00\", \"currency\": "
                 "\"EUR\"}], \"meta\": {\"order\": 18}}\n"));
    CHECK(strstr(command_run(TRUCE_CLI, store, NULL, "ledger", "search", "book",
                             "{'shop.town': 'Bonn'}", NULL)
                     ->out,
                 "[\"bank -1.00 EUR\", \"people:ada 1.00 EUR\"]"));
    CHECK(strstr(
        command_run(TRUCE_CLI, store, NULL, "ledger", "search", "book", "{order: 18}", NULL)->out,
        " 2024-01-31T00:00:00.000Z"));
    ANSWERS(0, "", NULL, "search", "book", "{order: 19}");
    ANSWERS(0, "", NULL, "search", "book", "--before", "2020-01-01", "--account", "bank");
    ANSWERS(2, "", "can only be searched by its fields", "search", "book", "{$or: []}");
    ANSWERS(2, "", "META is not", "search", "book", "{order");
    ANSWERS(2, "", "--from needs a time", "search", "book", "--from", "soon");
}

TEST(a_pending_amount_is_listed_until_it_is_settled)
{
    begin();
    ANSWERS(0, "posted\n", NULL, "post", "book", "people:ada", "bank", "40", "--id", "p",
            "--pending");
    ANSWERS(0, "100.50 EUR, available 60.50\n", NULL, "balance", "book", "people:ada");
    ANSWERS(0, NULL, NULL, "pending", "book");
    ANSWERS(0, "posted\n", NULL, "settle", "book", "p", "--id", "s");
    ANSWERS(0, "exists\n", NULL, "settle", "book", "p", "--id", "s");
    ANSWERS(1, "", "reversed by \"s\"", "void", "book", "p", "--id", "v");
    ANSWERS(1, "", "no transaction has the id \"q\"", "settle", "book", "q", "--id", "v");
    ANSWERS(0, "", NULL, "pending", "book");
    ANSWERS(1, "", "minimum is 0.00", "reverse", "book", "1", "--id", "r");
}

TEST(refuses_a_pending_amount_that_has_expired)
{
    begin();
    ANSWERS(1, "", "would reserve nothing: it expires at 2020-01-01T00:00:00.000Z, and it is 2",
            "post", "book", "people:ada", "bank", "40", "--id", "p", "--pending", "--expires",
            "2020-01-01");
    ANSWERS(0, "", NULL, "pending", "book");
}

TEST(names_the_time_in_which_a_repetition_differs)
{
#define HOLD "post", "book", "people:ada", "bank", "40", "--id", "p", "--pending"

    begin();
    ANSWERS(0, "posted\n", NULL, HOLD, "--expires", "2100-01-01");
    ANSWERS(0, "exists\n", NULL, HOLD, "--expires", "2100-01-01");
    ANSWERS(1, "",
            "with other content: \"expires\" is 2100-01-01T00:00:00.000Z, not "
            "2100-01-02T00:00:00.000Z",
            HOLD, "--expires", "2100-01-02");
    ANSWERS(1, "", "with other content: \"expires\" is 2100-01-01T00:00:00.000Z, not none", HOLD);
    ANSWERS(1, "", "with other content: another \"kind\"", "post", "book", "people:ada", "bank",
            "40", "--id", "p");
}

/* The book may have been exported before the expiry. */
TEST(imports_a_pending_amount_that_has_expired)
{
    const struct command *c;

    begin();
    c = command_run(TRUCE_CLI, store,
                    "{\"id\": \"p\", \"kind\": \"pending\", \"expires\": "
                    "\"2020-01-01T00:00:00Z\", \"entries\": [{\"account\": \"people:ada\", "
                    "\"amount\": \"-40.00\", \"currency\": \"EUR\"}, {\"account\": \"bank\", "
                    "\"amount\": \"40.00\", \"currency\": \"EUR\"}]}\n",
                    "ledger", "import", "book", "--form", "ndjson", NULL);
    CHECK_INT(c->code, ==, 0);
    CHECK_TEXT(c->err, "");
    ANSWERS(0, "100.50 EUR\n", NULL, "balance", "book", "people:ada");
}

/* Reserves 40.00 until a second ago. */
static void post_expired(void)
{
    bson_value_t id = text_id("p");
    truce_ledger_entry entries[] = {{"people:ada", -4000, NULL}, {"bank", 4000, NULL}};
    truce_ledger_transaction transaction = {.id = &id,
                                            .kind = TRUCE_LEDGER_PENDING,
                                            .entries = entries,
                                            .count = 2,
                                            .expires_ms = truce__clock_wall_ms() - 1000};
    bson_error_t error = {0};
    truce_ledger *ledger;
    truce_store *opened;

    CHECK_OK(truce_store_open(store, NULL, &opened, &error), error);
    ledger = truce_ledger_new(opened, &(truce_ledger_options){.collection = "book"});
    early_clock_use();
    CHECK_OK(truce_ledger_post(ledger, NULL, &transaction, NULL, &error), error);
    truce__environment_use(NULL);
    truce_ledger_free(ledger);
    truce_store_close(opened);
}

/* root may write to every file, so root runs the command as another user */
static const struct command *statement_unprivileged(void)
{
    return geteuid() == 0
               ? command_run("/usr/bin/setpriv", store, NULL, "--reuid=65534", "--clear-groups",
                             TRUCE_CLI, "ledger", "statement", "book", "people:ada", NULL)
               : command_run(TRUCE_CLI, store, NULL, "ledger", "statement", "book", "people:ada",
                             NULL);
}

TEST(a_statement_books_the_release_of_an_expired_amount_if_it_may)
{
    const struct command *c;

    begin();
    post_expired();
    CHECK_INT(chmod(store, 0444), ==, 0);
    *strrchr(store, '/') = '\0';
    CHECK_INT(chmod(store, 0555), ==, 0);
    store[strlen(store)] = '/';
    c = statement_unprivileged();
    CHECK_INT(c->code, ==, 0);
    CHECK(strstr(c->out, "PENDING") && !strstr(c->out, "VOID"));
    *strrchr(store, '/') = '\0';
    CHECK_INT(chmod(store, 0755), ==, 0);
    store[strlen(store)] = '/';
    CHECK_INT(chmod(store, 0644), ==, 0);
    for (int i = 0; i < 2; i++) {
        c = command_run(TRUCE_CLI, store, NULL, "ledger", "statement", "book", "people:ada", NULL);
        CHECK_INT(c->code, ==, 0);
        CHECK(strstr(c->out, "VOID"));
        CHECK(strstr(c->out, "100.50\n"));
    }
}

TEST(a_user_with_the_role_read_gets_a_statement_from_a_server)
{
    struct server_options options = {.auth = true};
    const struct command *c;
    struct server *server;
    truce_store *opened;
    bson_error_t error = {0};
    char uri[200];

    begin();
    c = command_run(TRUCE_CLI, store, "secret-of-bob\n", "user", "add", "bob", "--role",
                    "read@test", NULL);
    REQUIRE(c->code == 0);
    REQUIRE(!truce_store_open(store, NULL, &opened, &error));
    REQUIRE(!server_start(opened, &options, &server, &error));
    snprintf(uri, sizeof uri, "mongodb://bob:secret-of-bob@127.0.0.1:%d/test?authSource=admin",
             server_port(server));
    c = command_run(TRUCE_CLI, uri, NULL, "ledger", "statement", "book", "people:ada", NULL);
    CHECK_INT(c->code, ==, 0);
    CHECK(strstr(c->out, "100.50"));
    CHECK_TEXT("", c->err);
    server_stop(server, 5000);
    truce_store_close(opened);
}

TEST(names_the_rules_of_an_account_that_is_already_open)
{
    begin();
    ANSWERS(0, "", NULL, "open", "book", "people:ada", "--currency", "EUR", "--min", "0");
    ANSWERS(1, "",
            "is already open with other rules (EUR, minimum 0.00): to change them, set "
            "the rules of the account\n",
            "open", "book", "people:ada", "--currency", "EUR");
    ANSWERS(0, "", NULL, "open", "book", "till", "--currency", "EUR", "--max", "5", "--debit-only");
    ANSWERS(1, "", "(EUR, maximum 5.00, debit only)", "open", "book", "till", "--currency", "EUR");
    ANSWERS(0, "", NULL, "currency", "book", "JPY", "0");
    ANSWERS(1, "", "(EUR): its currency cannot change", "open", "book", "bank", "--currency",
            "JPY");
}

TEST(a_book_is_proved_and_compared_with_a_seal)
{
    const struct command *printed;
    char path[420];
    FILE *file;

    begin();
    printed = command_run(TRUCE_CLI, store, NULL, "ledger", "seal", "book", NULL);
    snprintf(path, sizeof path, "%s.seal", store);
    file = fopen(path, "w");
    REQUIRE(CHECK(file != NULL));
    fputs(printed->out, file);
    fclose(file);
    ANSWERS(0, "4 entries of 2 accounts, 0 findings\n", NULL, "verify", "book", "--seal", path);
    ANSWERS(0, "posted\n", NULL, "post", "book", "people:ada", "bank", "1", "--id", "2");
    ANSWERS(0, "6 entries of 2 accounts, 0 findings\n", NULL, "verify", "book", "--seal", path);
    ANSWERS(2, "", "incomplete", "verify", "book", "--seal", "/dev/null");
    ANSWERS(2, "", "cannot read", "verify", "book", "--seal", "/no/such/file");
}

/* A name may sort between another one and the accounts below that. */
TEST(shows_the_sum_of_a_group_after_its_accounts)
{
    static const char *const names[] = {"a", "a-b", "a:b", "a:b:c", "a:b-c", "aa", "b:c:d"};

    begin();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char id[20];

        snprintf(id, sizeof id, "n%zu", i);
        ANSWERS(0, "", NULL, "open", "book", names[i], "--currency", "EUR");
        ANSWERS(0, "posted\n", NULL, "post", "book", "bank", names[i], "1", "--id", id);
    }
    ANSWERS(0,
            "account     balance         available       currency  is\n"
            "a-b                   1.00            1.00  EUR       open\n"
            "a:b-c                 1.00            1.00  EUR       open\n"
            "a:b:c                 1.00            1.00  EUR       open\n"
            "a:b                   2.00            2.00  EUR       open\n"
            "a                     4.00            4.00  EUR       open\n"
            "aa                    1.00            1.00  EUR       open\n"
            "b:c:d                 1.00            1.00  EUR       open\n"
            "b:c                   1.00            1.00  EUR       sum\n"
            "b                     1.00            1.00  EUR       sum\n"
            "bank               -107.50         -107.50  EUR       open\n"
            "people:ada          100.50          100.50  EUR       open\n"
            "people              100.50          100.50  EUR       sum\n",
            NULL, "accounts", "book");
}

TEST(numbers_of_a_ledger_can_be_documents)
{
    snprintf(store, sizeof store, "%s/sharded.truce", test_directory());
    ANSWERS(0, "", NULL, "currency", "book", "EUR", "2", "--slots", "numbers");
    ANSWERS(0, "", NULL, "open", "book", "bank", "--currency", "EUR");
    ANSWERS(0, "", NULL, "open", "book", "ada", "--currency", "EUR", "--min", "0");
    ANSWERS(0, "posted\n", NULL, "post", "book", "bank", "ada", "100.5", "--id", "1");
    ANSWERS(0, "exists\n", NULL, "post", "book", "bank", "ada", "100.5", "--id", "1");
    ANSWERS(1, "", "minimum is 0.00", "post", "book", "ada", "bank", "101", "--id", "2");
    CHECK_TEXT("4\n", command_run(TRUCE_CLI, store, NULL, "count", "numbers", NULL)->out);
    ANSWERS(0, "4 entries of 2 accounts, 0 findings\n", NULL, "verify", "book");
    ANSWERS(2, "", "was made with its numbers in numbers", "currency", "book", "JPY", "0",
            "--slots", "other");
}

TEST(doctor_has_no_findings_for_a_valid_ledger)
{
    begin();
    CHECK(!strstr(command_run(TRUCE_CLI, store, NULL, "doctor", "--json", NULL)->out, "index"));
}

TEST(the_demonstration_loses_no_money_with_truce)
{
    const struct command *c =
        command_run(TRUCE_CLI, NULL, NULL, "demo", "bank", "--duration", "1s", NULL);

    CHECK_INT(c->code, ==, 0);
    CHECK(strstr(c->out, "800.00 before, 800.00 after"));
}
