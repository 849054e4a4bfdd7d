/* Pages that all reading connections share: each snapshot shows its own data through commits,
 * checkpoints, and logs that begin again, and nothing damaged gets into the cache. */
#include "engine/storage/page_cache.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "engine/storage/checksum_vfs.h"
#include "engine/storage/kv.h"
#include "tests/support/test.h"

enum { LEAF = 0x0d, INNER = 0x05, FRAME = 24 + KV_PAGE_BYTES, LOG_HEADER = 32 };

/* ---- the cache alone ------------------------------------------------------------------------- */

static uint8_t page[KV_PAGE_BYTES];

static struct page_name named(uint64_t salts, uint32_t number, uint32_t moved)
{
    return (struct page_name){salts, number, moved};
}

static const uint8_t *page_of_type(uint8_t type, uint8_t content)
{
    memset(page, content, sizeof page);
    page[0] = type;
    return page;
}

static void put(struct page_cache *cache, struct page_name name, uint8_t content)
{
    truce__page_cache_put(cache, &name, page_of_type(INNER, content));
}

/* Returns the content, or -1. */
static int get(struct page_cache *cache, struct page_name name)
{
    uint8_t found[KV_PAGE_BYTES];

    if (!truce__page_cache_get(cache, &name, found))
        return -1;
    for (size_t i = 2; i < sizeof found; i++)
        CHECK(found[i] == found[1]);
    return found[1];
}

TEST(returns_a_page_by_its_whole_name_alone)
{
    struct page_cache *cache = truce__page_cache_new(1 << 20);

    put(cache, named(1, 7, 3), 11);
    put(cache, named(1, 7, PAGE_IN_LOG), 12);
    CHECK_INT(get(cache, named(1, 7, 3)), ==, 11);
    CHECK_INT(get(cache, named(1, 7, PAGE_IN_LOG)), ==, 12);
    CHECK_INT(get(cache, named(2, 7, 3)), ==, -1);
    CHECK_INT(get(cache, named(1, 8, 3)), ==, -1);
    CHECK_INT(get(cache, named(1, 7, 2)), ==, -1);
    CHECK_INT(get(cache, named(1, 7, 4)), ==, -1);
    CHECK_INT(get(cache, named(2, 7, PAGE_IN_LOG)), ==, -1);
    put(cache, named(1, 7, 4), 13); /* replaces the older version */
    CHECK_INT(get(cache, named(1, 7, 4)), ==, 13);
    CHECK_INT(get(cache, named(1, 7, 3)), ==, -1);
    CHECK_INT(get(cache, named(1, 7, PAGE_IN_LOG)), ==, 12);
    truce__page_cache_free(cache);
    truce__page_cache_free(NULL);
}

TEST(caches_inner_pages_first_and_others_when_read_again)
{
    struct page_cache *cache = truce__page_cache_new(1 << 20);
    struct page_name one = named(1, 7, 3), newer = named(1, 7, 4), other = named(1, 8, 3);

    CHECK(truce__page_cache_wants(cache, &one, page_of_type(INNER, 0)));
    CHECK(truce__page_cache_wants(cache, &one, page_of_type(0x02, 0)));
    CHECK(truce__page_cache_wants(cache, &one, page_of_type('S', 0)));
    CHECK(!truce__page_cache_wants(cache, &one, page_of_type(LEAF, 0)));
    CHECK(!truce__page_cache_wants(cache, &other, page_of_type(LEAF, 0)));
    CHECK(truce__page_cache_wants(cache, &newer, page_of_type(LEAF, 0)));
    truce__page_cache_free(cache);
}

TEST(evicts_unused_pages_before_used_ones)
{
    enum { USED = 100, MANY = 20000 };
    struct page_cache *cache = truce__page_cache_new(1000 * KV_PAGE_BYTES);
    int left = 0, found = 0;

    for (uint32_t i = 1; i <= MANY; i++) {
        put(cache, named(1, i, 0), (uint8_t)i);
        for (uint32_t used = 1; i % 50 == 0 && used <= USED; used++)
            found += get(cache, named(1, used, 0)) == (uint8_t)used;
    }
    for (uint32_t used = 1; used <= USED; used++)
        left += get(cache, named(1, used, 0)) == (uint8_t)used;
    CHECK_INT(left, >, USED * 9 / 10);
    for (uint32_t i = USED + 1; i <= MANY; i++) {
        int content = get(cache, named(1, i, 0));

        CHECK(content == -1 || content == (uint8_t)i);
        left += content >= 0;
    }
    CHECK_INT(left, <=, 1000);
    CHECK(found > 0);
    truce__page_cache_free(cache);
}

