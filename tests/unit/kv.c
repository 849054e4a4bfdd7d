#include "engine/storage/kv.h"
#include "base/budget.h"
#include "base/status.h"
#include "engine/storage/body_fingerprints.h"
#include "engine/storage/wal_vfs.h"

#include <sqlite3.h>
#include <stdio.h>

#include "tests/support/test.h"

static struct kv *writer, *reader;
static char path[400];

static struct bytes text(const char *from)
{
    return (struct bytes){(const uint8_t *)from, strlen(from)};
}

static bool same(struct bytes bytes, const char *expected)
{
    return bytes.size == strlen(expected) &&
           (!bytes.size || !memcmp(bytes.data, expected, bytes.size));
}

static bool open_both(void)
{
    bson_error_t error;
    bool fresh;
    FILE *file;

    snprintf(path, sizeof path, "%s/s.db", test_directory());
    file = fopen(path, "w");
    if (!CHECK(file))
        return false;
    fclose(file);
    return CHECK_OK(truce__kv_open(path, KV_WRITER, 1000, &writer, &error), error) &&
           CHECK_OK(truce__kv_format_check(writer, &fresh, &error), error) && CHECK(fresh) &&
           CHECK_OK(truce__kv_format_create(writer, &error), error) &&
           CHECK_OK(truce__kv_open(path, 0, 1000, &reader, &error), error);
}

static void close_both(void)
{
    truce__kv_close(reader);
    truce__kv_close(writer);
}

static void begin(void)
{
    bson_error_t error;
    uint32_t version;

    CHECK_OK(truce__kv_write_begin(writer, &version, &error), error);
}

static void commit(void)
{
    bson_error_t error;

    CHECK_OK(truce__kv_write_commit(writer, &error), error);
}

static void insert(const char *body)
{
    bson_error_t error;
    int64_t row = 0;

    CHECK_OK(truce__kv_row_insert(writer, 0, &row, text(body), &error), error);
}

static int64_t count(struct kv *kv)
{
    bson_error_t error;
    int64_t rows = -1;

    CHECK_OK(truce__kv_rows_count(kv, 0, &rows, &error), error);
    return rows;
}

TEST(shows_only_earlier_commits_in_a_snapshot)
{
    bson_error_t error;
    uint32_t version;

    REQUIRE(open_both());
    begin();
    insert("one");
    commit();
    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    begin();
    insert("two");
    CHECK_INT(count(reader), ==, 1);
    commit();
    CHECK_INT(count(reader), ==, 1);
    truce__kv_snapshot_end(reader);
    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    CHECK_INT(count(reader), ==, 2);
    truce__kv_snapshot_end(reader);
    close_both();
}

static void look_and_rest(int64_t expected)
{
    bson_error_t error;
    uint32_t version;

    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    CHECK_INT(count(reader), ==, expected);
    CHECK(truce__kv_snapshot_rest(reader));
}

static truce_status restart_log(void)
{
    bson_error_t error;
    uint32_t damaged;
    int pages, moved;

    truce__kv_busy_timeout(writer, 1);
    return truce__kv_checkpoint(writer, true, 0, &pages, &moved, &damaged, &error);
}

/* A transaction that began after the first checkpoint would not block the second one, because all
 * pages were moved. */
TEST(keeps_a_resting_transaction_until_a_commit)
{
    REQUIRE(open_both());
    begin();
    insert("one");
    commit();
    look_and_rest(1);
    CHECK_INT(restart_log(), ==, TRUCE_LOCKED);
    look_and_rest(1);
    CHECK_INT(restart_log(), ==, TRUCE_LOCKED);
    begin();
    insert("two");
    commit();
    look_and_rest(2);
    truce__kv_snapshot_end(reader);
    CHECK_INT(restart_log(), ==, TRUCE_OK);
    look_and_rest(2);
    truce__kv_snapshot_end(reader);
    close_both();
}

TEST(a_connection_that_reads_the_file_alone_does_not_rest)
{
    struct kv *alone;
    bson_error_t error;
    uint32_t version;

    REQUIRE(open_both());
    begin();
    insert("one");
    commit();
    close_both();
    CHECK_OK(truce__kv_open(path, KV_READ_ONLY | KV_IMMUTABLE, 1000, &alone, &error), error);
    CHECK_OK(truce__kv_snapshot_begin(alone, &version, &error), error);
    CHECK_INT(count(alone), ==, 1);
    CHECK(!truce__kv_snapshot_rest(alone));
    truce__kv_close(alone);
}

