/* Every pattern under random clients and random faults, from seeds. */
#include "sim/sim.h"
#include "tests/support/test.h"

static void run_seeds(enum sim_subject subject, uint64_t first, long count)
{
    int committed = 0, unknown = 0, crashes = 0, losses = 0, lates = 0;

    for (long i = 0; i < count; i++) {
        struct sim_result result;

        truce__sim_seed(subject, first + (uint64_t)i, NULL, &result);
        committed += result.committed;
        unknown += result.unknown;
        crashes += result.crashes;
        losses += result.losses;
        lates += result.lates;
        if (result.violation) {
            test_fail(__FILE__, __LINE__, "seed %" PRIu64 " of %s: %s (%s)", first + (uint64_t)i,
                      truce__sim_subjects[subject], result.violation, result.detail);
            truce__sim_shrink(subject, first + (uint64_t)i, stderr, &result);
            break;
        }
    }
    printf("%ld runs: %d done, %d unknown, %d crashes, %d lost replies, %d late calls\n", count,
           committed, unknown, crashes, losses, lates);
    CHECK_INT(committed, >, count);
    if (count < 1000) /* a few runs may have no faults */
        return;
    CHECK_INT(crashes, >, count / 20);
    CHECK_INT(lates, >, count / 40);
}

/* Runs the seeds that every run has; under a sanitizer fewer of them. */
static void run_first_seeds(enum sim_subject subject, long count)
{
    run_seeds(subject, 1, count * test_scale("TRUCE_SIM_FIRST_PERCENT", 100) / 100);
}

TEST(no_reader_ever_misses_an_item_in_the_first_seeds)
{
    run_first_seeds(SIM_ITEMS, 1500);
}

TEST(no_reader_ever_misses_an_item_in_random_runs)
{
    run_seeds(SIM_ITEMS, test_seed(), test_scale("TRUCE_SIM_PATTERNS", 800));
}

TEST(no_edit_is_lost_silently_in_the_first_seeds)
{
    run_first_seeds(SIM_REVISIONS, 1500);
}

TEST(no_edit_is_lost_silently_in_random_runs)
{
    run_seeds(SIM_REVISIONS, test_seed(), test_scale("TRUCE_SIM_PATTERNS", 800));
}

TEST(operations_of_a_set_count_in_their_order_in_the_first_seeds)
{
    run_first_seeds(SIM_SETS, 1000);
}

TEST(operations_of_a_set_count_in_their_order_in_random_runs)
{
    run_seeds(SIM_SETS, test_seed(), test_scale("TRUCE_SIM_PATTERNS", 800));
}

TEST(the_effect_of_a_job_is_there_once_in_the_first_seeds)
{
    run_first_seeds(SIM_QUEUE, 400);
}

TEST(the_effect_of_a_job_is_there_once_in_random_runs)
{
    run_seeds(SIM_QUEUE, test_seed(), test_scale("TRUCE_SIM_PATTERNS", 200));
}

TEST(no_money_of_a_ledger_is_made_or_lost_in_the_first_seeds)
{
    run_first_seeds(SIM_LEDGER, 300);
}

TEST(no_money_of_a_ledger_is_made_or_lost_in_random_runs)
{
    run_seeds(SIM_LEDGER, test_seed(), test_scale("TRUCE_SIM_PATTERNS", 200));
}

TEST(every_transfer_ends_as_reported_in_the_first_seeds)
{
    run_first_seeds(SIM_TRANSFER, 500);
}

TEST(every_transfer_ends_as_reported_in_random_runs)
{
    run_seeds(SIM_TRANSFER, test_seed(), test_scale("TRUCE_SIM_PATTERNS", 300));
}

TEST(readers_see_complete_versions_of_a_tree_in_the_first_seeds)
{
    run_first_seeds(SIM_TREE, 200);
}

TEST(readers_see_complete_versions_of_a_tree_in_random_runs)
{
    run_seeds(SIM_TREE, test_seed(), test_scale("TRUCE_SIM_PATTERNS", 200));
}

TEST(outdated_copies_are_detected_in_the_first_seeds)
{
    run_first_seeds(SIM_SYNC, 200);
}

TEST(outdated_copies_are_detected_in_random_runs)
{
    run_seeds(SIM_SYNC, test_seed(), test_scale("TRUCE_SIM_PATTERNS", 200));
}

/* Several clients wait to be late, and there are fewer slots for late calls than clients. */
TEST(allows_more_late_clients_than_slots_for_late_calls)
{
    struct sim_result result;

    truce__sim_seed(SIM_LEDGER, UINT64_C(1795832483066), NULL, &result);
    CHECK(!result.violation);
    CHECK_INT(result.lates, >, 0);
}

TEST(one_seed_of_a_pattern_is_one_run)
{
    for (uint64_t seed = 1; seed < 60; seed++) {
        enum sim_subject subject = SIM_ITEMS + seed % 8;
        struct sim_result a, b;

        truce__sim_seed(subject, seed, NULL, &a);
        truce__sim_seed(subject, seed, NULL, &b);
        CHECK_INT(a.steps, ==, b.steps);
        CHECK_INT(a.committed, ==, b.committed);
        CHECK_INT(a.unknown, ==, b.unknown);
    }
}
