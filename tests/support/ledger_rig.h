#ifndef TRUCE_TESTS_SUPPORT_LEDGER_RIG_H
#define TRUCE_TESTS_SUPPORT_LEDGER_RIG_H

/* The common start of the contract tests of ledgers. */
#include "tests/support/book.h"

#define OPEN(ledger, account, min)                                                                 \
    do {                                                                                           \
        bson_error_t why_ = {0};                                                                   \
        CHECK_OK(book_open(ledger, account, min, &why_), why_);                                    \
    } while (0)
#define ANY INT64_MIN

/* Runs the test on every setting, unless the server under test checks a unique index over two
 * fields of one array differently: numbers must then be documents. */
static inline void everywhere(setting_function *function)
{
    if (book_has_slots() || !server_under_test() || !test_excused("ledger_numbers"))
        on_every_setting(function);
}

/* Opens three accounts: `bank`, which may have any balance, and `people:a` and `people:b`, which
 * cannot be overdrawn. Then moves 1,000 from the bank to `people:a`. */
static inline truce_ledger *begin(truce_store *store)
{
    truce_ledger *ledger = book_ledger(store);
    bson_error_t error = {0};

    OPEN(ledger, "bank", ANY);
    OPEN(ledger, "people:a", 0);
    OPEN(ledger, "people:b", 0);
    CHECK_OK(book_transfer(ledger, "seed", "bank", "people:a", 1000, &error), error);
    return ledger;
}

static inline void check_balance(truce_ledger *ledger, const char *account, int64_t balance,
                                 int64_t available, int line)
{
    truce_ledger_balance there = book_balance(ledger, account);

    if (there.balance != balance || there.available != available)
        test_fail(__FILE__, line, "%s: %lld, available %lld", account, (long long)there.balance,
                  (long long)there.available);
}
#define BALANCE(account, balance, available)                                                       \
    check_balance(ledger, account, balance, available, __LINE__)

static inline bson_t *read_transaction(truce_store *store, const char *id)
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

#endif
