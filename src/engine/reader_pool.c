/*
 * The pool of readers.
 *
 * A slot of the pool is free, or taken: by one thread that reads, or by the gate, with which the
 * leader of the writer stops all reads (invariant 4):
 *
 *     free --compare and swap--> taken --end, rest, open_gate--> free
 *
 * The slots form rows with one slot for each processor. A thread takes the slot of its processor in
 * the first row. This is the one that was last used there, so its data is still in the processor's
 * cache. As many connections are warm as there are processors, and one atomic operation finds a
 * free slot and is rarely contended. A thread that is moved or suspended in the middle of a read
 * keeps its slot. The next thread takes another slot of the row, then of the next row, and sleeps
 * if all are taken. The number of used connections is therefore the number of concurrent reads.
 *
 * Invariants:
 *  1. The connection and the catalog of a slot belong to the thread that has taken it.
 *  2. After begin, a reader's catalog has the version of its snapshot.
 *  3. The content of a snapshot is durable before it is read (durable.c), unless it is read early.
 *  4. Closing the gate takes all slots. One thread at a time does this: the leader of the writer.
 *  5. A snapshot that is kept (snapshots.c) has left its slot with its connection: the gate does
 *     not wait for it.
 *  6. A connection rests only in a free slot. If the gate is closed, none rests.
 *
 * If reads are frequent, a connection rests between two of them: it keeps SQLite's read transaction
 * (kv.c, 7), which saves two system calls and a statement, a fifth of a read. A resting connection
 * blocks checkpoints as a reader does, but does not end by itself. Therefore the thread of
 * snapshots.c ends all of them five times a second, a checkpoint of this process ends them first,
 * and none rests while another process is present. A process that enters may find a checkpoint
 * blocked until then, and tries again (checkpoint.c).
 */
#include "engine/reader_pool.h"

#include <sched.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/futex.h"
#include "engine/storage/file_identity.h"

void truce__readers_init(struct readers *readers, const char *path, unsigned flags,
                         int64_t busy_timeout_ms, struct durable *durable, struct seen *seen,
                         struct page_cache *pages, struct read_only_reader *read_only_reader)
{
    long processors = sysconf(_SC_NPROCESSORS_CONF);

    *readers = (struct readers){.path = bson_strdup(path),
                                .flags = flags,
                                .busy_timeout_ms = busy_timeout_ms,
                                .durable = durable,
                                .seen = seen,
                                .pages = pages,
                                .read_only_reader = read_only_reader,
                                .processors = processors < 1             ? 1
                                              : processors > READERS_MAX ? READERS_MAX
                                                                         : (unsigned)processors};
    pthread_mutex_init(&readers->mutex, NULL);
}

/* Ends the snapshot of a connection that rests. Called by the thread that has taken the slot. */
static void readers_wake(struct reader *reader)
{
    if (atomic_exchange(&reader->rests, false))
        truce__kv_snapshot_end(reader->kv);
}

void truce__readers_release(struct readers *readers)
{
    for (int i = 0; i < READERS_MAX; i++) {
        struct reader *reader = &readers->all[i];

        truce_assert(!atomic_load(&reader->taken));
        readers_wake(reader);
        if (reader->kv)
            truce__kv_close(reader->kv);
        truce__catalog_release(reader->catalog);
        truce__buffer_release(&reader->key);
        truce__buffer_release(&reader->id);
    }
    for (unsigned i = 0; i < readers->spares; i++)
        truce__kv_close(readers->spare[i]);
    truce__catalog_release(readers->latest);
    pthread_mutex_destroy(&readers->mutex);
    bson_free(readers->path);
}

/* ---- slots ---------------------------------------------------------------------------------- */

