/*
 * Checkpoints.
 *
 * A checkpoint under load has two phases:
 *
 *     concurrent    a connection of its own copies pages from the WAL into the file, a few at a
 *                   time, and syncs them, while other threads write and read; repeated while many
 *                   pages are left
 *     restart       the writer, alone and with the reader gate closed, copies the few pages that
 *                   are left, and lets the next commit overwrite the WAL from its beginning;
 *                   overwriting makes commits cheap, so the WAL is not truncated
 *
 * Invariants:
 *  1. One process at a time makes a checkpoint: the one that has claimed LOCK_CHECKPOINT.
 *  2. During the concurrent phase, no process makes a commit that restarts the WAL. SQLite before
 *     3.51.3 loses commits if one does while a checkpoint begins. A commit restarts the WAL only if
 *     every page of it is in the file. Each pass of the phase therefore begins by committing one
 *     page under the lock. Only the process with the checkpoint claim can move this page (1), and
 *     the page counts as moved only when the pass has ended.
 *  3. The restart runs under the lock. No process writes then.
 *  4. The file does not change while a process reads it without the log (read_only_reader.c).
 *
 * The restart holds the lock for at most about 60 ms, plus the time of the disk and the wait for an
 * archiver. It waits 20 ms for readers of this process, 20 ms for those of others, and moves
 * PAGES_STILL pages, which takes about 20 ms. The gate does not stop readers of other processes,
 * and readers of this process may be slow. If a reader blocks the restart, the restart is given up.
 * It is retried a few times after pauses that double, so that a log that has stopped growing is
 * moved, too. Then the next try comes when the WAL has grown by another 16 MB. Long reads
 * (snapshots.c) are not waited for. While one of them blocks, pages are moved up to its position,
 * and the WAL grows until the read ends or is ended.
 *
 * While a process archives the store (log_archive.c), the restart waits under the lock until the
 * archive has the whole log, for ARCHIVE_MS or, for a long log, ARCHIVE_WORST_MS. After that time
 * the restart is given up, and the log grows until a later try. The archiver's read transaction
 * pins the log, so no commit begins the log again before that. Each pass therefore waits, without
 * the lock, until the archive has most of the log. The log becomes as long as that of a small file,
 * so that restarts are rare.
 *
 * Pages are moved a few at a time, because the syncs of commits queue behind other work of the
 * disk. Moving 16 MB at once delayed all callers by 25 ms, and syncing them in the restart by
 * another 35 ms. If the WAL grows in the meantime, more pages are moved at once.
 *
 * The pages of a small file occur many times in a long WAL and are moved once; in a large file all
 * pages may differ. If writers are faster than the checkpoint, the restart is also given up, until
 * the WAL has PAGES_WORST pages. Then all of it is moved while the writers wait. The part of the
 * WAL beyond TRUCE_LOG_BYTES_KEPT is freed after the restart.
 *
 * A frame of the log that is damaged, after several reads, is not moved, and nothing is written any
 * more. A process that is alone then opens the store only if all frames are valid when it reads
 * them. SQLite's recovery would stop at a damaged frame without an error. The command truce salvage
 * finds the data after that frame. A failing read ends the checkpoint and does not count as damage.
 *
 * A crash during a checkpoint loses nothing: the WAL is synced before pages are copied, and kept
 * until the pages are synced in the file. No later pass copies a page again. Therefore a failing
 * sync breaks the store, and all pages of the WAL are copied again (durable.c).
 *
 * States: idle --note finds a long WAL--> wanted --thread--> running --> idle
 */
#include "engine/checkpoint.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "engine/storage/file_identity.h"
#include "engine/storage/log_archive.h"
#include "engine/storage/snapshot_pins.h"

/* A checkpoint begins when the WAL has this many pages (16 MB), if the file is larger than that. */
#define PAGES_FEW 4000
/* The same (64 MB) for a file of at most 16 MB, for a store that is archived, and before the first
 * checkpoint of this process. */
#define PAGES_MAX 16000
/* The concurrent phase ends when at most this many pages are left. */
#define PAGES_LEFT 400
/* The restart moves at most this many pages while writers wait, which takes about 20 ms. */
#define PAGES_STILL 2000
/* If the WAL has this many pages, writers wait until all of it is moved. */
#define PAGES_WORST 64000
/* The maximum number of concurrent passes of one checkpoint. */
#define PASSES_MAX 8
/* The number of pages that a pass copies between two syncs while writers are active. */
#define PACE 64
/* The same if the WAL is longer than PAGES_PACED. */
#define PACE_LONG   1024
#define PAGES_PACED (PAGES_MAX + PAGES_FEW)
/* The milliseconds that the restart waits for readers of this process, and then for those of other
 * processes. */
