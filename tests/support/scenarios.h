#ifndef TRUCE_TESTS_SUPPORT_SCENARIOS_H
#define TRUCE_TESTS_SUPPORT_SCENARIOS_H

/* The small cases of the commit protocol, those of its models: who writes what beside whom. */
#include "sim/sim.h"

extern const struct sim_scenario scenarios[];
extern const int scenarios_count;

/* The scenario of that name; aborts if there is none. */
const struct sim_scenario *scenario_named(const char *name);

#endif
