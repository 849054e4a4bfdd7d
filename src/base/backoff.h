#ifndef TRUCE_BASE_BACKOFF_H
#define TRUCE_BASE_BACKOFF_H

/*
 * Exponential backoff with full jitter (M. Brooker, "Exponential Backoff And Jitter", 2015): before
 * each retry, a thread sleeps for a random time below a limit that doubles. Threads that collided
 * on one document therefore rarely collide again.
 */
#include <stdint.h>

/* Returns a random number of milliseconds from 0 to limit - 1. The limit is `first_ms` doubled
 * `retry` times, at most `max_ms`. The first retry has the number 0. */
int64_t truce__backoff_ms(uint32_t retry, uint32_t first_ms, uint32_t max_ms);

/* Sleeps for the milliseconds that truce__backoff_ms returns. */
void truce__backoff_sleep(uint32_t retry, uint32_t first_ms, uint32_t max_ms);

#endif
