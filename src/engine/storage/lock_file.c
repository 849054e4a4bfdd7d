/*
 * The lock file: creating it, entering, and leaving.
 *
 *     PATH-lock    magic, version | identity of the lock file, the database, and the log |
 *                  numbers | magic; and, once a writer has waited for another process, the
 *                  records of published_records.c
 *     locks of     | byte 2: the entry lock | byte 3: the presence lock |
 *     its bytes
 *
 * Every process that has the store open is present: it holds byte 3, shared. To enter or to leave,
 * a process first acquires the entry lock (byte 2), which one process at a time holds. A process
 * that could lock byte 3 alone is alone, and this stays true until it releases the entry lock.
 *
 *     away --entry lock, byte 3 shared--> present, entry lock held --admit--> present
 *     present --entry lock--> present, entry lock held: alone or not --close--> away
 *
 * Only a process that is alone may make the page again, give a new file its format, or recover
 * after the disk refused a write. Only such a process may move the log into the file and remove it.
 * SQLite detects with POSIX locks whether a connection is the last one. The process loses these
 * locks as soon as any of its code closes a descriptor of the database. The locks here depend on
 * their own descriptor alone.
 *
 * Invariants:
 *  1. The page is written by a process that is alone, or by the protocol of the field. The file
 *     that writes a field describes its protocol (write_lock.c, durable.c, change_notify.c, ...).
 *  2. A file is not opened if it is a symbolic link, has a second name, is not the one under its
 *     name, or is not a lock file of truce.
 *  3. Its descriptors are not 0, 1, or 2. In a program that was started without standard streams,
 *     a print would otherwise write into the page.
 *  4. A page of another lock file (of a copied one, or a new one next to a database with content)
 *     is adopted only after SQLite has also confirmed that no process has the database open. A
 *     process may have it open through a removed lock file.
 *  5. The page is whole as long as the magic numbers at both of its ends are right. If the file was
 *     truncated, the page is not used again until no process is present; later reads of it return
 *     zeros (mapping_guard.c).
 *  6. The file is opened close-on-exec and closed in forked children: otherwise a lock of an open
 *     file description would outlive its process in its children.
 *
 * The page records which database and log there were. Next time the database may be a different
 * file, while the log is the same and has content. Then the database was replaced, and the log does
 * not belong to it. If both differ, they may have been restored together.
 *
 * A crash leaves a page that is whole, or one that contains nothing but zeros.
 *
 * If the database is the same file with different content, its recorded state shows that
 * (file_identity.c).
 */
#include "engine/storage/write_lock.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/random.h"
#include "engine/storage/file_identity.h"
#include "engine/storage/fork_guard.h"
#include "engine/storage/kv.h"
#include "engine/storage/lock_bytes.h"
#include "engine/storage/mapping_guard.h"

/* The mode that SQLite gives a new database, before the umask is applied. */
#define MODE 0644
/* The milliseconds between two attempts to acquire the entry lock. */
#define NAP_MS 1

/* ---- the file ------------------------------------------------------------------------------- */

static truce_status file_fail(const struct lock *lock, const char *what, bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "cannot %s the lock file \"%s\": %s", what, lock->path,
                       strerror(errno));
}

static truce_status file_fail_lock(const struct lock *lock, bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "cannot lock the lock file \"%s\": %s" LOCK_ADVICE,
                       lock->path, strerror(errno));
}

static truce_status file_refuse(const struct lock *lock, const char *why, bson_error_t *error)
{
    return truce__fail(TRUCE_CORRUPT, error, "the lock file \"%s\" %s", lock->path, why);
}

int truce__lock_file_open(const char *path, int flags)
{
    int file = truce__fork_guard_open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, MODE);
    struct stat found;
    int why;

    if (file < 0)
        return -1;
    if (fstat(file, &found))
        why = errno;
    else if (!S_ISREG(found.st_mode))
        why = EINVAL;
    else if (found.st_nlink > 1)
        why = EMLINK;
    else
        return file;
    truce__fork_guard_close(file);
    errno = why;
    return -1;
}

/* Gives the file the mode and owner of the database, as SQLite does for its own files. A failure
 * does not matter here: a user that may not write the file gets an error when it opens the file. */
static void take_mode(const char *path, int file)
{
    struct stat database, found;

    if (stat(path, &database) || fstat(file, &found))
        return;
    if (geteuid() == 0 && (found.st_uid != database.st_uid || found.st_gid != database.st_gid) &&
        fchown(file, database.st_uid, database.st_gid))
        return;
    if ((found.st_mode & 0777) != (database.st_mode & 0666))
        (void)fchmod(file, database.st_mode & 0666);
}

