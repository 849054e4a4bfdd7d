#include "operations/shared_handles.h"

#include <bson/bson.h>
#include <pthread.h>
#include <string.h>

#include "base/limits.h"

struct handles {
    /* Guards the fields below, and the links, users, and uses of the handles. */
    pthread_mutex_t mutex;
    /* The list of the handles with a key, `count` of them. */
    struct handle *first;
    int count;
    /* The number of uses of all handles, which orders them by their last use. */
    uint64_t clock;
};

struct handles *handles_new(void)
{
    struct handles *handles = bson_malloc0(sizeof *handles);

    pthread_mutex_init(&handles->mutex, NULL);
    return handles;
}

static void handles_end(struct handles *handles, struct handle *handle)
{
    handle->free(handle->thing);
    if (handle->under)
        handles_return(handles, handle->under);
    bson_free(handle->key);
    bson_free(handle);
}

void handles_free(struct handles *handles)
{
    while (handles->first) {
        struct handle *gone = handles->first;

        handles->first = gone->next;
        handles_end(handles, gone);
    }
    pthread_mutex_destroy(&handles->mutex);
    bson_free(handles);
}

static struct handle *handles_find(const struct handles *handles, const char *key)
{
    struct handle *at = handles->first;

    while (at && strcmp(at->key, key) != 0)
        at = at->next;
    return at;
}

/* Removes the least recently used idle handle from the list. Returns NULL if all handles are in
 * use. */
static struct handle *handles_take_out_idle(struct handles *handles)
{
    struct handle **oldest = NULL, *gone;

    for (struct handle **at = &handles->first; *at; at = &(*at)->next)
        if (!(*at)->users && (!oldest || (*at)->used < (*oldest)->used))
            oldest = at;
    if (!oldest)
        return NULL;
    gone = *oldest;
    *oldest = gone->next;
    handles->count--;
    return gone;
}

/* Adds the handle to the list if there is room. Sets *gone to an idle handle that was removed to
 * make room. The caller frees it after it has released the mutex. */
static void handles_enter(struct handles *handles, struct handle *handle, const char *key,
                          struct handle **gone)
{
    if (handles->count == TRUCE_SERVER_HANDLES_MAX)
        *gone = handles_take_out_idle(handles);
    if (handles->count == TRUCE_SERVER_HANDLES_MAX)
        return;
    handle->key = bson_strdup(key);
    handle->next = handles->first;
    handles->first = handle;
    handles->count++;
}

struct handle *handles_take(struct handles *handles, const char *key, handle_maker *make, void *arg,
                            void (*free)(void *thing), struct handle *under)
{
    struct handle *handle, *gone = NULL;

    pthread_mutex_lock(&handles->mutex);
    handle = key ? handles_find(handles, key) : NULL;
    if (!handle) {
        handle = bson_malloc0(sizeof *handle);
        handle->thing = make(arg);
        handle->free = free;
        handle->under = under;
        if (under)
            under->users++;
        if (key)
            handles_enter(handles, handle, key, &gone);
    }
    handle->users++;
    handle->used = ++handles->clock;
    pthread_mutex_unlock(&handles->mutex);
    if (gone)
        handles_end(handles, gone);
    return handle;
}

void handles_return(struct handles *handles, struct handle *handle)
{
    bool own;

    pthread_mutex_lock(&handles->mutex);
    handle->users--;
    own = !handle->key && !handle->users;
    pthread_mutex_unlock(&handles->mutex);
    if (own)
        handles_end(handles, handle);
}
