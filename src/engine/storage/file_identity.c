/*
 * Detects that another program has changed the database file.
 *
 * A program can overwrite a database file in place: `cp BACKUP STORE`, or an SQLite program that
 * makes a checkpoint. The file keeps its name and its inode number, so SQLite notices nothing.
 * Pages in memory stay as they were, other pages come from the new content, and the log of the old
 * content is moved over the new one.
 *
 *     moving        even: the file is as recorded;  odd: truce is writing into it, or died doing so
 *     file_size     the size of the file
 *     file_ns       the time of its last change
 *     file_boot     the boot of the machine when they were recorded: after a power cut, page and
 *                   file may be of different times
 *
 *     change    moving := odd; write; record the state of the file; moving := even
 *                                              alone, or with the claim of a checkpoint
 *     check     is moving even? stat; is it the recorded state? has moving not changed?
 *                                              any process, at any time
 *
 * Invariants:
 *  1. `moving` is odd from before the first write into the file until the state after the last
 *     write is recorded. (If stat fails, the number stays odd: nothing is known then.)
 *  2. A process that reads the same even number before and after its stat has seen the file between
 *     two changes by truce.
 *  3. A difference is final: `foreign` stays set until a process that has the store open alone
 *     opens it.
 *
 * A writer checks each time that it has acquired the lock, through a descriptor of its own. Readers
 * check once in CHECK_MS. A process that moves pages checks before it does, and so does a process
 * that opens the store. A process that is alone also compares if there is a log, because the log
 * belongs to the previous content.
 *
 * Deliberately not done: finding out which program changed the file. A file that was only touched
 * is refused, too, until every process has closed the store; this loses no data. Two changes within
 * one tick of the kernel's clock (some milliseconds) may have the same time.
 */
#include "engine/storage/file_identity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/storage/kv.h"
#include "engine/storage/write_lock.h"

/* The minimum milliseconds between two lookups of the names of the file. */
#define CHECK_MS 50

struct file_state {
    int64_t size, time_ns;
};

static truce_status log_identity_check(struct lock *lock, bson_error_t *error);

static struct file_state file_state_of(const struct stat *found)
{
    return (struct file_state){found->st_size, found->st_mtim.tv_sec * INT64_C(1000000000) +
                                                   found->st_mtim.tv_nsec};
}

static bool file_state_read(const struct lock *lock, struct file_state *file_state)
{
    struct stat found;

    if (stat(lock->database, &found))
        return false;
    *file_state = file_state_of(&found);
    return true;
}

/* Returns the boot number; 0 if it is unknown. */
static uint64_t read_boot_number(void)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    char text[40] = "";
    uint64_t number = 0;

    if (!file)
        return 0;
    if (fgets(text, sizeof text, file)) {
        for (const char *at = text; *at; at++)
            number = (number + (uint8_t)*at) * UINT64_C(0x100000001b3);
    }
    fclose(file);
    return number;
}

static uint64_t boot_number(void)
{
    static atomic_ullong number;
    uint64_t known = atomic_load(&number);

    if (!known) {
        known = read_boot_number();
        atomic_store(&number, known);
    }
    return known;
}

/* ---- changing the file ---------------------------------------------------------------------- */

void truce__file_identity_begin_change(struct lock *lock)
{
    atomic_fetch_or(&lock->page->moving, 1);
}

void truce__file_identity_end_change(struct lock *lock)
{
    struct lock_page *page = lock->page;
    struct file_state file_state;

    if (!file_state_read(lock, &file_state))
        return;
    atomic_store(&page->file_size, file_state.size);
    atomic_store(&page->file_ns, file_state.time_ns);
    atomic_store(&page->file_boot, boot_number());
    atomic_store(&page->moving, (atomic_load(&page->moving) | 1) + 1);
}

/* ---- checking the file ---------------------------------------------------------------------- */

/* Returns whether `now` is the recorded state. The result is false only if truce did not write in
 * the meantime. */
