/*
 * The files of a store are removed, moved, replaced, cut, and written over while it is open: the
 * file, its log, the index of the log, and the lock file. Every write that is acknowledged
 * afterwards is in the store after a kill. Every process and every reader is refused with an error
 * that names the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/damage.h"
#include "tests/support/test.h"
#include "truce/commit.h"
#include "truce/store.h"

enum { BEFORE = 16, AFTER = 4, FIRST_AFTER = 1000 };

static char path[400];

static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};

static const char *name_of(const char *suffix)
{
    static char name[440];

    snprintf(name, sizeof name, "%s%s", path, suffix);
    return name;
}

static void new_path(void)
{
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
}

/* ---- changes of a file ----------------------------------------------------------------------- */

static void write_in_place(const char *name, const struct image *content, bool cut)
{
    int file = open(name, O_WRONLY | (cut ? O_TRUNC : 0));

    CHECK(file >= 0 && write(file, content->bytes, content->size) == (ssize_t)content->size);
    close(file);
}

static void write_new(const char *name, const struct image *content)
{
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    CHECK(file >= 0 && write(file, content->bytes, content->size) == (ssize_t)content->size);
    close(file);
}

static struct image older; /* of the file, from before the last inserts */

enum way {
    REMOVE,
    MOVE_AWAY,
    MOVE_AND_LINK,
    REPLACE,           /* by another file, with rename(2) */
    REPLACE_BY_ITSELF, /* by a copy of it, as rsync does */
    REMOVE_AND_CREATE, /* an empty file */
    CUT,               /* to nothing */
    CUT_IN_HALF,
    COPY_OVER,          /* an older copy, as cp makes it */
    COPY_OVER_IN_PLACE, /* the same, without cutting it first */
    ZEROES,             /* in place */
    WAYS,
    ONE_BIT, /* in the middle, of a log that is closed */
};

static void harm(const char *suffix, enum way way)
{
    char name[440], moved[460];
    struct image now = {0}, zeroes;
    struct stat found;

    snprintf(name, sizeof name, "%s", name_of(suffix));
    snprintf(moved, sizeof moved, "%s.moved", name);
    truce__clock_sleep_ms(25); /* so that a time of change differs */
    if (!image_read(&now, name))
        return;
    zeroes = (struct image){bson_malloc0(now.size + 1), now.size};
    switch (way) {
    case REMOVE:
        CHECK(!unlink(name));
        break;
    case MOVE_AWAY:
        CHECK(!rename(name, moved));
        break;
    case MOVE_AND_LINK:
        CHECK(!rename(name, moved) && !symlink(moved, name));
        break;
    case REPLACE:
    case REPLACE_BY_ITSELF:
        write_new(moved, way == REPLACE ? &older : &now);
        CHECK(!rename(moved, name));
        break;
    case REMOVE_AND_CREATE:
        CHECK(!unlink(name));
        write_new(name, &(struct image){(uint8_t *)"", 0});
        break;
    case CUT:
        CHECK(!truncate(name, 0));
        break;
    case CUT_IN_HALF:
        CHECK(!stat(name, &found) && !truncate(name, found.st_size / 2));
        break;
    case ONE_BIT:
        now.bytes[now.size / 2] ^= 1;
        write_in_place(name, &now, false);
        break;
    case COPY_OVER:
        write_in_place(name, &older, true);
        break;
    case COPY_OVER_IN_PLACE:
        write_in_place(name, &older, false);
        break;
    default:
        write_in_place(name, &zeroes, false);
    }
    bson_free(zeroes.bytes);
    image_release(&now);
}

/* ---- a process that writes ------------------------------------------------------------------- */

static truce_status insert(truce_store *store, int id, bson_error_t *error)
{
    char text[1200];
    bson_t *document;
    truce_status status;

    memset(text, 'a' + id % 26, sizeof text - 1);
    text[sizeof text - 1] = 0;
    document = BCON_NEW("_id", BCON_INT32(id), "text", BCON_UTF8(text));
    status = truce_insert(store, "c", document, NULL, error);
    bson_destroy(document);
    return status;
}

struct outcome {
    int acknowledged; /* after the harm */
    truce_status status;
    char message[300];
};

static int outcomes[2], orders[2], late_orders[2];

static void pass(int descriptor)
{
    CHECK(write(descriptor, "x", 1) == 1);
}

static void await(int descriptor)
{
    char byte;

    CHECK(read(descriptor, &byte, 1) == 1);
}

static void write_and_report(truce_store *store, int from)
{
    struct outcome outcome = {0};
    bson_error_t error = {0};

    for (int i = 0; i < AFTER; i++) {
        truce_status status = insert(store, from + i, &error);

        outcome.acknowledged += !status;
        if (status) {
            outcome.status = status;
            snprintf(outcome.message, sizeof outcome.message, "%.299s", error.message);
        }
    }
    CHECK(write(outcomes[1], &outcome, sizeof outcome) == sizeof outcome);
}

