/* truce simulate: runs the simulator. */
#include <string.h>

#include "base/plural.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/progress.h"
#include "sim/sim.h"

static void simulate_add(struct sim_result *sum, const struct sim_result *result)
{
    sum->steps += result->steps;
    sum->committed += result->committed;
    sum->conflicts += result->conflicts;
    sum->unknown += result->unknown;
    sum->crashes += result->crashes;
    sum->losses += result->losses;
    sum->lates += result->lates;
    sum->jumps += result->jumps;
}

static void print_sum(const struct cli *cli, int64_t seeds, const struct sim_result *sum)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_INT64(&answer, "seeds", seeds);
    BSON_APPEND_INT32(&answer, "steps", sum->steps);
    BSON_APPEND_INT32(&answer, "committed", sum->committed);
    BSON_APPEND_INT32(&answer, "conflicts", sum->conflicts);
    BSON_APPEND_INT32(&answer, "unknown", sum->unknown);
    BSON_APPEND_INT32(&answer, "crashes", sum->crashes);
    BSON_APPEND_INT32(&answer, "lost", sum->losses);
    BSON_APPEND_INT32(&answer, "late", sum->lates);
    cli_answer(
        cli, &answer, "%s: %s committed, %s, %d unknown; %s, %s, %s; no violation",
        PLURAL(seeds, "seed", "seeds"), PLURAL(sum->committed, "transaction", "transactions"),
        PLURAL(sum->conflicts, "conflict", "conflicts"), sum->unknown,
        PLURAL(sum->crashes, "crash", "crashes"), PLURAL(sum->losses, "lost reply", "lost replies"),
        PLURAL(sum->lates, "late call", "late calls"));
    bson_destroy(&answer);
}

/* Reads --of; SIM_SUBJECTS means all. For an unknown subject, prints the error and returns
 * false. */
static bool read_subject(const struct cli *cli, enum sim_subject *subject)
{
    const char *of = cli_text(cli, "of");

    for (*subject = SIM_COMMITS; of && *subject < SIM_SUBJECTS; ++*subject) {
        if (!strcmp(of, truce__sim_subjects[*subject]))
            return true;
    }
    *subject = SIM_SUBJECTS;
    if (of)
        cli_usage(cli,
                  "invalid --of \"%s\": expected commits, items, revisions, sets, queue, ledger, "
                  "transfer, tree, or sync",
                  of);
    return !of;
}

/* Runs one seed. Returns false if it found a violation. */
static bool simulate_seed(struct cli *cli, enum sim_subject subject, uint64_t seed,
                          struct sim_result *sum)
{
    struct sim_result result;

    for (int of = 0; of < SIM_SUBJECTS; of++) {
        if (subject != SIM_SUBJECTS && (enum sim_subject)of != subject)
            continue;
        truce__sim_seed((enum sim_subject)of, seed, cli_flag(cli, "trace") ? stdout : NULL,
                        &result);
        if (result.violation) {
            truce__sim_shrink((enum sim_subject)of, seed, stdout, &result);
            cli_message(cli, CLI_NO, "seed %lld of %s: %s (%s)", (long long)seed,
                        truce__sim_subjects[of], result.violation, result.detail);
            return false;
        }
        simulate_add(sum, &result);
    }
    return true;
}

static int simulate_run(struct cli *cli)
{
    struct sim_result sum = {0};
    struct cli_progress progress;
    enum sim_subject subject;
    int64_t first, count;

    if (!read_subject(cli, &subject) || !cli_number(cli, "seed", 0, INT64_MAX, 1, &first) ||
        !cli_number(cli, "count", 1, INT32_MAX, cli_text(cli, "seed") ? 1 : 10000, &count))
        return CLI_USAGE;
    cli_progress_begin(cli, &progress, "simulated");
    for (int64_t i = 0; i < count; i++) {
        if (!simulate_seed(cli, subject, (uint64_t)(first + i), &sum)) {
            cli_progress_end(&progress);
            return CLI_NO;
        }
        cli_progress(&progress, i + 1, count);
    }
    cli_progress_end(&progress);
    print_sum(cli, count, &sum);
    return cli_output_end(CLI_DONE);
}

static const struct cli_command cli_simulate = {
    .noun = "simulate",
    .summary = "simulate commits and patterns under faults",
    .help =
        "Logical clients commit, read, and sweep on a store in memory. The seed determines the\n"
        "order of their calls, and injects deaths, lost replies, late calls, and clock jumps.\n"
        "Each run is checked against the guarantees:\n"
        "  commits      all or nothing, exactly once, strictly serializable\n"
        "  items        no reader sees an item missing, twice, or half-changed\n"
        "  revisions    no edit is lost silently\n"
        "  sets         operations take effect in the order of their numbers\n"
        "  queue        the effects of a job happen once, and only from its current worker\n"
        "  ledger, transfer   no money is created or lost\n"
        "  tree         a reader sees a version completely\n"
        "  sync         a stale copy is flagged\n"
        "No plain write is overwritten silently, and no work is pending at the end. A failing\n"
        "seed is reduced to the smallest run that fails, which is printed.",
    .example = "truce simulate --count 100\n"
               "truce simulate --seed 42",
    .options =
        (const struct cli_option[]){
            {"of", 0, "WHAT",
             "commits, items, revisions, sets, queue, ledger, transfer, tree, sync (default: all)",
             false},
            {"seed", 0, "N", "the first seed (default: 1); without --count, the only one", false},
            {"count", 0, "N", "number of consecutive seeds (default: 10,000)", false},
            {"trace", 0, NULL, "print every call", false},
            {0}},
    .store = CLI_STORE_NONE,
    .run = simulate_run,
};

cli_command_list cli_simulate_commands = {&cli_simulate, NULL};
