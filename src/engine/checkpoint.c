/*
 * Checkpoints.
 *
 * A checkpoint under load has two halves:
 *
 *     PASSIVE    copies what no reader can still need from the WAL and fsyncs the file: tens of
 *                milliseconds; readers go on
 *     RESTART    behind the reader gate: copies the little that is left and lets the next commit
 *                begin the WAL anew, over the old one; overwriting it is what makes commits cheap,
 *                so it is never truncated
 *
 * Both run as one operation of the writer, alone and under the lock file, because no other
 * connection may write or checkpoint meanwhile. Readers of other processes are not behind our gate;
 * if one stands in the way, RESTART is given up, and the next try comes when the WAL has grown by
 * another 16 MB.
 *
 * Nobody writes meanwhile, so what counts is how many pages a checkpoint has to move. A small file's
 * pages stand many times in a long WAL, and are moved once; of a large one each may be another, and a
 * long WAL means a long standstill.
 *
 * A crash in a checkpoint loses nothing: the WAL is kept until the pages are fsynced in the file.
 *
 * States: idle --note finds the WAL long--> wanted --thread--> running --> idle
 */
#include "engine/checkpoint.h"

#include "base/assert.h"
#include "base/clock.h"

#define PAGES_FEW  4000  /* 16 MB of WAL ... */
#define PAGES_MAX  16000 /* ... or 64, beside a file that is not larger than 16 */
#define RESTART_MS 20    /* patience with readers of other processes */
#define TURN_MS    60000

struct checkpoint_op {
    struct write_op base; /* first */
    struct readers *readers;
    bool restarted;
    int64_t file_pages;
};

static truce_status restart(struct checkpoint_op *op, struct writer *writer, bson_error_t *error)
{
    truce_status status;
    int pages, moved;

    truce__kv_patience(writer->kv, RESTART_MS);
    truce__readers_close_gate(op->readers);
    status = truce__kv_checkpoint(writer->kv, true, &pages, &moved, error);
    truce__readers_open_gate(op->readers);
    op->restarted = !status;
    return status == TRUCE_LOCKED ? TRUCE_OK : status;
}

static truce_status run_checkpoint(struct write_op *base, struct writer *writer,
                                   bson_error_t *error)
{
    struct checkpoint_op *op = (struct checkpoint_op *)base;
    int pages = 0, moved = 0;
    truce_status status = truce__kv_checkpoint(writer->kv, false, &pages, &moved, error);

    if (!status)
        status = restart(op, writer, error);
    return status ? status : truce__kv_file_pages(writer->kv, &op->file_pages, error);
}

/* Whether the WAL can begin anew; then `*due` is how long it may become. Errors are not lost: what
 * the disk refuses here it refuses to the next commit as well, and the WAL keeps everything until
 * then. */
static bool checkpoint(struct checkpointer *checkpointer, int *due)
{
    struct checkpoint_op op = {.base = {.run = run_checkpoint, .alone = true},
                               .readers = checkpointer->readers};

    op.base.deadline_ns = truce__clock_monotonic_ns() + TURN_MS * INT64_C(1000000);
    if (truce__writer_run(checkpointer->writer, &op.base, NULL) || !op.restarted)
        return false;
    *due = op.file_pages > PAGES_FEW ? PAGES_FEW : PAGES_MAX;
    return true;
}

static void *run_thread(void *arg)
{
    struct checkpointer *checkpointer = arg;

    pthread_mutex_lock(&checkpointer->mutex);
    while (!checkpointer->stop) {
        int due = atomic_load(&checkpointer->due);
        bool restarted;

        if (!checkpointer->wanted) {
            pthread_cond_wait(&checkpointer->wanted_change, &checkpointer->mutex);
            continue;
        }
        pthread_mutex_unlock(&checkpointer->mutex);
        restarted = checkpoint(checkpointer, &due);
        pthread_mutex_lock(&checkpointer->mutex);
        checkpointer->done += restarted;
        checkpointer->wanted = false;
        atomic_store(&checkpointer->due, restarted ? due : due + PAGES_FEW);
    }
    pthread_mutex_unlock(&checkpointer->mutex);
    return NULL;
}

void truce__checkpointer_init(struct checkpointer *checkpointer, struct writer *writer,
                              struct readers *readers)
{
    *checkpointer = (struct checkpointer){.writer = writer, .readers = readers};
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
    pthread_cond_destroy(&checkpointer->wanted_change);
    pthread_mutex_destroy(&checkpointer->mutex);
}

/* Where no thread can be had, the caller does it. */
static void want(struct checkpointer *checkpointer)
{
    if (!checkpointer->running)
        checkpointer->running =
            !pthread_create(&checkpointer->thread, NULL, run_thread, checkpointer);
    checkpointer->wanted = checkpointer->running;
    pthread_cond_signal(&checkpointer->wanted_change);
}

void truce__checkpointer_note(struct checkpointer *checkpointer, int wal_pages)
{
    bool inline_needed = false;

    if (wal_pages < atomic_load_explicit(&checkpointer->due, memory_order_relaxed))
        return;
    pthread_mutex_lock(&checkpointer->mutex);
    if (!checkpointer->wanted && !checkpointer->stop) {
        want(checkpointer);
        inline_needed = !checkpointer->running;
    }
    pthread_mutex_unlock(&checkpointer->mutex);
    if (inline_needed)
        (void)checkpoint(checkpointer, &(int){0});
}
