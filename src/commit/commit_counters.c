#include "commit/commit_counters.h"

#include "truce/commit.h"

struct counters truce__counters;

void truce_commit_count(truce_commit_counters *counters)
{
    if (!counters)
        return;
    *counters = (truce_commit_counters){
        .committed = atomic_load(&truce__counters.committed),
        .conflicts = atomic_load(&truce__counters.conflicts),
        .aborted = atomic_load(&truce__counters.aborted),
        .reruns = atomic_load(&truce__counters.reruns),
        .completions = atomic_load(&truce__counters.completions),
        .waits = atomic_load(&truce__counters.waits),
        .unknown = atomic_load(&truce__counters.unknown),
        .fast = atomic_load(&truce__counters.fast),
        .native = atomic_load(&truce__counters.native),
    };
}