/* Begins and ends a snapshot. Returns its version. */
static struct kv_snapshot look(struct kv *kv)
{
    struct kv_snapshot moment = {0};
    bson_error_t error;
    uint32_t version;

    if (!CHECK_OK(truce__kv_snapshot_begin(kv, &version, &error), error))
        return moment;
    moment = *truce__kv_snapshot(kv);
    truce__kv_snapshot_end(kv);
    return moment;
}

TEST(compares_snapshots_by_the_commits_between_them)
{
    struct kv_snapshot before, same, after, nothing = {0};
    struct kv *other;
    bson_error_t error;
    uint32_t version;

    REQUIRE(open_both());
    REQUIRE(CHECK_OK(truce__kv_open(path, 0, 1000, &other, &error), error));
    begin();
    insert("one");
    commit();
    before = look(reader);
    same = look(other);
    CHECK(before.known && truce__kv_snapshot_same(&before, &same));
    CHECK(!truce__kv_snapshot_same(&nothing, &nothing));
    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    CHECK(truce__kv_snapshot_last(reader));
    begin();
    insert("two");
    CHECK(truce__kv_snapshot_last(reader)); /* not committed yet */
    commit();
    CHECK(!truce__kv_snapshot_last(reader));
    truce__kv_snapshot_end(reader);
    after = look(other);
    CHECK(after.known && !truce__kv_snapshot_same(&before, &after));
    same = look(reader);
    CHECK(truce__kv_snapshot_same(&same, &after));
    truce__kv_close(other);
    close_both();
}

TEST(a_rollback_leaves_nothing)
{
    REQUIRE(open_both());
    begin();
    insert("one");
    truce__kv_write_rollback(writer);
    begin();
    CHECK_INT(count(writer), ==, 0);
    truce__kv_write_rollback(writer);
    close_both();
}

TEST(a_savepoint_is_rolled_back_alone)
{
    bson_error_t error;

    REQUIRE(open_both());
    begin();
    insert("one");
    CHECK_OK(truce__kv_savepoint_begin(writer, &error), error);
    insert("two");
    CHECK_OK(truce__kv_savepoint_rollback(writer, &error), error);
    CHECK_OK(truce__kv_savepoint_begin(writer, &error), error);
    insert("three");
    CHECK_OK(truce__kv_savepoint_release(writer, &error), error);
    CHECK_INT(count(writer), ==, 2);
    commit();
    close_both();
}

TEST(the_version_changes_with_tables_and_bumps_and_not_with_rows)
{
    uint32_t first, second, third;
    bson_error_t error;

    REQUIRE(open_both());
    CHECK_OK(truce__kv_write_begin(writer, &first, &error), error);
    insert("one");
    commit();
    CHECK_OK(truce__kv_write_begin(writer, &second, &error), error);
    CHECK_INT(first, ==, second);
    CHECK_OK(truce__kv_keys_create(writer, 7, &error), error);
    commit();
    CHECK_OK(truce__kv_write_begin(writer, &third, &error), error);
    CHECK_INT(second, !=, third);
    CHECK_OK(truce__kv_version_bump(writer, &error), error);
    CHECK_OK(truce__kv_version(writer, &second, &error), error);
    CHECK_INT(second, !=, third);
    truce__kv_write_rollback(writer);
    CHECK_OK(truce__kv_snapshot_begin(reader, &first, &error), error);
    CHECK_INT(first, ==, third);
    truce__kv_snapshot_end(reader);
    close_both();
}

static void insert_key(const char *key, int64_t row)
{
    bson_error_t error;

    CHECK_OK(truce__kv_key_insert(writer, 7, text(key), row, &error), error);
}

/* The entries from (key, row) on, as "key:row " each. */
static void check_scan(const char *key, int64_t row, bool descending, const char *expected)
{
    struct kv_cursor cursor = {0};
    bson_error_t error;
    char shown[200] = "";

    CHECK_OK(
        truce__kv_keys_seek(writer, 7, 0, text(key), row, text(""), descending, &cursor, &error),
        error);
    while (!truce__kv_cursor_next(&cursor, &error))
        sprintf(shown + strlen(shown), "%.*s:%d ", (int)cursor.key.size,
                (const char *)cursor.key.data, (int)cursor.row);
    truce__kv_cursor_close(&cursor);
    CHECK_TEXT(expected, shown);
}

