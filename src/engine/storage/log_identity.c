/*
 * The identity of the log.
 *
 * A commit is a write into the log that SQLite has open. If the log is removed, moved, or replaced while the store is
 * open, the writes go into a file that nobody finds, and if it is cut or written over, recovery ends where the old
 * content did. If the index of the log is removed, the next process makes another one, and two processes write
 * over each other's commits. SQLite notices none of this. So the page that all processes share records what the files
 * are, and how far the log reaches:
 *
 *     log, index       device, number, and time of birth of the two files, when the store was opened
 *     log_salts        the generation of the log: changes each time that the log begins again
 *     log_least        frames of that generation that the last commit left at least
 *     log_bytes, _ns   size of the log, and when it was written last, at the end of the last turn
 *
 *     names      each name leads to the recorded file, and the index is not cut             any thread
 *     content    the last frame that the index counts is in the log: its salts and its running checksum, which
 *                depends on every byte before it; and the index counts no fewer frames than were recorded, unless
 *                the log has begun again                                                     in a writer's turn
 *     time       the size and time of the log are those of the last turn                      in a writer's turn
 *
 * Invariants:
 *  1. A writer checks both in its turn, before it writes. A reader checks the names every now and then, and always after
 *     it has opened a connection.
 *  2. The recorded files do not change while any process has the store open: SQLite removes them only when a process
 *     that is alone closes the store.
 *  3. A difference is final: `foreign` stays LOCK_FOREIGN_LOG until a process that is alone opens the store. A name that
 *     cannot be looked up for another reason than that it is gone is an error of that call alone.
 *  4. log_least counts frames of the generation log_salts or less: it is 0 while log_salts changes. A process that dies
 *     between its commit and the record leaves too small a number, which finds less and refuses nothing sound.
 *
 *  5. Only a process that has its turn writes into the log, so its time means nothing while log_writing is true.
 *
 * The time notices another program that writes into the middle of the log, which the last frame does not show. It counts in
 * ticks of the kernel: a write within the tick of the last commit is noticed by its content alone.
 *
 * A process that is alone compares, too, as long as the machine was not started again: after a power cut the page may be
 * older than the files.
 *
 * A removal after the check and before the answer is not noticed before the next turn. It is no different from one
 * right after the answer.
 */
#include "engine/storage/log_identity.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "engine/storage/stamp.h"

#define INDEX_BYTES_LEAST 32768 /* SQLite makes it in parts of so many bytes */

static const struct file_id no_file = {0};

static char *name_beside(const struct lock *lock, const char *suffix)
{
    return bson_strdup_printf("%s%s", lock->database, suffix);
}

/* The file under the name; all 0: there is none. IO: that cannot be told. */
static truce_status look_up(const struct lock *lock, const char *suffix, struct file_id *id,
                            bson_error_t *error)
{
    char *name = name_beside(lock, suffix);
    truce_status status = TRUCE_OK;

    if (!truce__file_id(name, id)) {
        *id = no_file;
        if (errno != ENOENT)
            status =
                truce__fail(TRUCE_IO, error, "cannot look at \"%s\": %s", name, strerror(errno));
    }
    bson_free(name);
    return status;
}

/* Its size and time; 0: there is no such file. */
static truce_status measure_beside(const struct lock *lock, const char *suffix, int64_t *size,
                                   int64_t *time_ns, bson_error_t *error)
{
    char *name = name_beside(lock, suffix);
    truce_status status = TRUCE_OK;
    struct stat found;
    int result = stat(name, &found);

    *size = result ? 0 : found.st_size;
    *time_ns = result ? 0 : found.st_mtim.tv_sec * INT64_C(1000000000) + found.st_mtim.tv_nsec;
    if (result && errno != ENOENT)
        status = truce__fail(TRUCE_IO, error, "cannot look at \"%s\": %s", name, strerror(errno));
    bson_free(name);
    return status;
}

truce_status truce__log_identity_record(struct lock *lock, bson_error_t *error)
{
    struct lock_page *page = lock->page;
    struct file_id log, index;
    truce_status status;

    if (!lock->alone && atomic_load(&page->log_known))
        return TRUCE_OK;
    status = look_up(lock, "-wal", &log, error);
    if (!status)
        status = look_up(lock, "-shm", &index, error);
    if (status)
        return status;
    atomic_store(&page->log_known, false);
    page->log = log;
    page->index = index;
    if (lock->alone) {
        atomic_store(&page->log_least, 0);
        atomic_store(&page->log_writing, true);
    }
    atomic_store(&page->log_known,
                 !truce__file_id_equal(&log, &no_file) && !truce__file_id_equal(&index, &no_file));
    return TRUCE_OK;
}

static truce_status conclude(struct lock *lock, bson_error_t *error)
{
    if (!truce__lock_usable(lock, NULL))
        atomic_store(&lock->page->foreign, LOCK_FOREIGN_LOG);
    return truce__lock_usable(lock, error);
}

