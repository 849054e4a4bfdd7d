/* The rules of the cache of documents (src/engine/document_cache.c), one by one. */
#include <stdlib.h>
#include <unistd.h>

#include "engine/document_cache.h"
#include "tests/support/test.h"
#include "truce/store.h"

static atomic_uint begun, made;
static struct lock_promises promises = {.seed = 1};
static struct kv_commits commits = {.now = &made};
static struct cache *cache;

static struct bytes text(const char *string)
{
    return (struct bytes){(const uint8_t *)string, strlen(string)};
}

/* A cache that has seen all commits. */
static void open_cache_of(uint64_t bytes)
{
    promises = (struct lock_promises){.seed = 1};
    atomic_store(&begun, 7);
    atomic_store(&made, 3);
    atomic_store(&commits.known, 3);
    cache = truce__cache_new(&begun, &promises, &commits, bytes);
    truce__cache_begin(cache, false);
    truce__cache_end(cache, true);
}

static void open_cache(void)
{
    open_cache_of(32 << 20);
}

static struct cache_lookup miss(const char *key)
{
    struct buffer body = {0};
    struct cache_lookup result = {0};

    CHECK(!truce__cache_get(cache, "c", text(key), &body, &result));
    CHECK_INT(body.size, ==, 0);
    truce__buffer_release(&body);
    return result;
}

/* A read of the file that showed `body`. */
static void fill(const char *key, const struct cache_lookup *before, const char *body)
{
    truce__cache_fill(cache, "c", text(key), before, 1, text(body));
}

static void read_from_file(const char *key, const char *body)
{
    struct cache_lookup before = miss(key);

    fill(key, &before, body);
}

static bool shows(const char *collection, const char *key, const char *expected)
{
    struct buffer body = {0};
    struct cache_lookup ignored;
    bool found = truce__cache_get(cache, collection, text(key), &body, &ignored);

    found = found && body.size == strlen(expected) && !memcmp(body.bytes, expected, body.size);
    truce__buffer_release(&body);
    return found;
}

static bool leader_sees(const char *key, const char *expected, int64_t row)
{
    struct buffer body = {0};
    int64_t found_row = 0;
    bool found = truce__cache_peek(cache, "c", text(key), &found_row, &body);

    found = found && body.size == strlen(expected) && !memcmp(body.bytes, expected, body.size) &&
            found_row == row;
    truce__buffer_release(&body);
    return found;
}

static void change(const char *key, const char *body)
{
    truce__cache_change(cache, "c", text(key), 5, text(body));
}

static void commit(void)
{
    atomic_fetch_add(&begun, 1);
    truce__cache_commit(cache, 0);
    truce__cache_end(cache, true);
}

/* ---- finding --------------------------------------------------------------------------------- */

TEST(finds_a_cached_read_only_under_its_key)
{
    open_cache();
    read_from_file("k", "one");
    CHECK(shows("c", "k", "one"));
    CHECK(!shows("d", "k", "one"));
    CHECK(!shows("ck", "", "one"));
    CHECK(!shows("c", "kk", "one"));
    truce__cache_free(cache);
}

TEST(a_cache_is_not_used_before_its_process_held_the_lock)
{
    struct cache_lookup before;

    atomic_store(&begun, 7);
    cache = truce__cache_new(&begun, &promises, &commits, 32 << 20);
    before = miss("k");
    CHECK(!before.may_fill);
    fill("k", &before, "one");
    CHECK(!shows("c", "k", "one"));
    truce__cache_begin(cache, false);
    CHECK(!shows("c", "k", "one"));
    truce__cache_end(cache, true);
    read_from_file("k", "one");
    CHECK(shows("c", "k", "one"));
    truce__cache_free(cache);
}

TEST(does_not_cache_a_document_that_is_too_large)
{
    char *large = bson_malloc0(CACHE_BODY_MAX + 2);

    open_cache();
    memset(large, 'x', CACHE_BODY_MAX + 1);
    read_from_file("k", large);
    CHECK(!shows("c", "k", large));
    truce__cache_begin(cache, false);
    change("k", large);
    CHECK(!leader_sees("k", large, 5));
    commit();
    CHECK(!shows("c", "k", large));
    large[CACHE_BODY_MAX] = 0;
    read_from_file("k", large);
    CHECK(shows("c", "k", large));
    truce__cache_free(cache);
    bson_free(large);
}