static void *use_from_a_thread(void *arg)
{
    struct page_cache *cache = arg;
    uint8_t own[KV_PAGE_BYTES], found[KV_PAGE_BYTES];
    struct random random;

    truce__random_seed(&random, test_seed() + (uintptr_t)&own);
    for (int i = 0; i < 20000; i++) {
        struct page_name name = named(1 + truce__random_below(&random, 2),
                                      1 + (uint32_t)truce__random_below(&random, 300), 0);

        if (truce__page_cache_get(cache, &name, found)) {
            CHECK(found[0] == (uint8_t)(name.number * name.salts));
            CHECK(!memcmp(found, found + 1, sizeof found - 1));
        } else {
            memset(own, (uint8_t)(name.number * name.salts), sizeof own);
            (void)truce__page_cache_wants(cache, &name, own);
            truce__page_cache_put(cache, &name, own);
        }
    }
    return NULL;
}

TEST(threads_get_whole_pages)
{
    struct page_cache *cache = truce__page_cache_new(128 * KV_PAGE_BYTES);
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        REQUIRE(!pthread_create(&threads[i], NULL, use_from_a_thread, cache));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    truce__page_cache_free(cache);
}

TEST(the_end_of_the_log_is_known_only_between_two_changes)
{
    atomic_uint index[2 * KV_INDEX_WORDS + 1];
    struct kv_log_end end;

    for (unsigned i = 0; i < 2 * KV_INDEX_WORDS; i++)
        atomic_init(&index[i], i % KV_INDEX_WORDS + 100);
    atomic_init(&index[2 * KV_INDEX_WORDS], 50);
    CHECK(truce__kv_index_end(index, &end));
    CHECK_INT(end.frames, ==, 104);
    CHECK_INT(end.moved, ==, 50);
    CHECK(end.salts == (UINT64_C(109) << 32 | 108));
    for (unsigned i = 0; i < 2 * KV_INDEX_WORDS; i++) { /* a commit is writing one copy */
        atomic_fetch_add(&index[i], 1);
        CHECK(!truce__kv_index_end(index, &end));
        atomic_fetch_sub(&index[i], 1);
    }
    atomic_store(&index[2 * KV_INDEX_WORDS], 104);
    CHECK(truce__kv_index_end(index, &end));
    atomic_store(&index[2 * KV_INDEX_WORDS], 105); /* of the log before it began again */
    CHECK(!truce__kv_index_end(index, &end));
}

/* ---- connections ----------------------------------------------------------------------------- */

enum { ROWS = 900, BODY = 1000, READERS = 2 };

static char path[400];
static struct kv *writer, *readers[READERS];
static struct page_cache *cache;
/* The current version of each row, and that of the snapshot of each reader. */
static int versions[ROWS + 1], seen[READERS][ROWS + 1];
static bool reading[READERS];

static void write_row(int row, bool insert)
{
    char text[BODY + 1];
    struct bytes body = {(uint8_t *)text, BODY};
    int64_t number = row;
    bson_error_t error;

    memset(text, 'a' + row % 26, sizeof text);
    snprintf(text, 40, "%d %d", row, ++versions[row]);
    CHECK_OK(insert ? truce__kv_row_insert(writer, 0, &number, body, &error)
                    : truce__kv_row_update(writer, 0, number, body, &error),
             error);
}

static bool open_readers(uint64_t bytes)
{
    bson_error_t error;
    uint32_t version;
    bool fresh;

    snprintf(path, sizeof path, "%s/s.db", test_directory());
    memset(versions, 0, sizeof versions);
    memset(reading, 0, sizeof reading);
    cache = truce__page_cache_new(bytes);
    if (!CHECK_OK(truce__kv_open(path, KV_WRITER | KV_CREATE, 1000, &writer, &error), error) ||
        !CHECK_OK(truce__kv_format_check(writer, &fresh, &error), error) ||
        !CHECK_OK(truce__kv_format_create(writer, &error), error) ||
        !CHECK_OK(truce__kv_write_begin(writer, &version, &error), error))
        return false;
    for (int row = 1; row <= ROWS; row++)
        write_row(row, true);
    CHECK_OK(truce__kv_write_commit(writer, &error), error);
    for (int i = 0; i < READERS; i++) {
        if (!CHECK_OK(truce__kv_open(path, 0, 1000, &readers[i], &error), error))
            return false;
        truce__kv_share(readers[i], cache);
    }
    return true;
}

static void close_readers(void)
{
    for (int i = 0; i < READERS; i++)
        truce__kv_close(readers[i]);
    truce__kv_close(writer);
    truce__page_cache_free(cache);
}

static void begin_reading(int i)
{
    bson_error_t error;
    uint32_t version;

    CHECK_OK(truce__kv_snapshot_begin(readers[i], &version, &error), error);
    memcpy(seen[i], versions, sizeof versions);
    reading[i] = true;
}

static void end_reading(int i)
{
    if (reading[i])
        truce__kv_snapshot_end(readers[i]);
    reading[i] = false;
}

static bool read_row(int i, int row)
{
    struct bytes body;
    bson_error_t error;
    char expected[40];

    snprintf(expected, sizeof expected, "%d %d", row, seen[i][row]);
    return CHECK_OK(truce__kv_row_get(readers[i], 0, row, &body, &error), error) &&
           CHECK_TEXT(expected, (const char *)body.data);
}

