#ifndef TRUCE_TESTS_SUPPORT_SCENARIOS_H
#define TRUCE_TESTS_SUPPORT_SCENARIOS_H

/* Small cases of the commit protocol, the same as in its formal models. A scenario gives the
 * concurrent writes of each client. */
#include "sim/sim.h"

extern const struct sim_scenario scenarios[];
extern const int scenarios_count;

/* Returns the scenario of that name; aborts if no scenario has it. */
const struct sim_scenario *scenario_named(const char *name);

#endif
