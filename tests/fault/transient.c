/*
 * A read, an fstat, an opening, or a mapping fails once, at each place where a store makes one. The
 * store is opened after a kill, written to, closed, checked, salvaged, copied, and compacted. The
 * call may fail, but never reports that the file is damaged. The next process finds everything that
 * was acknowledged and nothing that is wrong.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "tests/support/damage.h"
#include "tests/support/descriptor.h"
#include "tests/support/test.h"
#include "truce/compact.h"
#include "truce/copy.h"
#include "truce/salvage.h"
#include "truce/store.h"
#include "truce/sweep.h"

/* ---- calls that fail once -------------------------------------------------------------------- */

enum kind { READ_FAILS, READ_ENDS, LOOK_FAILS, OPEN_FAILS, MAP_FAILS, KINDS };

static enum kind failing;
static atomic_int left; /* calls until the one that fails; 0: none does */
static atomic_bool failed;

static bool fails_at(const char *path, enum kind kind)
{
    if (!atomic_load(&left) || kind != failing || !path || !strstr(path, ".truce"))
        return false;
    if (atomic_fetch_sub(&left, 1) != 1)
        return false;
    atomic_store(&failed, true);
    return true;
}

static bool file_fails(int file, enum kind kind)
{
    char path[500];

    if (!atomic_load(&left) || kind != failing)
        return false;
    descriptor_path(file, path, sizeof path);
    return fails_at(path, kind);
}

/* The function of the C library that this program overrides, for truce and for SQLite. */
#define REAL(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

static int refuse(int why)
{
    errno = why;
    return -1;
}

#pragma GCC visibility push(default) /* else libsqlite3 finds those of the C library */

ssize_t pread(int file, void *bytes, size_t size, off_t offset)
{
    if (file_fails(file, READ_FAILS))
        return refuse(EIO);
    if (file_fails(file, READ_ENDS))
        return 0;
    return REAL(pread)(file, bytes, size, offset);
}

ssize_t pread64(int file, void *bytes, size_t size, off64_t offset)
{
    if (file_fails(file, READ_FAILS))
        return refuse(EIO);
    if (file_fails(file, READ_ENDS))
        return 0;
    return REAL(pread64)(file, bytes, size, offset);
}

#define LOOK_BY_NAME(name, type)                                                                   \
    int name(const char *path, struct type *found)                                                 \
    {                                                                                              \
        return fails_at(path, LOOK_FAILS) ? refuse(EIO) : REAL(name)(path, found);                 \
    }
#define LOOK_AT_FILE(name, type)                                                                   \
    int name(int file, struct type *found)                                                         \
    {                                                                                              \
        return file_fails(file, LOOK_FAILS) ? refuse(EIO) : REAL(name)(file, found);               \
    }

LOOK_BY_NAME(stat, stat)
LOOK_BY_NAME(stat64, stat64)
LOOK_BY_NAME(lstat, stat)
LOOK_BY_NAME(lstat64, stat64)
LOOK_AT_FILE(fstat, stat)
LOOK_AT_FILE(fstat64, stat64)

int statx(int directory, const char *path, int flags, unsigned mask, struct statx *found)
{
    if (*path ? fails_at(path, LOOK_FAILS) : file_fails(directory, LOOK_FAILS))
        return refuse(EIO);
    return REAL(statx)(directory, path, flags, mask, found);
}

static unsigned mode_of(int flags, va_list list)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(list, unsigned) : 0;
}

int open(const char *path, int flags, ...)
{
    unsigned mode;
    va_list list;

    va_start(list, flags);
    mode = mode_of(flags, list);
    va_end(list);
    return fails_at(path, OPEN_FAILS) ? refuse(EMFILE) : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    unsigned mode;
    va_list list;

    va_start(list, flags);
    mode = mode_of(flags, list);
    va_end(list);
    return fails_at(path, OPEN_FAILS) ? refuse(EMFILE) : REAL(open64)(path, flags, mode);
}

static bool map_fails(int file)
{
    if (file < 0 || !file_fails(file, MAP_FAILS))
        return false;
    errno = ENOMEM;
    return true;
}

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    return map_fails(file) ? MAP_FAILED : REAL(mmap)(at, size, protection, flags, file, offset);
}

