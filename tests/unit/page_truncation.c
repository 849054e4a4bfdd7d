/* SQLite's page cache is not searched at the end of a transaction that exchanged the numbers of
 * pages, and it drops the pages that it must drop. */
#include "engine/storage/page_truncation.h"

#include <sqlite3.h>
#include <string.h>

#include "engine/storage/kv.h"
#include "tests/support/test.h"

enum { PAGES = 40, EXCHANGE = 262145 };

/* ---- a page cache beneath ------------------------------------------------------------------- */

/* It counts the calls that make SQLite's page cache look at all pages. */
static sqlite3_pcache_methods2 inner;
static int searches;

static void count_truncate(sqlite3_pcache *cache, unsigned first)
{
    searches++;
    inner.xTruncate(cache, first);
}

static struct kv *opened(void)
{
    char *path = bson_strdup_printf("%s/a.truce", test_directory());
    bson_error_t error;
    struct kv *kv;

    CHECK_OK(truce__kv_open(path, KV_WRITER | KV_CREATE, 1000, &kv, &error), error);
    bson_free(path);
    return kv;
}

/* Returns the functions that SQLite calls after a file was opened. */
static const sqlite3_pcache_methods2 *methods(void)
{
    static sqlite3_pcache_methods2 outer;
    sqlite3_pcache_methods2 counting;

    if (outer.xCreate)
        return &outer;
    CHECK_INT(sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &inner), ==, SQLITE_OK);
    counting = inner;
    counting.xTruncate = count_truncate;
    CHECK_INT(sqlite3_config(SQLITE_CONFIG_PCACHE2, &counting), ==, SQLITE_OK);
    truce__kv_close(opened());
    CHECK_INT(sqlite3_shutdown(), ==, SQLITE_OK);
    CHECK_INT(sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &outer), ==, SQLITE_OK);
    CHECK_INT(sqlite3_initialize(), ==, SQLITE_OK);
    return &outer;
}

static sqlite3_pcache *filled(unsigned pages)
{
    sqlite3_pcache *cache = methods()->xCreate(4096, 256, 1);

    CHECK(cache);
    methods()->xCachesize(cache, 1000);
    for (unsigned number = 1; number <= pages; number++) {
        sqlite3_pcache_page *page = methods()->xFetch(cache, number, 2);

        CHECK(page);
        memset(page->pBuf, (int)number, 4096);
        methods()->xUnpin(cache, page, 0);
    }
    methods()->xUnpin(cache, methods()->xFetch(cache, 1, 2), 0);
    searches = 0;
    return cache;
}

static bool has(sqlite3_pcache *cache, unsigned number)
{
    sqlite3_pcache_page *page = methods()->xFetch(cache, number, 0);

    if (page)
        methods()->xUnpin(cache, page, 0);
    return page;
}

static sqlite3_pcache_page *pinned(sqlite3_pcache *cache, unsigned number)
{
    sqlite3_pcache_page *page = methods()->xFetch(cache, number, 0);

    CHECK(page);
    return page;
}

/* As SQLite does it: it looks whether another page has the new number, which it drops. */
static void rekey(sqlite3_pcache *cache, sqlite3_pcache_page *page, unsigned from, unsigned to)
{
    CHECK(!has(cache, to));
    methods()->xRekey(cache, page, from, to);
}

static void exchange(sqlite3_pcache *cache, unsigned a, unsigned b)
{
    sqlite3_pcache_page *first = pinned(cache, a), *second = pinned(cache, b);

    rekey(cache, first, a, EXCHANGE);
    rekey(cache, second, b, a);
    rekey(cache, first, EXCHANGE, b);
    methods()->xUnpin(cache, first, 0);
    methods()->xUnpin(cache, second, 0);
}

/* ---- one cache ------------------------------------------------------------------------------- */

TEST(omits_the_search_after_an_exchange)
{
    sqlite3_pcache *cache = filled(PAGES);

    for (unsigned i = 1; i < 10; i++) {
        exchange(cache, i, PAGES + 1 - i);
        methods()->xTruncate(cache, PAGES + 1);
    }
    CHECK_INT(searches, ==, 0);
    CHECK_INT(methods()->xPagecount(cache), ==, PAGES);
    for (unsigned number = 1; number <= PAGES; number++)
        CHECK(has(cache, number));
    methods()->xDestroy(cache);
}