/* Fails because the lock file cannot be opened, with the reason in errno. */
static truce_status not_opened(const struct lock *lock, bool *denied, bson_error_t *error)
{
    switch (errno) {
    case ELOOP:
        return file_refuse(lock, "is a symbolic link: remove it", error);
    case EINVAL:
    case ENXIO:
    case EISDIR:
        return file_refuse(lock, "is not a regular file: remove it", error);
    case EMLINK:
        return file_refuse(lock, "has a second name (a hard link): remove one of them", error);
    default:
        *denied = errno == EACCES || errno == EPERM || errno == EROFS;
        return *denied ? truce__fail(TRUCE_IO, error,
                                     "the store cannot be written: cannot open the lock file "
                                     "\"%s\": %s; a program that writes needs write access to the "
                                     "folder and to all files of the store",
                                     lock->path, strerror(errno))
                       : file_fail(lock, "open", error);
    }
}

static truce_status file_open_file(struct lock *lock, bool *denied, bson_error_t *error)
{
    int file = truce__lock_file_open(lock->path, O_RDWR);

    if (file < 0 && errno == ENOENT)
        file = truce__lock_file_open(lock->path, O_RDWR | O_CREAT);
    if (file < 0)
        return not_opened(lock, denied, error);
    lock->file = file;
    return truce__file_id_of(file, &lock->id) ? TRUCE_OK : file_fail(lock, "stat", error);
}

static void close_file(struct lock *lock)
{
    if (lock->file >= 0)
        truce__fork_guard_close(lock->file);
    lock->file = -1;
}

static bool is_under_its_name(const struct lock *lock)
{
    struct stat found;

    return !lstat(lock->path, &found) && found.st_ino == lock->id.number &&
           found.st_dev == lock->id.device;
}

/* ---- the entry lock ------------------------------------------------------------------------- */

/* Waits for the entry lock. Returns false with errno EAGAIN after the deadline. */
static bool entry_lock_acquire(const struct lock *lock, int64_t deadline_ns)
{
    while (!lock_set_byte(lock->file, BYTE_ENTRY, F_WRLCK)) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return false;
        errno = EAGAIN;
        if (truce__clock_monotonic_ns() >= deadline_ns)
            return false;
        truce__clock_sleep_ms(NAP_MS);
    }
    return true;
}

/* Opens the file and acquires the entry lock. Starts again if the file was removed in the
 * meantime. */
static truce_status open_and_enter(struct lock *lock, int64_t deadline_ns, bool *denied,
                                   bson_error_t *error)
{
    for (;;) {
        truce_status status = file_open_file(lock, denied, error);

        if (status)
            return status;
        if (!entry_lock_acquire(lock, deadline_ns)) {
            if (errno != EAGAIN)
                return file_fail_lock(lock, error);
            return truce__fail(TRUCE_LOCKED, error,
                               "another process that opens or closes the store has locked \"%s\"",
                               lock->path);
        }
        if (is_under_its_name(lock))
            return TRUCE_OK;
        close_file(lock);
        if (truce__clock_monotonic_ns() >= deadline_ns)
            return truce__fail(TRUCE_LOCKED, error,
                               "cannot open the lock file \"%s\": another program keeps removing "
                               "it; stop that program",
                               lock->path);
    }
}

/* Tries to lock the presence byte alone. Returns false with errno EAGAIN or EACCES if another
 * process is present, and with another errno if the file system has no locks. */
static bool is_alone(const struct lock *lock)
{
    return lock_set_byte(lock->file, BYTE_PRESENT, F_WRLCK);
}

bool truce__lock_is_shared(const struct lock *lock)
{
    return lock_has_byte(lock->file, BYTE_PRESENT);
}

/* ---- the page ------------------------------------------------------------------------------- */

static bool file_is_whole(const struct lock_page *page)
{
    return atomic_load_explicit(&page->magic, memory_order_relaxed) == LOCK_MAGIC &&
           atomic_load_explicit(&page->whole, memory_order_relaxed) == LOCK_MAGIC;
}

