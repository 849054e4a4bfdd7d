/*
 * SQLite programs without knowledge of truce, on a store in each of its states: they open nothing,
 * change no byte of the file or its log, and remove neither.
 */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/storage/file_format.h"
#include "tests/support/damage.h"
#include "tests/support/test.h"
#include "truce/store.h"
#include "truce/sweep.h"

enum { DOCUMENTS = 300 };

static char path[400], log_path[420];

static void new_path(void)
{
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    snprintf(log_path, sizeof log_path, "%s-wal", path);
}

static void fill(truce_store *store, int from, int to)
{
    bson_error_t error;

    for (int i = from; i < to; i++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(i), "text", "some text of a document");

        CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
        bson_destroy(document);
    }
}

static void make_closed(void)
{
    truce_store *store;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return;
    fill(store, 0, DOCUMENTS / 2);
    truce_store_close(store);
}

/* A process fills the store, and is killed. */
static void make_killed(void)
{
    int state;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (!child) {
        truce_store *store;
        bson_error_t error;

        if (truce_store_open(path, NULL, &store, &error))
            _exit(1);
        fill(store, DOCUMENTS / 2, DOCUMENTS);
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
}

static void check_all_there(truce_store *store, int documents)
{
    bson_t *filter = BCON_NEW("text", "some text of a document");
    truce_check_report report;
    int64_t count = 0;
    bson_error_t error;

    CHECK_OK(truce_count(store, "c", filter, NULL, &count, &error), error);
    CHECK_INT(count, ==, documents);
    CHECK_OK(truce_check(store, NULL, NULL, NULL, &report, &error), error);
    CHECK_INT(report.findings, ==, 0);
    bson_destroy(filter);
}

static void check_opens(int documents)
{
    truce_store *store;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return;
    check_all_there(store, documents);
    truce_store_close(store);
}

/* ---- actions of other programs --------------------------------------------------------------- */

static const char *const statements[] = {
    "SELECT count(*) FROM sqlite_master",
    "PRAGMA integrity_check",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA journal_mode=DELETE",
    "PRAGMA journal_mode=WAL",
    "PRAGMA locking_mode=EXCLUSIVE; SELECT count(*) FROM sqlite_master",
    "CREATE TABLE _litestream_seq(id INTEGER PRIMARY KEY, seq INTEGER)",
    "BEGIN IMMEDIATE; CREATE TABLE t(x); COMMIT",
    "PRAGMA writable_schema=ON; DELETE FROM sqlite_master",
    "VACUUM",
};

/* How the file is opened, by a URI; %s is its path. */
static const char *const ways[] = {
    "file:%s",
    "file:%s?mode=ro",
    "file:%s?immutable=1",
    "file:%s?vfs=unix-none",
    "file:%s?vfs=unix-excl",
    "file:%s?nolock=1",
};

static void run_statement(const char *way, const char *name, const char *sql)
{
    sqlite3 *db;
    char uri[500];

    snprintf(uri, sizeof uri, way, name);
    if (!sqlite3_open_v2(uri, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI,
                         NULL)) {
        if (!CHECK(sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK))
            fprintf(stderr, "%s: %s\n", uri, sql);
        (void)sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    }
    sqlite3_close(db);
}

static bool is_same(const struct image *image, const char *name)
{
    struct image now;
    bool same;

    if (!image_read(&now, name))
        return false;
    same = now.size == image->size && !memcmp(now.bytes, image->bytes, now.size);
    image_release(&now);
    return same;
}

static void try_everything(const char *name)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (size_t j = 0; j < sizeof statements / sizeof *statements; j++)
            run_statement(ways[i], name, statements[j]);
}

TEST(a_closed_store_is_not_a_database_for_other_programs)
{
    struct image file;

    new_path();
    make_closed();
    REQUIRE(image_read(&file, path));
    try_everything(path);
    CHECK(is_same(&file, path));
    image_release(&file);
    check_opens(DOCUMENTS / 2);
}

