#include "base/forks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/assert.h"

static _Atomic uint32_t forks;

uint32_t truce__forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

void truce__forks_watch(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
    truce_assert(!pthread_atfork(before, in_parent, in_child));
}

static void forks_count(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

__attribute__((constructor)) static void forks_begin(void)
{
    truce__forks_watch(NULL, NULL, forks_count);
}