#define RESTART_MS 20
/* The milliseconds that the restart waits for the archiver to archive the rest of the log. */
#define ARCHIVE_MS 200
/* The same for a log of PAGES_WORST pages or more. */
#define ARCHIVE_WORST_MS 1000
/* The pause before the first retry, in milliseconds. It doubles with each retry. */
#define AGAIN_MS 100
/* The number of retries. */
#define AGAIN_MAX 4
/* The milliseconds for which a step waits for the lock. */
#define LOCK_WAIT_MS 60000
/* The wait is divided into parts of this length. Between two parts, the thread checks whether the
 * store is being closed. */
#define LOCK_WAIT_STEP_MS 1000

struct checkpoint_op {
    /* Must be the first field: the writer passes a pointer to it. */
    struct write_op base;
    struct readers *readers;
    bool restarted;
    /* A long read or the archive blocked the restart, so the restart is not tried again soon. */
    bool pinned;
    /* The number of pages in the file after the restart. */
    int64_t file_pages;
};

truce_status truce__checkpoint_move(struct lock *lock, struct kv *kv, bool restart, uint32_t pace,
                                    int *pages, int *moved, bson_error_t *error)
{
    truce_status status;
    uint32_t damaged;

    truce__file_identity_begin_change(lock);
    status = truce__kv_checkpoint(kv, restart, pace, pages, moved, &damaged, error);
    truce__file_identity_end_change(lock);
    if (damaged)
        atomic_store(&lock->page->log_damaged, true);
    return status;
}

static truce_status run_mark(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    truce_status status;

    (void)base;
    truce__archive_note_begin(writer->lock, writer->kv);
    status = truce__kv_mark(writer->kv, error);
    if (!status)
        truce__archive_note_commit(writer->lock, writer->kv);
    return status;
}

/* Returns the milliseconds that a restart waits for the archiver. While the log is short, it is
 * better to let it grow than to delay the writers. */
static int archive_ms(const struct lock *lock)
{
    bool few = truce__pins_log_length(lock) / PIN_PAGE_BYTES < PAGES_WORST;

    return few ? ARCHIVE_MS : ARCHIVE_WORST_MS;
}

/* Restarts the WAL under the lock, with the reader gate closed (invariant 3). Gives up without an
 * error if a pin, the archive, or a reader blocks the restart. `restarted` and `pinned` report the
 * result. */
static truce_status run_restart(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    struct checkpoint_op *op = (struct checkpoint_op *)base;
    int64_t deadline_ns;
    truce_status status;
    int pages, moved;

    if (truce__pins_blocking(writer->lock) ||
        !truce__archive_caught_up(writer->lock, writer->kv, archive_ms(writer->lock))) {
        op->pinned = true;
        return TRUCE_OK;
    }
    deadline_ns = truce__clock_monotonic_ns() + RESTART_MS * INT64_C(1000000);
    if (!truce__readers_close_gate(op->readers, deadline_ns))
        return TRUCE_OK;
    truce__kv_busy_timeout(writer->kv, RESTART_MS);
    status = truce__checkpoint_move(writer->lock, writer->kv, true, 0, &pages, &moved, error);
    truce__readers_open_gate(op->readers);
    truce__archive_hurry(writer->lock, 0);
    op->restarted = !status;
    if (!status)
        truce__pins_note_log(writer->lock, 0);
    if (!status)
        status = truce__kv_file_pages(writer->kv, &op->file_pages, error);
    return status == TRUCE_LOCKED ? TRUCE_OK : status;
}

static bool checkpoint_is_stopping(struct checkpointer *checkpointer)
{
    bool stop;

    pthread_mutex_lock(&checkpointer->mutex);
    stop = checkpointer->stop;
    pthread_mutex_unlock(&checkpointer->mutex);
    return stop;
}

/* Waits in short steps, so that closing the store waits for this thread but not for another process
 * that holds the lock. */
static truce_status checkpoint_run_alone(struct checkpointer *checkpointer, struct write_op *op)
{
    truce_status status = TRUCE_LOCKED;

    op->alone = true;
    for (int ms = 0; ms < LOCK_WAIT_MS && !checkpoint_is_stopping(checkpointer);
         ms += LOCK_WAIT_STEP_MS) {
        op->deadline_ns = truce__clock_monotonic_ns() + LOCK_WAIT_STEP_MS * INT64_C(1000000);
        status = truce__writer_run(checkpointer->writer, op, NULL);
        if (status != TRUCE_LOCKED && status != TRUCE_TIMEOUT)
            return status;
    }
    return status;
}

