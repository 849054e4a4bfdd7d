#include "base/clock.h"

#include <errno.h>
#include <time.h>

static int64_t now_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t truce__clock_wall_ms(void)
{
    return now_ns(CLOCK_REALTIME) / 1000000;
}

int64_t truce__clock_monotonic_ns(void)
{
    return now_ns(CLOCK_MONOTONIC);
}

void truce__clock_sleep_ms(int64_t duration_ms)
{
    struct timespec rest = {duration_ms / 1000, (duration_ms % 1000) * 1000000};

    while (nanosleep(&rest, &rest) && errno == EINTR)
        continue;
}
