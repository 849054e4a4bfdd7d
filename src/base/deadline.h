#ifndef TRUCE_BASE_DEADLINE_H
#define TRUCE_BASE_DEADLINE_H

/*
 * The deadline of the calling thread's current operation. Every call below it ends by then, even if
 * its own options allow more time. A server that does not reply therefore cannot delay a commit
 * beyond the commit's deadline. The deadline is thread-local, so no function has to pass it on.
 */
#include <stdint.h>

/* Sets the deadline to the monotonic time `until_ns`, or removes it if `until_ns` is 0. Returns the
 * previous deadline, which the caller restores. */
int64_t truce__deadline_set(int64_t until_ns);
int64_t truce__deadline(void);

/* Sets the deadline to deadline_ms from now, unless the current one is earlier. If deadline_ms is
 * 0, changes nothing. Returns the previous deadline. */
int64_t truce__deadline_narrow(uint32_t deadline_ms);

/* Returns the earlier of `until_ns` and the current deadline. 0 means no deadline. */
int64_t truce__deadline_least(int64_t until_ns);

/* The minimum nanoseconds for cleaning up after the deadline: enough if no lock must be waited
 * for. */
#define DEADLINE_LEAST_NS INT64_C(100000000)

void truce__deadline_leave(const int64_t *before_ns);

/* Narrows the deadline until the end of the block. */
#define DEADLINE_SCOPE(deadline_ms)                                                                \
    __attribute__((cleanup(truce__deadline_leave), unused)) int64_t deadline_before_ns =           \
        truce__deadline_narrow(deadline_ms)

#endif
