/*
 * Kept snapshots.
 *
 *     pool of readers   | slot | slot | slot |            short reads: one snapshot, one slot
 *                          |  truce__snapshot_keep           a read that goes on: its connection leaves the slot,
 *                          v                               in its snapshot, and comes back when it is over
 *     moments              o --- o --- o                   in the order in which they began
 *                          |
 *                          pins (snapshot_pins.c): so many, since then, for everybody to see
 *
 * States of a moment:
 *
 *     kept --enter--> in use --leave--> kept --release--> gone
 *     kept --it is over: its thread, or who enters--> ended --release--> gone
 *
 * It is over when something was written since it began, and
 *
 *     it is older than its maximum of age, or
 *     more was written since than its maximum of log, or
 *     the log is longer than twice that maximum (and than 256 MB), and nothing that has no maximum is kept
 *
 * The third ends chains: reads that overlap, none of them too long, and the log could never begin anew.
 *
 * Invariants:
 *  1. A moment's connection is used by who has entered it, and ended only under its mutex.
 *  2. What was read of a moment stays right: it ends between two reads of it, never within one.
 *  3. What is kept stands in the home of the pins before its slot is given back: a checkpoint that finds every
 *     slot free finds it there.
 *  4. The thread sleeps while nothing is kept, and looks five times a second otherwise. It is the one that
 *     ends what its owner has forgotten; an owner that goes on finds out by itself.
 *
 * A process that is stopped keeps what it has kept. Others see who it is (truce doctor), and cannot end it.
 */
#include "engine/snapshots.h"

#include <errno.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/thread.h"

#define LOOK_MS  200
#define LOG_LONG (UINT64_C(256) << 20) /* shorter than that it may be with nobody in the way */
#define IDLE_MAX 25                    /* looks at nothing before it sleeps */

