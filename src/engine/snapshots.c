/*
 * Long reads, which keep their snapshot.
 *
 *     pool of readers   | slot | slot | slot |     short reads: one snapshot, one slot
 *                          |  register             a long read: its connection leaves the slot
 *                          v                       in its snapshot, and returns when the read ends
 *     snapshots            o --- o --- o            in the order in which they began
 *                          |
 *                          pins (snapshot_pins.c): their number and age, visible to all processes
 *
 * States of a snapshot:
 *
 *     kept --enter--> in use --leave--> kept --release--> gone
 *     kept --expired: by the thread, or when it is entered--> ended --release--> gone
 *     kept --unused for the longest, if too many cursors are open when another one is kept-->
 *          ended --release--> gone
 *
 * A snapshot expires once something was written since it began, and one of these holds:
 *
 *     it is older than its maximum age, or
 *     more was written since it began than its maximum, or
 *     the log is longer than twice that maximum (and than 256 MB), and no snapshot is unlimited
 *
 * The third condition ends chains of overlapping reads: each is short enough, but together they
 * would keep the log from ever beginning again.
 *
 * Each snapshot has a connection, which uses two files and some memory, so their number has a
 * maximum. Cursors and views have separate ones: cursors that a program forgot to close cannot keep
 * a transaction from beginning. If too many cursors are open, the cursor that was unused for the
 * longest ends. If all were used within the last seconds, the new read fails instead: a program
 * that opens too many cursors then gets the error itself, and no other read ends.
 *
 * Invariants:
 *  1. The thread that has entered a snapshot uses its connection, and a snapshot is ended only
 *     under its mutex.
 *  2. Data that was read from a snapshot stays valid: it ends between two reads, never during one.
 *  3. A kept snapshot is in the pins before its slot is freed: a checkpoint that finds every slot
 *     free finds it there.
 *  4. The thread sleeps if nothing was kept and no connection could rest (reader_pool.c) for
 *     IDLE_MAX checks. Otherwise it checks five times a second. It ends snapshots that their owners
 *     have forgotten; an active owner notices the end itself.
 *  5. A new read never ends a view, nor a cursor that is in use or was used within
 *     TRUCE_CURSOR_USED_MS.
 *
 * A process that is stopped keeps its snapshots. Other processes see which one it is (truce
 * doctor), but cannot end its snapshots.
 */
#include "engine/snapshots.h"

#include <errno.h>
#include <sys/resource.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/thread.h"

/* The milliseconds between two checks of the snapshots. */
#define CHECK_MS 200
/* A log may reach this size in bytes even without long reads. */
#define LOG_LONG (UINT64_C(256) << 20)
/* The number of checks without snapshots and without connections that may rest before the thread
 * sleeps. */
#define IDLE_MAX 25
/* The nanoseconds within which the log gets one message about ended snapshots. */
#define MESSAGE_NS INT64_C(10000000000)

/* Returns the maximum number of cursors, which depends on the files that the process may open. */
static unsigned snapshots_cursors_most(void)
{
    struct rlimit files;
    rlim_t most = getrlimit(RLIMIT_NOFILE, &files) ? 0 : files.rlim_cur / 8;

    return most < TRUCE_CURSORS_LEAST  ? TRUCE_CURSORS_LEAST
           : most > TRUCE_CURSORS_MOST ? TRUCE_CURSORS_MOST
                                       : (unsigned)most;
}

void truce__snapshots_init(struct snapshots *snapshots, struct readers *readers, struct lock *lock,
                           const struct snapshot_limits *limits)
{
    pthread_condattr_t attributes;

    *snapshots = (struct snapshots){.readers = readers, .limits = *limits};
    if (!snapshots->limits.age_ms)
        snapshots->limits.age_ms = TRUCE_SNAPSHOT_AGE_MS;
    if (!snapshots->limits.log)
        snapshots->limits.log = TRUCE_SNAPSHOT_LOG_BYTES;
    snapshots->cursors_most = snapshots_cursors_most();
    snapshots->end = &snapshots->first;
    truce__pins_init(&snapshots->pins, lock);
    pthread_mutex_init(&snapshots->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&snapshots->change, &attributes);
    pthread_condattr_destroy(&attributes);
}

void truce__snapshots_release(struct snapshots *snapshots)
{
    truce_assert(!snapshots->first);
    pthread_mutex_lock(&snapshots->mutex);
    snapshots->stop = true;
    pthread_cond_signal(&snapshots->change);
    pthread_mutex_unlock(&snapshots->mutex);
    if (snapshots->running)
        pthread_join(snapshots->thread, NULL);
    truce__pins_release(&snapshots->pins);
    pthread_cond_destroy(&snapshots->change);
    pthread_mutex_destroy(&snapshots->mutex);
}