static bool readers_take_slot(struct reader *reader)
{
    unsigned free = 0;

    return atomic_compare_exchange_strong_explicit(&reader->taken, &free, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void readers_free_slot(struct readers *readers, struct reader *reader)
{
    atomic_store(&reader->taken, 0);
    if (atomic_load(&readers->waiters)) {
        atomic_fetch_add(&readers->slot_freed, 1);
        truce__futex_wake(&readers->slot_freed, INT32_MAX);
    }
}

/* Takes a free slot, first one of this processor, so that threads on different processors rarely
 * compete. Returns NULL if all slots are taken. */
static struct reader *readers_find_free(struct readers *readers)
{
    int processor = sched_getcpu();
    unsigned step = readers->processors, own = processor < 0 ? 0 : (unsigned)processor;

    for (unsigned row = 0; row < READERS_MAX; row += step) {
        for (unsigned i = 0; i < step; i++) {
            unsigned slot = row + (own + i) % step;

            if (slot < READERS_MAX && readers_take_slot(&readers->all[slot]))
                return &readers->all[slot];
        }
    }
    return NULL;
}

/* Waits for a slot. A waiter counts itself before it checks again, and a thread that frees a slot
 * reads the count afterwards. One of the two sees the other. */
static struct reader *wait_for_free(struct readers *readers)
{
    struct reader *reader = readers_find_free(readers);

    while (!reader) {
        unsigned seen = atomic_load(&readers->slot_freed);

        atomic_fetch_add(&readers->waiters, 1);
        reader = readers_find_free(readers);
        if (!reader)
            truce__futex_wait(&readers->slot_freed, seen, INT64_C(1000000000));
        atomic_fetch_sub(&readers->waiters, 1);
        if (!reader)
            reader = readers_find_free(readers);
    }
    return reader;
}

/* ---- catalogs ------------------------------------------------------------------------------- */

static struct catalog *take_latest(struct readers *readers, uint32_t version)
{
    struct catalog *found = NULL;

    pthread_mutex_lock(&readers->mutex);
    if (readers->latest && readers->latest->version == version)
        found = truce__catalog_hold(readers->latest);
    pthread_mutex_unlock(&readers->mutex);
    return found;
}

static void put_latest(struct readers *readers, struct catalog *catalog)
{
    struct catalog *old;

    pthread_mutex_lock(&readers->mutex);
    old = readers->latest;
    readers->latest = truce__catalog_hold(catalog);
    pthread_mutex_unlock(&readers->mutex);
    truce__catalog_release(old);
}

/* Gives the reader the catalog of its snapshot's version: the latest one of the pool, or one that
 * is loaded and becomes the latest. */
static truce_status readers_refresh(struct readers *readers, struct reader *reader,
                                    uint32_t version, bson_error_t *error)
{
    struct catalog *catalog = take_latest(readers, version);
    truce_status status = TRUCE_OK;

    if (!catalog) {
        status = truce__catalog_load(reader->kv, version, &catalog, error);
        if (status)
            return status;
        put_latest(readers, catalog);
    }
    truce__catalog_release(reader->catalog);
    reader->catalog = catalog;
    return TRUCE_OK;
}

/* ---- snapshots ------------------------------------------------------------------------------ */

static void readers_name_table(void *arg, int64_t table, char *name, size_t size)
{
    const struct reader *reader = arg;

    truce__catalog_name_table(reader->catalog, table, name, size);
}

/* Sets the checks and the shared page cache of a reader's connection. The content of the file is
 * input like any other: it is checked when it is read, and damage is reported by name. */
static void readers_watch(const struct readers *readers, struct reader *reader)
{
    truce__kv_names(reader->kv, readers_name_table, reader);
    truce__kv_set_validator(reader->kv, truce__row_valid, readers->seen);
    truce__kv_share(reader->kv, readers->pages);
}

static struct kv *take_spare(struct readers *readers)
{
    struct kv *kv = NULL;

    pthread_mutex_lock(&readers->mutex);
    if (readers->spares)
        kv = readers->spare[--readers->spares];
    pthread_mutex_unlock(&readers->mutex);
    return kv;
}

static truce_status readers_open_one(struct readers *readers, struct reader *reader,
                                     bson_error_t *error)
{
    unsigned flags = readers->read_only_reader ? reader->pass.flags : readers->flags;
    truce_status status = TRUCE_OK;

    reader->kv = take_spare(readers);
    if (!reader->kv)
        status = truce__kv_open(readers->path, flags, readers->busy_timeout_ms, &reader->kv, error);
    if (!status)
        readers_watch(readers, reader);
    return status;
}

/* Decides between the file alone and the file with its log. A connection that was opened for the
 * other case is closed. */
static truce_status readers_begin_pass(struct readers *readers, struct reader *reader,
                                       bson_error_t *error)
{
    unsigned epoch = reader->pass.epoch;
    truce_status status = truce__read_only_begin(readers->read_only_reader, &reader->pass, error);

    if (status || !reader->kv || reader->pass.epoch == epoch)
        return status;
    truce__kv_close(reader->kv);
    reader->kv = NULL;
    return TRUCE_OK;
}

/* Begins a snapshot that shows only durable data, and loads its catalog. With `early`, does not
 * wait until the newest commits are on disk. */
static truce_status begin_snapshot(struct readers *readers, bool early, struct reader *reader,
                                   bson_error_t *error)
{
    struct durable *durable = readers->durable;
    truce_status status = TRUCE_OK;
    bson_error_t changed;
    uint32_t version;

    if (!reader->kv) {
        status = readers_open_one(readers, reader, error);
        /* The new connection may have opened another log than the last check saw, so the next read
         * checks the files again. */
        atomic_store(&readers->checked_ms, 0);
    }
    if (!status)
        status = truce__kv_snapshot_begin(reader->kv, &version, error);
    /* A file may have been removed or replaced: then that error is reported. */
    if (status)
        return status == TRUCE_IO && durable->lock->page &&
                       truce__file_identity_check(durable->lock, &changed) == TRUCE_CORRUPT
                   ? truce__fail(TRUCE_CORRUPT, error, "%s", changed.message)
                   : status;
    if (durable->lock->page)
        status = truce__file_identity_check_sometimes(durable->lock, &readers->checked_ms, error);
    if (!status)
        status = truce__durable_wait(durable, early ? 0 : truce__durable_promised(durable), error);
    if (!status && (!reader->catalog || reader->catalog->version != version))
        status = readers_refresh(readers, reader, version, error);
    if (status)
        truce__kv_snapshot_end(reader->kv);
    return status;
}

static truce_status readers_begin(struct readers *readers, bool early, struct reader *reader,
                                  bson_error_t *error)
{
    truce_status status =
        readers->read_only_reader ? readers_begin_pass(readers, reader, error) : TRUCE_OK;

    if (status)
        return status;
    atomic_store_explicit(&reader->rests, false, memory_order_relaxed);
    status = begin_snapshot(readers, early, reader, error);
    if (status && readers->read_only_reader)
        truce__read_only_end(readers->read_only_reader, &reader->pass);
    return status;
}

truce_status truce__readers_begin(struct readers *readers, bool early, struct reader **reader,
                                  bson_error_t *error)
{
    struct reader *found = wait_for_free(readers);
    truce_status status = readers_begin(readers, early, found, error);

    *reader = status ? NULL : found;
    if (status)
        readers_free_slot(readers, found);
    return status;
}

void truce__readers_end(struct readers *readers, struct reader *reader)
{
    truce__kv_snapshot_end(reader->kv);
    if (readers->read_only_reader)
        truce__read_only_end(readers->read_only_reader, &reader->pass);
    readers_free_slot(readers, reader);
}

/* ---- connections that rest ------------------------------------------------------------------ */

/* Reads count as frequent each time the count of a slot reaches a multiple of this number. Only the
 * thread that has the slot may change the count, so no tick resets it. Rare reads therefore reach a
 * multiple, too, once in so many; connections may then rest for one tick. */
#define READS_FREQUENT 64

bool truce__readers_rest(struct readers *readers, struct reader *reader)
{
    bool frequent = ++reader->ended % READS_FREQUENT == 0;

    if (!atomic_load(&readers->may_rest) || atomic_load(&readers->moving)) {
        truce__readers_end(readers, reader);
    } else {
        atomic_store(&reader->rests, truce__kv_snapshot_rest(reader->kv));
        readers_free_slot(readers, reader);
    }
    return frequent && !readers->read_only_reader && !atomic_exchange(&readers->frequent, true);
}

/* Ends the snapshots of the connections that rest. Returns whether there was one. */
static bool readers_wake_all(struct readers *readers)
{
    bool rested = false;

    for (int i = 0; i < READERS_MAX; i++) {
        struct reader *reader = &readers->all[i];

        if (!atomic_load(&reader->rests) || !readers_take_slot(reader))
            continue;
        rested = true;
        readers_wake(reader);
        readers_free_slot(readers, reader);
    }
    return rested;
}

/* Decides whether connections may rest until the next call, and ends the snapshots of those that
 * rest. A thread that has read the old value of `may_rest` can still let its connection rest
 * afterwards; the next call ends that snapshot. */
bool truce__readers_tick(struct readers *readers)
{
    bool frequent = atomic_exchange(&readers->frequent, false);
    bool before = atomic_load(&readers->may_rest);

    atomic_store(&readers->may_rest, frequent && !truce__lock_is_shared(readers->durable->lock));
    return readers_wake_all(readers) || frequent || before;
}

void truce__readers_moving(struct readers *readers)
{
    atomic_store(&readers->moving, true);
    (void)readers_wake_all(readers);
}

/* ---- connections that leave their slot ------------------------------------------------------ */

void truce__readers_detach(struct readers *readers, struct reader *reader, struct reader *taken)
{
    taken->kv = reader->kv;
    taken->catalog = reader->catalog;
    taken->pass = reader->pass;
    truce__kv_names(taken->kv, readers_name_table, taken);
    reader->kv = NULL;
    reader->catalog = NULL;
    readers_free_slot(readers, reader);
}

static bool put_spare(struct readers *readers, struct kv *kv)
{
    bool room;

    pthread_mutex_lock(&readers->mutex);
    room = readers->spares < READERS_SPARE;
    if (room)
        readers->spare[readers->spares++] = kv;
    pthread_mutex_unlock(&readers->mutex);
    return room;
}

static void close_taken(struct reader *taken)
{
    truce__kv_close(taken->kv);
    taken->kv = NULL;
}

void truce__readers_attach(struct readers *readers, struct reader *taken, struct reader *home)
{
    bool mine = readers_take_slot(home);

    /* A read-only reader closes the connection, which may not be valid for its next snapshot. */
    if (readers->read_only_reader) {
        truce__read_only_end(readers->read_only_reader, &taken->pass);
        close_taken(taken);
    }
    if (mine && !home->kv && taken->kv) {
        home->kv = taken->kv;
        truce__kv_names(home->kv, readers_name_table, home);
        taken->kv = NULL;
    }
    if (mine)
        readers_free_slot(readers, home);
    if (taken->kv && !put_spare(readers, taken->kv))
        close_taken(taken);
    truce__catalog_release(taken->catalog);
    truce__buffer_release(&taken->key);
    truce__buffer_release(&taken->id);
    taken->kv = NULL;
    taken->catalog = NULL;
}

/* ---- the gate ------------------------------------------------------------------------------- */

/* Takes the slot, or waits until it is free. Returns false after the deadline. */
static bool take_or_wait(struct readers *readers, struct reader *reader, int64_t deadline_ns)
{
    while (!readers_take_slot(reader)) {
        int64_t left = deadline_ns - truce__clock_monotonic_ns();
        unsigned seen = atomic_load(&readers->slot_freed);

        if (left <= 0)
            return false;
        atomic_fetch_add(&readers->waiters, 1);
        if (atomic_load(&reader->taken))
            truce__futex_wait(&readers->slot_freed, seen, left);
        atomic_fetch_sub(&readers->waiters, 1);
    }
    return true;
}

/* Frees the slots before `end`. */
static void readers_free_all(struct readers *readers, int end)
{
    for (int i = 0; i < end; i++)
        atomic_store(&readers->all[i].taken, 0);
    atomic_fetch_add(&readers->slot_freed, 1);
    truce__futex_wake(&readers->slot_freed, INT32_MAX);
}

bool truce__readers_close_gate(struct readers *readers, int64_t deadline_ns)
{
    for (int i = 0; i < READERS_MAX; i++) {
        if (!take_or_wait(readers, &readers->all[i], deadline_ns)) {
            readers_free_all(readers, i);
            return false;
        }
        /* Invariant 6. */
        readers_wake(&readers->all[i]);
    }
    return true;
}

void truce__readers_open_gate(struct readers *readers)
{
    readers_free_all(readers, READERS_MAX);
}
