/*
 * Kept snapshots.
 *
 *     pool of readers   | slot | slot | slot |            short reads: one snapshot, one slot
 *                          |  truce__moment_keep           a read that goes on: its connection leaves the slot,
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

void truce__moments_init(struct moments *moments, struct readers *readers, struct lock *lock,
                         const struct moment_limits *limits)
{
    pthread_condattr_t attributes;

    *moments = (struct moments){.readers = readers, .limits = *limits};
    if (!moments->limits.age_ms)
        moments->limits.age_ms = TRUCE_SNAPSHOT_AGE_MS;
    if (!moments->limits.log)
        moments->limits.log = TRUCE_SNAPSHOT_LOG_BYTES;
    moments->end = &moments->first;
    truce__pins_init(&moments->pins, lock);
    pthread_mutex_init(&moments->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&moments->change, &attributes);
    pthread_condattr_destroy(&attributes);
}

void truce__moments_release(struct moments *moments)
{
    truce_assert(!moments->first);
    pthread_mutex_lock(&moments->mutex);
    moments->stop = true;
    pthread_cond_signal(&moments->change);
    pthread_mutex_unlock(&moments->mutex);
    if (moments->running)
        pthread_join(moments->thread, NULL);
    truce__pins_release(&moments->pins);
    pthread_cond_destroy(&moments->change);
    pthread_mutex_destroy(&moments->mutex);
}

/* ---- ending --------------------------------------------------------------------------------- */

/* Under the moment's mutex. */
static void moments_end(struct moment *moment, const char *why)
{
    if (!moment->reader.kv)
        return;
    moment->why = why;
    if (*why)
        truce__notice(&moment->all->readers->durable->notices, TRUCE_LOG_INFO,
                      "a cursor or snapshot of \"%s\" was ended after %lld s: %s",
                      moment->all->readers->durable->path,
                      (long long)((truce__clock_monotonic_ns() - moment->since_ns) / 1000000000),
                      why);
    truce__kv_snapshot_end(moment->reader.kv);
    truce__readers_attach(moment->all->readers, &moment->reader, moment->home);
}

/* Under the moment's mutex; NULL: it is not over. */
static const char *moments_is_over(const struct moment *moment)
{
    const struct lock *lock = moment->all->pins.lock;
    int64_t age_ms = (truce__clock_monotonic_ns() - moment->since_ns) / 1000000;
    uint64_t written = truce__pins_log(lock) - moment->log_at;
    uint64_t length = truce__pins_log_length(lock);

    if (moment->limits.unlimited || !written)
        return NULL;
    if (age_ms > moment->limits.age_ms)
        return "it is older than its maximum";
    if (written > moment->limits.log)
        return "more was written since it began than its maximum";
    if (length > LOG_LONG && length / 2 > moment->limits.log && !truce__pins_unlimited(lock))
        return "the log is too long, and could not begin anew";
    return NULL;
}

/* Under the mutex of all. What is in use is left to who uses it. */
static void end_what_is_over(struct moments *moments)
{
    for (struct moment *moment = moments->first; moment; moment = moment->next) {
        const char *why;

        if (pthread_mutex_trylock(&moment->mutex))
            continue;
        why = moments_is_over(moment);
        if (why)
            moments_end(moment, why);
        pthread_mutex_unlock(&moment->mutex);
    }
}

/* Until there is something to look at, or for the time of a look; under the mutex. */
static void sleep_once(struct moments *moments, int *idle)
{
    struct timespec until;

    *idle = moments->first ? 0 : *idle + 1;
    if (*idle > IDLE_MAX) {
        moments->asleep = true;
        pthread_cond_wait(&moments->change, &moments->mutex);
        moments->asleep = false;
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&moments->change, &moments->mutex, &until);
}

static void *moments_run_thread(void *arg)
{
    struct moments *moments = arg;
    int idle = 0;

    pthread_mutex_lock(&moments->mutex);
    while (!moments->stop) {
        end_what_is_over(moments);
        sleep_once(moments, &idle);
    }
    pthread_mutex_unlock(&moments->mutex);
    return NULL;
}

/* ---- the list ------------------------------------------------------------------------------- */

/* Under the mutex. */
static void moments_say(struct moments *moments)
{
    const struct moment *oldest = moments->first;
    struct pin_facts facts = {.count = moments->count, .unlimited = moments->unlimited};

    if (oldest) {
        facts.since_ms = oldest->since_ms;
        facts.log_at = oldest->log_at;
    }
    truce__pins_say(&moments->pins, &facts);
}

/* Where no thread can be had, owners find out by themselves. */
static void wake_thread(struct moments *moments)
{
    if (!moments->running)
        moments->running = truce__thread_start(&moments->thread, moments_run_thread, moments);
    else if (moments->asleep)
        pthread_cond_signal(&moments->change);
}

static void moments_add(struct moments *moments, struct moment *moment)
{
    moment->link = moments->end;
    *moments->end = moment;
    moments->end = &moment->next;
    moments->count++;
    moments->unlimited += moment->limits.unlimited;
    moments_say(moments);
}

