#ifndef TRUCE_TESTS_SUPPORT_PROCESSOR_H
#define TRUCE_TESTS_SUPPORT_PROCESSOR_H

/* Binds a thread to one processor. The reader pool (engine/reader_pool.c) prefers the slot of the
 * processor, so tests know which slot a read takes. */
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