/* ---- ending --------------------------------------------------------------------------------- */

/* Logs the end of a snapshot. A burst gives one message, and the next message has the number of the
 * others. */
static void snapshots_log_end(const struct snapshot *snapshot, const char *why)
{
    struct snapshots *all = snapshot->all;
    int64_t now = truce__clock_monotonic_ns();
    long long last = atomic_load(&all->logged_ns);
    char others[60] = "";
    unsigned count;

    if ((last && now - last < MESSAGE_NS) ||
        !atomic_compare_exchange_strong(&all->logged_ns, &last, now)) {
        atomic_fetch_add(&all->unlogged, 1);
        return;
    }
    count = atomic_exchange(&all->unlogged, 0);
    if (count)
        snprintf(others, sizeof others, "; %u others ended since the last message", count);
    truce__log_emit(&all->readers->durable->log_hook, TRUCE_LOG_INFO,
                    "ended a cursor or snapshot of \"%s\" after %lld s, because %s%s",
                    all->readers->durable->path,
                    (long long)((now - snapshot->since_ns) / 1000000000), why, others);
}

/* Ends the snapshot, if it has not ended, and returns its connection to the pool. `why` is the
 * reason for its owner and for the log, or "" if the owner ends it. Called under the mutex of the
 * snapshot. */
static void snapshots_end(struct snapshot *snapshot, const char *why)
{
    if (!snapshot->reader.kv)
        return;
    snapshot->why = why;
    if (*why)
        snapshots_log_end(snapshot, why);
    truce__kv_snapshot_end(snapshot->reader.kv);
    truce__readers_attach(snapshot->all->readers, &snapshot->reader, snapshot->home);
}

/* Returns why the snapshot has expired, or NULL if it has not. Called under the mutex of the
 * snapshot. */
static const char *snapshot_expiry_reason(struct snapshot *snapshot)
{
    const struct lock *lock = snapshot->all->pins.lock;
    int64_t age_ms = (truce__clock_monotonic_ns() - snapshot->since_ns) / 1000000;
    uint64_t written = truce__pins_log(lock) - snapshot->log_at;
    uint64_t length = truce__pins_log_length(lock);

    if (snapshot->limits.unlimited || !written)
        return NULL;
    snapshot->reason[0] = '\0';
    if (age_ms > snapshot->limits.age_ms)
        snprintf(snapshot->reason, sizeof snapshot->reason,
                 "it was open for longer than its maximum age of %lld ms",
                 (long long)snapshot->limits.age_ms);
    else if (written > snapshot->limits.log)
        snprintf(snapshot->reason, sizeof snapshot->reason,
                 "more than its maximum of %llu bytes of the log was written while it was open",
                 (unsigned long long)snapshot->limits.log);
    else if (length > LOG_LONG && length / 2 > snapshot->limits.log && !truce__pins_unlimited(lock))
        snprintf(snapshot->reason, sizeof snapshot->reason,
                 "the log has %llu bytes, and could not be restarted while it was open",
                 (unsigned long long)length);
    return snapshot->reason[0] ? snapshot->reason : NULL;
}

/* Ends all expired snapshots, except those in use, which their users check. Called under the mutex
 * of the list. */
static void end_expired(struct snapshots *snapshots)
{
    for (struct snapshot *snapshot = snapshots->first; snapshot; snapshot = snapshot->next) {
        const char *why;

        if (pthread_mutex_trylock(&snapshot->mutex))
            continue;
        why = snapshot_expiry_reason(snapshot);
        if (why)
            snapshots_end(snapshot, why);
        pthread_mutex_unlock(&snapshot->mutex);
    }
}

/* Sleeps until there is something to check, or for the time between two checks. Called under the
 * mutex. `readers` means that connections rest or may rest. */
static void sleep_once(struct snapshots *snapshots, bool readers, int *idle)
{
    struct timespec until;

    *idle = snapshots->first || readers ? 0 : *idle + 1;
    if (*idle > IDLE_MAX) {
        snapshots->asleep = true;
        pthread_cond_wait(&snapshots->change, &snapshots->mutex);
        snapshots->asleep = false;
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += CHECK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&snapshots->change, &snapshots->mutex, &until);
}

static void *snapshots_run_thread(void *arg)
{
    struct snapshots *snapshots = arg;
    int idle = 0;

    pthread_mutex_lock(&snapshots->mutex);
    while (!snapshots->stop) {
        end_expired(snapshots);
        sleep_once(snapshots, truce__readers_tick(snapshots->readers), &idle);
    }
    pthread_mutex_unlock(&snapshots->mutex);
    return NULL;
}