static int log_pages(const struct checkpointer *checkpointer)
{
    return (int)(truce__pins_log_length(checkpointer->writer->lock) / PIN_PAGE_BYTES);
}

/* Makes one concurrent pass. Sets `*left` to the number of pages that were not moved or were added
 * in the meantime. */
static truce_status checkpoint_move_concurrently(struct checkpointer *checkpointer, int *pages,
                                                 int *left)
{
    struct write_op mark = {.run = run_mark};
    int before, after, moved = 0;
    truce_status status = checkpoint_run_alone(checkpointer, &mark);

    /* A pass moves only pages that are archived, so the archiver works first. */
    truce__archive_hurry(checkpointer->writer->lock, 0);
    truce__archive_prepare(checkpointer->writer->lock, ARCHIVE_MS);
    before = log_pages(checkpointer);
    if (!status)
        status = truce__durable_usable(checkpointer->writer->durable, NULL);
    *pages = 0;
    truce__readers_moving(checkpointer->readers);
    if (!status)
        status =
            truce__checkpoint_move(checkpointer->writer->lock, checkpointer->kv, false,
                                   before < PAGES_PACED ? PACE : PACE_LONG, pages, &moved, NULL);
    after = log_pages(checkpointer);
    *left = *pages - moved + (after > before ? after - before : 0);
    return status;
}

/* Repeats passes until few pages are left, or until another pass does not help: a reader needs the
 * pages, or writers are faster. Sets `*few` if the rest can be moved while writers wait. */
static truce_status move_most(struct checkpointer *checkpointer, bool *few)
{
    int left = INT32_MAX, pages = 0, before;
    truce_status status = TRUCE_OK;

    for (int pass = 0; pass < PASSES_MAX && !status; pass++) {
        before = left;
        status = checkpoint_move_concurrently(checkpointer, &pages, &left);
        if (left <= PAGES_LEFT || left >= before)
            break;
    }
    *few = left <= PAGES_STILL || pages >= PAGES_WORST;
    return status;
}

/* Makes a checkpoint. Returns whether the WAL was restarted. Then `*due` is the length that it may
 * reach. Errors are not lost: a failing sync breaks the store (durable.c), and after any other
 * error the WAL keeps everything. */
static bool checkpoint_restart_wal(struct checkpointer *checkpointer, int *due)
{
    struct checkpoint_op op = {.base = {.run = run_restart}, .readers = checkpointer->readers};
    struct lock *lock = checkpointer->writer->lock;
    int claim = truce__lock_claim(lock, LOCK_CHECKPOINT);
    struct archive_facts archive;
    truce_status status;
    bool few;

    if (claim < 0)
        return false;
    if (!truce__lock_no_read_only(lock) || truce__file_identity_check(lock, NULL)) {
        truce__lock_disclaim(claim);
        return false;
    }
    status = move_most(checkpointer, &few);
    if (!status && few) {
        truce__archive_prepare(lock, ARCHIVE_MS);
        status = checkpoint_run_alone(checkpointer, &op.base);
    }
    truce__readers_moved(checkpointer->readers);
    truce__lock_disclaim(claim);
    if (!op.restarted && !op.pinned)
        checkpointer->refused++;
    if (!op.restarted || status)
        return false;
    checkpointer->refused = 0;
    *due = op.file_pages > PAGES_FEW && !(truce__archive_facts(lock, &archive) && archive.pins)
               ? PAGES_FEW
               : PAGES_MAX;
    return true;
}

/* Pauses for a while, or until the store is closed. Called under the mutex. */
static void checkpoint_pause(struct checkpointer *checkpointer, int milliseconds)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += milliseconds % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    if (!checkpointer->stop)
        pthread_cond_timedwait(&checkpointer->wanted_change, &checkpointer->mutex, &until);
}

/* Returns whether the WAL is long enough for a checkpoint. The thread may also run because
 * truce__checkpointer_request requested a checkpoint of a short WAL. */
static bool is_long(const struct checkpointer *checkpointer)
{
    return log_pages(checkpointer) >= atomic_load(&checkpointer->due);
}

/* Warns that the log has passed the length at which a checkpoint was due, and names the likely
 * reason. */
