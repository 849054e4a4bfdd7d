/*
 * The archiver's part of the shared page.
 *
 * One process at a time archives a store: it has claimed LOCK_ARCHIVE. It keeps a read transaction
 * open that pins the log after the position up to which it is archived, so SQLite does not let a
 * commit begin the log again. A checkpoint that lets the log begin again waits for the archive:
 *
 *     checkpoint, under the lock     hurry; wait until the position is the end of the log
 *     archiver                       archives the rest, publishes the position
 *     checkpoint                     moves the rest into the file
 *     archiver                       begins its next read transaction, which now needs no frame of
 *                                    the log, and ends the one before
 *     next commit                    begins the log again
 *
 * Invariants:
 *  1. Nothing in the page decides what is archived. A wrong value (after a power cut any is
 *     possible) delays a checkpoint or makes it try without success.
 *  2. The position is published after the target has stored the log up to it. While the position
 *     changes, `frames` is POSITION_CHANGES.
 *  3. The time of a commit was read under the lock before the commit: no caller and no reader has
 *     seen the commit earlier, and none of its operations began later.
 *  4. The time of a frame is used only if salts and frame are those of the commit. A commit has its
 *     time before it is visible, so a process that dies right after it leaves the time, too. If it
 *     began the log again, the next commit's time counts, or the archiver's own.
 *     Commits of one millisecond share an entry, so the entries cover at least about a second.
 *  5. A lag is measured with the monotonic clock, which all processes of the machine share. A clock
 *     that is set changes no lag.
 *  6. The last process that closes the store moves the log into the file. It does not remove the
 *     log if a position in it was published and it has at most KEPT_FRAMES frames. The next
 *     archiver can then continue. Its comparison with the archive decides this (archiver.c). A
 *     wrong value in the page only leaves or removes a log that is in the file.
 */
#include "engine/storage/log_archive.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/futex.h"
#include "engine/storage/snapshot_pins.h"

#define POSITION_CHANGES UINT32_MAX
#define MILLISECOND      INT64_C(1000000)
/* The number of the oldest times that readers skip, because a writer may replace them during the
 * read. */
#define OLDEST_SKIPPED 16
/* The maximum number of frames in a log that stays when the store is closed. Each opening reads all
 * of them. */
#define KEPT_FRAMES 4000
/* truce__archive_prepare ends when at most this many bytes are left. They are archived during the
 * wait under the lock. */
#define NEAR_BYTES (1024 * 1024)

/* Writes the next entry. Only the holder of the lock writes. A reader compares the frame number
 * before and after it reads the entry. */
static void archive_note_time(struct lock_archive *archive, int64_t time_ms, uint64_t salts,
                              uint32_t frame)
{
    unsigned at = atomic_load(&archive->times_next) % COMMIT_TIMES;

    atomic_store(&archive->times[at].frame, 0);
    atomic_store(&archive->times[at].time_ms, time_ms);
    atomic_store(&archive->times[at].salts, salts);
    atomic_store(&archive->times[at].frame, frame);
    atomic_store(&archive->times_next, (at + 1) % COMMIT_TIMES);
}

void truce__archive_note_begin(struct lock *lock, const struct kv *kv)
{
    struct lock_archive *archive = &lock->page->archive;
    unsigned at = atomic_load(&archive->times_next) % COMMIT_TIMES;
    unsigned last = (at + COMMIT_TIMES - 1) % COMMIT_TIMES;
    int64_t time_ms = truce__clock_wall_ms();
    struct kv_log_end end;
    bool known = truce__kv_log_end(kv, &end);

    if (known && atomic_load(&archive->times[last].frame) &&
        atomic_load(&archive->times[last].salts) == end.salts &&
        atomic_load(&archive->times[last].time_ms) == time_ms) {
        atomic_store(&archive->times[last].frame, end.frames + 1);
        return;
    }
    archive_note_time(archive, time_ms, known ? end.salts : 0, known ? end.frames + 1 : 0);
}

void truce__archive_note_commit(struct lock *lock, const struct kv *kv)
{
    struct lock_archive *archive = &lock->page->archive;
    unsigned at = (atomic_load(&archive->times_next) + COMMIT_TIMES - 1) % COMMIT_TIMES;
    struct kv_log_end end;

    if (!truce__kv_log_end(kv, &end))
        return;
    if (atomic_load(&archive->times[at].salts) == end.salts)
        atomic_store(&archive->times[at].frame, end.frames);
    else
        /* This commit began the log again. */
        archive_note_time(archive, atomic_load(&archive->times[at].time_ms), end.salts, end.frames);
}

