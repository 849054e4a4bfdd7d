#include "base/clock.h"

#include <errno.h>
#include <time.h>

#include "base/environment.h"

static int64_t clock_now_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t truce__clock_wall_ms(void)
{
    const struct world *world = truce__world();

    return world ? world->wall_ms(world->arg) : clock_now_ns(CLOCK_REALTIME) / 1000000;
}

int64_t truce__clock_monotonic_ns(void)
{
    const struct world *world = truce__world();

    return world ? world->monotonic_ns(world->arg) : clock_now_ns(CLOCK_MONOTONIC);
}

void truce__clock_sleep_ms(int64_t duration_ms)
{
    const struct world *world = truce__world();
    struct timespec rest = {duration_ms / 1000, (duration_ms % 1000) * 1000000};

    if (world) {
        world->sleep_ms(world->arg, duration_ms);
        return;
    }
    while (nanosleep(&rest, &rest) && errno == EINTR)
        continue;
}
