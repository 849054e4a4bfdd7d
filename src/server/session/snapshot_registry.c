#include "server/session/snapshot_registry.h"

#include <pthread.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "server/call/state.h"
#include "truce/snapshot.h"

struct snapshot_registry {
    struct server *server;
    int64_t window_ms;
    pthread_mutex_t mutex; /* over what follows, and the moments' own */
    struct registered_snapshot *first;
    int count;
    uint64_t clock; /* of uses */
};

struct snapshot_registry *snapshot_registry_new(struct server *server, int64_t window_ms)
{
    struct snapshot_registry *pasts = bson_malloc0(sizeof *pasts);

    pasts->server = server;
    pasts->window_ms = window_ms ? window_ms : TRUCE_SERVER_PAST_MS;
    pthread_mutex_init(&pasts->mutex, NULL);
    return pasts;
}

static void pasts_end(struct registered_snapshot *past)
{
    truce_assert(!past->users);
    truce_store_close(past->view);
    bson_free(past);
}

void snapshot_registry_free(struct snapshot_registry *pasts)
{
    while (pasts->first) {
        struct registered_snapshot *past = pasts->first;

        pasts->first = past->next;
        pasts_end(past);
    }
    pthread_mutex_destroy(&pasts->mutex);
    bson_free(pasts);
}

/* ---- under the mutex ------------------------------------------------------------------------- */

static void pasts_use(struct snapshot_registry *pasts, struct registered_snapshot *past)
{
    past->users++;
    past->used = ++pasts->clock;
}

static void pasts_take_out(struct snapshot_registry *pasts, struct registered_snapshot **at)
{
    struct registered_snapshot *past = *at;

    *at = past->next;
    past->forgotten = true;
    pasts->count--;
}

/* Evicts the least recently used snapshot; NULL: all are in use. */
static struct registered_snapshot *pasts_take_out_idle(struct snapshot_registry *pasts)
{
    struct registered_snapshot **oldest = NULL, *gone;

    for (struct registered_snapshot **at = &pasts->first; *at; at = &(*at)->next)
        if (!(*at)->users && (!oldest || (*at)->used < (*oldest)->used))
            oldest = at;
    if (!oldest)
        return NULL;
    gone = *oldest;
    pasts_take_out(pasts, oldest);
    return gone;
}

/* ---- taking ---------------------------------------------------------------------------------- */

static truce_status pasts_refuse(const struct snapshot_registry *pasts, uint64_t time,
                                 bson_error_t *error)
{
    int64_t age_ms = truce__clock_wall_ms() - (int64_t)(time >> 32) * 1000;
    unsigned seconds = (unsigned)(time >> 32), number = (unsigned)time;

    if (time > server_time(pasts->server))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "atClusterTime (%u, %u) is later than the current time", seconds,
                             number);
    if (age_ms > pasts->window_ms)
        return truce__refuse(CODE_SNAPSHOT_TOO_OLD, error,
                             "the time (%u, %u) is older than the oldest that is kept", seconds,
                             number);
    return truce__refuse(CODE_SNAPSHOT_UNAVAILABLE, error,
                         "the time (%u, %u) is not kept: no read of this server was answered with "
                         "it, or more than %d others were since",
                         seconds, number, TRUCE_SERVER_PASTS_MAX);
}

static truce_status pasts_find(struct snapshot_registry *pasts, uint64_t time,
                               struct registered_snapshot **past, bson_error_t *error)
{
    pthread_mutex_lock(&pasts->mutex);
    *past = pasts->first;
    while (*past && (*past)->time != time)
        *past = (*past)->next;
    if (*past)
        pasts_use(pasts, *past);
    pthread_mutex_unlock(&pasts->mutex);
    return *past ? TRUCE_OK : pasts_refuse(pasts, time, error);
}

/* Adds the snapshot, after evicting another one if necessary. */
static bool pasts_enter(struct snapshot_registry *pasts, struct registered_snapshot *past,
                        struct registered_snapshot **gone)
{
    bool enters;

    pthread_mutex_lock(&pasts->mutex);
    *gone = pasts->count == TRUCE_SERVER_PASTS_MAX ? pasts_take_out_idle(pasts) : NULL;
    enters = pasts->count < TRUCE_SERVER_PASTS_MAX;
    if (enters) {
        pasts_use(pasts, past);
        past->next = pasts->first;
        pasts->first = past;
        pasts->count++;
    }
    pthread_mutex_unlock(&pasts->mutex);
    return enters;
}

/* The time is given before the moment is taken: what is changed afterwards is of a later one. */
static truce_status pasts_make(struct snapshot_registry *pasts, struct registered_snapshot **past,
                               bson_error_t *error)
{
    const truce_snapshot_options options = {.age_ms = (uint32_t)pasts->window_ms};
    struct registered_snapshot *made = bson_malloc0(sizeof *made), *gone;
    truce_status status;

    pthread_mutex_lock(&pasts->mutex);
    status = server_tick(pasts->server, &made->time, error);
    pthread_mutex_unlock(&pasts->mutex);
    made->since_ns = truce__clock_monotonic_ns();
    if (!status)
        status = truce_snapshot(pasts->server->store, &options, &made->view, error);
    if (status) {
        bson_free(made);
        return status;
    }
    if (!pasts_enter(pasts, made, &gone)) {
        pasts_end(made);
        return truce__fail(TRUCE_LIMIT, error,
                           "%d moments are read by cursors, which is the maximum",
                           TRUCE_SERVER_PASTS_MAX);
    }
    if (gone)
        pasts_end(gone);
    *past = made;
    return TRUCE_OK;
}

truce_status snapshot_registry_take(struct snapshot_registry *pasts, uint64_t time,
                                    struct registered_snapshot **past, bson_error_t *error)
{
    *past = NULL;
    return time ? pasts_find(pasts, time, past, error) : pasts_make(pasts, past, error);
}

void snapshot_registry_hold(struct snapshot_registry *pasts, struct registered_snapshot *past)
{
    pthread_mutex_lock(&pasts->mutex);
    pasts_use(pasts, past);
    pthread_mutex_unlock(&pasts->mutex);
}

void snapshot_registry_release(struct snapshot_registry *pasts, struct registered_snapshot *past)
{
    bool last;

    pthread_mutex_lock(&pasts->mutex);
    last = !--past->users && past->forgotten;
    pthread_mutex_unlock(&pasts->mutex);
    if (last)
        pasts_end(past);
}

/* ---- the end --------------------------------------------------------------------------------- */

void snapshot_registry_expire(struct snapshot_registry *pasts)
{
    int64_t before_ns = truce__clock_monotonic_ns() - pasts->window_ms * 1000000;
    struct registered_snapshot *gone = NULL;

    pthread_mutex_lock(&pasts->mutex);
    for (struct registered_snapshot **at = &pasts->first; *at;) {
        struct registered_snapshot *past = *at;

        if (past->since_ns >= before_ns) {
            at = &past->next;
            continue;
        }
        pasts_take_out(pasts, at);
        if (!past->users) {
            past->next = gone;
            gone = past;
        }
    }
    pthread_mutex_unlock(&pasts->mutex);
    while (gone) {
        struct registered_snapshot *past = gone;

        gone = past->next;
        pasts_end(past);
    }
}

truce_status snapshot_registry_status(truce_status status, bson_error_t *error)
{
    if (status != TRUCE_EXPIRED)
        return status;
    return truce__refuse(CODE_SNAPSHOT_TOO_OLD, error,
                         "the moment that is read is too old, or too much was written since");
}