TEST(keys_come_in_the_order_of_bytes_and_then_of_rows)
{
    bson_error_t error;
    int64_t row;

    REQUIRE(open_both());
    begin();
    CHECK_OK(truce__kv_keys_create(writer, 7, &error), error);
    insert_key("b", 2);
    insert_key("b", 1);
    insert_key("ab", 3);
    insert_key("a", 9);
    insert_key("\xff", 4);
    insert_key("b", 1);
    check_scan("", 0, false, "a:9 ab:3 b:1 b:2 \xff:4 ");
    check_scan("ab", 0, false, "ab:3 b:1 b:2 \xff:4 ");
    check_scan("b", 1, false, "b:2 \xff:4 ");
    check_scan("b", 2, true, "b:1 ab:3 a:9 ");
    check_scan("b", 0, true, "ab:3 a:9 ");
    CHECK_OK(truce__kv_key_get(writer, 7, text("b"), &row, &error), error);
    CHECK_INT(row, ==, 1);
    CHECK_OK(truce__kv_key_delete(writer, 7, text("b"), 1, &error), error);
    CHECK_OK(truce__kv_key_delete(writer, 7, text("b"), 1, &error), error);
    CHECK_OK(truce__kv_key_find(writer, 7, text("b"), 2, &error), error);
    CHECK_INT(truce__kv_key_find(writer, 7, text("b"), 1, &error), ==, TRUCE_NOT_FOUND);
    CHECK_INT(truce__kv_key_get(writer, 7, text("c"), &row, &error), ==, TRUCE_NOT_FOUND);
    commit();
    close_both();
}

struct taken {
    int64_t rows[10], enough;
    char bodies[10]; /* followed by a zero */
    int count;
};

static bool take_row(void *arg, int64_t row, struct bytes body)
{
    struct taken *taken = arg;

    taken->rows[taken->count] = row;
    taken->bodies[taken->count++] = body.size == 1 ? (char)*body.data : '?';
    return row != taken->enough;
}

static void check_each(int64_t after, int64_t enough, truce_status expected, const char *bodies)
{
    struct taken taken = {.enough = enough};
    bson_error_t error;
    truce_status status = truce__kv_rows_each(reader, 0, after, take_row, &taken, &error);

    CHECK_STATUS(expected, status, error);
    CHECK(!strcmp(bodies, taken.bodies));
    for (int i = 0; i < taken.count; i++)
        CHECK_INT(taken.rows[i], ==, after + 1 + i);
}

TEST(rows_are_taken_in_their_order_until_there_are_enough)
{
    bson_error_t error;
    uint32_t version;

    REQUIRE(open_both());
    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    check_each(0, 0, TRUCE_NOT_FOUND, "");
    truce__kv_snapshot_end(reader);
    begin();
    insert("a");
    insert("b");
    insert("c");
    commit();
    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    check_each(0, 0, TRUCE_NOT_FOUND, "abc");
    check_each(1, 0, TRUCE_NOT_FOUND, "bc");
    check_each(0, 2, TRUCE_OK, "ab");
    check_each(2, 3, TRUCE_OK, "c");
    check_each(3, 0, TRUCE_NOT_FOUND, "");
    truce__kv_snapshot_end(reader);
    close_both();
}

static bool is_no_x(const uint8_t *body, size_t size)
{
    return size == 1 && *body != 'x';
}

static void change(int64_t row, const char *body)
{
    bson_error_t error;

    CHECK_OK(truce__kv_row_update(writer, 0, row, text(body), &error), error);
}

static void check_moment(int64_t after, int64_t enough, truce_status expected, const char *bodies)
{
    bson_error_t error;
    uint32_t version;

    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    check_each(after, enough, expected, bodies);
    truce__kv_snapshot_end(reader);
}

