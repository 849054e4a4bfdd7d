/*
 * An archive in a directory.
 *
 *     DIR/00000001/0000000042.log           a segment
 *     DIR/00000001/.0000000042.log.PID      a segment that is being written
 *
 * Invariants:
 *  1. A name appears with its whole content: the file is written and synced under a hidden name,
 *     then renamed, and the directory is synced. The rename replaces no file.
 *  2. put returns after all of this, also if the name exists. A new directory is synced in the
 *     directory above it first.
 *
 * A crash leaves a hidden file, which the next archiver removes. If the path leads to another
 * directory now, for example because it was mounted again, an archiver continues only if that
 * directory has its last segment. A put that finds another directory fails, and writes nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/archive_segment.h"
#include "archive/archive_target.h"
#include "base/assert.h"
#include "base/directory_sync.h"

/* The milliseconds between two calls of has_after (archive_target.h). */
#define CHECK_MS 100

struct target_directory {
    /* Must be the first field. */
    struct target base;
    int directory;
    /* The name of the last generation whose directory is known to be durable. */
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

/* Closes the file. Returns `fine`, or false if closing fails, and preserves errno. */
static bool directory_close(int file, bool fine)
{
    int before = errno;

    if (close(file) && fine)
        return false;
    errno = before;
    return fine;
}

/* Opens the path again if it leads to another directory now. Returns whether it does. */
static bool directory_renew(struct target_directory *target)
{
    int found = open(target->base.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat before, now;

    if (found < 0)
        return false;
    if (!fstat(target->directory, &before) && !fstat(found, &now) && before.st_dev == now.st_dev &&
        before.st_ino == now.st_ino) {
        close(found);
        return false;
    }
    close(target->directory);
    target->directory = found;
    target->durable[0] = 0;
    target->base.renewed = true;
    return true;
}

/* Opens the directory of a generation, and creates it if it is missing. The directory may exist
 * although it is not durable yet: a process may have created it and died before it had synced the
 * directory above it. */
static int open_folder(struct target_directory *target, const char *name)
{
    char folder[9];

    snprintf(folder, sizeof folder, "%.8s", name);
    if (strcmp(folder, target->durable) != 0) {
        /* Invariant 2. */
        if ((mkdirat(target->directory, folder, 0777) && errno != EEXIST) ||
            !truce__directory_sync(target->directory))
            return -1;
        memcpy(target->durable, folder, sizeof folder);
    }
    return openat(target->directory, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Renames a file without replacing another one. Uses a link if the file system has no such
 * rename. */
static bool rename_new(int folder, const char *from, const char *to)
{
    if (!renameat2(folder, from, folder, to, RENAME_NOREPLACE))
        return true;
    if (errno != EINVAL && errno != ENOSYS)
        return false;
    return !linkat(folder, from, folder, to, 0) && !unlinkat(folder, from, 0);
}

/* Writes and syncs a file in the directory of its generation (invariant 1). If the function returns
 * false, errno has the reason; EEXIST means that a durable file of this name exists. */
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
    fine = directory_close(file, fine) && rename_new(folder, hidden, name) &&
           truce__directory_sync(folder);
    if (fine)
        return true;
    before = errno;
    (void)unlinkat(folder, hidden, 0);
    /* The caller accepts a file of this name with the same bytes. The sync after an earlier rename
     * may have failed, so the directory is synced again. */
    if (before == EEXIST && !truce__directory_sync(folder))
        before = errno;
    errno = before;
    return false;
}

/* Stores a file (target_calls.put). If the directory is gone and the path leads to another one now,
 * opens that one, but fails with IO: the archiver must check it before it puts anything there
 * (`renewed`). */
static truce_status directory_put(struct target *target, const char *name, const void *bytes,
                                  size_t size, bson_error_t *error)
{
    int folder = open_folder(directory_of(target), name);
    bool fine;

    if (folder < 0 && errno == ENOENT && directory_renew(directory_of(target)))
        return truce__fail(TRUCE_IO, error, "\"%s\" is another directory now", target->name);
    fine = folder >= 0 && write_new(folder, name + 9, bytes, size);
    if (folder >= 0)
        fine = directory_close(folder, fine);
    if (fine)
        return TRUCE_OK;
    if (errno == EEXIST)
        return truce__fail(TRUCE_DUPLICATE, error, "\"%s/%s\" already exists", target->name, name);
    return directory_fail(target, "write", name, error);
}

/* Reads the first `most` bytes of a file (target_calls.get). */
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

/* Opens the directory of a generation, or of the target itself if `folder` is "", to list it.
 * Returns NULL and sets `*status` on failure. */
static DIR *directory_open_list(struct target *target, const char *folder, truce_status *status,
                                bson_error_t *error)
{
    int file = openat(directory_of(target)->directory, *folder ? folder : ".",
                      O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *opened = file < 0 ? NULL : fdopendir(file);

    *status = opened ? TRUCE_OK : directory_fail(target, "list", folder, error);
    if (!opened && file >= 0)
        close(file);
    return opened;
}

/* Passes the files of one generation to `function`, or removes the hidden files if `function` is
 * NULL. */
static truce_status list_folder(struct target *target, const char *folder,
                                target_name_function *function, void *arg, bson_error_t *error)
{
    truce_status status;
    DIR *opened = directory_open_list(target, folder, &status, error);
    struct dirent *found;
    char name[300];

    if (!opened)
        return status;
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

/* Does what list_folder does, in all generations. */
static truce_status directory_list(struct target *target, target_name_function *function, void *arg,
                                   bson_error_t *error)
{
    truce_status status;
    struct dirent *found;
    DIR *opened;

    (void)directory_renew(directory_of(target));
    opened = directory_open_list(target, "", &status, error);
    if (!opened)
        return status;
    for (errno = 0; !status && (found = readdir(opened)); errno = 0) {
        if (is_folder(found->d_name))
            status = list_folder(target, found->d_name, function, arg, error);
    }
    if (!status && errno)
        status = directory_fail(target, "list", "", error);
    closedir(opened);
    return status;
}

/* Finds a later generation. */
static truce_status find_later_folder(struct target *target, uint32_t generation, bool *found,
                                      bson_error_t *error)
{
    truce_status status;
    DIR *opened = directory_open_list(target, "", &status, error);
    struct dirent *entry;

    if (!opened)
        return status;
    for (errno = 0; (entry = readdir(opened)); errno = 0)
        *found =
            *found || (is_folder(entry->d_name) && strtoul(entry->d_name, NULL, 10) > generation);
    if (errno) {
        closedir(opened);
        return directory_fail(target, "list", "", error);
    }
    closedir(opened);
    return TRUCE_OK;
}

/* Returns whether a later segment exists (target_calls.has_after). Looks only for the next number
 * of the generation, in each kind, because an archiver leaves no gap. */
static truce_status directory_has_after(struct target *target, const char *name, bool *found,
                                        bson_error_t *error)
{
    struct segment_name next = {0};
    char text[SEGMENT_NAME_BYTES];

    *found = false;
    (void)directory_renew(directory_of(target));
    truce_assert(truce__segment_name_parse(name, &next));
    next.sequence++;
    for (next.kind = SEGMENT_BASE; next.kind <= SEGMENT_END; next.kind++) {
        truce__segment_name(&next, text);
        *found = *found || !faccessat(directory_of(target)->directory, text, F_OK, 0);
    }
    return *found ? TRUCE_OK : find_later_folder(target, next.generation, found, error);
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
                                                    .has_after = directory_has_after,
                                                    .remove = directory_remove,
                                                    .clean = directory_clean,
                                                    .close = directory_close_target};

/* Syncs the directory above, which contains the name of this one. */
static bool sync_above(int directory)
{
    int above = openat(directory, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool fine = above >= 0 && truce__directory_sync(above);

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
        return truce__fail(TRUCE_NOT_FOUND, error, "the archive \"%s\" does not exist", path);
    if (directory < 0 && errno == ENOTDIR)
        return truce__fail(TRUCE_INVALID, error,
                           "\"%s\" is a file: expected the directory of an archive", path);
    if (directory < 0)
        return truce__fail(TRUCE_IO, error, "cannot open the directory \"%s\": %s", path,
                           strerror(errno));
    /* The directory may have been created by a process that died before it had synced the directory
     * above. Some users may not read that directory. */
    if (create && !sync_above(directory) && (fresh || errno == EIO)) {
        close(directory);
        return truce__fail(TRUCE_IO, error, "cannot sync the directory above \"%s\": %s", path,
                           strerror(errno));
    }
    made = bson_malloc0(sizeof *made);
    made->base =
        (struct target){.calls = &directory_calls, .name = bson_strdup(path), .check_ms = CHECK_MS};
    made->directory = directory;
    *target = &made->base;
    return TRUCE_OK;
}

void truce__target_close(struct target *target)
{
    if (target)
        target->calls->close(target);
}
