/*
 * Archives under faults: kills at every call to the target, targets that fail, damaged, missing,
 * and foreign segments, replaced files, and restores to random times.
 *
 * TRUCE_ARCHIVE_ROUNDS: how many random lives.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/random.h"
#include "engine/documents/open_documents.h"
#include "engine/engine.h"
#include "engine/storage/log_archive.h"
#include "store/file/file.h"
#include "tests/support/archive_rig.h"
#include "tests/support/test.h"
#include "truce/sweep.h"

/* ---- tests ---------------------------------------------------------------------------------- */

/* Inserts without a wait for the disk. */
static bool insert_relaxed(int id)
{
    const truce_write_options options = {.relaxed = true};
    bson_t document = BSON_INITIALIZER;
    bson_error_t error;
    bool fine;

    BSON_APPEND_INT32(&document, "_id", id);
    fine = CHECK_OK(truce_insert(world.store, "things", &document, &options, &error), error);
    bson_destroy(&document);
    return fine;
}

TEST(restores_what_was_archived)
{
    bson_error_t error;

    REQUIRE(environment_open() && insert_many(1, 50, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(restored_last(), ==, 50);
    REQUIRE(insert_many(51, 60, 5000));
    CHECK_INT(restored_last(), ==, 50);
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(restored_last(), ==, 60);
    /* The log continues, so no new generation was needed. */
    CHECK_INT(atomic_load(&world.events[ARCHIVE_GENERATION]), ==, 1);
    CHECK(verifies());
    world_close();
}

TEST(begins_a_generation_after_the_log_was_lost_to_the_archive)
{
    struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report;
    bson_error_t error;

    REQUIRE(environment_open() && insert_many(1, 20, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_OK(restore_to(&options, &report, &error), error);
    options.at_commit = report.commit;
    world_lose_log();
    REQUIRE(!truce_store_open(world.path, NULL, &world.store, &error));
    REQUIRE(insert_many(21, 30, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_GENERATION]), ==, 2);
    CHECK_INT(restored_last(), ==, 30);
    CHECK(verifies());
    /* The base of the new generation has later commits, and another number. */
    CHECK_OK(restore_to(&options, &report, &error), error);
    CHECK_INT(report.commit, ==, options.at_commit);
    CHECK_INT(report.generation, ==, 1);
    CHECK_INT(restored_things(), ==, 20);
    world_close();
}

/* The last process that closes the store leaves a log that the archive continues, so the next
 * archiver needs no new base. The file has everything without the log. */
TEST(continues_after_the_store_was_closed)
{
    bson_error_t error;
    int things = 0;

    REQUIRE(environment_open());
    for (int i = 0; i < 4; i++) {
        REQUIRE(insert_one(++things, 3000));
        CHECK_OK(archive_once(world.target, &error), error);
        for (int opened = 0; opened < 2; opened++) {
            truce_store_close(world.store);
            REQUIRE(!truce_store_open(world.path, NULL, &world.store, &error));
            REQUIRE(insert_one(++things, 3000));
        }
    }
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_GENERATION]), ==, 1);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_CONTINUES]), ==, 4);
    CHECK_INT(restored_last(), ==, things);
    CHECK(verifies());
    world_lose_log();
    REQUIRE(!truce_store_open(world.path, NULL, &world.store, &error));
    REQUIRE(insert_one(++things, 3000));
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(restored_last(), ==, things);
    world_close();
}

/* A log that is too long to be read at each opening is removed. */
TEST(removes_a_long_log_when_the_store_is_closed)
{
    bson_error_t error;
    char log[310];

    REQUIRE(environment_open() && insert_one(1, 100));
    snprintf(log, sizeof log, "%s-wal", world.path);
    CHECK_OK(archive_once(world.target, &error), error);
    truce_store_close(world.store);
    CHECK(!access(log, F_OK));
    REQUIRE(!truce_store_open(world.path, NULL, &world.store, &error));
    for (int i = 2; i < 12; i++)
        REQUIRE(insert_one(i, 2000000));
    truce_store_close(world.store);
    CHECK(access(log, F_OK) != 0);
    REQUIRE(!truce_store_open(world.path, NULL, &world.store, &error));
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(restored_last(), ==, 11);
    world_close();
}

