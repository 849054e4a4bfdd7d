/* Random clients, random faults, from seeds. */
#include "tests/support/test.h"

#include "sim/sim.h"

static void run_seeds(uint64_t first, long count)
{
    int committed = 0, conflicts = 0, unknown = 0, crashes = 0, lates = 0;

    for (long i = 0; i < count; i++) {
        struct sim_result result;

        truce__sim_seed(SIM_COMMITS, first + (uint64_t)i, NULL, &result);
        committed += result.committed;
        conflicts += result.conflicts;
        unknown += result.unknown;
        crashes += result.crashes;
        lates += result.lates;
        if (result.violation) {
            test_fail(__FILE__, __LINE__, "seed %" PRIu64 ": %s (%s)", first + (uint64_t)i,
                      result.violation, result.detail);
            truce__sim_shrink(SIM_COMMITS, first + (uint64_t)i, stderr, &result);
            break;
        }
    }
    printf("%ld runs: %d committed, %d conflicts, %d unknown, %d crashes, %d late calls\n", count,
           committed, conflicts, unknown, crashes, lates);
    CHECK_INT(committed, >, count / 2);
}

TEST(the_first_seeds_are_serializable_and_reach_a_final_state)
{
    run_seeds(1, 2000);
}

TEST(random_runs_are_serializable_and_come_to_rest)
{
    run_seeds(test_seed(), test_scale("TRUCE_SIM_SEEDS", 10000));
}

TEST(one_seed_is_one_run)
{
    for (uint64_t seed = 1; seed < 50; seed++) {
        struct sim_result a, b;

        truce__sim_seed(SIM_COMMITS, seed, NULL, &a);
        truce__sim_seed(SIM_COMMITS, seed, NULL, &b);
        CHECK_INT(a.steps, ==, b.steps);
        CHECK_INT(a.committed, ==, b.committed);
        CHECK_INT(a.unknown, ==, b.unknown);
    }
}