/* Another process has the store open as well. */
static _Noreturn void write_second(void)
{
    truce_store *store;
    bson_error_t error;

    if (CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        CHECK_OK(insert(store, BEFORE, &error), error);
    pass(outcomes[1]);
    await(late_orders[0]);
    write_and_report(store, FIRST_AFTER + AFTER);
    kill(getpid(), SIGKILL);
    _exit(1);
}

/* Inserts, damages the file, inserts more, and dies; then the second process does the same. */
static _Noreturn void write_first(const char *suffix, enum way way, bool second)
{
    truce_store *store;
    bson_error_t error;

    if (truce_store_open(path, NULL, &store, &error))
        _exit(1);
    for (int i = 0; i < BEFORE / 2; i++)
        CHECK_OK(insert(store, i, &error), error);
    CHECK(image_read(&older, name_of(suffix)));
    for (int i = BEFORE / 2; i < BEFORE; i++)
        CHECK_OK(insert(store, i, &error), error);
    if (second) {
        pass(outcomes[1]);
        await(orders[0]);
    }
    harm(suffix, way);
    write_and_report(store, FIRST_AFTER);
    kill(getpid(), SIGKILL);
    _exit(1);
}

static void check_killed(pid_t child)
{
    int state;

    CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
}

/* Every way except these two keeps the contents of the file. */
static bool may_be_harmless(const char *suffix, enum way way)
{
    bool in_place = way == COPY_OVER || way == COPY_OVER_IN_PLACE || way == ZEROES;

    return in_place && (!strcmp(suffix, "-shm") || !strcmp(suffix, "-lock"));
}

static int check_outcome(const char *suffix, enum way way)
{
    struct outcome outcome = {0};

    if (!CHECK(read(outcomes[0], &outcome, sizeof outcome) == sizeof outcome))
        return 0;
    if (may_be_harmless(suffix, way))
        return outcome.acknowledged;
    if (!CHECK_INT(outcome.acknowledged, ==, 0) || !CHECK_INT(outcome.status, ==, TRUCE_CORRUPT) ||
        !CHECK(strstr(outcome.message, name_of(suffix))))
        fprintf(stderr, "  file \"%s\", way %d: %s\n", suffix, way, outcome.message);
    return outcome.acknowledged;
}

static void check_there(int acknowledged)
{
    bson_t *filter = BCON_NEW("_id", "{", "$gte", BCON_INT32(FIRST_AFTER), "}");
    truce_store *store;
    bson_error_t error;
    int64_t count = 0;

    if (acknowledged && CHECK_OK(truce_store_open(path, NULL, &store, &error), error)) {
        CHECK_OK(truce_count(store, "c", filter, NULL, &count, &error), error);
        CHECK_INT(count, >=, acknowledged);
        truce_store_close(store);
    }
    bson_destroy(filter);
}

static void run_case(const char *suffix, enum way way, bool second)
{
    pid_t first_child, second_child = 0;
    int acknowledged;

    new_path();
    REQUIRE(!pipe(outcomes) && !pipe(orders) && !pipe(late_orders));
    fflush(NULL);
    first_child = fork();
    if (!first_child)
        write_first(suffix, way, second);
    if (second) {
        await(outcomes[0]);
        second_child = fork();
        if (!second_child)
            write_second();
        await(outcomes[0]);
        pass(orders[1]);
    }
    acknowledged = check_outcome(suffix, way);
    check_killed(first_child);
    if (second) {
        pass(late_orders[1]);
        acknowledged += check_outcome(suffix, way);
        check_killed(second_child);
    }
    check_there(acknowledged);
    for (int i = 0; i < 2; i++) {
        close(outcomes[i]);
        close(orders[i]);
        close(late_orders[i]);
    }
}

TEST(no_write_is_acknowledged_once_a_file_is_changed)
{
    for (size_t i = 0; i < 4; i++)
        for (enum way way = 0; way < WAYS; way++)
            run_case(suffixes[i], way, false);
}

TEST(no_process_acknowledges_a_write_once_a_file_is_changed)
{
    for (size_t i = 0; i < 4; i++)
        for (enum way way = 0; way < WAYS; way++)
            run_case(suffixes[i], way, true);
}

/* ---- in one process -------------------------------------------------------------------------- */

static truce_store *store;

static bool make_open(void)
{
    bson_error_t error;

    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return false;
    for (int i = 0; i < BEFORE; i++)
        CHECK_OK(insert(store, i, &error), error);
    return true;
}

static truce_status count_all(truce_store *of, int64_t *count, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("text", "{", "$gte", "", "}");
    truce_status status = truce_count(of, "c", filter, NULL, count, error);

    bson_destroy(filter);
    return status;
}

TEST(a_reader_is_refused_before_long)
{
    static const enum way ways[] = {REMOVE, MOVE_AWAY, REPLACE_BY_ITSELF, REMOVE_AND_CREATE};
    static const char *const of[] = {"-wal", "-shm"};

    for (size_t i = 0; i < 8; i++) {
        const truce_store_options reading = {.read_only = true};
        int64_t until_ns = truce__clock_monotonic_ns() + INT64_C(60000000000), count;
        truce_status status = TRUCE_OK;
        truce_store *reader, *late;
        bson_error_t error;

        new_path();
        REQUIRE(make_open());
        REQUIRE(CHECK_OK(truce_store_open(path, &reading, &reader, &error), error));
        CHECK_OK(count_all(reader, &count, &error), error);
        harm(of[i / 4], ways[i % 4]);
        while (!status && truce__clock_monotonic_ns() < until_ns) {
            status = count_all(reader, &count, &error);
            CHECK(status || count == BEFORE);
            truce__clock_sleep_ms(5);
        }
        CHECK_STATUS(TRUCE_CORRUPT, status, error);
        CHECK(strstr(error.message, name_of(of[i / 4])));
        CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, NULL, &late, &error), error);
        CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, &reading, &late, &error), error);
        truce_store_close(reader);
        truce_store_close(store);
    }
}