void *mmap64(void *at, size_t size, int protection, int flags, int file, off64_t offset)
{
    return map_fails(file) ? MAP_FAILED : REAL(mmap64)(at, size, protection, flags, file, offset);
}

#pragma GCC visibility pop

/* ---- the store ------------------------------------------------------------------------------- */

enum { DOCUMENTS = 60, MORE = 3 };

static char path[400], log_path[420], other[420];
static struct image file, logged;

static truce_status insert(truce_store *store, int id, bson_error_t *error)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(id), "text",
                                "a text that makes the documents some pages long in the file");
    truce_status status = truce_insert(store, "c", document, NULL, error);

    bson_destroy(document);
    return status;
}

/* Half of the documents are in the file, the others in the log of a process that was killed. */
static bool make(void)
{
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    snprintf(log_path, sizeof log_path, "%s-wal", path);
    snprintf(other, sizeof other, "%s.other", path);
    for (int part = 0; part < 2; part++) {
        int state;
        pid_t child;

        fflush(NULL);
        child = fork();
        if (!child) {
            truce_store *store;
            bson_error_t error;

            if (truce_store_open(path, NULL, &store, &error))
                _exit(1);
            for (int i = 0; i < DOCUMENTS / 2; i++)
                CHECK_OK(insert(store, part * DOCUMENTS / 2 + i, &error), error);
            if (part)
                kill(getpid(), SIGKILL);
            truce_store_close(store);
            _exit(0);
        }
        CHECK(waitpid(child, &state, 0) == child);
    }
    return image_read(&file, path) && image_read(&logged, log_path);
}

static bool put_back(void)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-lock"};

    for (int i = 0; i < 4; i++) {
        char name[440];

        snprintf(name, sizeof name, "%s%s", other, ends[i]);
        unlink(name);
    }
    return image_write(&file, path) && image_write(&logged, log_path);
}

/* ---- the operations -------------------------------------------------------------------------- */

struct outcome {
    int acknowledged;
    bool failed;
    truce_status status; /* the worst */
    char message[300];
};

static void note(struct outcome *outcome, truce_status status, const bson_error_t *error)
{
    if (!status || outcome->status == TRUCE_CORRUPT)
        return;
    outcome->status = status;
    snprintf(outcome->message, sizeof outcome->message, "%.299s", error->message);
}

static void write_some(truce_store *store, struct outcome *outcome)
{
    bson_t *filter = test_bson("{'text': {'$gte': ''}}");
    bson_error_t error = {0};
    int64_t count;

    for (int i = 0; i < MORE; i++) {
        truce_status status = insert(store, DOCUMENTS + i, &error);

        outcome->acknowledged += !status;
        note(outcome, status, &error);
    }
    note(outcome, truce_count(store, "c", filter, NULL, &count, &error), &error);
    bson_destroy(filter);
}

static void note_finding(const bson_t *finding, void *arg)
{
    bson_error_t error = {0};
    char *json = bson_as_relaxed_extended_json(finding, NULL);

    snprintf(error.message, sizeof error.message, "%s", json);
    note(arg, TRUCE_CORRUPT, &error);
    bson_free(json);
}

static void check_it(truce_store *store, struct outcome *outcome)
{
    truce_check_report report;
    bson_error_t error = {0};

    note(outcome, truce_check(store, NULL, note_finding, outcome, &report, &error), &error);
}

static void copy_it(truce_store *store, struct outcome *outcome)
{
    const truce_copy_options options = {.live = true};
    truce_copy_report report;
    truce_store *to;
    bson_error_t error = {0};
    truce_status status = truce_store_open(other, NULL, &to, &error);

    if (!status) {
        status = truce_copy(store, to, &options, &report, &error);
        truce_store_close(to);
    }
    note(outcome, status, &error);
}

static void compact_it(truce_store *store, struct outcome *outcome)
{
    truce_compact_report report;
    bson_error_t error = {0};

    note(outcome, truce_compact(store, NULL, &report, &error), &error);
}