/* ---- the list ------------------------------------------------------------------------------- */

/* Publishes the number of snapshots and the beginning of the oldest. Called under the mutex. */
static void snapshots_report(struct snapshots *snapshots)
{
    const struct snapshot *oldest = snapshots->first;
    struct pin_facts facts = {.count = snapshots->count, .unlimited = snapshots->unlimited};

    if (oldest) {
        facts.since_ms = oldest->since_ms;
        facts.log_at = oldest->log_at;
    }
    truce__pins_describe(&snapshots->pins, &facts);
}

/* Wakes the thread that ends expired snapshots, or starts it. If no thread can be created, owners
 * notice the end themselves. */
static void wake_thread(struct snapshots *snapshots)
{
    if (!snapshots->running)
        snapshots->running =
            truce__thread_start(&snapshots->thread, snapshots_run_thread, snapshots);
    else if (snapshots->asleep)
        pthread_cond_signal(&snapshots->change);
}

static void snapshots_add(struct snapshots *snapshots, struct snapshot *snapshot)
{
    snapshot->link = snapshots->end;
    *snapshots->end = snapshot;
    snapshots->end = &snapshot->next;
    snapshots->count++;
    snapshots->views += snapshot->view;
    snapshots->unlimited += snapshot->limits.unlimited;
    snapshots_report(snapshots);
}

static void take_off(struct snapshots *snapshots, struct snapshot *snapshot)
{
    *snapshot->link = snapshot->next;
    if (snapshot->next)
        snapshot->next->link = snapshot->link;
    else
        snapshots->end = snapshot->link;
    snapshots->count--;
    snapshots->views -= snapshot->view;
    snapshots->unlimited -= snapshot->limits.unlimited;
    snapshots_report(snapshots);
}

/* Returns the number of open views or cursors. A snapshot in use counts as open. If `unused` is not
 * NULL, sets it to the one that was unused for the longest and not within TRUCE_CURSOR_USED_MS, whose
 * mutex the caller unlocks, or to NULL. Called under the mutex. */
static unsigned snapshots_count_open(struct snapshots *snapshots, bool views,
                                     struct snapshot **unused)
{
    int64_t latest = truce__clock_monotonic_ns() - TRUCE_CURSOR_USED_MS * INT64_C(1000000);
    struct snapshot *found = NULL;
    unsigned open = 0;

    for (struct snapshot *snapshot = snapshots->first; snapshot; snapshot = snapshot->next) {
        struct snapshot *unlock = snapshot;

        if (snapshot->view != views)
            continue;
        if (pthread_mutex_trylock(&snapshot->mutex)) {
            open++;
            continue;
        }
        open += snapshot->reader.kv != NULL;
        if (unused && snapshot->reader.kv && snapshot->used_ns < latest) {
            latest = snapshot->used_ns;
            unlock = found;
            found = snapshot;
        }
        if (unlock)
            pthread_mutex_unlock(&unlock->mutex);
    }
    if (unused)
        *unused = found;
    return open;
}

/* Ends the cursor that was unused for the longest if the maximum is open. Fails with LIMIT if none
 * can be ended. Called under the mutex. */
static truce_status snapshots_admit_cursor(struct snapshots *snapshots, bson_error_t *error)
{
    struct snapshot *unused;
    bool full;

    if (snapshots->count - snapshots->views < snapshots->cursors_most)
        return TRUCE_OK;
    full = snapshots_count_open(snapshots, false, &unused) >= snapshots->cursors_most;
    /* Invariant 5. */
    if (full && !unused)
        return truce__fail(
            TRUCE_LIMIT, error,
            "%u cursors are open, which is the maximum, and each was used within the last %d s: "
            "read cursors to their end or close them",
            snapshots->cursors_most, TRUCE_CURSOR_USED_MS / 1000);
    if (full)
        snapshots_end(unused, "too many cursors were open, and it was unused for the longest time");
    if (unused)
        pthread_mutex_unlock(&unused->mutex);
    return TRUCE_OK;
}

/* Fails with LIMIT if the maximum of views is open. Called under the mutex. */
static truce_status snapshots_admit_view(struct snapshots *snapshots, bson_error_t *error)
{
    if (snapshots->views < TRUCE_SNAPSHOTS_MAX ||
        snapshots_count_open(snapshots, true, NULL) < TRUCE_SNAPSHOTS_MAX)
        return TRUCE_OK;
    return truce__fail(TRUCE_LIMIT, error,
                       "%d snapshots are open, which is the maximum: close some",
                       TRUCE_SNAPSHOTS_MAX);
}

void truce__snapshots_wake(struct snapshots *snapshots)
{
    pthread_mutex_lock(&snapshots->mutex);
    wake_thread(snapshots);
    pthread_mutex_unlock(&snapshots->mutex);
}

