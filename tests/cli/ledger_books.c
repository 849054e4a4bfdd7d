/* Books as files: an export and an import give the same book, hledger agrees on every balance, and
 * a wrong file posts nothing. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "cli/book/book.h"
#include "tests/support/book.h"
#include "tests/support/command.h"

static char path[400]; /* of the file that is read or written */
static char uri[400];
static char directory[300]; /* of the running test */

static const char *const forms[] = {"ndjson", "csv", "hledger", "beancount"};

static truce_store *open_store(const char *name)
{
    truce_store *store = NULL;
    bson_error_t error = {0};

    snprintf(uri, sizeof uri, "file:%s/%s.truce", directory, name);
    CHECK_OK(truce_store_open(uri, &(truce_store_options){.relaxed = true}, &store, &error), error);
    return store;
}

static truce_store *begin(const char *name)
{
    snprintf(directory, sizeof directory, "%s", test_directory());
    return open_store(name);
}

static void write_file(const char *name, const char *text)
{
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static char *export_as(const char *store, const char *form)
{
    const struct command *c =
        command_run(TRUCE_CLI, store, NULL, "ledger", "export", "tx", "--form", form, NULL);

    CHECK_INT(c->code, ==, 0);
    CHECK_TEXT("", c->err);
    return bson_strdup(c->out);
}

/* ---- round trips ---------------------------------------------------------------------------- */

static void open_in(truce_ledger *ledger, const char *account, const char *currency, int64_t max)
{
    bson_error_t error = {0};

    CHECK_OK(truce_ledger_open(ledger, NULL,
                               &(truce_ledger_account){.account = account,
                                                       .currency = currency,
                                                       .has_max = max > 0,
                                                       .max = max,
                                                       .credit_only = max > 0},
                               &error),
             error);
}

static void post_odd(truce_ledger *ledger)
{
    bson_value_t id = {.value_type = BSON_TYPE_INT64, .value.v_int64 = 1234567890123};
    bson_t *meta =
        test_bson("{'description': 'a \\\"b\\\" ; c | d \\\\', 'n': {'$numberLong': '7'}}");
    truce_ledger_entry entries[] = {{"bank", -700, "fee; (odd) \"type\""},
                                    {"people:a", 500, NULL},
                                    {"people:bob smith", 200, NULL}};
    truce_ledger_transaction transaction = {.id = &id,
                                            .entries = entries,
                                            .count = 3,
                                            .meta = meta,
                                            .effective_ms = INT64_C(951782400123)};
    bson_error_t error = {0};

    CHECK_OK(truce_ledger_post(ledger, NULL, &transaction, NULL, &error), error);
    bson_destroy(meta);
}

/* Something of everything. */
static void fill(truce_store *store)
{
    truce_ledger *ledger = book_ledger(store);
    bson_value_t id = text_id("half"), of = text_id("p1"), ids[] = {text_id("short")};
    bson_t *filter = test_bson("{'_id': 'short'}"),
           *past = test_bson("{'$set': {'expires': {'$date': '2001-01-01T00:00:00Z'}}}");
    truce_ledger_entry half[] = {{"people:a", -50, NULL}, {"people:bob smith", 50, NULL}};
    bson_error_t error = {0};

    CHECK_OK(book_open(ledger, "bank", INT64_MIN, &error), error);
    CHECK_OK(book_open(ledger, "people:a", 0, &error), error);
    CHECK_OK(book_open(ledger, "people:bob smith", 0, &error), error);
    CHECK_OK(truce_ledger_currency(ledger, "JPY", 0, &error), error);
    CHECK_OK(truce_ledger_currency(ledger, "G-1", 6, &error), error);
    open_in(ledger, "yen", "JPY", 0);
    open_in(ledger, "yen:other", "JPY", 9000);
    open_in(ledger, "g:x", "G-1", 0);
    open_in(ledger, "g:X", "G-1", 0);
    post_odd(ledger);
    CHECK_OK(book_transfer(ledger, "most", "g:x", "g:X", INT64_MAX, &error), error);
    CHECK_OK(book_transfer(ledger, "y (1)", "yen", "yen:other", 70, &error), error);
    for (int i = 0; i < 4; i++) {
        char name[8];

        snprintf(name, sizeof name, "p%d", i);
        CHECK_OK(book_post(ledger, NULL, name, TRUCE_LEDGER_PENDING, "people:a", "people:bob smith",
                           100, NULL, &error),
                 error);
    }
    CHECK_OK(book_resolve(ledger, NULL, "s", TRUCE_LEDGER_SETTLE, "p0", &error), error);
    CHECK_OK(truce_ledger_post(ledger, NULL,
                               &(truce_ledger_transaction){.id = &ids[0],
                                                           .kind = TRUCE_LEDGER_PENDING,
                                                           .entries = half,
                                                           .count = 2,
                                                           .expires_ms = INT64_C(4102444800000)},
                               NULL, &error),
             error);
    CHECK_OK(book_resolve(ledger, NULL, "in time", TRUCE_LEDGER_SETTLE, "short", &error), error);
    CHECK_OK(
        truce_ledger_post(
            ledger, NULL,
            &(truce_ledger_transaction){
                .id = &id, .kind = TRUCE_LEDGER_SETTLE, .of = &of, .entries = half, .count = 2},
            NULL, &error),
        error);
    CHECK_OK(book_resolve(ledger, NULL, "v", TRUCE_LEDGER_VOID, "p2", &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "r", TRUCE_LEDGER_REVERSE, "half", &error), error);
    CHECK_OK(truce_ledger_rules(
                 ledger, NULL,
                 &(truce_ledger_account){.account = "people:a", .has_min = true, .min = -700},
                 &error),
             error);
    CHECK_OK(truce_ledger_rules(
                 ledger, NULL,
                 &(truce_ledger_account){.account = "people:a", .has_min = true, .min = -500},
                 &error),
             error);
    CHECK_OK(book_transfer(ledger, "below", "people:a", "bank", 700, &error), error);
    BOOK_CHECK(ledger);
    /* it was settled in time; posting it again is too late */
    CHECK_OK(truce_update(store, "tx", filter, past, NULL, NULL, &error), error);
    bson_destroy(filter);
    bson_destroy(past);
    truce_ledger_free(ledger);
}

static int compare_lines(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Sorts the lines of a book. Independent transactions of one time have no order of their own if
 * numbers are documents. */
static char *sort_lines(const char *book)
{
    char *copy = bson_strdup(book), *rest = copy, *lines[100], *line;
    bson_string_t *sorted = bson_string_new("");
    size_t count = 0;

    while (count < 100 && (line = strtok_r(rest, "\n", &rest)))
        lines[count++] = line;
    qsort(lines, count, sizeof *lines, compare_lines);
    for (size_t i = 0; i < count; i++)
        bson_string_append_printf(sorted, "%s\n", lines[i]);
    bson_free(copy);
    return bson_string_free(sorted, false);
}

static void check_same_book(const char *wanted, const char *book)
{
    char *all = book_has_slots() ? sort_lines(wanted) : bson_strdup(wanted),
         *found = book_has_slots() ? sort_lines(book) : bson_strdup(book);

    CHECK_TEXT(all, found);
    bson_free(found);
    bson_free(all);
}

static void round_trip(const char *form, const char *from, const char *wanted)
{
    char *text = export_as(from, form), *again, to[400];
    const struct command *c;
    truce_store *store = open_store(form);
    truce_ledger *ledger = book_ledger(store);
    bson_error_t error;

    /* The first operation of a ledger decides where its numbers are; an import has no choice. */
    if (book_has_slots())
        CHECK_OK(truce_ledger_currency(ledger, "EUR", 2, &error), error);
    snprintf(to, sizeof to, "%s", uri);
    snprintf(path, sizeof path, "book.%s", form);
    write_file("book", text);
    for (int i = 0; i < 2; i++) {
        c = command_run(TRUCE_CLI, to, NULL, "ledger", "import", "tx", path, "--form", form, NULL);
        CHECK_TEXT(i ? "posted 0, existed 14, refused 0\n" : "posted 14, existed 0, refused 0\n",
                   c->out);
        CHECK_TEXT("", c->err);
        CHECK_INT(c->code, ==, 0);
    }
    again = export_as(to, "ndjson");
    check_same_book(wanted, again);
    BOOK_CHECK(ledger);
    CHECK_INT(book_balance(ledger, "people:a").balance, ==, -350);
    truce_ledger_free(ledger);
    truce_store_close(store);
    bson_free(again);
    bson_free(text);
}

TEST(imports_a_ledger_from_every_format_without_a_difference)
{
    truce_store *store = begin("book");
    char *wanted, from[400];
    const struct command *c;

    snprintf(from, sizeof from, "%s", uri);
    fill(store);
    wanted = export_as(from, "ndjson");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        int before = test_failures();

        round_trip(forms[i], from, wanted);
        if (test_failures() > before)
            fprintf(stderr, "    (with %s)\n", forms[i]);
    }
    write_file("own.ndjson", wanted);
    c = command_run(TRUCE_CLI, from, NULL, "ledger", "import", "tx", path, NULL);
    CHECK_TEXT("posted 0, existed 14, refused 0\n", c->out);
    bson_free(wanted);
    truce_store_close(store);
}

/* ---- hledger -------------------------------------------------------------------------------- */

struct agreement {
    truce_ledger *ledger;
    const char *reported; /* by hledger: "account","EUR 12.50" */
    int accounts;
};

static bool agrees(const truce_ledger_account *account, const truce_ledger_balance *balance,
                   void *arg)
{
    struct agreement *agreement = arg;
    char text[TRUCE_LEDGER_AMOUNT], line[400];
    bson_error_t error = {0};
    int digits = 0;

    CHECK_OK(truce_ledger_digits(agreement->ledger, balance->currency, &digits, &error), error);
    if (!balance->balance)
        return true;
    snprintf(line, sizeof line, "\"%s\",\"%s %s\"\n", account->account,
             !strcmp(balance->currency, "G-1") ? "\"\"G-1\"\"" : balance->currency,
             truce_ledger_show(balance->balance, digits, text));
    if (!strstr(agreement->reported, line))
        test_fail(__FILE__, __LINE__, "hledger does not say %s", line);
    agreement->accounts++;
    return true;
}

static void post_at_random(truce_ledger *ledger, struct random *random, int count)
{
    static const char *const accounts[] = {"bank", "people:a", "people:bob smith", "shop:x:y"};
    bson_error_t error = {0};

    CHECK_OK(book_open(ledger, "shop:x:y", INT64_MIN, &error), error);
    for (int i = 0; i < count; i++) {
        truce_ledger_kind kind =
            truce__random_below(random, 4) ? TRUCE_LEDGER_TRANSFER : TRUCE_LEDGER_PENDING;
        const char *from = accounts[truce__random_below(random, 4)],
                   *to = accounts[truce__random_below(random, 4)];
        char id[20], of[20];

        snprintf(id, sizeof id, "t%d", i);
        snprintf(of, sizeof of, "t%d", (int)truce__random_below(random, (uint64_t)i + 1));
        if (i % 5 == 4)
            (void)!book_resolve(ledger, NULL, id,
                                i % 2 ? TRUCE_LEDGER_SETTLE : TRUCE_LEDGER_REVERSE, of, &error);
        else
            (void)!book_post(ledger, NULL, id, kind, from, to,
                             1 + (int64_t)truce__random_below(random, 100000), NULL, &error);
    }
}

TEST(hledger_agrees_on_every_balance)
{
    truce_store *store = begin("agreed");
    struct agreement agreement = {.ledger = book_ledger(store)};
    struct random random;
    bson_error_t error = {0};
    char from[400], *text;
    const struct command *c;

    if (access("/usr/bin/hledger", X_OK) != 0) {
        printf("hledger is not installed: not compared\n");
    } else {
        truce__random_seed(&random, test_seed());
        snprintf(from, sizeof from, "%s", uri);
        fill(store);
        post_at_random(agreement.ledger, &random, (int)test_scale("TRUCE_LEDGER_HLEDGER", 60));
        text = export_as(from, "hledger");
        write_file("agreed.journal", text);
        c = command_run("/usr/bin/hledger", NULL, NULL, "-f", path, "balance", "--flat", "-N", "-O",
                        "csv", NULL);
        CHECK_TEXT("", c->err);
        CHECK_INT(c->code, ==, 0);
        agreement.reported = bson_strdup(c->out);
        CHECK_OK(truce_ledger_balances(agreement.ledger, NULL, agrees, &agreement, &error), error);
        CHECK(agreement.accounts >= 6);
        bson_free((char *)agreement.reported);
        bson_free(text);
    }
    truce_ledger_free(agreement.ledger);
    truce_store_close(store);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *form, *text, *why;
    bool opens;
} cases[] = {
    {"hledger", "2024-01-31 x\n  a  5.005 EUR\n  b\n", "line 1: \"5.005\" has too many digits"},
    {"hledger", "2024-01-31 x\n  a  5.00 EUR\n  b  -4.00 EUR\n",
     "line 1: the transaction does not balance: its amounts in EUR sum to 1.00"},
    {"hledger", "2024-01-31 x\n  a  5 USD\n  b\n", "line 1: account \"a\" is in EUR, not in USD"},
    {"hledger", "2024-01-31 x\n  c  5 EUR\n  b\n", "line 1: the account \"c\" does not exist"},
    {"hledger", "2024-01-31 x\n  a  5 EUR\n  b\n\n2024-02-30 y\n", "line 5: the day"},
    {"hledger", "2024-01-31 x\n  a  5 EUR\n  b\n\n\n  b  7\n", "line 6: the indented line"},
    {"hledger", "2024-01-31 x\n  a  5 EUR\n\n2024-01-31 y\n  a\n  b\n",
     "line 1: the transaction does not balance: its amounts in EUR sum to 5.00"},
    {"hledger", "2024-01-31 x\n  a\n  b\n", "line 1: two entries have no amount"},
    {"hledger", "2024-01-31 x\n\n", "line 1: the transaction has no postings"},
    {"hledger", "2024-01-31 x\n  a  5 EUR @ 2 USD\n  b\n", "line 2: prices (@)"},
    {"hledger", "2024-01-31 x\n  a  5 EUR = 7 EUR\n  b\n", "line 2: balance assertions"},
    {"hledger", "2024-01-31 x\n  (a)  5 EUR\n", "line 2: virtual postings"},
    {"hledger", "2024-01-31 x\n  a  1,000 EUR\n  b\n", "line 2: invalid amount \"1,000 EUR\""},
    {"hledger", "2024-01-31 x\n  a  5 EUR six\n  b\n",
     "line 2: unexpected \"six\" after the amount"},
    {"hledger", "2024-01-31 (x\n  a  5 EUR\n",
     "line 1: the code of the transaction has no closing )"},
    {"hledger", "2024-01-31 x\n  ; truce: {\"id\": 1\n  a  5 EUR\n  b\n", "line 2: column 9"},
    {"hledger", "include more.journal\n", "line 1: unexpected \"include more.journal\""},
    {"hledger", "commodity EUR 1000.0\n", "line 1: currency EUR has 2 digits, not 1"},
    {"hledger", "comment\n2024-01-31 x\n",
     "line 2: the block that begins with \"comment\" has no end"},
    {"hledger", "1970-01-01 x\n  a  5 EUR\n  b\n", "line 1: `date` must not be 1970-01-01"},
    {"hledger", "\n\n2024-01-31 \xff\n", "line 3: the file is not UTF-8"},
    {"beancount", "2024-01-31 * \"x\n  a  5 EUR\n",
     "line 1: the string has no closing \" on its line"},
    {"beancount", "2024-01-31 balance a 5 EUR\n", "line 1: unexpected \"balance a 5 EUR\""},
    {"beancount", "2024-01-31 * \"x\"\n  a  5 EUR {2 USD}\n  b\n",
     "line 2: costs ({...}) are not supported"},
    {"hledger", "2024-01-31 x\n  a\n", "line 1: the only entry of the transaction has no amount"},
    {"hledger", "2024-01-31 x\n  a  0 EUR\n  b\n", "line 1: the amount of account \"a\" is 0"},
    {"hledger", "D 1.00 USD\n2024-01-31 x\n  a  5\n  b\n", "line 2: account \"a\" is in EUR, not"},
    {"beancount", "2024-01-31 * \"x\"\n  a:x  5 EUR\n  b  1 EUR\n  a\n",
     "the account \"a:x\" does not exist"},
    {"ndjson", "{\"id\": 1}\n", "line 1: `entries` is missing or empty"},
    {"ndjson", "{\"id\": 1, \"effective\": \"2024-01-31\"}\n", "unknown field `effective`"},
    {"ndjson", "{\"id\": 1, \"meta\": 7}\n", "line 1: the field `meta` must be a document"},
    {"ndjson", "{\"open\": \"x\", \"currency\": \"EUR\", \"min\": 5}\n",
     "the field `min` must be a string"},
    {"ndjson", "{\"id\": 1, \"entries\": [{\"account\": \"a\", \"value\": \"5\"}]}\n",
     "an entry: unknown field `value`"},
    {"ndjson", "\n{\"id\": 1, \"kind\": \"gift\"}\n", "line 2: unknown kind \"gift\""},
    {"ndjson", "{\"currency\": \"EUR\", \"digits\": 3}\n", "line 1: currency EUR has 2 digits"},
    {"ndjson", "{\"a\": 1}\n", "line 1: the record has no `id`"},
    {"ndjson", "{\"a\": 1\n", "line 1: column 8"},
    {"ndjson", "{\"open\": \"x\", \"currency\": \"EUR\", \"min\": \"a\"}\n",
     "\"a\" is not a valid amount"},
    {"ndjson",
     "{\"id\": 1, \"entries\": [{\"account\": \"a\", \"amount\": {\"$numberDecimal\": \"5.00\"}}]}\n",
     "line 1: `amount` must be a string with the currency's digits"},
    {"csv", "id,kind\n", "line 1: invalid header: expected the columns id, kind,"},
    {"csv", "id,kind,date,expires,account,amount,currency,type,meta\n1,,,,a,5,EUR,,\n",
     "line 2: the line has no `kind`"},
    {"csv",
     "id,kind,date,expires,account,amount,currency,type,meta\n1,transfer,,,a,5,EUR,,\n"
     ",,,,b,-4,EUR,,\n2,transfer,,,a,1,EUR,,\n",
     "line 2: the transaction does not balance"},
    {"hledger", "2024-01-31 x\n  a  5 ABC\n  b\n", "account \"a\" is in EUR", true},
    {"hledger", "2024-01-31 x\n  c  5 ABC\n  d  -5.0\n", "line 3: the amount -5.0 has no currency",
     true},
    {"hledger", "2024-01-31 x\n  a  92233720368547758.07 EUR\n  a  1 EUR\n  b\n",
     "line 1: the amount of the entry without one exceeds 64 bits"},
    {"hledger", "2024-01-31 x\n  a  -92233720368547758.08 EUR\n  b\n",
     "line 1: the amount of the entry without one exceeds 64 bits"},
    {"hledger", "2024-01-31 x\n  a  92233720368547758.07 EUR\n  b  1 EUR\n",
     "sum to more than 64 bits"},
    {"hledger", "2024-01-31 x\n  a  92233720368547758.08 EUR\n  b\n", "does not fit into 64 bits"},
    {"hledger", "2024-01-31 x\n  a  5\n  b\n", "line 2: the amount 5 has no currency"},
    {"hledger", "2024-01-31 x\n  a  5 EUR\n  b  -5\n", "line 3: the amount -5 has no currency"},
    {"hledger", "2024-01-31 x\n  a  5\n  b\n\nD 1.00 EUR\n",
     "line 2: the amount 5 has no currency"},
    {"beancount", "2024-01-31 * \"x\"\n  a  5\n  b\n", "line 2: the amount 5 has no currency"},
    {"hledger", "2024-01-31 x\r  a  5\r  b\r", "line 2: the amount 5 has no currency"},
    {"hledger",
     "2024-01-31 x\n  a  5\xc2\xa0"
     "EUR\n  b\n",
     "\\u00a0"},
};

TEST(refuses_a_file_with_a_wrong_line_and_books_nothing)
{
    truce_store *store = begin("wrong");
    truce_ledger *ledger = book_ledger(store);
    char to[400];
    bson_error_t error = {0};

    snprintf(to, sizeof to, "%s", uri);
    CHECK_OK(book_open(ledger, "a", INT64_MIN, &error), error);
    CHECK_OK(book_open(ledger, "b", INT64_MIN, &error), error);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct command *c;

        write_file("wrong", cases[i].text);
        c = command_run(TRUCE_CLI, to, NULL, "ledger", "import", "tx", path, "--form",
                        cases[i].form, cases[i].opens ? "--open" : NULL, NULL);
        if (c->code != 2 || !strstr(c->err, cases[i].why) || *c->out)
            test_fail(__FILE__, __LINE__, "case %zu: %d, %s%s", i, c->code, c->err, c->out);
    }
    CHECK_INT(book_count(store, "{'kind': {'$ne': 'open'}}"), ==, 0);
    CHECK_INT(book_count(store, "{}"), ==, 2);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

TEST(an_import_creates_a_store_unless_it_is_refused)
{
    char store[420];
    const struct command *c;

    snprintf(directory, sizeof directory, "%s", test_directory());
    snprintf(store, sizeof store, "file:%s/fresh.truce", directory);
    write_file("new", "2024-01-31 rent\n    a  1.00 EUR\n    b\n");
    c = command_run(TRUCE_CLI, store, NULL, "ledger", "import", "tx", path, "--form", "hledger",
                    NULL);
    CHECK_INT(c->code, ==, 2);
    CHECK(access(store + 5, F_OK) != 0);
    c = command_run(TRUCE_CLI, store, NULL, "ledger", "import", "tx", path, "--form", "hledger",
                    "--open", NULL);
    CHECK_INT(c->code, ==, 0);
    c = command_run(TRUCE_CLI, store, NULL, "ledger", "import", "tx", path, "--form", "csv",
                    "--rules", "nosuch.json", NULL);
    CHECK_INT(c->code, ==, 2);
}

TEST(reports_and_skips_lines_that_a_rule_forbids)
{
    truce_store *store = begin("rule");
    truce_ledger *ledger = book_ledger(store);
    const struct command *c;
    char to[400];
    bson_error_t error = {0};

    snprintf(to, sizeof to, "%s", uri);
    CHECK_OK(book_open(ledger, "bank", INT64_MIN, &error), error);
    CHECK_OK(book_open(ledger, "a", 0, &error), error);
    write_file("rule.journal", "2024-01-31 x\n  a  5 EUR\n  bank\n\n2024-01-31 y\n  a  -6 EUR\n"
                               "  bank\n\n2024-01-31 z\n  a  -5 EUR\n  bank\n");
    c = command_run(TRUCE_CLI, to, NULL, "ledger", "import", "tx", path, NULL);
    CHECK_INT(c->code, ==, 1);
    CHECK_TEXT("posted 2, existed 0, refused 1\n", c->out);
    CHECK(strstr(c->err, "line 5: insufficient funds in account \"a\": available balance would be "
                         "-1.00 EUR"));
    CHECK_INT(book_balance(ledger, "a").balance, ==, 0);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* ---- killed in its midst -------------------------------------------------------------------- */

#define KILLED_TRANSACTIONS 2996 /* whole rounds of 14 */

/* Some are pending and settled five lines later, some are reversed there. Sets *total to the final
 * balance of `c`. */
static char *many_transactions(int64_t *total)
{
    struct buffer text = {0};
    char line[300];

    *total = 0;
    for (int i = 0; i < KILLED_TRANSACTIONS; i++) {
        bool settles = i % 14 == 6, reverses = i % 14 == 13;

        if (settles || reverses)
            snprintf(line, sizeof line, "{\"id\": %d, \"kind\": \"%s\", \"of\": %d}\n", i,
                     settles ? "settle" : "reverse", i - 5);
        else
            snprintf(line, sizeof line,
                     "{\"id\": %d, \"kind\": \"%s\", \"entries\": [{\"account\": \"a%d\", "
                     "\"amount\": \"-1.25\"}, {\"account\": \"c\", \"amount\": \"1.25\"}]}\n",
                     i, i % 14 == 1 ? "pending" : "transfer", i % 5);
        truce__buffer_append(&text, line, strlen(line));
        *total += reverses ? -125 : i % 14 == 1 ? 0 : 125;
    }
    truce__buffer_append_byte(&text, 0);
    return (char *)text.bytes;
}

/* Later in each round, so that the kills cover all times from the start to the last transaction. */
static void kill_an_import(const char *to, int cycle)
{
    pid_t pid = command_start(TRUCE_CLI, to, "ledger", "import", "tx", path, NULL);
    int how;

    usleep((useconds_t)(15000 + 25000 * cycle));
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &how, 0) == pid);
}

