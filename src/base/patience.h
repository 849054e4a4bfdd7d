#ifndef TRUCE_BASE_PATIENCE_H
#define TRUCE_BASE_PATIENCE_H

/*
 * Limits how often an operation waits in vain. A call that makes many calls, and continues when one
 * of them fails, would wait again and again for a lock that a stopped process holds. Within a
 * scope, only the first wait for a lock may take its whole deadline. After it has failed, the other
 * waits of this thread try once.
 */
#include <stdbool.h>

/* Begins a scope. Returns the state before, for truce__patience_leave. */
int truce__patience_enter(void);
void truce__patience_leave(const int *before);

/* Records that a wait for a lock of another process has failed. */
void truce__patience_lose(void);
bool truce__patience_is_lost(void);

/* Begins a scope that ends with the block. */
#define PATIENCE_SCOPE()                                                                           \
    __attribute__((cleanup(truce__patience_leave), unused)) int patience_before =                  \
        truce__patience_enter()

#endif
