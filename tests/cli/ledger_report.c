/* truce ledger report: sums by period and by metadata, as a table, as CSV, and as a picture with
 * reproducible bytes. */
#include <stdlib.h>

#include "tests/support/book.h"
#include "tests/support/command.h"

static char uri[400];

static void post(truce_ledger *ledger, const char *id, const char *to, int64_t amount, int64_t day,
                 const char *meta_json)
{
    bson_value_t name = text_id(id);
    bson_t *meta = meta_json ? test_bson(meta_json) : NULL;
    truce_ledger_entry entries[] = {{"bank:giro", -amount, NULL}, {to, amount, NULL}};
    truce_ledger_transaction transaction = {.id = &name,
                                            .entries = entries,
                                            .count = 2,
                                            .meta = meta,
                                            .effective_ms = day * INT64_C(86400000)};
    bson_error_t error = {0};

    CHECK_OK(truce_ledger_post(ledger, NULL, &transaction, NULL, &error), error);
    bson_destroy(meta);
}

/* 2024-01-31, 2024-02-29 and 2025-12-31 */
static void begin(void)
{
    truce_store *store = NULL;
    truce_ledger *ledger;
    bson_error_t error = {0};

    snprintf(uri, sizeof uri, "file:%s/report.truce", test_directory());
    CHECK_OK(truce_store_open(uri, &(truce_store_options){.relaxed = true}, &store, &error), error);
    ledger = book_ledger(store);
    CHECK_OK(book_open(ledger, "bank:giro", INT64_MIN, &error), error);
    CHECK_OK(book_open(ledger, "costs:rent", INT64_MIN, &error), error);
    CHECK_OK(book_open(ledger, "costs:<food>", INT64_MIN, &error), error);
    post(ledger, "1", "costs:rent", 50000, 19753, "{'shop': {'town': 'X & Y'}}");
    post(ledger, "2", "costs:<food>", 1050, 19753, NULL);
    post(ledger, "3", "costs:rent", 50000, 19782, "{'shop': {'town': 5}}");
    post(ledger, "4", "costs:<food>", -50, 20453, NULL);
    CHECK_OK(book_post(ledger, NULL, "5", TRUCE_LEDGER_PENDING, "bank:giro", "costs:rent", 7, NULL,
                       &error),
             error);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

static void check(int line, const struct command *c, int code, const char *out, const char *err)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    test_check_text(out, c->out, __FILE__, line);
    if (!strstr(c->err, err))
        test_fail(__FILE__, line, "standard error is \"%s\", not \"%s\"", c->err, err);
}
#define REPORTS(code, out, err, ...)                                                               \
    check(__LINE__,                                                                                \
          command_run(TRUCE_CLI, uri, NULL, "ledger", "report", "tx", __VA_ARGS__, NULL), code,    \
          out, err)

TEST(reports_changes_for_each_period_and_account)
{
    begin();
    REPORTS(0,
            "month    account       change          balance         currency\n"
            "2024-01  costs:<food>           10.50           10.50  EUR\n"
            "2024-01  costs:rent            500.00          500.00  EUR\n"
            "2024-02  costs:rent            500.00         1000.00  EUR\n"
            "2025-12  costs:<food>           -0.50           10.00  EUR\n",
            "", "costs");
    REPORTS(0,
            "year,account,change,balance,currency\n"
            "2024,bank,-1010.50,-1010.50,EUR\n2024,costs,1010.50,1010.50,EUR\n"
            "2025,bank,0.50,-1010.00,EUR\n2025,costs,-0.50,1010.00,EUR\n",
            "", "--by", "year", "--depth", "1", "--form", "csv");
    REPORTS(0,
            "{\"quarter\": \"2024-Q1\", \"account\": \"bank:giro\", \"change\": \"-1010.50\", "
            "\"balance\": \"-1010.50\", \"currency\": \"EUR\"}\n"
            "{\"quarter\": \"2025-Q4\", \"account\": \"bank:giro\", \"change\": \"0.50\", "
            "\"balance\": \"-1010.00\", \"currency\": \"EUR\"}\n",
            "", "bank:giro", "--by", "quarter", "--json");
    REPORTS(0,
            "day,account,change,balance,currency\n2024-01-31,costs:rent,500.00,500.00,EUR\n"
            "2024-02-29,costs:rent,500.00,1000.00,EUR\n",
            "", "costs:rent", "--by", "day", "--form", "csv");
    REPORTS(0,
            "meta.shop.town,account,change,currency\n\"\",costs,10.00,EUR\n5,costs,500.00,EUR\n"
            "X & Y,costs,500.00,EUR\n",
            "", "costs", "--by", "meta.shop.town", "--depth", "1", "--form", "csv");
    REPORTS(1, "", "ledger \"tx\" has no entries in the account \"nothing\"", "nothing");
    REPORTS(2, "", "--by must be day, month, quarter, year, or a field", "--by", "week");
    REPORTS(2, "", "--form must be text, csv, or svg", "--form", "png");
}

