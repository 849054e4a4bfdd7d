#ifndef TRUCE_BASE_DEADLINE_H
#define TRUCE_BASE_DEADLINE_H

/*
 * The deadline of what a thread does now, for the calls below: they end by then, whatever their own options say, and
 * a server that stands still does not hold a commit for longer than the commit may take. Each call does not have
 * to hand it down.
 */
#include <stdint.h>

/* Monotonic; 0: none. Gives back what it was, which is set again when the work is done. */
int64_t truce__deadline_set(int64_t until_ns);
int64_t truce__deadline(void);

/* The same, unless what there is ends before. deadline_ms from now; 0: as it is. */
int64_t truce__deadline_narrow(uint32_t deadline_ms);

/* The earlier of the two; 0: none. */
int64_t truce__deadline_least(int64_t until_ns);

/* What begins late does this much all the same: what is to be cleaned up is done if nobody is in the way. */
#define DEADLINE_LEAST_NS INT64_C(100000000)

void truce__deadline_leave(const int64_t *before_ns);

/* Until the end of the block, however it is left. */
#define DEADLINE_SCOPE(deadline_ms)                                                                \
    __attribute__((cleanup(truce__deadline_leave), unused)) int64_t deadline_before_ns =           \
        truce__deadline_narrow(deadline_ms)

#endif