static truce_status read_cached(bool many, bson_error_t *error)
{
    const bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 3};
    truce_read_request request = {.collection = "c", .id = &id};
    bson_t *filter = BCON_NEW("_id", BCON_INT32(3)), document = BSON_INITIALIZER;
    truce_status status = many ? truce_read_many(store, &request, 1, NULL, error)
                               : truce_find_one(store, "c", filter, NULL, &document, error);

    if (many)
        bson_destroy(&request.document);
    bson_destroy(&document);
    bson_destroy(filter);
    return status;
}

/* The cache alone would return the document forever. */
TEST(refuses_a_cached_document_soon_after_its_file_was_replaced)
{
    static const enum way ways[] = {REPLACE_BY_ITSELF, REMOVE_AND_CREATE};
    static const char *const of[] = {"", "-wal"};

    for (size_t i = 0; i < 8; i++) {
        int64_t until_ns = truce__clock_monotonic_ns() + INT64_C(60000000000);
        bool many = i % 2;
        truce_status status = TRUCE_OK;
        bson_error_t error = {0};

        new_path();
        REQUIRE(make_open());
        CHECK_OK(read_cached(many, &error), error);
        CHECK_OK(read_cached(many, &error), error);
        harm(of[i / 4], ways[i / 2 % 2]);
        while (!status && truce__clock_monotonic_ns() < until_ns) {
            status = read_cached(many, &error);
            truce__clock_sleep_ms(5);
        }
        CHECK_STATUS(TRUCE_CORRUPT, status, error);
        CHECK(strstr(error.message, name_of(of[i / 4])));
        CHECK_STATUS(TRUCE_CORRUPT, read_cached(many, &error), error);
        truce_store_close(store);
    }
}

/* The process that still has the log moves all of it into the file. */
TEST(loses_no_data_if_the_log_was_removed_and_the_store_is_closed)
{
    static const enum way ways[] = {REMOVE, MOVE_AWAY, REMOVE_AND_CREATE, REPLACE_BY_ITSELF};

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        bson_error_t error;
        int64_t count = 0;

        new_path();
        REQUIRE(make_open());
        harm("-wal", ways[i]);
        CHECK_STATUS(TRUCE_CORRUPT, insert(store, FIRST_AFTER, &error), error);
        truce_store_close(store);
        if (ways[i] == REPLACE_BY_ITSELF)
            REQUIRE(!unlink(name_of("-wal")));
        REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
        CHECK_OK(count_all(store, &count, &error), error);
        CHECK_INT(count, ==, BEFORE);
        CHECK_OK(insert(store, FIRST_AFTER, &error), error);
        truce_store_close(store);
    }
}

/* ---- after a kill ---------------------------------------------------------------------------- */

