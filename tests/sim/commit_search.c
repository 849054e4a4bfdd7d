/* Small cases of the commit, all interleavings of store calls. Two commits are searched to the
 * end, without faults, with every crash, and with a call that lands late. More clients and more
 * faults are searched as far as the bound goes (TRUCE_SIM_RUNS; 250,000 completes nearly all). */
#include <stdlib.h>

#include "tests/support/scenarios.h"
#include "tests/support/test.h"

struct budget {
    int crashes, losses, lates, jumps;
};

static void search(const struct sim_scenario *base, struct budget budget, long runs,
                   bool to_the_end)
{
    struct sim_scenario scenario = *base;
    struct sim_search found;

    scenario.crashes = budget.crashes;
    scenario.losses = budget.losses;
    scenario.lates = budget.lates;
    scenario.jumps = budget.jumps > scenario.jumps ? budget.jumps : scenario.jumps;
    truce__sim_search(&scenario, (uint64_t)runs, stderr, &found);
    printf("%-56s crashes %d losses %d lates %d jumps %d: %s %" PRIu64 " states, %" PRIu64
           " runs\n",
           scenario.name, budget.crashes, budget.losses, budget.lates, scenario.jumps,
           found.complete ? "complete," : "not complete,", found.states, found.runs);
    if (found.result.violation)
        test_fail(__FILE__, __LINE__, "%s: %s (%s)", scenario.name, found.result.violation,
                  found.result.detail);
    if (to_the_end)
        CHECK(found.complete);
}

static bool wanted(const struct sim_scenario *scenario)
{
    const char *only = getenv("TRUCE_SIM_ONLY");

    return !only || strstr(scenario->name, only);
}

static void search_all(struct budget budget)
{
    long runs = test_scale("TRUCE_SIM_FAULTS", 150);

    for (int i = 0; i < scenarios_count; i++) {
        if (wanted(&scenarios[i]))
            search(&scenarios[i], budget, runs, false);
    }
}

static void search_named(const char *const *names, struct budget budget, long runs_max,
                         bool to_the_end)
{
    long runs = test_scale("TRUCE_SIM_RUNS", runs_max);

    for (; *names; names++) {
        if (wanted(scenario_named(*names)))
            search(scenario_named(*names), budget, runs, to_the_end && runs >= runs_max);
    }
}

/* To its end: where both may begin again, one by one (journal.c, CK3), there are many. */
static long runs_of_all(const struct sim_scenario *scenario)
{
    return strcmp(scenario->name, "two commits read and write a, b") != 0 ? 30000 : 250000;
}

TEST(every_interleaving_of_two_clients_is_serializable)
{
    for (int i = 0; i < scenarios_count; i++) {
        long all = runs_of_all(&scenarios[i]), runs = test_scale("TRUCE_SIM_RUNS", all);

        if (wanted(&scenarios[i]) && scenarios[i].clients_count == 2 && !scenarios[i].jumps)
            search(&scenarios[i], (struct budget){0}, runs, runs >= all);
    }
}

TEST(a_crash_at_any_call_of_two_commits_leaves_nothing_by_half)
{
    static const char *const names[] = {"insert c and write a; remove c",
                                        "native next to journal: write skew", NULL};
    static const char *const larger[] = {"write skew: require a, write b; require b, write a",
                                         "both insert c", NULL};

    search_named(names, (struct budget){.crashes = 1, .jumps = 1}, 13500, true);
    search_named(larger, (struct budget){.crashes = 1, .jumps = 1}, 4000, false);
}

TEST(a_second_crash_changes_nothing)
{
    static const char *const names[] = {"insert c and write a; remove c", NULL};

    search_named(names, (struct budget){.crashes = 2, .jumps = 1}, 17000, true);
}

TEST(a_call_that_arrives_late_does_no_harm)
{
    static const char *const names[] = {"a fast write, unanswered",
                                        "a blind fast write, unanswered",
                                        "a fast insert, unanswered; remove; commit", NULL};
    static const char *const larger[] = {"insert c and write a; remove c", NULL};

    search_named(names, (struct budget){.lates = 1, .jumps = 1}, 1000, true);
    search_named(larger, (struct budget){.lates = 1, .jumps = 1}, 10000, false);
}

TEST(explores_all_small_cases_with_every_kind_of_fault)
{
    search_all((struct budget){.crashes = 1, .jumps = 1});
    search_all((struct budget){.lates = 2, .jumps = 1});
    search_all((struct budget){.losses = 1});
}