/* A repeated walk is not checked again, and a walk vouches for no other walk. */
TEST(a_walk_vouches_for_the_same_walk_of_the_same_version_alone)
{
    struct taken taken = {.enough = 3};
    struct seen *seen = truce__seen_new();
    bson_error_t error;

    REQUIRE(open_both());
    truce__kv_set_validator(reader, is_no_x, seen);
    truce__kv_set_validator(writer, is_no_x, seen);
    begin();
    insert("a");
    insert("b");
    insert("c");
    insert("x");
    commit();
    check_moment(0, 3, TRUCE_OK, "abc");
    check_moment(0, 3, TRUCE_OK, "abc");
    check_moment(0, 0, TRUCE_CORRUPT, "abc");
    check_moment(1, 0, TRUCE_CORRUPT, "bc");
    check_moment(3, 0, TRUCE_CORRUPT, "");
    begin();
    change(2, "x");
    commit();
    check_moment(0, 3, TRUCE_CORRUPT, "a");
    begin();
    change(2, "b");
    CHECK_OK(truce__kv_rows_each(writer, 0, 0, take_row, &(struct taken){.enough = 3}, &error),
             error);
    change(2, "x");
    CHECK_STATUS(TRUCE_CORRUPT, truce__kv_rows_each(writer, 0, 0, take_row, &taken, &error), error);
    commit();
    close_both();
    truce__seen_free(seen);
}

static int looks;

static bool is_counted(const uint8_t *body, size_t size)
{
    looks++;
    return is_no_x(body, size);
}

/* `looked`: whether the body was checked. */
static void check_row_by(struct kv *kv, int64_t row, truce_status expected, bool looked)
{
    struct bytes body;
    bson_error_t error;

    looks = 0;
    CHECK_STATUS(expected, truce__kv_row_get(kv, 0, row, &body, &error), error);
    CHECK_INT(looks, ==, looked);
}

static void check_row(int64_t row, truce_status expected, bool looked)
{
    check_row_by(writer, row, expected, looked);
}

TEST(skips_checked_bodies_in_their_own_rows_only)
{
    struct seen *seen = truce__seen_new();

    REQUIRE(open_both());
    truce__kv_vouch(writer, 0, 2, text("x")); /* no check yet */
    truce__kv_set_validator(writer, is_counted, seen);
    begin();
    insert("a");
    insert("x");
    insert("b");
    commit();
    begin();
    change(1, "b");
    truce__kv_vouch(writer, 0, 1, text("b"));
    check_row(1, TRUCE_OK, false);
    check_row(3, TRUCE_OK, true);
    check_row(2, TRUCE_CORRUPT, true);
    truce__kv_write_rollback(writer);
    begin();
    check_row(1, TRUCE_OK, true);
    change(1, "x");
    check_row(1, TRUCE_CORRUPT, true);
    truce__kv_write_rollback(writer);
    close_both();
    truce__seen_free(seen);
}

TEST(checks_each_body_once_for_all_connections)
{
    struct seen *seen = truce__seen_new();
    bson_error_t error;
    uint32_t version;

    REQUIRE(open_both());
    truce__kv_set_validator(writer, is_counted, seen);
    truce__kv_set_validator(reader, is_counted, seen);
    begin();
    insert("a");
    insert("x");
    check_row(1, TRUCE_OK, true);
    check_row(2, TRUCE_CORRUPT, true);
    commit();
    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    check_row_by(reader, 1, TRUCE_OK, false);
    check_row_by(reader, 2, TRUCE_CORRUPT, true);
    truce__kv_snapshot_end(reader);
    begin();
    change(1, "x"); /* the row is known with another body */
    check_row(1, TRUCE_CORRUPT, true);
    commit();
    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    check_row_by(reader, 1, TRUCE_CORRUPT, true);
    truce__kv_snapshot_end(reader);
    close_both();
    truce__seen_free(seen);
}

TEST(a_key_leads_to_its_row_in_one_step)
{
    struct bytes body;
    bson_error_t error;
    int64_t row;

    REQUIRE(open_both());
    begin();
    CHECK_OK(truce__kv_keys_create(writer, 7, &error), error);
    insert("one");
    insert("");
    insert_key("k", 2);
    insert_key("j", 1);
    CHECK_OK(truce__kv_key_lookup(writer, 7, 0, text("j"), &row, &body, &error), error);
    CHECK_INT(row, ==, 1);
    CHECK(same(body, "one"));
    CHECK_OK(truce__kv_key_lookup(writer, 7, 0, text("k"), &row, &body, &error), error);
    CHECK(same(body, ""));
    CHECK_OK(truce__kv_row_update(writer, 0, 2, text("two"), &error), error);
    CHECK_OK(truce__kv_row_get(writer, 0, 2, &body, &error), error);
    CHECK(same(body, "two"));
    CHECK_OK(truce__kv_row_delete(writer, 0, 2, &error), error);
    CHECK_INT(truce__kv_row_get(writer, 0, 2, &body, &error), ==, TRUCE_NOT_FOUND);
    commit();
    close_both();
}

