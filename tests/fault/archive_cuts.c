/*
 * Power cuts of a machine that has both the store and its archive, under a mixed load of all
 * patterns whose answers wait for the archive. Unsynced writes of the store are lost at random
 * (disk_vfs.h), and so are names and contents in the archive that were not synced.
 *
 * After each cut the archive must be without a fault and have every answered step, and no commit
 * that the store has lost. The next archiver must continue it.
 *
 * This program has its own fsync, write, renameat2, and mkdirat, which the archive's directory
 * uses.
 *
 * TRUCE_ARCHIVE_CUTS: how many cuts.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/random.h"
#include "engine/engine.h"
#include "store/file/file.h"
#include "tests/support/archive_load.h"
#include "tests/support/descriptor.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/test.h"

#define DATABASE "one"

/* ---- the disk of the archive ---------------------------------------------------------------- */

#define PENDING_MAX 64
#define PATH_BYTES  600

enum pending_kind { PENDING_NONE, PENDING_CONTENT, PENDING_NAME, PENDING_FOLDER };

/* Changes that a power cut may undo. */
static struct {
    pthread_mutex_t mutex;
    /* The directory; empty: nothing is recorded. */
    char directory[400];
    struct pending {
        enum pending_kind kind;
        char path[PATH_BYTES], from[PATH_BYTES];
    } all[PENDING_MAX];
    unsigned overwritten;
    /* The power is cut at this call, counted down. */
    atomic_int until;
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool path_of(int file, char path[PATH_BYTES])
{
    descriptor_path(file, path, PATH_BYTES);
    return disk.directory[0] && !strncmp(path, disk.directory, strlen(disk.directory));
}

/* Counts a call. Returns false if there is no power. */
static bool has_power(void)
{
    if (atomic_fetch_sub(&disk.until, 1) == 1)
        disk_cut();
    if (!disk_is_cut())
        return true;
    errno = EIO;
    return false;
}

static void pend(enum pending_kind kind, const char *path, const char *from)
{
    int i = 0;

    pthread_mutex_lock(&disk.mutex);
    while (i < PENDING_MAX && disk.all[i].kind &&
           (disk.all[i].kind != kind || strcmp(disk.all[i].path, path) != 0))
        i++;
    /* An archive that does not sync has more. The first ones count as synced. */
    if (i == PENDING_MAX)
        i = (int)(disk.overwritten++ % PENDING_MAX);
    disk.all[i].kind = kind;
    snprintf(disk.all[i].path, PATH_BYTES, "%s", path);
    snprintf(disk.all[i].from, PATH_BYTES, "%s", from);
    /* The content goes with the name. */
    for (int k = 0; k < PENDING_MAX && kind == PENDING_NAME; k++) {
        if (disk.all[k].kind == PENDING_CONTENT && !strcmp(disk.all[k].path, from))
            snprintf(disk.all[k].path, PATH_BYTES, "%s", path);
    }
    pthread_mutex_unlock(&disk.mutex);
}

/* A sync of a file keeps its content. A sync of a directory keeps the names in it. */
static void keep(const char *path)
{
    size_t size = strlen(path);

    pthread_mutex_lock(&disk.mutex);
    for (int i = 0; i < PENDING_MAX; i++) {
        const char *name = disk.all[i].path;
        bool inside =
            !strncmp(name, path, size) && name[size] == '/' && !strchr(name + size + 1, '/');

        if (disk.all[i].kind == PENDING_CONTENT ? !strcmp(name, path) : inside)
            disk.all[i].kind = PENDING_NONE;
    }
    pthread_mutex_unlock(&disk.mutex);
}

int fsync(int file)
{
    char path[PATH_BYTES];
    bool own = path_of(file, path);

    if (own && !has_power())
        return -1;
    if (syscall(SYS_fsync, file))
        return -1;
    if (own)
        keep(path);
    return 0;
}

ssize_t write(int file, const void *bytes, size_t size)
{
    char path[PATH_BYTES];

    if (path_of(file, path)) {
        if (!has_power())
            return -1;
        pend(PENDING_CONTENT, path, "");
    }
    return syscall(SYS_write, file, bytes, size);
}

int renameat2(int from_folder, const char *from, int folder, const char *to, unsigned flags)
{
    char path[PATH_BYTES], name[PATH_BYTES + 300], before[PATH_BYTES + 300];
    bool own = path_of(folder, path);
    long code;

    if (own && !has_power())
        return -1;
    code = syscall(SYS_renameat2, from_folder, from, folder, to, flags);
    if (!code && own) {
        snprintf(name, sizeof name, "%s/%s", path, to);
        snprintf(before, sizeof before, "%s/%s", path, from);
        pend(PENDING_NAME, name, before);
    }
    return (int)code;
}

int mkdirat(int folder, const char *name, mode_t mode)
{
    char path[PATH_BYTES], whole[PATH_BYTES + 300];
    bool own = path_of(folder, path);
    long code;

    if (own && !has_power())
        return -1;
    code = syscall(SYS_mkdirat, folder, name, mode);
    if (!code && own) {
        snprintf(whole, sizeof whole, "%s/%s", path, name);
        pend(PENDING_FOLDER, whole, "");
    }
    return (int)code;
}

static void undo(const struct pending *pending, struct random *random)
{
    char command[PATH_BYTES + 20];
    struct stat found;

    switch (pending->kind) {
    case PENDING_CONTENT:
        if (!stat(pending->path, &found) && found.st_size)
            (void)!truncate(pending->path,
                            (off_t)truce__random_below(random, (uint64_t)found.st_size));
        break;
    case PENDING_NAME:
        if (truce__random_below(random, 2))
            (void)rename(pending->path, pending->from);
        else
            (void)unlink(pending->path);
        break;
    case PENDING_FOLDER:
        snprintf(command, sizeof command, "rm -rf '%s'", pending->path);
        CHECK_INT(system(command), ==, 0);
        break;
    case PENDING_NONE:
        break;
    }
}

/* Undoes a random choice of what was not synced. */
static void disk_lose(struct random *random)
{
    disk.directory[0] = 0;
    for (int i = PENDING_MAX; i--;) {
        if (truce__random_below(random, 2))
            undo(&disk.all[i], random);
        disk.all[i].kind = PENDING_NONE;
    }
}

/* ---- a life until the cut ------------------------------------------------------------------- */

static struct {
    char path[300], archive[320], after[320], restored[340];
    uint8_t id[SEGMENT_STORE_BYTES];
    truce_store *store;
    struct target *target;
    struct archive_sync sync;
    atomic_int stop;
    /* The last step that was begun, and that was answered. */
    int begun, answered;
} life;

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

static void *life_write(void *arg)
{
    const struct durable *durable = &truce__file_engine_or_null(life.store)->durable;
    bson_error_t error;

    while (!disk_is_cut()) {
        life.begun++;
        if (load_step(life.store, DATABASE, life.begun, false, &error))
            break;
        if (!truce__archive_sync_wait(&life.sync, durable, INT64_MAX, &error))
            life.answered = life.begun;
    }
    return arg;
}

static truce_status life_archive(const char *path, bool once, bson_error_t *error)
{
    const struct archive_options options = {.interval_ms = 5,
                                            .log_limit = 1 << 30,
                                            .once = once,
                                            .sync = once ? NULL : &life.sync,
                                            .stop = &life.stop};

    return truce__archive_run(path, life.id, life.target, &options, error);
}

static void *life_archive_thread(void *arg)
{
    bson_error_t error;

    (void)life_archive(life.path, false, &error);
    return arg;
}

static bool life_begin(void)
{
    const char *directory = test_directory();
    bson_error_t error;

    memset(&life, 0, sizeof life);
    disk_reset();
    disk_honest(true);
    snprintf(life.path, sizeof life.path, "%s/s.truce", directory);
    snprintf(life.archive, sizeof life.archive, "%s/archive", directory);
    snprintf(life.after, sizeof life.after, "%s/after", directory);
    snprintf(life.restored, sizeof life.restored, "%s/r.truce", directory);
    mkdir(life.after, 0700);
    truce__archive_sync_init(&life.sync, 100);
    return CHECK_OK(truce_store_open(life.path, NULL, &life.store, &error), error) &&
           CHECK_OK(truce__archive_store_id(life.store, life.id, &error), error) &&
           load_prepare(life.store, DATABASE) &&
           CHECK_OK(truce__target_directory(life.archive, true, &life.target, &error), error);
}

/* Runs until the power is cut at a call of the store, or of the archive. */
static void life_run(struct random *random)
{
    pthread_t writer, archiver;

    atomic_store(&disk.until, truce__random_below(random, 2)
                                  ? 1 + (int)truce__random_below(random, 150)
                                  : INT32_MAX);
    snprintf(disk.directory, sizeof disk.directory, "%s", life.archive);
    disk_cut_after(1 + (int64_t)truce__random_below(random, 500));
    pthread_create(&archiver, NULL, life_archive_thread, NULL);
    pthread_create(&writer, NULL, life_write, NULL);
    pthread_join(writer, NULL);
    disk_cut();
    atomic_store(&life.stop, 1);
    pthread_join(archiver, NULL);
    disk_restore(life.after, random);
    disk_lose(random);
    truce_store_close(life.store);
    disk_reset();
    atomic_store(&life.stop, 0);
}

/* ---- after the cut -------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
    const truce_store_options options = {.must_exist = true};
    truce_store *store;
    bson_error_t error;
    char *text;

    if (!CHECK_OK(truce_store_open(path, &options, &store, &error), error))
        return NULL;
    text = load_read(store, DATABASE);
    truce_store_close(store);
    return text;
}

/* Restores the last commit. `*none`: the archive has no complete base, which is no fault. */
static char *read_archive(bool *none)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};
    const struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report;
    bson_error_t error;
    truce_status status;
    char name[360];

    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s", life.restored, suffixes[i]);
        unlink(name);
    }
    status = truce__archive_restore(life.target, life.restored, &options, &report, &error);
    *none = status == TRUCE_NOT_FOUND;
    return *none || !CHECK_OK(status, error) ? NULL : read_file(life.restored);
}

