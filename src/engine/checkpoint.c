/*
 * Checkpoints.
 *
 * A checkpoint under load has two halves:
 *
 *     beside     a connection of its own copies pages from the WAL into the file, a few at a time, and fsyncs
 *                these, while others write and read; again, as long as much has come meanwhile
 *     restart    by the writer, alone, and behind the reader gate: copies the little that is left and
 *                lets the next commit begin the WAL anew, over the old one; overwriting it is what
 *                makes commits cheap, so it is not truncated
 *
 * Invariants:
 *  1. Of all processes one makes a checkpoint at a time: who has claimed LOCK_CHECKPOINT.
 *  2. While the first half runs no commit begins the WAL anew, in any process: SQLite before 3.51.3
 *     loses commits where one does while a checkpoint begins. A commit does so only when everything in
 *     the WAL has been moved. So the first half begins with a commit of a page, under the lock;
 *     nobody else moves that page (1), and once it is moved the half is at its end.
 *  3. The second half runs under the lock: nobody writes.
 *  4. No page of the file changes while somebody reads the file without the log (read_only_reader.c).
 *
 * The restart holds the lock for 50 ms at most, but for what the disk takes: 20 for readers of this process, 20 for
 * those of others, and the time of PAGES_STILL pages. Readers of other processes are not behind our
 * gate, and own ones may take their time. If one stands in the way, the restart is given up. It is tried again a
 * few times after a pause, each twice as long, so that a log that does not grow any more is moved, too; then
 * the next try comes when the WAL has grown by another 16 MB. Reads that last (snapshots.c)
 * are not waited for: while one stands in the way pages are moved up to where it reads, and no further; the
 * WAL grows until it ends, or is ended.
 *
 * Few at a time, because the syncs of commits wait behind what the disk has to do: 16 MB at once kept everybody waiting
 * for 25 ms, and the fsync of them all in the restart for another 35. Where the WAL grows meanwhile, more go at once.
 *
 * A small file's pages stand many times in a long WAL, and are moved once; of a large one each may be
 * another. Where writers are faster than what moves their pages, the restart is given up, too, until the
 * WAL is PAGES_WORST long: then all of it is moved while they stand still. What a WAL has grown beyond
 * TRUCE_LOG_BYTES_KEPT is given back when it has begun anew.
 *
 * A frame of the log that is not what was written, although it was read several times, is not moved: then nothing is
 * written any more, and a process that is alone opens the store only if all frames are right when it reads them, since
 * SQLite's recovery would end at a damaged frame without an error. What is behind it, truce salvage finds. A read that fails
 * ends the checkpoint and is no damage.
 *
 * A crash in a checkpoint loses nothing: the WAL is synced before pages are copied, and kept until they
 * are fsynced in the file. What one pass has copied no later one copies again: so an fsync that fails breaks the
 * store, and all pages of the WAL are copied anew (durable.c).
 *
 * States: idle --note finds the WAL long--> wanted --thread--> running --> idle
 */
#include "engine/checkpoint.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "engine/storage/file_identity.h"
#include "engine/storage/snapshot_pins.h"

#define PAGES_FEW    4000  /* 16 MB of WAL ... */
#define PAGES_MAX    16000 /* ... or 64, beside a file that is not larger than 16 */
#define PAGES_LEFT   400   /* few enough for the last pass */
#define PAGES_STILL  2000  /* at most so many are moved while nobody writes: some 20 ms ... */
#define PAGES_WORST  64000 /* ... but any number where the WAL has become so long */
#define PASSES_MAX   8
#define PACE         64   /* pages that are brought to the disk at a time, beside writers ... */
#define PACE_LONG    1024 /* ... where the WAL has grown longer than PAGES_PACED */
#define PAGES_PACED  (PAGES_MAX + PAGES_FEW)
#define RESTART_MS   20 /* patience with own readers, and once more with those of other processes */
#define AGAIN_MS     100 /* the first pause before another try ... */
#define AGAIN_MAX    4   /* ... of so many */
#define TURN_MS      60000
#define TURN_ONCE_MS 1000 /* then it is looked whether the store is being closed */

struct checkpoint_op {
    struct write_op base; /* first */
    struct readers *readers;
    bool restarted;
    bool pinned; /* a read that lasts stood in the way: nobody was kept waiting for it */
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
    (void)base;
    return truce__kv_mark(writer->kv, error);
}

