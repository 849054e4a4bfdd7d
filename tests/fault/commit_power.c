/*
 * Power cuts while commits go through the journal. The state that the disk could hold then is
 * opened again, several times with different luck:
 *
 *   at once    a plain reader finds everything that was acknowledged, except the last commit of
 *              each worker, whose documents may still be held
 *   swept      every commit took effect as a whole or not at all, those that were acknowledged did,
 *              and nothing is held any more
 *
 * TRUCE_POWER_CUTS: how many cuts.
 */
#include <stdatomic.h>

#include "base/clock.h"
#include "tests/support/bank.h"
#include "tests/support/life.h"

enum { WORKERS = 3, ACCOUNTS = 4, LEASE_MS = 40 };

static struct run {
    bool lax; /* commits that do not wait for the disk: what must be noticed */
    atomic_int acknowledged[WORKERS];
    int missed; /* of that */
} run;

struct transfer {
    int worker, from, to;
};

/* ---- before the cut -------------------------------------------------------------------------- */

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

static int64_t step(truce_store *store, int worker, int number)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL,
                                    .lease_ms = LEASE_MS,
                                    .tries_max = 1000,
                                    .deadline_ms = 500,
                                    .relaxed = run.lax};
    struct transfer transfer = {worker, (worker + number) % ACCOUNTS,
                                (worker + number + 1) % ACCOUNTS};
    bson_error_t error;

    return truce_transact(store, move, &transfer, &options, &error) ? -1 : 1;
}

static void reported(int worker, int64_t answer)
{
    (void)answer;
    atomic_fetch_add(&run.acknowledged[worker], 1);
}

static bool begin(truce_store *store)
{
    char json[64];

    for (int i = 0; i < ACCOUNTS; i++) {
        snprintf(json, sizeof json, "{'_id': 'account%d', 'money': 100, 'moves': 0}", i);
        insert_json(store, "bank", json);
    }
    for (int i = 0; i < WORKERS; i++) {
        snprintf(json, sizeof json, "{'_id': 'worker%d', 'money': 0, 'moves': 0}", i);
        insert_json(store, "bank", json);
        atomic_store(&run.acknowledged[i], 0);
    }
    return true;
}

/* ---- after it -------------------------------------------------------------------------------- */

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

/* Returns how much is missing of the changes that were acknowledged to the workers, each of them
 * `but` commits. */
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

    run.missed += lost(store, 1);
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
    run.missed += lost(store, 0);
}

static const struct life life = {WORKERS, begin, step, reported, judge};

__attribute__((constructor)) static void install(void)
{
    life_install();
}

TEST(commits_of_the_journal_survive_power_cuts)
{
    uint64_t seed = test_seed();
    struct random random;

    run.lax = false;
    run.missed = 0;
    truce__random_seed(&random, seed);
    for (long i = test_scale("TRUCE_POWER_CUTS", 8); i > 0 && !test_failures(); i--)
        life_power_cut(&life, &random);
    CHECK_INT(run.missed, ==, 0);
}

/* Relaxed commits may be lost, but only as a whole. */
TEST(loses_a_relaxed_journal_commit_completely_or_not_at_all)
{
    uint64_t seed = test_seed();
    struct random random;

    run.lax = true;
    run.missed = 0;
    truce__random_seed(&random, seed);
    for (long i = test_scale("TRUCE_POWER_CUTS", 8); i > 0 && !test_failures(); i--)
        life_power_cut(&life, &random);
    CHECK_INT(run.missed, >, 0);
}
