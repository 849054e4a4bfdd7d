#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void sleep_on(atomic_uint *word, int how, unsigned seen, int64_t nanoseconds)
{
    struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};

    if (nanoseconds > 0)
        syscall(SYS_futex, word, how, seen, &time, NULL, 0);
}

void truce__futex_wait(atomic_uint *word, unsigned seen, int64_t nanoseconds)
{
    sleep_on(word, FUTEX_WAIT_PRIVATE, seen, nanoseconds);
}

void truce__futex_wake(atomic_uint *word, int sleepers_max)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, sleepers_max, NULL, NULL, 0);
}

void truce__futex_wait_shared(atomic_uint *word, unsigned seen, int64_t nanoseconds)
{
    sleep_on(word, FUTEX_WAIT, seen, nanoseconds);
}

void truce__futex_wake_shared(atomic_uint *word, int sleepers_max)
{
    syscall(SYS_futex, word, FUTEX_WAKE, sleepers_max, NULL, NULL, 0);
}
