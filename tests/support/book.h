#ifndef TRUCE_TESTS_SUPPORT_BOOK_H
#define TRUCE_TESTS_SUPPORT_BOOK_H

/* Helpers of the tests of the ledger: ids, accounts, transfers as one line, and the rules of a
 * book. */
#include <stdlib.h>

#include "tests/support/bank.h"

/* Returns whether the numbers of transactions are documents. The suites run with both layouts; the
 * environment variable TRUCE_TEST_LEDGER_SLOTS chooses this one. */
static inline bool book_has_slots(void)
{
    return getenv("TRUCE_TEST_LEDGER_SLOTS") != NULL;
}

static inline truce_ledger *book_ledger(truce_store *store)
{
    return truce_ledger_new(store,
                            &(truce_ledger_options){.collection = "tx",
                                                    .slots = book_has_slots() ? "tx_numbers" : NULL,
                                                    .deadline_ms = 60000});
}

/* Opens an account in EUR with the minimum balance `min`. INT64_MIN means no minimum. */
static inline truce_status book_open(truce_ledger *ledger, const char *account, int64_t min,
                                     bson_error_t *error)
{
    truce_ledger_account rules = {.account = account,
                                  .currency = "EUR",
                                  .has_min = min != INT64_MIN,
                                  .min = min == INT64_MIN ? 0 : min};
    truce_status status = truce_ledger_currency(ledger, "EUR", 2, error);

    return status ? status : truce_ledger_open(ledger, NULL, &rules, error);
}

/* Moves `amount` from one account to the other. */
static inline truce_status book_post(truce_ledger *ledger, truce_commit *commit, const char *id,
                                     truce_ledger_kind kind, const char *from, const char *to,
                                     int64_t amount, truce_ledger_result *result,
                                     bson_error_t *error)
{
    bson_value_t name = text_id(id);
    truce_ledger_entry entries[] = {{from, -amount, NULL}, {to, amount, NULL}};
    truce_ledger_transaction transaction = {
        .id = &name, .kind = kind, .entries = entries, .count = 2};

    return truce_ledger_post(ledger, commit, &transaction, result, error);
}

static inline truce_status book_transfer(truce_ledger *ledger, const char *id, const char *from,
                                         const char *to, int64_t amount, bson_error_t *error)
{
    return book_post(ledger, NULL, id, TRUCE_LEDGER_TRANSFER, from, to, amount, NULL, error);
}

/* Settles, voids, or reverses `of` as a whole. */
static inline truce_status book_resolve(truce_ledger *ledger, truce_commit *commit, const char *id,
                                        truce_ledger_kind kind, const char *of, bson_error_t *error)
{
    bson_value_t name = text_id(id), other = text_id(of);
    truce_ledger_transaction transaction = {.id = &name, .kind = kind, .of = &other};

    return truce_ledger_post(ledger, commit, &transaction, NULL, error);
}

static inline truce_ledger_balance book_balance(truce_ledger *ledger, const char *account)
{
    truce_ledger_balance balance = {0};
    bson_error_t error = {0};

    CHECK_OK(truce_ledger_balance_of(ledger, account, NULL, &balance, &error), error);
    return balance;
}

static inline void book_report(const bson_t *finding, void *arg)
{
    char *text = bson_as_relaxed_extended_json(finding, NULL);

    (void)arg;
    fprintf(stderr, "    %s\n", text);
    bson_free(text);
}

static inline bool book_add(const truce_ledger_account *account,
                            const truce_ledger_balance *balance, void *arg)
{
    (void)account;
    *(int64_t *)arg += balance->balance;
    return true;
}

/* Returns the sum of the balances of all accounts. */
static inline int64_t book_sum(truce_ledger *ledger)
{
    int64_t sum = 0;
    bson_error_t error = {0};

    CHECK_OK(truce_ledger_balances(ledger, NULL, book_add, &sum, &error), error);
    return sum;
}

/* A seal in memory. */
struct book_seal {
    bson_t **parts;
    /* The number of parts, and the index of the part that book_next_part returns next. */
    uint32_t count, next;
};

static inline bool book_keep_part(const bson_t *part, void *arg)
{
    struct book_seal *seal = arg;

    seal->parts = bson_realloc(seal->parts, (size_t)(seal->count + 1) * sizeof *seal->parts);
    seal->parts[seal->count++] = bson_copy(part);
    return true;
}

static inline void book_take_seal(truce_ledger *ledger, struct book_seal *seal)
{
    bson_error_t error = {0};

    *seal = (struct book_seal){0};
    CHECK_OK(truce_ledger_seal(ledger, book_keep_part, seal, &error), error);
}

static inline truce_status book_next_part(const bson_t **part, void *arg, bson_error_t *error)
{
    struct book_seal *seal = arg;

    (void)error;
    *part = seal->next < seal->count ? seal->parts[seal->next++] : NULL;
    return TRUCE_OK;
}

static inline truce_status book_verify_seal(truce_ledger *ledger, const char *account,
                                            struct book_seal *seal,
                                            truce_ledger_finding_function *function, void *arg,
                                            truce_ledger_report *report, bson_error_t *error)
{
    truce_ledger_seal_source source = {.next = book_next_part, .arg = seal};

    if (!seal)
        return truce_ledger_verify(ledger, account, NULL, function, arg, report, error);
    seal->next = 0;
    return truce_ledger_verify(ledger, account, &source, function, arg, report, error);
}

static inline void book_release_seal(struct book_seal *seal)
{
    for (uint32_t i = 0; i < seal->count; i++)
        bson_destroy(seal->parts[i]);
    bson_free(seal->parts);
    *seal = (struct book_seal){0};
}

/* Checks that the proof finds nothing, and that money is conserved. */
static inline void book_check(truce_ledger *ledger, int line)
{
    truce_ledger_report report = {0};
    bson_error_t error = {0};
    truce_status status =
        truce_ledger_verify(ledger, NULL, NULL, book_report, NULL, &report, &error);
    int64_t sum = book_sum(ledger);

    if (status || report.findings || sum)
        test_fail(__FILE__, line, "%s %s: %lld findings, sum %lld", truce_status_name(status),
                  status ? error.message : "", (long long)report.findings, (long long)sum);
}
#define BOOK_CHECK(ledger) book_check(ledger, __LINE__)

static inline int64_t book_count(truce_store *store, const char *filter_json)
{
    bson_t *filter = test_bson(filter_json);
    int64_t count = -1;
    bson_error_t error = {0};

    CHECK_OK(truce_count(store, "tx", filter, NULL, &count, &error), error);
    bson_destroy(filter);
    return count;
}

#endif
