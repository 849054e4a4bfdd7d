/*
 * Power cuts while transfers are made, step by step or as one commit. The state that the disk could
 * hold then is opened again, several times with different luck. Every acknowledged transfer is
 * there, and after a recovery pass each is made once, or not at all.
 *
 * TRUCE_POWER_CUTS: how many cuts.
 */
#include <stdatomic.h>

#include "base/clock.h"
#include "tests/support/life.h"
#include "tests/support/transfer_rig.h"

enum { WORKERS = 3, BALANCE = 1000 };

static truce_mechanism mechanism;
static atomic_int made[WORKERS];

static truce_transfers *open_transfers(truce_store *store)
{
    return truce_transfers_new(store, &(truce_transfer_options){.collection = "transactions",
                                                                .accounts = "accounts",
                                                                .resume_ms = 1,
                                                                .deadline_ms = 500,
                                                                .mechanism = mechanism});
}

static const char *account(int number, char text[8])
{
    snprintf(text, 8, "a%d", number % WORKERS);
    return text;
}

static bool begin(truce_store *store)
{
    char name[8];

    for (int i = 0; i < WORKERS; i++) {
        rig_account(store, account(i, name), BALANCE);
        atomic_store(&made[i], 0);
    }
    return true;
}

/* One unit at a time, from its account to the next one. */
static int64_t step(truce_store *store, int worker, int number)
{
    truce_transfers *transfers = open_transfers(store);
    char from[8], to[8], id[40];
    bson_error_t error;
    truce_status status;

    snprintf(id, sizeof id, "t%d-%d", worker, number);
    status =
        rig_move(transfers, id, account(worker, from), account(worker + 1, to), 1, NULL, &error);
    truce_transfers_free(transfers);
    return !status;
}

static void reported(int worker, int64_t answer)
{
    (void)answer;
    atomic_fetch_add(&made[worker], 1);
}

static int64_t done_by(truce_store *store, int worker)
{
    char filter[100];

    snprintf(filter, sizeof filter, "{'state': 'done', '_id': {'$regex': '^t%d-'}}", worker);
    return count_json(store, "transactions", filter);
}

static void sweep(truce_store *store)
{
    truce_sweep_report report;
    bson_error_t error = {0};

    for (int i = 0; i < 3; i++) {
        truce__clock_sleep_ms(2);
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    }
}

static void judge(truce_store *store)
{
    char name[8];

    for (int i = 0; i < WORKERS; i++)
        CHECK_INT(done_by(store, i), >=, atomic_load(&made[i]));
    sweep(store);
    for (int i = 0; i < WORKERS; i++) {
        int before = (i + WORKERS - 1) % WORKERS;

        CHECK_INT(rig_balance(store, account(i, name)), ==,
                  BALANCE - done_by(store, i) + done_by(store, before));
    }
    rig_settled(store);
}

static const struct life life = {WORKERS, begin, step, reported, judge};

__attribute__((constructor)) static void install(void)
{
    life_install();
}

TEST(every_transfer_is_made_once_or_not_at_all_after_a_power_cut)
{
    uint64_t seed = test_seed();
    struct random random;
    long cuts = test_scale("TRUCE_POWER_CUTS", 8);

    truce__random_seed(&random, seed);
    for (long i = 0; i < cuts && !test_failures(); i++) {
        mechanism = i % 2 ? TRUCE_MECHANISM_AUTO : TRUCE_MECHANISM_JOURNAL;
        life_power_cut(&life, &random);
    }
}

TEST(every_transfer_is_made_once_though_processes_are_killed)
{
    for (int i = 0; i < 2 && !test_failures(); i++) {
        mechanism = i ? TRUCE_MECHANISM_AUTO : TRUCE_MECHANISM_JOURNAL;
        life_kill(&life, test_scale("TRUCE_PATTERN_ANSWERS", 60));
    }
}
