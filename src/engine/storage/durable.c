/*
 * Waits until commits are on disk.
 *
 * A commit returns when it is in the log and readers see it, before it is on disk (kv.c). Therefore
 * the next group of commits runs while the previous group is being synced, and one sync serves all
 * commits that were in the log when it began:
 *
 *     writer      commit A | commit B | commit C | commit D | ...
 *     disk               | sync A     | sync B, C    | sync D ...
 *     replies                          A              B, C
 *
 * The page that all processes share has three numbers. They count commits in their order:
 *
 *     durable <= written <= promised
 *
 *     promise    promised + 1             under the lock, before a commit whose caller waits
 *     written    written := promised      under the lock, while no commit runs
 *     sync       to := written; sync the log; durable := max(durable, to)
 *                                         any process, at any time
 *
 * Invariants:
 *  1. A commit is reported to its caller when durable >= its number, or when a sync has ended that
 *     began after the commit returned.
 *  2. A reader receives only durable data. The content of a snapshot was in the log before the
 *     snapshot began. The reader therefore needs a sync that began after its snapshot, regardless
 *     of which process committed. The numbers only show when no sync is needed. A snapshot that
 *     shows a commit began after that commit was promised. If durable >= the number that the reader
 *     finds after its snapshot began, all of it is on disk. For a single document, durable >= the
 *     number of the last commit that changed it is enough (document_cache.c). The order of waiting
 *     does not matter: the log reaches the disk from its beginning, so a durable number implies all
 *     smaller ones.
 *  3. A sync counts for commits that were written when it began, not for those that were promised.
 *  4. No waiting thread depends on the progress of another process. A thread waits for a process
 *     that is inside its commit for WRITER_NS at most, so that one sync serves both. A process that
 *     was stopped there costs each read one sync. If a process died there, the lock is free, and
 *     its commit counts as written: everything it put into the log is there by now. The next
 *     process that acquires the lock does the same at once. A waiter whose writer died before its
 *     sync syncs by itself.
 *  5. After a failed sync the store refuses every call. The operating system may have dropped the
 *     data that it could not write, and a later sync would succeed and prove nothing. This holds
 *     for syncs of the log and of the file, during a checkpoint or when the last process closes the
 *     store (checksum_vfs.c reports them). `broken` stays set until a process that has the store
 *     open alone writes the log again and moves its valid frames into the file (kv.c).
 *  6. The kernel reports a failed write once to each descriptor that was open at that time.
 *     Therefore the descriptors that sync are open from the start: the one of the log here, and
 *     those of the connections of the writer and of the checkpointer.
 *
 * Deliberately not done: a process that dies between the failure of its sync and setting `broken`
 * reports nothing. A process that had the log open receives the error from its own descriptor; a
 * process that opens the log later does not.
 *
 * A waiting thread syncs by itself, one thread of a process at a time, and the other threads wait
 * for that sync. A thread that arrives during a sync needs the next one. When a sync ends, it wakes
 * all threads that needed it and one thread of the next group, which begins the next sync. Two
 * processes may sync at the same time, which only costs time. After a power cut, the numbers in the
 * page may claim that commits are waiting; the first reader then makes one unnecessary sync.
 */
#include "engine/storage/durable.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/futex.h"

/* The nanoseconds of one sleep, and of the whole wait for a commit that is in progress (invariant
 * 4). */
#define NAP_NS    INT64_C(50000)
#define WRITER_NS INT64_C(10000000)
/* The nanoseconds that a thread sleeps between two checks while it waits for a sync. */
#define SYNC_NS INT64_C(100000000)
/* No counter reaches this value. A larger one in the shared page, for example after a power cut, is
 * garbage, and the counters begin at 0 again (truce__durable_begin). */
#define NUMBER_MAX (UINT64_C(1) << 62)

void truce__durable_init(struct durable *durable, const char *path, struct lock *lock,
                         const struct log_hook *log_hook)
{
    *durable = (struct durable){.path = path, .lock = lock, .log_hook = *log_hook};
    pthread_mutex_init(&durable->mutex, NULL);
}

