#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash_table.h"
#include "sim/sim.h"

/*
 * Explores all choices of a small scenario, depth first. It cannot return to a state: a path is the
 * list of choices, and each run replays a prefix of it and then takes the first choices. A state
 * that another path has reached is not explored again. It stores only a 64-bit hash of each state.
 * With a million states, the probability of a collision is about 3e-8.
 */

/* The maximum number of choices in a run. */
#define PATH_MAX 4096

/* A chooser that explores all choices, depth first. */
struct search {
    struct sim_chooser base;
    /* The hashes of all states that were reached. `states` has the states by their numbers. */
    struct hash_table seen;
    uint64_t *states;
    uint32_t states_room;
    /* The number of the choice that the path takes at each depth. */
    int path[PATH_MAX];
    /* The number of choices that the scheduler offered at each depth. */
    int width[PATH_MAX];
    /* The length of the prefix of `path` that the next run replays. */
    int length;
    /* The number of choices that the current run has made. */
    int depth;
};

/* Returns true if the state is new. `state` is a hash of the state, so it is not hashed again. */
static bool search_add(struct search *search, uint64_t state)
{
    for (struct hash_probe probe = truce__hash_probe(&search->seen, state);
         truce__hash_next(&probe);) {
        if (search->states[probe.number] == state)
            return false;
    }
    if (search->seen.count == search->states_room) {
        search->states_room = search->states_room ? 2 * search->states_room : 4096;
        search->states = bson_realloc(search->states, search->states_room * sizeof *search->states);
    }
    search->states[search->seen.count] = state;
    truce__hash_add(&search->seen, state, search->seen.count);
    return true;
}

/* Replays the known path, and then takes the first choice of each new state. Ends the run at a
 * state that was reached before. */
static int search_choose(struct sim_chooser *base, const struct sim_choice *choices, int count,
                         uint64_t state)
{
    struct search *search = (struct search *)base;
    int depth = search->depth++;

    (void)choices;
    truce_assert(depth < PATH_MAX);
    /* The state is not needed while a known path is replayed. */
    base->wants_state = depth + 1 >= search->length;
    if (depth < search->length) {
        /* A different number of choices would mean that the run is not deterministic. */
        truce_assert(search->width[depth] == count);
        return search->path[depth];
    }
    if (!search_add(search, state)) {
        search->depth--;
        return -1;
    }
    search->path[depth] = 0;
    search->width[depth] = count;
    search->length = depth + 1;
    return 0;
}

/* Advances to the next path. Returns false after the last one. */
static bool next_path(struct search *search)
{
    while (search->length > 0) {
        int last = search->length - 1;

        if (++search->path[last] < search->width[last])
            return true;
        search->length--;
    }
    return false;
}

static int search_replay_choice(struct sim_chooser *base, const struct sim_choice *choices,
                                int count, uint64_t state)
{
    struct search *search = (struct search *)base;
    int depth = search->depth++;

    (void)choices;
    (void)state;
    return depth < search->length && search->path[depth] < count ? search->path[depth] : 0;
}

void truce__sim_search(const struct sim_scenario *scenario, uint64_t runs_max, FILE *trace,
                       struct sim_search *result)
{
    struct search *search = bson_malloc0(sizeof *search);
    bool more = true;

    memset(result, 0, sizeof *result);
    search->base.choose = search_choose;
    while (more && result->runs < runs_max) {
        search->depth = 0;
        search->base.wants_state = search->length == 0;
        truce__sim_run(scenario, &search->base, NULL, &result->result);
        result->runs++;
        result->steps += (uint64_t)result->result.steps;
        if (result->result.violation)
            break;
        more = next_path(search);
    }
    result->states = search->seen.count;
    result->complete = !more && !result->result.violation;
    if (result->result.violation && trace) {
        struct sim_result again;

        search->base.choose = search_replay_choice;
        search->base.wants_state = false;
        search->depth = 0;
        fprintf(trace, "scenario %s:\n", scenario->name);
        truce__sim_run(scenario, &search->base, trace, &again);
    }
    truce__hash_release(&search->seen);
    bson_free(search->states);
    bson_free(search);
}
