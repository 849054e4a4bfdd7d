#include "base/wait_limit.h"

enum { LIMIT_NONE, LIMIT_UNUSED, LIMIT_REACHED };

static _Thread_local int wait_limit;

int truce__wait_limit_enter(void)
{
    int before = wait_limit;

    if (wait_limit == LIMIT_NONE)
        wait_limit = LIMIT_UNUSED;
    return before;
}

void truce__wait_limit_leave(const int *before)
{
    if (*before == LIMIT_NONE)
        wait_limit = LIMIT_NONE;
}

void truce__wait_limit_fail(void)
{
    if (wait_limit == LIMIT_UNUSED)
        wait_limit = LIMIT_REACHED;
}

bool truce__wait_limit_reached(void)
{
    return wait_limit == LIMIT_REACHED;
}
