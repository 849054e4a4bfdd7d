#ifndef TRUCE_TESTS_SUPPORT_NO_SLEEP_H
#define TRUCE_TESTS_SUPPORT_NO_SLEEP_H

/* An environment in which no thread sleeps: the clock is the sum of all sleeps. Random numbers
 * are counted, so that a repeated run is the same; threads may share it. */
#include <stdatomic.h>
#include <stddef.h>

#include "base/environment.h"

static atomic_llong no_sleep_ms = 1700000000000;
/* The difference of the wall clock of this process to the sum of sleeps, in ms. */
static atomic_llong no_sleep_skew_ms;
static atomic_ullong no_sleep_drawn;

/* The name of the monotonic clock, or NULL. */
static const char *_Atomic no_sleep_clock;

static int64_t no_sleep_wall(void *arg)
{
    (void)arg;
    return atomic_load(&no_sleep_ms) + atomic_load(&no_sleep_skew_ms);
}

static int64_t no_sleep_monotonic(void *arg)
{
    (void)arg;
    return atomic_load(&no_sleep_ms) * 1000000;
}

static void no_sleep_on(void *arg, int64_t duration_ms)
{
    (void)arg;
    atomic_fetch_add(&no_sleep_ms, duration_ms);
}

static uint64_t no_sleep_draw(void *arg)
{
    uint64_t x = (atomic_fetch_add(&no_sleep_drawn, 1) + 1) * UINT64_C(0x9e3779b97f4a7c15);

    (void)arg;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static const char *no_sleep_name(void *arg)
{
    (void)arg;
    return atomic_load(&no_sleep_clock);
}

/* Makes this thread use the environment until truce__environment_use(NULL). */
static inline void no_sleep_use(void)
{
    static const struct environment environment = {NULL,        no_sleep_wall, no_sleep_monotonic,
                                                   no_sleep_on, no_sleep_draw, no_sleep_name};

    truce__environment_use(&environment);
}

/* Resets the clocks and the random numbers, and makes this thread use the environment. */
static inline void no_sleep_begin(void)
{
    atomic_store(&no_sleep_ms, 1700000000000);
    atomic_store(&no_sleep_skew_ms, 0);
    atomic_store(&no_sleep_drawn, 0);
    no_sleep_use();
}

#endif
