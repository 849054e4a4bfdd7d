#include <stdio.h>
#include <string.h>

#include "sim/sim.h"

/*
 * A run from a seed: the seed makes the scenario (clients, what their transactions do, how many
 * faults of each kind) and then every choice. Most choices are plain steps; a client keeps the turn
 * for a while sometimes, because races need somebody who is slow as well as somebody who is fast.
 */

#define SCRIPTS_MAX 4

struct dice {
    struct sim_chooser base;
    struct random random;
    int favourite;
    unsigned faults; /* in 100 choices, those that may be anything */
};

static int choose(struct sim_chooser *base, const struct sim_choice *choices, int count,
                  uint64_t state)
{
    struct dice *dice = (struct dice *)base;
    struct random *random = &dice->random;
    int steps[64], steps_count = 0;

    (void)state;
    if (truce__random_below(random, 100) < dice->faults)
        return (int)truce__random_below(random, (uint64_t)count);
    for (int i = 0; i < count; i++) {
        if (choices[i].action != SIM_STEP)
            continue;
        if (choices[i].who == dice->favourite && truce__random_below(random, 100) < 60)
            return i;
        steps[steps_count++] = i;
    }
    if (!steps_count)
        return (int)truce__random_below(random, (uint64_t)count);
    count = steps[truce__random_below(random, (uint64_t)steps_count)];
    dice->favourite = choices[count].who;
    return count;
}

void truce__sim_walks(const struct sim_scenario *scenario, uint64_t seed, uint64_t runs,
                      FILE *trace, struct sim_result *result)
{
    for (uint64_t i = 0; i < runs; i++) {
        struct dice dice = {.base = {.choose = choose}, .faults = 15};

        truce__random_seed(&dice.random, seed + i);
        truce__sim_run(scenario, &dice.base, NULL, result);
        if (!result->violation)
            continue;
        if (trace) { /* once more, to be read */
            fprintf(trace, "scenario %s, walk %llu:\n", scenario->name,
                    (unsigned long long)(seed + i));
            truce__random_seed(&dice.random, seed + i);
            truce__sim_run(scenario, &dice.base, trace, result);
        }
        return;
    }
}

static enum sim_op random_op(struct random *random)
{
    static const enum sim_op ops[] = {
        SIM_NONE,       SIM_NONE,        SIM_REQUIRE,     SIM_REQUIRE,      SIM_READ_WRITE,
        SIM_READ_WRITE, SIM_BLIND_WRITE, SIM_BLIND_WRITE, SIM_INSERT,       SIM_REMOVE,
        SIM_HOLD,       SIM_REPLACE,     SIM_READ_WRITE,  SIM_BLIND_REMOVE,
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

void truce__sim_seed(uint64_t seed, FILE *trace, struct sim_result *result)
{
    struct sim_script scripts[SIM_CLIENTS][SCRIPTS_MAX];
    struct sim_scenario scenario = {.name = "random"};
    struct dice dice = {.base = {.choose = choose}, .faults = 4};
    struct random *random = &dice.random;

    truce__random_seed(random, seed);
    scenario.clients_count = 2 + (int)truce__random_below(random, 4);
    for (int c = 0; c < scenario.clients_count; c++) {
        scenario.clients[c].scripts = scripts[c];
        scenario.clients[c].count = 1 + (int)truce__random_below(random, 3);
        for (int i = 0; i < scenario.clients[c].count; i++)
            random_script(random, &scripts[c][i]);
    }
    for (int d = 0; d < SIM_DOCUMENTS; d++)
        scenario.missing[d] = truce__random_below(random, 4) == 0;
    scenario.crashes = (int)truce__random_below(random, 3);
    scenario.losses = (int)truce__random_below(random, 4);
    scenario.lates = (int)truce__random_below(random, 4);
    scenario.jumps = (int)truce__random_below(random, 4);
    truce__sim_run(&scenario, &dice.base, trace, result);
}
