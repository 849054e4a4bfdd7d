/*
 * An archive on a machine whose disk is full, whose clock is set, and whose processes are killed at
 * each system call.
 *
 * This program has its own clock_gettime, and its own calls that write, which the archive's
 * directory, SQLite, and the clock of truce use.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/storage/log_archive.h"
#include "store/file/file.h"
#include "tests/support/archive_rig.h"
#include "tests/support/descriptor.h"
#include "tests/support/no_sleep.h"
#include "tests/support/test.h"

#define HOUR_MS INT64_C(3600000)

/* ---- the machine ---------------------------------------------------------------------------- */

static struct {
    /* Added to the wall clock, and to the monotonic clock. */
    atomic_llong clock_ms, up_ms;
    /* The process dies at this call, counted down; 0: never. */
    atomic_int until;
    /* The bytes that the disk of the archive still takes; -1: any number. */
    atomic_llong room;
} machine = {.room = -1};

static void machine_call(void)
{
    if (atomic_load(&machine.until) && atomic_fetch_sub(&machine.until, 1) == 1)
        _exit(9);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);

    if (clock == CLOCK_REALTIME)
        now->tv_sec += atomic_load(&machine.clock_ms) / 1000;
    if (clock == CLOCK_MONOTONIC)
        now->tv_sec += atomic_load(&machine.up_ms) / 1000;
    return result;
}

static bool is_of_archive(int file)
{
    char path[600];

    descriptor_path(file, path, sizeof path);
    return *world.archive && !strncmp(path, world.archive, strlen(world.archive));
}

ssize_t write(int file, const void *bytes, size_t size)
{
    long long room = atomic_load(&machine.room);

    machine_call();
    if (room >= 0 && is_of_archive(file)) {
        if (!room) {
            errno = ENOSPC;
            return -1;
        }
        size = size < (size_t)room ? size : (size_t)room;
        atomic_store(&machine.room, room - (long long)size);
    }
    return syscall(SYS_write, file, bytes, size);
}

int fsync(int file)
{
    machine_call();
    return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file)
{
    machine_call();
    return (int)syscall(SYS_fdatasync, file);
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t offset)
{
    machine_call();
    return syscall(SYS_pwrite64, file, bytes, size, offset);
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t offset)
{
    machine_call();
    return syscall(SYS_pwrite64, file, bytes, size, offset);
}

int mkdirat(int directory, const char *name, mode_t mode)
{
    machine_call();
    return (int)syscall(SYS_mkdirat, directory, name, mode);
}

int unlinkat(int directory, const char *name, int flags)
{
    machine_call();
    return (int)syscall(SYS_unlinkat, directory, name, flags);
}

int renameat2(int from_directory, const char *from, int to_directory, const char *to,
              unsigned flags)
{
    machine_call();
    return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
}

/* ---- kills ---------------------------------------------------------------------------------- */

