#ifndef TRUCE_BASE_FORKS_H
#define TRUCE_BASE_FORKS_H

/*
 * Counts the forks between the first process and this one, so that a child recognizes the stores
 * that a parent opened.
 *
 * A child of a fork has only the thread that forked. A lock that another thread held in the parent
 * is never released in the child. Therefore the file of each lock of the process, as opposed to a
 * lock of a store, has handlers for forks. They wait for the lock, or reset it in the child.
 *
 * Constructors register the handlers when the library is loaded. A handler that is registered later
 * could come too late. The C library does not call it for a fork that has already begun, and the
 * thread that registers it could hold the lock by then.
 */
#include <stdint.h>

/* Returns the number of forks. In a forked child, it differs from the number that the parent has
 * recorded. */
uint32_t truce__forks(void);

/* Registers `before`, which is called before a fork, and the other two, which are called after it.
 * Each may be NULL. Only constructors call this function. */
void truce__forks_watch(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));

#endif