static bool is_file_state(const struct lock *lock, unsigned moving, const struct file_state *now)
{
    struct lock_page *page = lock->page;
    bool same =
        now->size == atomic_load(&page->file_size) && now->time_ns == atomic_load(&page->file_ns);

    return same || moving % 2 || atomic_load(&page->moving) != moving;
}

static bool is_file_as_left(const struct lock *lock)
{
    unsigned moving = atomic_load(&lock->page->moving);
    struct file_state now;

    return moving % 2 || !file_state_read(lock, &now) || is_file_state(lock, moving, &now);
}

static truce_status file_identity_conclude(struct lock *lock, bool stamped, bson_error_t *error)
{
    if (!stamped && !truce__lock_usable(lock, NULL))
        atomic_store(&lock->page->foreign, LOCK_FOREIGN_FILE);
    return truce__lock_usable(lock, error);
}

truce_status truce__file_identity_check(struct lock *lock, bson_error_t *error)
{
    truce_status status = file_identity_conclude(lock, is_file_as_left(lock), error);

    return status ? status : log_identity_check(lock, error);
}

truce_status truce__file_identity_check_locked(struct lock *lock, struct kv *kv,
                                               bson_error_t *error)
{
    unsigned moving = atomic_load(&lock->page->moving);
    truce_status status = TRUCE_OK;
    struct stat found;
    struct file_state now;
    bool same;

    if (lock->database_file < 0 || fstat(lock->database_file, &found)) {
        status = truce__kv_check_path(kv, error);
        if (!status)
            status = truce__file_identity_check(lock, error);
        return status ? status : truce__log_identity_check_locked(lock, kv, error);
    }
    same = truce__path_identity_same(&lock->database_identity, &found);
    if (!same)
        status = truce__kv_check_path(kv, error);
    if (status)
        return status;
    if (!same)
        truce__path_identity_record(&lock->database_identity, &found);
    now = file_state_of(&found);
    status = file_identity_conclude(lock, is_file_state(lock, moving, &now), error);
    return status ? status : truce__log_identity_check_locked(lock, kv, error);
}

truce_status truce__file_identity_check_sometimes(struct lock *lock, atomic_llong *last_ms,
                                                  bson_error_t *error)
{
    struct timespec now;
    truce_status status;
    int64_t now_ms;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    now_ms = now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
    if (now_ms - atomic_load_explicit(last_ms, memory_order_relaxed) < CHECK_MS)
        return TRUCE_OK;
    atomic_store_explicit(last_ms, now_ms, memory_order_relaxed);
    status = truce__file_identity_check(lock, error);
    if (status)
        atomic_store(last_ms, 0);
    return status;
}

bool truce__file_identity_fits(const struct lock *lock)
{
    uint64_t boot = atomic_load(&lock->page->file_boot);

    return !boot || boot != boot_number() || is_file_as_left(lock);
}

/* Returns the same as truce__file_identity_fits, but false if nothing is known. */
static bool file_state_is_left(const struct lock *lock)
{
    uint64_t boot = atomic_load(&lock->page->file_boot);

    return boot && boot == boot_number() && is_file_as_left(lock);
}

/* ---- path identity -------------------------------------------------------------------------- */

/*
 * Detects without a lookup that a path still leads to the same file.
 *
 * Each time that a writer has acquired the lock, it verifies that its files are the ones that other
 * processes find under their names. Looking up a path takes about four times as long as fstat on a
 * descriptor. If a program removes a file, moves it, replaces it, or writes into it, the change
 * time (ctime) of that file changes, and no program can set it:
 *
 *     check    fstat: is the ctime that of the last lookup? Then the file is under its name.
 *              Otherwise look the name up. If the file is there, record the ctime.
 *
 * Invariants:
 *  1. A time is recorded only if it is older than TICK_NS. A file system counts in ticks of the
 *     kernel, so a second change within the same tick would not show. If the time is younger, the
 *     name is looked up.
 *  2. `found` was read before the lookup of the name: a change between the two changes a time that
 *     is not recorded.
 *  3. After CHECK_MS the name is looked up in any case. If a directory of the path was moved,
 *     nothing about the file has changed, and some file systems have no such times.
 */