size_t truce__archive_commit_times(const struct lock *lock, struct commit_time times[COMMIT_TIMES])
{
    const struct lock_archive *archive = &lock->page->archive;
    unsigned next, read;
    size_t count;

    do {
        next = atomic_load(&archive->times_next) % COMMIT_TIMES;
        count = 0;
        for (unsigned i = OLDEST_SKIPPED; i < COMMIT_TIMES; i++) {
            unsigned at = (next + i) % COMMIT_TIMES;
            uint32_t frame = atomic_load(&archive->times[at].frame);
            uint64_t salts = atomic_load(&archive->times[at].salts);
            int64_t time_ms = atomic_load(&archive->times[at].time_ms);

            if (frame && atomic_load(&archive->times[at].frame) == frame)
                times[count++] = (struct commit_time){salts, frame, time_ms};
        }
        read = atomic_load(&archive->times_next) % COMMIT_TIMES;
    } while ((read + COMMIT_TIMES - next) % COMMIT_TIMES >= OLDEST_SKIPPED);
    return count;
}

static bool archive_pins(const struct lock *lock)
{
    return lock->page && atomic_load(&lock->page->archive.pins) &&
           truce__lock_is_claimed(lock, LOCK_ARCHIVE);
}

void truce__archive_hurry(struct lock *lock, int milliseconds)
{
    struct lock_archive *archive;

    if (!archive_pins(lock))
        return;
    archive = &lock->page->archive;
    atomic_store(&archive->wanted_until_ns,
                 truce__clock_monotonic_ns() + milliseconds * MILLISECOND);
    truce__archive_request(lock);
}

void truce__archive_request(struct lock *lock)
{
    atomic_fetch_add(&lock->page->archive.calls, 1);
    truce__futex_wake_shared(&lock->page->archive.calls, 1);
}

/* Returns the number of bytes of the log that are not archived. */
static uint64_t archive_lag(const struct lock_page *page)
{
    uint32_t archived = atomic_load(&page->archive.frames), frames = atomic_load(&page->log_least);

    if (archived == POSITION_CHANGES)
        return 0;
    if (atomic_load(&page->archive.salts) != atomic_load(&page->log_salts))
        archived = 0;
    return frames > archived ? (uint64_t)(frames - archived) * PIN_PAGE_BYTES : 0;
}

/* Returns whether a call to the target takes more than half of `milliseconds`. */
static bool archive_is_slow(const struct lock_archive *archive, int milliseconds)
{
    return (int)atomic_load(&archive->call_ms) * 2 > milliseconds;
}

/* Waits until the archiver publishes a new position, for 10 ms at most. Returns false if the time
 * has expired or the call was interrupted. `seen` is the value of `positions` before the caller
 * examined the position. */
static bool archive_wait_position(struct lock *lock, unsigned seen, int64_t until_ns)
{
    int64_t left = until_ns - truce__clock_monotonic_ns();

    if (left <= 0 || truce__lock_interrupted(lock))
        return false;
    truce__futex_wait_shared(&lock->page->archive.positions, seen,
                             left < 10 * MILLISECOND ? left : 10 * MILLISECOND);
    return true;
}

void truce__archive_prepare(struct lock *lock, int milliseconds)
{
    int64_t until_ns = truce__clock_monotonic_ns() + milliseconds * MILLISECOND;

    if (!archive_pins(lock) || atomic_load(&lock->page->archive.failing_since_ns) ||
        archive_is_slow(&lock->page->archive, milliseconds))
        return;
    for (;;) {
        unsigned seen = atomic_load(&lock->page->archive.positions);

        if (archive_lag(lock->page) <= NEAR_BYTES)
            return;
        truce__archive_request(lock);
        if (!archive_wait_position(lock, seen, until_ns))
            return;
    }
}

static bool archive_is_at(const struct lock_archive *archive, const struct kv_log_end *end)
{
    return atomic_load(&archive->frames) == end->frames &&
           atomic_load(&archive->salts) == end->salts &&
           atomic_load(&archive->frames) == end->frames;
}

bool truce__archive_caught_up(struct lock *lock, const struct kv *kv, int milliseconds)
{
    int64_t until_ns = truce__clock_monotonic_ns() + milliseconds * MILLISECOND;
    struct lock_archive *archive;
    struct kv_log_end end;

    if (!archive_pins(lock))
        return true;
    archive = &lock->page->archive;
    if (!truce__kv_log_end(kv, &end) || atomic_load(&archive->failing_since_ns))
        return false;
    if (!archive_is_at(archive, &end) && archive_is_slow(archive, milliseconds))
        return false;
    /* The rest of the checkpoint needs the archiver, too: it must leave the log. An archiver that
     * is at the end sleeps, and would stop the checkpoint by its read transaction. */
    truce__archive_hurry(lock, milliseconds * 2);
    for (;;) {
        unsigned seen = atomic_load(&archive->positions);

        if (archive_is_at(archive, &end))
            return true;
        if (!archive_wait_position(lock, seen, until_ns))
            return false;
    }
}

