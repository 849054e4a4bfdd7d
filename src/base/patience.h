#ifndef TRUCE_BASE_PATIENCE_H
#define TRUCE_BASE_PATIENCE_H

/*
 * How often a call waits in vain. A call that consists of many, and goes on when one of them fails, would wait for a lock
 * that a stopped process holds as often as it tries. Within a scope only the first wait takes its whole deadline; after it
 * has failed, the others of this thread try once.
 */
#include <stdbool.h>

/* Returns what it was before, for truce__patience_leave. */
int truce__patience_enter(void);
void truce__patience_leave(const int *before);

/* A wait for a lock of another process has failed. */
void truce__patience_lose(void);
bool truce__patience_is_lost(void);

/* Until the end of the block, however it is left. */
#define PATIENCE_SCOPE()                                                                           \
    __attribute__((cleanup(truce__patience_leave), unused)) int patience_before =                  \
        truce__patience_enter()

#endif