TEST(does_not_cache_a_document_with_a_very_long_key)
{
    char key[CACHE_KEY_MAX + 2] = {0};

    open_cache();
    memset(key, 'k', CACHE_KEY_MAX + 1);
    CHECK(!miss(key).may_fill);
    read_from_file(key, "one");
    CHECK(!shows("c", key, "one"));
    truce__cache_begin(cache, false);
    change(key, "two");
    CHECK(!leader_sees(key, "two", 5));
    commit();
    CHECK(!shows("c", key, "two"));
    key[CACHE_KEY_MAX] = 0;
    read_from_file(key, "one");
    CHECK(shows("c", key, "one"));
    truce__cache_free(cache);
}

/* ---- changes --------------------------------------------------------------------------------- */

TEST(shows_uncommitted_changes_only_to_the_leader)
{
    struct cache_lookup before;

    open_cache();
    read_from_file("k", "one");
    truce__cache_begin(cache, false);
    CHECK(leader_sees("k", "one", 1));
    change("k", "two");
    CHECK(leader_sees("k", "two", 5));
    before = miss("k");
    CHECK(!before.may_fill);
    fill("k", &before, "one");
    change("k", "three");
    commit();
    CHECK(shows("c", "k", "three"));
    truce__cache_free(cache);
}

TEST(does_not_cache_a_read_from_before_a_change)
{
    struct cache_lookup before;

    open_cache();
    before = miss("k");
    truce__cache_begin(cache, false);
    change("k", ""); /* removed: no entry remains that could block the fill */
    commit();
    fill("k", &before, "one");
    CHECK(!shows("c", "k", "one"));
    before = miss("k");
    truce__cache_begin(cache, false);
    change("k", "two");
    fill("k", &before, "one");
    CHECK(leader_sees("k", "two", 5));
    commit();
    CHECK(shows("c", "k", "two"));
    truce__cache_free(cache);
}

TEST(caches_a_document_once_after_two_concurrent_reads)
{
    struct cache_lookup one, other;

    open_cache();
    one = miss("k");
    other = miss("k");
    fill("k", &one, "one");
    fill("k", &other, "one");
    truce__cache_begin(cache, false);
    change("k", "");
    commit();
    CHECK(!shows("c", "k", "one"));
    truce__cache_free(cache);
}

TEST(a_change_that_was_not_committed_leaves_nothing)
{
    open_cache();
    read_from_file("k", "one");
    truce__cache_begin(cache, false);
    change("k", "two");
    truce__cache_end(cache, false);
    CHECK(!shows("c", "k", "one"));
    CHECK(!shows("c", "k", "two"));
    read_from_file("k", "one");
    CHECK(shows("c", "k", "one"));
    truce__cache_free(cache);
}

TEST(forgets_changed_documents_after_a_rolled_back_savepoint)
{
    open_cache();
    read_from_file("k", "one");
    read_from_file("other", "one");
    truce__cache_begin(cache, false);
    change("k", "two");
    truce__cache_doubt(cache);
    CHECK(!leader_sees("k", "two", 5));
    CHECK(leader_sees("other", "one", 1));
    CHECK(!miss("k").may_fill);
    commit();
    CHECK(!shows("c", "k", "two"));
    CHECK(shows("c", "other", "one"));
    truce__cache_free(cache);
}

TEST(drops_the_cached_documents_of_a_replaced_collection)
{
    struct cache_lookup early, before;

    open_cache();
    early = miss("early");
    read_from_file("k", "one");
    truce__cache_begin(cache, false);
    truce__cache_close(cache);
    before = miss("k");
    CHECK(!before.may_fill);
    CHECK(!leader_sees("k", "one", 1));
    commit();
    CHECK(!shows("c", "k", "one"));
    fill("early", &early, "one");
    CHECK(!shows("c", "early", "one"));
    fill("k", &before, "one");
    CHECK(!shows("c", "k", "one"));
    read_from_file("k", "two");
    CHECK(shows("c", "k", "two"));
    truce__cache_free(cache);
}

