/*
 * Answers that wait for the archive (archive_sync.h): targets that fail,
 * generations without a base, and many callers.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "store/file/file.h"
#include "tests/support/archive_rig.h"
#include "tests/support/test.h"

#define LONG_MS  60000
#define SHORT_MS 100

static struct archive_sync sync_;

static const struct durable *own_durable(void)
{
    return &truce__file_engine_or_null(world.store)->durable;
}

static truce_status sync_wait(bson_error_t *error)
{
    return truce__archive_sync_wait(&sync_, own_durable(), INT64_MAX, error);
}

static truce_status sync_ready(bson_error_t *error)
{
    return truce__archive_sync_ready(&sync_, INT64_MAX, error);
}

static bool sync_open(int64_t timeout_ms)
{
    if (!environment_open())
        return false;
    truce__archive_sync_init(&sync_, timeout_ms);
    world.options.sync = &sync_;
    /* Only the waiting threads wake the archiver up. */
    world.options.interval_ms = LONG_MS;
    return true;
}

static void sync_close(void)
{
    world_close();
    truce__archive_sync_release(&sync_);
}

/* Waits until the archive is in sync, however long that takes. */
static bool sync_begins(void)
{
    for (int i = 0; i < 10000 && atomic_load(&sync_.out_since_ns); i++)
        truce__clock_sleep_ms(1);
    return CHECK(!atomic_load(&sync_.out_since_ns));
}

TEST(replies_only_after_the_commit_can_be_restored)
{
    bson_error_t error;

    REQUIRE(sync_open(LONG_MS));
    archiver_start(world.target);
    CHECK_OK(sync_ready(&error), error);
    for (int i = 1; i <= 20; i++) {
        REQUIRE(insert_one(i, 100));
        CHECK_OK(sync_wait(&error), error);
        CHECK_INT(restored_last(), ==, i);
    }
    archiver_end();
    CHECK_OK(world.status, world.error);
    CHECK_STATUS(TRUCE_LOCKED,
                 truce__archive_sync_ready(&sync_, truce__clock_monotonic_ns(), &error), error);
    CHECK(strstr(error.message, "the archiver has ended") != NULL);
    sync_close();
}

TEST(reports_what_a_failing_target_does_not_have)
{
    bson_error_t error;

    REQUIRE(sync_open(SHORT_MS));
    archiver_start(world_faulty(FAULT_NONE, 0));
    REQUIRE(sync_begins() && insert_one(1, 100));
    atomic_store(&world.faulty.down, true);
    REQUIRE(insert_one(2, 100));
    CHECK_STATUS(TRUCE_UNKNOWN, sync_wait(&error), error);
    CHECK(strstr(error.message, "the target is down") != NULL);
    truce__clock_sleep_ms(SHORT_MS);
    CHECK_STATUS(TRUCE_LOCKED, sync_ready(&error), error);
    CHECK(strstr(error.message, "nothing was changed") != NULL);
    CHECK(strstr(error.message, "the target is down") != NULL);
    atomic_store(&world.faulty.down, false);
    REQUIRE(sync_begins());
    CHECK_OK(sync_ready(&error), error);
    CHECK_INT(restored_last(), ==, 2);
    archiver_end();
    CHECK_OK(world.status, world.error);
    sync_close();
}

/* A target that does not answer, and does not fail either. */
TEST(refuses_writes_after_the_target_did_not_respond)
{
    bson_error_t error;

    REQUIRE(sync_open(SHORT_MS));
    archiver_start(world_faulty(FAULT_NONE, 0));
    REQUIRE(sync_begins() && insert_one(1, 100));
    CHECK_OK(sync_wait(&error), error);
    atomic_store(&world.faulty.stuck, true);
    REQUIRE(insert_one(2, 100));
    /* The bound of the caller alone says nothing about the target. */
    CHECK_STATUS(
        TRUCE_UNKNOWN,
        truce__archive_sync_wait(&sync_, own_durable(), truce__clock_monotonic_ns(), &error),
        error);
    CHECK_OK(sync_ready(&error), error);
    CHECK_STATUS(TRUCE_UNKNOWN, sync_wait(&error), error);
    CHECK(strstr(error.message, "does not reply") != NULL);
    CHECK_STATUS(TRUCE_LOCKED, sync_ready(&error), error);
    CHECK(strstr(error.message, "does not reply") != NULL);
    atomic_store(&world.faulty.stuck, false);
    REQUIRE(sync_begins());
    CHECK_OK(sync_ready(&error), error);
    CHECK_INT(restored_last(), ==, 2);
    archiver_end();
    CHECK_OK(world.status, world.error);
    sync_close();
}

/* A target that fails for a moment delays a write. */
TEST(waits_with_a_write_while_the_target_fails_briefly)
{
    bson_error_t error;

    REQUIRE(sync_open(LONG_MS));
    archiver_start(world_faulty(FAULT_FAIL_BEFORE, 4));
    CHECK_OK(sync_ready(&error), error);
    for (int i = 1; i <= 6; i++) {
        REQUIRE(insert_one(i, 100));
        CHECK_OK(sync_ready(&error), error);
        CHECK_OK(sync_wait(&error), error);
    }
    CHECK_INT(atomic_load(&world.events[ARCHIVE_FAILS]), ==, 1);
    archiver_end();
    CHECK_INT(restored_last(), ==, 6);
    sync_close();
}