static void take_off(struct moments *moments, struct moment *moment)
{
    *moment->link = moment->next;
    if (moment->next)
        moment->next->link = moment->link;
    else
        moments->end = moment->link;
    moments->count--;
    moments->unlimited -= moment->limits.unlimited;
    moments_say(moments);
}

/* Under the mutex: the oldest that may be ended and still has its snapshot gives way. */
static bool moments_make_room(struct moments *moments)
{
    unsigned open = 0;
    bool ended = false;

    for (struct moment *moment = moments->first; moment; moment = moment->next) {
        pthread_mutex_lock(&moment->mutex);
        open += moment->reader.kv != NULL;
        pthread_mutex_unlock(&moment->mutex);
    }
    for (struct moment *moment = moments->first; moment && !ended && open >= TRUCE_SNAPSHOTS_MAX;
         moment = moment->next) {
        if (moment->limits.unlimited || pthread_mutex_trylock(&moment->mutex))
            continue;
        ended = moment->reader.kv != NULL;
        moments_end(moment, "too many were open, and it was the oldest");
        pthread_mutex_unlock(&moment->mutex);
    }
    return ended || open < TRUCE_SNAPSHOTS_MAX;
}

bool truce__moments_room(struct moments *moments)
{
    bool room;

    pthread_mutex_lock(&moments->mutex);
    room = moments->count < TRUCE_SNAPSHOTS_MAX / 2;
    pthread_mutex_unlock(&moments->mutex);
    return room;
}

truce_status truce__moment_keep(struct moments *moments, struct reader *reader,
                                const struct moment_limits *limits, struct moment **moment,
                                bson_error_t *error)
{
    struct moment *made;

    *moment = NULL;
    pthread_mutex_lock(&moments->mutex);
    if (moments->count >= TRUCE_SNAPSHOTS_MAX && !moments_make_room(moments)) {
        pthread_mutex_unlock(&moments->mutex);
        return truce__fail(TRUCE_LIMIT, error, "%d cursors and snapshots are open",
                           TRUCE_SNAPSHOTS_MAX);
    }
    made = bson_malloc0(sizeof *made);
    made->all = moments;
    made->references = 1;
    made->limits = limits ? *limits : moments->limits;
    if (!made->limits.age_ms)
        made->limits.age_ms = moments->limits.age_ms;
    if (!made->limits.log)
        made->limits.log = moments->limits.log;
    made->since_ns = truce__clock_monotonic_ns();
    made->since_ms = truce__clock_wall_ms();
    made->log_at = truce__pins_log(moments->pins.lock);
    pthread_mutex_init(&made->mutex, NULL);
    moments_add(moments, made); /* 3 */
    wake_thread(moments);
    made->home = reader;
    truce__readers_detach(moments->readers, reader, &made->reader);
    pthread_mutex_unlock(&moments->mutex);
    *moment = made;
    return TRUCE_OK;
}

struct moment *truce__moment_hold(struct moment *moment)
{
    pthread_mutex_lock(&moment->all->mutex);
    moment->references++;
    pthread_mutex_unlock(&moment->all->mutex);
    return moment;
}

void truce__moment_release(struct moment *moment)
{
    struct moments *moments;
    bool last;

    if (!moment)
        return;
    moments = moment->all;
    pthread_mutex_lock(&moments->mutex);
    last = --moment->references == 0;
    if (last) {
        pthread_mutex_lock(&moment->mutex);
        moments_end(moment, "");
        pthread_mutex_unlock(&moment->mutex);
        take_off(moments, moment);
    }
    pthread_mutex_unlock(&moments->mutex);
    if (!last)
        return;
    pthread_mutex_destroy(&moment->mutex);
    bson_free(moment);
}

/* ---- reading -------------------------------------------------------------------------------- */

static truce_status expired(const struct moment *moment, bson_error_t *error)
{
    return truce__fail(TRUCE_EXPIRED, error,
                       "the snapshot of this read was ended after %lld s: %s; read it again, or "
                       "open it with a larger maximum",
                       (long long)((truce__clock_monotonic_ns() - moment->since_ns) / 1000000000),
                       moment->why);
}

truce_status truce__moment_enter(struct moment *moment, struct reader **reader, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    const char *why;

    pthread_mutex_lock(&moment->mutex);
    why = moment->reader.kv ? moments_is_over(moment) : NULL;
    if (why)
        moments_end(moment, why);
    if (!moment->reader.kv)
        status = expired(moment, error);
    if (status)
        pthread_mutex_unlock(&moment->mutex);
    *reader = status ? NULL : &moment->reader;
    return status;
}

void truce__moment_leave(struct moment *moment)
{
    pthread_mutex_unlock(&moment->mutex);
}

void truce__moment_look(struct moment *moment, struct moment_state *state)
{
    state->age_ms = (truce__clock_monotonic_ns() - moment->since_ns) / 1000000;
    state->log = truce__pins_log(moment->all->pins.lock) - moment->log_at;
    pthread_mutex_lock(&moment->mutex);
    state->ended = !moment->reader.kv;
    pthread_mutex_unlock(&moment->mutex);
}
