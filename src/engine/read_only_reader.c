/*
 * Read-only readers: processes without permission to write.
 *
 * SQLite reads a file with a log through an index in shared memory (-shm), which a read-only reader
 * cannot create. While another process has the store open, the index exists and can be read.
 * Otherwise the file alone can be read ("immutable": no locks, no log), as long as no process opens
 * it for writing.
 *
 *     at rest --another process is present, or the log has content--> live
 *
 * At rest each snapshot holds byte 4 of the lock file, shared. A process that wants to change the
 * file itself, mainly in a checkpoint, first tries to lock that byte alone, once. After that every
 * read-only reader finds a process present (byte 3) and reads the log. A live read-only reader is
 * itself present, so that no process removes the log.
 *
 * Invariants:
 *  1. A snapshot at rest began when no process was present and the log was missing or empty, and
 *     the file does not change before it ends.
 *  2. A connection at rest that was opened before a change of the file is not used again, because
 *     its cached pages are old. The times and the size of the file show the change.
 *  3. A read-only reader writes nothing. It delays other processes only while one snapshot at rest
 *     lasts.
 *
 * Deliberately not done: the same without a lock file, if it was removed and the reader cannot
 * create it. Then only the neighboring files are checked before each snapshot. This is enough for
 * read-only media.
 */
#include "engine/read_only_reader.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/storage/fork_guard.h"
#include "engine/storage/kv.h"
#include "engine/storage/lock_bytes.h"

/* The time to wait for a process that enters or leaves the store. */
#define ENTRY_WAIT_MS 1000

struct read_only_reader *truce__read_only_new(const char *path)
{
    struct read_only_reader *read_only_reader = bson_malloc0(sizeof *read_only_reader);

    read_only_reader->path = bson_strdup(path);
    read_only_reader->lock_path = bson_strdup_printf("%s-lock", path);
    read_only_reader->file = -1;
    pthread_mutex_init(&read_only_reader->mutex, NULL);
    return read_only_reader;
}

void truce__read_only_free(struct read_only_reader *read_only_reader)
{
    if (!read_only_reader)
        return;
    truce_assert(!read_only_reader->resting);
    if (read_only_reader->file >= 0)
        truce__fork_guard_close(read_only_reader->file);
    pthread_mutex_destroy(&read_only_reader->mutex);
    bson_free(read_only_reader->lock_path);
    bson_free(read_only_reader->path);
    bson_free(read_only_reader);
}

/* ---- checking the files --------------------------------------------------------------------- */

/* Finds out whether the log has content. Fails with IO if this cannot be determined. */
static truce_status read_only_check_log(const struct read_only_reader *read_only_reader, bool *has,
                                        bson_error_t *error)
{
    char *log = bson_strdup_printf("%s-wal", read_only_reader->path);
    truce_status status = TRUCE_OK;
    struct stat found;
    int result = stat(log, &found);

    *has = !result && found.st_size;
    if (result && errno != ENOENT)
        status = truce__fail(TRUCE_IO, error, "cannot stat \"%s\": %s", log, strerror(errno));
    bson_free(log);
    return status;
}

static void find_lock_file(struct read_only_reader *read_only_reader)
{
    if (read_only_reader->file < 0)
        read_only_reader->file = truce__lock_file_open(read_only_reader->lock_path, O_RDONLY);
}

/* Returns whether other processes have the store open. Called while the read-only reader itself is
 * not present. */
static bool others_are_present(const struct read_only_reader *read_only_reader)
{
    return read_only_reader->file >= 0 && lock_has_byte(read_only_reader->file, BYTE_PRESENT);
}

static bool read_only_is_same(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
           a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* ---- one attempt, under the mutex: each function returns false if it must be repeated ------- */

static bool become_live(struct read_only_reader *read_only_reader)
{
    if (read_only_reader->file >= 0 &&
        !lock_set_byte(read_only_reader->file, BYTE_PRESENT, F_RDLCK))
        return false;
    read_only_reader->live = true;
    read_only_reader->epoch++;
    return true;
}

/* Checks that the path still leads to the same file, and starts a new epoch if the file has
 * changed. Counts a reader of the file alone. */
static truce_status read_only_check_file(struct read_only_reader *read_only_reader,
                                         bson_error_t *error)
{
    struct stat now;

    if (stat(read_only_reader->path, &now))
        return truce__fail(TRUCE_IO, error, "cannot stat \"%s\": %s", read_only_reader->path,
                           strerror(errno));
    if (read_only_reader->was.st_ino &&
        (read_only_reader->was.st_ino != now.st_ino || read_only_reader->was.st_dev != now.st_dev))
        return truce__fail(TRUCE_CORRUPT, error, "\"%s\" was replaced while it was open",
                           read_only_reader->path);
    if (!read_only_is_same(&read_only_reader->was, &now))
        read_only_reader->epoch++;
    read_only_reader->was = now;
    read_only_reader->resting++;
    return TRUCE_OK;
}

static void stop_resting(struct read_only_reader *read_only_reader)
{
    if (!read_only_reader->resting && read_only_reader->file >= 0)
        lock_set_byte(read_only_reader->file, BYTE_READ_ONLY, F_UNLCK);
}

/* Tries to begin a snapshot of the file alone, and changes to live reading if another process is
 * present or a log exists. Returns false if the caller must try again. */
static bool try_begin(struct read_only_reader *read_only_reader, truce_status *status,
                      bson_error_t *error)
{
    bool live, has;

    if (read_only_reader->live)
        return true;
    find_lock_file(read_only_reader);
    if (read_only_reader->file >= 0 &&
        !lock_set_byte(read_only_reader->file, BYTE_READ_ONLY, F_RDLCK))
        return false;
    *status = read_only_check_log(read_only_reader, &has, error);
    live = !*status && (others_are_present(read_only_reader) || has);
    if (!live && !*status)
        *status = read_only_check_file(read_only_reader, error);
    if (live || *status)
        stop_resting(read_only_reader);
    return live ? become_live(read_only_reader) : true;
}

truce_status truce__read_only_begin(struct read_only_reader *read_only_reader,
                                    struct read_only_pass *pass, bson_error_t *error)
{
    int64_t deadline_ns = truce__clock_monotonic_ns() + ENTRY_WAIT_MS * INT64_C(1000000);
    truce_status status = TRUCE_OK;
    bool begun = false;

    while (!begun) {
        pthread_mutex_lock(&read_only_reader->mutex);
        begun = try_begin(read_only_reader, &status, error);
        pass->epoch = read_only_reader->epoch;
        pass->flags = KV_READ_ONLY | (read_only_reader->live ? 0 : KV_IMMUTABLE);
        pthread_mutex_unlock(&read_only_reader->mutex);
        if (!begun && truce__clock_monotonic_ns() >= deadline_ns)
            return truce__fail(TRUCE_LOCKED, error,
                               "the deadline passed while another process was writing to \"%s\": "
                               "try again",
                               read_only_reader->path);
        if (!begun)
            truce__clock_sleep_ms(1);
    }
    return status;
}

void truce__read_only_end(struct read_only_reader *read_only_reader,
                          const struct read_only_pass *pass)
{
    if (!(pass->flags & KV_IMMUTABLE))
        return;
    pthread_mutex_lock(&read_only_reader->mutex);
    truce_assert(read_only_reader->resting > 0);
    read_only_reader->resting--;
    stop_resting(read_only_reader);
    pthread_mutex_unlock(&read_only_reader->mutex);
}