/* Segments of the log alone restore nothing. */
TEST(waits_for_the_base_of_the_generation)
{
    bson_error_t error;

    REQUIRE(sync_open(SHORT_MS) && insert_many(1, 3, 100));
    (void)world_faulty(FAULT_NONE, 0);
    atomic_store(&world.faulty.no_base, true);
    archiver_start(&world.faulty.base);
    REQUIRE(insert_one(4, 100));
    CHECK_STATUS(TRUCE_UNKNOWN, sync_wait(&error), error);
    CHECK_STATUS(TRUCE_LOCKED, sync_ready(&error), error);
    atomic_store(&world.faulty.no_base, false);
    REQUIRE(sync_begins());
    CHECK_OK(sync_wait(&error), error);
    CHECK_INT(restored_last(), ==, 4);
    archiver_end();

    /* A new generation, because the log is gone. */
    world_lose_log();
    REQUIRE(!truce_store_open(world.path, NULL, &world.store, &error));
    atomic_store(&world.faulty.no_base, true);
    truce__archive_sync_release(&sync_);
    truce__archive_sync_init(&sync_, SHORT_MS);
    archiver_start(&world.faulty.base);
    REQUIRE(insert_one(5, 100));
    CHECK_STATUS(TRUCE_UNKNOWN, sync_wait(&error), error);
    atomic_store(&world.faulty.no_base, false);
    REQUIRE(sync_begins());
    CHECK_OK(sync_wait(&error), error);
    archiver_end();
    CHECK_INT(atomic_load(&world.events[ARCHIVE_GENERATION]), >=, 2);
    CHECK_INT(restored_last(), ==, 5);
    sync_close();
}

/* After a power cut the counters of the page may begin again. */
TEST(a_number_that_was_not_promised_does_not_count)
{
    bson_error_t error;

    REQUIRE(sync_open(SHORT_MS) && insert_one(1, 100));
    CHECK_STATUS(TRUCE_UNKNOWN, sync_wait(&error), error);
    truce__archive_sync_note(&sync_, truce__durable_promised(own_durable()) + 1);
    CHECK_STATUS(TRUCE_UNKNOWN, sync_wait(&error), error);
    truce__archive_sync_note(&sync_, truce__durable_promised(own_durable()) - 1);
    CHECK_STATUS(TRUCE_UNKNOWN, sync_wait(&error), error);
    CHECK(strstr(error.message, "does not reply, or is too slow") != NULL);
    truce__archive_sync_note(&sync_, truce__durable_promised(own_durable()));
    CHECK_OK(sync_wait(&error), error);
    sync_close();
}

TEST(ends_at_the_time_of_the_caller)
{
    int64_t began_ns = truce__clock_monotonic_ns(), until_ns = began_ns + 20000000;
    bson_error_t error;

    REQUIRE(sync_open(LONG_MS) && insert_one(1, 100));
    CHECK_STATUS(TRUCE_LOCKED, truce__archive_sync_ready(&sync_, until_ns, &error), error);
    CHECK_STATUS(TRUCE_UNKNOWN, truce__archive_sync_wait(&sync_, own_durable(), until_ns, &error),
                 error);
    CHECK(truce__clock_monotonic_ns() >= until_ns);
    sync_close();
}

/* ---- many callers --------------------------------------------------------------------------- */

#define CALLERS 8

static atomic_int next_id, highest_answered;

/* Inserts and waits until an answer fails. */
static void *answer_until_failure(void *arg)
{
    bson_error_t error;

    while (!atomic_load(&world.written)) {
        int id = atomic_fetch_add(&next_id, 1);

        if (!insert_one(id, 100) || sync_wait(&error))
            break;
        /* The thing with this id is in the archive, and so is all that was committed before. */
        for (int seen = atomic_load(&highest_answered);
             seen < id && !atomic_compare_exchange_weak(&highest_answered, &seen, id);)
            continue;
    }
    return arg;
}

/* One segment answers many callers. */
TEST(acknowledges_many_callers_with_one_segment)
{
    pthread_t threads[CALLERS];
    struct verify_report report;
    bson_error_t error;

    REQUIRE(sync_open(LONG_MS));
    atomic_store(&next_id, 1);
    atomic_store(&highest_answered, 0);
    archiver_start(world.target);
    REQUIRE(sync_begins());
    for (int i = 0; i < CALLERS; i++)
        pthread_create(&threads[i], NULL, answer_until_failure, NULL);
    for (int i = 0; i < 10000 && atomic_load(&highest_answered) < 400; i++)
        truce__clock_sleep_ms(1);
    atomic_store(&world.written, true);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    archiver_end();
    CHECK_INT(atomic_load(&highest_answered), >=, 400);
    CHECK_INT(restored_last(), ==, atomic_load(&next_id) - 1);
    CHECK_OK(truce__archive_verify(world.target, NULL, NULL, &report, &error), error);
    CHECK_INT(report.segments, <, (uint64_t)atomic_load(&next_id));
    sync_close();
}
