/* A collection that another client drops or empties: the next operations of a handle make its
 * indexes and definitions again. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/support/server.h"
#include "truce/command.h"
#include "truce/queue.h"

/* A handle reads everything again after a minute in any case. */
#define NOTICED_MS 40000

static uint32_t count_indexes(truce_store *store)
{
    bson_t indexes;
    uint32_t count =
        truce_index_list(store, "truce_queue", &indexes, NULL) ? 0 : bson_count_keys(&indexes);

    bson_destroy(&indexes);
    return count;
}

static void add_job(truce_queue *queue)
{
    bson_t payload = BSON_INITIALIZER;
    bson_error_t error;

    CHECK_OK(truce_queue_add(queue, NULL, &payload, NULL, NULL, &error), error);
}

TEST(rebuilds_indexes_of_a_collection_dropped_by_another_client)
{
    truce_store *store = server_store(), *other = NULL;
    const char *name = getenv("TRUCE_TEST_SERVER");
    int64_t begun_ns;
    truce_queue *queue;
    bson_error_t error;
    uint32_t indexes;
    char uri[600];

    REQUIRE(store != NULL);
    if (name && !strcmp(name, "java")) {
        test_skip("the server has no UUIDs of collections");
        return;
    }
    CHECK_OK(truce_store_open(server_uri(uri, sizeof uri, ""), NULL, &other, &error), error);
    REQUIRE(other != NULL);
    queue = truce_queue_new(store, &(truce_queue_options){.queue = "mail"});
    add_job(queue);
    add_job(queue);
    indexes = count_indexes(other);
    CHECK_INT(indexes, >, 1);
    CHECK_OK(truce_collection_drop(other, "truce_queue", &error), error);
    begun_ns = truce__clock_monotonic_ns();
    do {
        add_job(queue);
        truce__clock_sleep_ms(50);
    } while (count_indexes(other) < indexes &&
             truce__clock_monotonic_ns() - begun_ns < NOTICED_MS * INT64_C(1000000));
    CHECK_INT(count_indexes(other), ==, indexes);
    truce_queue_free(queue);
    truce_store_close(other);
    truce_store_close(store);
}

static void run_operation(truce_store *store, const char *json)
{
    bson_t *request = test_bson(json), reply;
    bson_error_t error;

    CHECK_OK(truce_command(store, NULL, request, &reply, &error), error);
    bson_destroy(&reply);
    bson_destroy(request);
}

static int64_t count_sets(truce_store *store)
{
    bson_error_t error;
    int64_t count = 0;

    CHECK_OK(truce_count(store, "truce_sets", NULL, NULL, &count, &error), error);
    return count;
}

TEST(defines_a_set_again_whose_definition_another_client_removed)
{
    truce_store *store = server_store(), *other = NULL;
    bson_t all = BSON_INITIALIZER;
    int64_t begun_ns, seq = 1;
    bson_error_t error;
    char uri[600];

    REQUIRE(store != NULL);
    CHECK_OK(truce_store_open(server_uri(uri, sizeof uri, ""), NULL, &other, &error), error);
    REQUIRE(other != NULL);
    run_operation(store, "{'truceSet': 'students', 'key': {'student_id': 1}, 'field': 'classes', "
                         "'name': 'name', 'add': {'name': 'math'}, 'seq': 1}");
    CHECK_INT(count_sets(other), ==, 1);
    CHECK_OK(truce_remove(other, "truce_sets", &all, &(truce_write_options){.multi = true}, NULL,
                          &error),
             error);
    begun_ns = truce__clock_monotonic_ns();
    do {
        char *text = bson_strdup_printf(
            "{'truceSet': 'students', 'key': {'student_id': 1}, 'field': 'classes', 'name': 'name', "
            "'add': {'name': 'math'}, 'seq': %lld}",
            (long long)++seq);

        run_operation(store, text);
        bson_free(text);
        truce__clock_sleep_ms(50);
    } while (!count_sets(other) &&
             truce__clock_monotonic_ns() - begun_ns < NOTICED_MS * INT64_C(1000000));
    CHECK_INT(count_sets(other), ==, 1);
    truce_store_close(other);
    truce_store_close(store);
}
