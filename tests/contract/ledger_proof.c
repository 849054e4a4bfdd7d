/* Ledgers: proofs find every change of a stored book. */
#include "store/reserved_names.h"
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
    struct book_seal seal;
    char id[20];

    (void)setting;
    for (int i = 0; i < 6; i++) {
        snprintf(id, sizeof id, "t%d", i);
        CHECK_OK(book_transfer(ledger, id, "people:a", "people:b", 1, &error), error);
    }
    book_take_seal(ledger, &seal);
    CHECK_OK(book_verify_seal(ledger, NULL, &seal, book_report, NULL, &report, &error), error);
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
    CHECK_OK(book_verify_seal(ledger, NULL, &seal, book_report, NULL, &report, &error), error);
    CHECK_INT(report.findings, ==, 0);
    book_release_seal(&seal);
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

/* An entry from another book with the same beginning: its own proof is valid, the proof of the
 * entries after it is not. */
TEST(detects_an_entry_replaced_together_with_its_hash)
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

TEST(a_rewritten_book_differs_from_the_sealed_one)
{
    truce_store *store = NULL, *forged = NULL;
    truce_ledger *ledger, *forgery;
    truce_ledger_report report;
    struct first first = {0};
    bson_error_t error = {0};
    struct book_seal seal;
    bson_t *damaged = bson_new();

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &forged, &error), error));
    ledger = begin(store);
    forgery = begin(forged);
    CHECK_OK(book_transfer(ledger, "t", "people:a", "people:b", 10, &error), error);
    CHECK_OK(book_transfer(forgery, "t", "people:a", "people:b", 11, &error), error);
    BOOK_CHECK(forgery);
    book_take_seal(ledger, &seal);
    CHECK_OK(book_verify_seal(forgery, NULL, &seal, keep_first, &first, &report, &error), error);
    CHECK_TEXT("seal", first.rule);
    CHECK_INT(report.findings, >=, 2); /* of the accounts that differ */
    bson_copy_to_excluding_noinit(seal.parts[0], damaged, "time", NULL);
    bson_destroy(seal.parts[0]);
    seal.parts[0] = damaged;
    CHECK_STATUS(TRUCE_INVALID, book_verify_seal(ledger, NULL, &seal, NULL, NULL, &report, &error),
                 error);
    book_release_seal(&seal);
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

/* ---- missing documents ----------------------------------------------------------------------- */

static void note_any(const bson_t *finding, void *arg)
{
    (void)finding;
    ++*(int *)arg;
}

static int findings_of(truce_store *store, struct book_seal *seal)
{
    truce_ledger *ledger = book_ledger(store);
    truce_ledger_report report = {0};
    truce_check_report checked;
    bson_error_t error = {0};
    int verified = 0, found = 0;

    CHECK_OK(book_verify_seal(ledger, NULL, seal, note_any, &verified, &report, &error), error);
    if (!seal) {
        CHECK_OK(truce_check(store, NULL, count_rule, &found, &checked, &error), error);
        if (!found != !verified)
            test_fail(__FILE__, __LINE__, "%d findings of verify, %d of check", verified, found);
    }
    truce_ledger_free(ledger);
    return verified;
}

/* Makes a book with each kind of document; the last transactions are of other accounts than
 * those before. */
static truce_ledger *begin_full(truce_store *store)
{
    truce_ledger *ledger = begin(store);
    truce_ledger_account rules = {.account = "people:b", .has_min = true, .min = -5};
    bson_value_t id = text_id("pending");
    truce_ledger_entry entries[] = {{"people:a", -10, NULL}, {"people:b", 10, NULL}};
    bson_t *meta = BCON_NEW("order", BCON_INT32(1));
    truce_ledger_transaction pending = {.id = &id,
                                        .kind = TRUCE_LEDGER_PENDING,
                                        .entries = entries,
                                        .count = 2,
                                        .expires_ms = INT64_C(4102444800000),
                                        .effective_ms = INT64_C(1700000000000),
                                        .meta = meta};
    bson_error_t error = {0};

    CHECK_OK(book_transfer(ledger, "t1", "people:a", "people:b", 1, &error), error);
    CHECK_OK(truce_ledger_rules(ledger, NULL, &rules, &error), error);
    CHECK_OK(truce_ledger_post(ledger, NULL, &pending, NULL, &error), error);
    CHECK_OK(book_post(ledger, NULL, "p2", TRUCE_LEDGER_PENDING, "people:a", "people:b", 1, NULL,
                       &error),
             error);
    CHECK_OK(book_resolve(ledger, NULL, "settled", TRUCE_LEDGER_SETTLE, "p2", &error), error);
    CHECK_OK(book_resolve(ledger, NULL, "reversed", TRUCE_LEDGER_REVERSE, "t1", &error), error);
    CHECK_OK(book_transfer(ledger, "last", "people:a", "people:b", 2, &error), error);
    bson_destroy(meta);
    return ledger;
}

