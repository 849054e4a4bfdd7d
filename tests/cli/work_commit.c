/* truce commit apply and truce work --commit: jobs and ledger transactions together with changes of
 * documents. */
#include <stdlib.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300];

#define RUN(...) command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL)

static void answers(int line, const struct command *c, int code, const char *out, const char *err)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    if (out)
        test_check_text(out, c->out, __FILE__, line);
    if (err ? !strstr(c->err, err) : *c->err != '\0')
        test_fail(__FILE__, line, "standard error is \"%s\", not \"%s\"", c->err, err ? err : "");
}

#define ANSWERS(code, out, err, ...)   answers(__LINE__, RUN(__VA_ARGS__), code, out, err)
#define APPLY(code, out, err, changes) ANSWERS(code, out, err, "commit", "apply", changes)

static void fresh(void)
{
    snprintf(store, sizeof store, "%s/shop.truce", test_directory());
    ANSWERS(0, NULL, NULL, "ledger", "currency", "book", "EUR", "2");
    ANSWERS(0, NULL, NULL, "ledger", "open", "book", "bank", "--currency", "EUR");
    ANSWERS(0, NULL, NULL, "ledger", "open", "book", "ada", "--currency", "EUR", "--min", "0");
}

static void check_all(const char *balance, const char *jobs, const char *orders)
{
    ANSWERS(0, balance, NULL, "ledger", "balance", "book", "ada");
    ANSWERS(0, jobs, NULL, "count", "truce_queue");
    /* Without an order, the collection does not exist. */
    ANSWERS(0, orders, *orders == '0' ? "no collection" : NULL, "count", "orders");
}

#define PAID                                                                                       \
    "[{post: 'book', id: 'p1', with: {bank: '-12.50', ada: 1250}, meta: {order: 1}},"              \
    " {enqueue: 'mail', with: {order: 1}, delay_ms: 1000, priority: 2, unique: 'm1', lane: 'l'},"  \
    " {insert: 'orders', with: {_id: 1}}]"

TEST(commits_money_a_job_and_a_document_together)
{
    fresh();
    APPLY(0, "committed\n", NULL, PAID);
    check_all("12.50 EUR\n", "1\n", "1\n");
    ANSWERS(
        0, "1\n", NULL, "count", "truce_queue",
        "{queue: 'mail', payload: {order: 1}, priority: 2, 'lane.name': 'l', state: 'delayed'}");
    ANSWERS(0, "1\n", NULL, "count", "book", "{_id: 'p1', 'meta.order': 1}");
}

TEST(refuses_the_rest_after_an_earlier_post)
{
    fresh();
    APPLY(0, "committed\n", NULL, PAID);
    APPLY(1, "", "change 1: the transaction was posted before",
          "[{post: 'book', id: 'p1', with: {bank: '-12.50', ada: 1250}, meta: {order: 1}},"
          " {enqueue: 'mail', with: {}}, {insert: 'orders', with: {_id: 2}}]");
    check_all("12.50 EUR\n", "1\n", "1\n");
}

TEST(refuses_the_rest_if_an_account_forbids_one)
{
    fresh();
    APPLY(2, "",
          "change 3: insufficient funds in account \"ada\": available balance would be -0.01 EUR",
          "[{enqueue: 'mail', with: {}}, {insert: 'orders', with: {_id: 2}},"
          " {post: 'book', id: 'p2', with: {bank: 1, ada: -1}}]");
    check_all("0.00 EUR\n", "0\n", "0\n");
}

TEST(applies_a_commit_once_under_its_key)
{
    fresh();
    for (int i = 0; i < 2; i++)
        ANSWERS(0, i ? "committed earlier\n" : "committed\n", NULL, "commit", "apply", "--key", "k",
                "--key-time", "1700000000000",
                "[{enqueue: 'mail', with: {}}, {post: 'book', id: 'p', with: {bank: -1, ada: 1}}]");
    check_all("0.01 EUR\n", "1\n", "0\n");
}

TEST(adds_no_second_job_under_a_unique_key)
{
    fresh();
    for (int i = 0; i < 2; i++)
        APPLY(0, "committed\n", NULL, "[{enqueue: 'mail', with: {}, unique: 'once'}]");
    check_all("0.00 EUR\n", "1\n", "0\n");
}