/* Returns whether truce may write into the file: it is new, or it was a lock file before. */
static bool is_lock_file(const struct lock_page *page, int64_t bytes)
{
    if (!bytes)
        return true;
    if (bytes < (int64_t)sizeof page->magic)
        return false;
    return atomic_load(&page->magic) == LOCK_MAGIC ||
           ((bytes == sizeof *page || bytes == LOCK_FILE_BYTES) && !atomic_load(&page->magic));
}

static bool file_is_known(const struct lock *lock)
{
    const struct lock_page *page = lock->page;

    return file_is_whole(page) && page->version == LOCK_VERSION && page->size == sizeof *page &&
           truce__file_id_equal(&page->self, &lock->id);
}

/* Maps a part of the file through a descriptor of its own: a mapping keeps its open file
 * description and its locks, and a forked child keeps its mappings. Returns NULL on failure. */
static void *map_part(const struct lock *lock, off_t at, size_t size)
{
    int file = truce__lock_file_open(lock->path, O_RDWR);
    struct file_id id;
    void *part = MAP_FAILED;

    if (file < 0)
        return NULL;
    if (!truce__file_id_of(file, &id) || !truce__file_id_equal(&id, &lock->id))
        errno = ESTALE;
    else
        part = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, at);
    truce__fork_guard_close(file);
    if (part == MAP_FAILED)
        return NULL;
    truce__mapping_guard(part, size);
    return part;
}

static bool map_page(struct lock *lock)
{
    lock->page = map_part(lock, 0, sizeof *lock->page);
    return lock->page;
}

void *truce__lock_map_records(const struct lock *lock)
{
    if (posix_fallocate(lock->file, 0, LOCK_FILE_BYTES))
        return NULL;
    return map_part(lock, LOCK_RECORDS_AT, LOCK_RECORDS_BYTES);
}

void truce__lock_unmap_records(void *records)
{
    truce__mapping_unguard(records);
    munmap(records, LOCK_RECORDS_BYTES);
}

/* Creates the page. The caller is alone. posix_fallocate makes a full disk an error here and not a
 * fault later. */
static truce_status make_page(struct lock *lock, const char *path, bson_error_t *error)
{
    struct stat found;

    if (fstat(lock->file, &found))
        return file_fail(lock, "stat", error);
    if (found.st_size && !map_page(lock))
        return file_fail(lock, "map", error);
    if (!is_lock_file(lock->page, found.st_size))
        return file_refuse(
            lock, "is not a lock file of truce: while no program has the store open, remove it",
            error);
    take_mode(path, lock->file);
    /* Drops the records after the page: their processes have ended (published_records.c). */
    if (found.st_size > (off_t)sizeof *lock->page && ftruncate(lock->file, sizeof *lock->page))
        return file_fail(lock, "cut", error);
    if (found.st_size < (off_t)sizeof *lock->page) {
        errno = posix_fallocate(lock->file, 0, sizeof *lock->page);
        if (errno)
            return file_fail(lock, "write", error);
    }
    if (!lock->page && !map_page(lock))
        return file_fail(lock, "map", error);
    lock->known = file_is_known(lock);
    return TRUCE_OK;
}

/* Maps the page that other processes use. */
static truce_status share_page(struct lock *lock, bson_error_t *error)
{
    struct stat found;

    if (fstat(lock->file, &found))
        return file_fail(lock, "stat", error);
    if (found.st_size >= (off_t)sizeof *lock->page && !map_page(lock))
        return file_fail(lock, "map", error);
    lock->known = lock->page && file_is_known(lock);
    if (lock->known)
        return TRUCE_OK;
    if (lock->page && file_is_whole(lock->page) && lock->page->version != LOCK_VERSION)
        return truce__fail(
            TRUCE_LOCKED, error,
            "the lock file \"%s\" is in use by another version of truce: its format is "
            "%" PRIu32 ", and this version uses %d: end the other programs, or use "
            "their version of truce",
            lock->path, lock->page->version, LOCK_VERSION);
    return file_refuse(
        lock, "was damaged while other programs have the store open: close it there first", error);
}

truce_status truce__lock_enter(const char *path, int64_t deadline_ns, struct lock *lock,
                               bool *denied, bson_error_t *error)
{
    truce_status status;

    *lock = (struct lock){.path = bson_strdup_printf("%s-lock", path),
                          .database = bson_strdup(path),
                          .log = bson_strdup_printf("%s-wal", path),
                          .index = bson_strdup_printf("%s-shm", path),
                          .file = -1,
                          .database_file = -1,
                          .process = getpid()};
    *denied = false;
    status = open_and_enter(lock, deadline_ns, denied, error);
    if (!status) {
        lock->alone = is_alone(lock);
        if (!lock->alone && ((errno != EAGAIN && errno != EACCES) ||
                             !lock_set_byte(lock->file, BYTE_PRESENT, F_RDLCK)))
            status = file_fail_lock(lock, error);
    }
    if (!status)
        status = lock->alone ? make_page(lock, path, error) : share_page(lock, error);
    if (status)
        truce__lock_close(lock);
    return status;
}

