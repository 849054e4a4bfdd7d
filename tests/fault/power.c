/*
 * Power cuts. Several threads work on a store whose disk loses power at a random write or sync;
 * what the disk could hold then is opened again, several times with different luck, and judged:
 * nothing acknowledged is lost, nothing is there by half, indexes and documents agree.
 *
 * TRUCE_POWER_CUTS: how many cuts.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "engine/engine.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/school.h"
#include "tests/support/test.h"

#define WORKERS 4
#define LUCK    3 /* outcomes that are looked at for each cut */

static struct run {
    truce_store *store;
    struct school_notes notes;
    bool relaxed;
    uint32_t pad;
    int64_t rounds_max, calls_max;
    bool late;        /* the cut comes at the last call: nothing of a life is missed */
    int checkpointed; /* lives in which pages have moved into the file */
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

static void work_until_cut(void)
{
    pthread_t threads[WORKERS];

    for (intptr_t i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    disk_cut();
}

/* One life of a store that ends in a cut; how many things are wrong afterwards. */
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
        wrong += school_judge(path, &run.notes, WORKERS, !run.relaxed, tell);
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

TEST(relaxed_writes_are_lost_whole_or_not_at_all)
{
    run.relaxed = true;
    run.pad = 100000;
    run.rounds_max = 60;
    run.calls_max = 10000;
    cut_many_times(test_scale("TRUCE_POWER_CUTS", 20));
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