void truce__durable_release(struct durable *durable)
{
    truce_assert(!durable->syncing);
    truce__kv_log_close(durable->log);
    pthread_mutex_destroy(&durable->mutex);
}

static void raise_to(atomic_ullong *number, uint64_t to)
{
    unsigned long long now = atomic_load(number);

    while (now < to && !atomic_compare_exchange_weak(number, &now, to))
        continue;
}

static bool is_broken(const struct durable *durable)
{
    return durable->lock->page && atomic_load(&durable->lock->page->broken);
}

truce_status truce__durable_usable(const struct durable *durable, bson_error_t *error)
{
    if (!is_broken(durable))
        return TRUCE_OK;
    return truce__fail(TRUCE_IO, error,
                       "writing to \"%s\" has failed: close the store in every program, repair the "
                       "disk, and open the store again",
                       durable->path);
}

/* ---- for the holder of the lock ------------------------------------------------------------- */

/* Restores the numbers after the lock was acquired. After a power cut the page may mix values of
 * several times. A number that already counts as durable is not used again. */
void truce__durable_begin(struct durable *durable)
{
    struct lock_page *page = durable->lock->page;

    truce_assert(atomic_load(&durable->lock->held));
    if (atomic_load(&page->durable) >= NUMBER_MAX || atomic_load(&page->promised) >= NUMBER_MAX) {
        atomic_store(&page->durable, 0);
        atomic_store(&page->promised, 0);
    }
    raise_to(&page->promised, atomic_load(&page->durable));
    atomic_store(&page->written, atomic_load(&page->promised));
}

uint64_t truce__durable_promise(struct durable *durable)
{
    truce_assert(atomic_load(&durable->lock->held));
    return atomic_fetch_add(&durable->lock->page->promised, 1) + 1;
}

void truce__durable_written(struct durable *durable)
{
    struct lock_page *page = durable->lock->page;

    truce_assert(atomic_load(&durable->lock->held));
    atomic_store(&page->written, atomic_load(&page->promised));
}

/* ---- for every thread ----------------------------------------------------------------------- */

uint64_t truce__durable_promised(const struct durable *durable)
{
    return durable->lock->page ? atomic_load(&durable->lock->page->promised) : 0;
}

uint64_t truce__durable_syncs(struct durable *durable)
{
    uint64_t syncs;

    pthread_mutex_lock(&durable->mutex);
    syncs = durable->begun;
    pthread_mutex_unlock(&durable->mutex);
    return syncs;
}

static bool is_durable(const struct durable *durable, uint64_t number)
{
    return !number || atomic_load(&durable->lock->page->durable) >= number;
}

truce_status truce__durable_open(struct durable *durable, bson_error_t *error)
{
    truce_assert(!durable->log);
    return truce__kv_log_open(durable->path, &durable->log, error);
}

void truce__durable_break(void *arg)
{
    struct durable *durable = arg;

    if (durable->lock->page && !atomic_exchange(&durable->lock->page->broken, true))
        truce__log_emit(&durable->log_hook, TRUCE_LOG_ERROR,
                        "the disk refused a write to \"%s\": every call fails until the store is "
                        "closed in every program and opened again",
                        durable->path);
}

/* Syncs the log, and raises `durable` to the commits that were written before the sync began
 * (invariant 3). Breaks the store if the sync fails (invariant 5). */
static truce_status durable_sync_log(struct durable *durable, bson_error_t *error)
{
    struct lock_page *page = durable->lock->page;
    uint64_t to = atomic_load(&page->written);
    truce_status status = truce__durable_usable(durable, error);

    if (!status && !durable->log)
        status = truce__kv_log_open(durable->path, &durable->log, error);
    if (status)
        return status;
    status = truce__kv_log_sync(durable->log, error);
    if (status)
        truce__durable_break(durable);
    else
        raise_to(&page->durable, to);
    return status;
}

/* Wakes threads that wait for the sync. A thread that is about to sleep has counted itself under
 * the mutex, where it saw that it must wait. Either this function sees its count, or the thread has
 * seen the new state. */