static void make_killed(void)
{
    int state;
    pid_t child;

    new_path();
    fflush(NULL);
    child = fork();
    if (!child) {
        if (!make_open())
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
}

TEST(a_killed_store_does_not_open_without_its_log)
{
    static const enum way ways[] = {REMOVE,      MOVE_AWAY, REMOVE_AND_CREATE, REPLACE, CUT,
                                    CUT_IN_HALF, ONE_BIT};

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        bson_error_t error;

        make_killed();
        REQUIRE(image_read(&older, name_of("-wal")));
        harm("-wal", ways[i]);
        CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, NULL, &store, &error), error);
        CHECK(strstr(error.message, name_of("-wal")));
        if (ways[i] == MOVE_AWAY) {
            char moved[460];
            int64_t count;

            snprintf(moved, sizeof moved, "%s.moved", name_of("-wal"));
            REQUIRE(!rename(moved, name_of("-wal")));
            REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
            CHECK_OK(count_all(store, &count, &error), error);
            CHECK_INT(count, ==, BEFORE);
            truce_store_close(store);
        } else {
            /* the remedy that the message names */
            unlink(name_of("-wal"));
            unlink(name_of("-lock"));
            REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
            truce_store_close(store);
        }
        image_release(&older);
    }
}

/* SQLite would treat such a log as empty. */
TEST(refuses_to_open_a_killed_store_with_a_damaged_log_header)
{
    enum { HEADER = 32 };

    bson_error_t error;
    int64_t count;

    make_killed();
    REQUIRE(image_read(&older, name_of("-wal")));
    for (int i = 0; i < 2 * HEADER; i++) {
        older.bytes[i % HEADER] ^= 16;
        write_in_place(name_of("-wal"), &older, false);
        if (i == HEADER)
            REQUIRE(!unlink(name_of("-lock")));
        CHECK_STATUS(TRUCE_CORRUPT, truce_store_open(path, NULL, &store, &error), error);
        CHECK(strstr(error.message, name_of("-wal")));
        older.bytes[i % HEADER] ^= 16;
    }
    write_in_place(name_of("-wal"), &older, false);
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    CHECK_OK(count_all(store, &count, &error), error);
    CHECK_INT(count, ==, BEFORE);
    truce_store_close(store);
    image_release(&older);
}

/* SQLite would remove the log, whose commits may be all that is left. */
TEST(a_log_without_its_file_is_not_removed)
{
    for (int i = 0; i < 8; i++) {
        const truce_store_options options = {.read_only = i & 4};
        bson_error_t error;
        struct image now;

        make_killed();
        REQUIRE(image_read(&older, name_of("-wal")));
        CHECK(i & 1 ? !unlink(path) : !truncate(path, 0));
        CHECK(i & 2 || !unlink(name_of("-lock")));
        if (!CHECK(truce_store_open(path, &options, &store, &error) != TRUCE_OK))
            truce_store_close(store);
        REQUIRE(image_read(&now, name_of("-wal")));
        CHECK(now.size == older.size && !memcmp(now.bytes, older.bytes, now.size));
        image_release(&now);
        image_release(&older);
    }
}

/* The index is made again from the log. */
TEST(a_killed_store_needs_no_index_of_its_log)
{
    for (enum way way = 0; way < WAYS; way++) {
        bson_error_t error;
        int64_t count;

        if (way == MOVE_AND_LINK) /* SQLite opens no link */
            continue;
        make_killed();
        REQUIRE(image_read(&older, name_of("-shm")));
        harm("-shm", way);
        REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
        CHECK_OK(count_all(store, &count, &error), error);
        CHECK_INT(count, ==, BEFORE);
        truce_store_close(store);
        image_release(&older);
    }
}

/* ---- a process that only reads --------------------------------------------------------------- */

/* SQLite's lock of a process that has the index of the log open. */
#define INDEX_LOCK 128

/* A process that has the store open, until it is killed. */
static pid_t hold_open(bool read_only)
{
    const truce_store_options options = {.read_only = read_only};
    bson_t document = BSON_INITIALIZER;
    truce_store *held;
    int reported[2];
    char byte;
    pid_t child;

    CHECK(!pipe(reported));
    child = fork();
    if (!child) {
        if (truce_store_open(path, &options, &held, NULL) ||
            (!read_only && truce_insert(held, "c", &document, NULL, NULL)))
            _exit(1);
        (void)!write(reported[1], "x", 1);
        for (;;)
            pause();
    }
    close(reported[1]);
    CHECK_INT(read(reported[0], &byte, 1), ==, 1);
    close(reported[0]);
    return child;
}

/* Otherwise the next process would empty the index, and the others would find it cut. */
TEST(a_process_that_only_reads_keeps_the_index_of_the_log)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INDEX_LOCK, .l_len = 1};
    pid_t writer, reader;
    int file;

    new_path();
    writer = hold_open(false);
    reader = hold_open(true);
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    file = open(name_of("-shm"), O_RDWR);
    CHECK(file >= 0 && !fcntl(file, F_GETLK, &lock));
    CHECK_INT(lock.l_type, !=, F_UNLCK);
    close(file);
    kill(reader, SIGKILL);
    waitpid(reader, NULL, 0);
}
