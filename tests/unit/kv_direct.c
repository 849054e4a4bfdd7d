/* Rows and keys that are found in the pages directly are those that SQLite finds. */
#include "engine/storage/kv_direct.h"

#include <string.h>

#include "base/random.h"
#include "engine/storage/checksum_vfs.h"
#include "engine/storage/page_cache.h"
#include "tests/support/damage.h"
#include "tests/support/test.h"

enum { ROWS = 300, BODY_MAX = 6000, KEY_MAX = 1500, TABLE = 5, KEYS = 7 };

static char path[400];
static struct kv *writer, *direct, *plain;
static struct page_cache *cache;
static struct random rng;
/* The numbers of the rows, some of them present. */
static int64_t numbers[ROWS];
static bool present[ROWS];

static uint64_t below(uint64_t end)
{
    return truce__random_below(&rng, end);
}

static bool open_all(void)
{
    bson_error_t error;
    uint32_t version;
    bool fresh;

    truce__random_seed(&rng, test_seed());
    snprintf(path, sizeof path, "%s/s.db", test_directory());
    cache = truce__page_cache_new(1 << 20);
    if (!CHECK_OK(truce__kv_open(path, KV_WRITER | KV_CREATE, 1000, &writer, &error), error) ||
        !CHECK_OK(truce__kv_format_check(writer, &fresh, &error), error) ||
        !CHECK_OK(truce__kv_format_create(writer, &error), error) ||
        !CHECK_OK(truce__kv_open(path, 0, 1000, &direct, &error), error) ||
        !CHECK_OK(truce__kv_open(path, 0, 1000, &plain, &error), error))
        return false;
    truce__kv_share(direct, cache);
    truce__kv_busy_timeout(writer, 1);
    CHECK_OK(truce__kv_write_begin(writer, &version, &error), error);
    CHECK_OK(truce__kv_rows_create(writer, TABLE, &error), error);
    CHECK_OK(truce__kv_keys_create(writer, KEYS, &error), error);
    CHECK_OK(truce__kv_write_commit(writer, &error), error);
    for (int i = 0; i < ROWS; i++) {
        /* Some numbers are as large as those of the change feed, and follow each other. */
        numbers[i] = i < ROWS / 2       ? i + 1
                     : i < ROWS * 3 / 4 ? (INT64_C(1) << 60) + i
                                        : (int64_t)(truce__random_next(&rng) >> below(64) >> 1);
        present[i] = false;
    }
    return true;
}

static void close_all(void)
{
    truce__kv_close(direct);
    truce__kv_close(plain);
    truce__kv_close(writer);
    truce__page_cache_free(cache);
}

/* Two rows may have the same number. */
static void change(int i)
{
    uint8_t bytes[BODY_MAX];
    struct bytes body = {bytes, below(8) ? below(400) : below(BODY_MAX)}, old;
    int64_t number = numbers[i] ? numbers[i] : 1;
    bson_error_t error;
    bool there = !truce__kv_row_get(writer, TABLE, number, &old, &error);

    memset(bytes, (int)below(256), body.size);
    if (there && !below(3))
        CHECK_OK(truce__kv_row_delete(writer, TABLE, number, &error), error);
    else if (there)
        CHECK_OK(truce__kv_row_update(writer, TABLE, number, body, &error), error);
    else
        CHECK_OK(truce__kv_row_insert(writer, TABLE, &number, body, &error), error);
}

/* Makes a key. Many begin with the same bytes, and some are continued on other pages. */
static struct bytes any_key(uint8_t bytes[KEY_MAX])
{
    size_t size = !below(40) ? below(KEY_MAX) : !below(4) ? below(900) : below(30);

    memset(bytes, 'a' + (int)below(3), size);
    if (size)
        bytes[size - 1] = (uint8_t)below(3);
    return (struct bytes){bytes, size};
}

static int64_t any_row(void)
{
    return numbers[below(20) + (below(4) ? 0 : ROWS / 2)];
}

static void change_key(void)
{
    uint8_t bytes[KEY_MAX];
    struct bytes key = any_key(bytes);
    int64_t row = any_row();
    bson_error_t error;

    if (below(4))
        CHECK_OK(truce__kv_key_insert(writer, KEYS, key, row, &error), error);
    else
        CHECK_OK(truce__kv_key_delete(writer, KEYS, key, row, &error), error);
}

