/*
 * Power cuts. Several threads work on a store whose disk loses power at a random write or sync. The
 * state that the disk could hold then is opened again, several times with different luck, and
 * checked. Nothing that was acknowledged or read is lost, nothing is stored partially, and indexes
 * and documents agree.
 *
 * TRUCE_POWER_CUTS: how many cuts.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/documents/open_documents.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/school.h"
#include "tests/support/test.h"
#include "truce/compact.h"

#define WORKERS 4
#define LUCK    3 /* outcomes that are looked at for each cut */

static struct run {
    truce_store *store;
    struct school_notes notes;
    bool relaxed;
    uint32_t pad;
    int64_t rounds_max, calls_max;
    bool late;        /* the cut comes at the last call: no part of a life is skipped */
    int checkpointed; /* lives in which pages have moved into the file */
    bool compacts;    /* concurrently with the workers */
    int64_t given;    /* bytes that were released in all lives */
} run;

static void *work(void *arg)
{
    int worker = (int)(intptr_t)arg;
    bson_error_t error;

    for (int64_t i = 0; i < run.rounds_max && !disk_is_cut(); i++) {
        if (school_round(run.store, &run.notes, worker, run.pad, run.relaxed, &error))
            break;
    }
    return NULL;
}

/* Returns the pages that large documents leave when they are replaced by others. */
static void *give_back(void *arg)
{
    const truce_compact_options options = {.deadline_ms = 2000};
    truce_compact_report report;
    bson_error_t error;

    while (!disk_is_cut()) {
        truce_status status = truce_compact(run.store, &options, &report, &error);

        if (report.bytes_before > report.bytes_after)
            run.given += report.bytes_before - report.bytes_after;
        if (status && status != TRUCE_TIMEOUT)
            break;
        truce__clock_sleep_ms(1);
    }
    return arg;
}

static void work_until_cut(void)
{
    pthread_t threads[WORKERS], giver;

    if (run.compacts)
        pthread_create(&giver, NULL, give_back, NULL);
    for (intptr_t i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    disk_cut();
    if (run.compacts)
        pthread_join(giver, NULL);
}

/* Runs one life of a store that ends in a cut; returns how many checks fail afterwards. */
static int live_and_die(struct random *random, bool honest, bool tell)
{
    const char *directory = test_directory();
    bson_error_t error;
    struct stat size;
    char path[400];
    int wrong = 0;

    memset(&run.notes, 0, sizeof run.notes);
    disk_reset();
    disk_honest(honest);
    snprintf(path, sizeof path, "%s/s.truce", directory);
    if (!CHECK_OK(truce_store_open(path, NULL, &run.store, &error), error) ||
        !CHECK_OK(school_open(run.store, &error), error))
        return 0;
    disk_cut_after(run.late ? run.calls_max
                            : 1 + (int64_t)truce__random_below(random, (uint64_t)run.calls_max));
    work_until_cut();
    run.checkpointed += !stat(path, &size) && size.st_size > 1000000;
    for (int i = 0; i < LUCK; i++) {
        snprintf(path, sizeof path, "%s/%d", directory, i);
        mkdir(path, 0700);
        disk_restore(path, random);
    }
    truce_store_close(run.store);
    disk_reset();
    for (int i = 0; i < LUCK; i++) {
        snprintf(path, sizeof path, "%s/%d/s.truce", directory, i);
        wrong += school_check(path, &run.notes, WORKERS, !run.relaxed, tell);
    }
    return wrong;
}

static void cut_many_times(long cuts)
{
    uint64_t seed = test_seed();
    struct random random;

    truce__random_seed(&random, seed);
    for (long i = 0; i < cuts && !test_failures(); i++) {
        run.late = i == 0;
        CHECK(!live_and_die(&random, true, true));
    }
    run.late = false;
}

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

TEST(small_writes_survive_power_cuts)
{
    run.relaxed = false;
    run.pad = 0;
    run.rounds_max = INT64_MAX;
    run.calls_max = 3000;
    cut_many_times(test_scale("TRUCE_POWER_CUTS", 30));
}

TEST(writes_with_checkpoints_survive_power_cuts)
{
    run.relaxed = false;
    run.pad = 400000;
    run.rounds_max = INT64_MAX;
    run.calls_max = 4000;
    run.checkpointed = 0;
    cut_many_times(test_scale("TRUCE_POWER_CUTS", 10));
    CHECK_INT(run.checkpointed, >, 0);
}

TEST(space_is_released_under_power_cuts)
{
    run.relaxed = false;
    run.pad = 300000;
    run.rounds_max = INT64_MAX;
    run.calls_max = 5000;
    run.compacts = true;
    run.given = 0;
    cut_many_times(test_scale("TRUCE_POWER_CUTS", 8));
    for (int i = 0; i < 10 && !run.given; i++) /* where one thread was slow */
        cut_many_times(1);
    run.compacts = false;
    CHECK_INT(run.given, >, 0);
}

TEST(loses_a_relaxed_write_completely_or_not_at_all)
{
    run.relaxed = true;
    run.pad = 100000;
    run.rounds_max = 60;
    run.calls_max = 10000;
    cut_many_times(test_scale("TRUCE_POWER_CUTS", 20));
}

/* ---- readers --------------------------------------------------------------------------------- */

#define DOCUMENTS 3

/* of each, the greatest number that was acknowledged to a worker */
static atomic_llong reported[DOCUMENTS];

static void raise(int document, int64_t number)
{
    long long now = atomic_load(&reported[document]);

    while (now < number && !atomic_compare_exchange_weak(&reported[document], &now, number))
        continue;
}

static bson_t *by_number(int document)
{
    return BCON_NEW("_id", BCON_INT32(document));
}

static bson_t *by_range(int document)
{
    return BCON_NEW("_id", "{", "$gte", BCON_INT32(document), "$lte", BCON_INT32(document), "}");
}

static void *count_up(void *arg)
{
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT64(1), "}");
    const truce_write_options options = {.upsert = true};
    truce_status status = TRUCE_OK;

    for (int i = (int)(intptr_t)arg; !status; i++) {
        bson_t *filter = by_number(i % DOCUMENTS);

        status = truce_update(run.store, "n", filter, update, &options, NULL, NULL);
        bson_destroy(filter);
    }
    bson_destroy(update);
    return NULL;
}

