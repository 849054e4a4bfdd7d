#ifndef TRUCE_BASE_FUTEX_H
#define TRUCE_BASE_FUTEX_H

/*
 * Futexes: threads sleep until a word of memory changes. After waking up, a thread must check the
 * word again. Spurious wake-ups happen, for example by a thread that used the memory for another
 * purpose before.
 */
#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while `*word` is `seen`, until another thread wakes this one, for `nanoseconds` at most.
 * May return early. A wake-up does not access the word, which may have been freed. */
void truce__futex_wait(atomic_uint *word, unsigned seen, int64_t nanoseconds);
void truce__futex_wake(atomic_uint *word, int sleepers_max);

/* Does the same for a word in memory that processes share, which takes longer. */
void truce__futex_wait_shared(atomic_uint *word, unsigned seen, int64_t nanoseconds);
void truce__futex_wake_shared(atomic_uint *word, int sleepers_max);

#endif