static truce_status run_restart(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    struct checkpoint_op *op = (struct checkpoint_op *)base;
    int64_t deadline_ns = truce__clock_monotonic_ns() + RESTART_MS * INT64_C(1000000);
    truce_status status;
    int pages, moved;

    if (truce__pins_in_the_way(writer->lock)) {
        op->pinned = true;
        return TRUCE_OK;
    }
    if (!truce__readers_close_gate(op->readers, deadline_ns))
        return TRUCE_OK;
    truce__kv_patience(writer->kv, RESTART_MS);
    status = truce__checkpoint_move(writer->lock, writer->kv, true, 0, &pages, &moved, error);
    truce__readers_open_gate(op->readers);
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

/* Who closes the store waits for this thread, and not for another process that holds the lock. */
static truce_status checkpoint_run_alone(struct checkpointer *checkpointer, struct write_op *op)
{
    truce_status status = TRUCE_LOCKED;

    op->alone = true;
    for (int ms = 0; ms < TURN_MS && !checkpoint_is_stopping(checkpointer); ms += TURN_ONCE_MS) {
        op->deadline_ns = truce__clock_monotonic_ns() + TURN_ONCE_MS * INT64_C(1000000);
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

/* One pass beside the writers; `*left`: what was not moved, and what has come meanwhile. */
static truce_status move_beside(struct checkpointer *checkpointer, int *pages, int *left)
{
    struct write_op mark = {.run = run_mark};
    int before, after, moved = 0;
    truce_status status = checkpoint_run_alone(checkpointer, &mark);

    before = log_pages(checkpointer);
    if (!status)
        status = truce__durable_usable(checkpointer->writer->durable, NULL);
    *pages = 0;
    if (!status)
        status =
            truce__checkpoint_move(checkpointer->writer->lock, checkpointer->kv, false,
                                   before < PAGES_PACED ? PACE : PACE_LONG, pages, &moved, NULL);
    after = log_pages(checkpointer);
    *left = *pages - moved + (after > before ? after - before : 0);
    return status;
}

/* Until few pages are left, or another pass does not make them fewer: a reader needs them, or writers are
 * faster. `*few`: the rest can be moved while nobody writes. */
static truce_status move_most(struct checkpointer *checkpointer, bool *few)
{
    int left = INT32_MAX, pages = 0, before;
    truce_status status = TRUCE_OK;

    for (int pass = 0; pass < PASSES_MAX && !status; pass++) {
        before = left;
        status = move_beside(checkpointer, &pages, &left);
        if (left <= PAGES_LEFT || left >= before)
            break;
    }
    *few = left <= PAGES_STILL || pages >= PAGES_WORST;
    return status;
}

/* Whether the WAL can begin anew; then `*due` is how long it may become. Errors are not lost: a sync that
 * fails breaks the store (durable.c), and after any other the WAL keeps everything. */
static bool checkpoint(struct checkpointer *checkpointer, int *due)
{
    struct checkpoint_op op = {.base = {.run = run_restart}, .readers = checkpointer->readers};
    struct lock *lock = checkpointer->writer->lock;
    int claim = truce__lock_claim(lock, LOCK_CHECKPOINT);
    truce_status status;
    bool few;

    if (claim < 0)
        return false;
    if (!truce__lock_no_read_only(lock) || truce__file_identity_check(lock, NULL)) {
        truce__lock_disclaim(claim);
        return false;
    }
    status = move_most(checkpointer, &few);
    if (!status && few)
        status = checkpoint_run_alone(checkpointer, &op.base);
    truce__lock_disclaim(claim);
    if (!op.restarted && !op.pinned)
        checkpointer->refused++;
    if (!op.restarted || status)
        return false;
    checkpointer->refused = 0;
    *due = op.file_pages > PAGES_FEW ? PAGES_FEW : PAGES_MAX;
    return true;
}

/* Under the mutex: a moment, or until the store is closed. */
static void pause_a_moment(struct checkpointer *checkpointer, int milliseconds)
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

/* Else somebody asked for a checkpoint that was not due. */
static bool is_long(const struct checkpointer *checkpointer)
{
    return log_pages(checkpointer) >= atomic_load(&checkpointer->due);
}

static void note_growth(const struct checkpointer *checkpointer)
{
    const struct durable *durable = checkpointer->writer->durable;

    truce__notice(&durable->notices, TRUCE_LOG_WARNING,
                  "the log of \"%s\" grows beyond %d pages: %s", durable->path,
                  atomic_load(&checkpointer->due),
                  truce__pins_in_the_way(checkpointer->writer->lock)
                      ? "a cursor or a snapshot is open"
                      : "readers, or another process, are in the way");
}

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
        restarted = checkpoint(checkpointer, &due);
        pthread_mutex_lock(&checkpointer->mutex);
        checkpointer->done += restarted;
        if (checkpointer->refused > refused && again < AGAIN_MAX) {
            pause_a_moment(checkpointer, AGAIN_MS << again++);
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

/* A snapshot opens the log. */
truce_status truce__checkpointer_open(const char *path, int64_t patience_ms,
                                      struct durable *durable, struct kv **kv, bson_error_t *error)
{
    const struct kv_watch watch = {truce__durable_break, durable};
    truce_status status = truce__kv_open(path, 0, patience_ms, kv, error);
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

/* Where no thread can be had, the caller does it. */
static void want(struct checkpointer *checkpointer)
{
    if (!checkpointer->running)
        checkpointer->running =
            truce__thread_start(&checkpointer->thread, checkpoint_run_thread, checkpointer);
    checkpointer->wanted = checkpointer->running;
    pthread_cond_signal(&checkpointer->wanted_change);
}

void truce__checkpointer_ask(struct checkpointer *checkpointer)
{
    bool inline_needed = false;

    pthread_mutex_lock(&checkpointer->mutex);
    if (!checkpointer->wanted && !checkpointer->stop) {
        want(checkpointer);
        inline_needed = !checkpointer->running;
    }
    pthread_mutex_unlock(&checkpointer->mutex);
    if (inline_needed)
        (void)checkpoint(checkpointer, &(int){0});
}

void truce__checkpointer_note(struct checkpointer *checkpointer, int wal_pages)
{
    if (wal_pages >= atomic_load_explicit(&checkpointer->due, memory_order_relaxed))
        truce__checkpointer_ask(checkpointer);
}
