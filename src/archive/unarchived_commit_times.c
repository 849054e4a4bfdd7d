/* See unarchived_commit_times.h. */
#include "archive/unarchived_commit_times.h"

#include <bson/bson.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/futex.h"
#include "base/thread.h"

/* The milliseconds between two copies. The shared page has room for the times of about a second. */
#define COPY_MS 100
/* The maximum number of times in memory, 24 MB. If there are more, the oldest half is dropped. */
#define TIMES_MAX (1 << 20)

struct commit_times {
    const struct lock *lock;
    pthread_t thread;
    /* A futex that is set to end the thread. */
    atomic_uint stop;
    /* Guards the fields below. */
    pthread_mutex_t mutex;
    struct commit_time *all;
    size_t count, room;
};

/* Appends a time. Called under the mutex. If there is no room, the older half is dropped. */
static void times_append(struct commit_times *times, const struct commit_time *time)
{
    const struct commit_time *last = times->count ? &times->all[times->count - 1] : NULL;

    /* After a power cut the page can have any value, so a time that is out of order is ignored. */
    if (last && last->salts == time->salts && last->frame > time->frame)
        return;
    if (times->count == TIMES_MAX) {
        times->count = TIMES_MAX / 2;
        memmove(times->all, times->all + TIMES_MAX / 2, times->count * sizeof *times->all);
    }
    if (times->count == times->room) {
        times->room = times->room ? times->room * 2 : COMMIT_TIMES;
        times->all = bson_realloc(times->all, times->room * sizeof *times->all);
    }
    times->all[times->count++] = *time;
}

/* Returns the number of the first entry that is newer than the last entry in memory. */
static size_t times_first_new(const struct commit_times *times, const struct commit_time *found,
                              size_t count)
{
    const struct commit_time *last = times->count ? &times->all[times->count - 1] : NULL;

    for (size_t i = count; last && i--;) {
        if (found[i].salts == last->salts && found[i].frame <= last->frame)
            return i + 1;
    }
    for (size_t i = 0; last && i < count; i++) {
        if (found[i].salts == last->salts)
            return i;
    }
    return 0;
}

/* Copies the new entries. Called under the mutex. */
static void times_copy(struct commit_times *times)
{
    struct commit_time found[COMMIT_TIMES];
    size_t count = truce__archive_commit_times(times->lock, found);
    size_t at = times_first_new(times, found, count);
    struct commit_time *last = times->count ? &times->all[times->count - 1] : NULL;

    /* If a commit has failed, the next one has the same frame. Its time replaces the first one. */
    if (last && at && found[at - 1].frame == last->frame)
        last->time_ms = found[at - 1].time_ms;
    for (; at < count; at++)
        times_append(times, &found[at]);
}

static void *times_run(void *arg)
{
    struct commit_times *times = arg;

    while (!atomic_load(&times->stop)) {
        pthread_mutex_lock(&times->mutex);
        times_copy(times);
        pthread_mutex_unlock(&times->mutex);
        truce__futex_wait(&times->stop, 0, COPY_MS * INT64_C(1000000));
    }
    return NULL;
}

struct commit_times *truce__commit_times_begin(const struct lock *lock)
{
    struct commit_times *times = bson_malloc0(sizeof *times);

    times->lock = lock;
    pthread_mutex_init(&times->mutex, NULL);
    if (truce__thread_start(&times->thread, times_run, times))
        return times;
    pthread_mutex_destroy(&times->mutex);
    bson_free(times);
    return NULL;
}

void truce__commit_times_end(struct commit_times *times)
{
    if (!times)
        return;
    atomic_store(&times->stop, 1);
    truce__futex_wake(&times->stop, 1);
    pthread_join(times->thread, NULL);
    pthread_mutex_destroy(&times->mutex);
    bson_free(times->all);
    bson_free(times);
}

const struct commit_time *truce__commit_times_after(struct commit_times *times, uint64_t salts,
                                                    uint32_t after, size_t *count)
{
    size_t first = 0, end;

    pthread_mutex_lock(&times->mutex);
    times_copy(times);
    while (first < times->count &&
           (times->all[first].salts != salts || times->all[first].frame <= after))
        first++;
    for (end = first; end < times->count && times->all[end].salts == salts;)
        end++;
    *count = end - first;
    if (first < times->count) {
        times->count -= first;
        memmove(times->all, times->all + first, times->count * sizeof *times->all);
    }
    return times->all;
}

void truce__commit_times_release(struct commit_times *times)
{
    pthread_mutex_unlock(&times->mutex);
}