TEST(statements_of_many_tables_are_not_kept_for_ever)
{
    bson_error_t error;
    int64_t rows;

    REQUIRE(open_both());
    for (int64_t table = 10; table < 800; table++) {
        begin();
        CHECK_OK(truce__kv_rows_create(writer, table, &error), error);
        CHECK_OK(truce__kv_rows_count(writer, table, &rows, &error), error);
        CHECK_INT(rows, ==, 0);
        if (table % 2)
            CHECK_OK(truce__kv_rows_drop(writer, table, &error), error);
        commit();
    }
    close_both();
}

TEST(refuses_files_with_another_header)
{
    bson_error_t error;
    bool fresh;

    REQUIRE(open_both());
    close_both();
    for (int i = 0; i < 2; i++) {
        sqlite3 *db;

        REQUIRE(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, truce__kv_wal_vfs()) ==
                SQLITE_OK);
        CHECK(!sqlite3_exec(db, i ? "PRAGMA application_id=5" : "PRAGMA user_version=1000", NULL,
                            NULL, NULL));
        sqlite3_close(db);
        CHECK_OK(truce__kv_open(path, 0, 1000, &reader, &error), error);
        CHECK_STATUS(TRUCE_CORRUPT, truce__kv_format_check(reader, &fresh, &error), error);
        CHECK(strstr(error.message,
                     i ? "does not say that it is a truce store" : "file format 1000"));
        truce__kv_close(reader);
    }
}

/* ---- the WAL --------------------------------------------------------------------------------- */

enum { LARGE_ROWS = 12000, LARGE_BYTES = 3900 }; /* more than the writer's page cache holds */

static void fill_body(uint8_t *body, int64_t row, int round)
{
    for (int i = 0; i < LARGE_BYTES; i++)
        body[i] = (uint8_t)(row * 31 + round * 7 + i);
}

static bool has_body(struct kv *kv, int64_t row, int round)
{
    uint8_t expected[LARGE_BYTES];
    struct bytes body = {0};
    bson_error_t error;

    fill_body(expected, row, round);
    return CHECK_OK(truce__kv_row_get(kv, 0, row, &body, &error), error) &&
           CHECK_INT(body.size, ==, LARGE_BYTES) && CHECK(!memcmp(body.data, expected, body.size));
}

static void write_round(int round, int64_t step)
{
    uint8_t body[LARGE_BYTES];
    bson_error_t error;

    for (int64_t row = 1; row <= LARGE_ROWS && !test_failures(); row += step) {
        int64_t made = row;

        fill_body(body, row, round);
        if (round == 0)
            CHECK_OK(
                truce__kv_row_insert(writer, 0, &made, (struct bytes){body, sizeof body}, &error),
                error);
        else
            CHECK_OK(
                truce__kv_row_update(writer, 0, row, (struct bytes){body, sizeof body}, &error),
                error);
    }
}

/* Pages go to the WAL before the commit, are read again from there, and are written again. */
TEST(a_transaction_may_be_larger_than_the_page_cache)
{
    bson_error_t error;
    uint32_t version;

    REQUIRE(open_both());
    begin();
    write_round(0, 1);
    write_round(1, 2);
    CHECK_OK(truce__kv_savepoint_begin(writer, &error), error);
    write_round(2, 3);
    CHECK_OK(truce__kv_savepoint_rollback(writer, &error), error);
    for (int64_t row = 1; row <= LARGE_ROWS && !test_failures(); row += 7)
        has_body(writer, row, row % 2);
    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    CHECK_INT(count(reader), ==, 0);
    truce__kv_snapshot_end(reader);
    commit();
    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    for (int64_t row = 1; row <= LARGE_ROWS && !test_failures(); row++)
        has_body(reader, row, row % 2);
    truce__kv_snapshot_end(reader);
    close_both();
}

