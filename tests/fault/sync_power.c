/*
 * Power cuts while sources are renamed and copies are added. The state that the disk could hold
 * then is opened again, several times with different luck. Every acknowledged write is there, and
 * after a recovery pass every copy equals its source.
 *
 * TRUCE_POWER_CUTS: how many cuts.
 */
#include <stdatomic.h>

#include "tests/support/life.h"
#include "tests/support/sync_rig.h"

enum { WORKERS = 3 };

static truce_mechanism mechanism;
static atomic_int renamed[WORKERS], added[WORKERS];

static bool begin(truce_store *store)
{
    truce_sync *sync = rig_sync(store, mechanism, 500);
    char json[100];

    for (int i = 0; i < WORKERS; i++) {
        snprintf(json, sizeof json, "{'_id': 'u%d', 'name': '0'}", i);
        insert_json(store, "users", json);
        atomic_store(&renamed[i], 0);
        atomic_store(&added[i], 0);
    }
    rig_author(sync);
    truce_sync_free(sync);
    return true;
}

/* Renames the worker's user to higher and higher numbers; users comment now and then, on all
 * workers' side. */
static int64_t step(truce_store *store, int worker, int number)
{
    truce_sync *sync = rig_sync(store, mechanism, 500);
    char user[8], json[120];
    int64_t answer = 0;
    bson_error_t error;

    snprintf(user, sizeof user, "u%d", worker);
    snprintf(json, sizeof json, "{'$set': {'name': '%d'}}", number + 1);
    if (!rig_change(sync, "users", user, json, NULL, &error))
        answer = number + 1;
    snprintf(json, sizeof json, "{'_id': 'c%d-%d', 'user': 'u%d'}", worker, number,
             (worker + number) % WORKERS);
    if (number % 4 == 1 && rig_insert(sync, "comments", json, NULL, &error))
        answer = 0;
    truce_sync_free(sync);
    return answer;
}

static void reported(int worker, int64_t answer)
{
    atomic_store(&renamed[worker], (int)answer);
    atomic_fetch_add(&added[worker], (answer - 1) % 4 == 1);
}

static void judge(truce_store *store)
{
    truce_sync *sync = rig_sync(store, mechanism, 0);
    char user[8], text[40];

    for (int i = 0; i < WORKERS; i++) {
        char filter[60];

        snprintf(user, sizeof user, "u%d", i);
        CHECK_INT(atoi(rig_text(store, "users", user, "name", text)), >=, atomic_load(&renamed[i]));
        snprintf(filter, sizeof filter, "{'_id': {'$regex': '^c%d-'}}", i);
        CHECK_INT(count_json(store, "comments", filter), >=, atomic_load(&added[i]));
    }
    rig_sweep(store);
    rig_in_step(sync, store, "author");
    CHECK_INT(count_json(store, "comments", "{'author': {'$exists': false}}"), ==, 0);
    truce_sync_free(sync);
}

static const struct life life = {WORKERS, begin, step, reported, judge};

__attribute__((constructor)) static void install(void)
{
    life_install();
}

TEST(every_copy_equals_its_source_after_a_power_cut_and_a_sweep)
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

TEST(every_copy_is_consistent_though_processes_are_killed)
{
    for (int i = 0; i < 2 && !test_failures(); i++) {
        mechanism = i ? TRUCE_MECHANISM_AUTO : TRUCE_MECHANISM_JOURNAL;
        life_kill(&life, test_scale("TRUCE_PATTERN_ANSWERS", 60));
    }
}
