/* Waits for changes on servers: by their change streams if they have them, through streams that
 * break, while threads come and go, and by polling elsewhere. */
#include <pthread.h>

#include "base/clock.h"
#include "store/mongodb/mongo.h"
#include "tests/support/bank.h"
#include "tests/support/server.h"
#include "tests/support/wire.h"

/* The second wait without a change that takes so long shows that it sleeps: a poll would have
 * ended it. */
#define LONG_MS 700

static void change(truce_store *store)
{
    insert_json(store, "things", "{}");
}

/* Waits until a wait without a change ends by its time only. False: none does. */
static bool falls_asleep(truce_store *store, uint64_t *token)
{
    bson_error_t error;

    for (int i = 0; i < 60; i++) {
        truce_status status = truce_wait(store, "things", token, LONG_MS, &error);

        if (status == TRUCE_TIMEOUT)
            return true;
        if (!CHECK_OK(status, error))
            return false;
    }
    return false;
}

static bool has_streams(truce_store *store)
{
    if (!(store->capabilities & TRUCE_CAN_WAIT))
        test_skip("the server has no change streams");
    return store->capabilities & TRUCE_CAN_WAIT;
}

static const truce_store idle = {0};

TEST(a_waiting_caller_sleeps_until_another_handle_writes)
{
    truce_store *writer = server_store(), *store = NULL;
    uint64_t token = 0, others = 0;
    bson_error_t error;
    char uri[600];

    REQUIRE(writer != NULL);
    CHECK_OK(truce_store_open(server_uri(uri, sizeof(uri), ""), NULL, &store, &error), error);
    REQUIRE(store != NULL);
    if (has_streams(store)) {
        CHECK(falls_asleep(store, &token));
        for (int i = 0; i < 5; i++) {
            change(writer);
            CHECK_OK(truce_wait(store, "things", &token, 60000, &error), error);
        }
        CHECK(falls_asleep(store, &token));
        CHECK_OK(truce_wait(store, "others", &others, 0, &error), error);
        CHECK_OK(truce_collection_rename(writer, "things", "others", true, &error), error);
        CHECK_OK(truce_wait(store, "things", &token, 60000, &error), error);
        CHECK_OK(truce_wait(store, "others", &others, 60000, &error), error);
        change(writer);
        CHECK_OK(truce_wait(store, "things", &token, 60000, &error), error);
        CHECK_OK(truce_collection_drop(writer, "things", &error), error);
        CHECK_OK(truce_wait(store, "things", &token, 60000, &error), error);
    }
    truce_store_close(store);
    truce_store_close(writer);
}

/* ---- streams that break --------------------------------------------------------------------- */

TEST(resumes_a_broken_stream_without_missing_a_change)
{
    static const struct {
        enum proxy_fault fault;
        enum proxy_direction direction;
    } ways[] = {{PROXY_CUT, TO_CLIENT}, {PROXY_HALF, TO_CLIENT}, {PROXY_CUT, TO_SERVER}};
    struct wire wire;
    uint64_t token = 0;
    bson_error_t error;

    if (wire_open(&wire) && has_streams(wire.through)) {
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
            CHECK(falls_asleep(wire.through, &token));
            proxy_arm(wire.proxy, ways[i].fault, ways[i].direction, 1);
            change(wire.direct); /* its event is the message that is corrupted, or comes after it */
            CHECK_OK(truce_wait(wire.through, "things", &token, 60000, &error), error);
            change(wire.direct);
            CHECK_OK(truce_wait(wire.through, "things", &token, 60000, &error), error);
        }
        CHECK(falls_asleep(wire.through, &token));
        CHECK(proxy_hit(wire.proxy));
    }
    wire_close(&wire);
}

/* The server does not answer any more: waits end by polling, and closing does not wait for it. */
TEST(a_silent_stream_delays_no_caller)
{
    struct wire wire;
    uint64_t token = 0;
    bson_error_t error;

    if (wire_open(&wire) && has_streams(wire.through)) {
        CHECK(falls_asleep(wire.through, &token));
        proxy_arm(wire.proxy, PROXY_HOLD, TO_CLIENT, 1);
        CHECK_OK(truce_wait(wire.through, "things", &token, 60000, &error), error);
        CHECK(proxy_holds(wire.proxy));
        truce_store_close(wire.through);
        wire.through = NULL;
        CHECK(proxy_holds(wire.proxy));
        proxy_let_go(wire.proxy);
    }
    wire_close(&wire);
}