static void commit_row(int row)
{
    bson_error_t error;
    uint32_t version;

    CHECK_OK(truce__kv_write_begin(writer, &version, &error), error);
    write_row(row, false);
    CHECK_OK(truce__kv_write_commit(writer, &error), error);
}

static void give_up_row(int row)
{
    bson_error_t error;
    uint32_t version;

    CHECK_OK(truce__kv_write_begin(writer, &version, &error), error);
    write_row(row, false);
    versions[row]--;
    truce__kv_write_rollback(writer);
}

static void move_pages(bool restart)
{
    uint32_t damaged;
    int pages, moved;
    bson_error_t error;
    truce_status status =
        truce__kv_checkpoint(writer, restart, 0, &pages, &moved, &damaged, &error);

    CHECK(!status || status == TRUCE_LOCKED);
}

/* All rows are few enough that the same pages are read, moved, and written again all the time. */
static void read_and_write(uint64_t bytes, int turns)
{
    struct random random;

    truce__random_seed(&random, test_seed());
    REQUIRE(open_readers(bytes));
    for (int turn = 0; turn < turns; turn++) {
        int i = (int)truce__random_below(&random, READERS);
        int row = 1 + (int)truce__random_below(&random, ROWS);

        switch (truce__random_below(&random, 12)) {
        case 0:
            end_reading(i);
            begin_reading(i);
            break;
        case 1:
            end_reading(i);
            break;
        case 2:
            commit_row(1 + row % 20);
            break;
        case 3:
            commit_row(row);
            break;
        case 4:
            give_up_row(row);
            break;
        case 5:
            move_pages(turn % 5 == 0);
            break;
        default:
            for (int k = 0; reading[i] && k < 10 && read_row(i, 1 + (row * 7 + k * k) % ROWS); k++)
                ;
        }
    }
    for (int i = 0; i < READERS; i++)
        end_reading(i);
    for (int row = 1; row <= ROWS; row++) {
        begin_reading(0);
        read_row(0, row);
        end_reading(0);
    }
    close_readers();
}

TEST(each_snapshot_reads_its_own_pages)
{
    read_and_write(1 << 22, 600);
    read_and_write(1 << 16, 200); /* with space for 16 pages */
}

static void overwrite(const char *name, off_t at)
{
    int file = open(name, O_WRONLY);
    uint8_t byte = 0x77;

    CHECK(file >= 0 && pwrite(file, &byte, 1, at) == 1);
    close(file);
}

/* The root of the rows is the only inner page. */
static off_t find_inner(const char *name, off_t first, off_t step)
{
    int file = open(name, O_RDONLY);
    uint8_t type;

    for (off_t at = first; CHECK(file >= 0) && pread(file, &type, 1, at) == 1; at += step) {
        if (type == INNER) {
            close(file);
            return at;
        }
    }
    close(file);
    test_fail(__FILE__, __LINE__, "there is no inner page");
    return 0;
}

TEST(inner_pages_survive_commits)
{
    struct kv *alone;
    struct bytes body;
    bson_error_t error;
    uint32_t version;

    REQUIRE(open_readers(1 << 20));
    move_pages(true);
    commit_row(1);
    begin_reading(0);
    read_row(0, ROWS);
    end_reading(0);
    overwrite(path, find_inner(path, 0, KV_PAGE_BYTES) + 2000);
    commit_row(2); /* SQLite drops its pages */
    for (int i = 0; i < READERS; i++) {
        begin_reading(i);
        read_row(i, 2);
        read_row(i, ROWS / 2);
        end_reading(i);
    }
    REQUIRE(CHECK_OK(truce__kv_open(path, 0, 1000, &alone, &error), error));
    CHECK_OK(truce__kv_snapshot_begin(alone, &version, &error), error);
    CHECK_STATUS(TRUCE_CORRUPT, truce__kv_row_get(alone, 0, 2, &body, &error), error);
    truce__kv_snapshot_end(alone);
    truce__kv_close(alone);
    close_readers();
}

TEST(does_not_cache_a_damaged_page)
{
    struct bytes body;
    bson_error_t error;
    uint32_t version;
    char name[440];

    REQUIRE(open_readers(1 << 20));
    snprintf(name, sizeof name, "%s-wal", path);
    overwrite(name, find_inner(name, LOG_HEADER + 24, FRAME) + 2000);
    for (int i = 0; i < READERS; i++) {
        CHECK_OK(truce__kv_snapshot_begin(readers[i], &version, &error), error);
        CHECK_STATUS(TRUCE_CORRUPT, truce__kv_row_get(readers[i], 0, 5, &body, &error), error);
        CHECK(strstr(error.message, "of the log is damaged"));
        truce__kv_snapshot_end(readers[i]);
    }
    close_readers();
}
