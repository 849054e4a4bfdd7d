/*
 * Compaction: the file becomes smaller, every document stays unchanged, other calls work
 * concurrently, and obstacles are reported.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "engine/documents/open_documents.h"
#include "engine/storage/checksum_vfs.h"
#include "tests/support/command.h"
#include "tests/support/damage.h"
#include "tests/support/test.h"
#include "truce/compact.h"
#include "truce/snapshot.h"

enum { DOCUMENTS = 4000, LARGE_EACH = 500 };

static char path[400];
static truce_store *store;
static truce_compact_report report;

/* Every few documents have pages of their own. */
static bson_t *make_document(int id)
{
    size_t size = id % LARGE_EACH ? 150 + (size_t)(id % 70) : 30000 + (size_t)id;
    bson_t *document = BCON_NEW("_id", BCON_INT32(id), "n", BCON_INT32(id * 7919 % 100003), "half",
                                BCON_INT32(id % 2), "quarter", BCON_INT32(id % 4));
    char *pad = bson_malloc(size + 1);

    memset(pad, 'a' + id % 26, size);
    pad[size] = 0;
    BSON_APPEND_UTF8(document, "pad", pad);
    bson_free(pad);
    return document;
}

static void insert_many(const char *collection, int from, int to)
{
    const truce_write_options relaxed = {.relaxed = true};
    bson_error_t error;

    for (int id = from; id < to; id++) {
        bson_t *document = make_document(id);

        CHECK_OK(truce_insert(store, collection, document, &relaxed, &error), error);
        bson_destroy(document);
    }
}

static void remove_many(const char *collection, const char *json)
{
    const truce_write_options many = {.relaxed = true, .multi = true};
    bson_t *filter = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_remove(store, collection, filter, &many, NULL, &error), error);
    bson_destroy(filter);
}

static void make_index(const char *collection, const char *json)
{
    bson_t *index = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_index_create(store, collection, index, &error), error);
    bson_destroy(index);
}

static bool open_new(void)
{
    bson_error_t error;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    return CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
}

static bool make(void)
{
    if (!open_new())
        return false;
    make_index("one", "{'key': {'n': 1}, 'name': 'by_n'}");
    make_index("one", "{'key': {'pad': 1}, 'name': 'by_pad'}");
    insert_many("one", 0, DOCUMENTS);
    insert_many("two", 0, 200);
    return true;
}

static void compact(void)
{
    bson_error_t error;

    CHECK_OK(truce_compact(store, NULL, &report, &error), error);
}

static int64_t file_size(void)
{
    struct stat found;

    return stat(path, &found) ? -1 : found.st_size;
}

/* Checks that exactly the documents for which `wanted` is true exist, unchanged since their
 * insert. */
static void check_documents(truce_store *in, const char *collection, bool (*wanted)(int id), int to)
{
    const bson_t *document;
    truce_cursor *cursor;
    bson_error_t error;
    int found = 0, expected = 0;

    for (int id = 0; id < to; id++)
        expected += wanted(id);
    if (!CHECK_OK(truce_find(in, collection, NULL, NULL, &cursor, &error), error))
        return;
    while (truce_cursor_next(cursor, &document, &error) == TRUCE_OK && document) {
        bson_iter_t iter;
        int id = bson_iter_init_find(&iter, document, "_id") ? bson_iter_int32(&iter) : -1;
        bson_t *same = make_document(id);

        CHECK(wanted(id) && bson_equal(same, document));
        bson_destroy(same);
        found++;
    }
    truce_cursor_close(cursor);
    CHECK_INT(found, ==, expected);
}

static bool every(int id)
{
    return id >= 0;
}

static bool odd(int id)
{
    return id % 2;
}

static bool last_quarter(int id)
{
    return id % 4 == 3;
}