TEST(treats_very_many_changes_as_a_change_of_everything)
{
    char key[32];

    open_cache();
    read_from_file("k", "one");
    truce__cache_begin(cache, false);
    for (int i = 0; i < 40000; i++) {
        snprintf(key, sizeof key, "%d", i);
        change(key, "new");
    }
    CHECK(!leader_sees("39999", "new", 5));
    commit();
    CHECK(!shows("c", "k", "one"));
    CHECK(!shows("c", "0", "new"));
    read_from_file("k", "two");
    CHECK(shows("c", "k", "two"));
    truce__cache_free(cache);
}

/* ---- other processes ------------------------------------------------------------------------- */

TEST(stops_using_the_cache_when_another_process_commits)
{
    struct cache_lookup early, late;

    open_cache();
    early = miss("early");
    read_from_file("k", "one");
    atomic_fetch_add(&begun, 1); /* another process, from here on at work */
    CHECK(!shows("c", "k", "one"));
    late = miss("k");
    CHECK(!late.may_fill);
    fill("early", &early, "one");
    truce__cache_begin(cache, false);
    CHECK(!leader_sees("k", "one", 1));
    truce__cache_end(cache, true);
    CHECK(!shows("c", "k", "one"));
    CHECK(!shows("c", "early", "one"));
    fill("early", &early, "one");
    CHECK(!shows("c", "early", "one"));
    fill("k", &late, "one");
    CHECK(!shows("c", "k", "one"));
    read_from_file("k", "two");
    CHECK(shows("c", "k", "two"));
    truce__cache_free(cache);
}

/* ---- the maximum ----------------------------------------------------------------------------- */

static int count_shown(int keys, const char *body)
{
    char key[32];
    int count = 0;

    for (int i = 0; i < keys; i++) {
        snprintf(key, sizeof key, "%d", i);
        count += shows("c", key, body);
    }
    return count;
}

TEST(evicts_the_oldest_entries_except_used_or_changing_ones)
{
    enum { KEYS = 100000 };
    char body[1001] = {0}, key[32];

    open_cache();
    memset(body, 'x', 1000);
    read_from_file("used", "one");
    truce__cache_begin(cache, false);
    change("changing", "two");
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "%d", i);
        read_from_file(key, body);
        if (i % 50 == 0)
            CHECK(shows("c", "used", "one"));
    }
    CHECK(leader_sees("changing", "two", 5));
    commit();
    CHECK(shows("c", "changing", "two"));
    CHECK_INT(count_shown(KEYS, body), >, 20000);
    CHECK_INT(count_shown(KEYS, body), <, 32 << 10);
    truce__cache_free(cache);
}

/* While the cache is full, most documents of a scan leave it as it is. */
TEST(keeps_three_quarters_of_a_full_cache_during_a_scan)
{
    char key[32], body[512];
    int kept = 0;

    memset(body, 'b', sizeof body - 1);
    body[sizeof body - 1] = 0;
    open_cache_of(1 << 20);
    for (int i = 0; i < 4000; i++) {
        snprintf(key, sizeof key, "stored %d", i);
        read_from_file(key, body);
    }
    for (int i = 0; i < 400; i++) {
        snprintf(key, sizeof key, "scanned %d", i);
        read_from_file(key, body);
        kept += shows("c", key, body);
    }
    CHECK_INT(kept, >, 400 / 8);
    CHECK_INT(kept, <, 400 / 2);
    truce__cache_free(cache);
}