TEST(a_picture_has_the_same_bytes_for_the_same_book)
{
    begin();
    REPORTS(0,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"406\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
            "<line x1=\"120\" y1=\"320\" x2=\"760\" y2=\"320\" stroke=\"#ccc\"/>\n"
            "<text x=\"114\" y=\"324\" text-anchor=\"end\">0.00</text>\n"
            "<line x1=\"120\" y1=\"20\" x2=\"760\" y2=\"20\" stroke=\"#ccc\"/>\n"
            "<text x=\"114\" y=\"24\" text-anchor=\"end\">1000.00</text>\n"
            "<text x=\"226\" y=\"338\" text-anchor=\"middle\">2024-01</text>\n"
            "<text x=\"440\" y=\"338\" text-anchor=\"middle\">2024-02</text>\n"
            "<text x=\"653\" y=\"338\" text-anchor=\"middle\">2025-12</text>\n"
            "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"#1f77b4\" points=\"226,316 "
            "440,316 653,317\"/>\n"
            "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"#d62728\" points=\"226,170 "
            "440,20 653,20\"/>\n"
            "<rect x=\"120\" y=\"350\" width=\"12\" height=\"12\" fill=\"#1f77b4\"/>\n"
            "<text x=\"138\" y=\"360\">costs:&#60;food&#62; (EUR)</text>\n"
            "<rect x=\"120\" y=\"368\" width=\"12\" height=\"12\" fill=\"#d62728\"/>\n"
            "<text x=\"138\" y=\"378\">costs:rent (EUR)</text>\n"
            "</svg>\n",
            "", "costs", "--form", "svg");
    REPORTS(1,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"370\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n</svg>\n",
            "", "nothing", "--form", "svg");
    CHECK(strstr(command_run(TRUCE_CLI, uri, NULL, "ledger", "report", "tx", "--form", "svg",
                             "--by", "meta.shop.town", NULL)
                     ->out,
                 ">X &#38; Y</text>"));
}

TEST(reports_an_export_that_cannot_be_written_once)
{
    const struct command *c;

    begin();
    c = command_run(
        "/bin/sh", NULL, NULL, "-c",
        "TRUCE_STORE=$1; export TRUCE_STORE; { $2 ledger export tx --form csv; echo $? >&2; } |"
        " true; $2 ledger export tx --form hledger > /dev/full; echo $? >&2;"
        " $2 ledger export tx /dev/full --form hledger; echo $? >&2",
        "sh", uri, TRUCE_CLI, NULL);
    if (strcmp(c->err, "3\ntruce: cannot write standard output: No space left on device\n3\n"
                       "truce: cannot write the output: No space left on device\n3\n") != 0 &&
        strncmp(c->err, "0\n", 2) != 0) /* it was faster than the one that closes the pipe */
        test_fail(__FILE__, __LINE__, "%s", c->err);
}