/* Runs SQLite's own check, which covers the maps, and compares each index with its documents. */
static void check_file(void)
{
    const truce_store_options options = {.read_only = true};
    struct engine *engine;
    bson_error_t error;

    if (!CHECK_OK(truce__engine_open(path, &options, &engine, &error), error))
        return;
    CHECK_OK(truce__engine_check(engine, NULL, NULL, &error), error);
    truce__engine_close(engine);
}

/* ---- effects --------------------------------------------------------------------------------- */

TEST(returns_the_space_of_removed_documents)
{
    int64_t before;

    REQUIRE(make());
    remove_many("one", "{'quarter': {'$lt': 3}}");
    compact();
    before = report.bytes_before;
    CHECK(report.complete);
    CHECK_INT(report.bytes_after, ==, file_size());
    CHECK_INT(report.bytes_after * 3, <, before);
    CHECK_INT(report.bytes_free, ==, 0);
    CHECK_INT(report.reads + report.process, ==, 0);
    check_documents(store, "one", last_quarter, DOCUMENTS);
    check_documents(store, "two", every, 200);
    check_file();
    insert_many("two", 200, 400);
    truce_store_close(store);
    check_file();
}

/* No page is free by itself then: SQLite puts pages together that are less than a third full. */
TEST(joins_half_empty_pages)
{
    int64_t before;

    REQUIRE(make());
    compact();
    before = report.bytes_after;
    remove_many("one", "{'half': 0}");
    compact();
    CHECK(report.complete);
    CHECK_INT(report.bytes_after * 100, <, before * 60);
    check_documents(store, "one", odd, DOCUMENTS);
    check_file();
    truce_store_close(store);
}

TEST(keeps_dense_pages_unchanged)
{
    struct image before, after;

    REQUIRE(make());
    remove_many("one", "{'half': 0}");
    compact();
    compact();
    truce_store_close(store);
    REQUIRE(image_read(&before, path));
    {
        bson_error_t error;

        REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    }
    compact();
    CHECK(report.complete);
    truce_store_close(store);
    REQUIRE(image_read(&after, path));
    CHECK(before.size == after.size && !memcmp(before.bytes, after.bytes, before.size));
    image_release(&before);
    image_release(&after);
}

TEST(a_store_without_documents_has_nothing_to_give)
{
    REQUIRE(open_new());
    compact();
    CHECK(report.complete);
    CHECK_INT(report.bytes_after, >=, file_size()); /* the rest is in the log */
    truce_store_close(store);
}

/* ---- concurrent readers and writers ---------------------------------------------------------- */

static atomic_bool done;
static atomic_int rounds;

/* Works on its own documents, whose existence it tracks, and on a counter. */
static void *work(void *arg)
{
    enum { OWN = 50 };
    const truce_write_options upsert = {.upsert = true}, relaxed = {.relaxed = true};
    int worker = (int)(intptr_t)arg, first = DOCUMENTS * (worker + 1);
    bson_t *update = test_bson("{'$inc': {'count': 1}}"),
           *who = BCON_NEW("_id", BCON_INT32(worker));
    bool there[OWN] = {false};
    struct random random;
    bson_error_t error;
    int count = 0;

    truce__random_seed(&random, test_seed() + (uint64_t)worker);
    while (!atomic_load(&done)) {
        int own = (int)truce__random_below(&random, OWN);
        bson_t *document = make_document(first + own);
        bson_t *filter = BCON_NEW("_id", BCON_INT32(first + own));
        int64_t found;

        CHECK_OK(truce_update(store, "counts", who, update, &upsert, NULL, &error), error);
        if (there[own])
            CHECK_OK(truce_remove(store, "one", filter, &relaxed, NULL, &error), error);
        else
            CHECK_OK(truce_insert(store, "one", document, &relaxed, &error), error);
        there[own] = !there[own];
        CHECK_OK(truce_count(store, "one", filter, NULL, &found, &error), error);
        CHECK_INT(found, ==, there[own]);
        bson_destroy(document);
        bson_destroy(filter);
        count++;
        atomic_fetch_add(&rounds, 1);
    }
    {
        bson_t *expected = BCON_NEW("_id", BCON_INT32(worker), "count", BCON_INT32(count));
        int64_t found;

        CHECK_OK(truce_count(store, "counts", expected, NULL, &found, &error), error);
        CHECK_INT(found, ==, 1);
        bson_destroy(expected);
    }
    bson_destroy(update);
    bson_destroy(who);
    return NULL;
}

