/*
 * An archive in a directory.
 *
 *     DIR/00000001/0000000042.log           a segment
 *     DIR/00000001/.0000000042.log.PID      a segment that is being written
 *
 * Invariants:
 *  1. A name appears with its whole content: the file is written and synced under a hidden name,
 *     then renamed, and the directory is synced. The rename replaces no file.
 *  2. put returns after all of this. A new directory is synced in the directory above it first.
 *
 * A crash leaves a hidden file, which the next archiver removes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/segment.h"
#include "archive/target.h"

struct target_directory {
    struct target base; /* first */
    int directory;
    /* The last generation whose directory is known to be durable. */
    char durable[9];
};

static struct target_directory *directory_of(struct target *target)
{
    return (struct target_directory *)target;
}

static truce_status directory_fail(const struct target *target, const char *what, const char *name,
                                   bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "cannot %s \"%s/%s\": %s", what, target->name, name,
                       strerror(errno));
}

static bool directory_write_all(int file, const uint8_t *bytes, size_t size)
{
    while (size) {
        ssize_t wrote = write(file, bytes, size);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        bytes += wrote;
        size -= (size_t)wrote;
    }
    return true;
}

/* Closes the file. Returns `fine`, and keeps errno. */
static bool directory_close(int file, bool fine)
{
    int before = errno;

    if (close(file) && fine)
        return false;
    errno = before;
    return fine;
}

/* Opens the directory of a generation, and creates it if it is missing. It may exist because a
 * process created it that ended before it had synced the directory above it. */