TEST(a_killed_store_is_not_a_database_for_other_programs)
{
    struct image file, log;

    new_path();
    make_closed();
    make_killed();
    REQUIRE(image_read(&file, path) && image_read(&log, log_path));
    CHECK_INT(log.size, >, 4096);
    try_everything(path);
    CHECK(is_same(&file, path));
    CHECK(is_same(&log, log_path));
    image_release(&file);
    image_release(&log);
    check_opens(DOCUMENTS);
}

/* Without a checkpoint all that was committed is in the log. */
TEST(hides_a_store_without_a_checkpoint_from_other_programs)
{
    struct image log;

    new_path();
    make_killed();
    REQUIRE(image_read(&log, log_path));
    try_everything(path);
    CHECK(is_same(&log, log_path));
    image_release(&log);
    check_opens(DOCUMENTS / 2);
}

static int to_holder[2], from_holder[2];

static void pass(int descriptor)
{
    CHECK(write(descriptor, "x", 1) == 1);
}

static void await(int descriptor)
{
    char byte;

    CHECK(read(descriptor, &byte, 1) == 1);
}

/* Has the store open while the other programs run. */
static _Noreturn void hold_open(void)
{
    truce_store *store;
    bson_error_t error;

    if (CHECK_OK(truce_store_open(path, NULL, &store, &error), error)) {
        fill(store, DOCUMENTS / 2, DOCUMENTS);
        pass(from_holder[1]);
        await(to_holder[0]);
        fill(store, DOCUMENTS, DOCUMENTS + 50);
        check_all_there(store, DOCUMENTS + 50);
        truce_store_close(store);
    }
    test_child_exit();
}

TEST(an_open_store_is_not_a_database_for_other_programs)
{
    struct image file, log;
    int state;
    pid_t child;

    new_path();
    make_closed();
    REQUIRE(!pipe(to_holder) && !pipe(from_holder));
    fflush(NULL);
    child = fork();
    if (!child)
        hold_open();
    await(from_holder[0]);
    REQUIRE(image_read(&file, path) && image_read(&log, log_path));
    try_everything(path);
    CHECK(is_same(&file, path));
    CHECK(is_same(&log, log_path));
    pass(to_holder[1]);
    CHECK(waitpid(child, &state, 0) == child && !state);
    image_release(&file);
    image_release(&log);
    check_opens(DOCUMENTS + 50);
}

/* A backup tool that copies file and log under other names. */
TEST(other_programs_do_not_open_copies_of_file_and_log)
{
    char copy[420], copied_log[440];
    struct image file, log;

    new_path();
    make_closed();
    make_killed();
    snprintf(copy, sizeof copy, "%s.db", path);
    snprintf(copied_log, sizeof copied_log, "%s-wal", copy);
    REQUIRE(image_read(&file, path) && image_read(&log, log_path));
    REQUIRE(image_write(&file, copy) && image_write(&log, copied_log));
    try_everything(copy);
    try_everything(log_path);
    CHECK(is_same(&file, copy));
    CHECK(is_same(&log, copied_log));
    CHECK(is_same(&log, log_path));
    image_release(&file);
    image_release(&log);
    check_opens(DOCUMENTS);
}

/* ---- files that are not stores of this format ------------------------------------------------ */

static bool is_alone(void)
{
    static const char *const ends[] = {"-lock", "-wal", "-shm", "-journal"};
    char name[440];
    bool alone = true;

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        alone = alone && access(name, F_OK) != 0;
    }
    return alone;
}

/* The file is refused, is not changed, and has no new file next to it. */
static void check_refused(truce_status expected, const char *words)
{
    const truce_store_options reading = {.read_only = true};
    truce_store *store;
    bson_error_t error = {0};
    struct image before;

    REQUIRE(image_read(&before, path));
    CHECK_STATUS(expected, truce_store_open(path, NULL, &store, &error), error);
    CHECK(strstr(error.message, words));
    CHECK_STATUS(expected, truce_store_open(path, &reading, &store, &error), error);
    CHECK(strstr(error.message, words));
    CHECK(is_same(&before, path));
    CHECK(is_alone());
    image_release(&before);
}

