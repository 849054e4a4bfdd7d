#ifndef TRUCE_TESTS_SUPPORT_EARLY_CLOCK_H
#define TRUCE_TESTS_SUPPORT_EARLY_CLOCK_H

/* An environment whose wall clock shows the time of an hour ago. A transaction that is posted in it
 * may have an expiry that has passed for all other threads. */
#include <stddef.h>
#include <sys/random.h>
#include <time.h>

#include "base/environment.h"

static inline int64_t early_read_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t early_wall(void *arg)
{
    (void)arg;
    return early_read_ns(CLOCK_REALTIME) / 1000000 - 3600000;
}

static inline int64_t early_monotonic(void *arg)
{
    (void)arg;
    return early_read_ns(CLOCK_MONOTONIC);
}

static inline void early_sleep(void *arg, int64_t duration_ms)
{
    struct timespec pause = {duration_ms / 1000, duration_ms % 1000 * 1000000};

    (void)arg;
    nanosleep(&pause, NULL);
}

static inline uint64_t early_entropy(void *arg)
{
    uint64_t drawn = 0;

    (void)arg;
    while (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        continue;
    return drawn;
}

/* Makes this thread use the environment until truce__environment_use(NULL). */
static inline void early_clock_use(void)
{
    static const struct environment environment = {.wall_ms = early_wall,
                                                   .monotonic_ns = early_monotonic,
                                                   .sleep_ms = early_sleep,
                                                   .entropy = early_entropy};

    truce__environment_use(&environment);
}

#endif
