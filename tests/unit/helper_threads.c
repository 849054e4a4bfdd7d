/* Helper threads: which call gets one, and which gets none. */
#include "engine/helper_threads.h"

#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/support/processor.h"
#include "tests/support/test.h"
#include "truce/truce.h"

static sem_t begun, ended;

static void wait_for_the_end(void *arg)
{
    (void)arg;
    sem_post(&begun);
    sem_wait(&ended);
}

static void nothing(void *arg)
{
    ++*(int *)arg;
}

TEST(runs_at_most_the_configured_number_of_helpers)
{
    for (int number = 0; number <= HELPERS_MAX; number++) {
        struct helpers *helpers = truce__helpers_new(number);

        sem_init(&begun, 0, 0);
        sem_init(&ended, 0, 0);
        for (int i = 0; i < number; i++)
            CHECK(truce__helpers_run(helpers, wait_for_the_end, NULL));
        for (int i = 0; i < number; i++)
            sem_wait(&begun); /* all at once */
        CHECK(!truce__helpers_any(helpers));
        CHECK(!truce__helpers_run(helpers, wait_for_the_end, NULL));
        for (int i = 0; i < number; i++)
            sem_post(&ended);
        truce__helpers_free(helpers);
    }
}

TEST(completes_requested_work_before_the_end)
{
    for (int i = 0; i < 200; i++) {
        struct helpers *helpers = truce__helpers_new(1);
        int done = 0;

        CHECK(truce__helpers_run(helpers, nothing, &done));
        truce__helpers_free(helpers);
        CHECK_INT(done, ==, 1);
    }
}

static void look_at_signals(void *arg)
{
    sigset_t blocked;

    if (!pthread_sigmask(SIG_BLOCK, NULL, &blocked))
        *(int *)arg = sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGUSR1) == 1;
}

TEST(blocks_signals_in_helper_threads)
{
    struct helpers *helpers = truce__helpers_new(1);
    sigset_t blocked;
    int none = 0;

    CHECK(truce__helpers_run(helpers, look_at_signals, &none));
    truce__helpers_free(helpers);
    CHECK_INT(none, ==, 1);
    CHECK(!pthread_sigmask(SIG_BLOCK, NULL, &blocked) && !sigismember(&blocked, SIGTERM));
}

TEST(starts_no_helper_if_each_processor_has_a_call)
{
    struct helpers *helpers = truce__helpers_new(-1);
    struct helper_work work = {0};
    cpu_set_t set;
    long processors;

    CHECK(!sched_getaffinity(0, sizeof set, &set));
    processors = CPU_COUNT(&set);
    for (long i = 0; i < processors; i++) {
        CHECK(truce__helpers_any(helpers));
        CHECK(truce__helpers_may_continue(helpers, &work));
        truce__helpers_enter(helpers);
    }
    CHECK(!truce__helpers_any(helpers));
    CHECK(truce__helpers_may_continue(helpers, &work));
    truce__helpers_enter(helpers);
    CHECK(!truce__helpers_may_continue(helpers, &work)); /* it takes one from a call */
    truce__helpers_leave(helpers);
    CHECK(!truce__helpers_any(helpers));
    truce__helpers_leave(helpers);
    CHECK(truce__helpers_any(helpers));
    for (long i = 1; i < processors; i++)
        truce__helpers_leave(helpers);
    truce__helpers_free(helpers);
}

static atomic_bool over;

static void *work_on(void *arg)
{
    (void)arg;
    while (!atomic_load(&over))
        ;
    return NULL;
}

/* This thread and another one have one processor together. */
TEST(ends_a_helper_on_a_wanted_processor_and_pauses_helping)
{
    struct helpers *helpers = truce__helpers_new(-1);
    struct helper_work work = {0};
    int64_t until_ns = truce__clock_monotonic_ns() + INT64_C(20000000000);
    cpu_set_t before;
    pthread_t other;
    bool more = true;

    CHECK(!sched_getaffinity(0, sizeof before, &before));
    processor_stay();
    atomic_store(&over, false);
    REQUIRE(!pthread_create(&other, NULL, work_on, NULL));
    while (more && truce__clock_monotonic_ns() < until_ns) {
        int64_t part_ns = truce__clock_monotonic_ns() + 10000000;

        while (truce__clock_monotonic_ns() < part_ns)
            ;
        more = truce__helpers_may_continue(helpers, &work);
    }
    CHECK(!more);
    CHECK(!truce__helpers_any(helpers));
    atomic_store(&over, true);
    pthread_join(other, NULL);
    CHECK(!sched_setaffinity(0, sizeof before, &before));
    truce__clock_sleep_ms(150);
    CHECK(truce__helpers_any(helpers));
    truce__helpers_free(helpers);
}

TEST(refuses_an_invalid_number_of_helpers)
{
    static const char *const wrong[] = {"4", "-1", "two", "1 ", "11"};
    truce_store *store = NULL;
    bson_error_t error;
    char path[400];
    int number;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("TRUCE_HELPERS", wrong[i], 1);
        CHECK_STATUS(TRUCE_INVALID, truce_store_open(path, NULL, &store, &error), error);
        CHECK(strstr(error.message, "TRUCE_HELPERS"));
    }
    setenv("TRUCE_HELPERS", "2", 1);
    CHECK_OK(truce__helpers_number(&number, &error), error);
    CHECK_INT(number, ==, 2);
    setenv("TRUCE_HELPERS", "", 1);
    CHECK_OK(truce__helpers_number(&number, &error), error);
    CHECK_INT(number, ==, -1);
    unsetenv("TRUCE_HELPERS");
    CHECK_OK(truce__helpers_number(&number, &error), error);
    CHECK_INT(number, ==, -1);
}