static void make_database(const char *sql)
{
    sqlite3 *db;

    CHECK(!sqlite3_open(path, &db) && !sqlite3_exec(db, sql, NULL, NULL, NULL));
    sqlite3_close(db);
}

TEST(a_database_of_another_program_is_refused_and_left_as_it_was)
{
    new_path();
    make_database("CREATE TABLE t(x); INSERT INTO t VALUES(1)");
    check_refused(TRUCE_CORRUPT, "an SQLite file of another program");
    unlink(path);
    make_database("PRAGMA journal_mode=WAL; CREATE TABLE t(x); PRAGMA application_id=5");
    check_refused(TRUCE_CORRUPT, "an SQLite file of another program");
}

TEST(a_store_of_an_earlier_format_is_refused_by_name)
{
    char command[1200];

    new_path();
    snprintf(command, sizeof command, "gzip -dc '%s/format1.truce.gz' > '%s'", TRUCE_TEST_DATA,
             path);
    REQUIRE(system(command) == 0);
    check_refused(TRUCE_INVALID, "before the first release");
    unlink(path);
    make_database("PRAGMA application_id=1953658211; PRAGMA user_version=4; CREATE TABLE t(x)");
    check_refused(TRUCE_INVALID, "truce export");
}

TEST(a_file_of_something_else_is_refused_and_left_as_it_was)
{
    static const char text[] = "a text that is not a store, whatever it begins with\n";
    char bytes[9000];

    new_path();
    for (size_t size = 2; size <= sizeof bytes; size = size * 3 + 40) {
        for (size_t i = 0; i < size; i++)
            bytes[i] = text[i % (sizeof text - 1)];
        REQUIRE(image_write(&(struct image){(uint8_t *)bytes, size}, path));
        check_refused(TRUCE_CORRUPT, "is not a truce store");
    }
}

/* A reader refuses an empty file and leaves nothing next to it. A writer makes it a store. */
TEST(an_empty_file_becomes_a_store_by_a_writer_only)
{
    const truce_store_options reading = {.read_only = true};
    truce_store *store;
    bson_error_t error = {0};

    new_path();
    REQUIRE(image_write(&(struct image){(uint8_t *)"", 0}, path));
    CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, &reading, &store, &error), error);
    CHECK(strstr(error.message, "is not a truce store: it is empty"));
    CHECK(is_alone());
    make_closed();
    check_opens(DOCUMENTS / 2);
}

/* A process was killed before the first commit. */
TEST(a_reader_reports_an_interrupted_creation)
{
    const truce_store_options reading = {.read_only = true};
    truce_store *store;
    bson_error_t error = {0};

    new_path();
    CHECK_OK(truce__kv_file_create(path, &error), error);
    CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, &reading, &store, &error), error);
    CHECK(strstr(error.message, "its creation has not ended, and the next write completes it"));
    make_closed();
    check_opens(DOCUMENTS / 2);
}

/* Another program has the database open, with a log and its index. */
TEST(an_open_database_of_another_program_is_refused_without_a_lock_file)
{
    char lock[440];
    truce_store *store;
    bson_error_t error = {0};
    sqlite3 *db;

    new_path();
    snprintf(lock, sizeof lock, "%s-lock", path);
    CHECK(!sqlite3_open(path, &db) &&
          !sqlite3_exec(db, "PRAGMA journal_mode=WAL; CREATE TABLE t(x)", NULL, NULL, NULL));
    CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, NULL, &store, &error), error);
    CHECK(strstr(error.message, "an SQLite file of another program"));
    CHECK(access(lock, F_OK) != 0);
    sqlite3_close(db);
}

/* ---- the first snapshot ---------------------------------------------------------------------- */

