#include "base/patience.h"

enum { PATIENCE_FREE, PATIENCE_COUNTED, PATIENCE_LOST };

static _Thread_local int patience;

int truce__patience_enter(void)
{
    int before = patience;

    if (patience == PATIENCE_FREE)
        patience = PATIENCE_COUNTED;
    return before;
}

void truce__patience_leave(const int *before)
{
    if (*before == PATIENCE_FREE)
        patience = PATIENCE_FREE;
}

void truce__patience_lose(void)
{
    if (patience == PATIENCE_COUNTED)
        patience = PATIENCE_LOST;
}

bool truce__patience_is_lost(void)
{
    return patience == PATIENCE_LOST;
}
