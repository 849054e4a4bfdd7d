/*
 * Checks before SQLite opens a file.
 *
 *  1. Resolve the links of the path.
 *  2. Check that this process may open the file, and that its first bytes are those of a store.
 *  3. Enter the lock file. If its page belongs to another store, adopt it only if SQLite also
 *     reports that no process has the file open.
 *  4. Check that database and log belong together. Then SQLite may open the file.
 *
 * These checks open the database only through SQLite, to read its first bytes and to try its lock.
 * Everything else comes from stat(), because closing a descriptor of the file would drop all locks
 * that SQLite has on it in this process.
 *
 * A file with a second name (a hard link) would have a second log next to that name. A process that
 * opens it by one name would not see commits made through the other, and both logs would be moved
 * into one file.
 */
#include "engine/open_checks.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/storage/file_format.h"
#include "engine/storage/file_identity.h"
#include "engine/storage/fork_guard.h"
#include "engine/storage/kv.h"

/* The number of symbolic links that Linux follows in one path. */
#define LINKS_MAX 40
/* The milliseconds between two attempts to open a file that another program has locked. */
#define AGAIN_MS 5
/* The maximum milliseconds to wait for the locks of another program, which may be closing the
 * file. */
#define FOREIGN_MS_MAX 2000

/* ---- the path ------------------------------------------------------------------------------- */

static truce_status open_checks_cannot(const char *path, bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "cannot open \"%s\": %s", path, strerror(errno));
}

/* Returns the path of `name` in the directory of `path`, or `name` itself if it is absolute. */
static char *path_in_same_directory(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');

    if (*name == '/' || !slash)
        return bson_strdup(name);
    return bson_strdup_printf("%.*s%s", (int)(slash - path + 1), path, name);
}

/* Resolves the path of a file that does not exist: its directory without links, and its name.
 * Returns NULL with errno. */
static char *resolve_new(const char *path)
{
    char *directory = path_in_same_directory(path, "."), *found = realpath(directory, NULL);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    char *resolved = NULL;

    if (found && !*name)
        errno = EISDIR;
    else if (found)
        resolved = bson_strdup_printf("%s/%s", strcmp(found, "/") ? found : "", name);
    free(found);
    bson_free(directory);
    return resolved;
}

/* Resolves all links of a path. The file need not exist: if the last link leads to a missing file,
 * the file will be created there. Follows at most `links` links. Returns NULL with errno. */
static char *open_checks_resolve(const char *path, int links)
{
    char *found = realpath(path, NULL), *resolved = bson_strdup(found), *next;
    char target[PATH_MAX + 1];
    ssize_t size;

    free(found);
    if (resolved || errno != ENOENT)
        return resolved;
    size = readlink(path, target, PATH_MAX);
    if (size < 0)
        return resolve_new(path);
    if (!links) {
        errno = ELOOP;
        return NULL;
    }
    target[size] = 0;
    next = path_in_same_directory(path, target);
    resolved = open_checks_resolve(next, links - 1);
    bson_free(next);
    return resolved;
}

static truce_status check_file(const char *path, const struct stat *found, bson_error_t *error)
{
    if (S_ISDIR(found->st_mode))
        return truce__fail(TRUCE_INVALID, error,
                           "\"%s\" is a directory: expected the path of a file", path);
    if (!S_ISREG(found->st_mode))
        return truce__fail(TRUCE_CORRUPT, error, "\"%s\" is not a regular file", path);
    if (found->st_nlink > 1)
        return truce__fail(TRUCE_INVALID, error,
                           "\"%s\" has %llu names (hard links), and each would have a log of its "
                           "own: remove the others, or make a copy",
                           path, (unsigned long long)found->st_nlink);
    return TRUCE_OK;
}

truce_status truce__open_checks_path(const char *path, bool must_exist, char **real,
                                     bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    struct stat found;
    struct file_id id;
    bool there = !stat(path, &found);

    *real = NULL;
    if (!there && errno != ENOENT)
        return open_checks_cannot(path, error);
    if (!there && must_exist)
        return truce__fail(TRUCE_NOT_FOUND, error, "the store \"%s\" does not exist", path);
    if (there)
        status = check_file(path, &found, error);
    if (status)
        return status;
    *real = open_checks_resolve(path, LINKS_MAX);
    if (!*real)
        return open_checks_cannot(path, error);
    status = truce__fork_guard_may_open(*real, truce__file_id(*real, &id) ? &id : NULL, error);
    if (status) {
        bson_free(*real);
        *real = NULL;
    }
    return status;
}

