/*
 * Damaged files: whatever bytes a file has, no call crashes or hangs, and a read of damaged bytes
 * fails with TRUCE_CORRUPT.
 *
 *     pages      bytes of the file changed: checksums find it, so every answer is right
 *     sealed     the same with right checksums, as an attacker would: any answer will do
 *     bodies     bytes of one document, or of an entry of the catalog, in an otherwise valid file
 *     schema     definitions that truce did not write
 *
 * TRUCE_DAMAGED_IMAGES: how many of each (150; thousands under a sanitizer for a long run).
 */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "engine/documents/open_documents.h"
#include "engine/storage/checksum_vfs.h"
#include "engine/storage/wal_vfs.h"
#include "tests/support/damage.h"
#include "tests/support/test.h"
#include "truce/sweep.h"

enum { DOCUMENTS = 60, IMAGES = 150, HANGS_S = 120 };

static char path[400];
static struct image valid;
static struct random generator;

static uint64_t below(uint64_t bound)
{
    return truce__random_below(&generator, bound);
}

/* ---- the valid file -------------------------------------------------------------------------- */

static const char *const indexes[] = {
    "{'key': {'n': 1}, 'name': 'by_n', 'unique': true}",
    "{'key': {'tags': 1, 'n': -1}, 'name': 'by_tags'}",
    "{'key': {'sub.$**': 1}, 'name': 'wild'}",
    "{'key': {'text': 1}, 'name': 'part', 'partialFilterExpression': {'n': {'$gt': 20}}}",
};

static void fill(truce_store *store, const char *name)
{
    truce_write_options relaxed = {.relaxed = true};
    bson_error_t error;
    char json[600];

    for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
        bson_t *index = test_bson(indexes[i]);

        CHECK_OK(truce_index_create(store, name, index, &error), error);
        bson_destroy(index);
    }
    for (int i = 0; i < DOCUMENTS; i++) {
        bson_t *document;
        char long_text[6000];

        snprintf(
            json, sizeof json,
            "{'_id': %d, 'n': %d, 'tags': ['a%d', 'b', [1, 2]], 'sub': {'x': %d.5, 'y': {'z': "
            "null}}, 'text': 'caf\\u00e9 %d', 'd': {'$numberDecimal': '%d.25'}, 'r': "
            "{'$regularExpression': {'pattern': '^a', 'options': 'i'}}, 'b': {'$binary': "
            "{'base64': 'AQIDBA==', 'subType': '00'}}, 'c': {'$code': 'f', '$scope': {'v': 1}}}",
            i, i * 3, i % 7, i, i, i);
        document = test_bson(json);
        memset(long_text, 'l', sizeof long_text - 1);
        long_text[sizeof long_text - 1] = 0;
        if (i % 15 == 0)
            BSON_APPEND_UTF8(document, "long", long_text);
        CHECK_OK(truce_insert(store, name, document, &relaxed, &error), error);
        bson_destroy(document);
    }
}

static bool make(void)
{
    truce_store *store;
    bson_error_t error;

    truce__random_seed(&generator, test_seed());
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return false;
    fill(store, "one");
    fill(store, "two");
    truce_store_close(store);
    return image_read(&valid, path);
}

/* ---- all queries ----------------------------------------------------------------------------- */

/* `exact`: every answer must be right. */
static bool exact;

static bool may_be(truce_status status, const bson_error_t *error)
{
    if (!exact || status == TRUCE_OK || status == TRUCE_NOT_FOUND)
        return true;
    return CHECK_STATUS(TRUCE_CORRUPT, status, *error);
}

static void read_to_the_end(truce_status status, truce_cursor *cursor, int64_t expected,
                            bson_error_t *error)
{
    const bson_t *document;
    int64_t count = 0;

    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        CHECK(bson_validate(document, BSON_VALIDATE_NONE, NULL));
        if (++count > 100 * DOCUMENTS) {
            CHECK(!exact);
            break;
        }
    }
    may_be(status, error);
    if (exact && !status && expected >= 0)
        CHECK_INT(count, ==, expected);
    truce_cursor_close(cursor);
}

