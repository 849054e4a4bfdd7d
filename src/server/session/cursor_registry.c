#include "server/session/cursor_registry.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/random.h"
#include "base/status.h"
#include "server/session/snapshot_registry.h"
#include "server/watch/watch.h"

struct held_cursors {
    pthread_mutex_t mutex;
    struct random random;
    struct held_cursor **all;
    int count, most;
    struct held_cursor *waits; /* change streams that are read just now */
};

struct held_cursors *held_new(int most)
{
    struct held_cursors *cursors = bson_malloc0(sizeof *cursors);

    pthread_mutex_init(&cursors->mutex, NULL);
    truce__random_seed(&cursors->random, truce__random_entropy());
    cursors->all = bson_malloc0((size_t)most * sizeof(*cursors->all));
    cursors->most = most;
    return cursors;
}

void held_free(struct held_cursors *cursors)
{
    for (int i = 0; i < cursors->count; i++)
        held_close(cursors->all[i]);
    pthread_mutex_destroy(&cursors->mutex);
    bson_free(cursors->all);
    bson_free(cursors);
}

/* ---- one cursor ----------------------------------------------------------------------------- */

/* `view`: for a document of an array. */
static truce_status held_next(struct held_cursor *held, bson_t *view, const bson_t **document,
                              bson_error_t *error)
{
    const uint8_t *bytes;
    uint32_t size;

    *document = held->waiting;
    if (held->waiting)
        return TRUCE_OK;
    if (!held->array)
        return truce_cursor_next(held->cursor, document, error);
    if (bson_iter_next(&held->at)) {
        bson_iter_document(&held->at, &size, &bytes);
        (void)bson_init_static(view, bytes, size);
        *document = view;
    }
    return TRUCE_OK;
}

/* Is it known that nothing is left? Of a cursor of its own that is known only behind its last document. */
static bool held_is_read(const struct held_cursor *held)
{
    bson_iter_t ahead = held->at;

    return held->array && !held->waiting && !bson_iter_next(&ahead);
}

truce_status held_read(struct held_cursor *held, int64_t most, bson_t *batch, bool *end,
                       bson_error_t *error)
{
    char buffer[16];
    const char *key;

    *end = false;
    for (uint32_t i = 0; most < 0 || i < most; i++) {
        const bson_t *document;
        bson_t view;
        truce_status status = held_next(held, &view, &document, error);

        if (status)
            return status;
        if (!document) {
            *end = true;
            return TRUCE_OK;
        }
        if (i && batch->len + document->len > TRUCE_DOCUMENT_BYTES_MAX) {
            if (!held->waiting)
                held->waiting = bson_copy(document);
            return TRUCE_OK;
        }
        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT(batch, key, document);
        if (held->waiting)
            bson_destroy(held->waiting);
        held->waiting = NULL;
    }
    *end = held_is_read(held);
    return TRUCE_OK;
}

void held_close(struct held_cursor *held)
{
    truce_cursor_close(held->cursor);
    if (held->past)
        pasts_give(held->pasts, held->past);
    if (held->array)
        bson_destroy(held->array);
    watch_free(held->watch);
    if (held->waiting)
        bson_destroy(held->waiting);
    bson_free(held->user);
    bson_free(held->place);
    bson_free(held);
}

/* ---- all of them ---------------------------------------------------------------------------- */

static int held_find(const struct held_cursors *cursors, int64_t id)
{
    int i = 0;

    while (i < cursors->count && cursors->all[i]->id != id)
        i++;
    return i;
}

truce_status held_keep(struct held_cursors *cursors, struct held_cursor *held, bson_error_t *error)
{
    bool full;

    held->idle_since_ns = truce__clock_monotonic_ns();
    pthread_mutex_lock(&cursors->mutex);
    full = cursors->count == cursors->most;
    while (!full && !held->id) { /* hard to guess, and never negative: some clients print it */
        int64_t id = (int64_t)(truce__random_next(&cursors->random) >> 1);

        if (held_find(cursors, id) == cursors->count)
            held->id = id;
    }
    if (!full)
        cursors->all[cursors->count++] = held;
    pthread_mutex_unlock(&cursors->mutex);
    if (!full)
        return TRUCE_OK;
    held_close(held);
    return truce__fail(
        TRUCE_LIMIT, error,
        "%d cursors are open, which is the maximum: read them to their end, or close "
        "them",
        cursors->most);
}