static int open_folder(struct target_directory *target, const char *name)
{
    char folder[9];

    snprintf(folder, sizeof folder, "%.8s", name);
    if (strcmp(folder, target->durable) != 0) {
        /* invariant 2 */
        if ((mkdirat(target->directory, folder, 0777) && errno != EEXIST) ||
            fsync(target->directory))
            return -1;
        memcpy(target->durable, folder, sizeof folder);
    }
    return openat(target->directory, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Renames without replacing a file. Some file systems have no such call. */
static bool rename_new(int folder, const char *from, const char *to)
{
    if (!renameat2(folder, from, folder, to, RENAME_NOREPLACE))
        return true;
    if (errno != EINVAL && errno != ENOSYS)
        return false;
    return !linkat(folder, from, folder, to, 0) && !unlinkat(folder, from, 0);
}

static bool write_new(int folder, const char *name, const void *bytes, size_t size)
{
    char hidden[64];
    int file, before;
    bool fine;

    snprintf(hidden, sizeof hidden, ".%.31s.%d", name, (int)getpid());
    file = openat(folder, hidden, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
        return false;
    fine = directory_write_all(file, bytes, size) && !fsync(file);
    fine = directory_close(file, fine) && rename_new(folder, hidden, name) && !fsync(folder);
    if (fine)
        return true;
    before = errno;
    (void)unlinkat(folder, hidden, 0);
    errno = before;
    return false;
}

static truce_status directory_put(struct target *target, const char *name, const void *bytes,
                                  size_t size, bson_error_t *error)
{
    int folder = open_folder(directory_of(target), name);
    bool fine = folder >= 0 && write_new(folder, name + 9, bytes, size);

    if (folder >= 0)
        fine = directory_close(folder, fine);
    if (fine)
        return TRUCE_OK;
    if (errno == EEXIST)
        return truce__fail(TRUCE_DUPLICATE, error, "\"%s/%s\" exists already", target->name, name);
    return directory_fail(target, "write", name, error);
}

static truce_status directory_get(struct target *target, const char *name, size_t most,
                                  struct buffer *out, bson_error_t *error)
{
    int file = openat(directory_of(target)->directory, name, O_RDONLY | O_CLOEXEC);
    ssize_t got = 1;

    if (file < 0 && errno == ENOENT)
        return truce__fail(TRUCE_NOT_FOUND, error, "\"%s/%s\" is missing", target->name, name);
    if (file < 0)
        return directory_fail(target, "read", name, error);
    while (most && got > 0) {
        size_t part = most < 1024 * 1024 ? most : 1024 * 1024;

        truce__buffer_reserve(out, part);
        got = read(file, out->bytes + out->size, part);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0) {
            out->size += (size_t)got;
            most -= (size_t)got;
        }
    }
    if (!directory_close(file, got >= 0))
        return directory_fail(target, "read", name, error);
    return TRUCE_OK;
}

/* Passes the files of one generation, or removes the hidden ones (`function` is NULL). */
static truce_status list_folder(struct target *target, const char *folder,
                                target_name_function *function, void *arg, bson_error_t *error)
{
    int file = openat(directory_of(target)->directory, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *opened = file < 0 ? NULL : fdopendir(file);
    struct dirent *found;
    char name[300];

    if (!opened) {
        if (file >= 0)
            close(file);
        return directory_fail(target, "list", folder, error);
    }
    for (errno = 0; (found = readdir(opened)); errno = 0) {
        snprintf(name, sizeof name, "%s/%s", folder, found->d_name);
        if (found->d_name[0] != '.' && function)
            function(arg, name);
        else if (found->d_name[0] == '.' && strlen(found->d_name) > 2 && !function)
            (void)unlinkat(dirfd(opened), found->d_name, 0);
    }
    if (errno) {
        closedir(opened);
        return directory_fail(target, "list", folder, error);
    }
    closedir(opened);
    return TRUCE_OK;
}

static bool is_folder(const char *name)
{
    return strlen(name) == 8 && strspn(name, "0123456789") == 8;
}

/* Does the same in all generations. */
static truce_status directory_list(struct target *target, target_name_function *function, void *arg,
                                   bson_error_t *error)
{
    int file = openat(directory_of(target)->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *opened = file < 0 ? NULL : fdopendir(file);
    truce_status status = TRUCE_OK;
    struct dirent *found;

    if (!opened) {
        if (file >= 0)
            close(file);
        return directory_fail(target, "list", "", error);
    }
    for (errno = 0; !status && (found = readdir(opened)); errno = 0) {
        if (is_folder(found->d_name))
            status = list_folder(target, found->d_name, function, arg, error);
    }
    if (!status && errno)
        status = directory_fail(target, "list", "", error);
    closedir(opened);
    return status;
}

/* Removes the directory of a generation with its last file. */
static truce_status directory_remove(struct target *target, const char *name, bson_error_t *error)
{
    int directory = directory_of(target)->directory;
    char folder[9];

    if (unlinkat(directory, name, 0) && errno != ENOENT)
        return directory_fail(target, "remove", name, error);
    snprintf(folder, sizeof folder, "%.8s", name);
    if (!unlinkat(directory, folder, AT_REMOVEDIR))
        directory_of(target)->durable[0] = 0;
    return TRUCE_OK;
}

static truce_status directory_clean(struct target *target, bson_error_t *error)
{
    return directory_list(target, NULL, NULL, error);
}

static void directory_close_target(struct target *target)
{
    close(directory_of(target)->directory);
    bson_free(target->name);
    bson_free(target);
}

static const struct target_calls directory_calls = {.put = directory_put,
                                                    .get = directory_get,
                                                    .list = directory_list,
                                                    .remove = directory_remove,
                                                    .clean = directory_clean,
                                                    .close = directory_close_target};

/* Syncs the directory above, which has the name of this one. */
static bool sync_above(int directory)
{
    int above = openat(directory, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool fine = above >= 0 && !fsync(above);

    return above >= 0 ? directory_close(above, fine) : false;
}

truce_status truce__target_directory(const char *path, bool create, struct target **target,
                                     bson_error_t *error)
{
    bool fresh = create && !mkdir(path, 0777);
    struct target_directory *made;
    int directory;

    *target = NULL;
    if (create && !fresh && errno != EEXIST)
        return truce__fail(TRUCE_IO, error, "cannot create the directory \"%s\": %s", path,
                           strerror(errno));
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 && errno == ENOENT)
        return truce__fail(TRUCE_NOT_FOUND, error, "there is no archive \"%s\"", path);
    if (directory < 0)
        return truce__fail(TRUCE_IO, error, "cannot open the directory \"%s\": %s", path,
                           strerror(errno));
    if (fresh && !sync_above(directory)) {
        close(directory);
        return truce__fail(TRUCE_IO, error, "cannot sync the directory above \"%s\": %s", path,
                           strerror(errno));
    }
    made = bson_malloc0(sizeof *made);
    made->base = (struct target){.calls = &directory_calls, .name = bson_strdup(path)};
    made->directory = directory;
    *target = &made->base;
    return TRUCE_OK;
}

void truce__target_close(struct target *target)
{
    if (target)
        target->calls->close(target);
}
