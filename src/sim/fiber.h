#ifndef TRUCE_SIM_FIBER_H
#define TRUCE_SIM_FIBER_H

/* Fibers: functions with their own stacks in one thread. One fiber runs at a time, until it yields.
 * The order of execution is therefore deterministic. */
#include <stdbool.h>

struct fiber;

/* Makes a fiber. Its function starts with the first resume. */
struct fiber *truce__fiber_new(void (*function)(void *arg), void *arg);

/* Runs the fiber until it yields or returns. Returns true if its function has returned. Must be
 * called outside of fibers. */
bool truce__fiber_resume(struct fiber *fiber);

/* Returns to the caller of resume. Must be called inside a fiber. */
void truce__fiber_yield(void);

/* Frees a fiber whose function has returned. Its stack is reused. */
void truce__fiber_free(struct fiber *fiber);

#endif
