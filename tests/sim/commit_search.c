/* Small cases of the commit, all interleavings of store calls: without faults, with every crash,
 * and with calls that land late. */
#include <stdlib.h>

#include "tests/support/scenarios.h"
#include "tests/support/test.h"

static void search(const struct sim_scenario *base, int crashes, int losses, int lates, int jumps)
{
    struct sim_scenario scenario = *base;
    struct sim_search found;
    uint64_t runs_max = (uint64_t)test_scale("TRUCE_SIM_RUNS", 20000);

    scenario.crashes = crashes;
    scenario.losses = losses;
    scenario.lates = lates;
    scenario.jumps = jumps > scenario.jumps ? jumps : scenario.jumps;
    truce__sim_search(&scenario, runs_max, stderr, &found);
    printf("%-56s crashes %d losses %d lates %d jumps %d: %s %" PRIu64 " states, %" PRIu64
           " runs\n",
           scenario.name, crashes, losses, lates, scenario.jumps,
           found.complete ? "complete," : "not complete,", found.states, found.runs);
    if (found.result.violation)
        test_fail(__FILE__, __LINE__, "%s: %s (%s)", scenario.name, found.result.violation,
                  found.result.detail);
}

static void search_all(int crashes, int losses, int lates, int jumps)
{
    const char *only = getenv("TRUCE_SIM_ONLY");

    for (int i = 0; i < scenarios_count; i++) {
        if (!only || strstr(scenarios[i].name, only))
            search(&scenarios[i], crashes, losses, lates, jumps);
    }
}

TEST(every_interleaving_of_the_small_cases_is_serializable)
{
    search_all(0, 0, 0, 0);
}

TEST(a_crash_at_any_call_leaves_nothing_by_half)
{
    search_all(1, 0, 0, 1);
}

TEST(a_call_that_lands_late_does_no_harm)
{
    search_all(0, 0, 1, 1);
}

TEST(a_lost_answer_does_no_harm)
{
    search_all(0, 1, 0, 0);
}