/* Returns each field of a document, and of its changes, as paths. */
static void each_path(const bson_t *document, const char *prefix, char paths[64][60], int *count)
{
    bson_iter_t iter, inner;

    (void)!bson_iter_init(&iter, document);
    while (bson_iter_next(&iter)) {
        snprintf(paths[(*count)++], 60, "%s%.30s", prefix, bson_iter_key(&iter));
        if (strcmp(bson_iter_key(&iter), "changes") != 0 || !bson_iter_recurse(&iter, &inner))
            continue;
        while (bson_iter_next(&inner)) {
            bson_t change;
            uint32_t length;
            const uint8_t *data;
            char below[40];

            bson_iter_document(&inner, &length, &data);
            (void)!bson_init_static(&change, data, length);
            snprintf(below, sizeof below, "changes.%.10s.", bson_iter_key(&inner));
            each_path(&change, below, paths, count);
        }
    }
}

static void remove_field(truce_store *store, const char *collection, const bson_t *document,
                         const char *path)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, inner;
    bson_error_t error = {0};
    bson_iter_t iter;
    char *text;

    (void)!bson_iter_init_find(&iter, document, "_id");
    BSON_APPEND_VALUE(&filter, "_id", bson_iter_value(&iter));
    bson_append_document_begin(&update, "$unset", -1, &inner);
    BSON_APPEND_INT32(&inner, path, 1);
    bson_append_document_end(&update, &inner);
    CHECK_OK(truce_update(store, collection, &filter, &update, NULL, NULL, &error), error);
    if (findings_of(store, NULL) < 1) {
        text = bson_as_relaxed_extended_json(document, NULL);
        test_fail(__FILE__, __LINE__, "no finding without %s of %s", path, text);
        bson_free(text);
    }
    CHECK_OK(truce_update(store, collection, &filter, document, NULL, NULL, &error), error);
    bson_destroy(&update);
    bson_destroy(&filter);
}

static void all_of(truce_store *store, const char *collection, bson_t *documents[40], int *count)
{
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    bson_error_t error = {0};

    *count = 0;
    CHECK_OK(truce_find(store, collection, NULL, NULL, &cursor, &error), error);
    while (!truce_cursor_next(cursor, &found, &error) && found && *count < 40)
        documents[(*count)++] = bson_copy(found);
    truce_cursor_close(cursor);
}

static void remove_document(truce_store *store, const char *collection, const bson_t *document,
                            struct book_seal *seal)
{
    bson_t filter = BSON_INITIALIZER;
    bson_error_t error = {0};
    bson_iter_t iter;
    char *text;

    (void)!bson_iter_init_find(&iter, document, "_id");
    BSON_APPEND_VALUE(&filter, "_id", bson_iter_value(&iter));
    CHECK_OK(truce_remove(store, collection, &filter, NULL, NULL, &error), error);
    if (findings_of(store, seal) < 1) {
        text = bson_as_relaxed_extended_json(document, NULL);
        test_fail(__FILE__, __LINE__, "no finding without %s", text);
        bson_free(text);
    }
    CHECK_OK(truce_insert(store, collection, document, NULL, &error), error);
    bson_destroy(&filter);
}

static bool is_last(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "_id") && BSON_ITER_HOLDS_UTF8(&iter) &&
           !strcmp(bson_iter_utf8(&iter, NULL), "last");
}

/* Changes one field of each document after the other; of the settings, those that the book
 * needs. */