TEST(books_each_transaction_once_if_an_import_is_repeated)
{
    truce_store *store = begin("killed");
    truce_ledger *ledger = book_ledger(store);
    bson_error_t error = {0};
    int64_t total, there = 0;
    char to[400], name[8], *text = many_transactions(&total);
    const struct command *c;

    snprintf(to, sizeof to, "%s", uri);
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "a%d", i);
        CHECK_OK(book_open(ledger, name, INT64_MIN, &error), error);
    }
    CHECK_OK(book_open(ledger, "c", INT64_MIN, &error), error);
    write_file("killed.ndjson", text);
    for (int i = 0; i < (int)test_scale("TRUCE_LEDGER_IMPORT_KILLS", 8); i++) {
        int64_t before = there;

        kill_an_import(to, i % 100);
        there = book_count(store, "{'kind': {'$ne': 'open'}}");
        CHECK_INT(there, >=, before);
        BOOK_CHECK(ledger);
    }
    c = command_run(TRUCE_CLI, to, NULL, "ledger", "import", "tx", path, NULL);
    CHECK_INT(c->code, ==, 0);
    CHECK(strstr(c->out, "refused 0"));
    CHECK_INT(book_count(store, "{'kind': {'$ne': 'open'}}"), ==, KILLED_TRANSACTIONS);
    CHECK_INT(book_balance(ledger, "c").balance, ==, total);
    CHECK_INT(book_balance(ledger, "c").in, ==, 0);
    BOOK_CHECK(ledger);
    bson_free(text);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* ---- files of other programs ----------------------------------------------------------------- */