/* Advances the replay until it equals the text. Returns its step, or -1 if no step does. */
static int find_step(truce_store *replay, int from, const char *text)
{
    bson_error_t error;

    for (int step = from; text && step <= life.begun; step++) {
        char *own = load_read(replay, DATABASE);
        bool same = own && !strcmp(own, text);

        bson_free(own);
        if (same)
            return step;
        if (step < life.begun &&
            !CHECK_OK(load_step(replay, DATABASE, step + 1, false, &error), error))
            return -1;
    }
    return -1;
}

static truce_store *replay_begin(int steps)
{
    truce_store *replay;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open("memory:", NULL, &replay, &error), error))
        return NULL;
    (void)load_prepare(replay, DATABASE);
    for (int step = 1; step <= steps; step++)
        CHECK_OK(load_step(replay, DATABASE, step, false, &error), error);
    return replay;
}

static void life_check(void)
{
    truce_store *replay = replay_begin(life.answered);
    struct verify_report report;
    bson_error_t error;
    bool none;
    char path[360], *archived, *stored, *again;
    int step = life.answered;

    CHECK_OK(truce__archive_verify(life.target, NULL, NULL, &report, &error), error);
    CHECK_INT(report.faults, ==, 0);
    archived = read_archive(&none);
    /* Without a base, no step was answered. */
    if (none)
        CHECK_INT(life.answered, ==, 0);
    else if (CHECK(archived != NULL)) {
        step = find_step(replay, step, archived);
        CHECK_INT(step, >=, life.answered);
    }
    snprintf(path, sizeof path, "%s/s.truce", life.after);
    CHECK_OK(life_archive(path, true, &error), error);
    stored = read_file(path);
    if (step >= 0 && stored)
        CHECK_INT(find_step(replay, step, stored), >=, step);
    again = read_archive(&none);
    CHECK(stored && again && !strcmp(stored, again));
    CHECK_OK(truce__archive_verify(life.target, NULL, NULL, &report, &error), error);
    CHECK_INT(report.faults, ==, 0);
    bson_free(archived);
    bson_free(stored);
    bson_free(again);
    truce_store_close(replay);
}

TEST(keeps_acknowledged_commits_in_an_archive_after_a_power_cut)
{
    long cuts = test_scale("TRUCE_ARCHIVE_CUTS", 10), steps = 0, answered = 0;
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long i = 0; i < cuts && !test_failures(); i++) {
        if (!life_begin())
            break;
        life_run(&random);
        life_check();
        truce__target_close(life.target);
        truce__archive_sync_release(&life.sync);
        steps += life.begun;
        answered += life.answered;
        if (i % 100 == 99)
            printf("%ld cuts, %ld steps, %ld answered\n", i + 1, steps, answered);
    }
    CHECK_INT(answered, >, 0);
}