TEST(changes_that_do_not_fit_are_not_known)
{
    enum { KEYS = 10000 };
    char *body = bson_malloc0(8001), key[32];
    int seen = 0;

    open_cache();
    memset(body, 'x', 8000);
    truce__cache_begin(cache, false);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "%d", i);
        change(key, body);
    }
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "%d", i);
        seen += leader_sees(key, body, 5);
    }
    CHECK_INT(seen, >, 2000);
    CHECK_INT(seen, <, 4200);
    commit();
    CHECK_INT(count_shown(KEYS, body), ==, seen);
    truce__cache_free(cache);
    bson_free(body);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static bool shows_to(uint64_t moment, const char *key, const char *expected)
{
    struct buffer body = {0};
    struct cache_lookup ignored;
    bool found = truce__cache_view(cache, moment, "c", text(key), &body, &ignored);

    CHECK(found || body.size == 0);
    found = found && body.size == strlen(expected) && !memcmp(body.bytes, expected, body.size);
    truce__buffer_release(&body);
    return found;
}

TEST(shows_entries_unchanged_since_its_begin_to_a_snapshot)
{
    uint64_t before, after;

    open_cache();
    read_from_file("k", "one");
    read_from_file("other", "here");
    before = truce__cache_snapshot(cache);
    CHECK(shows_to(before, "k", "one"));
    truce__cache_begin(cache, false);
    change("k", "two");
    CHECK(!shows_to(before, "k", "one"));
    CHECK(!shows_to(before, "k", "two"));
    CHECK(shows_to(truce__cache_snapshot(cache), "other", "here"));
    atomic_fetch_add(&begun, 1);
    truce__cache_commit(cache, 0);
    CHECK_INT(truce__cache_snapshot(cache), ==,
              before); /* one that begins now may not see it yet */
    truce__cache_end(cache, true);
    after = truce__cache_snapshot(cache);
    CHECK_INT(after, >, before);
    CHECK(!shows_to(before, "k", "one"));
    CHECK(!shows_to(before, "k", "two"));
    CHECK(shows_to(after, "k", "two"));
    CHECK(shows_to(before, "other", "here"));
    CHECK(shows_to(after, "other", "here"));
    CHECK(!shows_to(after, "absent", "here"));
    truce__cache_free(cache);
}

TEST(does_not_show_later_reads_to_a_snapshot)
{
    uint64_t before;

    open_cache();
    before = truce__cache_snapshot(cache);
    truce__cache_begin(cache, false);
    change("another", "value");
    commit();
    read_from_file("k", "two");
    CHECK(!shows_to(before, "k", "two"));
    CHECK(shows_to(truce__cache_snapshot(cache), "k", "two"));
    truce__cache_free(cache);
}

TEST(does_not_show_later_commits_to_a_snapshot)
{
    uint64_t before;

    open_cache();
    read_from_file("k", "one");
    before = truce__cache_snapshot(cache);
    atomic_fetch_add(&begun, 1); /* of another process */
    CHECK(!shows_to(before, "k", "one"));
    truce__cache_begin(cache, false);
    read_from_file("k", "two");
    CHECK(!shows_to(before, "k", "two"));
    CHECK(!shows_to(truce__cache_snapshot(cache), "k", "two"));
    truce__cache_end(cache, false);
    CHECK(shows_to(truce__cache_snapshot(cache), "k", "two"));
    CHECK(!shows_to(before, "k", "two"));
    truce__cache_free(cache);
}

TEST(shows_commits_of_other_programs)
{
    open_cache();
    read_from_file("k", "one");
    CHECK(shows("c", "k", "one"));
    atomic_fetch_add(&made, 1);
    CHECK(!shows("c", "k", "one"));
    CHECK(!miss("k").may_fill);
    truce__cache_begin(cache, true);
    CHECK(!leader_sees("k", "one", 1));
    atomic_store(&commits.known, atomic_load(&made));
    truce__cache_end(cache, false);
    CHECK(!shows("c", "k", "one"));
    read_from_file("k", "two");
    CHECK(shows("c", "k", "two"));
    truce__cache_free(cache);
}

/* ---- its size -------------------------------------------------------------------------------- */

