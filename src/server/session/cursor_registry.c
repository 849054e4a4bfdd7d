#include "server/session/cursor_registry.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/random.h"
#include "base/status.h"
#include "server/session/change_stream.h"
#include "server/session/snapshot_registry.h"

struct cursor_registry {
    /* Guards the fields below. A cursor that a call has taken belongs to the call. */
    pthread_mutex_t mutex;
    /* Makes the ids of cursors. */
    struct random random;
    struct cursor_entry **all;
    /* The number of cursors in `all`, the maximum for a new one, and the size of `all`. Cursors that
     * calls had taken can exceed the maximum. */
    int count, most, room;
    /* The list of change streams that calls have taken and that may wait. */
    struct cursor_entry *waits;
};

struct cursor_registry *cursors_new(int most)
{
    struct cursor_registry *cursors = bson_malloc0(sizeof *cursors);

    pthread_mutex_init(&cursors->mutex, NULL);
    truce__random_seed(&cursors->random, truce__random_entropy());
    cursors->all = bson_malloc0((size_t)most * sizeof(*cursors->all));
    cursors->most = cursors->room = most;
    return cursors;
}

void cursors_free(struct cursor_registry *cursors)
{
    for (int i = 0; i < cursors->count; i++)
        cursor_entry_close(cursors->all[i]);
    pthread_mutex_destroy(&cursors->mutex);
    bson_free(cursors->all);
    bson_free(cursors);
}

/* ---- one cursor ------------------------------------------------------------------------------ */

/* Reads the next document. `view` is the memory for a view of a document in an array. */
static truce_status cursor_entry_next(struct cursor_entry *entry, bson_t *view,
                                      const bson_t **document, bson_error_t *error)
{
    const uint8_t *bytes;
    uint32_t size;

    *document = entry->waiting;
    if (entry->waiting)
        return TRUCE_OK;
    if (!entry->array)
        return truce_cursor_next(entry->cursor, document, error);
    if (bson_iter_next(&entry->at)) {
        bson_iter_document(&entry->at, &size, &bytes);
        (void)bson_init_static(view, bytes, size);
        *document = view;
    }
    return TRUCE_OK;
}

/* Returns whether the entry is known to be at its end. The end of a store's cursor is known only
 * after a further read. */
static bool cursor_entry_is_read(const struct cursor_entry *entry)
{
    bson_iter_t ahead = entry->at;

    return entry->array && !entry->waiting && !bson_iter_next(&ahead);
}

truce_status cursor_entry_read(struct cursor_entry *entry, int64_t most, bson_t *batch, bool *end,
                               bson_error_t *error)
{
    char buffer[16];
    const char *key;

    *end = false;
    for (uint32_t i = 0; most < 0 || i < most; i++) {
        const bson_t *document;
        bson_t view;
        truce_status status = cursor_entry_next(entry, &view, &document, error);

        if (status)
            return status;
        if (!document) {
            *end = true;
            return TRUCE_OK;
        }
        if (i && batch->len + document->len > TRUCE_DOCUMENT_BYTES_MAX) {
            if (!entry->waiting)
                entry->waiting = bson_copy(document);
            return TRUCE_OK;
        }
        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT(batch, key, document);
        if (entry->waiting)
            bson_destroy(entry->waiting);
        entry->waiting = NULL;
    }
    *end = cursor_entry_is_read(entry);
    return TRUCE_OK;
}

