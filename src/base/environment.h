#ifndef TRUCE_BASE_ENVIRONMENT_H
#define TRUCE_BASE_ENVIRONMENT_H

/*
 * Where time and chance come from. A thread may put another world in the place of the system's: the
 * simulator does, so that a run is a function of its seed.
 */
#include <stdint.h>

struct world {
    void *arg;
    int64_t (*wall_ms)(void *arg);
    int64_t (*monotonic_ns)(void *arg);
    void (*sleep_ms)(void *arg, int64_t duration_ms);
    uint64_t (*entropy)(void *arg);
    /* Names the monotonic clock (truce__clock_name); NULL: the clock has no name. */
    const char *(*clock_name)(void *arg);
};

/* For this thread, until it is called again; NULL: the system's. The world is borrowed. */
void truce__world_use(const struct world *world);
const struct world *truce__world(void); /* NULL: the system's */

#endif
