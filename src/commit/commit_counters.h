#ifndef TRUCE_COMMIT_COMMIT_COUNTERS_H
#define TRUCE_COMMIT_COMMIT_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* Counters of events in this process, for truce_commit_count. They are increased with relaxed
 * order. */
struct counters {
    atomic_uint_fast64_t committed, conflicts, aborted, reruns, completions, waits, unknown, fast,
        native;
};

extern struct counters truce__counters;

#define COUNT(event) atomic_fetch_add_explicit(&truce__counters.event, 1, memory_order_relaxed)

#endif