void cursor_entry_close(struct cursor_entry *entry)
{
    truce_cursor_close(entry->cursor);
    if (entry->snapshot)
        snapshot_registry_release(entry->snapshots, entry->snapshot);
    if (entry->array)
        bson_destroy(entry->array);
    change_stream_free(entry->stream);
    if (entry->waiting)
        bson_destroy(entry->waiting);
    bson_free(entry->user);
    bson_free(entry->ns);
    bson_free(entry);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int cursors_find(const struct cursor_registry *cursors, int64_t id)
{
    int i = 0;

    while (i < cursors->count && cursors->all[i]->id != id)
        i++;
    return i;
}

truce_status cursors_add(struct cursor_registry *cursors, struct cursor_entry *entry,
                         bson_error_t *error)
{
    bool full;

    entry->idle_since_ns = truce__clock_monotonic_ns();
    pthread_mutex_lock(&cursors->mutex);
    /* A cursor that a call had taken returns, although others may have filled its place. */
    full = !entry->id && cursors->count >= cursors->most;
    /* The id is random, so that clients cannot guess it, and positive, because some clients print
     * it. */
    while (!full && !entry->id) {
        int64_t id = (int64_t)(truce__random_next(&cursors->random) >> 1);

        if (cursors_find(cursors, id) == cursors->count)
            entry->id = id;
    }
    if (!full && cursors->count == cursors->room) {
        cursors->room *= 2;
        cursors->all = bson_realloc(cursors->all, (size_t)cursors->room * sizeof *cursors->all);
    }
    if (!full)
        cursors->all[cursors->count++] = entry;
    pthread_mutex_unlock(&cursors->mutex);
    if (!full)
        return TRUCE_OK;
    cursor_entry_close(entry);
    return truce__fail(
        TRUCE_LIMIT, error,
        "%d cursors are open, which is the maximum; read cursors to their end or close "
        "them",
        cursors->most);
}

static struct cursor_entry *cursors_remove(struct cursor_registry *cursors, int i)
{
    struct cursor_entry *entry = cursors->all[i];

    cursors->all[i] = cursors->all[--cursors->count];
    return entry;
}

struct cursor_entry *cursors_take(struct cursor_registry *cursors, int64_t id, const char *ns,
                                  int64_t owner, const char *user)
{
    struct cursor_entry *entry = NULL;
    int i;

    pthread_mutex_lock(&cursors->mutex);
    i = cursors_find(cursors, id);
    if (i < cursors->count && !strcmp(cursors->all[i]->ns, ns) && cursors->all[i]->owner == owner &&
        !strcmp(cursors->all[i]->user, user))
        entry = cursors_remove(cursors, i);
    pthread_mutex_unlock(&cursors->mutex);
    return entry;
}

void cursors_wait_begin(struct cursor_registry *cursors, struct cursor_entry *entry)
{
    pthread_mutex_lock(&cursors->mutex);
    entry->killed = false;
    entry->next_waiting = cursors->waits;
    cursors->waits = entry;
    pthread_mutex_unlock(&cursors->mutex);
}

void cursors_wait_end(struct cursor_registry *cursors, struct cursor_entry *entry)
{
    struct cursor_entry **at = &cursors->waits;

    pthread_mutex_lock(&cursors->mutex);
    while (*at != entry)
        at = &(*at)->next_waiting;
    *at = entry->next_waiting;
    pthread_mutex_unlock(&cursors->mutex);
}

bool cursors_is_killed(struct cursor_registry *cursors, const struct cursor_entry *entry)
{
    bool killed;

    pthread_mutex_lock(&cursors->mutex);
    killed = entry->killed;
    pthread_mutex_unlock(&cursors->mutex);
    return killed;
}

bool cursors_kill(struct cursor_registry *cursors, int64_t id, const char *ns, const char *user)
{
    struct cursor_entry *entry;

    pthread_mutex_lock(&cursors->mutex);
    entry = cursors->waits;
    while (entry &&
           (entry->id != id || strcmp(entry->ns, ns) != 0 || strcmp(entry->user, user) != 0))
        entry = entry->next_waiting;
    if (entry)
        entry->killed = true;
    pthread_mutex_unlock(&cursors->mutex);
    return entry != NULL;
}

char *cursors_namespace(struct cursor_registry *cursors, int64_t id)
{
    char *ns;
    int i;

    pthread_mutex_lock(&cursors->mutex);
    i = cursors_find(cursors, id);
    ns = i < cursors->count ? bson_strdup(cursors->all[i]->ns) : NULL;
    pthread_mutex_unlock(&cursors->mutex);
    return ns;
}

bool cursors_is_of(struct cursor_registry *cursors, int64_t id, const char *user)
{
    bool is;
    int i;

    pthread_mutex_lock(&cursors->mutex);
    i = cursors_find(cursors, id);
    is = i == cursors->count || !strcmp(cursors->all[i]->user, user);
    pthread_mutex_unlock(&cursors->mutex);
    return is;
}

/* Closes the entries that have been idle since `before_ns`. If `owner` is not 0, closes only those
 * of this owner. */
static void cursors_close_all(struct cursor_registry *cursors, int64_t before_ns, int64_t owner)
{
    struct cursor_entry *old;

    do {
        old = NULL;
        pthread_mutex_lock(&cursors->mutex);
        for (int i = 0; i < cursors->count && !old; i++)
            if (cursors->all[i]->idle_since_ns < before_ns &&
                (!owner || cursors->all[i]->owner == owner))
                old = cursors_remove(cursors, i);
        pthread_mutex_unlock(&cursors->mutex);
        if (old)
            cursor_entry_close(old);
    } while (old);
}

void cursors_close_owned(struct cursor_registry *cursors, int64_t owner)
{
    cursors_close_all(cursors, INT64_MAX, owner);
}

void cursors_expire(struct cursor_registry *cursors, int64_t idle_ms)
{
    cursors_close_all(cursors, truce__clock_monotonic_ns() - idle_ms * 1000000, 0);
}

int64_t cursors_bytes(struct cursor_registry *cursors)
{
    int64_t bytes = 0;

    pthread_mutex_lock(&cursors->mutex);
    for (int i = 0; i < cursors->count; i++)
        bytes += cursors->all[i]->array ? cursors->all[i]->array->len : 0;
    pthread_mutex_unlock(&cursors->mutex);
    return bytes;
}

int cursors_count(struct cursor_registry *cursors)
{
    int count;

    pthread_mutex_lock(&cursors->mutex);
    count = cursors->count;
    pthread_mutex_unlock(&cursors->mutex);
    return count;
}
