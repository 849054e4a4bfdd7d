#ifndef TRUCE_BASE_DEADLINE_H
#define TRUCE_BASE_DEADLINE_H

/*
 * The deadline of what a thread does now, for the calls below that wait for somebody: a server that stands
 * still does not hold a commit for longer than the commit may take. Each call does not have to hand it down.
 */
#include <stdint.h>

/* Monotonic; 0: none. Gives back what it was, which is set again when the work is done. */
int64_t truce__deadline_set(int64_t until_ns);
int64_t truce__deadline(void);

#endif