static struct held_cursor *held_take_out(struct held_cursors *cursors, int i)
{
    struct held_cursor *held = cursors->all[i];

    cursors->all[i] = cursors->all[--cursors->count];
    return held;
}

struct held_cursor *held_take(struct held_cursors *cursors, int64_t id, const char *place,
                              int64_t owner, const char *user)
{
    struct held_cursor *held = NULL;
    int i;

    pthread_mutex_lock(&cursors->mutex);
    i = held_find(cursors, id);
    if (i < cursors->count && !strcmp(cursors->all[i]->place, place) &&
        cursors->all[i]->owner == owner && !strcmp(cursors->all[i]->user, user))
        held = held_take_out(cursors, i);
    pthread_mutex_unlock(&cursors->mutex);
    return held;
}

void held_wait_begin(struct held_cursors *cursors, struct held_cursor *held)
{
    pthread_mutex_lock(&cursors->mutex);
    held->killed = false;
    held->beside = cursors->waits;
    cursors->waits = held;
    pthread_mutex_unlock(&cursors->mutex);
}

void held_wait_end(struct held_cursors *cursors, struct held_cursor *held)
{
    struct held_cursor **at = &cursors->waits;

    pthread_mutex_lock(&cursors->mutex);
    while (*at != held)
        at = &(*at)->beside;
    *at = held->beside;
    pthread_mutex_unlock(&cursors->mutex);
}

bool held_is_killed(struct held_cursors *cursors, const struct held_cursor *held)
{
    bool killed;

    pthread_mutex_lock(&cursors->mutex);
    killed = held->killed;
    pthread_mutex_unlock(&cursors->mutex);
    return killed;
}

bool held_kill(struct held_cursors *cursors, int64_t id, const char *place, const char *user)
{
    struct held_cursor *held;

    pthread_mutex_lock(&cursors->mutex);
    held = cursors->waits;
    while (held &&
           (held->id != id || strcmp(held->place, place) != 0 || strcmp(held->user, user) != 0))
        held = held->beside;
    if (held)
        held->killed = true;
    pthread_mutex_unlock(&cursors->mutex);
    return held != NULL;
}

bool held_is_of(struct held_cursors *cursors, int64_t id, const char *user)
{
    bool is;
    int i;

    pthread_mutex_lock(&cursors->mutex);
    i = held_find(cursors, id);
    is = i == cursors->count || !strcmp(cursors->all[i]->user, user);
    pthread_mutex_unlock(&cursors->mutex);
    return is;
}

/* All that were idle since then, and are of this owner, if it is not 0. */
static void held_close_all(struct held_cursors *cursors, int64_t before_ns, int64_t owner)
{
    struct held_cursor *old;

    do {
        old = NULL;
        pthread_mutex_lock(&cursors->mutex);
        for (int i = 0; i < cursors->count && !old; i++)
            if (cursors->all[i]->idle_since_ns < before_ns &&
                (!owner || cursors->all[i]->owner == owner))
                old = held_take_out(cursors, i);
        pthread_mutex_unlock(&cursors->mutex);
        if (old)
            held_close(old);
    } while (old);
}

void held_drop(struct held_cursors *cursors, int64_t owner)
{
    held_close_all(cursors, INT64_MAX, owner);
}

/* A transaction's are its own to end: it may be in use. */
void held_expire(struct held_cursors *cursors, int64_t idle_ms)
{
    held_close_all(cursors, truce__clock_monotonic_ns() - idle_ms * 1000000, 0);
}

int64_t held_bytes(struct held_cursors *cursors)
{
    int64_t bytes = 0;

    pthread_mutex_lock(&cursors->mutex);
    for (int i = 0; i < cursors->count; i++)
        bytes += cursors->all[i]->array ? cursors->all[i]->array->len : 0;
    pthread_mutex_unlock(&cursors->mutex);
    return bytes;
}

int held_count(struct held_cursors *cursors)
{
    int count;

    pthread_mutex_lock(&cursors->mutex);
    count = cursors->count;
    pthread_mutex_unlock(&cursors->mutex);
    return count;
}