/* A new file has its first page when it gets its name. If the file system has no unnamed files, it
 * becomes a store or a database, depending on the first program, and never both. */
TEST(another_program_that_meets_a_store_in_its_making_leaves_it_whole)
{
    for (int i = 0; i < 20; i++) {
        truce_store *store;
        bson_error_t error = {0};
        int state;
        pid_t child;
        truce_status status;

        new_path();
        unlink(path);
        fflush(NULL);
        child = fork();
        if (!child) {
            char uri[500];
            sqlite3 *db;
            int made = 0;

            snprintf(uri, sizeof uri, "file:%s?mode=rw", path);
            for (int tries = 0; tries < 500 && !made; tries++) {
                if (!sqlite3_open_v2(uri, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI, NULL))
                    made = !sqlite3_exec(db,
                                         i % 2 ? "CREATE TABLE t(x)"
                                               : "SELECT * FROM sqlite_master WHERE 0; "
                                                 "PRAGMA wal_checkpoint",
                                         NULL, NULL, NULL) &&
                           i % 2;
                sqlite3_close(db);
            }
            _exit(made ? 3 : 0);
        }
        usleep((useconds_t)(i * 100));
        status = truce_store_open(path, NULL, &store, &error);
        if (!status) {
            fill(store, 0, 10);
            truce_store_close(store);
        }
        CHECK(waitpid(child, &state, 0) == child && WIFEXITED(state));
        if (WEXITSTATUS(state) == 3)
            CHECK_STATUS(TRUCE_CORRUPT, status, error);
        else if (CHECK_OK(status, error))
            check_opens(10);
        unlink(path);
        unlink(log_path);
    }
}

static pid_t early_program;

/* Opens a file for SQLite, as open(2) does. When SQLite has opened the new file for truce, another
 * program opens the file before truce continues. */
static int open_with_another_program(const char *name, int flags, int mode)
{
    int file = open(name, flags, mode);

    if (early_program && file >= 0 && flags & O_CREAT && !strcmp(name, path)) {
        early_program = 0;
        pass(to_holder[1]);
        await(from_holder[0]);
    }
    return file;
}

/* Opens the file as soon as it exists. Reads it and moves its log when truce has written to it. */
static _Noreturn void open_early(void)
{
    sqlite3 *db;
    int moved = -1;

    close(to_holder[1]);
    await(to_holder[0]);
    CHECK(!sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, "unix"));
    pass(from_holder[1]);
    await(to_holder[0]);
    CHECK(sqlite3_exec(db, "SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL));
    CHECK(sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, &moved));
    CHECK_INT(moved, <=, 0);
    pass(from_holder[1]);
    await(to_holder[0]);
    sqlite3_close(db);
    test_child_exit();
}

/* Returns whether the file system of the test can create a file without a name. */
static bool has_unnamed_files(void)
{
    char directory[400];
    int file;

    snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
    file = open(directory, O_TMPFILE | O_RDWR, 0600);
    if (file >= 0)
        close(file);
    return file >= 0;
}

TEST(another_program_cannot_open_a_new_store_while_it_is_empty)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
    truce_store *store;
    bson_error_t error;
    pid_t child;
    int state;

    new_path();
    if (!has_unnamed_files()) {
        test_skip("the file system has no unnamed files");
        return;
    }
    REQUIRE(vfs && !pipe(to_holder) && !pipe(from_holder));
    fflush(NULL);
    child = fork();
    if (!child)
        open_early();
    early_program = child;
    vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_with_another_program);
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    vfs->xSetSystemCall(vfs, "open", NULL);
    REQUIRE(!early_program);
    fill(store, 0, DOCUMENTS / 2);
    pass(to_holder[1]);
    await(from_holder[0]);
    fill(store, DOCUMENTS / 2, DOCUMENTS);
    truce_store_close(store);
    pass(to_holder[1]);
    CHECK(waitpid(child, &state, 0) == child && !state);
    check_opens(DOCUMENTS);
}
