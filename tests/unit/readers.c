/* Which connection a reader gets. */
#include "engine/readers.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "engine/documents/document_store.h"
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

static void *read_once(void *arg)
{
    struct reader *reader = begin_read();

    (void)arg;
    if (reader)
        truce__readers_end(&engine->readers, reader);
    return NULL;
}

TEST(threads_that_read_one_after_the_other_share_the_connections_of_their_processors)
{
    long processors = sysconf(_SC_NPROCESSORS_CONF);

    REQUIRE(begin());
    for (int i = 0; i < READERS_MAX; i++) {
        pthread_t thread;

        CHECK(pthread_create(&thread, NULL, read_once, NULL) == 0);
        pthread_join(thread, NULL);
    }
    CHECK_INT((int)atomic_load(&engine->readers.opened), >, 0);
    if (processors < READERS_MAX / 2)
        CHECK_INT((int)atomic_load(&engine->readers.opened), <=, processors);
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
    CHECK_INT((int)atomic_load(&engine->readers.opened), ==, READERS_MAX);
    truce__engine_close(engine);
}

/* As many reads at once as there are processors, all on this one. */
static void read_beside_each_other_on(int processor)
{
    struct reader *all[READERS_MAX];
    unsigned count = engine->readers.processors;
    cpu_set_t here;

    CPU_ZERO(&here);
    CPU_SET((size_t)processor, &here);
    CHECK(!sched_setaffinity(0, sizeof here, &here));
    for (unsigned i = 0; i < count; i++)
        all[i] = begin_read();
    for (unsigned i = 0; i < count; i++)
        truce__readers_end(&engine->readers, all[i]);
}

TEST(there_are_as_many_connections_as_there_were_reads_at_once_on_whatever_processors)
{
    cpu_set_t before;

    REQUIRE(begin());
    CHECK(!sched_getaffinity(0, sizeof before, &before));
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET((size_t)i, &before))
            read_beside_each_other_on(i);
    }
    CHECK(!sched_setaffinity(0, sizeof before, &before));
    CHECK_INT((int)atomic_load(&engine->readers.opened), ==, (int)engine->readers.processors);
    truce__engine_close(engine);
}