static void commit(int changes)
{
    bson_error_t error;
    uint32_t version;

    CHECK_OK(truce__kv_write_begin(writer, &version, &error), error);
    for (int i = 0; i < changes; i++)
        change((int)below(ROWS));
    for (int i = 0; i < 2 * changes; i++)
        change_key();
    CHECK_OK(truce__kv_write_commit(writer, &error), error);
}

static void move_pages(void)
{
    uint32_t damaged;
    int pages, moved;
    bson_error_t error;
    truce_status status =
        truce__kv_checkpoint(writer, !below(3), 0, &pages, &moved, &damaged, &error);

    CHECK(!status || status == TRUCE_LOCKED);
}

/* ---- the same results ----------------------------------------------------------------------- */

struct walk {
    int count, most;
    struct {
        int64_t row;
        size_t size;
        uint8_t first;
    } rows[ROWS];
};

static bool take(void *arg, int64_t row, struct bytes body)
{
    struct walk *walk = arg;

    walk->rows[walk->count].row = row;
    walk->rows[walk->count].size = body.size;
    walk->rows[walk->count++].first = body.size ? body.data[body.size - 1] : 0;
    return walk->count < walk->most;
}

static void compare_walks(void)
{
    int64_t after = below(3) ? 0 : numbers[below(ROWS)];
    struct walk a = {.most = 1 + (int)below(ROWS)}, b = {.most = a.most};
    bson_error_t error;

    CHECK_INT(truce__kv_rows_each(direct, TABLE, after, take, &a, &error), ==,
              truce__kv_rows_each(plain, TABLE, after, take, &b, &error));
    CHECK_INT(a.count, ==, b.count);
    for (int i = 0; i < a.count && i < b.count; i++) {
        CHECK_INT(a.rows[i].row, ==, b.rows[i].row);
        CHECK_INT(a.rows[i].size, ==, b.rows[i].size);
        CHECK_INT(a.rows[i].first, ==, b.rows[i].first);
    }
}

/* Returns whether the row was found directly. */
static bool compare_row(int64_t row)
{
    struct bytes a = {0}, b = {0}, c = {0};
    bson_error_t error;
    truce_status expected = truce__kv_row_get(plain, TABLE, row, &b, &error);
    bool found = truce__kv_direct_row(direct, TABLE, row, &c);

    CHECK(!found || (!expected && c.size == b.size && !memcmp(c.data, b.data, c.size)));
    CHECK_INT(truce__kv_row_get(direct, TABLE, row, &a, &error), ==, expected);
    CHECK(expected || (a.size == b.size && !memcmp(a.data, b.data, a.size)));
    return found;
}

/* Returns whether the key was found directly. */
static bool compare_key(void)
{
    uint8_t bytes[KEY_MAX];
    struct bytes key = any_key(bytes);
    int64_t a = 0, b = 0, c = 0;
    bson_error_t error;
    truce_status expected = truce__kv_key_get(plain, KEYS, key, &b, &error);
    bool found = truce__kv_direct_key(direct, KEYS, key, &c);

    CHECK(!found || (!expected && c == b));
    CHECK_INT(truce__kv_key_get(direct, KEYS, key, &a, &error), ==, expected);
    CHECK(expected || a == b);
    return found;
}

/* Returns how many entries were found directly. */
static int compare_cursors(void)
{
    uint8_t bytes[KEY_MAX], end_bytes[KEY_MAX];
    struct bytes key = any_key(bytes), end = any_key(end_bytes);
    struct kv_cursor a = {0}, b = {0};
    int64_t row = below(3) ? any_row() : INT64_MIN;
    bool descending = !below(4);
    truce_status status = TRUCE_OK;
    bson_error_t error;
    int found = 0;

    CHECK_OK(truce__kv_keys_seek(direct, KEYS, TABLE, key, row, end, descending, &a, &error),
             error);
    CHECK_OK(truce__kv_keys_seek(plain, KEYS, TABLE, key, row, end, descending, &b, &error), error);
    for (uint64_t left = 1 + below(500); left && !status; left--) {
        status = truce__kv_cursor_next(&b, &error);
        CHECK_INT(truce__kv_cursor_next(&a, &error), ==, status);
        if (status)
            break;
        CHECK_INT(a.row, ==, b.row);
        CHECK(a.key.size == b.key.size && !memcmp(a.key.data, b.key.data, a.key.size));
        CHECK(a.body.size == b.body.size && !memcmp(a.body.data, b.body.data, a.body.size));
        found += !a.statement;
    }
    truce__kv_cursor_close(&a);
    truce__kv_cursor_close(&b);
    return found;
}

/* Counts the results that were found directly. */
struct found {
    int rows, keys, entries;
};