static void import_text(const char *to, const char *name, const char *text, const char *rules,
                        const char *answer)
{
    const struct command *c;

    write_file(name, text);
    c = command_run(TRUCE_CLI, to, NULL, "ledger", "import", "tx", path, "--open",
                    rules ? "--rules" : NULL, rules, NULL);
    CHECK_TEXT(answer, c->out);
    CHECK_TEXT("", c->err);
}

TEST(journals_and_bank_files_of_others_are_read)
{
    truce_store *store = begin("others");
    truce_ledger *ledger = book_ledger(store);
    char to[400], rules[400];
    bson_error_t error = {0};

    snprintf(to, sizeof to, "%s", uri);
    CHECK_OK(truce_ledger_currency(ledger, "EUR", 2, &error), error);
    import_text(to, "a.journal",
                "; a journal\naccount assets:bank  ; it\n  note: x\nP 2024-01-01 EUR $1\n"
                "comment\n2024 nothing\nend comment\n\n"
                "2024/1/31=2024/2/1 * (17) rent ; paid\n    ; a remark\n    expenses:the rent  "
                "1,500.50 EUR ; it\n    ! assets:bank\n2024-01-31 twice\n  assets:bank  EUR-2\n"
                "  income:job   +2 EUR\n\n2024-01-31 twice\n  assets:bank  EUR-2\n"
                "  income:job   +2 EUR\n",
                NULL, "posted 3, existed 0, refused 0\n");
    CHECK_INT(book_balance(ledger, "expenses:the rent").balance, ==, 150050);
    CHECK_INT(book_balance(ledger, "assets:bank").balance, ==, -150450);
    import_text(to, "b.beancount",
                "option \"title\" \"mine\"\n* a heading\n2024-01-01 open Assets:Bank EUR\n"
                "2024-01-01 open Income:Job\n  kind: \"x\"\n2024-01-31 txn \"Firm\" \"pay\" #t ^l\n"
                "  ref: \"7\"\n  Assets:Bank  5.00 EUR\n    ref: 8\n  Income:Job\n",
                NULL, "posted 1, existed 0, refused 0\n");
    CHECK_INT(book_balance(ledger, "Income:Job").balance, ==, -500);
    CHECK_INT(book_count(store, "{'meta': {'payee': 'Firm', 'description': 'pay'}}"), ==, 1);
    write_file("rules", "{account: 'assets:bank', date: '$Day', dateFormat: '%d.%m.%Y', amount: "
                        "'$Sum', decimal: ',', currency: 'EUR', id: '$Ref', description: '$Text',"
                        "skip: {State: 'open'}, other: [{if: {Text: {$regex: '^RENT'}}, account: "
                        "'expenses:the rent'}], otherwise: 'income:other'}");
    snprintf(rules, sizeof rules, "%s", path);
    import_text(to, "c.csv",
                "Day,Sum,Text,Ref,State\r\n31.01.2024,\"-1.500,50\",RENT 1,r1,\r\n"
                "1.2.2024,+12,\"more,\nmoney\",r2,x\r\n\r\n02.02.2024,5,a,r3,open\r\n",
                rules, "posted 2, existed 0, refused 0\n");
    CHECK_INT(book_balance(ledger, "expenses:the rent").balance, ==, 300100);
    CHECK_INT(book_balance(ledger, "income:other").balance, ==, -1200);
    CHECK_INT(book_count(store, "{'_id': 'r2', 'effective': {'$date': '2024-02-01T00:00:00Z'}}"),
              ==, 1);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

static const struct {
    const char *text, *why; /* NULL: one is posted */
    int64_t balance;        /* of the bank then */
} bank_files[] = {
    {"Day;Sum;No. 1\n31.01.2024;-1.234,50;a\n", NULL, -123450},
    {"\xef\xbb\xbf"
     "Day;Sum;No. 1\n31.01.2024;+ 1.234.567,8;\"b;\nb\"\n",
     NULL, 123333330},
    {"Day;Sum;No. 1\n31.01.2024; -1 234 567,8 ;c\n", NULL, -123450},
    {"Day;Sum;No. 1\n31.01.2024;1'234,50;d\n", NULL, 0},
    {"Day;Sum;No. 1\n31.01.2024;1.50;e\n",
     "line 2: invalid amount \"1.50\": the decimal point is \",\""},
    {"Day;Sum;No. 1\n31.01.2024;1234.567;e\n", "line 2: invalid amount \"1234.567\""},
    {"Day;Sum;No. 1\n31.01.2024;1.2345;e\n", "line 2: invalid amount \"1.2345\""},
    {"Day;Sum;No. 1\n31.01.2024;1.234.56;e\n", "line 2: invalid amount \"1.234.56\""},
    {"Day;Sum;No. 1\n31.01.2024;1,234.567;e\n", "line 2: invalid amount \"1,234.567\""},
    {"Day;Sum;No. 1\n31.01.2024;--5;e\n", "line 2: invalid amount \"--5\""},
    {"Day;Sum;No. 1\n31.01.2024;1,2,3;e\n", "line 2: invalid amount \"1,2,3\""},
    {"Day;Sum;No. 1\n31.01.2024; - ;e\n", "line 2: the cell of the amount is empty"},
    {"Day;Sum;No.\n31.01.2024;1;e\n", "line 1: "},
    {"Day;Sum;Nr\n31.01.2024;1;e\n",
     "`id` names the column \"No. 1\", which the header does not have"},
    {"Day,Sum,No. 1\n31.01.2024,1,e\n", "which the header does not have"},
};

TEST(an_amount_of_a_bank_is_never_another_one)
{
    truce_store *store = begin("bank");
    truce_ledger *ledger = book_ledger(store);
    char to[400], rules[400];
    bson_error_t error = {0};

    snprintf(to, sizeof to, "%s", uri);
    CHECK_OK(book_open(ledger, "bank", INT64_MIN, &error), error);
    CHECK_OK(book_open(ledger, "other", INT64_MIN, &error), error);
    write_file("rules", "{account: 'bank', date: '$Day', dateFormat: '%d.%m.%Y', amount: '$Sum', "
                        "decimal: ',', separator: ';', id: '$No. 1', otherwise: 'other'}");
    snprintf(rules, sizeof rules, "%s", path);
    for (size_t i = 0; i < sizeof bank_files / sizeof *bank_files; i++) {
        const struct command *c;

        write_file("bank.csv", bank_files[i].text);
        c = command_run(TRUCE_CLI, to, NULL, "ledger", "import", "tx", path, "--rules", rules,
                        NULL);
        if (bank_files[i].why
                ? c->code != 2 || !strstr(c->err, bank_files[i].why)
                : c->code != 0 || book_balance(ledger, "bank").balance != bank_files[i].balance)
            test_fail(__FILE__, __LINE__, "case %zu: %d, %s%s", i, c->code, c->err, c->out);
    }
    write_file("rules",
               "{account: 'bank', date: '$Day', amount: '$Sum', otherwise: 'other', other: "
               "[{if: {Txt: 'x'}, account: 'other'}]}");
    snprintf(rules, sizeof rules, "%s", path);
    write_file("bank.csv", "Day,Sum,Text\n2024-01-31,1,x\n");
    {
        const struct command *c = command_run(TRUCE_CLI, to, NULL, "ledger", "import", "tx", path,
                                              "--rules", rules, NULL);

        CHECK_INT(c->code, ==, 2);
        CHECK(strstr(c->err, "`other` names the column \"Txt\""));
    }
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

TEST(imports_accounts_whose_flags_are_false_as_open)
{
    truce_store *store = begin("flags");
    truce_ledger *ledger = book_ledger(store);
    char to[400];
    bson_error_t error = {0};

    snprintf(to, sizeof to, "%s", uri);
    CHECK_OK(truce_ledger_currency(ledger, "EUR", 2, &error), error);
    import_text(
        to, "a.ndjson",
        "{\"open\": \"a\", \"currency\": \"EUR\", \"closed\": false, \"debitOnly\": false}\n"
        "{\"open\": \"b\", \"currency\": \"EUR\", \"creditOnly\": true}\n"
        "{\"id\": 1, \"entries\": [{\"account\": \"a\", \"amount\": \"-5\"}, {\"account\": "
        "\"b\", \"amount\": \"5\"}]}\n",
        NULL, "posted 1, existed 0, refused 0\n");
    import_text(to, "d.journal", "D 1.00 EUR\n2024-01-31 x\n  a  -1\n  c  1\n", NULL,
                "posted 1, existed 0, refused 0\n");
    CHECK_INT(book_balance(ledger, "a").balance, ==, -600);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* ---- any bytes ------------------------------------------------------------------------------ */

static truce_status count_record(void *arg, int64_t line, const bson_t *record, bson_error_t *error)
{
    (void)error;
    CHECK(line > 0);
    CHECK(bson_validate(record, BSON_VALIDATE_NONE, NULL));
    ++*(int *)arg;
    return TRUCE_OK;
}

TEST(reads_or_refuses_a_file_of_any_bytes)
{
    truce_store *store = begin("bytes");
    struct random random;
    char from[400];
    int records = 0;

    snprintf(from, sizeof from, "%s", uri);
    fill(store);
    truce__random_seed(&random, test_seed());
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        char *text = export_as(from, forms[f]);
        size_t size = strlen(text);

        for (int64_t i = 0; i < test_scale("TRUCE_LEDGER_BYTES", 300); i++) {
            char *copy = bson_strdup(text);
            struct book_source source = {
                .form = (enum book_form)f, .text = copy, .function = count_record, .arg = &records};
            bson_error_t error = {0};

            for (int j = 0; j < 3; j++) {
                size_t at = truce__random_below(&random, size);
                static const char bytes[] = " \t\n\";:{}()@=-+.,0129aZ$\\\x80";

                copy[at] = bytes[truce__random_below(&random, sizeof bytes - 1)];
            }
            if (i % 4 == 0)
                copy[truce__random_below(&random, size)] = '\0';
            if (cli_book_read(&source, &error))
                CHECK(error.message[0] && source.line > 0);
            bson_free(copy);
        }
        bson_free(text);
    }
    CHECK(records > 0);
    truce_store_close(store);
}

/* ---- files of banks -------------------------------------------------------------------------- */

/* A bank's file may end without a line end. A later file of the same bank has the same line with
 * one. */
TEST(a_line_without_an_id_is_booked_once_with_any_line_end)
{
    static const struct {
        const char *text, *answer;
    } files[] = {
        {"Day,Sum\n2024-01-01,1.00", "posted 1, existed 0, refused 0\n"},
        {"Day,Sum\n2024-01-01,1.00\n2024-01-02,2.00\n", "posted 1, existed 1, refused 0\n"},
        {"Day,Sum\r\n2024-01-01,1.00\r\n2024-01-02,2.00\r\n", "posted 0, existed 2, refused 0\n"},
        {"Day,Sum\r2024-01-01,1.00\r2024-01-02,2.00\r", "posted 0, existed 2, refused 0\n"},
        {"Day,Sum\n2024-01-01,1.00\n2024-01-01,1.00", "posted 1, existed 1, refused 0\n"},
    };
    truce_store *store = begin("ends");
    truce_ledger *ledger = book_ledger(store);
    char to[400], rules[400];
    bson_error_t error = {0};

    snprintf(to, sizeof to, "%s", uri);
    CHECK_OK(truce_ledger_currency(ledger, "EUR", 2, &error), error);
    write_file("rules", "{account: 'bank', date: '$Day', amount: '$Sum', currency: 'EUR', "
                        "otherwise: 'other'}");
    snprintf(rules, sizeof rules, "%s", path);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        import_text(to, "bank.csv", files[i].text, rules, files[i].answer);
    CHECK_INT(book_balance(ledger, "bank").balance, ==, 400);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

#define RULES "account: 'bank', currency: 'EUR', id: '$Ref', otherwise: 'other', decimal: ',', "
#define ONE   RULES "date: '$Day', amount: '$Sum', "
#define TWO   RULES "date: '$Day', amountIn: '$Credit', amountOut: '$Debit', "

static const struct {
    const char *rules, *text, *day, *why; /* NULL: it is posted, on that day */
    int64_t value;
} banks[] = {
    /* dates */
    {ONE "dateFormat: '%d.%m.%y'", "Day;Sum;Ref\n23.04.26;-1,50;r\n", "2026-04-23", NULL, -150},
    {ONE "dateFormat: '%d.%m.%y'", "Day;Sum;Ref\n01.01.69;1;r\n", "1969-01-01", NULL, 100},
    {ONE "dateFormat: '%e.%-m.%Y'", "Day;Sum;Ref\n 3.4.2026;1;r\n", "2026-04-03", NULL, 100},
    {ONE "dateFormat: '%-d/%-m/%y'", "Day;Sum;Ref\n3/4/26;1;r\n", "2026-04-03", NULL, 100},
    {ONE "dateFormat: '%d %b %Y'", "Day;Sum;Ref\n03 Apr 2026;1;r\n", "2026-04-03", NULL, 100},
    {ONE "dateFormat: '%B %e, %Y'", "Day;Sum;Ref\nApril 3, 2026;1;r\n", "2026-04-03", NULL, 100},
    {ONE "dateFormat: '%Y%m%d'", "Day;Sum;Ref\n20260403;1;r\n", "2026-04-03", NULL, 100},
    {ONE "dateFormat: '%d.%m.%Y %H:%M'", "Day;Sum;Ref\n03.04.2026 00:00;1;r\n", "2026-04-03", NULL,
     100},
    {ONE "dateFormat: '%d.%m.%y'", "Day;Sum;Ref\n31.02.26;1;r\n", NULL,
     "the day 2026-02-31 does not exist", 0},
    {ONE "dateFormat: '%d.%m.%y'", "Day;Sum;Ref\n03.04.2026;1;r\n", NULL,
     "\"03.04.2026\" is not a date of the form \"%d.%m.%y\"", 0},
    {ONE "dateFormat: '%d.%m.%Y'", "Day;Sum;Ref\n03.04.26;1;r\n", NULL,
     "\"03.04.26\" is not a date of the form \"%d.%m.%Y\"", 0},
    {ONE "dateFormat: '%d.%m.'", "Day;Sum;Ref\n03.04.;1;r\n", NULL, "has no year", 0},
    {ONE "dateFormat: '%d.%q.%y'", "Day;Sum;Ref\n03.04.26;1;r\n", NULL, "not %q", 0},
    /* separators, line ends, cells */
    {ONE "dateFormat: '%d.%m.%y'", "Day\tSum\tRef\n03.04.26\t-1,50\tr\n", "2026-04-03", NULL, -150},
    {ONE "dateFormat: '%d.%m.%y'", "Day|Sum|Ref\r03.04.26|-1,50|r\r", "2026-04-03", NULL, -150},
    {ONE "dateFormat: '%d.%m.%y'", "Day;Sum;Ref\r\n03.04.26;-1,50;r\r\n", "2026-04-03", NULL, -150},
    {ONE "dateFormat: '%d.%m.%y', separator: 'tab'", "Day\tSum\tRef\n03.04.26\t-1,50\tr",
     "2026-04-03", NULL, -150},
    {ONE "dateFormat: '%d.%m.%y'",
     " Day ; Sum; Ref\n 03.04.26 ;\xc2\xa0-1\xc2\xa0"
     "234,50 ; r \n",
     "2026-04-03", NULL, -123450},
    {ONE "dateFormat: '%d.%m.%y'", "Day;Sum;Ref\n03.04.26;1,50-;r\n", "2026-04-03", NULL, -150},
    {ONE "dateFormat: '%d.%m.%y'", "Day;Sum;Ref\n03.04.26;(1,50);r\n", "2026-04-03", NULL, -150},
    {ONE "dateFormat: '%d.%m.%y'", "Day;Sum;Ref\n03.04.26;1,50 EUR;r\n", NULL, "invalid amount", 0},
    {ONE "dateFormat: '%d.%m.%y'", "Day;Sum;Ref\n03.04.26;123456789012345678901234567890;r\n", NULL,
     "does not fit into 64 bits", 0},
    /* two columns */
    {TWO "dateFormat: '%d.%m.%y'", "Day;Debit;Credit;Ref\n03.04.26;1,50;;r\n", "2026-04-03", NULL,
     -150},
    {TWO "dateFormat: '%d.%m.%y'", "Day;Debit;Credit;Ref\n03.04.26;-1,50;;r\n", "2026-04-03", NULL,
     -150},
    {TWO "dateFormat: '%d.%m.%y'", "Day;Debit;Credit;Ref\n03.04.26;1,50-;;r\n", "2026-04-03", NULL,
     -150},
    {TWO "dateFormat: '%d.%m.%y'", "Day;Debit;Credit;Ref\n03.04.26;(1,50);;r\n", "2026-04-03", NULL,
     -150},
    {TWO "dateFormat: '%d.%m.%y'", "Day;Debit;Credit;Ref\n03.04.26;+1,50;;r\n", "2026-04-03", NULL,
     -150},
    {TWO "dateFormat: '%d.%m.%y'", "Day;Debit;Credit;Ref\n03.04.26;;1,50-;r\n", "2026-04-03", NULL,
     -150},
    {TWO "dateFormat: '%d.%m.%y'", "Day;Debit;Credit;Ref\n03.04.26;0,00;1,50;r\n", "2026-04-03",
     NULL, 150},
    {TWO "dateFormat: '%d.%m.%y'", "Day;Debit;Credit;Ref\n03.04.26;1;2;r\n", NULL,
     "both columns have an amount", 0},
    {TWO "dateFormat: '%d.%m.%y'", "Day;Debit;Credit;Ref\n03.04.26;;;r\n", NULL,
     "the amount is missing", 0},
    {RULES "date: '$Day', amountIn: '$Credit'", "Day;Credit;Ref\n03.04.26;1;r\n", NULL,
     "give one column", 0},
    /* lines around */
    {ONE "dateFormat: '%d.%m.%y', headerLines: 3, footerLines: 1",
     "Bank of X\nAccount;1\n\nDay;Sum;Ref\n03.04.26;1,50;r\nTotal;1,50\n", "2026-04-03", NULL, 150},
    {ONE "dateFormat: '%d.%m.%y', headerLines: 1, footerLines: 2",
     "Bank\rDay;Sum;Ref\r03.04.26;1,50;r\r\rTotal;1,50", "2026-04-03", NULL, 150},
    {ONE "dateFormat: '%d.%m.%y', footerLines: 1",
     "Day;Sum;Ref\r\n03.04.26;1,50;r\r\nTotal;1,50\r\n\r\n\r\n", "2026-04-03", NULL, 150},
    {ONE "headerLines: 9", "Day;Sum;Ref\n", NULL, "`headerLines`", 0},
    /* names of columns */
    {RULES "date: '$B.-Tag', dateFormat: '%d.%m.%y', amount: '$Betr. in EUR', "
           "skip: {'Kto.-Nr.': '2'}",
     "B.-Tag;Betr. in EUR;Kto.-Nr.;Ref\n03.04.26;1,50;1;r\n03.04.26;9;2;s\n", "2026-04-03", NULL,
     150},
    {RULES "date: '$Day 2', dateFormat: '%d.%m.%y', amount: '$Sum', "
           "other: [{if: {$or: [{'Day.': 'x'}, {'Day 3': {$regex: '^y.z'}}]}, account: 'third'}]",
     "Day;Day;Day;Day.;Sum;Ref\n01.01.26;03.04.26;y.z;;1,50;r\n", "2026-04-03", NULL, 150},
    {ONE "dateFormat: '%d.%m.%y', skip: {$or: [{Day: 'x'}, {$and: [{Stat: 'open'}]}]}",
     "Day;Sum;State;Ref\n03.04.26;1,50;open;r\n", NULL, "`skip` names the column \"Stat\"", 0},
    {ONE "dateFormat: '%d.%m.%y', skip: {$expr: {$eq: ['$State', 'open']}}",
     "Day;Sum;State;Ref\n03.04.26;1,50;;r\n03.04.26;1;open;s\n", "2026-04-03", NULL, 150},
    {ONE "dateFormat: '%d.%m.%y'", ";Day;;Sum;Ref;\n-;03.04.26;-;1,50;r;\n", "2026-04-03", NULL,
     150},
    {ONE "dateFormat: '%d.%m.%y'", "Day;Sum;Ref\n03.04.26;1,50;r;;\n", "2026-04-03", NULL, 150},
    {ONE "dateFormat: '%d.%m.%y'", "Day;Sum;Ref\n03.04.26;1,50;r;more\n", NULL, "4 cells", 0},
    {RULES "date: '$Day', dateFormat: '%d.%m.%y', amount: '$$ in'",
     "Day;$ in;Ref\n03.04.26;1,50;r\n", "2026-04-03", NULL, 150},
    {RULES "date: '$Day', amount: '$'", "Day;;Ref\n03.04.26;1,50;r\n", NULL,
     "`amount` names the column \"\"", 0},
    {RULES "date: '$Day', amount: '$Sum 2'", "Day;Sum;Ref\n03.04.26;1,50;r\n", NULL,
     "the column \"Sum 2\"", 0},
    /* rules that mean something else than they say */
    {RULES "date: '$Day', amount: 'Sum'", "Day;Sum;Ref\n03.04.26;1,50;r\n", NULL,
     "`amount` must name a column, for example \"$Sum\"", 0},
    {"account: 'bank', currency: 'EUR', otherwise: 'other', date: '$Day', amount: '$Sum', id: 'Ref'",
     "Day;Sum;Ref\n2026-04-03;1.50;r\n", NULL, "`id` must name a column, for example \"$Ref\"", 0},
    {"account: 'bank', currency: 'EUR', otherwise: 'other', date: '$Day', amount: '$Sum', "
     "decimal: ', '",
     "Day;Sum;Ref\n2026-04-03;1.50;r\n", NULL, "`decimal` must be \".\" or \",\", not \", \"", 0},
    {ONE "other: [{if: {Ref: 'r'}, account: 'third', acount: 'fourth'}]",
     "Day;Sum;Ref\n03.04.26;1,50;r\n", NULL, "`acount` is not a field of a rule of `other`", 0},
};

TEST(files_of_banks_are_read_as_their_rules_say)
{
    for (size_t i = 0; i < sizeof banks / sizeof *banks; i++) {
        truce_store *store = begin("banks");
        truce_ledger *ledger = book_ledger(store);
        const struct command *c;
        char to[400], rules[400], text[600];
        bson_error_t error = {0};

        snprintf(to, sizeof to, "%s", uri);
        CHECK_OK(truce_ledger_currency(ledger, "EUR", 2, &error), error);
        snprintf(text, sizeof text, "{%s}", banks[i].rules);
        write_file("bank.rules", text);
        snprintf(rules, sizeof rules, "%s", path);
        write_file("bank.csv", banks[i].text);
        c = command_run(TRUCE_CLI, to, NULL, "ledger", "import", "tx", path, "--open", "--rules",
                        rules, NULL);
        snprintf(text, sizeof text, "{'_id': 'r', 'effective': {'$date': '%sT00:00:00Z'}}",
                 banks[i].day ? banks[i].day : "2000-01-01");
        if (c->code != (banks[i].day ? 0 : 2) || (banks[i].why && !strstr(c->err, banks[i].why)))
            test_fail(__FILE__, __LINE__, "case %zu: %d, %s%s", i, c->code, c->err, c->out);
        else if (banks[i].day && (book_count(store, text) != 1 ||
                                  book_balance(ledger, "bank").balance != banks[i].value))
            test_fail(__FILE__, __LINE__, "case %zu: another day or amount: %lld", i,
                      (long long)book_balance(ledger, "bank").balance);
        truce_ledger_free(ledger);
        truce_store_close(store);
    }
}