static void note_growth(const struct checkpointer *checkpointer)
{
    const struct durable *durable = checkpointer->writer->durable;
    const struct lock *lock = checkpointer->writer->lock;
    struct archive_facts archive;
    const char *reason = truce__pins_blocking(lock) ? "a cursor or a snapshot is open"
                         : truce__archive_facts(lock, &archive) && archive.pins
                             ? "a part of it is not archived yet"
                             : "readers or another process prevented each checkpoint";

    truce__log_emit(&durable->log_hook, TRUCE_LOG_WARNING,
                    "the log of \"%s\" has more than %d pages and grows, because %s", durable->path,
                    atomic_load(&checkpointer->due), reason);
}

/* Runs the thread of the checkpointer: waits until a checkpoint is due, and retries after pauses
 * that double if readers refused it. */
static void *checkpoint_run_thread(void *arg)
{
    struct checkpointer *checkpointer = arg;
    int again = 0;

    pthread_mutex_lock(&checkpointer->mutex);
    while (!checkpointer->stop) {
        int due = atomic_load(&checkpointer->due);
        int refused = checkpointer->refused;
        bool restarted;

        if (!checkpointer->wanted) {
            pthread_cond_wait(&checkpointer->wanted_change, &checkpointer->mutex);
            continue;
        }
        pthread_mutex_unlock(&checkpointer->mutex);
        restarted = checkpoint_restart_wal(checkpointer, &due);
        pthread_mutex_lock(&checkpointer->mutex);
        checkpointer->done += restarted;
        if (checkpointer->refused > refused && again < AGAIN_MAX) {
            checkpoint_pause(checkpointer, AGAIN_MS << again++);
            continue;
        }
        again = 0;
        if (!restarted && !checkpointer->stop && is_long(checkpointer)) {
            note_growth(checkpointer);
            due += PAGES_FEW;
        }
        checkpointer->wanted = false;
        atomic_store(&checkpointer->due, due);
    }
    pthread_mutex_unlock(&checkpointer->mutex);
    return NULL;
}

/* Begins a snapshot only to open the log: SQLite opens it when a connection reads for the first
 * time. */
truce_status truce__checkpointer_open(const char *path, int64_t busy_timeout_ms,
                                      struct durable *durable, struct kv **kv, bson_error_t *error)
{
    const struct kv_watch watch = {truce__durable_break, durable};
    truce_status status = truce__kv_open(path, 0, busy_timeout_ms, kv, error);
    uint32_t version;

    if (status)
        return status;
    truce__kv_watch(*kv, &watch);
    status = truce__kv_snapshot_begin(*kv, &version, error);
    if (!status)
        truce__kv_snapshot_end(*kv);
    else
        truce__kv_close(*kv);
    return status;
}

void truce__checkpointer_init(struct checkpointer *checkpointer, struct writer *writer,
                              struct readers *readers, struct kv *kv)
{
    *checkpointer = (struct checkpointer){.writer = writer, .readers = readers, .kv = kv};
    atomic_init(&checkpointer->due, PAGES_MAX);
    pthread_mutex_init(&checkpointer->mutex, NULL);
    pthread_cond_init(&checkpointer->wanted_change, NULL);
}

void truce__checkpointer_release(struct checkpointer *checkpointer)
{
    pthread_mutex_lock(&checkpointer->mutex);
    checkpointer->stop = true;
    pthread_cond_signal(&checkpointer->wanted_change);
    pthread_mutex_unlock(&checkpointer->mutex);
    if (checkpointer->running)
        pthread_join(checkpointer->thread, NULL);
    truce__kv_close(checkpointer->kv);
    pthread_cond_destroy(&checkpointer->wanted_change);
    pthread_mutex_destroy(&checkpointer->mutex);
}

/* Asks the thread of the checkpointer for a checkpoint. If no thread can be created, the caller
 * makes the checkpoint. */
static void checkpoint_request(struct checkpointer *checkpointer)
{
    if (!checkpointer->running)
        checkpointer->running =
            truce__thread_start(&checkpointer->thread, checkpoint_run_thread, checkpointer);
    checkpointer->wanted = checkpointer->running;
    pthread_cond_signal(&checkpointer->wanted_change);
}

void truce__checkpointer_request(struct checkpointer *checkpointer)
{
    bool inline_needed = false;

    pthread_mutex_lock(&checkpointer->mutex);
    if (!checkpointer->wanted && !checkpointer->stop) {
        checkpoint_request(checkpointer);
        inline_needed = !checkpointer->running;
    }
    pthread_mutex_unlock(&checkpointer->mutex);
    if (inline_needed)
        (void)checkpoint_restart_wal(checkpointer, &(int){0});
}

void truce__checkpointer_note(struct checkpointer *checkpointer, int wal_pages)
{
    if (wal_pages >= atomic_load_explicit(&checkpointer->due, memory_order_relaxed))
        truce__checkpointer_request(checkpointer);
}
