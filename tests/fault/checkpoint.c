/*
 * Checkpoints concurrently with writers and readers, with a disk that is held in the middle of a
 * sync: which call waits for which.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "engine/documents/open_documents.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/open_lock.h"
#include "tests/support/resting.h"
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

/* Runs checkpoints until the requested one is over. */
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

TEST(writers_continue_while_a_checkpoint_waits_for_the_disk)
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
    CHECK_INT(truce__kv_wal_pages(engine->kv), <, 5); /* the WAL has started again */
    truce__engine_close(engine);
}

TEST(no_commit_restarts_the_wal_while_a_checkpoint_runs)
{
    struct reader *reader;
    bson_error_t error;
    int pages;

    REQUIRE(begin());
    REQUIRE(CHECK_OK(truce__readers_begin(&engine->readers, false, &reader, &error), error));
    ask();
    CHECK_INT(checkpoints(), ==, 0); /* everything was moved, and the reader blocks it */
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

TEST(neither_checkpoints_nor_writers_wait_long_for_a_reader)
{
    struct reader *reader;
    bson_error_t error;

    REQUIRE(begin());
    REQUIRE(CHECK_OK(truce__readers_begin(&engine->readers, false, &reader, &error), error));
    for (int i = 1; i <= 3; i++) {
        ask();
        CHECK_INT(checkpoints(), ==, 0);
        CHECK_INT(checkpointer->refused, >=, i); /* each is tried again a few times */
        write_one();
    }
    truce__readers_end(&engine->readers, reader);
    ask();
    CHECK_INT(checkpoints(), ==, 1);
    CHECK_INT(checkpointer->refused, ==, 0);
    truce__engine_close(engine);
}

TEST(a_checkpoint_does_not_wait_for_connections_that_rest)
{
    REQUIRE(begin());
    for (int i = 1; i <= 3; i++) {
        write_one();
        REQUIRE(read_until_one_rests(engine));
        ask();
        CHECK_INT(checkpoints(), ==, i);
    }
    truce__engine_close(engine);
}

/* The second engine is like a process that enters while connections of the first one rest. */
TEST(repeats_another_processs_checkpoint_until_none_rests)
{
    const truce_store_options options = {0};
    struct engine *other;
    bson_error_t error;

    REQUIRE(begin());
    REQUIRE(read_until_one_rests(engine));
    REQUIRE(CHECK_OK(truce__engine_open(engine->path, &options, &other, &error), error));
    write_one();
    checkpointer = &other->checkpointer;
    ask();
    CHECK_INT(checkpoints(), ==, 1);
    truce__engine_close(other);
    truce__engine_close(engine);
}

static void *ask_once(void *arg)
{
    ask();
    CHECK_INT(checkpoints(), ==, 0);
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

/* Measures the longest time that a holder was seen to have the lock, in ms, however often it was
 * refused. */
TEST(a_checkpoint_holds_the_lock_only_briefly_next_to_readers)
{
    struct lock_page *page;
    int64_t longest = 0, since = 0;
    struct reader *reader;
    atomic_bool over = false;
    bson_error_t error;
    pthread_t thread;

    REQUIRE(begin());
    page = engine->lock.page;
    REQUIRE(CHECK_OK(truce__readers_begin(&engine->readers, false, &reader, &error), error));
    checkpointer->refused = 6;
    write_one();
    pthread_create(&thread, NULL, ask_once, &over);
    while (!atomic_load(&over)) {
        int64_t now = truce__clock_monotonic_ns() / 1000000;

        if (!atomic_load(&page->holder))
            since = 0;
        else if (!since)
            since = now;
        else if (now - since > longest)
            longest = now - since;
        truce__clock_sleep_ms(1);
    }
    pthread_join(thread, NULL);
    CHECK_INT(longest, <, 1000); /* 50, on a machine that has nothing else to do */
    truce__readers_end(&engine->readers, reader);
    truce__engine_close(engine);
}

TEST(a_store_closes_while_another_process_holds_the_lock)
{
    int64_t start_ns;
    bson_error_t error;
    struct lock other;
    char path[400];

    REQUIRE(begin());
    snprintf(path, sizeof path, "%s", engine->path);
    REQUIRE(CHECK_OK(open_lock(path, &other, &error), error));
    REQUIRE(CHECK_OK(truce__lock_acquire(&other, INT64_MAX, &error), error));
    ask();
    while (!truce__lock_is_claimed(&other, LOCK_CHECKPOINT))
        truce__clock_sleep_ms(1);
    truce__clock_sleep_ms(50); /* most likely it waits for the lock by now */
    start_ns = truce__clock_monotonic_ns();
    truce__engine_close(engine);
    CHECK_INT(truce__clock_monotonic_ns() - start_ns, <, INT64_C(30000000000));
    truce__lock_release(&other);
    truce__lock_close(&other);
}

/* ---- the size of the log --------------------------------------------------------------------- */

static int64_t log_bytes(void)
{
    char log[420];
    struct stat size;

    snprintf(log, sizeof log, "%s-wal", engine->path);
    return stat(log, &size) ? -1 : (int64_t)size.st_size;
}

static void write_large(int id)
{
    static const truce_bulk_options options = {.relaxed = true};
    size_t size = 15 << 20;
    char *pad = memset(bson_malloc(size + 1), 'x', size);
    truce_write write = {.kind = TRUCE_WRITE_INSERT, .collection = "c"};
    truce_write_outcome outcome;
    bson_error_t error;
    bson_t *document;

    pad[size] = 0;
    document = BCON_NEW("_id", BCON_INT32(id), "pad", BCON_UTF8(pad));
    write.document = document;
    CHECK_OK(truce__engine_bulk(engine, &write, 1, &options, &outcome, &error), error);
    truce_write_result_release(&outcome.result);
    bson_destroy(document);
    bson_free(pad);
}

TEST(releases_the_space_of_a_log_that_grew)
{
    struct reader *reader;
    bson_error_t error;

    REQUIRE(begin());
    REQUIRE(CHECK_OK(truce__readers_begin(&engine->readers, false, &reader, &error), error));
    for (int i = 0; i < 6; i++)
        write_large(100 + i); /* the log cannot start again in the meantime */
    CHECK_INT(log_bytes(), >, TRUCE_LOG_BYTES_KEPT);
    (void)checkpoints();
    truce__readers_end(&engine->readers, reader);
    for (int i = 0; i < 3; i++) {
        ask();
        (void)checkpoints();
        write_one();
    }
    CHECK_INT(log_bytes(), <=, TRUCE_LOG_BYTES_KEPT);
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
