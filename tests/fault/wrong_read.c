/*
 * A read of the log returns a changed byte once, while a process opens a store that was killed.
 * SQLite takes the frame for the end of the log. The opening fails, or it finds all commits; the
 * next process finds them in any case.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/descriptor.h"
#include "tests/support/test.h"
#include "truce/store.h"

enum { DOCUMENTS = 12, STEP = 4 };

static atomic_int left; /* reads of the log until the wrong one; 0: none is wrong */
static atomic_bool wrong;
static char path[400];

static bool is_of_log(int file)
{
    char name[500];

    descriptor_path(file, name, sizeof name);
    return strstr(name, ".truce-wal") != NULL;
}

static ssize_t change_one(int file, void *bytes, ssize_t size)
{
    if (size <= 0 || !atomic_load(&left) || !is_of_log(file) || atomic_fetch_sub(&left, 1) != 1)
        return size;
    ((uint8_t *)bytes)[size / 2] ^= 16;
    atomic_store(&wrong, true);
    return size;
}

/* The function of the C library that this program overrides, for truce and for SQLite. */
#define REAL(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

#pragma GCC visibility push(default)

ssize_t pread(int file, void *bytes, size_t size, off_t offset)
{
    return change_one(file, bytes, REAL(pread)(file, bytes, size, offset));
}

ssize_t pread64(int file, void *bytes, size_t size, off64_t offset)
{
    return change_one(file, bytes, REAL(pread64)(file, bytes, size, offset));
}

#pragma GCC visibility pop

static void make_killed(void)
{
    int state;
    pid_t child;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    fflush(NULL);
    child = fork();
    if (!child) {
        truce_store *store;
        bson_error_t error;

        if (truce_store_open(path, NULL, &store, &error))
            _exit(1);
        for (int i = 0; i < DOCUMENTS; i++) {
            bson_t document = BSON_INITIALIZER;

            CHECK_OK(truce_insert(store, "c", &document, NULL, &error), error);
            bson_destroy(&document);
        }
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
}

/* Returns the exit code: 0 if the opening fails, or finds everything. */
static int open_and_count(bool read_only)
{
    const truce_store_options options = {.read_only = read_only};
    truce_store *store;
    bson_error_t error;
    int64_t count = 0;
    truce_status status = truce_store_open(path, &options, &store, &error);

    if (status)
        return status != TRUCE_IO;
    status = truce_count(store, "c", NULL, NULL, &count, &error);
    truce_store_close(store);
    return !status && count != DOCUMENTS;
}

/* Returns false if the opening makes fewer reads. */
static bool read_wrongly(bool read_only, int number)
{
    int state;
    pid_t child;

    make_killed();
    fflush(NULL);
    child = fork();
    if (!child) {
        int code;

        atomic_store(&left, number);
        code = open_and_count(read_only);
        _exit(atomic_load(&wrong) ? code : 2 + code);
    }
    CHECK(waitpid(child, &state, 0) == child && WIFEXITED(state));
    CHECK_INT(WEXITSTATUS(state) % 2, ==, 0);
    CHECK_INT(open_and_count(false), ==, 0);
    return WEXITSTATUS(state) < 2;
}

static void read_each_wrongly(bool read_only)
{
    int number = 1;

    while (read_wrongly(read_only, number) && number < 1000)
        number += STEP;
    CHECK_INT(number, >, DOCUMENTS);
    CHECK_INT(number, <, 1000);
}

TEST(a_writer_loses_no_commit_by_a_wrong_read_of_the_log)
{
    read_each_wrongly(false);
}

TEST(a_reader_misses_no_commit_by_a_wrong_read_of_the_log)
{
    read_each_wrongly(true);
}
