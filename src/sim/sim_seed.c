#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "sim/sim_run.h"

/*
 * A run from a seed. The seed determines the scenario (the clients, their transactions, and the
 * number of faults of each kind) and then every choice. Most choices are ordinary steps. Sometimes
 * one client runs for several steps, because a race needs a fast client and a slow one.
 */

/* The maximum number of transactions of a client. */
#define SCRIPTS_MAX 4
/* The number of seeds that are tried before a smaller scenario counts as correct. */
#define SHRINK_WALKS 2000

/* A chooser that draws its choices from a seed. */
struct seed_chooser {
    struct sim_chooser base;
    struct random random;
    /* The client that made the last step. It is likely to make the next one, too. */
    int favourite;
    /* The percentage of choices that may be faults. */
    unsigned faults;
};

/* Draws a choice: sometimes any event, otherwise a step, preferably of the client that made the
 * last one. */
static int seed_choose(struct sim_chooser *base, const struct sim_choice *choices, int count,
                       uint64_t state)
{
    struct seed_chooser *chooser = (struct seed_chooser *)base;
    struct random *random = &chooser->random;
    int steps[64], steps_count = 0;

    (void)state;
    if (truce__random_below(random, 100) < chooser->faults)
        return (int)truce__random_below(random, (uint64_t)count);
    for (int i = 0; i < count; i++) {
        if (choices[i].action != SIM_STEP)
            continue;
        if (choices[i].index == chooser->favourite && truce__random_below(random, 100) < 60)
            return i;
        steps[steps_count++] = i;
    }
    if (!steps_count)
        return (int)truce__random_below(random, (uint64_t)count);
    count = steps[truce__random_below(random, (uint64_t)steps_count)];
    chooser->favourite = choices[count].index;
    return count;
}

void truce__sim_walks(const struct sim_scenario *scenario, uint64_t seed, uint64_t runs,
                      FILE *trace, struct sim_result *result)
{
    for (uint64_t i = 0; i < runs; i++) {
        struct seed_chooser chooser = {.base = {.choose = seed_choose}, .faults = 15};

        truce__random_seed(&chooser.random, seed + i);
        truce__sim_run(scenario, &chooser.base, NULL, result);
        if (!result->violation)
            continue;
        if (trace) { /* Repeats the run with a trace. */
            struct seed_chooser same = {.base = {.choose = seed_choose}, .faults = 15};
            struct sim_result again;

            fprintf(trace, "scenario %s, walk %llu:\n", scenario->name,
                    (unsigned long long)(seed + i));
            truce__random_seed(&same.random, seed + i);
            truce__sim_run(scenario, &same.base, trace, &again);
            truce_assert(again.violation);
        }
        return;
    }
}

static enum sim_op random_op(struct random *random)
{
    static const enum sim_op ops[] = {
        SIM_NONE,       SIM_NONE,         SIM_REQUIRE,     SIM_REQUIRE,
        SIM_READ_WRITE, SIM_READ_WRITE,   SIM_BLIND_WRITE, SIM_BLIND_WRITE,
        SIM_INSERT,     SIM_REMOVE,       SIM_HOLD,        SIM_REPLACE,
        SIM_READ_WRITE, SIM_BLIND_REMOVE, SIM_SET_ZERO,    SIM_SET_ONE,
    };

    return ops[truce__random_below(random, sizeof ops / sizeof *ops)];
}

static void random_script(struct random *random, struct sim_script *script)
{
    static const enum sim_kind kinds[] = {SIM_JOURNAL, SIM_JOURNAL,  SIM_JOURNAL, SIM_COMMIT,
                                          SIM_NATIVE,  SIM_SNAPSHOT, SIM_SWEEP};

    memset(script, 0, sizeof *script);
    script->kind = kinds[truce__random_below(random, sizeof kinds / sizeof *kinds)];
    script->tries = 1 + (int)truce__random_below(random, 3);
    for (int d = 0; d < SIM_DOCUMENTS; d++)
        script->ops[d] = random_op(random);
    for (int d = 0; script->kind >= SIM_SNAPSHOT && d < SIM_DOCUMENTS; d++) {
        if (script->ops[d] != SIM_NONE)
            script->ops[d] = script->kind == SIM_SNAPSHOT ? SIM_REQUIRE : SIM_NONE;
    }
    if (script->kind <= SIM_NATIVE && truce__random_below(random, 8) == 0)
        script->key = 1;
}

