#ifndef TRUCE_STORE_DECORATORS_SLOW_CALLS_H
#define TRUCE_STORE_DECORATORS_SLOW_CALLS_H

/* The slow decorator is a store that reports its slow calls, and those of its snapshots. */
#include "truce/hooks.h"
#include "truce/sys/store.h"

/* Wraps the store. `hooks` has a function `slow`; the struct is copied. */
truce_store *truce__slow_wrap(truce_store *inner, const truce_store_hooks *hooks);

#endif
