/* The list of accounts of the verification of a ledger: sorted, joined, and larger than its memory. */
#include <stdio.h>

#include "patterns/ledger/ledger.h"

#include "tests/support/test.h"

static struct ledger_list list;

static void add(const char *account, int64_t number)
{
    bson_error_t error;

    CHECK_OK(truce__ledger_list_add(&list, account, number, &error), error);
}

static void sort(void)
{
    bson_error_t error;

    CHECK_OK(truce__ledger_list_sort(&list, &error), error);
}

static void expect(const char *account, int64_t number)
{
    bson_error_t error;

    REQUIRE(list.account);
    CHECK_TEXT(account, list.account);
    CHECK_INT(list.number, ==, number);
    CHECK_OK(truce__ledger_list_next(&list, &error), error);
}

TEST(has_no_account_if_none_was_added)
{
    sort();
    CHECK(!list.account);
    truce__ledger_list_release(&list);
}

TEST(returns_each_account_once_in_the_order_of_names)
{
    add("b", 2);
    add("a:c", 7);
    add("a", 1);
    add("b", 3);
    add("a\xc3\xa4", 4);
    add("b", 1);
    sort();
    expect("a", 1);
    expect("a:c", 7);
    expect("a\xc3\xa4", 4);
    expect("b", 3);
    CHECK(!list.account);
    truce__ledger_list_release(&list);
}

/* Adds the accounts in an order without a pattern, and a hot account between them. The table is full
 * several times, and the rows take more memory than the sorter has. */
TEST(keeps_more_accounts_than_fit_into_its_memory)
{
    enum { ACCOUNTS = 300007 };
    char name[40];

    for (int64_t i = 0; i < ACCOUNTS; i++) {
        snprintf(name, sizeof name, "customers:%08" PRId64, i * 100003 % ACCOUNTS);
        add(name, i * 100003 % ACCOUNTS + 1);
        add("bank", i + 1);
    }
    sort();
    expect("bank", ACCOUNTS);
    for (int64_t i = 0; i < ACCOUNTS; i++) {
        snprintf(name, sizeof name, "customers:%08" PRId64, i);
        expect(name, i + 1);
    }
    CHECK(!list.account);
    truce__ledger_list_release(&list);
}

TEST(releases_accounts_that_were_not_returned)
{
    add("a", 1);
    add("b", 1);
    sort();
    truce__ledger_list_release(&list);
    CHECK(!list.account);
    add("c", 5);
    sort();
    expect("c", 5);
    truce__ledger_list_release(&list);
}