/* With a period, the segments before the last base that is older than the period are removed. */
TEST(removes_what_no_restore_of_the_period_needs)
{
    struct restore_options options = {.at_commit = 1};
    struct restore_report report;
    bson_error_t error;
    char name[320];

    REQUIRE(environment_open() && insert_many(1, 20, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    world_lose_log();
    REQUIRE(!truce_store_open(world.path, NULL, &world.store, &error));
    REQUIRE(insert_many(21, 30, 10));
    world.options.keep_ms = 3600000;
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_REMOVED]), ==, 0);
    /* The age of the base is measured from a later segment. */
    truce__clock_sleep_ms(5);
    REQUIRE(insert_one(31, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    world.options.keep_ms = 1;
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_REMOVED]), ==, 1);
    snprintf(name, sizeof name, "%s/00000001", world.archive);
    CHECK(access(name, F_OK) != 0);
    CHECK_INT(restored_last(), ==, 31);
    CHECK(verifies());
    CHECK_STATUS(TRUCE_NOT_FOUND, restore_to(&options, &report, &error), error);
    world_close();
}

TEST(restores_every_commit)
{
    struct restore_options options = {0};
    struct restore_report report;
    bson_error_t error;
    int last = -1;
    uint64_t first, end;

    REQUIRE(environment_open() && insert_many(1, 5, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    archiver_start(world.target);
    REQUIRE(insert_many(6, 40, 3000));
    archiver_end();
    CHECK_OK(world.status, world.error);
    options.at_ms = INT64_MAX;
    CHECK_OK(restore_to(&options, &report, &error), error);
    end = report.commit;
    first = end - 35;
    for (uint64_t commit = first; commit <= end; commit++) {
        int things;

        options.at_commit = commit;
        if (!CHECK_OK(restore_to(&options, &report, &error), error))
            break;
        CHECK_INT(report.commit, ==, commit);
        things = restored_things();
        CHECK_INT(things, >=, last);
        CHECK_INT(things, <=, last < 0 ? 5 : last + 1);
        last = things;
    }
    CHECK_INT(last, ==, 40);
    options.at_commit = end + 1;
    CHECK_STATUS(TRUCE_NOT_FOUND, restore_to(&options, &report, &error), error);
    CHECK(access(world.restored, F_OK) != 0);
    world_close();
}

/* Makes checkpoints until one has let the log begin again. */
static bool checkpoint_now(void)
{
    const truce_store_options options = {.must_exist = true};
    struct checkpointer *checkpointer;
    struct engine *engine;
    bson_error_t error;
    bool done = false;

    if (!CHECK_OK(truce__engine_open(world.path, &options, &engine, &error), error))
        return false;
    checkpointer = &engine->checkpointer;
    for (int i = 0; i < 2000 && !done; i++) {
        truce__checkpointer_request(checkpointer);
        for (bool wanted = true; wanted;) {
            truce__clock_sleep_ms(1);
            pthread_mutex_lock(&checkpointer->mutex);
            wanted = checkpointer->wanted;
            done = checkpointer->done > 0;
            pthread_mutex_unlock(&checkpointer->mutex);
        }
    }
    truce__engine_close(engine);
    return CHECK(done);
}

static void *write_things(void *arg)
{
    int *things = arg;

    while (!atomic_load(&world.written) && insert_one(*things + 1, 20000))
        ++*things;
    return NULL;
}

/* Checkpoints let the log begin again while the archiver runs and a thread writes, and no commit is
 * lost to the archive. */
TEST(keeps_one_generation_through_checkpoints)
{
    int things = 0;
    pthread_t writer;

    REQUIRE(environment_open());
    archiver_start(world.target);
    pthread_create(&writer, NULL, write_things, &things);
    for (int i = 0; i < 5; i++) {
        truce__clock_sleep_ms(50);
        CHECK(checkpoint_now());
    }
    atomic_store(&world.written, true);
    pthread_join(writer, NULL);
    archiver_end();
    CHECK_OK(world.status, world.error);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_GENERATION]), ==, 1);
    CHECK_INT(restored_last(), ==, things);
    CHECK(verifies());
    world_close();
}

