#ifndef TRUCE_SIM_FIBER_H
#define TRUCE_SIM_FIBER_H

/* Coroutines: functions with a stack of their own, of which one runs at a time, until it hands the
 * thread back. Deterministic by nature: nothing runs that was not asked to. */
#include <stdbool.h>

struct fiber;

/* The function starts with the first resume. */
struct fiber *truce__fiber_new(void (*function)(void *arg), void *arg);

/* Runs it until it yields or returns; true: it returned. Called outside of any fiber. */
bool truce__fiber_resume(struct fiber *fiber);

/* Back to whoever resumed; called inside a fiber. */
void truce__fiber_yield(void);

/* The function has returned. */
void truce__fiber_free(struct fiber *fiber);

#endif
