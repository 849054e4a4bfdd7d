/* Which connection a reader gets, and when connections rest. */
#include "engine/reader_pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "engine/documents/open_documents.h"
#include "tests/support/open_lock.h"
#include "tests/support/processor.h"
#include "tests/support/resting.h"
#include "tests/support/test.h"

static struct engine *engine;

static bool begin(void)
{
    const truce_store_options options = {0};
    bson_error_t error;
    char path[400];

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    return CHECK_OK(truce__engine_open(path, &options, &engine, &error), error);
}

static struct reader *begin_read(void)
{
    struct reader *reader = NULL;
    bson_error_t error;

    CHECK_OK(truce__readers_begin(&engine->readers, false, &reader, &error), error);
    return reader;
}

/* Returns how many slots have a connection. */
static int opened(void)
{
    int count = 0;

    for (int i = 0; i < READERS_MAX; i++)
        count += engine->readers.all[i].kv != NULL;
    return count;
}

static void *read_once(void *arg)
{
    struct reader *reader = begin_read();

    (void)arg;
    if (reader)
        truce__readers_end(&engine->readers, reader);
    return NULL;
}

TEST(shares_connections_among_threads_that_read_alternately)
{
    long processors = sysconf(_SC_NPROCESSORS_CONF);

    REQUIRE(begin());
    for (int i = 0; i < READERS_MAX; i++) {
        pthread_t thread;

        CHECK(pthread_create(&thread, NULL, read_once, NULL) == 0);
        pthread_join(thread, NULL);
    }
    CHECK_INT(opened(), >, 0);
    if (processors < READERS_MAX / 2)
        CHECK_INT(opened(), <=, processors);
    truce__engine_close(engine);
}

TEST(uses_connections_of_other_processors_if_its_own_are_taken)
{
    struct reader *all[READERS_MAX];

    REQUIRE(begin());
    for (int i = 0; i < READERS_MAX; i++) {
        all[i] = begin_read();
        REQUIRE(all[i] != NULL);
        for (int j = 0; j < i; j++)
            CHECK(all[i] != all[j]);
    }
    for (int i = 0; i < READERS_MAX; i++)
        truce__readers_end(&engine->readers, all[i]);
    CHECK_INT(opened(), ==, READERS_MAX);
    truce__engine_close(engine);
}

/* As many reads at once as there are processors, all on this one. */
static void read_beside_each_other_on(int processor)
{
    struct reader *all[READERS_MAX];
    unsigned count = engine->readers.processors;

    processor_use(processor);
    for (unsigned i = 0; i < count; i++)
        all[i] = begin_read();
    for (unsigned i = 0; i < count; i++)
        truce__readers_end(&engine->readers, all[i]);
}

TEST(opens_as_many_connections_as_concurrent_reads)
{
    cpu_set_t before;

    REQUIRE(begin());
    CHECK(!sched_getaffinity(0, sizeof before, &before));
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET((size_t)i, &before))
            read_beside_each_other_on(i);
    }
    CHECK(!sched_setaffinity(0, sizeof before, &before));
    CHECK_INT(opened(), ==, (int)engine->readers.processors);
    truce__engine_close(engine);
}

/* ---- connections that rest ------------------------------------------------------------------ */

/* Returns whether reads have become frequent. */
static bool read_and_rest(int times)
{
    bool frequent = false;

    for (int i = 0; i < times; i++) {
        struct reader *reader = begin_read();

        frequent = (reader && truce__readers_rest(&engine->readers, reader)) || frequent;
    }
    return frequent;
}

TEST(connections_rest_between_frequent_reads_until_the_next_tick)
{
    processor_stay();
    REQUIRE(begin());
    CHECK(!read_and_rest(1));
    CHECK(!truce__readers_tick(&engine->readers));
    CHECK(!any_rests(engine));
    CHECK(read_and_rest(200));
    CHECK(!any_rests(engine));
    CHECK(!read_and_rest(200)); /* it was reported already */
    CHECK(truce__readers_tick(&engine->readers));
    CHECK(!read_and_rest(1));
    CHECK(any_rests(engine));
    CHECK(read_and_rest(200));
    CHECK(truce__readers_tick(&engine->readers));
    CHECK(!any_rests(engine));
    CHECK(!read_and_rest(1));
    CHECK(any_rests(engine));
    CHECK(truce__readers_tick(&engine->readers)); /* reads are rare now */
    CHECK(!any_rests(engine));
    CHECK(!read_and_rest(1));
    CHECK(!any_rests(engine));
    CHECK(!truce__readers_tick(&engine->readers));
    truce__engine_close(engine);
}

TEST(lets_no_connection_rest_while_the_gate_is_closed)
{
    processor_stay();
    REQUIRE(begin());
    read_and_rest(200);
    CHECK(truce__readers_tick(&engine->readers));
    read_and_rest(1);
    CHECK(any_rests(engine));
    truce__readers_moving(&engine->readers);
    CHECK(!any_rests(engine));
    read_and_rest(1);
    CHECK(!any_rests(engine));
    truce__readers_moved(&engine->readers);
    read_and_rest(1);
    CHECK(any_rests(engine));
    CHECK(truce__readers_close_gate(&engine->readers, INT64_MAX));
    CHECK(!any_rests(engine));
    truce__readers_open_gate(&engine->readers);
    read_and_rest(1);
    CHECK(any_rests(engine));
    truce__engine_close(engine);
}

TEST(no_connection_rests_while_another_process_has_the_store_open)
{
    bson_error_t error;
    struct lock other;

    processor_stay();
    REQUIRE(begin());
    read_and_rest(200);
    CHECK(truce__readers_tick(&engine->readers));
    read_and_rest(200);
    CHECK(any_rests(engine));
    REQUIRE(CHECK_OK(open_lock(engine->path, &other, &error), error));
    CHECK(truce__readers_tick(&engine->readers));
    read_and_rest(200);
    CHECK(!any_rests(engine));
    truce__lock_close(&other);
    CHECK(truce__readers_tick(&engine->readers));
    read_and_rest(1);
    CHECK(any_rests(engine));
    truce__engine_close(engine);
}

/* The thread of the engine ends the snapshots. */
TEST(no_connection_rests_for_long_without_reads)
{
    REQUIRE(begin());
    REQUIRE(read_until_one_rests(engine));
    while (any_rests(engine))
        truce__clock_sleep_ms(10);
    truce__engine_close(engine);
}