static void find(truce_store *store, const char *name, const char *json, const char *hint_json,
                 const char *sort_json, int64_t expected)
{
    bson_t *filter = test_bson(json), *hint = hint_json ? test_bson(hint_json) : NULL;
    bson_t *sort = sort_json ? test_bson(sort_json) : NULL;
    truce_find_options options = {.hint = hint, .sort = sort, .deadline_ms = 20000};
    truce_cursor *cursor = NULL;
    bson_error_t error = {0};
    truce_status status = truce_find(store, name, filter, &options, &cursor, &error);

    read_to_the_end(status, cursor, expected, &error);
    bson_destroy(filter);
    if (hint)
        bson_destroy(hint);
    if (sort)
        bson_destroy(sort);
}

static void report(truce_store *store, const char *name)
{
    bson_t *pipeline = test_bson("{'0': {'$match': {'n': {'$gte': 0}}}, '1': {'$group': {'_id': "
                                 "'$tags', 'n': {'$sum': '$n'}, 'x': {'$max': '$sub.x'}}}}");
    truce_cursor *cursor = NULL;
    bson_error_t error = {0};
    truce_status status = truce_aggregate(store, name, pipeline, NULL, &cursor, &error);

    read_to_the_end(status, cursor, 7, &error);
    bson_destroy(pipeline);
}

static void count_and_values(truce_store *store, const char *name)
{
    bson_t *filter = test_bson("{'n': {'$gte': 30}}"), *all = test_bson("{}"), values;
    bson_error_t error = {0};
    truce_status status;
    int64_t count;

    status = truce_count(store, name, filter, NULL, &count, &error);
    may_be(status, &error);
    if (exact && !status)
        CHECK_INT(count, ==, DOCUMENTS - 10);
    may_be(truce_count(store, name, all, NULL, &count, &error), &error);
    may_be(truce_distinct(store, name, "tags", all, &values, &error), &error);
    bson_destroy(&values);
    may_be(truce_index_list(store, name, &values, &error), &error);
    bson_destroy(&values);
    bson_destroy(filter);
    bson_destroy(all);
}

static void read_all(truce_store *store, const char *name)
{
    find(store, name, "{}", NULL, NULL, DOCUMENTS);
    find(store, name, "{'_id': 7}", NULL, NULL, 1);
    find(store, name, "{'n': {'$gte': 0}}", "{'n': 1}", NULL, DOCUMENTS);
    find(store, name, "{'tags': 'b'}", NULL, "{'n': 1}", DOCUMENTS);
    find(store, name, "{'sub.x': {'$gt': 5}}", NULL, NULL, -1);
    find(store, name, "{'text': {'$regex': 'caf'}}", NULL, "{'text': -1}", DOCUMENTS);
    report(store, name);
    count_and_values(store, name);
}

static void write_some(truce_store *store, const char *name)
{
    bson_t *some = test_bson("{'n': {'$lt': 30}}"), *all = test_bson("{}");
    bson_t *update = test_bson("{'$inc': {'sub.x': 1}, '$push': {'tags': 'new'}}");
    bson_t *document = test_bson("{'_id': 1000, 'n': -5, 'tags': ['x']}");
    truce_write_options many = {.relaxed = true, .multi = true}, relaxed = {.relaxed = true};
    truce_write_result result;
    bson_error_t error = {0};

    may_be(truce_insert(store, name, document, &relaxed, &error), &error);
    may_be(truce_update(store, name, some, update, &many, &result, &error), &error);
    for (int i = 0; i < DOCUMENTS; i += 9) {
        bson_t *one = BCON_NEW("_id", BCON_INT32(i));

        may_be(truce_update(store, name, one, update, &relaxed, &result, &error), &error);
        may_be(truce_remove(store, name, one, &relaxed, &result, &error), &error);
        bson_destroy(one);
    }
    may_be(truce_remove(store, name, all, &many, &result, &error), &error);
    bson_destroy(some);
    bson_destroy(all);
    bson_destroy(update);
    bson_destroy(document);
}

static void check(void)
{
    const truce_store_options options = {.read_only = true};
    truce_check_report reported;
    struct engine *engine;
    truce_store *store;
    bson_error_t error = {0};

    if (!truce__engine_open(path, &options, &engine, &error)) {
        may_be(truce__engine_check(engine, NULL, NULL, &error), &error);
        truce__engine_close(engine);
    }
    if (!truce_store_open(path, &options, &store, &error)) {
        may_be(truce_check(store, NULL, NULL, NULL, &reported, &error), &error);
        truce_store_close(store);
    }
}

