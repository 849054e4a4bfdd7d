/*
 * Power cuts under a feed of changes. Threads write, drop, and rename on a store whose disk loses
 * power at a random write or sync; the state that the disk could hold then is opened again. A
 * client that follows the feed from its beginning has the documents of the store. Every
 * acknowledged write is in both, and a change that was reported before the cut is reported again.
 * Documents before a change, of the collection that keeps them, equal the documents of the follower
 * at that place.
 *
 * TRUCE_POWER_CUTS: how many cuts.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "store/file/file.h"
#include "store/store.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/feed_replay.h"
#include "tests/support/test.h"

#define WORKERS 3
#define HOUR_MS INT64_C(3600000)

static struct run {
    truce_store *store;
    atomic_int acknowledged[WORKERS]; /* documents, in the order of their numbers */
    int64_t reported;                 /* the last position that a follower received */
    bson_error_t errors[WORKERS];     /* the reason why each ended, if the disk was not cut */
} run;

static int64_t entries, images; /* of all lives */

static truce_status write_one(int worker, int number, bson_error_t *error)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(worker * 1000000 + number), "n", BCON_INT32(0));
    bson_t *filter = BCON_NEW("_id", BCON_INT32(worker * 1000000 + number / 2));
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    truce_status status = truce_insert(run.store, "kept", document, NULL, error);

    if (!status)
        atomic_store(&run.acknowledged[worker], number + 1);
    if (!status)
        status = truce_update(run.store, "kept", filter, update, NULL, NULL, error);
    if (!status && number % 5 == 0)
        status = truce_insert(run.store, "passing", document, NULL, error);
    if (number % 20 == 7) /* a later thread finds nothing, or a duplicate key */
        (void)!truce_collection_rename(run.store, "passing", "passed", true, error);
    if (number % 20 == 17)
        (void)!truce_collection_drop(run.store, "passed", error);
    bson_destroy(document);
    bson_destroy(filter);
    bson_destroy(update);
    return status;
}

static void *work(void *arg)
{
    int worker = (int)(intptr_t)arg;
    bson_error_t error = {0};

    for (int i = 0; !disk_is_cut() && !write_one(worker, i, &error); i++)
        continue;
    if (!disk_is_cut())
        run.errors[worker] = error;
    return NULL;
}

static bool take(void *arg, const struct feed_entry *entry)
{
    (void)arg;
    return entry->position > 0;
}

static void *follow(void *arg)
{
    struct engine *engine = truce__file_engine(run.store);
    struct feed_state state;
    bson_error_t error;
    int64_t reached;

    while (!disk_is_cut() && !truce__engine_feed_state(engine, &state, &error))
        if (!truce__engine_feed_read(engine, &state.spec.id,
                                     run.reported ? run.reported : state.horizon, 100, take, arg,
                                     &reached, &error))
            run.reported = reached;
    return NULL;
}

static int judge(const char *path)
{
    int before = test_failures();
    struct replay replay;
    truce_store *store;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return 1;
    CHECK_OK(truce__engine_check(truce__file_engine(store), NULL, NULL, &error), error);
    replay_open(&replay);
    CHECK(replay_follow(&replay, store) && replay_same(&replay, store));
    CHECK_INT(replay.images, ==, 2 * replay.kinds[FEED_UPDATE]); /* of "kept" alone */
    images += replay.images;
    CHECK_INT(replay.position, >=, run.reported);
    entries += replay.entries;
    for (int worker = 0; worker < WORKERS; worker++) {
        bson_t *filter = BCON_NEW("_id", "{", "$gte", BCON_INT32(worker * 1000000), "$lt",
                                  BCON_INT32((worker + 1) * 1000000), "}");
        int64_t count = 0;

        CHECK_OK(truce_count(replay.copy, "kept", filter, NULL, &count, &error), error);
        CHECK_INT(count, >=, atomic_load(&run.acknowledged[worker]));
        bson_destroy(filter);
    }
    replay_close(&replay);
    truce_store_close(store);
    return test_failures() - before;
}

static int live_and_die(struct random *random)
{
    const char *directory = test_directory();
    pthread_t threads[WORKERS + 1];
    bson_error_t error;
    char path[400];
    int wrong = 0;

    memset(&run, 0, sizeof run);
    disk_reset();
    snprintf(path, sizeof path, "%s/s.truce", directory);
    if (!CHECK_OK(truce_store_open(path, NULL, &run.store, &error), error) ||
        !CHECK_OK(truce__engine_feed_keep(truce__file_engine(run.store), HOUR_MS, 0, &error),
                  error) ||
        !CHECK_OK(truce_collection_create(run.store, "kept", &error), error) ||
        !CHECK_OK(truce__store_keep_images(run.store, "kept", true, &error), error))
        return 1;
    disk_cut_after(1 + (int64_t)truce__random_below(random, 1500));
    for (intptr_t i = 0; i <= WORKERS; i++)
        pthread_create(&threads[i], NULL, i < WORKERS ? work : follow, (void *)i);
    for (int i = 0; i <= WORKERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < WORKERS; i++)
        CHECK_TEXT("", run.errors[i].message);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d", directory, i);
        mkdir(path, 0700);
        disk_restore(path, random);
    }
    truce_store_close(run.store);
    disk_reset();
    for (int i = 0; i < 2 && !wrong; i++) {
        snprintf(path, sizeof path, "%s/%d/s.truce", directory, i);
        wrong += judge(path);
    }
    return wrong;
}

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

TEST(a_feed_survives_power_cuts_with_its_reported_events)
{
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long i = test_scale("TRUCE_POWER_CUTS", 15);
         (i > 0 || (entries <= 100 && i > -100)) && !test_failures(); i--)
        CHECK(!live_and_die(&random));
    CHECK_INT(entries, >, 100);
    CHECK_INT(images, >, 0);
}
