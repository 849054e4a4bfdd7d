#ifndef TRUCE_BASE_FORKS_H
#define TRUCE_BASE_FORKS_H

/*
 * Counts the forks on the way to this process, so that a child recognizes what its parent opened.
 *
 * A child of a fork has only the thread that forked. A lock that another thread held stays held
 * there. So each lock of the process, as opposed to one of a store, has handlers of forks in its
 * file. They wait for the lock, or reset it in the child.
 *
 * Constructors register the handlers when the library is loaded. A handler that is registered later
 * could come too late. The C library does not call it for a fork that has already begun, and the
 * thread that registers it could hold the lock by then.
 */
#include <stdint.h>

/* Returns the number of forks. It differs from a number that the parent recorded. */
uint32_t truce__forks(void);

/* Calls `before` before a fork, and the others after it. Each may be NULL. Only constructors call
 * this function. */
void truce__forks_watch(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));

#endif
