#ifndef TRUCE_BASE_BUDGET_H
#define TRUCE_BASE_BUDGET_H

/*
 * A budget limits the time and the memory of one call. The time ends at the deadline of the call,
 * or when another thread interrupts it.
 *
 * Work is counted in steps; reading one value is about one step. After each BUDGET_STEPS steps, the
 * budget reads the clock and the flag of the interrupt. The clock is a function pointer, so the
 * loops of query/ can be ended although query/ reads no clock, and a test can count steps.
 *
 * A budget belongs to one call or cursor and is used by one thread at a time. A budget that has
 * ended never becomes valid again: code that continues by mistake ends at its next step.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "truce/status.h"

/* The number of steps between two checks of the deadline. */
#define BUDGET_STEPS 4096u

struct budget {
    /* The number of steps until the next check. */
    uint32_t left;
    /* The error code with which the budget ended, or 0 while it has not ended. */
    uint32_t over;
    /* Returns the monotonic time in nanoseconds. NULL if the budget has no deadline. */
    int64_t (*clock_ns)(void);
    /* The monotonic time at which the budget ends, or 0 for no deadline. */
    int64_t deadline_ns;
    /* A flag that any thread sets to 1 to interrupt the call, or NULL. */
    const int *interrupted;
    /* The same flag of the store to which a view belongs, or NULL. */
    const int *above;
    /* The number of steps before the last check. */
    uint64_t spent;
    /* The bytes that all stages of a pipeline have, and their maximum or 0 for no maximum. */
    size_t memory, memory_max;
};

void truce__budget_init(struct budget *budget, int64_t deadline_ns, const int *interrupted);

/* Interrupts every call of this thread, with any budget, once `*flag` is 1. Only for work on which
 * no other thread depends. NULL ends this. */
void truce__budget_watch(const int *flag);

/* Checks the deadline and the flags. Returns TIMEOUT with MongoDB's code 50 for the deadline and
 * 11601 for the interrupt. */
truce_status truce__budget_check(struct budget *budget, bson_error_t *error);

/* Returns the number of steps so far. */
uint64_t truce__budget_spent(const struct budget *budget);

truce_status truce__budget_spend_many(struct budget *budget, uint32_t steps, bson_error_t *error);

/* Counts steps. Returns TIMEOUT if the budget has ended. If `budget` is NULL, there is no limit. */
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

/* Records that a stage's memory changed from `before` to `after` bytes. Returns false if all stages
 * together exceed the maximum; the change is recorded anyway, and the stage must later record that
 * it has freed the memory. `budget` may be NULL. */
bool truce__budget_hold(struct budget *budget, size_t before, size_t after);
/* Returns the error for exceeded memory: LIMIT, with MongoDB's code 146. */
truce_status truce__budget_full(const struct budget *budget, bson_error_t *error);

#endif
