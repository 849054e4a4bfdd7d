/*
 * Power cuts while trees are published and collected. Items need not be on the disk before the
 * master, which is written after them: one file keeps the order. The state that the disk could hold
 * is opened again, several times with different luck: every version that was acknowledged is there,
 * and every one that is there is whole.
 *
 * TRUCE_POWER_CUTS: how many cuts.
 */
#include <stdatomic.h>

#include "tests/support/life.h"
#include "tests/support/tree_rig.h"

enum { WORKERS = 3, KEPT = 5 };

static atomic_llong published; /* the highest version that was acknowledged */

static void reported(int worker, int64_t version)
{
    long long before = atomic_load(&published);

    (void)worker;
    while (version > before && !atomic_compare_exchange_weak(&published, &before, version))
        continue;
}

/* Publishes all three of one number; a worker that was not the first begins again. */
static int64_t step(truce_store *store, int worker, int number)
{
    truce_tree *tree = rig_tree(store, NULL, 500);
    int64_t version = 0;
    bson_error_t error;
    char changes[100];

    snprintf(changes, sizeof changes, "a=%d-%d b=%d-%d c=%d-%d", worker, number, worker, number,
             worker, number);
    if (rig_publish(tree, changes, &version, &error))
        version = 0;
    if (number % 4 == 3)
        (void)!truce_tree_collect(tree, NULL, &error);
    truce_tree_free(tree);
    return version;
}

static bool begin(truce_store *store)
{
    truce_tree *tree = rig_tree(store, NULL, 500);
    bson_error_t error;
    bool begun = CHECK_OK(rig_publish(tree, "a=x b=x c=x", NULL, &error), error);

    rig_keep(tree, KEPT);
    truce_tree_free(tree);
    atomic_store(&published, 1);
    return begun;
}

static bool is_whole(const char *seen)
{
    char a[40], b[40], c[40];

    return sscanf(seen, "a=%39s b=%39s c=%39s", a, b, c) == 3 && !strcmp(a, b) && !strcmp(b, c);
}

static int64_t number(truce_tree *tree, const char *field)
{
    bson_t status;
    bson_iter_t iter;
    bson_error_t error = {0};
    int64_t found = -1;

    CHECK_OK(truce_tree_status(tree, &status, &error), error);
    if (bson_iter_init_find(&iter, &status, field))
        found = bson_iter_as_int64(&iter);
    bson_destroy(&status);
    return found;
}

static void judge(truce_store *store)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    bson_error_t error = {0};

    CHECK_INT(number(tree, "current"), >=, atomic_load(&published));
    for (int64_t i = number(tree, "kept"); i <= number(tree, "current"); i++) {
        struct rig_text seen;

        CHECK_OK(rig_see(tree, i, &seen, &error), error);
        if (!is_whole(seen.text))
            test_fail(__FILE__, __LINE__, "version %d is %s", (int)i, seen.text);
    }
    CHECK_OK(rig_publish(tree, "a=end b=end c=end", NULL, &error), error);
    rig_collect(tree, NULL);
    CHECK_TREE("a=end b=end c=end", tree, 0);
    truce_tree_free(tree);
}

static const struct life life = {WORKERS, begin, step, reported, judge};

__attribute__((constructor)) static void install(void)
{
    life_install();
}

TEST(every_version_is_complete_after_a_power_cut)
{
    uint64_t seed = test_seed();
    struct random random;
    long cuts = test_scale("TRUCE_POWER_CUTS", 8);

    truce__random_seed(&random, seed);
    for (long i = 0; i < cuts && !test_failures(); i++)
        life_power_cut(&life, &random);
}

TEST(every_version_is_complete_if_publishers_are_killed)
{
    life_kill(&life, test_scale("TRUCE_PATTERN_ANSWERS", 60));
}
