/*
 * The directory of an archive on a disk that fails once: a name counts as stored only after a sync of
 * each directory above it has succeeded.
 *
 * This program has its own fsync, which the archive's directory uses.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "archive/archive_target.h"
#include "tests/support/test.h"

#define NAME "00000001/0000000001.log"

static struct {
    /* The sync of a directory that fails, counted down. */
    int fails;
    ino_t synced[16];
    int count;
    /* The file system does not sync directories. */
    bool unsynced;
} disk;

int fsync(int file)
{
    struct stat about;

    if (!fstat(file, &about) && S_ISDIR(about.st_mode)) {
        if (disk.unsynced) {
            errno = EINVAL;
            return -1;
        }
        if (disk.fails && !--disk.fails) {
            errno = EIO;
            return -1;
        }
        if (disk.count < 16)
            disk.synced[disk.count++] = about.st_ino;
    }
    return (int)syscall(SYS_fsync, file);
}

static bool was_synced(const char *path)
{
    struct stat about;

    if (stat(path, &about))
        return false;
    for (int i = 0; i < disk.count; i++) {
        if (disk.synced[i] == about.st_ino)
            return true;
    }
    return false;
}

/* Stores a file in a new directory. The sync with this number fails; the calls are repeated as the
 * archiver and its service do. Returns whether a call failed. */
static bool store_in(const char *above, const char *path, int fails)
{
    char folder[400];
    struct target *target = NULL;
    truce_status status = TRUCE_IO;
    bool failed = false;
    bson_error_t error;

    disk.fails = fails;
    disk.count = 0;
    while (truce__target_directory(path, true, &target, &error) && !failed)
        failed = true;
    if (!CHECK(target != NULL))
        return failed;
    for (int i = 0; i < 3 && status == TRUCE_IO; i++) {
        status = target->calls->put(target, NAME, "abc", 3, &error);
        failed = failed || status;
    }
    CHECK(status == TRUCE_OK || status == TRUCE_DUPLICATE);
    snprintf(folder, sizeof folder, "%s/00000001", path);
    CHECK(was_synced(above));
    CHECK(was_synced(path));
    CHECK(was_synced(folder));
    truce__target_close(target);
    return failed;
}

TEST(stores_a_name_only_after_its_directories_are_synced)
{
    const char *above = test_directory();
    int fails = 0;
    char path[360];
    bool failed;

    do {
        snprintf(path, sizeof path, "%s/archive%d", above, ++fails);
        failed = store_in(above, path, fails);
    } while (failed && fails < 10);
    CHECK_INT(fails, ==, 4);
}

TEST(stores_names_on_a_file_system_that_syncs_no_directories)
{
    struct target *target = NULL;
    bson_error_t error;
    char path[360];

    snprintf(path, sizeof path, "%s/archive", test_directory());
    disk.unsynced = true;
    if (CHECK_OK(truce__target_directory(path, true, &target, &error), error))
        CHECK_OK(target->calls->put(target, NAME, "abc", 3, &error), error);
    truce__target_close(target);
    disk.unsynced = false;
}