static bool sets_values(enum sim_op op)
{
    return op == SIM_READ_WRITE || op == SIM_BLIND_WRITE || op == SIM_INSERT || op == SIM_REPLACE;
}

/* Draws the unique values: some documents have one at the start, and some writes set another
 * one. */
static void random_keys(struct random *random, struct sim_scenario *scenario,
                        struct sim_script scripts[SIM_CLIENTS][SCRIPTS_MAX])
{
    scenario->keyed = true;
    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        scenario->keys[d] = truce__random_below(random, 3) ? d + 1 : 0;
        scenario->bare[d] = truce__random_below(random, 4) == 0;
    }
    for (int c = 0; c < scenario->clients_count; c++) {
        for (int i = 0; i < scenario->clients[c].count; i++) {
            struct sim_script *script = &scripts[c][i];

            for (int d = 0; d < SIM_DOCUMENTS; d++) {
                if (sets_values(script->ops[d]) && truce__random_below(random, 2))
                    script->keys[d] = 1 + (int)truce__random_below(random, 4);
            }
        }
    }
}

/* A scenario of a seed, which the shrinker makes smaller. */
struct made {
    struct sim_script scripts[SIM_CLIENTS][SCRIPTS_MAX];
    struct sim_scenario scenario;
    struct seed_chooser chooser;
};

const char *const truce__sim_subjects[SIM_SUBJECTS] = {
    "commits", "items", "revisions", "sets", "queue", "ledger", "transfer", "tree", "sync"};

/* Draws the calls of the pattern for all clients. */
static void random_calls(struct random *random, struct made *made)
{
    struct sim_scenario *scenario = &made->scenario;
    int calls = truce__sim_pattern(scenario->subject)->calls;
    bool all_keep = truce__random_below(random, 2);

    for (int c = 0; c < scenario->clients_count; c++) {
        scenario->clients[c].keeps = all_keep || truce__random_below(random, 2);
        scenario->clients[c].journal = truce__random_below(random, 2);
        scenario->clients[c].form = TRUCE_ITEM_FORM_OPERATOR + (int)truce__random_below(random, 3);
        for (int i = 0; i < scenario->clients[c].count; i++)
            made->scripts[c][i] = (struct sim_script){
                .kind = SIM_PATTERN, .call = (int)truce__random_below(random, (uint64_t)calls)};
    }
}

/* Derives the scenario from the seed. The order of the draws must not change, because seeds in
 * reports would then mean other scenarios. */
static void seed_make(enum sim_subject subject, uint64_t seed, struct made *made)
{
    struct random *random = &made->chooser.random;
    struct sim_scenario *scenario = &made->scenario;
    int plains;

    memset(made, 0, sizeof *made);
    made->chooser.base.choose = seed_choose;
    made->chooser.faults = 4;
    truce__random_seed(random, seed);
    scenario->name = "random";
    scenario->clients_count = 2 + (int)truce__random_below(random, 4);
    for (int c = 0; c < scenario->clients_count; c++) {
        scenario->clients[c].scripts = made->scripts[c];
        scenario->clients[c].count = 1 + (int)truce__random_below(random, 3);
        for (int i = 0; i < scenario->clients[c].count; i++)
            random_script(random, &made->scripts[c][i]);
    }
    for (int d = 0; d < SIM_DOCUMENTS; d++)
        scenario->missing[d] = truce__random_below(random, 4) == 0;
    scenario->crashes = (int)truce__random_below(random, 3);
    scenario->losses = (int)truce__random_below(random, 4);
    scenario->lates = (int)truce__random_below(random, 4);
    scenario->jumps = (int)truce__random_below(random, 4);
    scenario->subject = subject;
    plains = (int)truce__random_below(random, 6);
    if (subject != SIM_COMMITS)
        random_calls(random, made);
    else if (truce__random_below(random, 3) == 0)
        random_keys(random, scenario, made->scripts);
    if (plains >= 3) { /* Half of the runs have plain writers. */
        scenario->plains = plains - 2;
        for (int c = 0; c < scenario->clients_count; c++)
            scenario->clients[c].values = truce__random_below(random, 2);
        /* Without other faults, every lost plain write must be reported. */
        if (truce__random_below(random, 2))
            scenario->crashes = scenario->losses = scenario->lates = 0;
    }
}