static void ask_everything(void)
{
    truce_store *store;
    bson_error_t error = {0};
    truce_status status;

    alarm(HANGS_S);
    check();
    status = truce_store_open(path, NULL, &store, &error);
    may_be(status, &error);
    if (!status) {
        bson_t collections;

        may_be(truce_collection_list(store, NULL, &collections, &error), &error);
        bson_destroy(&collections);
        read_all(store, "one");
        read_all(store, "two");
        write_some(store, "one");
        write_some(store, "two");
        truce_store_close(store);
    }
    alarm(0);
}

/* ---- pages ----------------------------------------------------------------------------------- */

static void damage_pages(bool sealed)
{
    long images = test_scale("TRUCE_DAMAGED_IMAGES", IMAGES);

    for (long i = 0; i < images; i++) {
        struct image image = image_copy(&valid);

        image_harm(&image, &generator, 1 + (int)below(8), sealed);
        if (image_write(&image, path))
            ask_everything();
        image_release(&image);
    }
}

TEST(reports_changed_bytes_as_damage_and_never_returns_them)
{
    REQUIRE(make());
    exact = true;
    damage_pages(false);
    image_release(&valid);
}

TEST(reads_changed_bytes_with_right_checksums_without_a_crash)
{
    REQUIRE(make());
    exact = false;
    damage_pages(true);
    image_release(&valid);
}

TEST(a_file_that_was_cut_is_damage)
{
    long images = test_scale("TRUCE_DAMAGED_IMAGES", IMAGES) / 10;

    REQUIRE(make());
    exact = true;
    for (long i = 0; i < images; i++) {
        struct image image = image_copy(&valid);

        image.size = 1 + below(image.size - 1);
        if (image.size < 100) /* no header: it may be any file, or empty */
            image.size = 100;
        if (image_write(&image, path))
            ask_everything();
        image_release(&image);
    }
    image_release(&valid);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static sqlite3 *open_raw(void)
{
    sqlite3 *db = NULL;

    CHECK(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, truce__kv_wal_vfs()) == SQLITE_OK);
    return db;
}

static void execute(sqlite3 *db, const char *sql)
{
    char *why = NULL;

    if (sqlite3_exec(db, sql, NULL, NULL, &why))
        test_fail(__FILE__, __LINE__, "%s: %s", sql, why);
    sqlite3_free(why);
}

/* Changes bytes of a random row of the table, and writes it back. */
static void damage_row(sqlite3 *db, const char *table)
{
    sqlite3_stmt *get, *put;
    char sql[200];

    snprintf(sql, sizeof sql, "SELECT id, body FROM %s ORDER BY random() LIMIT 1", table);
    CHECK(!sqlite3_prepare_v2(db, sql, -1, &get, NULL) && sqlite3_step(get) == SQLITE_ROW);
    snprintf(sql, sizeof sql, "UPDATE %s SET body=?1 WHERE id=?2", table);
    CHECK(!sqlite3_prepare_v2(db, sql, -1, &put, NULL));
    {
        int size = sqlite3_column_bytes(get, 1);
        uint8_t *body = bson_malloc((size_t)size + 1);
        uint64_t changes = 1 + below(4);

        memcpy(body, sqlite3_column_blob(get, 1), (size_t)size);
        for (uint64_t i = 0; i < changes; i++) {
            uint8_t *at = body + below(size > 300 && below(2) ? 300 : (uint64_t)size);

            *at = harmed(&generator, *at);
        }
        if (!below(10))
            size = (int)below((uint64_t)size);
        sqlite3_bind_blob(put, 1, body, size, SQLITE_TRANSIENT);
        sqlite3_bind_int64(put, 2, sqlite3_column_int64(get, 0));
        bson_free(body);
    }
    sqlite3_finalize(get);
    CHECK(sqlite3_step(put) == SQLITE_DONE);
    sqlite3_finalize(put);
}

TEST(documents_of_any_bytes_crash_nothing)
{
    static const char *const tables[] = {"c0", "c2", "c2", "c2", "c8"};
    long images = test_scale("TRUCE_DAMAGED_IMAGES", IMAGES);

    REQUIRE(make());
    exact = false;
    for (long i = 0; i < images; i++) {
        sqlite3 *db;

        REQUIRE(image_write(&valid, path));
        db = open_raw();
        damage_row(db, tables[below(5)]);
        sqlite3_close(db);
        ask_everything();
    }
    image_release(&valid);
}

