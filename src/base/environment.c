#include "base/environment.h"

#include <stddef.h>

static _Thread_local const struct environment *current;

void truce__environment_use(const struct environment *environment)
{
    current = environment;
}

const struct environment *truce__environment(void)
{
    return current;
}
