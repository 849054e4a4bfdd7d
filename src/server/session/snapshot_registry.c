#include "server/session/snapshot_registry.h"

#include <pthread.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "server/call/shared_state.h"
#include "truce/snapshot.h"

struct snapshot_registry {
    struct server *server;
    /* The time for which a snapshot can be read by its cluster time. */
    int64_t window_ms;
    /* Guards the fields below, and the fields of the snapshots. */
    pthread_mutex_t mutex;
    struct registered_snapshot *first;
    int count;
    /* The number of uses of all snapshots, which orders them by their last use. */
    uint64_t clock;
};

struct snapshot_registry *snapshot_registry_new(struct server *server, int64_t window_ms)
{
    struct snapshot_registry *registry = bson_malloc0(sizeof *registry);

    registry->server = server;
    registry->window_ms = window_ms ? window_ms : TRUCE_SERVER_SNAPSHOT_MS;
    pthread_mutex_init(&registry->mutex, NULL);
    return registry;
}

static void registry_end(struct registered_snapshot *snapshot)
{
    truce_assert(!snapshot->users);
    truce_store_close(snapshot->view);
    bson_free(snapshot);
}

void snapshot_registry_free(struct snapshot_registry *registry)
{
    while (registry->first) {
        struct registered_snapshot *snapshot = registry->first;

        registry->first = snapshot->next;
        registry_end(snapshot);
    }
    pthread_mutex_destroy(&registry->mutex);
    bson_free(registry);
}

/* ---- functions that need the mutex ----------------------------------------------------------- */

static void registry_use(struct snapshot_registry *registry, struct registered_snapshot *snapshot)
{
    snapshot->users++;
    snapshot->used = ++registry->clock;
}

static void registry_take_out(struct snapshot_registry *registry, struct registered_snapshot **at)
{
    struct registered_snapshot *snapshot = *at;

    *at = snapshot->next;
    snapshot->forgotten = true;
    registry->count--;
}

/* Removes the least recently used snapshot from the registry and returns it, or returns NULL if all
 * are in use. The caller closes it. */
static struct registered_snapshot *registry_take_out_idle(struct snapshot_registry *registry)
{
    struct registered_snapshot **oldest = NULL, *gone;

    for (struct registered_snapshot **at = &registry->first; *at; at = &(*at)->next)
        if (!(*at)->users && (!oldest || (*at)->used < (*oldest)->used))
            oldest = at;
    if (!oldest)
        return NULL;
    gone = *oldest;
    registry_take_out(registry, oldest);
    return gone;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* Fails with the reason why no snapshot has that time: 72, 239, or 246 (snapshot_registry_take). */
static truce_status registry_refuse(const struct snapshot_registry *registry, uint64_t time,
                                    bson_error_t *error)
{
    int64_t age_ms = truce__clock_wall_ms() - (int64_t)(time >> 32) * 1000;
    unsigned seconds = (unsigned)(time >> 32), number = (unsigned)time;

    if (time > server_time(registry->server))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "atClusterTime (%u, %u) is later than the current time", seconds,
                             number);
    if (age_ms > registry->window_ms)
        return truce__refuse(CODE_SNAPSHOT_TOO_OLD, error,
                             "the time (%u, %u) is older than the oldest snapshot", seconds,
                             number);
    return truce__refuse(
        CODE_SNAPSHOT_UNAVAILABLE, error,
        "the time (%u, %u) has no snapshot: no read of this server returned it, or "
        "more than %d later ones evicted it",
        seconds, number, TRUCE_SERVER_SNAPSHOTS_MAX);
}

static truce_status registry_find(struct snapshot_registry *registry, uint64_t time,
                                  struct registered_snapshot **snapshot, bson_error_t *error)
{
    pthread_mutex_lock(&registry->mutex);
    *snapshot = registry->first;
    while (*snapshot && (*snapshot)->time != time)
        *snapshot = (*snapshot)->next;
    if (*snapshot)
        registry_use(registry, *snapshot);
    pthread_mutex_unlock(&registry->mutex);
    return *snapshot ? TRUCE_OK : registry_refuse(registry, time, error);
}

