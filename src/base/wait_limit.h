#ifndef TRUCE_BASE_WAIT_LIMIT_H
#define TRUCE_BASE_WAIT_LIMIT_H

/*
 * Limits how often an operation waits without success. An operation that makes many calls, and
 * continues when one of them fails, would otherwise wait each time for a lock that a stopped
 * process holds. Within a scope, a wait for a lock may take its whole deadline until one of them
 * has failed. After that, the waits of this thread try once.
 */
#include <stdbool.h>

/* Begins a scope. Returns the previous state, for truce__wait_limit_leave. */
int truce__wait_limit_enter(void);
void truce__wait_limit_leave(const int *before);

/* Records that a wait for a lock of another process has failed. */
void truce__wait_limit_fail(void);
bool truce__wait_limit_reached(void);

/* Begins a scope that ends with the block. */
#define WAIT_LIMIT_SCOPE()                                                                         \
    __attribute__((cleanup(truce__wait_limit_leave), unused)) int wait_limit_before =              \
        truce__wait_limit_enter()

#endif