TEST(drops_pages_after_the_end)
{
    sqlite3_pcache *cache = filled(PAGES);

    exchange(cache, 3, 7);
    methods()->xTruncate(cache, PAGES);
    CHECK_INT(methods()->xPagecount(cache), ==, PAGES - 1);
    CHECK(!has(cache, PAGES) && has(cache, PAGES - 1));
    methods()->xTruncate(cache, 11);
    CHECK_INT(methods()->xPagecount(cache), ==, 10);
    CHECK_INT(searches, ==, 2);
    methods()->xTruncate(cache, 11);
    CHECK_INT(searches, ==, 2);
    CHECK(!has(cache, 11) && has(cache, 10));
    methods()->xDestroy(cache);
}

TEST(drops_all_pages)
{
    sqlite3_pcache *cache = filled(PAGES);

    methods()->xTruncate(cache, 1);
    CHECK_INT(methods()->xPagecount(cache), ==, 0);
    methods()->xUnpin(cache, methods()->xFetch(cache, 5, 2), 0);
    methods()->xTruncate(cache, 6);
    CHECK_INT(methods()->xPagecount(cache), ==, 1);
    methods()->xDestroy(cache);
}

/* SQLite drops such a page if a transaction is rolled back in the middle of an exchange. */
TEST(drops_a_page_in_the_middle_of_an_exchange)
{
    sqlite3_pcache *cache = filled(PAGES);
    sqlite3_pcache_page *page = pinned(cache, 4);

    rekey(cache, page, 4, EXCHANGE);
    methods()->xUnpin(cache, page, 0);
    methods()->xTruncate(cache, PAGES + 1);
    CHECK(!has(cache, EXCHANGE) && !has(cache, 4));
    CHECK_INT(methods()->xPagecount(cache), ==, PAGES - 1);
    methods()->xTruncate(cache, PAGES + 1);
    CHECK_INT(searches, ==, 1);
    methods()->xDestroy(cache);
}

TEST(drops_either_of_two_pages_in_the_middle_of_exchanges)
{
    for (unsigned kept = 4; kept <= 5; kept++) {
        sqlite3_pcache *cache = filled(PAGES);
        sqlite3_pcache_page *first = pinned(cache, 4), *second = pinned(cache, 5);

        rekey(cache, first, 4, EXCHANGE);
        rekey(cache, second, 5, EXCHANGE + 1);
        rekey(cache, kept == 4 ? first : second, EXCHANGE - 4 + kept, kept);
        methods()->xUnpin(cache, first, 0);
        methods()->xUnpin(cache, second, 0);
        methods()->xTruncate(cache, PAGES + 1);
        CHECK(!has(cache, EXCHANGE) && !has(cache, EXCHANGE + 1) && has(cache, kept));
        CHECK_INT(methods()->xPagecount(cache), ==, PAGES - 1);
        methods()->xDestroy(cache);
    }
}

TEST(counts_a_page_with_a_new_number_beyond_the_end)
{
    sqlite3_pcache *cache = filled(PAGES);
    sqlite3_pcache_page *page = pinned(cache, 4);

    rekey(cache, page, 4, PAGES + 1);
    rekey(cache, page, PAGES + 1, PAGES + 2);
    methods()->xUnpin(cache, page, 0);
    methods()->xTruncate(cache, PAGES + 1);
    CHECK(!has(cache, PAGES + 2));
    CHECK_INT(methods()->xPagecount(cache), ==, PAGES - 1);
    methods()->xShrink(cache);
    methods()->xDestroy(cache);
}

/* ---- a file ---------------------------------------------------------------------------------- */

static truce_status insert_any_key(struct kv *kv, uint32_t *seed, bson_error_t *error)
{
    uint8_t key[40];

    for (size_t i = 0; i < sizeof key; i++) {
        *seed = *seed * 1664525 + 1013904223;
        key[i] = (uint8_t)(*seed >> 24);
    }
    return truce__kv_key_insert(kv, 1, (struct bytes){key, sizeof key}, 1, error);
}

/* SQLite's page cache alone would be searched at many of these commits. */
TEST(omits_the_search_at_commits_that_divide_pages)
{
    uint32_t version, seed = 1;
    bson_error_t error;
    struct kv *kv;

    (void)methods();
    kv = opened();
    CHECK_OK(truce__kv_write_begin(kv, &version, &error), error);
    CHECK_OK(truce__kv_keys_create(kv, 1, &error), error);
    CHECK_OK(truce__kv_write_commit(kv, &error), error);
    searches = 0;
    for (int i = 0; i < 500; i++) {
        REQUIRE(CHECK_OK(truce__kv_write_begin(kv, &version, &error), error));
        for (int j = 0; j < 20; j++)
            CHECK_OK(insert_any_key(kv, &seed, &error), error);
        REQUIRE(CHECK_OK(truce__kv_write_commit(kv, &error), error));
    }
    CHECK_INT(searches, ==, 0);
    truce__kv_close(kv);
}