static int run_child(int kind, int until)
{
    pid_t child = fork();
    int status;

    if (!child) {
        bson_error_t error;

        _exit(archive_once(world_faulty(kind, until), &error) ? 1 : 0);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Kills the archiver before and after each of its calls, and archives again. */
TEST(survives_kills_at_every_call)
{
    bson_error_t error;
    int things = 0;

    REQUIRE(environment_open());
    for (int kind = FAULT_DIE_BEFORE; kind <= FAULT_DIE_AFTER; kind++) {
        for (int call = 1; call < 40 && !test_failures(); call++) {
            int code;

            REQUIRE(insert_many(things + 1, things + 3, 2000));
            things += 3;
            /* A child process must open the file itself. */
            world_lose_log();
            code = run_child(kind, call);
            REQUIRE(!truce_store_open(world.path, NULL, &world.store, &error));
            CHECK(code == 0 || code == 9);
            CHECK_OK(archive_once(world.target, &error), error);
            CHECK_INT(restored_last(), ==, things);
            if (!code)
                break;
        }
    }
    CHECK(verifies());
    world_close();
}

/* Kills a restore at each of its calls. It leaves no file under the name, and the next one
 * succeeds. */
TEST(restores_after_a_restore_was_killed)
{
    const struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report;
    bson_error_t error;
    int killed = 0;

    REQUIRE(environment_open() && insert_many(1, 10, 3000));
    CHECK_OK(archive_once(world.target, &error), error);
    REQUIRE(insert_many(11, 20, 3000));
    CHECK_OK(archive_once(world.target, &error), error);
    unlink(world.restored);
    for (int call = 1; call < 40; call++) {
        pid_t child = fork();
        int status;

        if (!child)
            _exit(truce__archive_restore(world_faulty(FAULT_DIE_BEFORE, call), world.restored,
                                         &options, &report, &error)
                      ? 1
                      : 0);
        waitpid(child, &status, 0);
        if (WEXITSTATUS(status) != 9)
            break;
        killed++;
        CHECK(access(world.restored, F_OK) != 0);
    }
    CHECK_INT(killed, >=, 4);
    CHECK_INT(restored_things(), ==, 20);
    CHECK_INT(restored_last(), ==, 20);
    world_close();
}

/* A failed call is repeated, whether the target has stored the segment or not. */
TEST(repeats_calls_that_fail)
{
    int things = 0;

    REQUIRE(environment_open());
    for (int kind = FAULT_FAIL_BEFORE; kind <= FAULT_FAIL_AFTER; kind++) {
        for (int call = 1; call < 8 && !test_failures(); call++) {
            archiver_start(world_faulty(kind, call));
            REQUIRE(insert_many(things + 1, things + 5, 2000));
            things += 5;
            for (int i = 0; i < 1000 && atomic_load(&world.faulty.until) > 0; i++)
                truce__clock_sleep_ms(1);
            truce__clock_sleep_ms(5);
            archiver_end();
            /* The archiver may end while a call fails. */
            if (world.status) {
                bson_error_t error;

                CHECK_STATUS(TRUCE_IO, world.status, world.error);
                CHECK_OK(archive_once(world.target, &error), error);
            }
            CHECK_INT(restored_last(), ==, things);
        }
    }
    CHECK(verifies());
    world_close();
}

TEST(releases_the_log_at_its_limit_and_begins_a_generation)
{
    REQUIRE(environment_open() && insert_many(1, 5, 10));
    world.options.log_limit = 20000000;
    archiver_start(world_faulty(FAULT_NONE, 0));
    REQUIRE(wait_for_event(ARCHIVE_BASE, 1));
    CHECK_INT(atomic_load(&world.events[ARCHIVE_BASE]), ==, 1);
    atomic_store(&world.faulty.down, true);
    REQUIRE(insert_many(6, 60, 500000));
    REQUIRE(wait_for_event(ARCHIVE_LIMIT, 1));
    CHECK_INT(atomic_load(&world.events[ARCHIVE_FAILS]), ==, 1);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_LIMIT]), ==, 1);
    atomic_store(&world.faulty.down, false);
    CHECK(checkpoint_now());
    REQUIRE(insert_one(61, 10));
    REQUIRE(wait_for_event(ARCHIVE_BASE, 2));
    archiver_end();
    CHECK_OK(world.status, world.error);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_WORKS]), ==, 1);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_GENERATION]), ==, 2);
    CHECK_INT(restored_last(), ==, 61);
    CHECK(verifies());
    world_close();
}

static bool write_file(const char *path)
{
    FILE *file = fopen(path, "w");
    bool fine = file && fputs("a part of a segment", file) >= 0;

    return file && !fclose(file) && fine;
}