void truce__snapshots_init(struct snapshots *snapshots, struct readers *readers, struct lock *lock,
                           const struct snapshot_limits *limits)
{
    pthread_condattr_t attributes;

    *snapshots = (struct snapshots){.readers = readers, .limits = *limits};
    if (!snapshots->limits.age_ms)
        snapshots->limits.age_ms = TRUCE_SNAPSHOT_AGE_MS;
    if (!snapshots->limits.log)
        snapshots->limits.log = TRUCE_SNAPSHOT_LOG_BYTES;
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

/* Under the moment's mutex. */
static void snapshots_end(struct snapshot *snapshot, const char *why)
{
    if (!snapshot->reader.kv)
        return;
    snapshot->why = why;
    if (*why)
        truce__notice(&snapshot->all->readers->durable->notices, TRUCE_LOG_INFO,
                      "a cursor or snapshot of \"%s\" was ended after %lld s: %s",
                      snapshot->all->readers->durable->path,
                      (long long)((truce__clock_monotonic_ns() - snapshot->since_ns) / 1000000000),
                      why);
    truce__kv_snapshot_end(snapshot->reader.kv);
    truce__readers_attach(snapshot->all->readers, &snapshot->reader, snapshot->home);
}

/* Under the moment's mutex; NULL: it is not over. */
static const char *snapshots_is_over(const struct snapshot *snapshot)
{
    const struct lock *lock = snapshot->all->pins.lock;
    int64_t age_ms = (truce__clock_monotonic_ns() - snapshot->since_ns) / 1000000;
    uint64_t written = truce__pins_log(lock) - snapshot->log_at;
    uint64_t length = truce__pins_log_length(lock);

    if (snapshot->limits.unlimited || !written)
        return NULL;
    if (age_ms > snapshot->limits.age_ms)
        return "it is older than its maximum";
    if (written > snapshot->limits.log)
        return "more was written since it began than its maximum";
    if (length > LOG_LONG && length / 2 > snapshot->limits.log && !truce__pins_unlimited(lock))
        return "the log is too long, and could not begin anew";
    return NULL;
}

/* Under the mutex of all. What is in use is left to who uses it. */
static void end_what_is_over(struct snapshots *snapshots)
{
    for (struct snapshot *snapshot = snapshots->first; snapshot; snapshot = snapshot->next) {
        const char *why;

        if (pthread_mutex_trylock(&snapshot->mutex))
            continue;
        why = snapshots_is_over(snapshot);
        if (why)
            snapshots_end(snapshot, why);
        pthread_mutex_unlock(&snapshot->mutex);
    }
}

/* Until there is something to look at, or for the time of a look; under the mutex. */
static void sleep_once(struct snapshots *snapshots, int *idle)
{
    struct timespec until;

    *idle = snapshots->first ? 0 : *idle + 1;
    if (*idle > IDLE_MAX) {
        snapshots->asleep = true;
        pthread_cond_wait(&snapshots->change, &snapshots->mutex);
        snapshots->asleep = false;
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&snapshots->change, &snapshots->mutex, &until);
}

static void *moments_run_thread(void *arg)
{
    struct snapshots *snapshots = arg;
    int idle = 0;

    pthread_mutex_lock(&snapshots->mutex);
    while (!snapshots->stop) {
        end_what_is_over(snapshots);
        sleep_once(snapshots, &idle);
    }
    pthread_mutex_unlock(&snapshots->mutex);
    return NULL;
}

/* ---- the list ------------------------------------------------------------------------------- */

/* Under the mutex. */
static void snapshots_report(struct snapshots *snapshots)
{
    const struct snapshot *oldest = snapshots->first;
    struct pin_facts facts = {.count = snapshots->count, .unlimited = snapshots->unlimited};

    if (oldest) {
        facts.since_ms = oldest->since_ms;
        facts.log_at = oldest->log_at;
    }
    truce__pins_say(&snapshots->pins, &facts);
}

/* Where no thread can be had, owners find out by themselves. */
static void wake_thread(struct snapshots *snapshots)
{
    if (!snapshots->running)
        snapshots->running = truce__thread_start(&snapshots->thread, moments_run_thread, snapshots);
    else if (snapshots->asleep)
        pthread_cond_signal(&snapshots->change);
}

static void snapshots_add(struct snapshots *snapshots, struct snapshot *snapshot)
{
    snapshot->link = snapshots->end;
    *snapshots->end = snapshot;
    snapshots->end = &snapshot->next;
    snapshots->count++;
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
    snapshots->unlimited -= snapshot->limits.unlimited;
    snapshots_report(snapshots);
}

/* Under the mutex: the oldest that may be ended and still has its snapshot gives way. */
static bool snapshots_make_room(struct snapshots *snapshots)
{
    unsigned open = 0;
    bool ended = false;

    for (struct snapshot *snapshot = snapshots->first; snapshot; snapshot = snapshot->next) {
        pthread_mutex_lock(&snapshot->mutex);
        open += snapshot->reader.kv != NULL;
        pthread_mutex_unlock(&snapshot->mutex);
    }
    for (struct snapshot *snapshot = snapshots->first;
         snapshot && !ended && open >= TRUCE_SNAPSHOTS_MAX; snapshot = snapshot->next) {
        if (snapshot->limits.unlimited || pthread_mutex_trylock(&snapshot->mutex))
            continue;
        ended = snapshot->reader.kv != NULL;
        snapshots_end(snapshot, "too many were open, and it was the oldest");
        pthread_mutex_unlock(&snapshot->mutex);
    }
    return ended || open < TRUCE_SNAPSHOTS_MAX;
}

bool truce__snapshots_room(struct snapshots *snapshots)
{
    bool room;

    pthread_mutex_lock(&snapshots->mutex);
    room = snapshots->count < TRUCE_SNAPSHOTS_MAX / 2;
    pthread_mutex_unlock(&snapshots->mutex);
    return room;
}

truce_status truce__snapshot_keep(struct snapshots *snapshots, struct reader *reader,
                                  const struct snapshot_limits *limits, struct snapshot **snapshot,
                                  bson_error_t *error)
{
    struct snapshot *made;

    *snapshot = NULL;
    pthread_mutex_lock(&snapshots->mutex);
    if (snapshots->count >= TRUCE_SNAPSHOTS_MAX && !snapshots_make_room(snapshots)) {
        pthread_mutex_unlock(&snapshots->mutex);
        return truce__fail(TRUCE_LIMIT, error, "%d cursors and snapshots are open",
                           TRUCE_SNAPSHOTS_MAX);
    }
    made = bson_malloc0(sizeof *made);
    made->all = snapshots;
    made->references = 1;
    made->limits = limits ? *limits : snapshots->limits;
    if (!made->limits.age_ms)
        made->limits.age_ms = snapshots->limits.age_ms;
    if (!made->limits.log)
        made->limits.log = snapshots->limits.log;
    made->since_ns = truce__clock_monotonic_ns();
    made->since_ms = truce__clock_wall_ms();
    made->log_at = truce__pins_log(snapshots->pins.lock);
    pthread_mutex_init(&made->mutex, NULL);
    snapshots_add(snapshots, made); /* 3 */
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

static truce_status expired(const struct snapshot *snapshot, bson_error_t *error)
{
    return truce__fail(TRUCE_EXPIRED, error,
                       "the snapshot of this read was ended after %lld s: %s; read it again, or "
                       "open it with a larger maximum",
                       (long long)((truce__clock_monotonic_ns() - snapshot->since_ns) / 1000000000),
                       snapshot->why);
}

truce_status truce__snapshot_enter(struct snapshot *snapshot, struct reader **reader,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    const char *why;

    pthread_mutex_lock(&snapshot->mutex);
    why = snapshot->reader.kv ? snapshots_is_over(snapshot) : NULL;
    if (why)
        snapshots_end(snapshot, why);
    if (!snapshot->reader.kv)
        status = expired(snapshot, error);
    if (status)
        pthread_mutex_unlock(&snapshot->mutex);
    *reader = status ? NULL : &snapshot->reader;
    return status;
}

void truce__snapshot_leave(struct snapshot *snapshot)
{
    pthread_mutex_unlock(&snapshot->mutex);
}

void truce__snapshot_look(struct snapshot *snapshot, struct snapshot_facts *state)
{
    state->age_ms = (truce__clock_monotonic_ns() - snapshot->since_ns) / 1000000;
    state->log = truce__pins_log(snapshot->all->pins.lock) - snapshot->log_at;
    pthread_mutex_lock(&snapshot->mutex);
    state->ended = !snapshot->reader.kv;
    pthread_mutex_unlock(&snapshot->mutex);
}