/* ---- the lock file -------------------------------------------------------------------------- */

/* Returns whether the file has content. Returns true if the file cannot be read, because it may
 * have content. */
static bool has_content(const char *path)
{
    struct stat found;

    return stat(path, &found) ? errno != ENOENT : found.st_size > 0;
}

/* Fails with LOCKED if SQLite reports that another process has the database open, perhaps through a
 * lock file that was removed. Repeats the attempt for FOREIGN_MS_MAX at most. */
static truce_status check_foreign_lock(const char *path, int64_t deadline_ns, bson_error_t *error)
{
    int64_t foreign_ns = truce__clock_monotonic_ns() + FOREIGN_MS_MAX * INT64_C(1000000);
    truce_status status = truce__kv_alone(path, error);

    if (foreign_ns < deadline_ns)
        deadline_ns = foreign_ns;
    while (status == TRUCE_LOCKED && truce__clock_monotonic_ns() < deadline_ns) {
        truce__clock_sleep_ms(AGAIN_MS);
        status = truce__kv_alone(path, error);
    }
    if (status == TRUCE_LOCKED)
        return truce__fail(TRUCE_LOCKED, error,
                           "\"%s\" is open in another program, and its lock file is new, or was "
                           "removed: close it there first",
                           path);
    return status;
}

/* Refuses a log next to an empty or missing file, and a log with a damaged header: SQLite removes
 * the first and empties the second. The log may contain everything that is left of the store. */
static truce_status open_checks_check_log(const struct lock *lock, const char *path,
                                          bson_error_t *error)
{
    struct file_facts file, log;
    truce_status status = truce__log_identity_read(path, &file, error);

    if (!status)
        status = truce__log_identity_read(lock->log, &log, error);
    if (!status && !file.size && log.size)
        return truce__fail(TRUCE_CORRUPT, error,
                           "\"%s\" is %s, and its log \"%s\" is not: restore the file, or move the "
                           "log away",
                           path, file.id.number ? "empty" : "missing", lock->log);
    if (!status && log.size >= KV_LOG_HEADER_BYTES)
        status = truce__kv_log_check_header(path, error);
    return status;
}

/* Returns whether the file exists. Returns true if this cannot be determined. */
static bool open_checks_is_there(const char *path)
{
    struct stat found;

    return !lstat(path, &found) || errno != ENOENT;
}

truce_status truce__open_checks_kind(const char *path, bool may_make, bson_error_t *error)
{
    char *lock = bson_strdup_printf("%s-lock", path), *log = bson_strdup_printf("%s-wal", path);
    truce_status status = TRUCE_OK;

    if (!open_checks_is_there(lock) && open_checks_is_there(path))
        status = truce__kv_kind_check(path, has_content(log), may_make, error);
    /* Another process may have made the file a store in the meantime. */
    if (status && open_checks_is_there(lock))
        status = TRUCE_OK;
    bson_free(log);
    bson_free(lock);
    return status;
}

truce_status truce__open_checks_begin(const char *path, int64_t deadline_ns, struct lock *lock,
                                      bool *denied, bson_error_t *error)
{
    truce_status status = truce__lock_enter(path, deadline_ns, lock, denied, error);

    if (status)
        return status;
    if (lock->alone)
        status = open_checks_check_log(lock, path, error);
    if (!status && !lock->known && has_content(path))
        status = check_foreign_lock(path, deadline_ns, error);
    if (!status) {
        truce__lock_adopt(lock);
        status = truce__lock_match(lock, path, error);
    }
    if (!status && lock->alone) {
        atomic_store(&lock->page->foreign, LOCK_FOREIGN_NONE);
        atomic_store(&lock->page->log_damaged, false);
        truce__file_identity_begin_change(lock);
    }
    if (status)
        truce__lock_close(lock);
    return status;
}