void truce__sim_seed(enum sim_subject subject, uint64_t seed, FILE *trace,
                     struct sim_result *result)
{
    struct made made;

    seed_make(subject, seed, &made);
    truce__sim_run(&made.scenario, &made.chooser.base, trace, result);
}

/* ---- shrinking ------------------------------------------------------------------------------ */

/* Returns whether a part of the failed scenario fails with some choices. It tries other seeds,
 * because the old choices do not fit a scenario with fewer clients. */
static bool still_fails(const struct sim_scenario *scenario, uint64_t *seed)
{
    for (uint64_t i = 0; i < SHRINK_WALKS; i++) {
        struct sim_result result;

        truce__sim_walks(scenario, i, 1, NULL, &result);
        if (result.violation) {
            *seed = i;
            return true;
        }
    }
    return false;
}

/* Tries the scenario with one number reduced by one, and keeps it if it still fails. */
static bool seed_try_less(struct sim_scenario *scenario, int *number, int least, uint64_t *seed)
{
    if (*number <= least)
        return false;
    --*number;
    if (still_fails(scenario, seed))
        return true;
    ++*number;
    return false;
}

static bool without_client(struct sim_scenario *scenario, int client, uint64_t *seed)
{
    struct sim_scenario smaller = *scenario;

    if (scenario->clients_count <= 1)
        return false;
    smaller.clients_count--;
    for (int c = client; c < smaller.clients_count; c++)
        smaller.clients[c] = scenario->clients[c + 1];
    if (!still_fails(&smaller, seed))
        return false;
    *scenario = smaller;
    return true;
}

static bool seed_shrink_once(struct sim_scenario *scenario, uint64_t *seed)
{
    for (int c = 0; c < scenario->clients_count; c++) {
        if (without_client(scenario, c, seed) ||
            seed_try_less(scenario, &scenario->clients[c].count, 1, seed))
            return true;
    }
    return seed_try_less(scenario, &scenario->crashes, 0, seed) ||
           seed_try_less(scenario, &scenario->losses, 0, seed) ||
           seed_try_less(scenario, &scenario->lates, 0, seed) ||
           seed_try_less(scenario, &scenario->jumps, 0, seed) ||
           seed_try_less(scenario, &scenario->plains, 0, seed);
}

void truce__sim_shrink(enum sim_subject subject, uint64_t seed, FILE *trace,
                       struct sim_result *result)
{
    struct made made;
    uint64_t walk = 0;
    bool shrunk = false;

    seed_make(subject, seed, &made);
    while (seed_shrink_once(&made.scenario, &walk))
        shrunk = true;
    if (!shrunk) {
        truce__sim_seed(subject, seed, trace, result);
        return;
    }
    fprintf(trace,
            "%d clients, %d crashes, %d lost replies, %d late calls, %d jumps, %d plain writes are "
            "enough:\n",
            made.scenario.clients_count, made.scenario.crashes, made.scenario.losses,
            made.scenario.lates, made.scenario.jumps, made.scenario.plains);
    truce__sim_walks(&made.scenario, walk, 1, trace, result);
}
