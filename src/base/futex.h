#ifndef TRUCE_BASE_FUTEX_H
#define TRUCE_BASE_FUTEX_H

/*
 * Sleeping on a word of memory, and waking who sleeps there. Who sleeps looks at the word again when it returns, for
 * it may be woken for nothing: also by one who knew the memory as something else.
 */
#include <stdatomic.h>
#include <stdint.h>

/* Returns at the latest after `nanoseconds`, or as soon as *word is not `seen` any more and somebody wakes; may return
 * early. Waking does not touch the word, which may be gone by then. */
void truce__word_sleep(atomic_uint *word, unsigned seen, int64_t nanoseconds);
void truce__word_wake(atomic_uint *word, int sleepers_max);

/* The same of a word that several processes share, which costs more. */
void truce__word_sleep_shared(atomic_uint *word, unsigned seen, int64_t nanoseconds);
void truce__word_wake_shared(atomic_uint *word, int sleepers_max);

#endif