/* Runs a function in a process that dies at a call. Returns its exit code; 9: it died. */
static int run_until(int call, truce_status (*run)(bson_error_t *error))
{
    pid_t child = fork();
    int status;

    if (!child) {
        bson_error_t error;

        atomic_store(&machine.until, call);
        if (!run(&error))
            _exit(0);
        fprintf(stderr, "%s\n", error.message);
        _exit(1);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static truce_status archive_here(bson_error_t *error)
{
    return archive_once(world.target, error);
}

static truce_status restore_here(bson_error_t *error)
{
    const struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report;

    return restore_to(&options, &report, error);
}

/* Kills an archiver that also begins a generation, copies a base, and removes old segments. */
static void kill_archivers(void)
{
    bson_error_t error;
    int things = 0, code = 9, call = 1;

    REQUIRE(environment_open());
    world.options.keep_ms = 1;
    for (; code == 9 && call < 200 && !test_failures(); call++) {
        REQUIRE(insert_many(things + 1, things + 2, 500));
        things += 2;
        /* A child process must open the file itself. */
        world_lose_log();
        code = run_until(call, archive_here);
        REQUIRE(!truce_store_open(world.path, NULL, &world.store, &error));
        CHECK(code == 0 || code == 9);
        CHECK_OK(archive_once(world.target, &error), error);
        CHECK_INT(restored_last(), ==, things);
        CHECK(verifies());
    }
    CHECK_INT(code, ==, 0);
    CHECK_INT(call, >, 10);
    world_close();
}

TEST(leaves_a_valid_archive_if_killed_at_any_system_call)
{
    kill_archivers();
}

TEST(a_restore_that_is_killed_at_any_system_call_leaves_no_store)
{
    bson_error_t error;
    int code = 9, call = 1;

    REQUIRE(environment_open() && insert_many(1, 5, 3000));
    CHECK_OK(archive_once(world.target, &error), error);
    for (; code == 9 && call < 200 && !test_failures(); call++) {
        code = run_until(call, restore_here);
        /* The last call syncs the directory, which has the name by then. */
        if (code == 9 && access(world.restored, F_OK))
            CHECK(errno == ENOENT);
        else
            CHECK_INT(restored_things(), ==, 5);
    }
    CHECK_INT(code, ==, 0);
    CHECK_INT(call, >, 5);
    world_close();
}

/* ---- a full disk ---------------------------------------------------------------------------- */

/* Returns the number of files that are not complete. */
static int hidden_files(void)
{
    char path[400];
    struct dirent *found;
    int count = 0;
    DIR *opened;

    snprintf(path, sizeof path, "%s/00000001", world.archive);
    opened = opendir(path);
    while (opened && (found = readdir(opened)))
        count += found->d_name[0] == '.' && strlen(found->d_name) > 2;
    if (opened)
        closedir(opened);
    return count;
}

static struct archive_facts facts_now(void)
{
    struct archive_facts facts = {0};

    CHECK(truce__archive_facts(&truce__file_engine(world.store)->lock, &facts));
    return facts;
}

/* The disk takes a part of a segment, or nothing. The archiver reports it, and continues when there
 * is room. */
TEST(a_full_disk_is_reported_and_the_archive_continues_with_room)
{
    static const long long rooms[] = {0, 1, 300, 500};
    struct archive_facts facts;
    bson_error_t error;
    int things = 3;

    REQUIRE(environment_open() && insert_many(1, 3, 100));
    atomic_store(&machine.room, 100);
    CHECK_STATUS(TRUCE_IO, archive_once(world.target, &error), error);
    CHECK(strstr(error.message, "No space left on device") != NULL);
    atomic_store(&machine.room, -1);
    atomic_store(&world.events[ARCHIVE_GENERATION], 0);
    archiver_start(world.target);
    REQUIRE(wait_for_event(ARCHIVE_BASE, 1));
    for (int i = 0; i < 4 && !test_failures(); i++) {
        atomic_store(&machine.room, rooms[i]);
        REQUIRE(insert_one(++things, 100));
        REQUIRE(wait_for_event(ARCHIVE_FAILS, i + 1));
        for (int k = 0; k < 5000 && !facts_now().failing_ms; k++)
            truce__clock_sleep_ms(1);
        facts = facts_now();
        CHECK_INT(facts.failing_ms, >, 0);
        CHECK_INT(facts.behind_ms, >, 0);
        CHECK_INT(facts.behind_bytes, >, 0);
        atomic_store(&machine.room, -1);
        REQUIRE(wait_for_event(ARCHIVE_WORKS, i + 1));
        CHECK_INT(hidden_files(), ==, 0);
        for (int k = 0; k < 5000 && facts_now().failing_ms; k++)
            truce__clock_sleep_ms(1);
        CHECK_INT(restored_last(), ==, things);
    }
    archiver_end();
    CHECK_OK(world.status, world.error);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_GENERATION]), ==, 1);
    CHECK(verifies());
    world_close();
}

/* ---- clocks that are set -------------------------------------------------------------------- */

/* The time of a commit is the clock of its machine. After the clock went back, --at ends before the
 * first commit that is later, and reports it. Numbers reach every commit. */
