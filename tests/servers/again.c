/*
 * The mongodb:// store, and with it libmongoc, at a server that is killed.
 * If an answer is lost, libmongoc sends the write once more, and the server does it once. An
 * unknown outcome (TRUCE_UNKNOWN) may be done or not.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "tests/support/server.h"

enum { WORKERS = 4, BETWEEN = 5 };

static truce_store *store;
static atomic_bool stop;

struct worker {
    pthread_t thread;
    int number;
    atomic_int done, unknown;
};

static bson_t *named(const struct worker *worker)
{
    return BCON_NEW("_id", BCON_INT32(worker->number));
}

static truce_status add_one(const struct worker *worker, bson_error_t *error)
{
    bson_t *filter = named(worker), *update = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    truce_write_result result;
    truce_status status;
    bson_t document;

    if (worker->number % 2) {
        status = truce_update(store, "counters", filter, update, NULL, &result, error);
        if (!status)
            CHECK_INT(result.modified, ==, 1);
    } else {
        status = truce_find_and_modify(store, "counters", filter, update, NULL, &document, &result,
                                       error);
        bson_destroy(&document);
    }
    truce_write_result_release(&result);
    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    bson_error_t error = {0};

    while (!atomic_load(&stop)) {
        truce_status status = add_one(worker, &error);

        if (status == TRUCE_UNKNOWN)
            atomic_fetch_add(&worker->unknown, 1);
        else if (!status)
            atomic_fetch_add(&worker->done, 1);
        else if (status != TRUCE_IO && status != TRUCE_TIMEOUT) /* nothing was sent */
            CHECK_OK(status, error);
    }
    return NULL;
}

/* Waits until each has done so many more. */
static void wait_for_all(struct worker *workers)
{
    for (int i = 0; i < WORKERS; i++) {
        int until = atomic_load(&workers[i].done) + BETWEEN;

        while (atomic_load(&workers[i].done) < until && !test_failures())
            truce__clock_sleep_ms(10);
    }
}

static int64_t count_of(const struct worker *worker)
{
    bson_t *filter = named(worker), document;
    bson_error_t error = {0};
    bson_iter_t iter;
    int64_t n = -1;

    CHECK_OK(truce_find_one(store, "counters", filter, NULL, &document, &error), error);
    if (bson_iter_init_find(&iter, &document, "n"))
        n = bson_iter_as_int64(&iter);
    bson_destroy(&document);
    bson_destroy(filter);
    return n;
}

TEST(counters_are_right_however_often_the_server_is_killed)
{
    long kills = test_scale("TRUCE_SERVE_KILLS", 2);
    struct worker workers[WORKERS] = {0};
    bson_error_t error = {0};
    int unknown = 0;

    store = server_store();
    REQUIRE(store);
    for (int i = 0; i < WORKERS; i++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(i), "n", BCON_INT32(0));

        CHECK_OK(truce_insert(store, "counters", document, NULL, &error), error);
        bson_destroy(document);
        workers[i].number = i;
        REQUIRE(!pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    }
    for (long i = 0; i < kills; i++) {
        wait_for_all(workers);
        CHECK(server_kill());
    }
    wait_for_all(workers);
    atomic_store(&stop, true);
    for (int i = 0; i < WORKERS; i++) {
        int64_t n;

        pthread_join(workers[i].thread, NULL);
        n = count_of(&workers[i]);
        CHECK_INT(n, >=, workers[i].done);
        CHECK_INT(n, <=, workers[i].done + workers[i].unknown);
        unknown += workers[i].unknown;
    }
    printf("    %ld kills, %d writes with an unknown outcome\n", kills, unknown);
    truce_store_close(store);
}