TEST(a_listener_that_went_to_sleep_is_woken_by_the_next_wait)
{
    truce_store *store = server_store();
    _Atomic uint64_t structure = 0;
    struct mongo_listener *listener;
    mongoc_uri_t *parsed;
    uint64_t token = 0;
    bson_error_t error;
    char uri[600];

    REQUIRE(store != NULL);
    if (!has_streams(store))
        return;
    parsed = mongoc_uri_new(server_uri(uri, sizeof(uri), ""));
    listener = truce__mongo_listener_new(parsed, 50, &structure);
    CHECK_OK(truce__mongo_listener_wait(listener, &idle, "things", &token, 0, &error), error);
    for (int i = 0; i < 2; i++) {
        truce_status status = TRUCE_OK;

        for (int k = 0; k < 60 && !status; k++)
            status = truce__mongo_listener_wait(listener, &idle, "things", &token, LONG_MS, &error);
        CHECK_STATUS(TRUCE_TIMEOUT, status, error);
        /* the listener checks for waiting callers when the server answers */
        truce__clock_sleep_ms(1200);
        change(store);
        CHECK_OK(truce__mongo_listener_wait(listener, &idle, "things", &token, 60000, &error),
                 error);
    }
    truce__mongo_listener_close(listener);
    mongoc_uri_destroy(parsed);
    truce_store_close(store);
}

TEST(waits_for_an_unreachable_server_by_polling)
{
    mongoc_uri_t *uri = mongoc_uri_new("mongodb://127.0.0.1:9/x");
    _Atomic uint64_t structure = 0;
    struct mongo_listener *listener;
    uint64_t token = 0;
    bson_error_t error;

    CHECK_OK(truce__mongoc_load(NULL, &error), error);
    listener = truce__mongo_listener_new(uri, 60000, &structure);
    for (int i = 0; i < 4; i++)
        CHECK_OK(truce__mongo_listener_wait(listener, &idle, "things", &token, 60000, &error),
                 error);
    CHECK_STATUS(TRUCE_TIMEOUT,
                 truce__mongo_listener_wait(listener, &idle, "things", &token, 10, &error), error);
    truce__mongo_listener_close(listener);
    mongoc_uri_destroy(uri);
}

/* ---- threads -------------------------------------------------------------------------------- */

#define CHANGES 20

struct watcher {
    truce_store *store;
    const char *collection;
};

/* Waits until all changes are there: a missed change would be waited for forever. */
static void *watch(void *arg)
{
    const struct watcher *watcher = arg;
    uint64_t token = 0;
    bson_error_t error;

    do
        CHECK_OK(truce_wait(watcher->store, watcher->collection, &token, 60000, &error), error);
    while (!test_failures() && count_json(watcher->store, watcher->collection, "{}") < CHANGES);
    return NULL;
}

TEST(many_threads_wait_and_each_sees_the_last_change)
{
    static const char *const collections[] = {"things", "others", "more"};
    truce_store *store = server_store();
    struct watcher watchers[9];
    pthread_t threads[9];

    REQUIRE(store != NULL);
    for (int i = 0; i < 9; i++) {
        watchers[i] = (struct watcher){store, collections[i % 3]};
        CHECK(pthread_create(&threads[i], NULL, watch, &watchers[i]) == 0);
    }
    for (int i = 0; i < CHANGES * 3; i++)
        insert_json(store, collections[i % 3], "{}");
    for (int i = 0; i < 9; i++)
        pthread_join(threads[i], NULL);
    truce_store_close(store);
}

/* ---- without change streams ----------------------------------------------------------------- */

TEST(without_streams_waits_grow_longer_until_work_arrives)
{
    truce_store *store = server_store();
    int64_t begun_ns, waited_ms[7];
    uint64_t token = 0;
    bson_error_t error;

    REQUIRE(store != NULL);
    if (store->capabilities & TRUCE_CAN_WAIT) {
        test_skip("the server has change streams");
        return;
    }
    CHECK_OK(truce_wait(store, "things", &token, 0, &error), error);
    for (int i = 0; i < 7; i++) {
        begun_ns = truce__clock_monotonic_ns();
        CHECK_OK(truce_wait(store, "things", &token, 60000, &error), error);
        waited_ms[i] = (truce__clock_monotonic_ns() - begun_ns) / 1000000;
    }
    CHECK_INT(waited_ms[6], >=, 400);
    truce__clock_sleep_ms(600); /* more than the last wait */
    CHECK_OK(truce_wait(store, "things", &token, 0, &error), error);
    CHECK_OK(truce_wait(store, "things", &token, 250, &error), error); /* the shortest again */
}