static void with_store(void (*function)(truce_store *store, struct outcome *outcome),
                       struct outcome *outcome)
{
    truce_store *store;
    bson_error_t error = {0};
    truce_status status = truce_store_open(path, NULL, &store, &error);

    note(outcome, status, &error);
    if (status)
        return;
    function(store, outcome);
    truce_store_close(store);
}

/* All documents are saved as valid, or the call fails, or reports the parts that it could not
 * read. */
static void salvage_it(struct outcome *outcome)
{
    truce_salvage_report report;
    truce_store *to;
    bson_error_t error = {0};
    int64_t count = 0;

    if (truce_store_open(other, NULL, &to, &error))
        return;
    if (!truce_salvage(path, to, NULL, &report, &error) &&
        !truce_count(to, "c", NULL, NULL, &count, &error) && count < DOCUMENTS && !report.lost_log)
        note(outcome, TRUCE_CORRUPT, &(bson_error_t){.message = "salvage misses documents"});
    truce_store_close(to);
}

static void do_task(int task, struct outcome *outcome)
{
    switch (task) {
    case 0:
        with_store(write_some, outcome);
        break;
    case 1:
        with_store(check_it, outcome);
        break;
    case 2:
        with_store(copy_it, outcome);
        break;
    case 3:
        with_store(compact_it, outcome);
        break;
    default:
        salvage_it(outcome);
    }
}

/* False: there are fewer calls. */
static bool fail_one(int task, enum kind kind, int number)
{
    struct outcome outcome = {0};
    int results[2], state;
    pid_t child;

    if (!put_back() || !CHECK(!pipe(results)))
        return false;
    fflush(NULL);
    child = fork();
    if (!child) {
        failing = kind;
        atomic_store(&left, number);
        do_task(task, &outcome);
        atomic_store(&left, 0);
        outcome.failed = atomic_load(&failed);
        _exit(write(results[1], &outcome, sizeof outcome) != sizeof outcome);
    }
    close(results[1]);
    CHECK(waitpid(child, &state, 0) == child && !state);
    CHECK(read(results[0], &outcome, sizeof outcome) == sizeof outcome);
    close(results[0]);
    if (!CHECK(outcome.status != TRUCE_CORRUPT))
        fprintf(stderr, "  task %d, kind %d, call %d: %s\n", task, kind, number, outcome.message);
    {
        struct outcome after = {0};
        truce_store *store;
        int64_t count = 0;
        bson_error_t error;

        if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error)) {
            fprintf(stderr, "  task %d, kind %d, call %d\n", task, kind, number);
            return outcome.failed;
        }
        CHECK_OK(truce_count(store, "c", NULL, NULL, &count, &error), error);
        CHECK_INT(count, >=, DOCUMENTS + outcome.acknowledged);
        check_it(store, &after);
        CHECK_TEXT("", after.message);
        truce_store_close(store);
    }
    return outcome.failed;
}

/* Fails calls of one kind, in all operations of a store: one in `step` calls, from a random one. */
static void fail_each(enum kind kind, int step)
{
    int calls = 0;
    struct random random;

    truce__random_seed(&random, test_seed());
    REQUIRE(make());
    for (int task = 0; task < 5; task++)
        for (int number = 1 + (int)truce__random_below(&random, (uint64_t)step);
             fail_one(task, kind, number); number += step)
            calls++;
    CHECK_INT(calls, >, 0);
    image_release(&file);
    image_release(&logged);
}

TEST(a_read_that_fails_once_is_not_damage)
{
    fail_each(READ_FAILS, (int)test_scale("TRUCE_TRANSIENT_STEP", 5));
}

TEST(a_read_that_ends_early_once_is_not_damage)
{
    fail_each(READ_ENDS, (int)test_scale("TRUCE_TRANSIENT_STEP", 5));
}

TEST(an_fstat_that_fails_once_is_not_damage)
{
    fail_each(LOOK_FAILS, (int)test_scale("TRUCE_TRANSIENT_STEP", 5));
}

TEST(an_opening_that_fails_once_is_not_damage)
{
    fail_each(OPEN_FAILS, 1); /* few calls */
}

TEST(a_mapping_that_fails_once_is_not_damage)
{
    fail_each(MAP_FAILS, 1); /* few calls */
}