TEST(serves_reads_and_writes_during_a_compaction)
{
    enum { WORKERS = 2 };
    pthread_t threads[WORKERS];
    int before = 0;

    REQUIRE(make());
    remove_many("one", "{'half': 0}");
    atomic_store(&done, false);
    atomic_store(&rounds, 0);
    for (intptr_t i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 3; i++) {
        compact();
        insert_many("more", i * 1000, (i + 1) * 1000);
        remove_many("more", "{'quarter': {'$gt': 0}}");
    }
    while (atomic_load(&rounds) == before)
        usleep(1000);
    atomic_store(&done, true);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    remove_many("one", "{'_id': {'$gte': 4000}}");
    check_documents(store, "one", odd, DOCUMENTS);
    compact();
    CHECK(report.complete);
    check_file();
    truce_store_close(store);
}

static truce_store *other; /* another handle of the same file */

static void drop_at_once(int64_t at, int64_t total, void *arg)
{
    int *calls = arg;
    bson_error_t error;

    CHECK_INT(at, <=, total);
    if (++*calls == 2)
        CHECK_OK(truce_index_drop(other, "one", "by_pad", &error), error);
    if (*calls == 3)
        CHECK_OK(truce_collection_drop(other, "one", &error), error);
}

TEST(skips_a_collection_dropped_during_a_compaction)
{
    int calls = 0;
    const truce_compact_options options = {.progress = drop_at_once, .arg = &calls};
    bson_error_t error;

    REQUIRE(make());
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &other, &error), error));
    CHECK_OK(truce_compact(store, &options, &report, &error), error);
    CHECK_INT(calls, >, 3);
    CHECK(report.complete);
    CHECK_INT(report.bytes_after * 10, <, report.bytes_before);
    check_documents(store, "two", every, 200);
    truce_store_close(other);
    check_file();
    truce_store_close(store);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void interrupt_soon(int64_t at, int64_t total, void *arg)
{
    int *calls = arg;

    (void)at;
    (void)total;
    if (++*calls == 5)
        truce_interrupt(store);
}

TEST(resumes_an_interrupted_compaction)
{
    int calls = 0;
    const truce_compact_options options = {.progress = interrupt_soon, .arg = &calls};
    bson_error_t error;

    REQUIRE(make());
    remove_many("one", "{'half': 0}");
    CHECK_STATUS(TRUCE_TIMEOUT, truce_compact(store, &options, &report, &error), error);
    CHECK(!report.complete && report.bytes_before && report.bytes_after);
    truce_resume(store);
    check_documents(store, "one", odd, DOCUMENTS);
    compact();
    CHECK(report.complete);
    check_documents(store, "one", odd, DOCUMENTS);
    check_file();
    truce_store_close(store);
}

/* The file is not truncated while a reader may read its end. */
TEST(keeps_the_pages_of_a_snapshot_and_reports_it)
{
    truce_store *view;
    bson_error_t error;

    REQUIRE(make());
    CHECK_OK(truce_snapshot(store, NULL, &view, &error), error);
    remove_many("one", "{'quarter': {'$lt': 3}}");
    compact();
    CHECK(!report.complete);
    CHECK_INT(report.reads, ==, 1);
    CHECK_INT(report.process, ==, getpid());
    CHECK_INT(report.bytes_free, >, 0);
    check_documents(view, "one", every, DOCUMENTS);
    check_documents(store, "one", last_quarter, DOCUMENTS);
    truce_store_close(view);
    compact();
    CHECK(report.complete);
    CHECK_INT(report.reads + report.process + report.bytes_free, ==, 0);
    check_documents(store, "one", last_quarter, DOCUMENTS);
    check_file();
    truce_store_close(store);
}

