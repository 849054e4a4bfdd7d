/* Ledgers: who tampers with a book is found out. */
#include "tests/support/ledger_rig.h"

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

static void post_with(truce_ledger *ledger, const char *by)
{
    bson_value_t id = text_id("t");
    bson_t *meta = BCON_NEW("by", BCON_UTF8(by));
    truce_ledger_entry entries[] = {{"people:a", -10, NULL}, {"people:b", 10, NULL}};
    truce_ledger_transaction transaction = {
        .id = &id, .entries = entries, .count = 2, .meta = meta};
    bson_error_t error = {0};

    CHECK_OK(truce_ledger_post(ledger, NULL, &transaction, NULL, &error), error);
    bson_destroy(meta);
}

/* An entry from another book with the same beginning: it proves by itself, and what stands behind it does not. */
TEST(an_entry_that_was_exchanged_with_its_hash_breaks_the_chain_behind_it)
{
    truce_store *store = NULL, *forged = NULL;
    truce_ledger *ledger, *forgery;
    truce_ledger_report report;
    truce_copy_report copied = {0};
    struct first first = {0};
    bson_error_t error = {0};
    bson_t *filter = test_bson("{'_id': 't'}"), entry;

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &forged, &error), error));
    ledger = begin(store);
    REQUIRE(CHECK_OK(truce_copy(store, forged, NULL, &copied, &error), error));
    forgery = book_ledger(forged);
    post_with(forgery, "somebody else");
    post_with(ledger, "me");
    CHECK_OK(book_transfer(ledger, "u", "people:a", "people:b", 1, &error), error);
    CHECK_OK(truce_find_one(forged, "tx", filter, NULL, &entry, &error), error);
    CHECK_OK(truce_update(store, "tx", filter, &entry, NULL, NULL, &error), error);
    CHECK_OK(truce_ledger_verify(ledger, "people:b", NULL, keep_first, &first, &report, &error),
             error);
    CHECK_TEXT("hash", first.rule);
    CHECK_INT(first.number, ==, 3);
    bson_destroy(&entry);
    bson_destroy(filter);
    truce_ledger_free(forgery);
    truce_ledger_free(ledger);
    truce_store_close(forged);
    truce_store_close(store);
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
