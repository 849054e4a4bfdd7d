/*
 * The identity of the log.
 *
 * A commit is a write into the log that SQLite has open. If the log is removed, moved, or replaced while the store is
 * open, the writes go into a file without a name, and if it is cut or written over, recovery ends where the old
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
 *  1. A writer checks all three in its turn, before it writes. A reader checks the names every now and then, and always after
 *     it has opened a connection.
 *  2. The recorded files do not change while any process has the store open: SQLite removes them only when a process
 *     that is alone closes the store.
 *  3. A difference is final: `foreign` stays LOCK_FOREIGN_LOG until a process that is alone opens the store. A name that
 *     cannot be looked up for another reason than that it is gone is an error of that call alone.
 *  4. log_least counts frames of the generation log_salts or less: it is 0 while log_salts changes. A process that dies
 *     between its commit and the record leaves too small a number, which finds less and refuses nothing sound.
 *  5. Only a process that has its turn writes into the log, so its time means nothing while log_writing is true.
 *
 * The time notices another program that writes into the middle of the log, which the last frame does not show. If it
 * differs, all frames are compared with their checksums. If they are right, the time alone has changed; a file system on which
 * that happens TIMES_WRONG_MAX times is not asked for it any more. A write within the same tick of the kernel's clock as the
 * last commit is noticed by the last frame alone.
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

#include "base/assert.h"
#include "engine/storage/file_identity.h"

#define INDEX_BYTES_LEAST 32768 /* SQLite makes it in parts of so many bytes */
#define TIMES_WRONG_MAX   8

truce_status truce__log_identity_look(const char *name, struct file_look *facts,
                                      bson_error_t *error)
{
    if (truce__file_look(name, facts))
        return TRUCE_OK;
    *facts = (struct file_look){0};
    if (errno == ENOENT)
        return TRUCE_OK;
    return truce__fail(TRUCE_IO, error, "cannot look at \"%s\": %s", name, strerror(errno));
}

truce_status truce__log_identity_record(struct lock *lock, bson_error_t *error)
{
    struct lock_page *page = lock->page;
    struct file_look log, index;
    truce_status status;

    if (!lock->alone && atomic_load(&page->log_known))
        return TRUCE_OK;
    status = truce__log_identity_look(lock->log, &log, error);
    if (!status)
        status = truce__log_identity_look(lock->index, &index, error);
    if (status)
        return status;
    atomic_store(&page->log_known, false);
    page->log = log.id;
    page->index = index.id;
    if (lock->alone) {
        atomic_store(&page->log_least, 0);
        atomic_store(&page->log_writing, true);
        atomic_store(&page->log_times_wrong, 0);
    }
    atomic_store(&page->log_known, log.id.number && index.id.number);
    return TRUCE_OK;
}

static truce_status identity_conclude(struct lock *lock, bson_error_t *error)
{
    if (!truce__lock_usable(lock, NULL))
        atomic_store(&lock->page->foreign, LOCK_FOREIGN_LOG);
    return truce__lock_usable(lock, error);
}

/* `log`: what its name leads to. */
static truce_status identity_check_names(struct lock *lock, struct file_look *log,
                                         bson_error_t *error)
{
    struct lock_page *page = lock->page;
    struct file_look index;
    truce_status status = truce__lock_usable(lock, error);

    if (status || !atomic_load(&page->log_known))
        return status;
    status = truce__log_identity_look(lock->log, log, error);
    if (!status)
        status = truce__log_identity_look(lock->index, &index, error);
    if (status)
        return status;
    if (truce__file_id_equal(&log->id, &page->log) &&
        truce__file_id_equal(&index.id, &page->index) && index.size >= INDEX_BYTES_LEAST)
        return TRUCE_OK;
    return identity_conclude(lock, error);
}

truce_status truce__log_identity_check(struct lock *lock, bson_error_t *error)
{
    struct file_look log;

    return identity_check_names(lock, &log, error);
}

/* Does the open log end with the last commit? `all`: every frame is looked at. An index that is being written, by a
 * process that died, is none. */
static truce_status identity_is_whole(const struct lock *lock, struct kv *kv, bool all, bool *whole,
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
    return truce__kv_log_whole(kv, &end, all, whole, error);
}

/* Is the log as the last turn left it? */
static bool is_left(const struct lock *lock, const struct file_look *log)
{
    const struct lock_page *page = lock->page;

    return atomic_load(&page->log_writing) || !atomic_load(&page->log_known) ||
           atomic_load(&page->log_times_wrong) >= TIMES_WRONG_MAX ||
           (log->size == atomic_load(&page->log_bytes) &&
            log->time_ns == atomic_load(&page->log_ns));
}

truce_status truce__log_identity_check_in_turn(struct lock *lock, struct kv *kv,
                                               bson_error_t *error)
{
    struct file_look log;
    truce_status status = identity_check_names(lock, &log, error);
    bool left = status || is_left(lock, &log), whole = true;

    if (!status)
        status = identity_is_whole(lock, kv, !left, &whole, error);
    if (status)
        return status;
    if (!whole)
        return identity_conclude(lock, error);
    if (!left)
        atomic_fetch_add(&lock->page->log_times_wrong, 1);
    atomic_store(&lock->page->log_writing, true);
    return TRUCE_OK;
}

void truce__log_identity_end_turn(struct lock *lock)
{
    struct lock_page *page = lock->page;
    struct file_look log;

    if (truce__log_identity_look(lock->log, &log, NULL))
        return;
    atomic_store(&page->log_bytes, log.size);
    atomic_store(&page->log_ns, log.time_ns);
    atomic_store(&page->log_writing, false);
}

bool truce__log_identity_lost_name(struct lock *lock, struct kv *kv)
{
    bool whole;

    truce_assert(lock->alone);
    return atomic_load(&lock->page->foreign) == LOCK_FOREIGN_LOG && truce__stamp_is_left(lock) &&
           !identity_is_whole(lock, kv, true, &whole, NULL) && whole;
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
    struct file_look log;
    truce_status status;

    if (!atomic_load(&page->log_known) || !truce__stamp_is_left(lock))
        return TRUCE_OK;
    status = truce__log_identity_look(lock->log, &log, error);
    if (status)
        return status;
    if (log.size && !truce__file_id_equal(&log.id, &page->log))
        return truce__fail(TRUCE_CORRUPT, error,
                           "\"%s\" is not the log of \"%s\": bring that back, or move this one "
                           "away",
                           lock->log, lock->database);
    if (!log.size && atomic_load(&page->log_least))
        return truce__fail(TRUCE_CORRUPT, error,
                           "the log \"%s\" is missing, and with it the last commits: bring it "
                           "back, or remove \"%s\" to use the store without them",
                           lock->log, lock->path);
    return TRUCE_OK;
}