bool truce__archive_keeps_log(const struct lock *lock, const struct kv *kv)
{
    struct kv_log_end end;

    return lock->page && truce__kv_log_end(kv, &end) && end.frames && end.frames <= KEPT_FRAMES &&
           atomic_load(&lock->page->archive.salts) == end.salts;
}

truce_status truce__archive_enter(struct lock *lock, int *claim, bson_error_t *error)
{
    *claim = lock->page ? truce__lock_claim(lock, LOCK_ARCHIVE) : -1;
    if (*claim >= 0) {
        atomic_store(&lock->page->archive.pins, false);
        atomic_store(&lock->page->archive.process, getpid());
        atomic_store(&lock->page->archive.failing_since_ns, 0);
        atomic_store(&lock->page->archive.whole_ns, truce__clock_monotonic_ns());
        atomic_store(&lock->page->archive.behind, 0);
        return TRUCE_OK;
    }
    if (!lock->page)
        return truce__fail(TRUCE_INVALID, error,
                           "cannot archive \"%s\": its lock file is not writable", lock->database);
    return truce__fail(TRUCE_LOCKED, error,
                       "process %d archives \"%s\" already: end it first, or use its archive",
                       atomic_load(&lock->page->archive.process), lock->database);
}

void truce__archive_leave(struct lock *lock, int claim)
{
    if (claim >= 0)
        truce__archive_publish(lock, NULL);
    truce__lock_disclaim(claim);
}

void truce__archive_publish(struct lock *lock, const struct kv_log_position *position)
{
    struct lock_archive *archive = &lock->page->archive;

    atomic_store(&archive->pins, position != NULL);
    atomic_store(&archive->frames, POSITION_CHANGES);
    if (position) {
        atomic_store(&archive->salts, position->salts);
        atomic_store(&archive->frames, position->frames);
    }
    atomic_fetch_add(&archive->positions, 1);
    truce__futex_wake_shared(&archive->positions, INT32_MAX);
}

unsigned truce__archive_calls(const struct lock *lock)
{
    return atomic_load(&lock->page->archive.calls);
}

void truce__archive_sleep(struct lock *lock, unsigned seen, int milliseconds)
{
    struct lock_archive *archive = &lock->page->archive;

    if (truce__clock_monotonic_ns() < atomic_load(&archive->wanted_until_ns))
        truce__clock_sleep_ms(1);
    else
        truce__futex_wait_shared(&archive->calls, seen, milliseconds * MILLISECOND);
}

void truce__archive_publish_commit(struct lock *lock, uint64_t durable, int64_t whole_ns,
                                   uint64_t commit, uint32_t generation)
{
    struct lock_archive *archive = &lock->page->archive;

    atomic_store(&archive->durable, durable);
    atomic_store(&archive->whole_ns, whole_ns);
    atomic_store(&archive->commit, commit);
    atomic_store(&archive->generation, generation);
}

void truce__archive_publish_state(struct lock *lock, uint64_t behind_bytes,
                                  int64_t failing_since_ns, unsigned call_ms)
{
    struct lock_archive *archive = &lock->page->archive;

    atomic_store(&archive->behind, behind_bytes);
    atomic_store(&archive->failing_since_ns, failing_since_ns);
    atomic_store(&archive->call_ms, call_ms);
}

/* Returns the milliseconds since a time, at least 1, because 0 means that nothing is missing. */
static int64_t archive_ms_since(int64_t since_ns)
{
    /* The page can have any value, for example one of an earlier boot. */
    int64_t ms = (truce__clock_monotonic_ns() - since_ns) / MILLISECOND;

    return ms > 0 ? ms : 1;
}

bool truce__archive_facts(const struct lock *lock, struct archive_facts *facts)
{
    const struct lock_archive *archive;
    int64_t since_ns;
    bool runs, pins;

    if (!lock->page)
        return false;
    archive = &lock->page->archive;
    runs = truce__lock_is_claimed(lock, LOCK_ARCHIVE);
    pins = atomic_load(&archive->pins);
    if (!runs && !pins)
        return false;
    since_ns = runs ? atomic_load(&archive->failing_since_ns) : 0;
    *facts = (struct archive_facts){
        .process = runs ? atomic_load(&archive->process) : 0,
        .pins = runs && pins,
        .commit = atomic_load(&archive->commit),
        .generation = atomic_load(&archive->generation),
        .behind_bytes = atomic_load(&archive->behind),
        .failing_ms = since_ns ? archive_ms_since(since_ns) : 0,
    };
    if (pins)
        facts->behind_bytes = archive_lag(lock->page);
    if (facts->behind_bytes || since_ns)
        facts->behind_ms = archive_ms_since(atomic_load(&archive->whole_ns));
    return true;
}
