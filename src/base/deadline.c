#include "base/deadline.h"

static _Thread_local int64_t deadline_ns;

int64_t truce__deadline_set(int64_t until_ns)
{
    int64_t before = deadline_ns;

    deadline_ns = until_ns;
    return before;
}

int64_t truce__deadline(void)
{
    return deadline_ns;
}
