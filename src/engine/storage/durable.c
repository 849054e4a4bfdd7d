/*
 * Waiting for the disk.
 *
 * A commit returns when it is in the log and readers see it, not when it is on the disk (kv.c). So
 * the next group of commits is worked on while the one before it is being synced, and one sync
 * serves all that were written when it began:
 *
 *     lead        commit A | commit B | commit C | commit D | ...
 *     disk               | sync A     | sync B, C    | sync D ...
 *     answers                          A              B, C
 *
 * Three numbers in the page that all processes share, each of commits in their order:
 *
 *     durable <= written <= promised
 *
 *     promise    promised + 1                 under the lock, before a commit that shall be waited for
 *     written    written := promised          under the lock, when no commit is on its way
 *     sync       to := written; sync the log; durable := max(durable, to)       anybody, at any time
 *
 * Invariants:
 *  1. A commit is answered to its caller when durable >= its number, or when a sync that began after it
 *     returned has ended.
 *  2. What a reader is given was durable: what a snapshot shows was in the log before it began, so the
 *     reader needs a sync that began after its snapshot, whoever's commit that was and wherever its
 *     writer is by now. The numbers only say when no sync is needed: a snapshot that shows a commit was
 *     begun after the commit was promised, so with durable >= the number that it finds after it began all
 *     of it is there; and, for one document, with durable >= that of the last commit that changed it
 *     (cache.c). No order of waiting is needed: the log reaches the disk from its beginning, and so
 *     every number with all that are smaller.
 *  3. A sync counts for what was written when it began, and not for what was promised.
 *  4. Nobody who waits needs another process to go on. For one that is in its commit it is waited
 *     for WRITER_NS at most, so that one sync serves both; one that was stopped there costs each read a
 *     sync of its own. One that has died there finds the lock free, and takes the commit as
 *     written: whatever is in the log of it is there by now; who takes the lock next does the same at
 *     once. One whose writer died before it synced syncs itself.
 *  5. After a sync that failed nobody answers anything: the operating system may have dropped what it
 *     could not write, and a later sync would succeed and prove nothing. That holds for every sync: of
 *     the log, and of the file when pages are moved into it, by a checkpoint or by the last who closes
 *     (kv_page.c tells of them). `broken` stays until the store is opened by one who is alone: he writes
 *     the log again, and then moves what is whole of it, by its checksums, into the file (kv.c).
 *  6. A failed write is told once to each descriptor that was open then. So those that sync are open from
 *     the start: the log's here, the writer's and the checkpointer's connections.
 *
 * Deliberately not done: a process that dies between the failure of its sync and `broken` tells nobody; whoever had
 * the log open hears of it from his own descriptor, but one who opens it later does not.
 *
 * Who waits syncs, one thread of a process at a time, and the others wait for that. Who came while one ran needs the
 * next: when it has ended all who needed it are woken, and one of those who came, which begins the next. Two processes
 * may sync at once, which costs time only. The numbers of a store whose machine died may say that
 * something waits: then the first reader syncs once for nothing.
 */
#include "engine/storage/durable.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/futex.h"

#define NAP_NS     INT64_C(50000)
#define WRITER_NS  INT64_C(10000000)
#define SYNC_NS    INT64_C(100000000)  /* of who waits for a sync, between two looks */
#define NUMBER_MAX (UINT64_C(1) << 62) /* beyond it stands what nobody has counted */

void truce__durable_init(struct durable *durable, const char *path, struct lock *lock,
                         const struct notices *notices)
{
    *durable = (struct durable){.path = path, .lock = lock, .notices = *notices};
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
                       "the disk refused what was written to \"%s\": close it in every program, "
                       "see to the disk, and open it again",
                       durable->path);
}

/* ---- who holds the lock ---------------------------------------------------------------------- */

/* What a machine that died left of the page may be of several moments: a number that counts as durable
 * already is not given again. */
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

/* ---- everybody ------------------------------------------------------------------------------- */

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
        truce__notice(&durable->notices, TRUCE_LOG_ERROR,
                      "the disk refused what was written to \"%s\": no call succeeds until it is "
                      "closed in every program and opened again",
                      durable->path);
}

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

/* Who waits for that sync looks again. Who is to sleep has counted himself under the mutex, where he saw that he must:
 * he is seen here, or has seen what this tells of. */
static void durable_tell(struct durable *durable, uint64_t sync, int waiters_max)
{
    atomic_fetch_add(&durable->rounds[sync % 2], 1);
    if (atomic_load(&durable->sleepers[sync % 2]))
        truce__word_wake(&durable->rounds[sync % 2], waiters_max);
}

/* Under the mutex, which is free meanwhile. Who waited for this one is woken, and one of those who wait for the
 * next: that one begins it. */
static truce_status sync_in_turn(struct durable *durable, bson_error_t *error)
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
    durable_tell(durable, sync + 1, status ? INT32_MAX : 1);
    durable_tell(durable, sync, INT32_MAX);
    pthread_mutex_lock(&durable->mutex);
    return status;
}

/* Under the mutex, which is free meanwhile: while a sync runs that is not this one, or is. */
static void wait_for_sync(struct durable *durable, uint64_t sync)
{
    atomic_uint *round = &durable->rounds[sync % 2];
    unsigned seen = atomic_load(round);

    atomic_fetch_add(&durable->sleepers[sync % 2], 1);
    pthread_mutex_unlock(&durable->mutex);
    truce__word_sleep(round, seen, SYNC_NS);
    pthread_mutex_lock(&durable->mutex);
    atomic_fetch_sub(&durable->sleepers[sync % 2], 1);
}

/* The commit with that number returns soon, or its process has died in it, or was stopped. */
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

    if (number > promised) /* nobody has promised that: the page is of a machine that died */
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
            status = sync_in_turn(durable, error);
    }
    left = durable->ended <= before;
    pthread_mutex_unlock(&durable->mutex);
    if (left) /* perhaps it was this one that was woken to begin the next sync */
        durable_tell(durable, before + 1, 1);
    return status;
}

truce_status truce__durable_sync(struct durable *durable, bson_error_t *error)
{
    truce_status status = truce__durable_usable(durable, error);
    uint64_t before;

    if (status || !durable->lock->page)
        return status;
    pthread_mutex_lock(&durable->mutex);
    before = durable->begun; /* one that runs may have begun before the last commit */
    while (!status && durable->ended <= before) {
        if (durable->syncing)
            wait_for_sync(durable, before + 1);
        else
            status = sync_in_turn(durable, error);
    }
    pthread_mutex_unlock(&durable->mutex);
    return status;
}