TEST(sizes_the_cache_by_the_call_or_the_environment)
{
    bson_error_t error = {0};
    uint64_t bytes;

    unsetenv("TRUCE_CACHE_MB");
    CHECK_OK(truce__cache_size(0, &bytes, &error), error);
    CHECK(bytes >= UINT64_C(64) << 20 && bytes <= UINT64_C(256) << 20);
    CHECK_OK(truce__cache_size(16, &bytes, &error), error);
    CHECK(bytes == 16 << 20);
    CHECK_STATUS(TRUCE_INVALID, truce__cache_size(15, &bytes, &error), error);
    CHECK(strstr(error.message, "expected 16 to 1048576") != NULL);
    CHECK_STATUS(TRUCE_INVALID, truce__cache_size(1024 * 1024 + 1, &bytes, &error), error);
    setenv("TRUCE_CACHE_MB", "100", 1);
    CHECK_OK(truce__cache_size(0, &bytes, &error), error);
    CHECK(bytes == 100 << 20);
    CHECK_OK(truce__cache_size(20, &bytes, &error), error);
    CHECK(bytes == 20 << 20);
    setenv("TRUCE_CACHE_MB", "64M", 1);
    CHECK_STATUS(TRUCE_INVALID, truce__cache_size(0, &bytes, &error), error);
    CHECK(strstr(error.message, "64M") != NULL);
    unsetenv("TRUCE_CACHE_MB");
}

TEST(a_store_is_not_opened_with_a_cache_that_it_cannot_have)
{
    const truce_store_options options = {.cache_mb = 3};
    truce_store *store = NULL;
    bson_error_t error = {0};
    char path[600];

    snprintf(path, sizeof path, "%s/small.truce", test_directory());
    CHECK_STATUS(TRUCE_INVALID, truce_store_open(path, &options, &store, &error), error);
    CHECK(!store && access(path, F_OK));
}

TEST(a_larger_cache_keeps_more)
{
    enum { MANY = 3000, BODY = 10000 };
    static char body[BODY + 1];
    int kept[2] = {0};

    memset(body, 'x', BODY);
    for (int i = 0; i < 2; i++) {
        open_cache_of(i ? 64 << 20 : 16 << 20);
        for (int j = 0; j < MANY; j++) {
            char key[16];

            snprintf(key, sizeof key, "%d", j);
            read_from_file(key, body);
        }
        for (int j = 0; j < MANY; j++) {
            char key[16];

            snprintf(key, sizeof key, "%d", j);
            kept[i] += shows("c", key, body);
        }
        truce__cache_free(cache);
    }
    CHECK_INT(kept[0], <, 1700);
    CHECK_INT(kept[0], >, 1000);
    CHECK_INT(kept[1], ==, MANY);
}

/* Invariant 6: two caches are those of two processes. */
TEST(waits_for_changes_of_another_process)
{
    struct cache *theirs;
    char key[20];

    open_cache();
    theirs = truce__cache_new(&begun, &promises, &commits, 1 << 20);
    truce__cache_begin(cache, false);
    truce__cache_change(cache, "c", text("a"), 1, text("A"));
    truce__cache_insert(cache, "c", text("b"));
    atomic_fetch_add(&begun, 1);
    truce__cache_commit(cache, 8);
    truce__cache_end(cache, true);
    CHECK_INT(truce__cache_promised(theirs, "c", text("a")), ==, 8);
    CHECK_INT(truce__cache_promised(theirs, "c", text("b")), ==, 8);
    CHECK_INT(truce__cache_promised(theirs, "c", text("x")), ==, 0);
    truce__cache_begin(cache, false);
    for (int i = 0; i < 20000; i++) { /* more than are noted one by one */
        snprintf(key, sizeof key, "%d", i);
        truce__cache_insert(cache, "c", text(key));
    }
    atomic_fetch_add(&begun, 1);
    truce__cache_commit(cache, 9);
    truce__cache_end(cache, true);
    for (int i = 10000; i < 30000; i++) { /* with any hash collisions of the recorded keys */
        snprintf(key, sizeof key, "%d", i);
        CHECK_INT(truce__cache_promised(theirs, "c", text(key)), ==, 9);
    }
    truce__cache_free(theirs);
    truce__cache_free(cache);
}