/* Resets the records and the promises, which belong to processes that have ended. After a power
 * cut, the page may contain values of different times. */
static void forget_others(struct lock_page *page)
{
    atomic_store(&page->published, 0);
    atomic_store(&page->taken, 0);
    for (size_t i = 0; i < PROMISES; i++)
        atomic_store(&page->promises.of[i], 0);
    atomic_store(&page->promises.all, atomic_load(&page->promised));
}

void truce__lock_adopt(struct lock *lock)
{
    struct lock_page *page = lock->page;
    bool broken;

    truce_assert(lock->alone || lock->known);
    if (lock->alone && lock->known)
        forget_others(page);
    if (lock->known)
        return;
    broken = file_is_whole(page) && page->version == LOCK_VERSION && atomic_load(&page->broken);
    memset((void *)page, 0, sizeof *page);
    page->version = LOCK_VERSION;
    page->size = sizeof *page;
    page->self = lock->id;
    page->promises.seed = truce__random_entropy();
    atomic_store(&page->broken, broken);
    atomic_store(&page->whole, LOCK_MAGIC);
    atomic_store(&page->magic, LOCK_MAGIC);
    lock->known = true;
}

truce_status truce__lock_admit(struct lock *lock, const char *path, bson_error_t *error)
{
    struct file_id database;
    truce_status status;

    truce_assert(lock->known);
    status = truce__log_identity_record(lock, error);
    if (!status && !truce__file_id(path, &database)) {
        database = (struct file_id){0};
        if (errno != ENOENT)
            status = truce__fail(TRUCE_IO, error, "cannot stat \"%s\": %s", path, strerror(errno));
    }
    if (status)
        return status;
    lock->page->database = database;
    if (lock->alone)
        truce__file_identity_end_change(lock);
    if (!lock_set_byte(lock->file, BYTE_PRESENT, F_RDLCK) ||
        !lock_set_byte(lock->file, BYTE_ENTRY, F_UNLCK))
        return file_fail_lock(lock, error);
    lock->alone = false;
    /* A descriptor of the path alone (O_PATH). Closing it does not drop SQLite's locks. */
    lock->database_file = truce__fork_guard_open(path, O_PATH | O_NOFOLLOW, 0);
    return TRUCE_OK;
}

/* ---- the database and the log --------------------------------------------------------------- */

/* Finds out whether the log has content and is the one that was there before. Fails with IO if this
 * cannot be determined. */
static truce_status is_old_log(const struct lock *lock, bool *is, bson_error_t *error)
{
    struct file_facts log;
    truce_status status = truce__log_identity_read(lock->log, &log, error);

    *is = !status && log.size && truce__file_id_equal(&log.id, &lock->page->log);
    return status;
}

/* Reads the log again after a frame had a wrong checksum, because the second read may succeed. */
static truce_status lock_file_read_log_again(struct lock *lock, const char *path,
                                             bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool valid;

    if (!atomic_load(&lock->page->log_damaged))
        return TRUCE_OK;
    status = truce__kv_log_verify(path, &valid, error);
    if (!status && valid)
        atomic_store(&lock->page->log_damaged, false);
    return status ? status : truce__lock_log_usable(lock, error);
}

/* Checks that the log belongs to the content of the database, which is the same file as before. */
static truce_status match_content(struct lock *lock, const char *path, bson_error_t *error)
{
    truce_status status;
    bool is_old;

    if (!lock->alone)
        return truce__file_identity_check(lock, error);
    status = truce__log_identity_match(lock, error);
    if (!status)
        status = is_old_log(lock, &is_old, error);
    if (status || !is_old)
        return status;
    if (truce__file_identity_fits(lock))
        return lock_file_read_log_again(lock, path, error);
    return truce__fail(TRUCE_CORRUPT, error,
                       "another program overwrote \"%s\", and \"%s-wal\" is the log of the earlier "
                       "content: restore that content, or move the log away",
                       path, path);
}

