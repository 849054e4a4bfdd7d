/*
 * The stamp of the file.
 *
 * A database file can be written over in its place: by `cp BACKUP STORE`, by an SQLite program that makes a
 * checkpoint. It has the same name and the same number then, and nothing that SQLite looks at tells: pages that are
 * in memory stay as they were, the others come from the new content, and the log of the old one is moved over it.
 *
 *     moving    even: the file is as `stamp` says;  odd: truce is writing into it, or died while it did
 *     stamp     size, time of the last change
 *     boot      which start of the machine that was: after a power cut page and file are of different times
 *
 *     change    moving := odd; write; stamp := what is there; moving := even       alone, or with the claim of
 *                                                                                  a checkpoint
 *     look      even? stat; is it the stamp? still the same number?                anybody, at any time
 *
 * Invariants:
 *  1. `moving` is odd from before the first write into the file until after the last one's stamp.
 *     (A stat that fails leaves the number odd: nothing is known then.)
 *  2. Who finds the same even number before and after his stat has seen the file between two changes of truce's.
 *  3. What was found once stays so (`foreign`) until one who is alone opens the store.
 *
 * A writer looks in each turn, by a descriptor of his own (file_identity.c), a reader every now and then, whoever moves pages before he does, and who opens
 * the store. One who is alone compares, too, if there is a log: what is in it belongs to the
 * content that was there before.
 *
 * Deliberately not done: telling what did it. A file that was only touched is refused as well, until the store was
 * closed by everybody; no data is lost by that. Two changes within one tick of the kernel's clock (some
 * milliseconds) may have the same time.
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
#include "engine/storage/lock.h"

#define LOOK_MS 50

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

/* 0: nobody knows. */
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

/* ---- who changes the file -------------------------------------------------------------------- */

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

/* ---- who looks ------------------------------------------------------------------------------- */

/* What was found since `moving` was read. False only if nobody of truce's was writing meanwhile. */
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

truce_status truce__file_identity_check_in_turn(struct lock *lock, struct kv *kv,
                                                bson_error_t *error)
{
    unsigned moving = atomic_load(&lock->page->moving);
    truce_status status = TRUCE_OK;
    struct stat found;
    struct file_state now;
    bool same;

    if (lock->database_file < 0 || fstat(lock->database_file, &found)) {
        status = truce__kv_in_place(kv, error);
        if (!status)
            status = truce__file_identity_check(lock, error);
        return status ? status : truce__log_identity_check_in_turn(lock, kv, error);
    }
    same = truce__path_identity_same(&lock->database_identity, &found);
    if (!same)
        status = truce__kv_in_place(kv, error);
    if (status)
        return status;
    if (!same)
        truce__path_identity_record(&lock->database_identity, &found);
    now = file_state_of(&found);
    status = file_identity_conclude(lock, is_file_state(lock, moving, &now), error);
    return status ? status : truce__log_identity_check_in_turn(lock, kv, error);
}

truce_status truce__file_identity_check_sometimes(struct lock *lock, atomic_llong *last_ms,
                                                  bson_error_t *error)
{
    struct timespec now;
    int64_t now_ms;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    now_ms = now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
    if (now_ms - atomic_load_explicit(last_ms, memory_order_relaxed) < LOOK_MS)
        return TRUCE_OK;
    atomic_store_explicit(last_ms, now_ms, memory_order_relaxed);
    return truce__file_identity_check(lock, error);
}

bool truce__file_identity_fits(const struct lock *lock)
{
    uint64_t boot = atomic_load(&lock->page->file_boot);

    return !boot || boot != boot_number() || is_file_as_left(lock);
}

/* The same; false where nobody knows. */
static bool file_state_is_left(const struct lock *lock)
{
    uint64_t boot = atomic_load(&lock->page->file_boot);

    return boot && boot == boot_number() && is_file_as_left(lock);
}

/* ---- path identity ----------------------------------------------------------------------- */

/*
 * Names that need not be looked up.
 *
 * A writer makes sure in each turn that its files are those that others find under their names. To look a
 * name up takes some four times as long as to ask a descriptor (fstat). But who removes a file, moves it, puts another
 * in its place or writes into it changes the time of change (ctime) of that very file, which nobody can set:
 *
 *     look    fstat: is the time what it was when the name was looked up? then it stands there
 *             else: look it up; it stands there? then that time is kept
 *
 * Invariants:
 *  1. A time is kept only if it is older than TICK_NS by then: a file system counts in ticks of the
 *     kernel's, and a change within the same one would not be seen. A younger one is no reason to believe anything, and
 *     the name is looked up.
 *  2. `found` is of before the look at the name: what happens between the two changes a time that is not
 *     kept.
 *  3. After LOOK_MS the name is looked up in any case: where a directory on the way was moved, nothing of the file has
 *     changed; and some file systems know no such times.
 */

#define TICK_NS INT64_C(20000000) /* two of the longest */
#define LOOK_MS 50

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
           path_identity_now_ns(CLOCK_MONOTONIC_COARSE) / 1000000 - path_identity->looked_ms <
               LOOK_MS;
}

void truce__path_identity_record(struct path_identity *path_identity, const struct stat *found)
{
    int64_t changed = changed_ns(found);
    bool settled = path_identity_now_ns(CLOCK_REALTIME_COARSE) - changed > TICK_NS;

    *path_identity =
        (struct path_identity){.changed_ns = settled ? changed : 0,
                               .looked_ms = path_identity_now_ns(CLOCK_MONOTONIC_COARSE) / 1000000};
}

/* ---- log identity ------------------------------------------------------------------------ */

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

/* CORRUPT: one of them was removed, replaced, or cut while the store was open. From then on every process that has
 * the store open is refused (truce__lock_usable). IO: it cannot be told now. Any thread. */
static truce_status log_identity_check(struct lock *lock, bson_error_t *error)
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

truce_status truce__log_identity_match(struct lock *lock, bson_error_t *error)
{
    struct lock_page *page = lock->page;
    struct file_look log;
    truce_status status;

    if (!atomic_load(&page->log_known) || !file_state_is_left(lock))
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