bool truce__snapshots_room(struct snapshots *snapshots)
{
    bool room;

    pthread_mutex_lock(&snapshots->mutex);
    room = snapshots->count < TRUCE_CURSORS_LEAST / 2;
    pthread_mutex_unlock(&snapshots->mutex);
    return room;
}

truce_status truce__snapshot_register(struct snapshots *snapshots, struct reader *reader,
                                      const struct snapshot_limits *limits,
                                      struct snapshot **snapshot, bson_error_t *error)
{
    struct snapshot *made;
    truce_status status;

    *snapshot = NULL;
    pthread_mutex_lock(&snapshots->mutex);
    status =
        limits ? snapshots_admit_view(snapshots, error) : snapshots_admit_cursor(snapshots, error);
    if (status) {
        pthread_mutex_unlock(&snapshots->mutex);
        return status;
    }
    made = bson_malloc0(sizeof *made);
    made->all = snapshots;
    made->references = 1;
    made->view = limits != NULL;
    made->own_limits = limits && (limits->age_ms || limits->log);
    made->limits = limits ? *limits : snapshots->limits;
    if (!made->limits.age_ms)
        made->limits.age_ms = snapshots->limits.age_ms;
    if (!made->limits.log)
        made->limits.log = snapshots->limits.log;
    made->since_ns = made->used_ns = truce__clock_monotonic_ns();
    made->since_ms = truce__clock_wall_ms();
    made->log_at = truce__pins_log(snapshots->pins.lock);
    pthread_mutex_init(&made->mutex, NULL);
    /* Invariant 3: the pin exists before the slot becomes free. */
    snapshots_add(snapshots, made);
    wake_thread(snapshots);
    made->home = reader;
    truce__readers_detach(snapshots->readers, reader, &made->reader);
    pthread_mutex_unlock(&snapshots->mutex);
    *snapshot = made;
    return TRUCE_OK;
}

struct snapshot *truce__snapshot_hold(struct snapshot *snapshot)
{
    pthread_mutex_lock(&snapshot->all->mutex);
    snapshot->references++;
    pthread_mutex_unlock(&snapshot->all->mutex);
    return snapshot;
}

void truce__snapshot_release(struct snapshot *snapshot)
{
    struct snapshots *snapshots;
    bool last;

    if (!snapshot)
        return;
    snapshots = snapshot->all;
    pthread_mutex_lock(&snapshots->mutex);
    last = --snapshot->references == 0;
    if (last) {
        pthread_mutex_lock(&snapshot->mutex);
        snapshots_end(snapshot, "");
        pthread_mutex_unlock(&snapshot->mutex);
        take_off(snapshots, snapshot);
    }
    pthread_mutex_unlock(&snapshots->mutex);
    if (!last)
        return;
    pthread_mutex_destroy(&snapshot->mutex);
    bson_free(snapshot);
}

/* ---- reading -------------------------------------------------------------------------------- */

static truce_status snapshot_fail_expired(const struct snapshot *snapshot, bson_error_t *error)
{
    return truce__fail(TRUCE_EXPIRED, error,
                       "the snapshot of this read was ended after %lld s, because %s: read again%s",
                       (long long)((truce__clock_monotonic_ns() - snapshot->since_ns) / 1000000000),
                       snapshot->why,
                       snapshot->own_limits ? ", or open the snapshot with a larger maximum" : "");
}

truce_status truce__snapshot_enter(struct snapshot *snapshot, struct reader **reader,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    const char *why;

    pthread_mutex_lock(&snapshot->mutex);
    why = snapshot->reader.kv ? snapshot_expiry_reason(snapshot) : NULL;
    if (why)
        snapshots_end(snapshot, why);
    if (!snapshot->reader.kv)
        status = snapshot_fail_expired(snapshot, error);
    if (status)
        pthread_mutex_unlock(&snapshot->mutex);
    *reader = status ? NULL : &snapshot->reader;
    return status;
}

void truce__snapshot_leave(struct snapshot *snapshot)
{
    snapshot->used_ns = truce__clock_monotonic_ns();
    pthread_mutex_unlock(&snapshot->mutex);
}

void truce__snapshot_check(struct snapshot *snapshot, struct snapshot_facts *state)
{
    state->age_ms = (truce__clock_monotonic_ns() - snapshot->since_ns) / 1000000;
    state->log = truce__pins_log(snapshot->all->pins.lock) - snapshot->log_at;
    pthread_mutex_lock(&snapshot->mutex);
    state->ended = !snapshot->reader.kv;
    pthread_mutex_unlock(&snapshot->mutex);
}