static void compare(struct found *found)
{
    for (int i = 0; i < 40; i++) {
        found->rows += compare_row(numbers[below(ROWS)]);
        found->keys += compare_key();
    }
    for (int i = 0; i < 10; i++)
        found->entries += compare_cursors();
    compare_walks();
}

static void begin(void)
{
    bson_error_t error;
    uint32_t version;

    CHECK_OK(truce__kv_snapshot_begin(direct, &version, &error), error);
    CHECK_OK(truce__kv_snapshot_begin(plain, &version, &error), error);
}

static void end(void)
{
    if (below(2))
        truce__kv_snapshot_end(direct);
    else
        CHECK(truce__kv_snapshot_rest(direct));
    truce__kv_snapshot_end(plain);
}

/* Commits, checkpoints, and restarts of the log are before the snapshot, and during it. */
TEST(finds_the_rows_of_its_snapshot)
{
    struct found found = {0};

    REQUIRE(open_all());
    for (int turn = 0; turn < 150; turn++) {
        commit(1 + (int)below(20));
        if (!below(4))
            move_pages();
        begin();
        compare(&found);
        if (!below(2))
            move_pages();
        if (!below(2))
            commit(1 + (int)below(20));
        if (!below(4))
            move_pages();
        compare(&found);
        end();
    }
    CHECK_INT(found.rows, >, 1000);
    CHECK_INT(found.keys, >, 1000);
    CHECK_INT(found.entries, >, 10000);
    truce__kv_snapshot_begin(direct, &(uint32_t){0}, NULL);
    truce__kv_snapshot_end(direct);
    close_all();
}

/* The index of the log has several parts. */
TEST(finds_the_pages_of_a_long_log)
{
    struct found found = {0};

    REQUIRE(open_all());
    for (int i = 0; i < 600; i++)
        commit(20);
    for (int turn = 0; turn < 30; turn++) {
        commit(2);
        begin();
        compare(&found);
        end();
    }
    CHECK_INT(found.rows, >, 300);
    begin();
    end();
    truce__kv_snapshot_begin(direct, &(uint32_t){0}, NULL);
    truce__kv_snapshot_end(direct);
    close_all();
}

/* The entries of a walk get larger, whatever the pages contain. So the walk ends. */
static void walk_keys(void)
{
    struct bytes key = {(const uint8_t *)"", 0};
    uint8_t before[KEY_MAX];
    size_t size = 0;
    int64_t row = INT64_MIN, row_before = row;
    bool larger = true;

    if (!truce__kv_direct_walk(direct, KEYS, key, row))
        return;
    while (larger && truce__kv_direct_walk_next(direct, &key, &row) == KV_DIRECT_ENOUGH) {
        int order = memcmp(before, key.data, size < key.size ? size : key.size);

        order = order ? order : (size > key.size) - (size < key.size);
        larger = CHECK(order < 0 || (!order && row_before < row));
        memcpy(before, key.data, key.size);
        size = key.size;
        row_before = row;
    }
    truce__kv_direct_walk_end(direct);
}

/* The content of a page may be anything. The program is also run with the address sanitizer. */
TEST(reads_no_byte_outside_of_a_page)
{
    struct image whole;
    bson_error_t error;

    REQUIRE(open_all());
    commit(ROWS);
    commit(ROWS);
    close_all();
    REQUIRE(image_read(&whole, path));
    for (int turn = 0; turn < 300; turn++) {
        struct image harmed_image = image_copy(&whole);
        struct walk walk = {.most = ROWS};
        uint32_t version;

        image_harm(&harmed_image, &rng, 1 + (int)below(8), true);
        REQUIRE(image_write(&harmed_image, path));
        image_release(&harmed_image);
        cache = truce__page_cache_new(1 << 20);
        if (!truce__kv_open(path, 0, 1000, &direct, &error)) {
            truce__kv_share(direct, cache);
            if (!truce__kv_snapshot_begin(direct, &version, &error)) {
                for (int i = 0; i < ROWS; i++) {
                    struct bytes body;

                    if (truce__kv_direct_row(direct, TABLE, numbers[i], &body))
                        CHECK_INT(truce__kv_row_get(direct, TABLE, numbers[i], &body, &error), ==,
                                  TRUCE_OK);
                }
                (void)truce__kv_rows_each(direct, TABLE, 0, take, &walk, &error);
                walk_keys();
                truce__kv_snapshot_end(direct);
            }
            truce__kv_close(direct);
        }
        truce__page_cache_free(cache);
    }
    image_release(&whole);
}
