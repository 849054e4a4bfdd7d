/* Checks the promised numbers of round trips of the patterns' operations. */
#include <string.h>

#include "base/clock.h"
#include "bench/operations.h"
#include "tests/support/server.h"
#include "truce/sys/decorate.h"

#define TRIES   20
#define SLOW_MS 400 /* for the nine times that an operation is done in */

/* Work that is done once in so many ms comes on top (a claim looks for delayed jobs every 50
 * ms): the promise is kept if it is kept at one of several tries. If each operation takes that
 * long, the test can see nothing. */
static void hold_promise(struct bench_place *place, const struct bench_operation *operation)
{
    bson_error_t error = {0};
    int trips = 0, before = test_failures();
    int64_t took_ms = 0;

    if (!operation->most || !bench_operation_possible(place, operation))
        return;
    for (int i = 0; i < TRIES && (!trips || trips > operation->most); i++) {
        int64_t begun_ns = truce__clock_monotonic_ns();

        if (!CHECK_OK(bench_operation_trips(place, operation, &trips, &error), error))
            break;
        took_ms = (truce__clock_monotonic_ns() - begun_ns) / 1000000;
    }
    CHECK_INT(trips, >, 0);
    if (trips > operation->most && took_ms > SLOW_MS)
        printf("%s: not judged, nine took %d ms\n", operation->name, (int)took_ms);
    else
        CHECK_INT(trips, <=, operation->most);
    if (test_failures() > before)
        fprintf(stderr, "    (%s)\n", operation->name);
}

static void hold_promises(const char *pattern)
{
    truce_store *store = server_store();
    bson_error_t error = {0};
    struct bench_place *place;

    REQUIRE(store != NULL);
    place = bench_place_new(store, &error);
    if (!CHECK_OK(place == NULL, error))
        return;
    for (const struct bench_operation *one = bench_operations; one->name; one++)
        if (!strncmp(one->name, pattern, strlen(pattern)))
            hold_promise(place, one);
    bench_place_free(place);
    truce_store_close(store);
}

TEST(an_operation_of_a_set_is_one_round_trip)
{
    hold_promises("set");
    hold_promises("sequence");
}

TEST(a_change_of_items_is_one_round_trip)
{
    hold_promises("item");
}

TEST(a_save_of_a_revision_is_one_round_trip)
{
    hold_promises("revision");
}

TEST(takes_n_plus_4_round_trips_by_journal_and_n_plus_2_natively)
{
    hold_promises("commit");
}

TEST(takes_the_promised_round_trips_for_each_pattern)
{
    hold_promises("queue");
    hold_promises("ledger");
    hold_promises("transfer");
    hold_promises("sync");
    hold_promises("tree");
}

TEST(a_decorator_reports_the_round_trips_of_its_inner_store)
{
    truce_store *store = server_store();
    truce_store_counters direct, wrapped;
    bson_error_t error = {0};
    truce_store *fault;
    int64_t count;

    REQUIRE(store != NULL);
    fault = truce_fault_wrap(store, &(truce_fault_options){0});
    CHECK_OK(truce_count(fault, "things", NULL, NULL, &count, &error), error);
    truce_store_count(store, &direct);
    truce_store_count(fault, &wrapped);
    CHECK_INT(direct.round_trips, >, 0);
    CHECK_INT(direct.round_trips, ==, wrapped.round_trips);
    truce_store_close(fault);
}

TEST(a_store_without_a_server_makes_no_round_trips)
{
    truce_store_counters counters = {.round_trips = 1};
    truce_store *store = NULL;
    bson_error_t error = {0};
    int64_t count;

    if (!CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error))
        return;
    CHECK_OK(truce_count(store, "things", NULL, NULL, &count, &error), error);
    truce_store_count(store, &counters);
    CHECK_INT(counters.round_trips, ==, 0);
    truce_store_close(store);
}
