#ifndef TRUCE_TESTS_SUPPORT_PROCESSOR_H
#define TRUCE_TESTS_SUPPORT_PROCESSOR_H

/* The processor of a thread. On one processor, each read finds the same slot until it is taken. */
#include <sched.h>
#include <stddef.h>

#include "tests/support/test.h"

/* Limits this thread, and threads that it starts later, to the processor. */
static inline void processor_use(int processor)
{
    cpu_set_t here;

    CPU_ZERO(&here);
    CPU_SET((size_t)processor, &here);
    CHECK(!sched_setaffinity(0, sizeof here, &here));
}

/* Limits this thread, and threads that it starts later, to its current processor. */
static inline void processor_stay(void)
{
    processor_use(sched_getcpu());
}

#endif
