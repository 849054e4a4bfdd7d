/*
 * Power cuts while commits go through the journal. What the disk could hold then is opened again,
 * several times with different luck:
 *
 *   at once    a plain reader finds everything that was acknowledged, but for the last commit of
 *              each worker, whose documents may still be held
 *   swept      every commit took effect as a whole or not at all, those that were acknowledged did,
 *              and nothing is held any more
 *
 * TRUCE_POWER_CUTS: how many cuts.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "tests/support/bank.h"
#include "tests/support/disk_vfs.h"

enum { WORKERS = 3, ACCOUNTS = 4, LUCK = 3, LEASE_MS = 40 };

static struct run {
    truce_store *store;
    bool lax; /* commits that do not wait for the disk: what must be noticed */
    atomic_int acknowledged[WORKERS];
} run;

struct transfer {
    int worker, from, to;
};

/* ---- before the cut --------------------------------------------------------------------------- */

static truce_status add(truce_commit *commit, const char *kind, int number, int money, int moves,
                        bson_error_t *error)
{
    char id[16], update[80];

    snprintf(id, sizeof id, "%s%d", kind, number);
    snprintf(update, sizeof update, "{'$inc': {'money': %d, 'moves': %d}}", money, moves);
    return add_update(commit, "bank", id, NULL, update, error);
}

static truce_status move(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct transfer *transfer = arg;
    truce_status status = add(commit, "account", transfer->from, -1, 1, error);

    if (!status)
        status = add(commit, "account", transfer->to, 1, 0, error);
    return status ? status : add(commit, "worker", transfer->worker, 0, 1, error);
}

static void *work(void *arg)
{
    int worker = (int)(intptr_t)arg;
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL,
                                    .lease_ms = LEASE_MS,
                                    .tries_max = 1000,
                                    .deadline_ms = 500,
                                    .relaxed = run.lax};

    for (int i = 0; !disk_is_cut(); i++) {
        struct transfer transfer = {worker, (worker + i) % ACCOUNTS, (worker + i + 1) % ACCOUNTS};
        bson_error_t error;

        if (truce_transact(run.store, move, &transfer, &options, &error))
            break;
        atomic_fetch_add(&run.acknowledged[worker], 1);
    }
    return NULL;
}

static bool open_bank(const char *path)
{
    bson_error_t error;
    char json[64];

    if (!CHECK_OK(truce_store_open(path, NULL, &run.store, &error), error))
        return false;
    for (int i = 0; i < ACCOUNTS; i++) {
        snprintf(json, sizeof json, "{'_id': 'account%d', 'money': 100, 'moves': 0}", i);
        insert_json(run.store, "bank", json);
    }
    for (int i = 0; i < WORKERS; i++) {
        snprintf(json, sizeof json, "{'_id': 'worker%d', 'money': 0, 'moves': 0}", i);
        insert_json(run.store, "bank", json);
        atomic_store(&run.acknowledged[i], 0);
    }
    return true;
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

/* ---- after it ---------------------------------------------------------------------------------- */

static int64_t number_of(truce_store *store, const char *kind, int number, const char *field)
{
    bson_t filter = BSON_INITIALIZER, found;
    bson_error_t error;
    int64_t value = -1;
    bson_iter_t iter;
    char id[16];

    snprintf(id, sizeof id, "%s%d", kind, number);
    BSON_APPEND_UTF8(&filter, "_id", id);
    if (CHECK_OK(truce_find_one(store, "bank", &filter, NULL, &found, &error), error) &&
        CHECK(bson_iter_init_find(&iter, &found, field)))
        value = bson_iter_as_int64(&iter);
    bson_destroy(&found);
    bson_destroy(&filter);
    return value;
}

/* How much is missing of what the workers were told, each of them `but` commits. */
static int lost(truce_store *store, int but)
{
    int count = 0;

    for (int i = 0; i < WORKERS; i++)
        count += number_of(store, "worker", i, "moves") + but < atomic_load(&run.acknowledged[i]);
    return count;
}

static void sweep_all(truce_store *store)
{
    truce_sweep_options options = {0};
    truce_sweep_report report;
    bson_error_t error;

    for (int i = 0; i < 1000 && count_json(store, "bank", "{'_intent': {'$exists': true}}"); i++) {
        CHECK_OK(truce_sweep(store, &options, &report, &error), error);
        truce__clock_sleep_ms(LEASE_MS / 4);
    }
    CHECK_INT(count_json(store, "bank", "{'_intent': {'$exists': true}}"), ==, 0);
}

static void judge(truce_store *store)
{
    int64_t money = 0, moves = 0, done = 0;

    sweep_all(store);
    for (int i = 0; i < ACCOUNTS; i++) {
        money += number_of(store, "account", i, "money");
        moves += number_of(store, "account", i, "moves");
    }
    for (int i = 0; i < WORKERS; i++) {
        done += number_of(store, "worker", i, "moves");
        CHECK_INT(number_of(store, "worker", i, "moves"), <=,
                  atomic_load(&run.acknowledged[i]) + 1);
    }
    CHECK_INT(money, ==, 100 * ACCOUNTS);
    CHECK_INT(moves, ==, done);
}

/* One life of a store that ends in a cut; how many acknowledged things are missing. */
static int live_and_die(struct random *random, bool honest)
{
    const char *directory = test_directory();
    bson_error_t error;
    char path[400];
    int missed = 0;

    disk_reset();
    disk_honest(honest);
    snprintf(path, sizeof path, "%s/s.truce", directory);
    if (!open_bank(path))
        return 0;
    disk_cut_after(1 + (int64_t)truce__random_below(random, 1500));
    work_until_cut();
    for (int i = 0; i < LUCK; i++) {
        snprintf(path, sizeof path, "%s/%d", directory, i);
        mkdir(path, 0700);
        disk_restore(path, random);
    }
    truce_store_close(run.store);
    disk_reset();
    for (int i = 0; i < LUCK; i++) {
        truce_store *store;

        snprintf(path, sizeof path, "%s/%d/s.truce", directory, i);
        if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
            break;
        missed += lost(store, 1);
        judge(store);
        missed += lost(store, 0);
        truce_store_close(store);
    }
    return missed;
}

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

TEST(commits_of_the_journal_survive_power_cuts)
{
    uint64_t seed = test_seed();
    struct random random;

    run.lax = false;
    truce__random_seed(&random, seed);
    for (long i = test_scale("TRUCE_POWER_CUTS", 8); i > 0 && !test_failures(); i--)
        CHECK_INT(live_and_die(&random, true), ==, 0);
}

/* What is relaxed on purpose may be lost, but as a whole. */
TEST(relaxed_commits_of_the_journal_are_lost_whole_or_not_at_all)
{
    uint64_t seed = test_seed();
    struct random random;
    int missed = 0;

    run.lax = true;
    truce__random_seed(&random, seed);
    for (long i = test_scale("TRUCE_POWER_CUTS", 8); i > 0 && !test_failures(); i--)
        missed += live_and_die(&random, true);
    CHECK_INT(missed, >, 0);
}