/* Adds the snapshot with the caller as its user. If the registry is full, evicts the least recently
 * used one as `*gone`, which the caller closes. Returns false if all are in use. */
static bool registry_enter(struct snapshot_registry *registry, struct registered_snapshot *snapshot,
                           struct registered_snapshot **gone)
{
    bool enters;

    pthread_mutex_lock(&registry->mutex);
    *gone = registry->count == TRUCE_SERVER_SNAPSHOTS_MAX ? registry_take_out_idle(registry) : NULL;
    enters = registry->count < TRUCE_SERVER_SNAPSHOTS_MAX;
    if (enters) {
        registry_use(registry, snapshot);
        snapshot->next = registry->first;
        registry->first = snapshot;
        registry->count++;
    }
    pthread_mutex_unlock(&registry->mutex);
    return enters;
}

/* Assigns the time before it opens the snapshot, so later changes have later times. */
static truce_status registry_make(struct snapshot_registry *registry,
                                  struct registered_snapshot **snapshot, bson_error_t *error)
{
    const truce_snapshot_options options = {.age_ms = (uint32_t)registry->window_ms};
    struct registered_snapshot *made = bson_malloc0(sizeof *made), *gone;
    truce_status status;

    pthread_mutex_lock(&registry->mutex);
    status = server_tick(registry->server, &made->time, error);
    pthread_mutex_unlock(&registry->mutex);
    made->since_ns = truce__clock_monotonic_ns();
    if (!status)
        status = truce_snapshot(registry->server->store, &options, &made->view, error);
    if (status) {
        bson_free(made);
        return status;
    }
    if (!registry_enter(registry, made, &gone)) {
        registry_end(made);
        return truce__fail(TRUCE_LIMIT, error,
                           "open cursors read %d different snapshots, which is the maximum: read "
                           "cursors to their end, or close them",
                           TRUCE_SERVER_SNAPSHOTS_MAX);
    }
    if (gone)
        registry_end(gone);
    *snapshot = made;
    return TRUCE_OK;
}

truce_status snapshot_registry_take(struct snapshot_registry *registry, uint64_t time,
                                    struct registered_snapshot **snapshot, bson_error_t *error)
{
    *snapshot = NULL;
    return time ? registry_find(registry, time, snapshot, error)
                : registry_make(registry, snapshot, error);
}

void snapshot_registry_hold(struct snapshot_registry *registry,
                            struct registered_snapshot *snapshot)
{
    pthread_mutex_lock(&registry->mutex);
    registry_use(registry, snapshot);
    pthread_mutex_unlock(&registry->mutex);
}

void snapshot_registry_release(struct snapshot_registry *registry,
                               struct registered_snapshot *snapshot)
{
    bool last;

    pthread_mutex_lock(&registry->mutex);
    last = !--snapshot->users && snapshot->forgotten;
    pthread_mutex_unlock(&registry->mutex);
    if (last)
        registry_end(snapshot);
}

/* ---- the end --------------------------------------------------------------------------------- */

void snapshot_registry_expire(struct snapshot_registry *registry)
{
    int64_t before_ns = truce__clock_monotonic_ns() - registry->window_ms * 1000000;
    struct registered_snapshot *gone = NULL;

    pthread_mutex_lock(&registry->mutex);
    for (struct registered_snapshot **at = &registry->first; *at;) {
        struct registered_snapshot *snapshot = *at;

        if (snapshot->since_ns >= before_ns) {
            at = &snapshot->next;
            continue;
        }
        registry_take_out(registry, at);
        if (!snapshot->users) {
            snapshot->next = gone;
            gone = snapshot;
        }
    }
    pthread_mutex_unlock(&registry->mutex);
    while (gone) {
        struct registered_snapshot *snapshot = gone;

        gone = snapshot->next;
        registry_end(snapshot);
    }
}

truce_status snapshot_registry_status(truce_status status, bson_error_t *error)
{
    if (status != TRUCE_EXPIRED)
        return status;
    return truce__refuse(CODE_SNAPSHOT_TOO_OLD, error,
                         "the snapshot has ended, because it was too old or too much was written "
                         "since: read again");
}