TEST(refuses_a_second_archiver)
{
    bson_error_t error;
    char other[320], hidden[400];
    struct target *target;

    REQUIRE(environment_open() && insert_many(1, 5, 10));
    archiver_start(world.target);
    REQUIRE(wait_for_event(ARCHIVE_BASE, 1));
    /* The first archiver is writing a segment. */
    snprintf(hidden, sizeof hidden, "%s/00000001/.0000000009.log.1", world.archive);
    CHECK(write_file(hidden));
    REQUIRE(!truce__target_directory(world.archive, true, &target, &error));
    CHECK_STATUS(TRUCE_LOCKED, archive_once(target, &error), error);
    CHECK(strstr(error.message, "already") != NULL);
    truce__target_close(target);
    CHECK(!access(hidden, F_OK));
    snprintf(other, sizeof other, "%s.other", world.archive);
    REQUIRE(!truce__target_directory(other, true, &target, &error));
    CHECK_STATUS(TRUCE_LOCKED, archive_once(target, &error), error);
    truce__target_close(target);
    archiver_end();
    CHECK_OK(world.status, world.error);
    /* The next one is alone. */
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK(access(hidden, F_OK) != 0);
    world_close();
}

TEST(refuses_the_archive_of_another_store)
{
    bson_error_t error;
    char hidden[400];

    REQUIRE(environment_open() && insert_many(1, 5, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    snprintf(hidden, sizeof hidden, "%s/00000001/.0000000009.log.1", world.archive);
    CHECK(write_file(hidden));
    world.id[3] ^= 1;
    CHECK_STATUS(TRUCE_CONFLICT, archive_once(world.target, &error), error);
    CHECK(strstr(error.message, "another store") != NULL);
    CHECK(!access(hidden, F_OK));
    world_close();
}

/* Another archiver has put a segment under the next number. */
TEST(ends_if_another_archiver_uses_the_target)
{
    bson_error_t error;
    char *from, *to, *command;

    REQUIRE(environment_open() && insert_many(1, 5, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    archiver_start(world.target);
    REQUIRE(wait_for_event(ARCHIVE_CONTINUES, 1));
    from = bson_strdup_printf("%s/00000001/0000000001.log", world.archive);
    to = bson_strdup_printf("%s/00000001/0000000004.log", world.archive);
    command = bson_strdup_printf("cp '%s' '%s'", from, to);
    CHECK_INT(system(command), ==, 0);
    for (int i = 6; i < 20; i++) {
        REQUIRE(insert_one(i, 10));
        truce__clock_sleep_ms(10);
    }
    archiver_end();
    CHECK_STATUS(TRUCE_CONFLICT, world.status, world.error);
    bson_free(from);
    bson_free(to);
    bson_free(command);
    world_close();
}

/* The directory of the archive is removed, and another one has its name. */
TEST(ends_if_the_directory_is_replaced_and_then_begins_again)
{
    bson_error_t error;
    char *command;

    REQUIRE(environment_open() && insert_many(1, 5, 10));
    archiver_start(world.target);
    REQUIRE(wait_for_event(ARCHIVE_BASE, 1));
    command = bson_strdup_printf("rm -r '%s'", world.archive);
    CHECK_INT(system(command), ==, 0);
    bson_free(command);
    REQUIRE(insert_one(6, 10));
    REQUIRE(wait_for_event(ARCHIVE_FAILS, 1));
    CHECK(!mkdir(world.archive, 0700));
    pthread_join(world.thread, NULL);
    CHECK_STATUS(TRUCE_CORRUPT, world.status, world.error);
    CHECK(strstr(world.error.message, "is another directory now") != NULL);
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(restored_last(), ==, 6);
    CHECK(verifies());
    world_close();
}

/* The directory is replaced by the archive of another store, which has the same generation, while the
 * archiver runs: it must not put a segment there. */
static void check_replaced(const char *replace)
{
    bson_error_t error;
    char *command;

    REQUIRE(environment_open() && insert_many(1, 5, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    command = bson_strdup_printf("cp -r '%s' '%s.other' && cp -r '%s' '%s.own'", world.archive,
                                 world.archive, world.archive, world.archive);
    CHECK_INT(system(command), ==, 0);
    bson_free(command);
    /* The other archive has one segment less. */
    command = bson_strdup_printf("rm '%s.other'/00000001/0000000003.*", world.archive);
    CHECK_INT(system(command), ==, 0);
    bson_free(command);
    archiver_start(world.target);
    REQUIRE(wait_for_event(ARCHIVE_CONTINUES, 1));
    command =
        bson_strdup_printf(replace, world.archive, world.archive, world.archive, world.archive);
    CHECK_INT(system(command), ==, 0);
    bson_free(command);
    REQUIRE(insert_one(6, 10));
    pthread_join(world.thread, NULL);
    CHECK_STATUS(TRUCE_CORRUPT, world.status, world.error);
    CHECK(strstr(world.error.message, "is another directory now, without the segment") != NULL);
    command = bson_strdup_printf("test $(find '%s' -type f | wc -l) = 2", world.archive);
    CHECK_INT(system(command), ==, 0);
    bson_free(command);
    world_close();
}

TEST(ends_if_a_removed_directory_is_replaced_by_another_archive)
{
    check_replaced("rm -r '%s' && mv '%s.other' '%s'");
}

TEST(ends_if_a_moved_directory_is_replaced_by_another_archive)
{
    check_replaced("mv '%s' '%s.moved' && mv '%s.other' '%s'");
}

/* The same archive in another directory, for example mounted again. */
TEST(continues_in_a_directory_that_has_the_same_archive)
{
    bson_error_t error;
    char *command;

    REQUIRE(environment_open() && insert_many(1, 5, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    archiver_start(world.target);
    REQUIRE(wait_for_event(ARCHIVE_CONTINUES, 1));
    command =
        bson_strdup_printf("cp -r '%s' '%s.own' && rm -r '%s' && mv '%s.own' '%s'", world.archive,
                           world.archive, world.archive, world.archive, world.archive);
    CHECK_INT(system(command), ==, 0);
    bson_free(command);
    REQUIRE(insert_one(6, 10));
    archiver_end();
    CHECK_OK(world.status, world.error);
    CHECK_INT(restored_last(), ==, 6);
    CHECK(verifies());
    world_close();
}

/* A commit that is longer than a segment is restored wholly or not at all. */
TEST(restores_a_commit_of_several_segments)
{
    bson_error_t error;

    REQUIRE(environment_open() && insert_one(1, 100));
    CHECK_OK(archive_once(world.target, &error), error);
    REQUIRE(insert_one(2, 3 * SEGMENT_PAGES_MAX * SEGMENT_PAGE_BYTES));
    /* After a list and a read, the third call stores a part of the commit. */
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(TRUCE_IO, archive_once(world_faulty(FAULT_FAIL_AFTER, 3), &error), error);
        CHECK_INT(restored_last(), ==, 1);
    }
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(restored_last(), ==, 2);
    CHECK(verifies());
    world_close();
}

/* A restored copy has the same id, and its archiver begins a generation in the same archive. The
 * other archiver must not continue, because restores would no longer find its commits. */
TEST(ends_if_a_copy_of_the_store_is_archived_to_the_target)
{
    struct archive_options options;
    struct target *target;
    bson_error_t error;

    REQUIRE(environment_open() && insert_many(1, 5, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(restored_last(), ==, 5);
    REQUIRE(!truce__target_directory(world.archive, false, &target, &error));
    archiver_start(world.target);
    REQUIRE(wait_for_event(ARCHIVE_CONTINUES, 1));
    options = world.options;
    options.once = true;
    CHECK_OK(truce__archive_run(world.restored, world.id, target, &options, &error), error);
    truce__target_close(target);
    REQUIRE(insert_one(6, 10));
    pthread_join(world.thread, NULL);
    CHECK_STATUS(TRUCE_CONFLICT, world.status, world.error);
    CHECK(strstr(world.error.message, "another archiver") != NULL);
    world_close();
}

/* A file that is restored over the store while the archiver runs ends the archiver. */
TEST(ends_if_the_file_is_replaced)
{
    const struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report;
    bson_error_t error;

    REQUIRE(environment_open() && insert_many(1, 5, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_STATUS(TRUCE_INVALID,
                 truce__archive_restore(world.target, world.path, &options, &report, &error),
                 error);
    CHECK(strstr(error.message, "exists") != NULL);
    archiver_start(world.target);
    REQUIRE(wait_for_event(ARCHIVE_CONTINUES, 1));
    CHECK_INT(restored_last(), ==, 5);
    REQUIRE(!rename(world.restored, world.path));
    truce__clock_sleep_ms(50);
    archiver_end();
    CHECK_STATUS(TRUCE_CORRUPT, world.status, world.error);
    world_close();
}

/* ---- damage --------------------------------------------------------------------------------- */

static uint64_t verify_faults(void)
{
    struct verify_report report;
    bson_error_t error;

    CHECK_OK(truce__archive_verify(world.target, NULL, NULL, &report, &error), error);
    return report.faults;
}

static void flip(const char *name, off_t at)
{
    char path[400];
    uint8_t byte = 0;
    int file;

    snprintf(path, sizeof path, "%s/%s", world.archive, name);
    file = open(path, O_RDWR);
    CHECK(file >= 0 && pread(file, &byte, 1, at) == 1);
    byte ^= 0x10;
    CHECK(pwrite(file, &byte, 1, at) == 1);
    close(file);
}

/* No restore uses a damaged segment, and verify reports each one. */
TEST(refuses_damaged_and_missing_segments)
{
    const struct restore_options options = {.at_ms = INT64_MAX};
    struct archive_list list;
    struct restore_report report;
    struct random random;
    bson_error_t error;

    truce__random_seed(&random, test_seed());
    REQUIRE(environment_open() && insert_many(1, 20, 3000));
    CHECK_OK(archive_once(world.target, &error), error);
    REQUIRE(insert_many(21, 30, 3000));
    CHECK_OK(archive_once(world.target, &error), error);
    REQUIRE(!truce__archive_list(world.target, &list, &error));
    CHECK_INT(list.count, >=, 3);
    for (size_t i = 0; i < list.count; i++) {
        char path[400], away[420], name[SEGMENT_NAME_BYTES];
        struct stat found;

        truce__segment_name(&list.names[i], name);
        snprintf(path, sizeof path, "%s/%s", world.archive, name);
        REQUIRE(!stat(path, &found));
        for (int k = 0; k < 8; k++) {
            off_t at = (off_t)truce__random_below(&random, (uint64_t)found.st_size);

            flip(name, at);
            CHECK_INT(verify_faults(), ==, 1);
            CHECK_STATUS(TRUCE_CORRUPT, restore_to(&options, &report, &error), error);
            CHECK(access(world.restored, F_OK) != 0);
            flip(name, at);
        }
        CHECK(!truncate(path, found.st_size - 1));
        CHECK_INT(verify_faults(), ==, 1);
        snprintf(away, sizeof away, "%s.away", path);
        CHECK(!rename(path, away));
        if (i + 1 < list.count)
            CHECK(restore_to(&options, &report, &error) != TRUCE_OK);
        CHECK(!truncate(away, found.st_size));
        CHECK(!rename(away, path));
        /* The cut byte is a zero now, or was one before. */
        if (verify_faults()) {
            int file = open(path, O_RDWR);

            for (int byte = 1; byte < 256; byte++) {
                uint8_t last = (uint8_t)byte;

                if (pwrite(file, &last, 1, found.st_size - 1) == 1 && !verify_faults())
                    break;
            }
            close(file);
        }
        REQUIRE(!verify_faults());
    }
    truce__archive_list_release(&list);
    world_close();
}

/* A damaged segment ends what can be restored. The errors name the last commit before it, and how an
 * archiver continues. */
TEST(names_what_can_be_restored_without_a_damaged_segment)
{
    struct restore_options options = {.at_ms = INT64_MAX};
    char name[SEGMENT_NAME_BYTES], wanted[100], path[400], away[400];
    struct verify_report whole, report;
    struct restore_report restored;
    struct archive_list list;
    bson_error_t error;

    REQUIRE(environment_open() && insert_many(1, 5, 100));
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_OK(truce__archive_verify(world.target, NULL, NULL, &whole, &error), error);
    REQUIRE(insert_many(6, 9, 100));
    CHECK_OK(archive_once(world.target, &error), error);
    REQUIRE(!truce__archive_list(world.target, &list, &error));
    truce__segment_name(&list.names[list.count - 1], name);
    truce__archive_list_release(&list);
    flip(name, 270);

    CHECK_OK(truce__archive_verify(world.target, NULL, NULL, &report, &error), error);
    CHECK_INT(report.faults, ==, 1);
    CHECK_INT(report.last_commit, ==, whole.last_commit);
    CHECK_INT(report.last_ms, ==, whole.last_ms);
    CHECK_STATUS(TRUCE_CORRUPT, restore_to(&options, &restored, &error), error);
    snprintf(wanted, sizeof wanted, "--at-commit %lld", (long long)whole.last_commit);
    CHECK(strstr(error.message, wanted) != NULL);
    options.at_commit = whole.last_commit;
    CHECK_OK(restore_to(&options, &restored, &error), error);
    CHECK_INT(restored_things(), ==, 5);

    CHECK_STATUS(TRUCE_CORRUPT, archive_once(world.target, &error), error);
    CHECK(strstr(error.message, "to continue after the one before it") != NULL);
    snprintf(path, sizeof path, "%s/%s", world.archive, name);
    snprintf(away, sizeof away, "%s.away", world.path);
    CHECK(!rename(path, away));
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(restored_last(), ==, 9);
    world_close();
}

/* Without a segment that its base needs, a generation cannot be restored, whatever follows. An
 * archiver that continued it would report success for commits that nothing can restore. */
TEST(begins_a_generation_if_a_segment_is_missing)
{
    struct archive_list list;
    bson_error_t error;
    size_t count;

    REQUIRE(environment_open() && insert_many(1, 5, 100));
    CHECK_OK(archive_once(world.target, &error), error);
    REQUIRE(insert_many(6, 9, 100));
    CHECK_OK(archive_once(world.target, &error), error);
    REQUIRE(!truce__archive_list(world.target, &list, &error));
    count = list.count;
    CHECK_INT(count, >=, 4);
    /* The last segment is not needed: the log still has its commits. */
    for (size_t i = 0; i + 1 < count; i++) {
        int generations = atomic_load(&world.events[ARCHIVE_GENERATION]);
        char path[400], away[400], name[SEGMENT_NAME_BYTES], command[900];

        truce__segment_name(&list.names[i], name);
        snprintf(path, sizeof path, "%s/%s", world.archive, name);
        snprintf(away, sizeof away, "%s.away", world.path);
        CHECK(!rename(path, away));
        REQUIRE(insert_one(10 + (int)i, 100));
        CHECK_OK(archive_once(world.target, &error), error);
        CHECK_INT(atomic_load(&world.events[ARCHIVE_GENERATION]), ==, generations + 1);
        CHECK_INT(restored_last(), ==, 10 + (int)i);
        CHECK(!rename(away, path));
        snprintf(command, sizeof command, "rm -rf '%s/00000002'", world.archive);
        CHECK_INT(system(command), ==, 0);
        truce__target_close(world.target);
        REQUIRE(!truce__target_directory(world.archive, false, &world.target, &error));
    }
    truce__archive_list_release(&list);
    world_close();
}

TEST(refuses_a_segment_of_another_archive)
{
    const struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report;
    bson_error_t error;
    char *other, *command;
    struct target *target;

    REQUIRE(environment_open() && insert_many(1, 20, 3000));
    CHECK_OK(archive_once(world.target, &error), error);
    other = bson_strdup_printf("%s.other", world.archive);
    REQUIRE(!truce__target_directory(other, true, &target, &error));
    CHECK_OK(archive_once(target, &error), error);
    truce__target_close(target);
    command = bson_strdup_printf("cp '%s'/00000001/*2.end '%s'/00000001/*2.log '%s'/00000001/ "
                                 "2>/dev/null; cp '%s'/00000001/*1.log '%s'/00000001/",
                                 other, other, world.archive, other, world.archive);
    CHECK_INT(system(command), ==, 0);
    CHECK_INT(verify_faults(), >=, 1);
    CHECK_STATUS(TRUCE_CORRUPT, restore_to(&options, &report, &error), error);
    bson_free(other);
    bson_free(command);
    world_close();
}

/* ---- times ---------------------------------------------------------------------------------- */

#define MOMENTS 20000

static struct {
    int64_t began_ms[MOMENTS], ended_ms[MOMENTS];
    atomic_int last;
    atomic_bool stop;
} moments;

static void *write_moments(void *arg)
{
    while (!atomic_load(&moments.stop)) {
        int id = atomic_load(&moments.last) + 1;

        if (id >= MOMENTS)
            break;
        moments.began_ms[id] = truce__clock_wall_ms();
        if (!insert_one(id, id % 50 ? 100 : 100000))
            break;
        moments.ended_ms[id] = truce__clock_wall_ms();
        atomic_store(&moments.last, id);
    }
    return arg;
}

/* Compares a restore to a random time with the operations that were acknowledged by then. */
static void check_moment(struct random *random, int64_t first_ms)
{
    int64_t now_ms = truce__clock_wall_ms();
    struct restore_options options = {0};
    struct restore_report report;
    bson_error_t error;
    int things, last = atomic_load(&moments.last);

    options.at_ms = first_ms + (int64_t)truce__random_below(random, (uint64_t)(now_ms - first_ms));
    if (!CHECK_OK(restore_to(&options, &report, &error), error))
        return;
    things = restored_things();
    if (things > 0)
        CHECK_INT(moments.began_ms[things], <=, options.at_ms);
    if (things >= 0 && things < last)
        CHECK_INT(moments.ended_ms[things + 1], >, options.at_ms);
}

/* A process dies right after its commit, before it has noted where the commit ends. Another process
 * may repeat the request and be answered long before the next commit. */
TEST(determines_the_time_of_a_commit_whose_process_crashed)
{
    struct restore_options options = {0};
    struct restore_report report;
    struct lock_archive *noted;
    struct engine *engine;
    struct kv_log_end before;
    bson_error_t error;
    int64_t time_ms;

    REQUIRE(environment_open() && insert_many(1, 3, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    engine = truce__file_engine_or_null(world.store);
    noted = &engine->lock.page->archive;
    REQUIRE(truce__kv_log_end(engine->kv, &before));
    /* A commit that fails. */
    REQUIRE(!truce__lock_acquire(&engine->lock, INT64_MAX, &error));
    truce__archive_note_begin(&engine->lock, engine->kv);
    truce__lock_release(&engine->lock);
    truce__clock_sleep_ms(5);
    time_ms = truce__clock_wall_ms();
    /* The state before the second note: of many frames, the first one has the time. */
    REQUIRE(insert_one(4, 50000));
    atomic_store(
        &noted->times[(atomic_load(&noted->times_next) + COMMIT_TIMES - 1) % COMMIT_TIMES].frame,
        before.frames + 1);
    truce__clock_sleep_ms(200);
    REQUIRE(insert_one(5, 10));
    CHECK_OK(archive_once(world.target, &error), error);
    options.at_ms = time_ms + 100;
    CHECK_OK(restore_to(&options, &report, &error), error);
    CHECK_INT(report.commit_ms, >=, time_ms);
    CHECK_INT(report.commit_ms, <=, options.at_ms);
    CHECK_INT(restored_things(), ==, 4);
    world_close();
}

/* The target takes much longer than the shared page has times for. */
TEST(determines_the_times_of_commits_while_the_target_does_not_respond)
{
    struct restore_options options = {0};
    struct restore_report report;
    int64_t ended_ms[4];
    bson_error_t error;
    int things = 0;

    REQUIRE(environment_open());
    archiver_start(world_faulty(FAULT_NONE, 0));
    REQUIRE(wait_for_event(ARCHIVE_BASE, 1));
    atomic_store(&world.faulty.stuck, true);
    for (int i = 0; i < 4; i++) {
        /* Commits of one millisecond share a place. */
        for (int k = 0; k < COMMIT_TIMES / 2; k++) {
            REQUIRE(insert_relaxed(++things));
            truce__clock_sleep_ms(1);
        }
        ended_ms[i] = truce__clock_wall_ms();
        truce__clock_sleep_ms(50);
    }
    atomic_store(&world.faulty.stuck, false);
    archiver_end();
    CHECK_OK(world.status, world.error);
    for (int i = 0; i < 4; i++) {
        options.at_ms = ended_ms[i] + 10;
        CHECK_OK(restore_to(&options, &report, &error), error);
        CHECK_INT(restored_things(), ==, COMMIT_TIMES / 2 * (i + 1));
    }
    world_close();
}

/* A writer, an archiver that is killed and started again or whose target fails, and restores. */
TEST(restores_random_times)
{
    long rounds = test_scale("TRUCE_ARCHIVE_ROUNDS", 8);
    struct verify_report archive;
    struct random random;
    bson_error_t error;
    pthread_t writer;

    truce__random_seed(&random, test_seed());
    memset(&moments, 0, sizeof moments);
    REQUIRE(environment_open());
    archiver_start(world_faulty(FAULT_NONE, 0));
    pthread_create(&writer, NULL, write_moments, NULL);
    for (long i = 0; i < rounds; i++) {
        truce__clock_sleep_ms(20 + (int)truce__random_below(&random, 100));
        if (truce__random_below(&random, 2)) {
            atomic_store(&world.faulty.down, true);
            truce__clock_sleep_ms(20);
            atomic_store(&world.faulty.down, false);
        }
        archiver_end();
        if (world.status)
            CHECK_STATUS(TRUCE_IO, world.status, world.error);
        archiver_start(world_faulty(FAULT_NONE, 0));
    }
    atomic_store(&moments.stop, true);
    pthread_join(writer, NULL);
    archiver_end();
    CHECK_OK(world.status, world.error);
    CHECK_INT(restored_last(), ==, atomic_load(&moments.last));
    REQUIRE(!truce__archive_verify(world.target, NULL, NULL, &archive, &error));
    CHECK_INT(archive.faults, ==, 0);
    CHECK_INT(archive.generations, ==, 1);
    for (long i = 0; i < rounds * 2 && !test_failures(); i++)
        check_moment(&random, archive.first_ms);
    world_close();
}