/* ---- the time of a call --------------------------------------------------------------------- */

static int ticks;

static int64_t tick(void)
{
    return ++ticks;
}

/* Returns a budget that expires at the third check of the clock. */
static struct budget of_three_looks(void)
{
    struct budget budget;

    truce__budget_init(&budget, 2, NULL);
    budget.clock_ns = tick;
    ticks = 0;
    return budget;
}

/* The pages are in the file, and more than a reader's cache holds. */
static void write_many(void)
{
    enum { ROWS = 2000 };
    uint8_t body[LARGE_BYTES];
    bson_error_t error;
    uint32_t damaged;
    int pages, moved;

    begin();
    CHECK_OK(truce__kv_keys_create(writer, 1, &error), error);
    for (int64_t row = 1; row <= ROWS; row++) {
        char key[16];
        int64_t made = row;

        fill_body(body, row, 0);
        CHECK_OK(truce__kv_row_insert(writer, 0, &made, (struct bytes){body, sizeof body}, &error),
                 error);
        snprintf(key, sizeof key, "%06d", (int)row);
        CHECK_OK(truce__kv_key_insert(writer, 1, text(key), row, &error), error);
    }
    commit();
    CHECK_OK(truce__kv_checkpoint(writer, true, 0, &pages, &moved, &damaged, &error), error);
}

TEST(ends_calls_of_sqlite_with_the_budget)
{
    struct budget budget;
    int64_t number, bytes;
    bson_error_t error;
    uint32_t version;

    REQUIRE(open_both());
    write_many();
    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    budget = of_three_looks();
    truce__kv_bound(reader, &budget);
    CHECK_STATUS(TRUCE_TIMEOUT, truce__kv_rows_count(reader, 0, &number, &error), error);
    CHECK_INT(error.code, ==, CODE_MAX_TIME_MS_EXPIRED);
    CHECK_INT(ticks, ==, 3);
    budget = of_three_looks();
    truce__kv_bound(reader, &budget);
    CHECK_STATUS(TRUCE_TIMEOUT, truce__kv_rows_measure(reader, 0, &number, &bytes, &error), error);
    budget = of_three_looks();
    truce__kv_bound(reader, &budget);
    CHECK_STATUS(TRUCE_TIMEOUT,
                 truce__kv_keys_within(reader, 1, text("0"), text("9"), 0, &number, &error), error);
    CHECK_INT(error.code, ==, CODE_MAX_TIME_MS_EXPIRED);
    truce__kv_bound(reader, NULL);
    CHECK_OK(truce__kv_keys_within(reader, 1, text("0"), text("9"), 0, &number, &error), error);
    CHECK_INT(number, ==, 2000);
    CHECK_INT(count(reader), ==, 2000);
    /* A call that failed may have ended the transaction. */
    CHECK(!truce__kv_snapshot_rest(reader));
    CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
    CHECK_INT(count(reader), ==, 2000);
    CHECK(truce__kv_snapshot_rest(reader));
    truce__kv_snapshot_end(reader);
    close_both();
}

TEST(changes_the_data_version_with_each_commit_alone)
{
    uint64_t versions[8];
    int pages, moved;
    bson_error_t error;
    uint32_t damaged, version;

    REQUIRE(open_both());
    begin();
    insert("a");
    commit();
    (void)truce__kv_commits(writer);
    for (int i = 0; i < 8; i++) {
        versions[i] = truce__kv_data_version(writer);
        CHECK(versions[i] != 0);
        for (int k = 0; k < i; k++)
            CHECK(versions[k] != versions[i]);
        begin();
        insert("b");
        CHECK(truce__kv_data_version(writer) == versions[i]); /* it is not visible yet */
        truce__kv_write_rollback(writer);
        CHECK_OK(truce__kv_snapshot_begin(reader, &version, &error), error);
        truce__kv_snapshot_end(reader);
        CHECK(truce__kv_data_version(writer) == versions[i]);
        CHECK_OK(truce__kv_checkpoint(writer, false, 0, &pages, &moved, &damaged, &error), error);
        CHECK(truce__kv_data_version(writer) == versions[i]);
        begin();
        insert("b");
        commit();
    }
    close_both();
}