truce_status truce__lock_match(struct lock *lock, const char *path, bson_error_t *error)
{
    static const struct file_id none = {0};
    struct file_id id;
    bool there = truce__file_id(path, &id), is_old;
    truce_status status;

    truce_assert(lock->known);
    if (!there && errno != ENOENT)
        return truce__fail(TRUCE_IO, error, "cannot stat \"%s\": %s", path, strerror(errno));
    if (there && truce__file_id_equal(&id, &lock->page->database))
        return match_content(lock, path, error);
    if (!lock->alone)
        return truce__fail(TRUCE_CORRUPT, error,
                           "\"%s\" was %s while other programs have it open: close it there first",
                           path, there ? "replaced" : "removed");
    if (!there || truce__file_id_equal(&none, &lock->page->database))
        return TRUCE_OK;
    status = is_old_log(lock, &is_old, error);
    if (!status && is_old)
        return truce__fail(TRUCE_CORRUPT, error,
                           "\"%s\" was replaced, and \"%s-wal\" is the log of the earlier file: "
                           "restore that file, or move the log away",
                           path, path);
    return status;
}

truce_status truce__lock_usable(const struct lock *lock, bson_error_t *error)
{
    unsigned foreign = atomic_load(&lock->page->foreign);

    if (!file_is_whole(lock->page))
        return file_refuse(
            lock,
            "was truncated while the store was open: close the store in every program, and open it "
            "again",
            error);
    if (foreign == LOCK_FOREIGN_LOG)
        return truce__fail(
            TRUCE_CORRUPT, error,
            "the log \"%s-wal\" or its index \"%s-shm\" was removed, replaced, or truncated while "
            "it was open: close the store in every program, restore the file, and open it again",
            lock->database, lock->database);
    if (foreign)
        return truce__fail(TRUCE_CORRUPT, error,
                           "another program overwrote \"%s\" while it was open: close the store in "
                           "every program, check or restore the file, and open it again",
                           lock->database);
    return TRUCE_OK;
}

truce_status truce__lock_log_usable(const struct lock *lock, bson_error_t *error)
{
    if (!atomic_load(&lock->page->log_damaged))
        return TRUCE_OK;
    return truce__fail(TRUCE_CORRUPT, error,
                       "the log \"%s-wal\" is damaged, so the store accepts no writes and keeps "
                       "the log: copy the store while it is open, or use truce salvage",
                       lock->database);
}

truce_status truce__lock_check(struct lock *lock, bson_error_t *error)
{
    truce_status status = truce__lock_usable(lock, error);
    struct stat found;
    bool known;

    if (status)
        return status;
    known = !fstat(lock->file, &found);
    if (known && truce__path_identity_same(&lock->path_identity, &found))
        return TRUCE_OK;
    errno = ENOENT;
    if (is_under_its_name(lock)) {
        if (known)
            truce__path_identity_record(&lock->path_identity, &found);
        return TRUCE_OK;
    }
    if (errno != ENOENT)
        return file_fail(lock, "stat", error);
    return file_refuse(lock,
                       "was removed or replaced while the store was open: close the store in every "
                       "program, and open it again",
                       error);
}

/* Returns whether no process reads the file without its log. A read-only reader that starts later
 * finds this process present. */
bool truce__lock_no_read_only(struct lock *lock)
{
    if (atomic_load(&lock->no_read_only))
        return true;
    if (!lock_set_byte(lock->file, BYTE_READ_ONLY, F_WRLCK))
        return false;
    lock_set_byte(lock->file, BYTE_READ_ONLY, F_UNLCK);
    atomic_store(&lock->no_read_only, true);
    return true;
}

/* ---- leaving -------------------------------------------------------------------------------- */

bool truce__lock_leave(struct lock *lock, int64_t deadline_ns)
{
    truce_assert(!lock->held);
    lock->alone = entry_lock_acquire(lock, deadline_ns) && is_alone(lock) &&
                  file_is_whole(lock->page) && is_under_its_name(lock);
    return lock->alone;
}

void truce__lock_close(struct lock *lock)
{
    truce_assert(!lock->held);
    if (lock->page) {
        truce__mapping_unguard(lock->page);
        munmap(lock->page, sizeof *lock->page);
    }
    close_file(lock);
    if (lock->database_file >= 0)
        truce__fork_guard_close(lock->database_file);
    bson_free(lock->index);
    bson_free(lock->log);
    bson_free(lock->database);
    bson_free(lock->path);
    *lock = (struct lock){.file = -1, .database_file = -1};
}
