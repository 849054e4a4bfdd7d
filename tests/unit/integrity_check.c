/*
 * The examination of the file by truce check: it reports every fault with its collection, repairs
 * indexes, and does not change intact data.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/documents/open_documents.h"
#include "engine/storage/checksum_vfs.h"
#include "engine/storage/wal_vfs.h"
#include "tests/support/damage.h"
#include "tests/support/test.h"
#include "truce/sweep.h"

static char path[400];
static char reported[2000];

static void note(const bson_t *finding, void *arg)
{
    bson_iter_t rule, name, repaired;

    (void)arg;
    CHECK(bson_iter_init_find(&rule, finding, "rule") &&
          bson_iter_init_find(&name, finding, "ns") &&
          bson_iter_init_find(&repaired, finding, "repaired"));
    snprintf(reported + strlen(reported), sizeof reported - strlen(reported), "%s%s of %s%s",
             reported[0] ? ", " : "", bson_iter_utf8(&rule, NULL), bson_iter_utf8(&name, NULL),
             bson_iter_bool(&repaired) ? " repaired" : "");
}

static const bson_t *only;

static truce_status check(bool repair)
{
    const truce_check_options options = {.repair = repair, .finding = only};
    truce_check_report report;
    truce_store *store;
    bson_error_t error = {0};
    truce_status status = TRUCE_CORRUPT;

    reported[0] = 0;
    if (CHECK_OK(truce_store_open(path, NULL, &store, &error), error)) {
        status = truce_check(store, &options, note, NULL, &report, &error);
        truce_store_close(store);
    }
    return status;
}

static void check_reported(bool repair, const char *expected)
{
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_OK, check(repair), error);
    CHECK_TEXT(expected, reported);
}

static void make(void)
{
    truce_store *store;
    truce_write_options relaxed = {.relaxed = true};
    bson_error_t error;
    bson_t *index = test_bson("{'key': {'n': 1}, 'name': 'by_n', 'unique': true}");
    static const struct image nothing = {(uint8_t *)"", 0};

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    REQUIRE(image_write(&nothing, path));
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    CHECK_OK(truce_index_create(store, "one", index, &error), error);
    CHECK_OK(truce_index_create(store, "two", index, &error), error);
    for (int i = 0; i < 400; i++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(i), "n", BCON_INT32(i), "text",
                                    BCON_UTF8("some text that fills a page soon enough"));

        CHECK_OK(truce_insert(store, i % 2 ? "one" : "two", document, &relaxed, &error), error);
        bson_destroy(document);
    }
    truce_store_close(store);
    bson_destroy(index);
}

static void execute(const char *sql)
{
    sqlite3 *db;
    char *why = NULL;

    REQUIRE(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, truce__kv_wal_vfs()) == SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why))
        test_fail(__FILE__, __LINE__, "%s: %s", sql, why);
    sqlite3_free(why);
    sqlite3_close(db);
}

static int64_t number(const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    int64_t answer;

    CHECK(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, truce__kv_wal_vfs()) == SQLITE_OK);
    CHECK(!sqlite3_prepare_v2(db, sql, -1, &statement, NULL));
    CHECK(sqlite3_step(statement) == SQLITE_ROW);
    answer = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return answer;
}

/* Of "one": its documents are c2, the index of _id is x3, that of n x4. */
static void check_mended(const char *harm)
{
    make();
    execute(harm);
    check_reported(false, "wrong-index of one");
    check_reported(false, "wrong-index of one"); /* looking changes nothing */
    check_reported(true, "wrong-index of one repaired");
    check_reported(false, "");
    CHECK_INT(number("SELECT count(*) FROM x3"), ==, 200);
    CHECK_INT(number("SELECT count(*) FROM x4"), ==, 200);
}

TEST(repairs_the_indexes_of_the_given_collection_only)
{
    static const char *const names[] = {"two", "one"};

    make();
    execute("DELETE FROM x4 WHERE doc=2; DELETE FROM x7 WHERE doc=2");
    check_reported(false, "wrong-index of one, wrong-index of two");
    for (int i = 0; i < 2; i++) {
        bson_t *finding = BCON_NEW("rule", BCON_UTF8("wrong-index"), "ns", BCON_UTF8(names[i]));

        only = finding;
        check_reported(true, i ? "wrong-index of one repaired"
                               : "wrong-index of one, wrong-index of two repaired");
        only = NULL;
        bson_destroy(finding);
    }
    check_reported(false, "");
}

TEST(a_valid_file_has_no_findings)
{
    make();
    check_reported(false, "");
    check_reported(true, "");
}

TEST(an_entry_that_is_missing_is_entered_again)
{
    check_mended("DELETE FROM x3 WHERE doc=2");
    check_mended("DELETE FROM x4 WHERE doc<9");
    check_mended("DELETE FROM x4");
}

TEST(removes_an_entry_without_a_document)
{
    check_mended("INSERT INTO x4 VALUES(x'20ff', 7)");
    check_mended("UPDATE x3 SET doc=100000 WHERE doc=5");
}

TEST(reports_and_keeps_two_documents_with_one_id)
{
    make();
    execute("DELETE FROM x3 WHERE doc=2; DELETE FROM x4 WHERE doc=2;"
            "UPDATE c2 SET body=(SELECT body FROM c2 WHERE id=1) WHERE id=2");
    check_reported(true, "wrong-index of one repaired, wrong-index of one repaired");
    check_reported(false, "repeated-key of one, repeated-key of one");
    CHECK_INT(number("SELECT count(*) FROM c2"), ==, 200);
}

TEST(reports_a_damaged_document_and_keeps_its_index_entries)
{
    make();
    execute("UPDATE c2 SET body=x'1000000002610001' WHERE id=2");
    (void)check(true);
    CHECK(strstr(reported, "damaged-document of one"));
    CHECK(!strstr(reported, "repaired"));
    CHECK(!strstr(reported, "of two"));
    CHECK_INT(number("SELECT count(*) FROM x3"), ==, 200);
}

/* The root of the index's tree cannot be read: it gets another. */
TEST(an_index_whose_pages_are_damaged_gets_another_table)
{
    struct image image;
    int64_t root;
    bson_error_t error = {0};

    make();
    root = number("SELECT rootpage FROM sqlite_schema WHERE name='x4'");
    REQUIRE(image_read(&image, path));
    image.bytes[(size_t)(root - 1) * KV_PAGE_BYTES + 100] ^= 1;
    REQUIRE(image_write(&image, path));
    image_release(&image);
    (void)check(true);
    CHECK_TEXT("damaged-page of , wrong-index of one repaired", reported);
    (void)check(false);
    CHECK_TEXT("damaged-page of ", reported);
    {
        bson_t *filter = test_bson("{'n': {'$gte': 0}}");
        truce_store *store;
        int64_t count = 0;

        CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
        CHECK_OK(truce_count(store, "one", filter, NULL, &count, &error), error);
        CHECK_INT(count, ==, 200);
        truce_store_close(store);
        bson_destroy(filter);
    }
}