TEST(archives_every_commit_if_the_clock_is_set_back)
{
    struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report;
    bson_error_t error;
    uint64_t first;

    REQUIRE(environment_open() && insert_many(1, 5, 100));
    CHECK_OK(archive_once(world.target, &error), error);
    atomic_store(&machine.clock_ms, HOUR_MS);
    REQUIRE(insert_many(6, 10, 100));
    CHECK_OK(archive_once(world.target, &error), error);
    atomic_store(&machine.clock_ms, 0);
    REQUIRE(insert_many(11, 15, 100));
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK(verifies());
    CHECK_OK(restore_to(&options, &report, &error), error);
    CHECK_INT(restored_things(), ==, 15);
    CHECK_INT(report.back_commit, ==, 0);
    first = report.commit - 14;
    for (int things = 1; things <= 15; things++) {
        options.at_commit = first + (uint64_t)things - 1;
        if (things < 5)
            continue;
        CHECK_OK(restore_to(&options, &report, &error), error);
        CHECK_INT(restored_things(), ==, things);
    }
    options.at_commit = 0;
    options.at_ms = truce__clock_wall_ms() + 1000;
    CHECK_OK(restore_to(&options, &report, &error), error);
    CHECK_INT(restored_things(), ==, 5);
    CHECK_INT(report.next_commit, ==, first + 5);
    CHECK_INT(report.back_commit, ==, first + 14);
    options.at_ms = truce__clock_wall_ms() + 2 * HOUR_MS;
    CHECK_OK(restore_to(&options, &report, &error), error);
    CHECK_INT(restored_things(), ==, 15);
    world_close();
}

/* A lag is real time. */
TEST(a_lag_does_not_depend_on_the_wall_clock)
{
    static const int64_t clocks[] = {HOUR_MS, -HOUR_MS};

    REQUIRE(environment_open());
    archiver_start(world_faulty(FAULT_NONE, 0));
    REQUIRE(wait_for_event(ARCHIVE_BASE, 1));
    atomic_store(&world.faulty.down, true);
    REQUIRE(insert_one(1, 100) && wait_for_event(ARCHIVE_FAILS, 1));
    for (int i = 0; i < 2; i++) {
        struct archive_facts facts;

        atomic_store(&machine.clock_ms, clocks[i]);
        truce__clock_sleep_ms(300);
        facts = facts_now();
        CHECK_INT(facts.behind_ms, >, 0);
        CHECK_INT(facts.behind_ms, <, HOUR_MS / 2);
        CHECK_INT(facts.failing_ms, >, 0);
        CHECK_INT(facts.failing_ms, <, HOUR_MS / 2);
    }
    atomic_store(&machine.clock_ms, 0);
    atomic_store(&world.faulty.down, false);
    REQUIRE(wait_for_event(ARCHIVE_WORKS, 1));
    archiver_end();
    CHECK_OK(world.status, world.error);
    CHECK_INT(restored_last(), ==, 1);
    world_close();
}

/* Archives twice, in two generations. Returns the last commit of the first. */
static uint64_t archive_two_generations(void)
{
    const struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report = {0};
    bson_error_t error;

    if (!insert_many(1, 5, 100) || !CHECK_OK(archive_once(world.target, &error), error) ||
        !CHECK_OK(restore_to(&options, &report, &error), error))
        return 0;
    world_lose_log();
    if (!CHECK_OK(truce_store_open(world.path, NULL, &world.store, &error), error) ||
        !insert_many(6, 10, 100) || !CHECK_OK(archive_once(world.target, &error), error))
        return 0;
    return CHECK_INT(atomic_load(&world.events[ARCHIVE_GENERATION]), ==, 2) ? report.commit : 0;
}

/* A clock that is set makes every base look old, also to an archiver that finds segments that were
 * made after the jump. */
