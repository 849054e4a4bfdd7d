/* Notifications wake sleeping threads. No thread sleeps for its whole timeout because a writer
 * assumed that no thread sleeps. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "tests/support/test.h"
#include "truce/store.h"

#define WAITS 8

static truce_store *store;

static bool open_store(void)
{
    char path[400];
    bson_error_t error;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    return CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
}

static void insert(const char *collection, int id)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(id));
    bson_error_t error;

    CHECK_OK(truce_insert(store, collection, document, NULL, &error), error);
    bson_destroy(document);
}

static int64_t now_ms(void)
{
    return truce__clock_monotonic_ns() / 1000000;
}

struct waiter {
    atomic_int woken; /* times */
    atomic_llong last_ms;
};

static void *wait_often(void *arg)
{
    struct waiter *waiter = arg;
    bson_error_t error;
    uint64_t token = 0;

    CHECK_OK(truce_wait(store, "watched", &token, 0, &error), error);
    atomic_store(&waiter->woken, 1);
    for (int i = 0; i < WAITS; i++) {
        CHECK_OK(truce_wait(store, "watched", &token, 10000, &error), error);
        atomic_store(&waiter->last_ms, now_ms());
        atomic_fetch_add(&waiter->woken, 1);
    }
    return NULL;
}

static void await(struct waiter *waiter, int woken)
{
    while (atomic_load(&waiter->woken) < woken)
        truce__clock_sleep_ms(1);
}

/* A thread that has waited for half a second sleeps a quarter of a second at a time. */
TEST(wakes_a_waiting_thread_at_once)
{
    struct waiter waiter = {0};
    int64_t late_ms = 0;
    pthread_t thread;

    if (!open_store())
        return;
    CHECK_INT(pthread_create(&thread, NULL, wait_often, &waiter), ==, 0);
    for (int i = 0; i < WAITS; i++) {
        int64_t written_ms;

        await(&waiter, i + 1);
        truce__clock_sleep_ms(500 + 30 * i);
        written_ms = now_ms();
        insert("watched", i);
        await(&waiter, i + 2);
        late_ms += atomic_load(&waiter.last_ms) - written_ms;
    }
    pthread_join(thread, NULL);
    CHECK_INT(late_ms, <, WAITS * 40);
    truce_store_close(store);
}
