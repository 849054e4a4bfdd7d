#ifndef TRUCE_BASE_BUDGET_H
#define TRUCE_BASE_BUDGET_H

/*
 * What one call may spend: time, until its deadline passes or somebody interrupts it, and memory.
 *
 * Work is counted in steps; a step is about one value looked at. Only every BUDGET_STEPS steps the
 * budget looks at the clock, by the function that it was given, and at the flag. So the loops of query/
 * can be ended, and query/ still reads no clock: with a budget of its own making a test counts work.
 *
 * A budget belongs to one call or cursor, and is used by one thread at a time. Once it is over it
 * stays over: whatever goes on by mistake ends at its next step.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "truce/status.h"

#define BUDGET_STEPS 4096u

struct budget {
    uint32_t left;             /* steps until the next look */
    uint32_t over;             /* the code of its end; 0: it goes on */
    int64_t (*clock_ns)(void); /* monotonic; NULL: there is no deadline */
    int64_t deadline_ns;       /* 0: none */
    const int *interrupted;    /* set to 1 by any thread; NULL: nobody does */
    const int *above;          /* the same, of the store that a view is of */
    uint64_t spent;            /* steps, up to the last look */
    size_t memory, memory_max; /* held by all stages of a pipeline together; max 0: no maximum */
};

void truce__budget_init(struct budget *budget, int64_t deadline_ns, const int *interrupted);

/* What this thread works on ends as if it was interrupted once the flag is set, whatever its budgets are; NULL: nothing else
 * ends it. For work that nobody else's depends on. */
void truce__budget_watch(const int *flag);

/* Is it over? TIMEOUT, with MongoDB's code 50 for the deadline and 11601 for the interrupt. */
truce_status truce__budget_look(struct budget *budget, bson_error_t *error);

/* The steps taken so far. */
uint64_t truce__budget_spent(const struct budget *budget);

truce_status truce__budget_spend_many(struct budget *budget, uint32_t steps, bson_error_t *error);

/* TIMEOUT: it is over. `budget` may be NULL: nothing ends the work. */
static inline truce_status truce__budget_spend(struct budget *budget, uint32_t steps,
                                               bson_error_t *error)
{
    if (!budget)
        return TRUCE_OK;
    if (steps < budget->left) {
        budget->left -= steps;
        return TRUCE_OK;
    }
    return truce__budget_spend_many(budget, steps, error);
}

/* Who holds more or less memory says so; false: it is more than all may hold together. What was
 * added has to be taken off again in any case. `budget` may be NULL. */
bool truce__budget_hold(struct budget *budget, size_t before, size_t after);
/* The refusal that belongs to it: LIMIT, with MongoDB's code 146. */
truce_status truce__budget_full(const struct budget *budget, bson_error_t *error);

#endif