static int64_t read_number(truce_store *store, const bson_t *filter)
{
    bson_iter_t iter;
    int64_t number = 0;
    bson_t found;

    if (truce_find_one(store, "n", filter, NULL, &found, NULL) == TRUCE_OK &&
        bson_iter_init_find(&iter, &found, "n"))
        number = bson_iter_as_int64(&iter);
    bson_destroy(&found);
    return number;
}

static void *read_on(void *arg)
{
    for (int i = 0; !disk_is_cut(); i++) {
        bson_t *filter = arg ? by_range(i % DOCUMENTS) : by_number(i % DOCUMENTS);

        raise(i % DOCUMENTS, read_number(run.store, filter));
        bson_destroy(filter);
    }
    return NULL;
}

static void judge_numbers(const char *path)
{
    truce_store *store;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return;
    for (int i = 0; i < DOCUMENTS; i++) {
        bson_t *filter = by_number(i);

        CHECK_INT(read_number(store, filter), >=, atomic_load(&reported[i]));
        bson_destroy(filter);
    }
    truce_store_close(store);
}

static void read_until_cut(struct random *random)
{
    const char *directory = test_directory();
    pthread_t threads[4];
    bson_error_t error;
    char path[400];

    memset(reported, 0, sizeof reported);
    disk_reset();
    disk_sync_takes(200);
    snprintf(path, sizeof path, "%s/r.truce", directory);
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &run.store, &error), error));
    disk_cut_after(100 + (int64_t)truce__random_below(random, 400));
    for (intptr_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, i < 2 ? count_up : read_on, (void *)(i % 2));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    snprintf(path, sizeof path, "%s/read", directory);
    mkdir(path, 0700);
    disk_restore(path, random);
    truce_store_close(run.store);
    disk_sync_takes(0);
    disk_reset();
    snprintf(path, sizeof path, "%s/read/r.truce", directory);
    judge_numbers(path);
}

TEST(documents_that_were_read_survive_power_cuts)
{
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long i = test_scale("TRUCE_POWER_CUTS", 20); i && !test_failures(); i--)
        read_until_cut(&random);
}

/* ---- creation -------------------------------------------------------------------------------- */

static void judge_created(const char *path, bool inserted)
{
    truce_store *store;
    bson_error_t error;
    int64_t count = 0;

    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return;
    CHECK_OK(truce_count(store, "c", NULL, NULL, &count, &error), error);
    CHECK_INT(count, <=, 1);
    CHECK(!inserted || count == 1);
    truce_store_close(store);
}

/* Creates a store, and cuts the power at the n-th call. With `empty`, an empty file exists already,
 * so that SQLite writes the first page. Returns whether the power was cut before the end. */
static bool create_until_cut(struct random *random, bool empty, int64_t calls)
{
    const char *directory = test_directory();
    bson_t *document = BCON_NEW("_id", BCON_INT32(1));
    truce_store *store = NULL;
    char path[400];
    truce_status status;
    bool was_cut;

    disk_reset();
    snprintf(path, sizeof path, "%s/s.truce", directory);
    if (empty)
        CHECK(!close(open(path, O_CREAT | O_WRONLY, 0600)));
    disk_cut_after(calls);
    status = truce_store_open(path, NULL, &store, NULL);
    if (!status)
        status = truce_insert(store, "c", document, NULL, NULL);
    was_cut = disk_is_cut();
    disk_cut();
    truce_store_close(store);
    bson_destroy(document);
    CHECK(was_cut || !status);
    for (int i = 0; i < LUCK; i++) {
        snprintf(path, sizeof path, "%s/%d", directory, i);
        mkdir(path, 0700);
        disk_restore(path, random);
    }
    disk_reset();
    for (int i = 0; i < LUCK; i++) {
        snprintf(path, sizeof path, "%s/%d/s.truce", directory, i);
        judge_created(path, !status);
    }
    return was_cut;
}

TEST(a_store_survives_power_cuts_in_its_creation)
{
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 4 && !test_failures(); i++) {
        int64_t calls = 1;

        while (create_until_cut(&random, i % 2, calls) && !test_failures())
            calls++;
        CHECK_INT(calls, >, 2);
    }
}

TEST(a_disk_that_does_not_sync_is_caught)
{
    uint64_t seed = test_seed();
    struct random random;
    int caught = 0;

    truce__random_seed(&random, seed);
    run.relaxed = false;
    run.pad = 0;
    run.rounds_max = INT64_MAX;
    run.calls_max = 3000;
    for (int i = 0; i < 5; i++)
        caught += live_and_die(&random, false, false) > 0;
    CHECK_INT(caught, >=, 4);
}