TEST(commits_the_changes_that_a_program_prints)
{
    fresh();
    ANSWERS(0, NULL, NULL, "queue", "add", "orders", "{n: 1}");
    ANSWERS(
        0, NULL, NULL, "work", "--queue", "orders", "--drain", "--commit", "--exec", "echo",
        "[{\"enqueue\": \"mail\", \"with\": {\"to\": \"ada\"}}, {\"post\": \"book\", \"id\": 1, "
        "\"with\": {\"bank\": -100, \"ada\": 100}}]");
    check_all("1.00 EUR\n", "2\n", "0\n");
    ANSWERS(0, "1\n", NULL, "count", "truce_queue", "{queue: 'mail', state: 'ready'}");
}

TEST(names_errors_and_changes_nothing)
{
    static const struct {
        int code;
        const char *changes, *error;
    } wrong[] = {
        {2, "[{enqueue: 'mail'}]", "change 1: enqueue of \"mail\" needs a payload (\"with\")"},
        {2, "[{enqueue: 'mail', id: 1, with: {}}]",
         "change 1: enqueue of \"mail\" must not have an \"id\""},
        {2, "[{enqueue: 'mail', with: {}, meta: {}}]", "\"meta\" is only for \"post\""},
        {2, "[{enqueue: 'mail', with: {}, delay_ms: '1'}]", "\"delay_ms\" must be a whole number"},
        {2, "[{enqueue: 'mail', with: {}, delay_ms: 1.5}]", "\"delay_ms\" must be a whole number"},
        {2, "[{enqueue: 'mail', with: {}, unique: 7}]", "\"unique\" must be a string"},
        {2, "[{enqueue: 'mail', with: {}, lane: 7}]", "\"lane\" must be a string"},
        {2, "[{enqueue: 'mail', with: {}, if: {}}]", "must not have \"if\""},
        {2, "[{enqueue: 7, with: {}}]", "\"enqueue\" must name a queue, not int"},
        {2, "[{post: 'book', with: {}}]", "change 1: post of \"book\" needs an \"id\""},
        {2, "[{post: 'book', id: 1}]",
         "change 1: post of \"book\" needs {ACCOUNT: AMOUNT} (\"with\")"},
        {2, "[{post: 'book', id: 1, with: {}, lane: 'l'}]", "\"lane\" is only for \"enqueue\""},
        {2, "[{post: 'book', id: 1, with: {}, meta: 1}]", "\"meta\" must be a document"},
        {2, "[{insert: 'orders', with: {}, priority: 1}]", "\"priority\" is only for \"enqueue\""},
        {2, "[{enqueue: 'mail', with: {}, delay_ms: -1}]", "change 1: `delay_ms` is -1"},
        {2, "[{enqueue: 'mail', with: {}, priority: 1001}]", "change 1: the priority 1001"},
        {2, "[{enqueue: 'mail', with: {}, priority: 4294967296}]", "is not between -1000 and 1000"},
        {2, "[{enqueue: 'mail', with: {}, unique: ''}]", "change 1: invalid unique key"},
        {2, "[{enqueue: '', with: {}}]", "change 1: "},
        {2, "[{post: 'book', id: 1, with: {ada: 1}}]", "does not balance"},
        {2, "[{post: 'book', id: 1, with: {ada: 0.5, bank: -0.5}}]",
         "whole number of the smallest"},
        {2, "[{post: 'book', id: 1, with: {ada: '0.001', bank: -1}}]", "change 1: "},
        {2, "[{post: 'book', id: 1, with: {ada: 'much', bank: -1}}]", "change 1: "},
        {1, "[{post: 'book', id: 1, with: {eve: 1, bank: -1}}]",
         "change 1: account \"eve\" is not open"},
        {1, "[{post: 'book', id: 1, with: {eve: '0.01', bank: -1}}]", "change 1: "},
    };

    fresh();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int before = test_failures();

        APPLY(wrong[i].code, "", wrong[i].error, wrong[i].changes);
        if (test_failures() > before)
            fprintf(stderr, "    (%s)\n", wrong[i].changes);
    }
    check_all("0.00 EUR\n", "0\n", "0\n");
}