static void durable_report(struct durable *durable, uint64_t sync, int waiters_max)
{
    atomic_fetch_add(&durable->sync_changes[sync % 2], 1);
    if (atomic_load(&durable->sleepers[sync % 2]))
        truce__futex_wake(&durable->sync_changes[sync % 2], waiters_max);
}

/* Runs one sync. Called with the mutex locked; unlocks it during the sync. Afterwards it wakes the
 * threads that waited for this sync, and one of those that wait for the next, which begins it. */
static truce_status sync_once(struct durable *durable, bson_error_t *error)
{
    uint64_t sync = ++durable->begun;
    truce_status status;

    durable->syncing = true;
    pthread_mutex_unlock(&durable->mutex);
    status = durable_sync_log(durable, error);
    pthread_mutex_lock(&durable->mutex);
    durable->syncing = false;
    if (!status)
        durable->ended = sync;
    pthread_mutex_unlock(&durable->mutex);
    durable_report(durable, sync + 1, status ? INT32_MAX : 1);
    durable_report(durable, sync, INT32_MAX);
    pthread_mutex_lock(&durable->mutex);
    return status;
}

/* Waits while another sync runs. Called with the mutex locked; unlocks it while it waits. */
static void wait_for_sync(struct durable *durable, uint64_t sync)
{
    atomic_uint *change = &durable->sync_changes[sync % 2];
    unsigned seen = atomic_load(change);

    atomic_fetch_add(&durable->sleepers[sync % 2], 1);
    pthread_mutex_unlock(&durable->mutex);
    truce__futex_wait(change, seen, SYNC_NS);
    pthread_mutex_lock(&durable->mutex);
    atomic_fetch_sub(&durable->sleepers[sync % 2], 1);
}

/* Waits for a commit that is in progress. It returns soon, or its process has died or was
 * stopped. */
static void wait_for_writer(struct durable *durable, uint64_t number)
{
    struct lock_page *page = durable->lock->page;
    struct timespec nap = {.tv_nsec = NAP_NS};
    int64_t until = truce__clock_monotonic_ns() + WRITER_NS;

    while (atomic_load(&page->written) < number && !is_durable(durable, number)) {
        if (!truce__lock_is_held(durable->lock))
            raise_to(&page->written, number);
        else if (truce__clock_monotonic_ns() < until)
            nanosleep(&nap, NULL);
        else
            return;
    }
}

truce_status truce__durable_wait(struct durable *durable, uint64_t number, bson_error_t *error)
{
    truce_status status = truce__durable_usable(durable, error);
    uint64_t promised = truce__durable_promised(durable), before;
    bool left;

    /* No process has promised this number, so the caller has read it in a page from before a power
     * cut. */
    if (number > promised)
        number = promised;
    if (status || is_durable(durable, number))
        return status;
    pthread_mutex_lock(&durable->mutex);
    before = durable->begun;
    if (atomic_load(&durable->lock->page->written) < number) {
        pthread_mutex_unlock(&durable->mutex);
        wait_for_writer(durable, number);
        pthread_mutex_lock(&durable->mutex);
    }
    while (!status && durable->ended <= before && !is_durable(durable, number)) {
        if (durable->syncing)
            wait_for_sync(durable, before + 1);
        else
            status = sync_once(durable, error);
    }
    left = durable->ended <= before;
    pthread_mutex_unlock(&durable->mutex);
    /* This thread may have been woken to begin the next sync. It does not, so it wakes another
     * thread. */
    if (left)
        durable_report(durable, before + 1, 1);
    return status;
}

truce_status truce__durable_sync(struct durable *durable, bson_error_t *error)
{
    truce_status status = truce__durable_usable(durable, error);
    uint64_t before;

    if (status || !durable->lock->page)
        return status;
    pthread_mutex_lock(&durable->mutex);
    /* A sync that is running may have begun before the last commit, so it does not count. */
    before = durable->begun;
    while (!status && durable->ended <= before) {
        if (durable->syncing)
            wait_for_sync(durable, before + 1);
        else
            status = sync_once(durable, error);
    }
    pthread_mutex_unlock(&durable->mutex);
    return status;
}