TEST(a_clock_that_is_set_forward_removes_nothing)
{
    struct restore_options options = {0};
    struct restore_report report;
    bson_error_t error;

    REQUIRE(environment_open());
    options.at_commit = archive_two_generations();
    REQUIRE(options.at_commit);
    world.options.keep_ms = HOUR_MS;
    for (int id = 11; id <= 14; id++) {
        atomic_store(&machine.clock_ms, (id % 2 ? 1000 : -1000) * HOUR_MS);
        REQUIRE(insert_one(id, 100));
        CHECK_OK(archive_once(world.target, &error), error);
    }
    atomic_store(&machine.clock_ms, 0);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_REMOVED]), ==, 0);
    CHECK_OK(restore_to(&options, &report, &error), error);
    CHECK_INT(restored_things(), ==, 5);
    CHECK_INT(restored_last(), ==, 14);
    world_close();
}

/* Time passes while no archiver runs, and while nothing is committed. */
TEST(removes_what_is_older_than_the_period_in_real_time)
{
    struct restore_options options = {0};
    struct restore_report report;
    bson_error_t error;

    REQUIRE(environment_open());
    options.at_commit = archive_two_generations();
    REQUIRE(options.at_commit);
    world.options.keep_ms = 10 * HOUR_MS;
    atomic_store(&machine.up_ms, 5 * HOUR_MS);
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_REMOVED]), ==, 0);
    archiver_start(world_faulty(FAULT_NONE, 0));
    REQUIRE(wait_for_event(ARCHIVE_CONTINUES, 2));
    atomic_store(&machine.up_ms, 11 * HOUR_MS);
    CHECK(wait_for_event(ARCHIVE_REMOVED, 1));
    archiver_end();
    CHECK_OK(world.status, world.error);
    CHECK(verifies());
    CHECK_INT(restored_last(), ==, 10);
    CHECK_STATUS(TRUCE_NOT_FOUND, restore_to(&options, &report, &error), error);
    atomic_store(&machine.up_ms, 0);
    world_close();
}

/* A virtual machine that goes back to an earlier state of the same boot has an earlier monotonic
 * clock. The age of the archive stays as it was. */
TEST(a_monotonic_clock_that_goes_back_makes_nothing_younger)
{
    struct restore_options options = {0};
    struct restore_report report;
    bson_error_t error;

    REQUIRE(environment_open());
    atomic_store(&machine.up_ms, 20 * HOUR_MS);
    options.at_commit = archive_two_generations();
    REQUIRE(options.at_commit);
    world.options.keep_ms = 10 * HOUR_MS;
    atomic_store(&machine.up_ms, 0);
    CHECK_OK(archive_once(world.target, &error), error);
    REQUIRE(insert_one(11, 100));
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_REMOVED]), ==, 0);
    atomic_store(&machine.up_ms, 11 * HOUR_MS);
    CHECK_OK(archive_once(world.target, &error), error);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_REMOVED]), >=, 1);
    CHECK_INT(restored_last(), ==, 11);
    CHECK_STATUS(TRUCE_NOT_FOUND, restore_to(&options, &report, &error), error);
    atomic_store(&machine.up_ms, 0);
    world_close();
}

/* The monotonic clock of another boot, or of another machine, says nothing about the pause. */
TEST(a_pause_over_a_restart_of_the_machine_removes_nothing)
{
    struct restore_options options = {0};
    struct restore_report report;
    bson_error_t error;

    REQUIRE(environment_open());
    options.at_commit = archive_two_generations();
    REQUIRE(options.at_commit);
    world.options.keep_ms = HOUR_MS;
    REQUIRE(insert_one(11, 100));
    no_sleep_begin();
    atomic_store(&no_sleep_clock, "12345678-1234-1234-1234-123456789012");
    CHECK_OK(archive_once(world.target, &error), error);
    truce__environment_use(NULL);
    CHECK_INT(atomic_load(&world.events[ARCHIVE_REMOVED]), ==, 0);
    CHECK_OK(restore_to(&options, &report, &error), error);
    CHECK_INT(restored_things(), ==, 5);
    CHECK_INT(restored_last(), ==, 11);
    world_close();
}