/* The entry of a collection with one index more than the maximum. */
static void give_many_indexes(sqlite3 *db, int count)
{
    sqlite3_stmt *get, *put;
    bson_t entry, changed = BSON_INITIALIZER, list;
    bson_iter_t iter, first;
    char key[16];

    CHECK(!sqlite3_prepare_v2(db, "SELECT body FROM c0 WHERE id=2", -1, &get, NULL) &&
          sqlite3_step(get) == SQLITE_ROW);
    CHECK(bson_init_static(&entry, sqlite3_column_blob(get, 0),
                           (size_t)sqlite3_column_bytes(get, 0)));
    bson_copy_to_excluding_noinit(&entry, &changed, "indexes", NULL);
    CHECK(bson_iter_init_find(&iter, &entry, "indexes") && bson_iter_recurse(&iter, &first) &&
          bson_iter_next(&first));
    BSON_APPEND_ARRAY_BEGIN(&changed, "indexes", &list);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%d", i);
        bson_append_iter(&list, key, -1, &first);
    }
    bson_append_array_end(&changed, &list);
    CHECK(!sqlite3_prepare_v2(db, "UPDATE c0 SET body=?1 WHERE id=2", -1, &put, NULL));
    sqlite3_bind_blob(put, 1, bson_get_data(&changed), (int)changed.len, SQLITE_TRANSIENT);
    sqlite3_finalize(get);
    CHECK(sqlite3_step(put) == SQLITE_DONE && sqlite3_changes(db) == 1);
    sqlite3_finalize(put);
    bson_destroy(&changed);
}

static truce_status open_with_indexes(int count)
{
    bson_error_t error = {0};
    truce_store *store;
    truce_status status;
    int64_t number;
    sqlite3 *db;

    CHECK(image_write(&valid, path));
    db = open_raw();
    give_many_indexes(db, count);
    sqlite3_close(db);
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return TRUCE_IO;
    status = truce_count(store, "one", NULL, NULL, &number, &error);
    truce_store_close(store);
    return status;
}

TEST(an_entry_of_too_many_indexes_is_damage)
{
    REQUIRE(make());
    CHECK_INT(open_with_indexes(TRUCE_INDEXES_MAX), ==, TRUCE_OK);
    CHECK_INT(open_with_indexes(TRUCE_INDEXES_MAX + 1), ==, TRUCE_CORRUPT);
    CHECK_INT(open_with_indexes(10 * TRUCE_INDEXES_MAX), ==, TRUCE_CORRUPT);
    image_release(&valid);
}

TEST(entries_and_definitions_that_truce_did_not_write_crash_nothing)
{
    static const char *const harms[] = {
        "UPDATE c2 SET body=NULL WHERE 0; UPDATE c2 SET body='text' WHERE id=5",
        "UPDATE c2 SET body=x''",
        "UPDATE c2 SET body=12 WHERE id<9",
        "UPDATE c2 SET id=id-30",
        "UPDATE c2 SET id=-id",
        "UPDATE c2 SET id=9223372036854775807 WHERE id=60",
        "INSERT OR IGNORE INTO x3 SELECT key, doc+1 FROM x3",
        "UPDATE x3 SET doc=0 WHERE doc=8",
        "UPDATE x3 SET doc='text' WHERE doc=8",
        "UPDATE x4 SET key='text' WHERE doc=8",
        "UPDATE OR IGNORE x5 SET key=x'' WHERE doc=8",
        "UPDATE OR IGNORE x5 SET key=x'ff'",
        "DELETE FROM x3",
        "DELETE FROM c2",
        "DELETE FROM c0 WHERE id=1",
        "DELETE FROM c0",
        "UPDATE c0 SET id=70 WHERE id=2",
        "INSERT INTO c0 SELECT id+50, body FROM c0 WHERE id>1",
        "DROP TABLE x3",
        "DROP TABLE c2",
        "DROP TABLE c0",
        ("DROP TABLE c2; CREATE VIEW c2(id, body) AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
         "SELECT i+1 FROM n) SELECT i, x'0500000000' FROM n"),
        "CREATE TRIGGER t AFTER INSERT ON c2 BEGIN DELETE FROM c0; END",
        "CREATE TABLE x900(a)",
        "CREATE INDEX i ON c2(body)",
        "DROP TABLE x3; CREATE TABLE x3(key, doc)",
    };

    REQUIRE(make());
    exact = false;
    for (size_t i = 0; i < sizeof harms / sizeof *harms; i++) {
        sqlite3 *db;

        REQUIRE(image_write(&valid, path));
        db = open_raw();
        execute(db, harms[i]);
        sqlite3_close(db);
        ask_everything();
    }
    image_release(&valid);
}
