#include "engine/documents/open_documents.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/json_command.h"
#include "tests/support/open_lock.h"
#include "tests/support/test.h"

static char path[400];
static truce_store *store;

static bool open_new(void)
{
    bson_error_t error;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    fflush(NULL);
    return CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
}

static void insert(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void insert(const char *format, ...)
{
    truce_write_options options = {.relaxed = true};
    bson_error_t error;
    va_list arguments;
    bson_t *document;
    char json[400];

    va_start(arguments, format);
    vsnprintf(json, sizeof json, format, arguments);
    va_end(arguments);
    document = test_bson(json);
    CHECK_OK(truce_insert(store, "c", document, &options, &error), error);
    bson_destroy(document);
}

static truce_status create_index(const char *json, bson_error_t *error)
{
    bson_t *index = test_bson(json);
    truce_status status = truce_index_create(store, "c", index, error);

    bson_destroy(index);
    return status;
}

static int64_t count(const char *json)
{
    bson_t *filter = test_bson(json);
    bson_error_t error;
    int64_t number = -1;

    CHECK_OK(truce_count(store, "c", filter, NULL, &number, &error), error);
    bson_destroy(filter);
    return number;
}

static uint32_t count_indexes(void)
{
    bson_error_t error;
    uint32_t number;
    bson_t list;

    CHECK_OK(truce_index_list(store, "c", &list, &error), error);
    number = bson_count_keys(&list);
    bson_destroy(&list);
    return number;
}

static void check_whole(void)
{
    truce_store_options options = {0};
    struct engine *engine;
    bson_error_t error;

    if (!CHECK_OK(truce__engine_open(path, &options, &engine, &error), error))
        return;
    CHECK_OK(truce__engine_check(engine, NULL, NULL, &error), error);
    truce__engine_close(engine);
}

/* ---- processes ------------------------------------------------------------------------------ */

TEST(a_forked_child_is_refused_and_the_parent_is_not_disturbed)
{
    bson_error_t error;
    char other[420];
    int status;
    pid_t child;

    REQUIRE(open_new());
    insert("{'_id': 1}");
    fflush(NULL);
    child = fork();
    if (!child) {
        bson_t document = BSON_INITIALIZER;
        int64_t number;

        CHECK_STATUS(TRUCE_INVALID, truce_insert(store, "c", &document, NULL, &error), error);
        CHECK(strstr(error.message, "forked"));
        CHECK_STATUS(TRUCE_INVALID, truce_count(store, "c", NULL, NULL, &number, &error), error);
        truce_store_close(store);
        CHECK_STATUS(TRUCE_INVALID, truce_store_open(path, NULL, &store, &error), error);
        CHECK(strstr(error.message, path) && strstr(error.message, "forked child"));
        snprintf(other, sizeof other, "%s.other", path);
        CHECK_OK(truce_store_open(other, NULL, &store, &error), error);
        insert("{'_id': 1}");
        truce_store_close(store);
        test_child_exit();
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    insert("{'_id': 2}");
    CHECK_INT(count("{}"), ==, 2);
    truce_store_close(store);
    check_whole();
}

TEST(opens_a_store_in_a_child_that_its_parent_closed_before_the_fork)
{
    bson_error_t error;
    int status;
    pid_t child;

    REQUIRE(open_new());
    insert("{'_id': 1}");
    truce_store_close(store);
    fflush(NULL);
    child = fork();
    if (!child) {
        CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
        insert("{'_id': 2}");
        truce_store_close(store);
        test_child_exit();
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    CHECK_INT(count("{}"), ==, 2);
    truce_store_close(store);
}

TEST(refuses_writes_not_reads_while_the_lock_is_held)
{
    truce_write_options options = {.deadline_ms = 100};
    bson_t document = BSON_INITIALIZER;
    bson_error_t error;
    struct lock lock;
    char wanted[500];

    REQUIRE(open_new());
    insert("{'_id': 1}");
    CHECK_OK(open_lock(path, &lock, &error), error);
    CHECK_OK(truce__lock_acquire(&lock, truce__clock_monotonic_ns() + 1000000000, &error), error);
    CHECK_STATUS(TRUCE_LOCKED, truce_insert(store, "c", &document, &options, &error), error);
    snprintf(wanted, sizeof wanted, "while process %d was writing to \"%s\", for ", (int)getpid(),
             path);
    CHECK(strstr(error.message, wanted));
    CHECK_INT(count("{}"), ==, 1);
    truce__lock_release(&lock);
    CHECK_OK(truce_insert(store, "c", &document, &options, &error), error);
    truce__lock_close(&lock);
    truce_store_close(store);
}

TEST(a_process_that_waits_is_woken_by_the_write_of_another)
{
    uint64_t token = 0;
    bson_error_t error;
    int64_t start;
    int go[2];
    pid_t child;
    char byte;

    REQUIRE(!pipe(go));
    REQUIRE(open_new());
    truce_store_close(store);
    fflush(NULL);
    child = fork();
    if (!child) {
        CHECK(read(go[0], &byte, 1) == 1);
        CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
        truce__clock_sleep_ms(100);
        insert("{'_id': 2}");
        truce_store_close(store);
        test_child_exit();
    }
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    insert("{'_id': 1}");
    CHECK_OK(truce_wait(store, "c", &token, 0, &error), error);
    CHECK_STATUS(TRUCE_TIMEOUT, truce_wait(store, "c", &token, 30, &error), error);
    CHECK(write(go[1], "x", 1) == 1);
    start = truce__clock_monotonic_ns();
    CHECK_OK(truce_wait(store, "c", &token, 20000, &error), error);
    CHECK_INT((truce__clock_monotonic_ns() - start) / 1000000, <, 5000);
    CHECK_INT(count("{}"), ==, 2);
    waitpid(child, NULL, 0);
    truce_store_close(store);
    close(go[0]);
    close(go[1]);
}

TEST(a_change_of_the_catalog_by_another_is_seen_at_once)
{
    truce_store *other;
    bson_error_t error;

    REQUIRE(open_new());
    CHECK_OK(truce_store_open(path, NULL, &other, &error), error);
    for (int i = 0; i < 20; i++) {
        insert("{'_id': %d, 'a': [%d, 1]}", i, i);
        CHECK_INT(count("{'a': 1}"), ==, i + 1);
        CHECK_OK(truce_collection_rename(other, "c", "d", false, &error), error);
        CHECK_INT(count("{'a': 1}"), ==, 0);
        CHECK_OK(truce_collection_rename(other, "d", "c", false, &error), error);
        CHECK_OK(create_index("{'key': {'a': 1}}", &error), error);
        CHECK_OK(truce_index_drop(other, "c", "a_1", &error), error);
    }
    truce_store_close(other);
    truce_store_close(store);
    check_whole();
}

/* ---- files ---------------------------------------------------------------------------------- */

static void remount_read_only(const char *directory)
{
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount(directory, directory, NULL, MS_BIND, NULL) ||
        mount(NULL, directory, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
        _exit(77);
}

TEST(reads_a_store_on_read_only_media_and_refuses_writes)
{
    truce_store_options options = {.read_only = true};
    bson_error_t error;
    int status;
    pid_t child;

    REQUIRE(open_new());
    insert("{'_id': 1}");
    truce_store_close(store);
    strcat(path, "-lock");
    unlink(path);
    path[strlen(path) - 5] = 0;
    child = fork();
    if (!child) {
        char *end = strrchr(path, '/');

        *end = 0;
        remount_read_only(path);
        *end = '/';
        CHECK_STATUS(TRUCE_IO, truce_store_open(path, NULL, &store, &error), error);
        CHECK(strstr(error.message, "ead-only"));
        if (CHECK_OK(truce_store_open(path, &options, &store, &error), error)) {
            bson_t reply;

            CHECK_INT(count("{'_id': 1}"), ==, 1);
            CHECK_OK(run_json_command(store, NULL, "{count: 'c'}", &reply, &error), error);
            bson_destroy(&reply);
            truce_store_close(store);
        }
        test_child_exit();
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        test_skip("no permission to mount");
    else
        CHECK_INT(status, ==, 0);
}

/* SQLite reports that it cannot extend the index of the log, without a reason. */
TEST(reads_a_store_on_a_full_disk_and_refuses_writes)
{
    truce_store_options options = {.read_only = true};
    char *folder = bson_strdup_printf("%s/full", test_directory());
    static const char zeros[4096];
    bson_error_t error;
    int status;
    pid_t child;

    REQUIRE(!mkdir(folder, 0700));
    child = fork();
    if (!child) {
        int file;

        if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("tmpfs", folder, "tmpfs", 0, "size=2m"))
            _exit(77);
        snprintf(path, sizeof path, "%s/s.truce", folder);
        CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
        insert("{'_id': 1}");
        truce_store_close(store);
        strcat(path, ".fill");
        file = open(path, O_WRONLY | O_CREAT, 0600);
        path[strlen(path) - 5] = 0;
        while (write(file, zeros, sizeof zeros) > 0)
            continue;
        CHECK_STATUS(TRUCE_IO, truce_store_open(path, NULL, &store, &error), error);
        CHECK(strstr(error.message, "the disk is full"));
        if (CHECK_OK(truce_store_open(path, &options, &store, &error), error)) {
            CHECK_INT(count("{'_id': 1}"), ==, 1);
            truce_store_close(store);
        }
        test_child_exit();
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        test_skip("no permission to mount");
    else
        CHECK_INT(status, ==, 0);
    bson_free(folder);
}

TEST(one_file_under_two_names_is_one_store)
{
    char link[420];
    truce_store *other;
    bson_error_t error;

    REQUIRE(open_new());
    snprintf(link, sizeof link, "%s.link", path);
    REQUIRE(!symlink(path, link));
    CHECK_OK(truce_store_open(link, NULL, &other, &error), error);
    insert("{'_id': 1}");
    truce_store_close(other);
    strcat(link, "-lock");
    CHECK(access(link, F_OK));
    truce_store_close(store);
}

/* The WAL does not grow with the number of writes, despite any readers. */
static atomic_bool reading;

static void *read_on(void *arg)
{
    (void)arg;
    while (atomic_load(&reading))
        count("{'n': {'$gt': 5}}");
    return NULL;
}

TEST(the_wal_is_moved_into_the_file_while_others_read)
{
    struct stat wal, file;
    pthread_t threads[3];
    char name[420], *pad;

    REQUIRE(open_new());
    pad = bson_malloc0(30001);
    atomic_store(&reading, true);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, read_on, NULL);
    for (int i = 0; i < 2400 && !test_failures(); i++) {
        truce_write_options options = {.relaxed = true, .upsert = true};
        bson_t filter = BSON_INITIALIZER, document = BSON_INITIALIZER;
        bson_error_t error;

        memset(pad, 'a' + i % 26, 30000);
        BSON_APPEND_INT32(&filter, "_id", i % 50);
        BSON_APPEND_INT32(&document, "n", i);
        BSON_APPEND_UTF8(&document, "pad", pad);
        CHECK_OK(truce_update(store, "c", &filter, &document, &options, NULL, &error), error);
        bson_destroy(&filter);
        bson_destroy(&document);
    }
    for (int i = 0; i < 3000 && !stat(path, &file) && file.st_size <= 1 << 20; i++)
        truce__clock_sleep_ms(10); /* the checkpoint continues concurrently with the writers */
    atomic_store(&reading, false);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    snprintf(name, sizeof name, "%s-wal", path);
    CHECK(!stat(name, &wal) && !stat(path, &file));
    CHECK_INT(wal.st_size, <, 96 << 20);
    CHECK_INT(file.st_size, >, 1 << 20);
    truce_store_close(store);
    check_whole();
    bson_free(pad);
}

/* ---- documents in memory -------------------------------------------------------------------- */

static void check_by_id(const char *collection, const char *expected)
{
    bson_t *filter = test_bson("{'_id': 1}"), found;
    bson_error_t error;
    truce_status status = truce_find_one(store, collection, filter, NULL, &found, &error);

    if (expected) {
        bson_t *wanted = test_bson(expected);

        CHECK_OK(status, error);
        CHECK_BSON(wanted, &found);
        bson_destroy(wanted);
    } else {
        CHECK_STATUS(TRUCE_NOT_FOUND, status, error);
    }
    bson_destroy(&found);
    bson_destroy(filter);
}

TEST(drops_cached_documents_with_their_collection)
{
    bson_error_t error;

    REQUIRE(open_new());
    insert("{'_id': 1, 'n': 1}");
    check_by_id("c", "{'_id': 1, 'n': 1}");
    CHECK_OK(truce_collection_rename(store, "c", "d", false, &error), error);
    check_by_id("c", NULL);
    check_by_id("d", "{'_id': 1, 'n': 1}");
    insert("{'_id': 1, 'n': 2}");
    check_by_id("c", "{'_id': 1, 'n': 2}");
    CHECK_OK(truce_collection_rename(store, "d", "c", true, &error), error);
    check_by_id("c", "{'_id': 1, 'n': 1}");
    CHECK_OK(truce_collection_drop(store, "c", &error), error);
    check_by_id("c", NULL);
    check_by_id("d", NULL);
    truce_store_close(store);
}

/* ---- cursors -------------------------------------------------------------------------------- */

TEST(shows_a_cursor_the_documents_of_its_beginning)
{
    truce_cursor *cursor;
    bson_error_t error;
    const bson_t *found;
    int seen = 0, last = -1;

    REQUIRE(open_new());
    for (int i = 0; i < 3000; i++)
        insert("{'_id': %d}", i);
    CHECK_OK(truce_find(store, "c", NULL, NULL, &cursor, &error), error);
    while (!truce_cursor_next(cursor, &found, &error) && found) {
        bson_iter_t iter;

        CHECK(bson_iter_init_find(&iter, found, "_id"));
        CHECK_INT(bson_iter_int32(&iter), >, last);
        last = bson_iter_int32(&iter);
        if (++seen == 10) {
            bson_t *filter = test_bson("{'_id': {'$gte': 2000}}");
            truce_write_options options = {.multi = true};

            CHECK_OK(truce_remove(store, "c", filter, &options, NULL, &error), error);
            insert("{'_id': 5000}");
            bson_destroy(filter);
        }
    }
    truce_cursor_close(cursor);
    CHECK_INT(seen, ==, 3000);
    CHECK_INT(last, ==, 2999);
    truce_store_close(store);
}

TEST(a_cursor_whose_collection_is_dropped_still_has_its_documents)
{
    truce_status status = TRUCE_OK;
    truce_cursor *cursor;
    bson_error_t error;
    const bson_t *found = NULL;
    int seen = 0;

    REQUIRE(open_new());
    for (int i = 0; i < 500; i++)
        insert("{'_id': %d}", i);
    CHECK_OK(truce_find(store, "c", NULL, NULL, &cursor, &error), error);
    CHECK_OK(truce_collection_drop(store, "c", &error), error);
    while (!(status = truce_cursor_next(cursor, &found, &error)) && found)
        seen++;
    CHECK_OK(status, error);
    CHECK_INT(seen, ==, 500);
    truce_cursor_close(cursor);
    truce_store_close(store);
}

/* ---- indexes -------------------------------------------------------------------------------- */

static atomic_int writing; /* 1: continue */

static void *write_on(void *arg)
{
    for (int i = 0; atomic_load(&writing); i++) {
        bson_t *filter = test_bson("{'_id': {'$lt': 4000}, 'a': {'$gt': 10}}");
        bson_t *update = test_bson("{'$inc': {'a': -1}, '$addToSet': {'t': 7}}");
        truce_write_options options = {.relaxed = true};
        bson_error_t error;

        CHECK_OK(truce_update(store, "c", filter, update, &options, NULL, &error), error);
        insert("{'_id': %d, 'a': %d, 't': [1]}", 100000 * (1 + (int)(intptr_t)arg) + i, i % 50);
        bson_destroy(filter);
        bson_destroy(update);
    }
    return NULL;
}

TEST(an_index_is_built_while_others_write)
{
    pthread_t threads[3];
    bson_error_t error;

    REQUIRE(open_new());
    for (int i = 0; i < 5000; i++)
        insert("{'_id': %d, 'a': %d, 't': [%d, 2]}", i, i % 100, i % 3);
    atomic_store(&writing, 1);
    for (intptr_t i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, write_on, (void *)i);
    CHECK_OK(create_index("{'key': {'a': 1}}", &error), error);
    CHECK_OK(create_index("{'key': {'t': 1, 'a': -1}}", &error), error);
    atomic_store(&writing, 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(count_indexes(), ==, 3);
    truce_store_close(store);
    check_whole();
}

static void *build_one(void *arg)
{
    bson_error_t error;

    CHECK_OK(create_index(arg ? "{'key': {'a': 1}}" : "{'key': {'b': 1}}", &error), error);
    return NULL;
}

TEST(two_threads_build_indexes_at_once)
{
    pthread_t threads[2];

    REQUIRE(open_new());
    for (int i = 0; i < 5000; i++)
        insert("{'_id': %d, 'a': %d, 'b': %d}", i, i % 100, i);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, build_one, i ? store : NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(count_indexes(), ==, 3);
    truce_store_close(store);
    check_whole();
}

TEST(a_unique_index_that_cannot_be_built_leaves_nothing)
{
    bson_error_t error;

    REQUIRE(open_new());
    for (int i = 0; i < 3000; i++)
        insert("{'_id': %d, 'a': %d, 'b': %d}", i, i == 2999 ? 5 : i, i);
    CHECK_STATUS(TRUCE_DUPLICATE, create_index("{'key': {'a': 1}, 'unique': true}", &error), error);
    CHECK_INT(error.code, ==, 11000);
    CHECK_INT(count_indexes(), ==, 1);
    insert("{'_id': 3000, 'a': 6}");
    CHECK_OK(create_index("{'key': {'b': 1}, 'unique': true}", &error), error);
    CHECK_INT(count_indexes(), ==, 2);
    truce_store_close(store);
    check_whole();
}

TEST(removes_the_unfinished_index_of_a_dead_builder)
{
    bson_error_t error;
    pid_t child;

    REQUIRE(open_new());
    for (int i = 0; i < 30000; i++)
        insert("{'_id': %d, 'a': %d}", i, i);
    truce_store_close(store);
    child = fork();
    if (!child) {
        if (!truce_store_open(path, NULL, &store, &error))
            (void)create_index("{'key': {'a': 1}}", &error);
        _exit(0);
    }
    truce__clock_sleep_ms(60);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    CHECK_OK(create_index("{'key': {'a': 1}, 'unique': true, 'name': 'other'}", &error), error);
    CHECK_INT(count("{'a': 77}"), ==, 1);
    truce_store_close(store);
    check_whole();
}

static void check_plan(const char *filter_json, const char *sort_json, const char *stage,
                       const char *index, int64_t examined)
{
    bson_t *filter = test_bson(filter_json), *sort = test_bson(sort_json);
    truce_find_options options = {.sort = sort};
    bson_error_t error;
    bson_iter_t iter, found;
    bson_t plan;
    char *text;

    CHECK_OK(truce_explain(store, "c", filter, &options, &plan, &error), error);
    text = bson_as_relaxed_extended_json(&plan, NULL);
    if (!strstr(text, stage) || (index && !strstr(text, index)))
        test_fail(__FILE__, __LINE__, "%s sorted by %s: %s", filter_json, sort_json, text);
    CHECK(bson_iter_init(&iter, &plan) &&
          bson_iter_find_descendant(&iter, "executionStats.totalDocsExamined", &found));
    CHECK_INT(bson_iter_as_int64(&found), ==, examined);
    bson_free(text);
    bson_destroy(&plan);
    bson_destroy(filter);
    bson_destroy(sort);
}

TEST(plans_use_the_index_that_serves_best)
{
    bson_error_t error;

    REQUIRE(open_new());
    for (int i = 0; i < 300; i++)
        insert("{'_id': %d, 'a': %d, 'b': %d, 'c': ['x%d'], 'd': {'e': %d}}", i, i % 10, i, i % 5,
               i);
    CHECK_OK(create_index("{'key': {'a': 1, 'b': -1}}", &error), error);
    CHECK_OK(create_index("{'key': {'c': 1}}", &error), error);
    CHECK_OK(create_index("{'key': {'d.$**': 1}}", &error), error);
    check_plan("{'_id': 7}", "{}", "IXSCAN", "_id_", 1);
    check_plan("{'a': 3}", "{}", "IXSCAN", "a_1_b_-1", 30);
    check_plan("{'a': 3, 'b': {'$gt': 200}}", "{}", "IXSCAN", "a_1_b_-1", 10);
    check_plan("{'a': {'$in': [3, 4]}, 'b': {'$lt': 100}}", "{}", "IXSCAN", "a_1_b_-1", 20);
    check_plan("{'a': 3}", "{'b': 1}", "backward", "a_1_b_-1", 30);
    check_plan("{'a': 3}", "{'b': -1}", "forward", "a_1_b_-1", 30);
    check_plan("{'a': 3}", "{'_id': 1}", "SORT", "a_1_b_-1", 30);
    check_plan("{}", "{'a': 1, 'b': -1}", "IXSCAN", "a_1_b_-1", 300);
    check_plan("{}", "{'a': 1, 'b': 1}", "SORT", "COLLSCAN", 300);
    check_plan("{'c': 'x2'}", "{}", "IXSCAN", "c_1", 60);
    check_plan("{'c': {'$regex': '^x2'}}", "{}", "IXSCAN", "c_1", 60);
    check_plan("{'$or': [{'a': 3}, {'c': 'x1'}]}", "{}", "\"OR\"", "c_1", 90);
    check_plan("{'$or': [{'a': 3}, {'z': 1}]}", "{}", "COLLSCAN", NULL, 300);
    check_plan("{'d.e': 5}", "{}", "IXSCAN", "d.$**_1", 1);
    check_plan("{'b': 5}", "{}", "COLLSCAN", NULL, 300);
    truce_store_close(store);
}