TEST(ends_compaction_at_its_deadline)
{
    const truce_compact_options options = {.deadline_ms = 1};
    truce_store *view;
    bson_error_t error;

    REQUIRE(make());
    remove_many("one", "{'quarter': {'$lt': 3}}");
    CHECK_OK(truce_snapshot(store, NULL, &view, &error), error);
    insert_many("two", 200, 201);
    CHECK_STATUS(TRUCE_TIMEOUT, truce_compact(store, &options, &report, &error), error);
    CHECK_INT(report.reads, ==, 1);
    truce_store_close(view);
    truce_store_close(store);
}

/* A long log does not grow by the moved pages: a checkpoint runs first, or the compaction ends. */
TEST(a_long_log_is_moved_first)
{
    const truce_store_options options = {0};
    const truce_compact_options defaults = {0};
    const int pages = TRUCE_LOG_BYTES_KEPT / KV_PAGE_BYTES + 1;
    struct engine *engine, *view;
    truce_write_outcome outcome;
    uint64_t written;
    bson_error_t error;
    bson_t *one = make_document(DOCUMENTS);

    REQUIRE(make());
    remove_many("one", "{'half': 0}");
    truce_store_close(store);
    REQUIRE(CHECK_OK(truce__engine_open(path, &options, &engine, &error), error));
    CHECK_OK(truce__engine_view(engine, NULL, &view, &error), error);
    CHECK_OK(truce__engine_bulk(
                 engine,
                 &(truce_write){.kind = TRUCE_WRITE_INSERT, .collection = "two", .document = one},
                 1, &(truce_bulk_options){0}, &outcome, &error),
             error);
    truce__pins_note_log(&engine->lock, pages); /* so much was written, it seems */
    written = truce__pins_log(&engine->lock);
    report = (truce_compact_report){0};
    CHECK_OK(truce__engine_compact(engine, &defaults, &report, &error), error);
    CHECK(!report.complete && report.reads == 1);
    CHECK_INT(truce__pins_log(&engine->lock), ==, written);
    truce__engine_close(view);
    report = (truce_compact_report){0};
    CHECK_OK(truce__engine_compact(engine, &defaults, &report, &error), error);
    CHECK(report.complete);
    CHECK_INT(report.bytes_after, <, report.bytes_before);
    truce__engine_close(engine);
    bson_destroy(one);
}

static void interrupt_at_once(int64_t at, int64_t total, void *arg)
{
    (void)at;
    (void)total;
    (void)arg;
    truce_interrupt(store);
}

/* Two handles have a snapshot each. The first pins replaced pages; no page was replaced since the
 * second. */
TEST(does_not_report_reads_that_pin_nothing)
{
    const truce_compact_options options = {.progress = interrupt_at_once};
    truce_store *first, *second;
    bson_error_t error;

    REQUIRE(make());
    CHECK_OK(truce_snapshot(store, NULL, &first, &error), error);
    remove_many("one", "{'half': 0}");
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &other, &error), error));
    CHECK_OK(truce_snapshot(other, NULL, &second, &error), error);
    CHECK_STATUS(TRUCE_TIMEOUT, truce_compact(store, &options, &report, &error), error);
    CHECK_INT(report.reads, ==, 1);
    truce_resume(store);
    check_documents(second, "one", odd, DOCUMENTS);
    truce_store_close(first);
    truce_store_close(second);
    truce_store_close(other);
    truce_store_close(store);
}

static int warnings;

static void count_warning(truce_log_level level, const char *message, void *arg)
{
    (void)message;
    (void)arg;
    warnings += level == TRUCE_LOG_WARNING;
}