truce_status truce__log_identity_check(struct lock *lock, bson_error_t *error)
{
    struct lock_page *page = lock->page;
    struct file_id log, index;
    int64_t bytes = 0, time_ns;
    truce_status status = truce__lock_usable(lock, error);

    if (status || !atomic_load(&page->log_known))
        return status;
    status = look_up(lock, "-wal", &log, error);
    if (!status)
        status = look_up(lock, "-shm", &index, error);
    if (!status)
        status = measure_beside(lock, "-shm", &bytes, &time_ns, error);
    if (status)
        return status;
    if (truce__file_id_equal(&log, &page->log) && truce__file_id_equal(&index, &page->index) &&
        bytes >= INDEX_BYTES_LEAST)
        return TRUCE_OK;
    return conclude(lock, error);
}

/* Does the open log end with the last commit? An index that is being written, by a process that died, is none. */
static truce_status is_whole(const struct lock *lock, struct kv *kv, bool *whole,
                             bson_error_t *error)
{
    struct lock_page *page = lock->page;
    struct kv_log_end end;

    *whole = true;
    if (!truce__kv_log_end(kv, &end))
        return TRUCE_OK;
    if (end.salts == atomic_load(&page->log_salts) && end.frames < atomic_load(&page->log_least)) {
        *whole = false;
        return TRUCE_OK;
    }
    return truce__kv_log_whole(kv, &end, whole, error);
}

/* Is the log as the last turn left it? */
static truce_status is_left(const struct lock *lock, bool *left, bson_error_t *error)
{
    struct lock_page *page = lock->page;
    int64_t bytes, time_ns;
    truce_status status = TRUCE_OK;

    *left = true;
    if (atomic_load(&page->log_writing) || !atomic_load(&page->log_known))
        return TRUCE_OK;
    status = measure_beside(lock, "-wal", &bytes, &time_ns, error);
    *left =
        status || (bytes == atomic_load(&page->log_bytes) && time_ns == atomic_load(&page->log_ns));
    return status;
}

truce_status truce__log_identity_check_in_turn(struct lock *lock, struct kv *kv,
                                               bson_error_t *error)
{
    truce_status status = truce__log_identity_check(lock, error);
    bool whole = true;

    if (!status)
        status = is_left(lock, &whole, error);
    if (!status && whole)
        status = is_whole(lock, kv, &whole, error);
    if (status || !whole)
        return status ? status : conclude(lock, error);
    atomic_store(&lock->page->log_writing, true);
    return TRUCE_OK;
}

void truce__log_identity_end_turn(struct lock *lock)
{
    struct lock_page *page = lock->page;
    int64_t bytes, time_ns;

    if (measure_beside(lock, "-wal", &bytes, &time_ns, NULL))
        return;
    atomic_store(&page->log_bytes, bytes);
    atomic_store(&page->log_ns, time_ns);
    atomic_store(&page->log_writing, false);
}

bool truce__log_identity_lost_name(struct lock *lock, struct kv *kv)
{
    bool whole;

    truce_assert(lock->alone);
    return atomic_load(&lock->page->foreign) == LOCK_FOREIGN_LOG && truce__stamp_is_left(lock) &&
           !is_whole(lock, kv, &whole, NULL) && whole;
}

void truce__log_identity_note(struct lock *lock, const struct kv *kv)
{
    struct lock_page *page = lock->page;
    struct kv_log_end end;

    if (!truce__kv_log_end(kv, &end))
        return;
    if (end.salts != atomic_load(&page->log_salts)) {
        atomic_store(&page->log_least, 0);
        atomic_store(&page->log_salts, end.salts);
    }
    atomic_store(&page->log_least, end.frames);
}

void truce__log_identity_forget(struct lock *lock)
{
    truce_assert(lock->alone);
    atomic_store(&lock->page->log_least, 0);
    atomic_store(&lock->page->log_known, false);
}

truce_status truce__log_identity_match(struct lock *lock, bson_error_t *error)
{
    struct lock_page *page = lock->page;
    struct file_id log;
    int64_t bytes, time_ns;
    truce_status status;

    if (!atomic_load(&page->log_known) || !truce__stamp_is_left(lock))
        return TRUCE_OK;
    status = look_up(lock, "-wal", &log, error);
    if (!status)
        status = measure_beside(lock, "-wal", &bytes, &time_ns, error);
    if (status)
        return status;
    if (bytes && !truce__file_id_equal(&log, &page->log))
        return truce__fail(TRUCE_CORRUPT, error,
                           "\"%s-wal\" is not the log of \"%s\": bring that back, or move this one "
                           "away",
                           lock->database, lock->database);
    if (!bytes && atomic_load(&page->log_least))
        return truce__fail(TRUCE_CORRUPT, error,
                           "the log \"%s-wal\" is missing, and with it the last commits: bring it "
                           "back, or remove \"%s\" to use the store without them",
                           lock->database, lock->path);
    return TRUCE_OK;
}