/* Twice the longest tick of a kernel's clock, in nanoseconds. */
#define TICK_NS INT64_C(20000000)

static int64_t path_identity_now_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t changed_ns(const struct stat *found)
{
    return found->st_ctim.tv_sec * INT64_C(1000000000) + found->st_ctim.tv_nsec;
}

bool truce__path_identity_same(const struct path_identity *path_identity, const struct stat *found)
{
    return path_identity->changed_ns && path_identity->changed_ns == changed_ns(found) &&
           path_identity_now_ns(CLOCK_MONOTONIC_COARSE) / 1000000 - path_identity->checked_ms <
               CHECK_MS;
}

void truce__path_identity_record(struct path_identity *path_identity, const struct stat *found)
{
    int64_t changed = changed_ns(found);
    bool settled = path_identity_now_ns(CLOCK_REALTIME_COARSE) - changed > TICK_NS;

    *path_identity = (struct path_identity){
        .changed_ns = settled ? changed : 0,
        .checked_ms = path_identity_now_ns(CLOCK_MONOTONIC_COARSE) / 1000000};
}

/* ---- log identity --------------------------------------------------------------------------- */

/*
 * Detects that the log or its index was removed, replaced, or truncated.
 *
 * A commit is a write into the log that SQLite has open. If the log is removed, moved, or replaced
 * while the store is open, the writes go into a file without a name. If the log is truncated or
 * overwritten, recovery ends where the old content ended. If the index of the log is removed, the
 * next process creates another one, and two processes overwrite each other's commits. SQLite
 * notices none of this. Therefore the page that all processes share records which files they are
 * and how far the log reaches:
 *
 *     log, index       device, inode number, and birth time of the two files at the last opening
 *     log_salts        the generation of the log: changes each time that the log begins again
 *     log_least        the number of frames of that generation after the last commit, at least
 *     log_released_ns  when a writer last released the lock (wall clock)
 *
 *     names      each name leads to the recorded file, and the index has its size    any thread
 *     content    the last frame that the index counts is in the log: its salts and its running
 *                checksum, which depends on every byte before it; and the index counts no fewer
 *                frames than were recorded, unless the log has begun again    under the lock
 *     time       the log was not modified since a writer last released the lock    under the lock,
 *                if that was at least LOG_IDLE_NS ago
 *
 * Invariants:
 *  1. A writer checks all three under the lock, before it writes. A reader checks the names every
 *     now and then, and always after it has opened a connection.
 *  2. The recorded files do not change while any process has the store open: SQLite removes them
 *     only when a process that is alone closes the store.
 *  3. A difference is final: `foreign` stays LOCK_FOREIGN_LOG until a process that is alone opens
 *     the store. If the lookup of a name fails although the file exists, only that call fails.
 *  4. log_least is never too large. It is 0 while log_salts changes. If a process dies between its
 *     commit and the record, the number is too small, which refuses nothing valid.
 *  5. Only the holder of the lock writes into the log. The time of the log means nothing while
 *     log_writing is true.
 *
 * The time detects another program that writes into the middle of the log, which the last frame
 * does not show. If the log was modified later, all frames are compared with their checksums. If
 * they are valid, only the time has changed. After this has happened TIMES_WRONG_MAX times, the
 * time is not checked any more on this file system. If writers follow each other faster than
 * LOG_IDLE_NS, only the last frame is checked. A query by each writer would make the next write
 * change the inode (truce__file_modified_ns).
 *
 * A process that is alone also compares, and reads all frames up to log_least. SQLite reads them
 * again and ends at the first one that it finds invalid. If that is earlier, one of the two reads
 * was wrong, and the opening fails. Neither check is made if the machine was restarted, because
 * after a power cut the page may be older than the files.
 *
 * A removal after the check and before the reply is detected by the next writer. It does not differ
 * from a removal right after the reply.
 */

