/*
 * A disk refuses a sync and forgets a part of the refused writes, while memory still shows them.
 * That happens at the n-th sync of the log, or of the file, for n = 1, 2, ... in order. The store
 * runs checkpoints concurrently with its writers, is closed and opened again, and after the fault
 * is opened once more. Then the power goes, in the end or in the middle of that. The state on the
 * disk is checked: everything acknowledged is there, indexes and documents agree.
 *
 * TRUCE_SYNC_FAULTS: how many runs of each test.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "engine/documents/open_documents.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/test.h"

#define ROUNDS 48
/* documents that are changed again and again; each round has one of its own, too */
#define OFTEN     6
#define DOCUMENTS (OFTEN + ROUNDS)
#define PAD       20000

static struct engine *engine;
static char home[300], path[320];
static int acknowledged[DOCUMENTS];

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

static void begin(void)
{
    memset(acknowledged, 0, sizeof acknowledged);
    snprintf(home, sizeof home, "%s", test_directory());
    snprintf(path, sizeof path, "%s/s.truce", home);
    disk_reset();
}

static truce_status open_at(const char *where, struct engine **opened, bson_error_t *error)
{
    const truce_store_options options = {0};

    return truce__engine_open(where, &options, opened, error);
}

static truce_status set_n(int id, int n, bson_error_t *error)
{
    static char pad[PAD + 1];
    const truce_bulk_options options = {0};
    bson_t *filter = BCON_NEW("_id", BCON_INT32(id)), *update;
    truce_write_outcome outcome = {0};
    truce_write write;
    truce_status status;

    memset(pad, 'a' + n % 26, PAD);
    update = BCON_NEW("$set", "{", "n", BCON_INT32(n), "pad", BCON_UTF8(pad), "}");
    write = (truce_write){.kind = TRUCE_WRITE_UPDATE,
                          .collection = "c",
                          .filter = filter,
                          .document = update,
                          .options = {.upsert = true}};
    status = truce__engine_bulk(engine, &write, 1, &options, &outcome, error);
    truce_write_result_release(&outcome.result);
    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

/* Returns the number in the document; -1: there is no document. */
static int64_t get_n(struct engine *from, int id)
{
    const truce_find_options options = {0};
    bson_t *filter = BCON_NEW("_id", BCON_INT32(id));
    const bson_t *found = NULL;
    truce_cursor *cursor;
    bson_error_t error;
    bson_iter_t iter;
    int64_t n = -1;

    if (CHECK_OK(truce__engine_find(from, "c", filter, &options, &cursor, &error), error)) {
        CHECK_OK(truce_cursor_next(cursor, &found, &error), error);
        if (found && bson_iter_init_find(&iter, found, "n"))
            n = bson_iter_as_int64(&iter);
        truce_cursor_close(cursor);
    }
    bson_destroy(filter);
    return n;
}

static void judge(struct engine *from)
{
    bson_error_t error;

    CHECK_OK(truce__engine_check(from, NULL, NULL, &error), error);
    for (int i = 0; i < DOCUMENTS; i++) {
        if (acknowledged[i])
            CHECK_INT(get_n(from, i), >=, acknowledged[i]);
    }
}

/* Checks states that the disk could hold now. */
static void judge_images(struct random *random)
{
    char directory[420], where[440];
    struct engine *from;
    bson_error_t error;

    disk_cut();
    for (int i = 0; i < 2; i++) {
        snprintf(directory, sizeof directory, "%s/%d", home, i);
        mkdir(directory, 0700);
        disk_restore(directory, random);
    }
    if (engine)
        truce__engine_close(engine);
    engine = NULL;
    disk_reset();
    for (int i = 0; i < 2 && !test_failures(); i++) {
        snprintf(where, sizeof where, "%s/%d/s.truce", home, i);
        if (!CHECK_OK(open_at(where, &from, &error), error))
            return;
        judge(from);
        truce__engine_close(from);
    }
}

/* Opens the store again after a refusal; false: the power went in the meantime. */
static bool open_again(void)
{
    bson_error_t error;
    truce_status status;

    if (engine)
        truce__engine_close(engine);
    engine = NULL;
    status = open_at(path, &engine, &error);
    if (disk_is_cut())
        return false;
    return CHECK_OK(status, error);
}

/* False: it is over. */
static bool set_one(int id, int n)
{
    bson_error_t error;
    truce_status status = set_n(id, n, &error);

    if (!status)
        acknowledged[id] = n;
    if (disk_is_cut())
        return false;
    if (!status)
        return true;
    if (!CHECK_STATUS(TRUCE_IO, status, error) || !open_again())
        return false;
    judge(engine);
    return true;
}

static void write_all(void)
{
    for (int i = 1; i <= ROUNDS && !test_failures(); i++) {
        if (!set_one(i % OFTEN, i) || !set_one(OFTEN + i - 1, i))
            return;
        if (i % 8 == 3)
            truce__checkpointer_note(&engine->checkpointer, INT32_MAX);
        if (i == ROUNDS / 2 && !open_again())
            return;
    }
}

/* The n-th sync of those files fails; the power goes `later` calls after the first failure, or
 * at the end. False: there was no n-th sync. */
static bool run(const char *files, int n, int64_t later, struct random *random)
{
    bson_error_t error;
    bool failed;

    begin();
    if (!CHECK_OK(open_at(path, &engine, &error), error))
        return false;
    disk_sync_takes(200);
    disk_fail_only(files);
    disk_fail(DISK_SYNC_LOSES, n, false);
    if (later)
        disk_cut_at_fault(later);
    write_all();
    failed = disk_faults() > 0;
    judge_images(random);
    disk_sync_takes(0);
    return failed;
}

static void run_all(const char *files)
{
    long runs = test_scale("TRUCE_SYNC_FAULTS", 8);
    uint64_t seed = test_seed();
    struct random random;
    int n = 1;

    truce__random_seed(&random, seed);
    for (long i = 0; i < runs && !test_failures(); i++) {
        int64_t later = i % 2 ? 1 + (int64_t)truce__random_below(&random, 60) : 0;

        if (!run(files, n, later, &random))
            break;
        n += 1 + (int)truce__random_below(&random, 3);
    }
    CHECK_INT(n, >, 3);
}

TEST(a_refused_sync_of_the_file_loses_nothing)
{
    run_all(".truce");
}

TEST(a_refused_sync_of_the_log_loses_nothing)
{
    run_all("-wal");
}

/* SQLite does not report it: the next process that opens the store hears of it. */
static void refuse_at_the_close(bool read_only)
{
    const truce_store_options options = {.read_only = read_only};
    struct random random;
    bson_error_t error;

    truce__random_seed(&random, test_seed());
    begin();
    REQUIRE(CHECK_OK(open_at(path, &engine, &error), error));
    for (int i = 1; i <= OFTEN; i++)
        CHECK(set_one(i % OFTEN, i));
    disk_fail_only(".truce");
    disk_fail(DISK_SYNC_LOSES, 1, false);
    truce__engine_close(engine);
    CHECK_INT(disk_faults(), ==, 1);
    REQUIRE(CHECK_OK(truce__engine_open(path, &options, &engine, &error), error));
    judge(engine);
    judge_images(&random);
}

TEST(a_refused_sync_at_the_close_is_reported_at_the_next_opening)
{
    refuse_at_the_close(false);
}

TEST(repairs_a_failed_sync_at_close_in_a_reading_process)
{
    refuse_at_the_close(true);
}

/* The one that was asked for. */
static void wait_for_checkpoint(void)
{
    struct checkpointer *checkpointer = &engine->checkpointer;
    bool wanted;

    do {
        truce__clock_sleep_ms(1);
        pthread_mutex_lock(&checkpointer->mutex);
        wanted = checkpointer->wanted;
        pthread_mutex_unlock(&checkpointer->mutex);
    } while (wanted);
}

/* A checkpoint of more pages than it brings to the disk at a time: its n-th sync. */
static void refuse_in_checkpoint(int n)
{
    struct engine *other;
    bson_error_t error;

    begin();
    REQUIRE(CHECK_OK(open_at(path, &engine, &error), error));
    REQUIRE(CHECK_OK(open_at(path, &other, &error), error));
    for (int id = 1; id < DOCUMENTS; id++)
        CHECK_OK(set_n(id, 1, &error), error);
    disk_fail_only(".truce");
    disk_fail(DISK_SYNC_LOSES, n, false);
    truce__checkpointer_note(&engine->checkpointer, INT32_MAX);
    wait_for_checkpoint();
    CHECK_INT(disk_faults(), ==, 1);
    CHECK_STATUS(TRUCE_IO, set_n(2, 2, &error), error);
    CHECK(strstr(error.message, "open the store again"));
    truce__engine_close(engine);
    engine = other;
    CHECK_STATUS(TRUCE_IO, set_n(2, 2, &error), error);
    truce__engine_close(engine);
    REQUIRE(CHECK_OK(open_at(path, &engine, &error), error));
    CHECK_OK(set_n(2, 2, &error), error);
    CHECK_INT(get_n(engine, 3), ==, 1);
    truce__engine_close(engine);
}

TEST(refuses_all_calls_after_a_failed_sync_of_a_checkpoint)
{
    for (int n = 1; n <= 4; n++)
        refuse_in_checkpoint(n);
}

/* A process that dies before it reports that its sync failed notifies no other process. Each
 * process that has the log open hears of the failure from its own descriptor, however long it
 * has written nothing. */
TEST(a_refused_sync_reaches_every_process_that_had_the_log_open)
{
    const truce_store_options relaxed = {.relaxed = true};
    struct engine *quiet, *other;
    struct kv_log *dying;
    bson_error_t error;

    begin();
    REQUIRE(CHECK_OK(open_at(path, &quiet, &error), error));
    REQUIRE(CHECK_OK(truce__engine_open(path, &relaxed, &other, &error), error));
    engine = other;
    CHECK_OK(set_n(1, 1, &error), error);
    REQUIRE(CHECK_OK(truce__kv_log_open(path, &dying, &error), error));
    disk_fail_only("-wal");
    disk_fail(DISK_SYNC_LOSES, 1, false);
    CHECK_STATUS(TRUCE_IO, truce__kv_log_sync(dying, &error), error);
    truce__kv_log_close(dying);
    engine = quiet;
    CHECK_STATUS(TRUCE_IO, set_n(2, 2, &error), error);
    truce__engine_close(other);
    truce__engine_close(quiet);
    REQUIRE(CHECK_OK(open_at(path, &engine, &error), error));
    CHECK_OK(set_n(2, 2, &error), error);
    truce__engine_close(engine);
}

/* ---- recovery -------------------------------------------------------------------------------- */

enum { BEFORE = 240, AFTER = 200 };

static truce_status insert_some(int from, int to, bool remove, bson_error_t *error)
{
    enum { ROOM = BEFORE + AFTER };
    const truce_bulk_options options = {.atomic = true};
    truce_write_outcome outcomes[ROOM];
    truce_write writes[ROOM] = {0};
    bson_t *documents[ROOM] = {NULL};
    truce_status status;
    size_t count = 0;

    for (int id = from; id < to; id++) {
        documents[count] = BCON_NEW("_id", BCON_INT32(id), "n", BCON_INT32(id * 7919 % 1009), "pad",
                                    BCON_UTF8("a text that fills the pages of a tree soon enough"));
        writes[count] = (truce_write){
            .kind = TRUCE_WRITE_INSERT, .collection = "d", .document = documents[count]};
        count++;
    }
    for (int id = 0; remove && id < from; id += 2) {
        documents[count] = BCON_NEW("_id", BCON_INT32(id));
        writes[count] = (truce_write){
            .kind = TRUCE_WRITE_REMOVE, .collection = "d", .filter = documents[count]};
        count++;
    }
    status = truce__engine_bulk(engine, writes, count, &options, outcomes, error);
    for (size_t i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(documents[i]);
    }
    return status;
}

/* The disk refuses a commit that changes many pages, and keeps parts of it; then the power goes
 * in the midst of the recovery. Afterwards the commit is there as a whole, or not at all. */
static void cut_recovery(int64_t calls, struct random *random)
{
    bson_t *index = test_bson("{'key': {'n': 1}, 'name': 'by_n'}"), *all = test_bson("{}");
    const truce_find_options options = {0};
    char directory[420], where[440];
    bson_error_t error;

    begin();
    REQUIRE(CHECK_OK(open_at(path, &engine, &error), error));
    CHECK_OK(truce__engine_index_create(engine, "d", index, &error), error);
    CHECK_OK(insert_some(0, BEFORE - 1, false, &error), error);
    truce__engine_close(engine); /* so that the log starts again */
    REQUIRE(CHECK_OK(open_at(path, &engine, &error), error));
    CHECK_OK(insert_some(BEFORE - 1, BEFORE, false, &error), error); /* it has begun */
    disk_fail_only("-wal");
    disk_fail(DISK_SYNC_LOSES, 1, false);
    CHECK_STATUS(TRUCE_IO, insert_some(BEFORE, BEFORE + AFTER, true, &error), error);
    truce__engine_close(engine);
    engine = NULL;
    disk_cut_after(calls);
    if (open_at(path, &engine, &error))
        engine = NULL;
    disk_cut();
    for (int i = 0; i < 3; i++) {
        snprintf(directory, sizeof directory, "%s/%d", home, i);
        mkdir(directory, 0700);
        disk_restore(directory, random);
    }
    if (engine)
        truce__engine_close(engine);
    disk_reset();
    for (int i = 0; i < 3 && !test_failures(); i++) {
        int64_t count = 0;

        snprintf(where, sizeof where, "%s/%d/s.truce", home, i);
        if (!CHECK_OK(open_at(where, &engine, &error), error))
            break;
        CHECK_OK(truce__engine_check(engine, NULL, NULL, &error), error);
        CHECK_OK(truce__engine_count(engine, "d", all, &options, &count, &error), error);
        CHECK(count == BEFORE || count == BEFORE / 2 + AFTER);
        truce__engine_close(engine);
    }
    bson_destroy(index);
    bson_destroy(all);
}

TEST(a_power_cut_in_a_recovery_damages_nothing)
{
    long runs = 3 * test_scale("TRUCE_SYNC_FAULTS", 8);
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long i = 0; i < runs && !test_failures(); i++)
        cut_recovery(1 + (int64_t)truce__random_below(&random, 80), &random);
}
