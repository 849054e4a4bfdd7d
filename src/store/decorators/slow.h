#ifndef TRUCE_STORE_DECORATORS_SLOW_H
#define TRUCE_STORE_DECORATORS_SLOW_H

/* The slow decorator: a store that tells its calls that took long, those of its snapshots, too. */
#include "truce/hooks.h"
#include "truce/sys/store.h"

/* `hooks` with a function `slow`; copied. */
truce_store *truce__slow_wrap(truce_store *inner, const truce_store_hooks *hooks);

#endif
