#include "base/deadline.h"

#include "base/clock.h"

static _Thread_local int64_t deadline_ns;

int64_t truce__deadline_set(int64_t until_ns)
{
    int64_t before = deadline_ns;

    deadline_ns = until_ns;
    return before;
}

int64_t truce__deadline(void)
{
    return deadline_ns;
}

int64_t truce__deadline_least(int64_t until_ns)
{
    if (!until_ns || !deadline_ns)
        return until_ns ? until_ns : deadline_ns;
    return until_ns < deadline_ns ? until_ns : deadline_ns;
}

int64_t truce__deadline_narrow(uint32_t deadline_ms)
{
    int64_t until_ns =
        deadline_ms ? truce__clock_monotonic_ns() + deadline_ms * INT64_C(1000000) : 0;

    return truce__deadline_set(truce__deadline_least(until_ns));
}

void truce__deadline_leave(const int64_t *before_ns)
{
    (void)truce__deadline_set(*before_ns);
}
