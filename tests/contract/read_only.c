/* A store that is opened for reading, after a commit of the journal died at any of its writes. */
#include "base/assert.h"
#include "tests/support/book.h"
#include "truce/sweep.h"
#include "truce/sys/decorate.h"

#define WRITES 20 /* more than the commit has */

static char unchecked[400];

static void note(const bson_t *finding, void *arg)
{
    bson_iter_t rule, text;

    (void)arg;
    if (bson_iter_init_find(&rule, finding, "rule") &&
        !strcmp(bson_iter_utf8(&rule, NULL), "unchecked") &&
        bson_iter_init_find(&text, finding, "text"))
        snprintf(unchecked, sizeof unchecked, "%s", bson_iter_utf8(&text, NULL));
}

/* A posting and an update, of which all writes after the given one fail. */
static void post_until(const char *path, uint64_t last)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE}, fault = {.kind = TRUCE_FAULT_FAIL,
                                                                    .status = TRUCE_INVALID,
                                                                    .at = last + 1,
                                                                    .from_then_on = true,
                                                                    .writes_only = true};
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 60000};
    truce_store *inner, *store;
    truce_ledger *ledger;
    truce_commit *commit = NULL;
    bson_error_t error = {0};
    truce_status status;

    truce_assert(!truce_store_open(path, NULL, &inner, &error));
    store = truce_fault_wrap(inner, &none);
    ledger = book_ledger(store);
    truce_assert(!book_open(ledger, "a", INT64_MIN, &error));
    truce_assert(!book_open(ledger, "b", INT64_MIN, &error));
    insert_json(store, "things", "{'_id': 'total', 'n': 0}");
    truce_assert(!truce_commit_begin(store, &options, &commit, &error));
    status = book_post(ledger, commit, "t1", TRUCE_LEDGER_TRANSFER, "a", "b", 1, NULL, &error);
    if (!status)
        status = add_update(commit, "things", "total", NULL, "{'$inc': {'n': 1}}", &error);
    truce_fault_arm(store, &fault);
    if (!status)
        status = truce_commit_apply(commit, &error);
    truce_commit_free(commit);
    truce_ledger_free(ledger);
    truce_store_close(store);
    CHECK(!status || last < WRITES - 1);
}

TEST(reads_and_checks_a_ledger_whose_commit_died)
{
    for (uint64_t last = 0; last < WRITES; last++) {
        char *path = bson_strdup_printf("%s/%d.truce", test_directory(), (int)last);
        truce_store_options options = {.read_only = true};
        truce_ledger_balance balance;
        truce_check_report report;
        truce_store *store = NULL;
        truce_ledger *ledger;
        bson_error_t error = {0};

        post_until(path, last);
        unchecked[0] = 0;
        CHECK_OK(truce_store_open(path, &options, &store, &error), error);
        CHECK_OK(truce_check(store, NULL, note, NULL, &report, &error), error);
        CHECK_TEXT("", unchecked);
        ledger = book_ledger(store);
        CHECK_OK(truce_ledger_balance_of(ledger, "b", NULL, &balance, &error), error);
        CHECK(balance.balance == 0 || balance.balance == 1);
        truce_ledger_free(ledger);
        truce_store_close(store);
        bson_free(path);
    }
}
