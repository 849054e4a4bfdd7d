/*
 * Checkpoints beside writers and readers, with a disk that is held in the middle of a sync: who waits
 * for whom.
 */
#include <pthread.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/test.h"

static struct engine *engine;
static struct checkpointer *checkpointer;

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

static truce_status write_one(void)
{
    static const truce_bulk_options options = {.relaxed = true};
    bson_t *filter = BCON_NEW("_id", BCON_INT32(1));
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    truce_write write = {.kind = TRUCE_WRITE_UPDATE,
                         .collection = "c",
                         .filter = filter,
                         .document = update,
                         .options = {.upsert = true}};
    truce_write_outcome outcome;
    bson_error_t error;
    truce_status status = truce__engine_bulk(engine, &write, 1, &options, &outcome, &error);

    CHECK_OK(status, error);
    truce_write_result_release(&outcome.result);
    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

static bool begin(void)
{
    const truce_store_options options = {0};
    bson_error_t error;
    char path[400];

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    disk_reset();
    if (!CHECK_OK(truce__engine_open(path, &options, &engine, &error), error))
        return false;
    checkpointer = &engine->checkpointer;
    return write_one() == TRUCE_OK;
}

/* Checkpoints that were made, until the one that was asked for is over. */
static int64_t checkpoints(void)
{
    int64_t done;
    bool wanted;

    do {
        truce__clock_sleep_ms(1);
        pthread_mutex_lock(&checkpointer->mutex);
        wanted = checkpointer->wanted;
        done = checkpointer->done;
        pthread_mutex_unlock(&checkpointer->mutex);
    } while (wanted);
    return done;
}

static void ask(void)
{
    truce__checkpointer_note(checkpointer, INT32_MAX);
}

static void until_held(int syncs)
{
    while (disk_held_syncs() < syncs)
        truce__clock_sleep_ms(1);
}

TEST(writers_go_on_while_a_checkpoint_waits_for_the_disk)
{
    REQUIRE(begin());
    disk_hold_syncs(true);
    ask();
    until_held(1);
    for (int i = 0; i < 10; i++)
        write_one();
    disk_hold_syncs(false);
    CHECK_INT(checkpoints(), ==, 1);
    write_one();
    CHECK_INT(truce__kv_wal_pages(engine->kv), <, 5); /* the WAL has begun anew */
    truce__engine_close(engine);
}

TEST(no_commit_begins_the_wal_anew_while_a_checkpoint_runs)
{
    struct reader *reader;
    bson_error_t error;
    int pages;

    REQUIRE(begin());
    REQUIRE(CHECK_OK(truce__readers_begin(&engine->readers, false, &reader, &error), error));
    ask();
    CHECK_INT(checkpoints(), ==, 0); /* everything was moved, and the reader is in the way */
    truce__readers_end(&engine->readers, reader);
    pages = truce__kv_wal_pages(engine->kv);
    disk_hold_syncs(true);
    ask();
    until_held(1);
    write_one();
    CHECK_INT(truce__kv_wal_pages(engine->kv), >, 1);
    CHECK_INT(pages, >, 0);
    disk_hold_syncs(false);
    CHECK_INT(checkpoints(), ==, 1);
    truce__engine_close(engine);
}

TEST(a_checkpoint_does_not_wait_long_for_a_reader_nor_do_writers)
{
    struct reader *reader;
    bson_error_t error;

    REQUIRE(begin());
    REQUIRE(CHECK_OK(truce__readers_begin(&engine->readers, false, &reader, &error), error));
    for (int i = 1; i <= 3; i++) {
        ask();
        CHECK_INT(checkpoints(), ==, 0);
        CHECK_INT(checkpointer->refused, ==, i);
        write_one();
    }
    truce__readers_end(&engine->readers, reader);
    ask();
    CHECK_INT(checkpoints(), ==, 1);
    CHECK_INT(checkpointer->refused, ==, 0);
    truce__engine_close(engine);
}

TEST(one_process_makes_a_checkpoint_at_a_time)
{
    int claim;

    REQUIRE(begin());
    claim = truce__lock_claim(&engine->lock, LOCK_CHECKPOINT);
    REQUIRE(claim >= 0);
    ask();
    CHECK_INT(checkpoints(), ==, 0);
    truce__lock_disclaim(claim);
    ask();
    CHECK_INT(checkpoints(), ==, 1);
    truce__engine_close(engine);
}