TEST(each_document_and_each_field_that_is_missing_is_a_finding)
{
    truce_store *store = NULL;
    truce_ledger *ledger;
    bson_t *documents[40];
    struct book_seal seal;
    bson_error_t error = {0};
    int count;

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    ledger = begin_full(store);
    book_take_seal(ledger, &seal);
    CHECK_INT(findings_of(store, NULL), ==, 0);
    CHECK_INT(findings_of(store, &seal), ==, 0);
    all_of(store, "tx", documents, &count);
    CHECK_INT(count, ==, 3 + 1 + 7);
    for (int i = 0; i < count; i++) {
        char paths[64][60];
        int fields = 0;
        bool last = is_last(documents[i]);

        /* only a seal knows the last transaction of its accounts */
        remove_document(store, "tx", documents[i], last ? &seal : NULL);
        each_path(documents[i], "", paths, &fields);
        for (int n = 0; n < fields; n++) {
            if (strcmp(paths[n], "_id") != 0 && strcmp(paths[n], "_rev") != 0)
                remove_field(store, "tx", documents[i], paths[n]);
        }
        bson_destroy(documents[i]);
    }
    all_of(store, LEDGERS, documents, &count);
    CHECK_INT(count, ==, 1);
    remove_document(store, LEDGERS, documents[0], NULL);
    remove_field(store, LEDGERS, documents[0], "currencies");
    remove_field(store, LEDGERS, documents[0], "currencies.EUR");
    bson_destroy(documents[0]);
    CHECK_INT(findings_of(store, &seal), ==, 0);
    book_release_seal(&seal);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

TEST(each_index_that_is_missing_is_a_finding)
{
    truce_store *store = NULL;
    truce_ledger *ledger;
    bson_error_t error = {0};
    bson_t indexes;
    bson_iter_t iter, name;
    int dropped = 0;

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    ledger = begin_full(store);
    CHECK_OK(truce_index_list(store, "tx", &indexes, &error), error);
    (void)!bson_iter_init(&iter, &indexes);
    while (bson_iter_next(&iter)) {
        if (!bson_iter_recurse(&iter, &name) || !bson_iter_find(&name, "name") ||
            !strcmp(bson_iter_utf8(&name, NULL), "_id_"))
            continue;
        CHECK_OK(truce_index_drop(store, "tx", bson_iter_utf8(&name, NULL), &error), error);
        CHECK_INT(findings_of(store, NULL), ==, ++dropped);
    }
    CHECK_INT(dropped, ==, 5);
    bson_destroy(&indexes);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

/* ---- seals of many accounts ----------------------------------------------------------------- */

static void swap_parts(struct book_seal *seal, uint32_t a, uint32_t b)
{
    bson_t *part = seal->parts[a];

    seal->parts[a] = seal->parts[b];
    seal->parts[b] = part;
}

static void check_refused(truce_ledger *ledger, struct book_seal *seal, const char *words)
{
    truce_ledger_report report;
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_INVALID, book_verify_seal(ledger, NULL, seal, NULL, NULL, &report, &error),
                 error);
    CHECK(strstr(error.message, words) != NULL);
}

/* Parts that are missing, of another seal, or in another order. */
static void mix_parts(truce_ledger *ledger, struct book_seal *seal)
{
    struct book_seal other;
    bson_t *last = seal->parts[seal->count - 1];

    seal->count--;
    check_refused(ledger, seal, "incomplete");
    seal->count = 0;
    check_refused(ledger, seal, "incomplete: part 1 is missing");
    seal->count = 3;
    swap_parts(seal, 0, 1);
    check_refused(ledger, seal, "does not follow");
    swap_parts(seal, 0, 1);
    seal->parts[1] = last;
    seal->count = 2;
    check_refused(ledger, seal, "does not follow");
    book_take_seal(ledger, &other);
    seal->parts[1] = other.parts[1];
    check_refused(ledger, seal, "does not follow");
    book_release_seal(&other);
}

/* 2,005 accounts: three parts. */
TEST(splits_a_seal_of_many_accounts_into_parts)
{
    truce_store *store = NULL;
    truce_ledger *ledger;
    truce_ledger_report report;
    struct book_seal seal;
    bson_error_t error = {0};
    bson_t *second, *filter = test_bson("{'opens': 'many:1100'}");
    char name[20], path[400];

    snprintf(path, sizeof path, "file:%s/seal.truce", test_directory());
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    ledger = begin(store);
    for (int i = 0; i < 2002; i++) {
        snprintf(name, sizeof name, "many:%d", i);
        CHECK_OK(book_open(ledger, name, 0, &error), error);
    }
    book_take_seal(ledger, &seal);
    CHECK_INT(seal.count, ==, 3);
    CHECK_OK(book_verify_seal(ledger, NULL, &seal, book_report, NULL, &report, &error), error);
    CHECK_INT(report.findings, ==, 0);
    CHECK_INT(report.accounts, ==, 2005);
    CHECK_OK(book_verify_seal(ledger, "many:999", &seal, book_report, NULL, &report, &error),
             error);
    CHECK_INT(report.findings, ==, 0);
    CHECK_INT(report.accounts, ==, 1);
    CHECK_OK(truce_remove(store, "tx", filter, NULL, NULL, &error), error);
    for (int one = 0; one < 2; one++) {
        struct first first = {0};

        CHECK_OK(book_verify_seal(ledger, one ? "many:1100" : NULL, &seal, keep_first, &first,
                                  &report, &error),
                 error);
        CHECK_TEXT(book_has_slots() ? "slot" : "seal", first.rule);
        CHECK_INT(first.count, ==, 1);
    }
    second = seal.parts[1];
    mix_parts(ledger, &seal);
    seal.parts[1] = second;
    seal.count = 3;
    bson_destroy(filter);
    book_release_seal(&seal);
    truce_ledger_free(ledger);
    truce_store_close(store);
}