/* SQLite extends the index of the log in units of this many bytes. */
#define INDEX_BYTES_LEAST 32768
/* After this many wrong times with valid frames, the time of the log is not checked any more. */
#define TIMES_WRONG_MAX 8
/* The time of the log is checked if a writer last released the lock at least this many nanoseconds
 * ago. */
#define LOG_IDLE_NS INT64_C(20000000)

truce_status truce__log_identity_read(const char *name, struct file_facts *facts,
                                      bson_error_t *error)
{
    if (truce__file_read_facts(name, facts))
        return TRUCE_OK;
    *facts = (struct file_facts){0};
    if (errno == ENOENT)
        return TRUCE_OK;
    return truce__fail(TRUCE_IO, error, "cannot stat \"%s\": %s", name, strerror(errno));
}

truce_status truce__log_identity_record(struct lock *lock, bson_error_t *error)
{
    struct lock_page *page = lock->page;
    struct file_facts log, index;
    truce_status status;

    if (!lock->alone && atomic_load(&page->log_known))
        return TRUCE_OK;
    status = truce__log_identity_read(lock->log, &log, error);
    if (!status)
        status = truce__log_identity_read(lock->index, &index, error);
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

/* Checks that the path still leads to the log and its index. `log` is the file under the name of
 * the log. */
static truce_status identity_check_names(struct lock *lock, struct file_facts *log,
                                         bson_error_t *error)
{
    struct lock_page *page = lock->page;
    struct file_facts index;
    truce_status status = truce__lock_usable(lock, error);

    if (status || !atomic_load(&page->log_known))
        return status;
    status = truce__log_identity_read(lock->log, log, error);
    if (!status)
        status = truce__log_identity_read(lock->index, &index, error);
    if (status)
        return status;
    if (truce__file_id_equal(&log->id, &page->log) &&
        truce__file_id_equal(&index.id, &page->index) && index.size >= INDEX_BYTES_LEAST)
        return TRUCE_OK;
    return identity_conclude(lock, error);
}

/* Fails with CORRUPT if one of the files was removed, replaced, or truncated while the store was
 * open. From then on every process that has the store open is refused (truce__lock_usable). Fails
 * with IO if this cannot be determined now. Any thread. */
static truce_status log_identity_check(struct lock *lock, bson_error_t *error)
{
    struct file_facts log;

    return identity_check_names(lock, &log, error);
}

/* Finds out whether the open log ends with the last commit. With `all`, checks every frame. An
 * index that a dead process was writing counts as missing. */
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

/* Returns whether no program has modified the log since a writer last released the lock. Returns
 * true if this is unknown. */
static bool is_log_as_left(const struct lock *lock)
{
    const struct lock_page *page = lock->page;
    int64_t ended_ns = atomic_load(&page->log_released_ns), modified_ns;
    int64_t idle_ns = path_identity_now_ns(CLOCK_REALTIME) - ended_ns;

    return atomic_load(&page->log_writing) || !atomic_load(&page->log_known) ||
           atomic_load(&page->log_times_wrong) >= TIMES_WRONG_MAX ||
           (idle_ns >= 0 && idle_ns < LOG_IDLE_NS) ||
           !truce__file_modified_ns(lock->log, &modified_ns) || modified_ns <= ended_ns;
}

truce_status truce__log_identity_check_locked(struct lock *lock, struct kv *kv, bson_error_t *error)
{
    struct file_facts log;
    truce_status status = identity_check_names(lock, &log, error);
    bool left = status || is_log_as_left(lock), whole = true;

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

void truce__log_identity_before_unlock(struct lock *lock)
{
    struct lock_page *page = lock->page;

    atomic_store(&page->log_released_ns, path_identity_now_ns(CLOCK_REALTIME));
    atomic_store(&page->log_writing, false);
}

bool truce__log_identity_lost_name(struct lock *lock, struct kv *kv)
{
    bool whole;

    truce_assert(lock->alone);
    return atomic_load(&lock->page->foreign) == LOCK_FOREIGN_LOG && file_state_is_left(lock) &&
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

/* Compares the frames that the log had after the last commit with their checksums. Otherwise
 * recovery would end at the first wrong one, and the commits after it would be lost unseen. */
static truce_status identity_check_frames(struct lock *lock, uint32_t frames, bson_error_t *error)
{
    struct kv_log_frame *frame;
    struct kv_log_position position;
    struct kv_log *log;
    truce_status status = truce__kv_log_open(lock->database, &log, error);

    if (status)
        return status;
    frame = bson_malloc(sizeof *frame);
    status = truce__kv_log_start(log, &position, error);
    if (!status && position.salts == atomic_load(&lock->page->log_salts)) {
        while (!status && position.frames < frames)
            status = truce__kv_log_next(log, &position, frames, frame, error);
    }
    if (status == TRUCE_CORRUPT)
        status = truce__fail(
            TRUCE_CORRUPT, error,
            "the log \"%s\" is damaged: only %u of its %u frames are valid; restore it, or "
            "remove \"%s\" to open the store without the commits after these frames",
            lock->log, position.frames, frames, lock->path);
    bson_free(frame);
    truce__kv_log_close(log);
    return status;
}

truce_status truce__log_identity_match(struct lock *lock, bson_error_t *error)
{
    struct lock_page *page = lock->page;
    uint32_t least = atomic_load(&page->log_least);
    struct file_facts log;
    truce_status status;

    if (!atomic_load(&page->log_known) || !file_state_is_left(lock))
        return TRUCE_OK;
    status = truce__log_identity_read(lock->log, &log, error);
    if (status)
        return status;
    if (log.size && !truce__file_id_equal(&log.id, &page->log))
        return truce__fail(
            TRUCE_CORRUPT, error,
            "\"%s\" is not the log of \"%s\": restore that log, or move this one away", lock->log,
            lock->database);
    if (!log.size && least)
        return truce__fail(TRUCE_CORRUPT, error,
                           "the log \"%s\" with the last commits is missing: restore it, or "
                           "remove \"%s\" to open the store without these commits",
                           lock->log, lock->path);
    /* After a failed sync, the disk may hold less than was written. */
    return least && !atomic_load(&page->broken) ? identity_check_frames(lock, least, error)
                                                : TRUCE_OK;
}

/* Returns the salts in the header of the log, or 0 if the log has no header or cannot be read. */
static uint64_t salts_of_log(const struct lock *lock)
{
    struct kv_log_position position = {0};
    struct kv_log *log;

    if (truce__kv_log_open(lock->database, &log, NULL))
        return 0;
    if (truce__kv_log_start(log, &position, NULL))
        position.salts = 0;
    truce__kv_log_close(log);
    return position.salts;
}

truce_status truce__log_identity_recovered(const struct lock *lock, struct kv *kv,
                                           bson_error_t *error)
{
    const struct lock_page *page = lock->page;
    uint32_t least = atomic_load(&page->log_least), version;
    struct kv_log_end end;

    if (!lock->alone || !least || atomic_load(&page->broken) || !file_state_is_left(lock))
        return TRUCE_OK;
    /* Beginning a snapshot makes the index of the log known. If this fails, the caller's next read
     * reports the error. */
    if (truce__kv_snapshot_begin(kv, &version, NULL))
        return TRUCE_OK;
    truce__kv_snapshot_end(kv);
    if (!truce__kv_log_end(kv, &end))
        return TRUCE_OK;
    if (end.salts != atomic_load(&page->log_salts)) {
        /* The log has begun again. */
        if (salts_of_log(lock) != atomic_load(&page->log_salts))
            return TRUCE_OK;
        /* SQLite has read another header, so it has found no frame of this generation. */
        end.frames = 0;
    }
    if (end.frames >= least)
        return TRUCE_OK;
    return truce__fail(TRUCE_IO, error,
                       "the log \"%s\" was read incompletely, %u of its %u frames: open the store "
                       "again",
                       lock->log, end.frames, least);
}