/* A requested checkpoint that cannot run is not reported as a growing log. */
TEST(reports_no_growing_log_if_the_log_is_short)
{
    const truce_store_hooks hooks = {.log = count_warning};
    const truce_store_options options = {.hooks = &hooks};
    bson_error_t error;
    truce_store *view;

    REQUIRE(open_new());
    insert_many("two", 0, 400);
    truce_store_close(store);
    warnings = 0;
    REQUIRE(CHECK_OK(truce_store_open(path, &options, &store, &error), error));
    CHECK_OK(truce_snapshot(store, NULL, &view, &error), error);
    remove_many("two", "{'quarter': {'$lt': 3}}");
    compact();
    CHECK(!report.complete);
    truce_store_close(view);
    truce_store_close(store);
    CHECK_INT(warnings, ==, 0);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void refuse(truce_status expected, const char *words)
{
    bson_error_t error = {0};

    CHECK_STATUS(expected, truce_compact(store, NULL, &report, &error), error);
    if (!CHECK(strstr(error.message, words)))
        fprintf(stderr, "  %s\n", error.message);
}

TEST(refuses_a_store_that_is_not_a_file)
{
    bson_error_t error;

    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error));
    refuse(TRUCE_INVALID, "no file");
    truce_store_close(store);
}

TEST(refuses_a_read_only_store)
{
    const truce_store_options options = {.read_only = true};
    truce_store *whole;
    bson_error_t error;

    REQUIRE(make());
    whole = store;
    CHECK_OK(truce_snapshot(whole, NULL, &store, &error), error);
    refuse(TRUCE_INVALID, "snapshot");
    truce_store_close(store);
    truce_store_close(whole);
    CHECK_OK(truce_store_open(path, &options, &store, &error), error);
    refuse(TRUCE_INVALID, "read-only");
    truce_store_close(store);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Which pages are maps follows from their place. */
TEST(reports_damage_and_loses_nothing)
{
    struct image image;
    bson_error_t error;

    REQUIRE(make());
    remove_many("one", "{'half': 0}");
    truce_store_close(store);
    REQUIRE(image_read(&image, path));
    image.bytes[1 * KV_PAGE_BYTES + 17] ^= 1; /* the first map */
    REQUIRE(image_write(&image, path));
    image_release(&image);
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    refuse(TRUCE_CORRUPT, "page 2 of the file is damaged");
    CHECK(!report.complete);
    check_documents(store, "one", odd, DOCUMENTS);
    truce_store_close(store);
}

/* ---- the program ----------------------------------------------------------------------------- */

TEST(prints_the_returned_space)
{
    const struct command *called;

    REQUIRE(make());
    remove_many("one", "{'quarter': {'$lt': 3}}");
    truce_store_close(store);
    called = command_run(TRUCE_CLI, NULL, NULL, "compact", "--store", path, NULL);
    CHECK_INT(called->code, ==, 0);
    CHECK(strstr(called->out, "complete: ") && strstr(called->out, " MB after, 0.0 MB"));
    called = command_run(TRUCE_CLI, NULL, NULL, "compact", "--json", "--store", path, NULL);
    CHECK_INT(called->code, ==, 0);
    CHECK(strstr(called->out, "\"complete\": true") && strstr(called->out, "\"bytes_free\": 0"));
    check_file();
}

TEST(names_the_process_that_pins_the_space)
{
    const struct command *called;
    truce_store *view;
    bson_error_t error;
    char process[40];

    REQUIRE(make());
    CHECK_OK(truce_snapshot(store, NULL, &view, &error), error);
    remove_many("one", "{'quarter': {'$lt': 3}}");
    called = command_run(TRUCE_CLI, NULL, NULL, "compact", "--store", path, NULL);
    CHECK_INT(called->code, ==, 1);
    snprintf(process, sizeof process, "process %d", (int)getpid());
    CHECK(strstr(called->out, "not complete") && strstr(called->err, process));
    check_documents(view, "one", every, DOCUMENTS);
    truce_store_close(view);
    truce_store_close(store);
}
