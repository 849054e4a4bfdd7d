#ifndef TRUCE_BASE_ENVIRONMENT_H
#define TRUCE_BASE_ENVIRONMENT_H

/* The source of time and random numbers. A thread can replace the system's source by its own. The
 * simulator does so, and a run is then a function of its seed. */
#include <stdint.h>

struct environment {
    /* The argument of the functions, which do what those of clock.h and random.h do. */
    void *arg;
    int64_t (*wall_ms)(void *arg);
    int64_t (*monotonic_ns)(void *arg);
    void (*sleep_ms)(void *arg, int64_t duration_ms);
    uint64_t (*entropy)(void *arg);
    /* Returns the name of the monotonic clock (truce__clock_name), or NULL if the clock has no
     * name. */
    const char *(*clock_name)(void *arg);
};

/* Sets the environment of this thread, which is borrowed. NULL sets the environment of the
 * system. */
void truce__environment_use(const struct environment *environment);
/* Returns the environment of this thread, or NULL if it is that of the system. */
const struct environment *truce__environment(void);

#endif
